"""Progress of long work: what training and sweeps report, and how a terminal shows it.

A report is a plain record. `training`, `sweep` and `counter` give the callback that takes such reports: it draws on
standard error where that is a terminal. Elsewhere it writes one plain line every half minute, so that a log shows how
far long work is; what takes less than that stays quiet.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # torch is not needed to show progress
    from revup.models.base import Model

T = TypeVar("T")
BAR = 30  # characters
LINE_SECONDS = 30.0  # between two plain lines


@dataclass(frozen=True)
class Progress:
    """Where training stands: reported every few steps and after each validation.

    Attributes:
        step: Optimiser steps taken, counted from the start of the run.
        steps: Steps planned in all, if early stopping does not end training before.
        epoch: Epochs completed.
        epochs: Epochs planned in all, those of the decoder alone included.
        share: Share of the current epoch that is done, 0 to 1.
        terms: Mean loss and loss terms since the last report.
        documents: Documents trained on since the last report.
        scores: Validation scores; None between validations.
        best_step: Step of the best validation so far; None before the first.
        settled: Whether the frames are final and only the decoder is still trained.
        finished: Whether training ends with this report.
        seconds: Training time so far, earlier sessions of a resumed run included.
        seconds_left: Estimated time to the last planned step, or to the time limit if that is sooner.
        seconds_likely: Estimated time to the most likely end, by early stopping; None before the first validation.
        module: The model in its present state; after a validation in evaluation mode.
    """

    step: int
    steps: int
    epoch: int
    epochs: int
    share: float
    terms: dict[str, float]
    documents: int
    scores: dict[str, float] | None = None
    best_step: int | None = None
    settled: bool = False
    finished: bool = False
    seconds: float = 0.0
    seconds_left: float | None = None
    seconds_likely: float | None = None
    module: Model | None = None

    @property
    def is_best(self) -> bool:
        """Whether this is a validation, and the best so far."""
        return self.scores is not None and self.best_step == self.step


@dataclass
class SweepProgress:
    """A report of a sweep: how many of its runs are done, and which are being computed.

    Attributes:
        total: Runs asked for.
        done: Runs that have results, those of earlier sittings included.
        failed: Runs that ended with an error.
        running: Descriptions of the runs that are being computed.
        started: When the sweep started, by `time.monotonic`.
        seconds_left: Estimated time for the remaining runs; None as long as no run has finished.
    """

    total: int
    done: int = 0
    failed: int = 0
    running: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    seconds_left: float | None = None


# ---- as text -----------------------------------------------------------------------------------------------------


def training_lines(report: Progress, speed: float = 0.0, scores: dict[str, float] | None = None) -> list[str]:
    """A training report as lines of text.

    Args:
        report: The report to show.
        speed: Documents per second.
        scores: The latest validation scores, shown while the report itself has none.

    Returns:
        Lines without line ends.
    """
    shown = report.scores or scores or {}
    times = [clock(report.seconds), *_time_left(report)]
    if speed:
        times.append(f"{speed:,.0f} documents/s")
    lines = [
        f"{_epoch(report)}  {bar(report.step / max(report.steps, 1))}  step {report.step:,} of {report.steps:,}",
        ", ".join(times),
    ]
    if report.terms:
        lines.append(f"train  {_named(report.terms)}")
    if shown:
        best = "" if report.best_step is None else f"  (best at step {report.best_step:,})"
        lines.append(f"valid  {_named(shown)}{best}")
    return lines


def training_line(report: Progress, scores: dict[str, float] | None = None) -> str:
    """A training report as one line, for a log.

    Args:
        report: The report to show.
        scores: The latest validation scores, shown while the report itself has none.
    """
    shown = report.scores or scores or {}
    parts = [f"step {report.step:,} of {report.steps:,}", _epoch(report), clock(report.seconds), *_time_left(report)]
    best = "" if report.best_step is None else f", best at step {report.best_step:,}"
    return ", ".join(parts) + (f"; {_named(shown)}{best}" if shown else "")


def _epoch(report: Progress) -> str:
    return f"epoch {min(report.epoch + 1, report.epochs)} of {report.epochs}"


def _time_left(report: Progress) -> list[str]:
    """The time left: what is most likely, and what it can be at most."""
    most, likely = report.seconds_left, report.seconds_likely
    if report.finished or most is None:
        return []
    if likely is None or clock(likely) == clock(most):
        return [f"at most {clock(most)} left"]
    return [f"about {clock(likely)} left, at most {clock(most)}"]


def sweep_lines(report: SweepProgress) -> list[str]:
    """A sweep's report as lines of text: a summary, then the runs that are being computed.

    Args:
        report: The report to show.

    Returns:
        Lines without line ends.
    """
    share = report.done / max(report.total, 1)
    return [f"{bar(share)}  {sweep_line(report)}", *(f"  {name}" for name in report.running)]


def sweep_line(report: SweepProgress) -> str:
    """A sweep's report as one line: what is done, and the time."""
    failed = f", {report.failed} failed" if report.failed else ""
    left = "" if report.seconds_left is None else f", about {clock(report.seconds_left)} left"
    return f"{report.done} of {report.total} runs{failed}, {clock(time.monotonic() - report.started)}{left}"


def bar(share: float) -> str:
    """A bar of `BAR` characters, filled up to a share of 0 to 1."""
    full = round(BAR * min(max(share, 0.0), 1.0))
    return "━" * full + "─" * (BAR - full)


def clock(seconds: float) -> str:
    """A duration in words: `12 s`, `1 min 05 s`, `2 h 03 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _named(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())


# ---- on a terminal, in a log -------------------------------------------------------------------------------------


@contextmanager
def training(enabled: bool = True, board: Path | None = None) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that shows training and writes it for TensorBoard, if that is installed.

    Args:
        enabled: Off, nothing is shown or written (all processes but the first of a distributed run).
        board: Directory for TensorBoard's event files; None writes none.

    Yields:
        The callback, or None where nobody would see or read it.
    """
    write = _tensorboard(board) if board is not None and enabled else None
    scores: dict[str, float] = {}
    speed, before = 0.0, 0.0

    def lines(report: Progress) -> list[str]:
        return training_lines(report, speed, scores)

    def line(report: Progress) -> str:
        return training_line(report, scores)

    with _screen(lines, line, _is_long, enabled) as show:

        def tell(report: Progress) -> None:
            nonlocal speed, before, scores
            scores = report.scores or scores
            if report.documents and report.seconds > before:
                speed = report.documents / (report.seconds - before)
                before = report.seconds
            for take in (show, write):
                if take is not None:
                    take(report)

        yield None if show is None and write is None else tell


def _is_long(report: Progress) -> bool:
    """Whether training will take long enough to say so at once."""
    return (report.seconds_left or 0.0) > LINE_SECONDS


def sweep() -> AbstractContextManager[Callable[[SweepProgress], None] | None]:
    """A callback that shows a sweep."""
    return _screen(sweep_lines, sweep_line)


def counter(what: str) -> Callable[[int], None]:
    """A callback that counts: in place on a terminal, elsewhere in a line every half minute.

    Args:
        what: What is counted, in the plural: `documents`.
    """
    on_terminal, last = sys.stderr.isatty(), time.monotonic()

    def show(count: int) -> None:
        nonlocal last
        if on_terminal:
            print(f"\r{count:,} {what}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            print(f"revup: {count:,} {what}", file=sys.stderr, flush=True)

    return show


@contextmanager
def _screen(
    lines: Callable[[T], list[str]],
    line: Callable[[T], str],
    at_once: Callable[[T], bool] = lambda report: False,
    enabled: bool = True,
) -> Iterator[Callable[[T], None] | None]:
    """A callback that shows the latest report in place and leaves the last one standing; elsewhere, plain lines.

    Args:
        lines: A report as lines on a terminal.
        line: A report as one line, where there is no terminal or no `rich` to draw on it.
        at_once: Whether the first line may come before half a minute is over.
        enabled: Off, there is no callback (None).
    """
    if not enabled:
        yield None
        return
    latest: list[T] = []
    if not sys.stderr.isatty() or find_spec("rich") is None:
        with _plain_lines(latest, line) as write:

            def note(report: T) -> None:
                first = not latest
                latest[:] = [report]
                if first and at_once(report):
                    write()

            yield note
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def render() -> Text:
        return Text("\n".join(lines(latest[0])) if latest else "", no_wrap=True, overflow="ellipsis")

    def show(report: T) -> None:
        latest[:] = [report]

    with Live(console=Console(stderr=True), refresh_per_second=2, get_renderable=render):
        yield show


@contextmanager
def _plain_lines(latest: list[T], line: Callable[[T], str]) -> Iterator[Callable[[], None]]:
    """Write the latest report as a plain line every half minute, from a thread: one report may be long in coming."""
    over = threading.Event()

    def write() -> None:
        if latest:
            print(f"revup: {line(latest[0])}", file=sys.stderr, flush=True)

    def repeat() -> None:
        while not over.wait(LINE_SECONDS):
            write()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield write
    finally:
        over.set()
        thread.join()


def _tensorboard(folder: Path) -> Callable[[Progress], None] | None:
    """Writes loss terms and scores for TensorBoard, from the first report on; None where it is not installed."""
    if find_spec("tensorboard") is None:
        return None
    writer: Any = None

    def write(report: Progress) -> None:
        nonlocal writer
        if writer is None:
            from torch.utils.tensorboard import SummaryWriter

            writer = SummaryWriter(str(folder))
        for group, values in (("train", report.terms), ("valid", report.scores or {})):
            for name, value in values.items():
                writer.add_scalar(f"{group}/{name}", value, report.step)
        writer.flush()

    return write
