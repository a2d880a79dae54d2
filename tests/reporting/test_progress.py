"""What a terminal shows of training and of sweeps."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from revup.reporting import progress
from revup.reporting.progress import Progress, SweepProgress, clock, sweep_lines, training_lines

REPORT = Progress(
    step=40,
    steps=1_200,
    epoch=1,
    epochs=30,
    share=0.5,
    terms={"loss": 2.5, "update": 0.5},
    documents=4000,
    best_step=20,
    seconds=20.0,
    seconds_left=580.0,
    seconds_likely=65.0,
)
SWEEP = SweepProgress(10, 4, 1, ["revup default ε=1 η=0 seed 0"], seconds_left=3700.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_training_shows_steps_epochs_losses_scores_and_time_left() -> None:
    text = "\n".join(training_lines(REPORT, 2000.0, {"accuracy": 0.75}))
    for expected in (
        "epoch 2 of 30",
        "step 40 of 1,200",
        "20 s, about 1 min 05 s left, at most 9 min 40 s, 2,000 documents/s",
        "train  loss 2.5  update 0.5",
        "accuracy 0.75  (best at step 20)",
    ):
        assert expected in text


def test_training_shows_no_estimate_before_there_is_one() -> None:
    first = replace(REPORT, best_step=None, seconds_left=None, seconds_likely=None)
    lines = training_lines(first)
    assert len(lines) == 3
    assert lines[1] == "20 s"
    assert len(training_lines(replace(first, terms={}))) == 2


def test_a_sweep_shows_what_is_done_running_and_left() -> None:
    lines = sweep_lines(replace(SWEEP, started=time.monotonic() - 65))
    assert "4 of 10 runs, 1 failed, 1 min 05 s, about 1 h 01 min left" in lines[0]
    assert lines[1:] == ["  revup default ε=1 η=0 seed 0"]


def test_durations_in_words() -> None:
    assert [clock(12), clock(65), clock(3700)] == ["12 s", "1 min 05 s", "1 h 01 min"]


def test_a_terminal_keeps_the_last_report(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress.training() as show:
        assert show is not None
        show(REPORT)
        show(replace(REPORT, step=80, seconds=22.0, finished=True))
    assert "step 80 of 1,200" in terminal.getvalue()
    with progress.sweep() as tell:
        assert tell is not None
        tell(SWEEP)
    assert "4 of 10 runs" in terminal.getvalue()


def test_a_pipe_shows_a_plain_line_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    with progress.training() as show:
        assert show is not None
        show(replace(REPORT, seconds_left=0.01))
        assert pipe.getvalue() == ""
        _wait(lambda: pipe.getvalue().count("\n") > 1)
    line = "revup: step 40 of 1,200, epoch 2 of 30, 20 s, about 1 min 05 s left, at most 0 s"
    assert pipe.getvalue().splitlines()[0] == line
    with progress.sweep() as tell:
        assert tell is not None
        tell(SWEEP)
        _wait(lambda: "4 of 10 runs, 1 failed" in pipe.getvalue())
    count = progress.counter("documents")
    time.sleep(0.06)
    count(5000)
    assert pipe.getvalue().splitlines()[-1] == "revup: 5,000 documents"


def _wait(condition: Callable[[], bool]) -> None:
    for _ in range(200):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("nothing was written")


def test_long_training_says_at_once_how_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    with progress.training() as show:
        assert show is not None
        show(replace(REPORT, step=2, terms={}, seconds=2.0, seconds_likely=None))
        show(REPORT)
    assert pipe.getvalue() == "revup: step 2 of 1,200, epoch 2 of 30, 2 s, at most 9 min 40 s left\n"


def test_short_work_in_a_pipe_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    with progress.training() as show, progress.sweep() as tell:
        assert show is not None
        assert tell is not None
        show(replace(REPORT, seconds_left=29.0))
        tell(SWEEP)
        progress.counter("documents")(7)
    assert pipe.getvalue() == ""
    with progress.training(enabled=False) as show:
        assert show is None
