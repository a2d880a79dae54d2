"""Predictions without own labels: those of corrected labels and of labels as given are stacked as the labels tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import revup
from revup.auditing.left_out import LeftOut, left_out_events, probabilities, stacked_share

FRAMES, LABELS = 30, 8000


@pytest.mark.parametrize(("share", "rate"), [(0.3, 0.1), (0.1, 0.5), (0.0, 0.3)])
def test_share_is_that_of_the_mixture_which_labels_were_drawn_from(share: float, rate: float) -> None:
    draw = np.random.default_rng(0)
    r = draw.dirichlet(np.full(FRAMES, 0.05), (2, LABELS))
    drawn_from = np.where((draw.random(LABELS) < share)[:, None], r[1], r[0])
    label = np.minimum((draw.random(LABELS)[:, None] > drawn_from.cumsum(1)).sum(1), FRAMES - 1)
    label = np.where(draw.random(LABELS) < rate, draw.integers(FRAMES, size=LABELS), label)
    rows = np.arange(LABELS)
    assert stacked_share(r[0, rows, label], r[1, rows, label], FRAMES) == pytest.approx(share, abs=0.02)


def test_predictions_are_stacked_and_the_model_stays_as_it_was(tmp_path: Path) -> None:
    world = revup.World(frames=20, seed=1)
    corpus = revup.Corpus.build(train=world.sample(400, seed=1), test=world.sample(20, seed=2), out=tmp_path / "data")
    noisy, plain = (
        revup.train(corpus, "counts", eta=0.4, out=tmp_path / noise, objective={"noise": noise}, device="cpu")
        for noise in ("estimated", "none")
    )
    before = revup.evaluate(noisy, corpus, "test")
    counts, other = noisy.module.counts, plain.module.counts
    assert counts is not None
    assert other is not None
    alone = replace(left_out_events(corpus, noisy), as_given=None, share=0.0)
    as_given = LeftOut(other, left_out_events(corpus, plain))
    stacked = LeftOut(counts, replace(alone, as_given=as_given, share=0.25))
    for split in (corpus.split("train"), corpus.split("test")):
        first = probabilities(noisy, LeftOut(counts, alone), split)[0]
        second = probabilities(plain, as_given, split)[0]
        assert np.abs(first - second).max() > 0.1
        assert probabilities(noisy, stacked, split)[0] == pytest.approx(0.75 * first + 0.25 * second, abs=1e-6)
    assert revup.evaluate(noisy, corpus, "test") == before
