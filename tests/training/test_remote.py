"""Sweeps and searches on a Ray cluster of two nodes: the results of one process, whatever is killed on the way."""

from __future__ import annotations

import csv
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import revup
from revup.errors import RevupError
from revup.experiments.compute import compute
from revup.experiments.datasets import Corpora
from revup.experiments.runs import Run, RunFile
from revup.experiments.sweep import Sweep
from revup.training import remote
from training.runs import TINY, search_on_cluster, start

pytest.importorskip("ray", reason="the extra 'cluster' is not installed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds processes by /proc"),
]

LONG: dict[str, dict[str, Any]] = {
    "network": TINY,
    "training": {"epochs": 4, "batch_size": 30, "checkpoint_minutes": 0.0, "patience": 50},
}
SEARCH: dict[str, Any] = {
    "model": "tagger",
    "trials": 3,
    "seeds": 0,
    "search": "network.dropout",
    "sampler": "random",
    "prune": False,
    "device": "cpu",
    "overrides": LONG,
}


def trials(out: Path) -> list[dict[str, str]]:
    with open(out / "trials.csv", encoding="utf-8", newline="") as table:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(table)]


def trainers(folder: Path) -> list[int]:
    """Processes that train for a sweep or search in this directory: their standard error is a file there."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                if Path(os.readlink(process / "fd" / "2")).is_relative_to(folder / "work"):
                    found.append(int(process.name))
    return found


def kill_when_trained(folder: Path, killed: list[int]) -> threading.Thread:
    """Kill the processes that train in a directory, as soon as one has written a checkpoint."""

    def watch() -> None:
        end = time.monotonic() + 120
        while not list(folder.glob("work/*/checkpoint.safetensors")) and time.monotonic() < end:
            time.sleep(0.01)
        for pid in trainers(folder):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_sweep_has_the_results_of_one_process_though_its_workers_are_killed(few: Path, tmp_path: Path) -> None:
    corpora = Corpora({"data": few}, tmp_path / "labels")
    (tmp_path / "cluster").mkdir()
    file = RunFile(tmp_path / "cluster" / "runs.jsonl.gz")
    runs = [Run.of("tagger", overrides=LONG, seed=seed) for seed in (0, 1, 2)]
    killed: list[int] = []
    watch = kill_when_trained(tmp_path / "cluster", killed)
    outcome = Sweep(corpora, tmp_path / "cluster", file, "cpu", None, engine="ray").complete(runs)
    watch.join()
    assert killed
    assert (outcome.left, outcome.failed) == (0, {})
    for run in runs:
        alone = compute(run, corpora, tmp_path / "alone", "cpu")
        assert outcome.results[run]["documents"] == alone["documents"]
        assert outcome.results[run]["validations"] == alone["validations"]


def test_killed_driver_of_a_search_loses_no_trial(few: Path, tmp_path: Path) -> None:
    out = tmp_path / "search"
    driver = start(search_on_cluster, few, out, {**SEARCH, "jobs": 1})
    while driver.is_alive() and not list(out.glob("work/trial-*/checkpoint.safetensors")):
        time.sleep(0.01)
    driver.kill()
    driver.join()
    assert driver.exitcode == -signal.SIGKILL
    found = revup.tune(few, out, engine="ray", **SEARCH)
    assert found["recovered"] >= 1
    assert found["complete"]
    revup.tune(few, tmp_path / "alone", jobs=1, **SEARCH)
    assert trials(out) == trials(tmp_path / "alone")
    end = time.monotonic() + 60  # those of the killed driver write their checkpoints and leave
    while trainers(out) and time.monotonic() < end:
        time.sleep(0.1)
    assert not trainers(out)


def test_directory_that_nodes_do_not_share_is_refused(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "write_text", lambda path, text: None)  # as if it were written to this node's own disk
    with pytest.raises(RevupError, match=r"not visible on node .*: it must be on storage that all nodes share"):
        revup.tune(few, tmp_path / "search", engine="ray", **SEARCH)
    with pytest.raises(RevupError, match="no node of the cluster has a GPU"):
        revup.tune(few, tmp_path / "other", engine="ray", **{**SEARCH, "device": "cuda"})
    with pytest.raises(RevupError, match="engine: expected one of local, ray, found 'spark'"):
        revup.experiment("reliance", None, tmp_path / "third", engine="spark")
