"""The process that computes runs: what the sweep is told when it is stopped or dies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from revup.data.corpus import Corpus
from revup.experiments.results import Run
from revup.experiments.worker import Worker


@pytest.fixture
def worker(tmp_path: Path, tiny_corpus: Corpus) -> Any:
    setup = {"data": str(tiny_corpus.path), "out": str(tmp_path), "device": "cpu", "deadline": [9e9, 9e9], "threads": 1}
    made = Worker(setup, tmp_path / "work" / "worker.log")
    yield made
    made.stop()
    made.wait()


def test_stopped_worker_starts_no_process(worker: Worker) -> None:
    """Nobody would be left to end it."""
    worker.stop()
    assert worker.ask(Run.of("lookup")) is None
    assert worker.process is None


def test_dead_worker_is_reported_and_replaced(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        assert "died with status 1" in (worker.ask(Run.of("lookup")) or "")
    assert worker.ask(Run.of("lookup")) is None
    assert len(list(tmp_path.glob("runs/*/results.json"))) == 1
