"""Counts that several models stand on are fitted once, where a sweep asks for it, and are the same bits."""

from __future__ import annotations

from typing import Any

import pytest

from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.models.count_prior import CountPrior, CountSettings
from revup.models.shared_counts import fitted_counts, sharing_counts


def test_only_equal_fits_of_one_corpus_are_shared(tiny_corpus: Corpus) -> None:
    half = Observation(0.5, 0.2, seed=1)
    with sharing_counts():
        first = fitted_counts(tiny_corpus, half, CountSettings())
        assert fitted_counts(tiny_corpus, half, CountSettings()) is first
        others: list[tuple[Corpus, Observation, CountSettings]] = [
            (Corpus.load(tiny_corpus.path), half, CountSettings()),
            (tiny_corpus, Observation(0.5, 0.2, seed=2), CountSettings()),
            (tiny_corpus, Observation(0.5, 0.2, seed=1, noise="confusable"), CountSettings()),
            (tiny_corpus, half, CountSettings(noise="none")),
            (tiny_corpus, half, CountSettings(noise_rate=0.1)),
        ]
        for other in others:
            fitted_counts(tiny_corpus, half, CountSettings())
            assert fitted_counts(*other) is not fitted_counts(tiny_corpus, half, CountSettings())
    kept = fitted_counts(tiny_corpus, half, CountSettings())
    assert fitted_counts(tiny_corpus, half, CountSettings()) is not kept  # outside a sweep nothing is kept


def test_settings_of_the_network_leave_counts_shared(tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    from revup.models import model_module

    fits, fit = [], CountPrior.fit
    monkeypatch.setattr(CountPrior, "fit", lambda *given: fits.append(given) or fit(*given))
    objectives: list[Any] = [
        model_module("revup").Objective(),
        model_module("ssdvae").Objective(anchor=100.0),
        model_module("tagger").Objective(gate=1.0),
        model_module("counts").Objective(),
    ]
    with sharing_counts():
        assert len({id(fitted_counts(tiny_corpus, Observation(0.5), each)) for each in objectives}) == 1
    assert len(fits) == 1
