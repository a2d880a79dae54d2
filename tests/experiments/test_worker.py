"""The process that computes runs: what the sweep is told when it is stopped or dies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from revup.data.corpus import Corpus
from revup.experiments.runs import Run
from revup.experiments.worker import Worker


@pytest.fixture
def worker(tmp_path: Path, tiny_corpus: Corpus) -> Any:
    data = {"data": str(tiny_corpus.path)}
    where = {"out": str(tmp_path), "labels": str(tmp_path)}
    setup = {"data": data, **where, "device": "cpu", "deadline": [9e9, 9e9], "threads": 1}
    made = Worker(setup, tmp_path / "work" / "worker.log")
    yield made
    made.stop()
    made.wait()


def test_stopped_worker_starts_no_process(worker: Worker) -> None:
    """Nobody would be left to end it."""
    worker.stop()
    assert worker.compute(Run.of("lookup")) == (None, None)
    assert worker.process is None


def test_dead_worker_is_reported_and_replaced(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        line, problem = worker.compute(Run.of("lookup"))
        assert line is None
        assert "died with status 1" in (problem or "")
    line, problem = worker.compute(Run.of("lookup"))
    assert problem is None
    assert line is not None
    assert line["system"] == "lookup:default"
