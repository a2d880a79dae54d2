"""Sweeps: nothing is computed twice, failures stay apart, stopped runs resume."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from revup.experiments.compute import compute
from revup.experiments.datasets import Corpora
from revup.experiments.runs import Condition, Run, RunFile
from revup.experiments.sweep import Sweep, seconds_left
from revup.models.count_prior import CountPrior
from revup.training.deadline import Deadline

Settings = dict[str, dict[str, Any]]


def sweep(corpora: Corpora, out: Path, *options: Any, **more: Any) -> Sweep:
    out.mkdir(exist_ok=True)
    return Sweep(corpora, out, RunFile(out / "runs.jsonl.gz"), *options, **more)


def test_finished_runs_are_not_computed_again(
    tmp_path: Path, corpora: Corpora, monkeypatch: pytest.MonkeyPatch, tiny: Settings
) -> None:
    runs = [Run.of("lookup"), Run.of("tagger", overrides=tiny), Run.of("tagger", overrides=tiny)]
    first = sweep(corpora, tmp_path).complete(runs)
    assert set(first.results) == set(runs)
    assert (first.left, first.failed) == (0, {})
    assert len(RunFile(tmp_path / "runs.jsonl.gz").results) == 2
    assert not any(path.is_dir() for path in (tmp_path / "work").iterdir())  # checkpoints are gone

    monkeypatch.setattr("revup.experiments.compute.train_config", lambda *a, **k: pytest.fail("trained again"))
    again = sweep(corpora, tmp_path).complete(runs)
    assert again.results == first.results


def test_runs_of_a_sweep_share_counts_and_give_the_same_lines(
    tmp_path: Path, corpora: Corpora, monkeypatch: pytest.MonkeyPatch, tiny: Settings
) -> None:
    """All numbers of a run are those of the run alone, whatever was computed before it on the same counts."""
    systems = ("counts", "tagger", "tagger:gce", "tagger:confident", "ssdvae", "revup")
    conditions = (Condition(0.5), Condition(1.0, 0.5), Condition(sources="0.1,0.3"))
    runs = [Run.of(system, condition, 1, tiny) for condition in conditions for system in systems]
    alone = [compute(run, corpora, tmp_path / "alone") for run in runs]
    fits, fit = [], CountPrior.fit
    monkeypatch.setattr(CountPrior, "fit", lambda *given: fits.append(given) or fit(*given))
    shared = sweep(corpora, tmp_path / "shared").complete(runs).results
    own = len(conditions) * 2  # confident learning: labels as they stand, and those that are left
    assert len(fits) == len(conditions) + own
    for run, line in zip(runs, alone, strict=True):
        for name in ("scores", "observed", "documents", "figures", "reliability", "epochs", "validations"):
            assert shared[run][name] == line[name], (str(run), name)


def test_run_with_a_further_test_is_computed_again(tmp_path: Path, corpora: Corpora) -> None:
    done = sweep(corpora, tmp_path).complete([Run.of("lookup")])
    assert "transfer" not in done.results[Run.of("lookup")]
    wanted = [Run.of("lookup"), Run.of("lookup", tests=("data",))]
    found = sweep(corpora, tmp_path).complete(wanted).results[Run.of("lookup")]
    assert found["transfer"]["data"]["accuracy"] == found["scores"]["test"]["accuracy"]
    assert found["transfer"]["data"]["documents"]["right"] == found["documents"]["right"]


def test_stopped_run_resumes_to_the_same_result(
    tmp_path: Path, corpora: Corpora, monkeypatch: pytest.MonkeyPatch, tiny: Settings
) -> None:
    """Stopped after a validation and taken up, it gives the very result of a run in one sitting."""
    settings = {**tiny, "training": {**tiny["training"], "epochs": 3}}
    run = Run.of("tagger", overrides=settings)
    whole = compute(run, corpora, tmp_path / "whole")

    sittings = 0
    while True:
        calls = itertools.count()  # the deadline comes near after the first epoch of each sitting
        monkeypatch.setattr(Deadline, "near", property(lambda self, calls=calls: next(calls) > 1))
        sittings += 1
        outcome = sweep(corpora, tmp_path / "parts", deadline=Deadline(0, math.inf)).complete([run])
        if outcome.results:
            break
        assert (outcome.left, outcome.failed) == (1, {})
        assert (tmp_path / "parts" / "work" / run.name(corpora["data"].fingerprint) / "checkpoint.safetensors").exists()
    assert sittings > 1
    found = outcome.results[run]
    assert (found["scores"], found["validations"]) == (whole["scores"], whole["validations"])
    assert found["documents"] == whole["documents"]


def test_failing_run_does_not_stop_the_others(tmp_path: Path, corpora: Corpora, tiny: Settings) -> None:
    settings = {**tiny, "training": {**tiny["training"], "learning_rate": 1e30}}
    bad, good = Run.of("tagger", overrides=settings), Run.of("lookup", seed=1)
    outcome = sweep(corpora, tmp_path).complete([bad, good])
    assert set(outcome.results) == {good}
    assert "diverged" in outcome.failed[bad]
    assert outcome.left == 0


def test_exception_fails_only_its_own_run(tmp_path: Path, corpora: Corpora, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **more: Any) -> Any:
        raise ZeroDivisionError("in the\nmiddle")

    monkeypatch.setattr("revup.experiments.compute.train_config", broken)
    outcome = sweep(corpora, tmp_path).complete([Run.of("lookup")])
    assert outcome.failed == {Run.of("lookup"): "ZeroDivisionError: in the middle"}


def test_workers_give_the_same_results(tmp_path: Path, corpora: Corpora, tiny: Settings) -> None:
    """Several processes, one of them with a run that fails; a dead process is told of and replaced."""
    settings = {**tiny, "training": {**tiny["training"], "learning_rate": 1e30}}
    runs = [Run.of("tagger", overrides=tiny, seed=seed) for seed in (0, 1)]
    bad = Run.of("tagger", overrides=settings)
    told: list[tuple[int, int, int]] = []
    tell = lambda status: told.append((status.done, status.failed, len(status.running)))  # noqa: E731
    outcome = sweep(corpora, tmp_path / "workers", "cpu", 2, progress=tell).complete([*runs, bad])
    assert "diverged" in outcome.failed[bad]
    assert outcome.left == 0
    assert told[-1] == (2, 1, 0)
    for run in runs:
        alone = compute(run, corpora, tmp_path / "here", "cpu")
        assert outcome.results[run]["documents"] == alone["documents"]


def test_time_left_is_estimated_per_model() -> None:
    results: list[Any] = [
        {"data": "data", "system": "revup:default", "seconds": 30.0},
        {"data": "data", "system": "lookup:default", "seconds": 0.0},
    ]
    assert seconds_left(results, [Run.of("revup", seed=1), Run.of("lookup", seed=1)], 2) == pytest.approx(15.0)
    assert seconds_left(results, [Run.of("tagger")], 2) == pytest.approx(7.5)  # not run yet: the mean of all
    assert seconds_left([], [Run.of("tagger")], 1) is None
