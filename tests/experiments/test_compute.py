"""One run of a sweep: what it computes, writes and leaves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.experiments.compute import Deadline, TimeUp, compute
from revup.experiments.results import Run, read_result
from revup.experiments.sweep import Sweep
from revup.models.lookup import Lookup

Settings = dict[str, dict[str, Any]]


def test_result_equals_training_and_evaluating(tmp_path: Path, tiny_corpus: Corpus, tiny: Settings) -> None:
    run = Run.of("tagger", epsilon=0.5, eta=0.2, seed=3, overrides=tiny)
    found = compute(run, tiny_corpus, tmp_path)
    model = revup.train(tiny_corpus, "tagger", 0.5, 0.2, 3, **tiny)
    for split in ("test", "valid"):
        expected = revup.evaluate(model, tiny_corpus, split)
        assert {key: found[split][key] for key in expected} == expected
    assert found["data"] == tiny_corpus.fingerprint
    assert found["config"] == model.config.to_json()
    assert (found["epochs"], found["best_epoch"]) == (1, 1)
    assert found["seconds"] > 0
    assert read_result(tmp_path, run.name(tiny_corpus.fingerprint)) == found


def test_uninterrupted_run_writes_no_weights(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tiny: Settings
) -> None:
    """With word vectors they are hundreds of megabytes, and nobody asks for them."""
    written: list[Path] = []
    monkeypatch.setattr("revup.inference.trained.save_tensors", lambda path, *rest: written.append(path))
    monkeypatch.setattr("revup.training.checkpoint.save_tensors", lambda path, *rest: written.append(path))
    compute(Run.of("revup", overrides=tiny), tiny_corpus, tmp_path)
    assert not written
    assert not list((tmp_path / "work").iterdir())


def test_no_run_starts_after_the_deadline(tmp_path: Path, tiny_corpus: Corpus) -> None:
    with pytest.raises(TimeUp):
        compute(Run.of("lookup"), tiny_corpus, tmp_path, deadline=Deadline(0, 0))
    outcome = Sweep(tiny_corpus, tmp_path, deadline=Deadline(0, 0)).complete([Run.of("lookup")])
    assert (outcome.results, outcome.left) == ({}, 1)
    limit = Deadline.after(10)
    assert time.time() + 500 < limit.soft < limit.hard < time.time() + 600


def test_lookup_needs_no_work_directory(tmp_path: Path, tiny_corpus: Corpus) -> None:
    found = compute(Run.of("lookup", epsilon=0.5), tiny_corpus, tmp_path)
    assert not (tmp_path / "work").exists()
    table = Lookup().fit(tiny_corpus, Observation(0.5))
    test = tiny_corpus.split("test").arrays
    there = np.asarray(test["reference"]) >= 0
    guess = table.probabilities(np.asarray(test["tokens"])[..., 0]).argmax(-1)
    assert found["test"]["accuracy"] == (guess == test["reference"])[there].sum() / found["test"]["events_scored"]
