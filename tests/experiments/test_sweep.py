"""Sweeps: nothing is computed twice, failures stay apart, stopped runs resume."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from revup.data.corpus import Corpus
from revup.experiments.compute import Deadline, compute
from revup.experiments.results import Run
from revup.experiments.sweep import Sweep, seconds_left

Settings = dict[str, dict[str, Any]]


def test_finished_runs_are_not_computed_again(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tiny: Settings
) -> None:
    runs = [Run.of("lookup"), Run.of("tagger", overrides=tiny), Run.of("tagger", overrides=tiny)]
    first = Sweep(tiny_corpus, tmp_path).complete(runs)
    assert set(first.results) == set(runs)
    assert (first.left, first.failed) == (0, {})
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {run.name(tiny_corpus.fingerprint) for run in runs}
    assert not any(path.is_dir() for path in (tmp_path / "work").iterdir())  # checkpoints are gone

    monkeypatch.setattr("revup.experiments.compute.train_config", lambda *a, **k: pytest.fail("trained again"))
    again = Sweep(tiny_corpus, tmp_path).complete(runs)
    assert again.results == first.results


def test_damaged_result_is_computed_again(tmp_path: Path, tiny_corpus: Corpus) -> None:
    run = Run.of("lookup")
    path = tmp_path / "runs" / run.name(tiny_corpus.fingerprint) / "results.json"
    expected = compute(run, tiny_corpus, tmp_path)
    path.write_text(path.read_text()[:100])
    assert Sweep(tiny_corpus, tmp_path).complete([run]).results[run]["test"] == expected["test"]


def test_stopped_run_resumes_to_the_same_result(
    tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch, tiny: Settings
) -> None:
    """Stopped after a validation and taken up, it gives the very result of a run in one sitting."""
    settings = {**tiny, "training": {**tiny["training"], "epochs": 3}}
    run = Run.of("tagger", overrides=settings)
    whole = compute(run, tiny_corpus, tmp_path / "whole")

    sittings = 0
    while True:
        calls = itertools.count()  # the deadline comes near after the first epoch of each sitting
        monkeypatch.setattr(Deadline, "near", property(lambda self, calls=calls: next(calls) > 1))
        sittings += 1
        outcome = Sweep(tiny_corpus, tmp_path / "parts", deadline=Deadline(0, math.inf)).complete([run])
        if outcome.results:
            break
        assert (outcome.left, outcome.failed) == (1, {})
        assert (tmp_path / "parts" / "work" / run.name(tiny_corpus.fingerprint) / "checkpoint.safetensors").exists()
    assert sittings > 1
    found = outcome.results[run]
    assert (found["test"], found["validations"]) == (whole["test"], whole["validations"])


def test_failing_run_does_not_stop_the_others(tmp_path: Path, tiny_corpus: Corpus, tiny: Settings) -> None:
    settings = {**tiny, "training": {**tiny["training"], "learning_rate": 1e30}}
    bad, good = Run.of("tagger", overrides=settings), Run.of("lookup", seed=1)
    outcome = Sweep(tiny_corpus, tmp_path).complete([bad, good])
    assert set(outcome.results) == {good}
    assert "diverged" in outcome.failed[bad]
    assert outcome.left == 0


def test_exception_fails_only_its_own_run(tmp_path: Path, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise ZeroDivisionError("in the\nmiddle")

    monkeypatch.setattr("revup.experiments.compute.train_config", broken)
    outcome = Sweep(tiny_corpus, tmp_path).complete([Run.of("lookup")])
    assert outcome.failed == {Run.of("lookup"): "ZeroDivisionError: in the middle"}


def test_workers_give_the_same_results(tmp_path: Path, tiny_corpus: Corpus, tiny: Settings) -> None:
    """Several processes, one of them with a run that fails; a dead process is told of and replaced."""
    settings = {**tiny, "training": {**tiny["training"], "learning_rate": 1e30}}
    runs = [Run.of("tagger", overrides=tiny, seed=seed) for seed in (0, 1)]
    bad = Run.of("tagger", overrides=settings)
    told: list[tuple[int, int, int]] = []
    tell = lambda status: told.append((status.done, status.failed, len(status.running)))  # noqa: E731
    outcome = Sweep(tiny_corpus, tmp_path / "workers", "cpu", 2, progress=tell).complete([*runs, bad])
    assert "diverged" in outcome.failed[bad]
    assert outcome.left == 0
    assert told[-1] == (2, 1, 0)
    for run in runs:
        assert outcome.results[run]["test"] == compute(run, tiny_corpus, tmp_path / "here", "cpu")["test"]


def test_time_left_is_estimated_per_model() -> None:
    results: list[Any] = [
        {"config": {"model": "revup", "preset": "default"}, "seconds": 30.0},
        {"config": {"model": "lookup", "preset": "default"}, "seconds": 0.0},
        None,
    ]
    assert seconds_left(results, [Run.of("revup", seed=1), Run.of("lookup", seed=1)], 2) == pytest.approx(15.0)
    assert seconds_left(results, [Run.of("tagger")], 2) == pytest.approx(7.5)  # not run yet: the mean of all
    assert seconds_left([], [Run.of("tagger")], 1) is None
