"""SIGINT, SIGTERM and SIGHUP stop training after the current step, and a resume continues at that very step."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import revup
from revup.data.corpus import Corpus
from revup.errors import InputError, Interrupted
from revup.io.tensors import load_tensors
from revup.reporting.progress import Progress
from revup.training.loop import LOG_EVERY
from training.runs import STOPPABLE, lines, start, state, train_or_resume, wait_for_validations, weights

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def reached(run: Path) -> int:
    """The step of the checkpoint."""
    return int(load_tensors(run / "checkpoint.safetensors")[1]["state"]["step"])


@pytest.mark.slow
def test_resume_after_signals_is_bit_identical(few: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """Each kind of signal, at random moments; no checkpoint is written by the clock."""
    out, moments, steps = tmp_path / "run", random.Random(), [0]
    for number, status in STATUS.items():
        known = len(lines(out)) if out.exists() else 0
        process = start(train_or_resume, few, out, STOPPABLE)
        wait_for_validations(process, out, known + 1)  # it trains, and handles signals
        time.sleep(moments.uniform(0, 0.1))
        assert process.pid is not None
        os.kill(process.pid, number)
        process.join(60)
        assert process.exitcode == status
        steps.append(reached(out))
        assert state(out)["finished"] is False
        assert state(out)["steps"] == steps[-1]
        with pytest.raises(InputError, match="training has not finished"):
            revup.load(out)
        assert revup.load(out, allow_unfinished=True).state.steps == steps[-1]
    assert steps == sorted(steps)
    process = start(train_or_resume, few, out, STOPPABLE)
    process.join(120)
    assert process.exitcode == 0
    assert weights(out) == weights(uninterrupted)
    assert lines(out) == lines(uninterrupted)
    assert state(out) == state(uninterrupted)


@pytest.fixture(autouse=True)
def hangup_is_not_ignored() -> Iterator[None]:
    """Under nohup, processes ignore SIGHUP, and those that they start; these tests send it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
@pytest.mark.parametrize("number", STATUS)
def test_interrupted_command_says_how_to_resume(few: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "my run"
    command = [sys.executable, "-m", "revup", "train", str(few), "--out", str(out), "--device", "cpu"]
    command += ["--training.epochs", "9999", "--training.patience", "9999", "--network.hidden", "8"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        limit = time.monotonic() + 120
        while not (out / "metrics.jsonl").exists() and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(number)
        printed, errors = process.communicate(timeout=60)
    assert process.returncode == STATUS[signal.Signals(number)]
    announced, last = errors.splitlines()
    assert (printed, "left" in announced) == ("", True)  # so many epochs: it says how long they will take
    assert f"resume with: revup train --out '{out}' --resume" in last
    assert reached(out) > 0


def signal_at(reports: int, *numbers: int) -> Any:
    """A progress callback that sends signals to this process at its so-many-th report."""
    left = [reports]

    def progress(report: Progress) -> None:
        left[0] -= 1
        if left[0] == 0:
            for number in numbers:
                signal.raise_signal(number)

    return progress


def test_interrupt_between_reports_keeps_the_loss_means(few: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """Stopped one step after a report: what was summed up until then is in the next line of metrics.jsonl."""
    corpus, out = Corpus.load(few), tmp_path / "run"
    for reports in (1, 2, 3):
        with pytest.raises(Interrupted) as caught:
            revup.train(corpus, out=out, resume=True, progress=signal_at(reports, signal.SIGTERM), **STOPPABLE)
        assert caught.value.status == 143
        assert caught.value.resume == f"revup train --out {out} --resume"
    assert reached(out) % LOG_EVERY != 0
    revup.train(corpus, out=out, resume=True, **STOPPABLE)
    assert weights(out) == weights(uninterrupted)
    assert lines(out) == lines(uninterrupted)


def test_interrupt_before_the_first_validation_is_no_model(few: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        revup.train(Corpus.load(few), out=tmp_path, force=True, progress=signal_at(1, signal.SIGINT), **STOPPABLE)
    assert state(tmp_path)["best_step"] is None
    with pytest.raises(InputError, match="training has not finished; continue it with: revup train --out"):
        revup.load(tmp_path)


@pytest.mark.parametrize("first", STATUS)
def test_second_ctrl_c_leaves_at_once(few: Path, tmp_path: Path, first: int) -> None:
    progress = signal_at(1, first, signal.SIGINT)
    with pytest.raises(Interrupted) as caught:
        revup.train(Corpus.load(few), out=tmp_path / "run", progress=progress, **STOPPABLE)
    assert caught.value.status == 130
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_repeated_hangup_does_not_prevent_the_checkpoint(few: Path, tmp_path: Path) -> None:
    """A terminal that closes sends it twice."""
    progress = signal_at(1, signal.SIGHUP, signal.SIGHUP, signal.SIGTERM)
    with pytest.raises(Interrupted) as caught:
        revup.train(Corpus.load(few), out=tmp_path / "run", progress=progress, **STOPPABLE)
    assert caught.value.status == 129
    assert reached(tmp_path / "run") > 0


def test_signal_handlers_are_restored(few: Path, tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in STATUS]
    with pytest.raises(Interrupted):
        revup.train(Corpus.load(few), out=tmp_path / "run", progress=signal_at(1, signal.SIGHUP), **STOPPABLE)
    assert [signal.getsignal(number) for number in STATUS] == before


def test_ignored_signal_stays_ignored(few: Path, tmp_path: Path) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        settings = {**STOPPABLE, "training": {"epochs": 1, "batch_size": 30}}
        revup.train(Corpus.load(few), out=tmp_path / "run", progress=signal_at(1, signal.SIGHUP), **settings)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert state(tmp_path / "run")["finished"] is True


def test_signal_during_the_last_validation_is_not_lost(few: Path, tmp_path: Path) -> None:
    """The run has finished; whoever sent the signal still sees it."""
    settings: dict[str, Any] = {**STOPPABLE, "training": {"epochs": 1, "batch_size": 200, "settle": 0.0}}
    with pytest.raises(Interrupted):
        revup.train(Corpus.load(few), out=tmp_path / "run", progress=signal_at(1, signal.SIGINT), **settings)
    assert state(tmp_path / "run")["finished"] is True
    assert revup.load(tmp_path / "run").state.steps == 1


def test_training_without_a_directory_leaves_signals_alone(few: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        revup.train(Corpus.load(few), progress=signal_at(1, signal.SIGINT), **STOPPABLE)
    assert not isinstance(caught.value, Interrupted)


def test_training_outside_the_main_thread(few: Path, tmp_path: Path) -> None:
    settings = {**STOPPABLE, "training": {"epochs": 1, "batch_size": 30}}
    thread = threading.Thread(
        target=revup.train, args=(Corpus.load(few),), kwargs={"out": tmp_path / "run", **settings}
    )
    thread.start()
    thread.join()
    assert state(tmp_path / "run")["finished"] is True
