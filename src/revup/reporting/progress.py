"""Progress of long work: what training and sweeps report, and how a terminal shows it.

A report is a plain record. `training`, `sweep` and `counter` give the callback that takes such reports: it draws on
standard error where that is a terminal, and there is none (None) in a pipe.
"""

from __future__ import annotations

import sys
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
        seconds_left: Estimated time to the last planned step.
        seconds_to_stop: Estimated time until early stopping, if no further validation improves.
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
    seconds_to_stop: float | None = None
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
    epoch = f"epoch {min(report.epoch + 1, report.epochs)} of {report.epochs}"
    left, stop = report.seconds_left, report.seconds_to_stop
    times = [clock(report.seconds)]
    if left is not None:
        times.append(f"at most {clock(left)} left")
    if stop is not None and (left is None or stop < left):
        times.append(f"{clock(stop)} if validation does not improve")
    if speed:
        times.append(f"{speed:,.0f} documents/s")
    lines = [
        f"{epoch}  {bar(report.step / max(report.steps, 1))}  step {report.step:,} of {report.steps:,}",
        ", ".join(times),
        f"train  {_named(report.terms)}",
    ]
    if shown:
        best = "" if report.best_step is None else f"  (best at step {report.best_step:,})"
        lines.append(f"valid  {_named(shown)}{best}")
    return lines


def sweep_lines(report: SweepProgress) -> list[str]:
    """A sweep's report as lines of text: a summary, then the runs that are being computed.

    Args:
        report: The report to show.

    Returns:
        Lines without line ends.
    """
    failed = f", {report.failed} failed" if report.failed else ""
    left = "" if report.seconds_left is None else f", about {clock(report.seconds_left)} left"
    share, spent = report.done / max(report.total, 1), time.monotonic() - report.started
    summary = f"{bar(share)}  {report.done} of {report.total} runs{failed}  {clock(spent)}{left}"
    return [summary, *(f"  {name}" for name in report.running)]


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


# ---- on a terminal -----------------------------------------------------------------------------------------------


@contextmanager
def training(enabled: bool = True, board: Path | None = None) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that shows training on a terminal and writes it for TensorBoard, if that is installed.

    Args:
        enabled: Off, nothing is shown or written (all processes but the first of a distributed run).
        board: Directory for TensorBoard's event files; None writes none.

    Yields:
        The callback, or None where nobody would see or read it.
    """
    write = _tensorboard(board) if board is not None and enabled else None
    scores: dict[str, float] = {}
    speed, before = 0.0, None

    def lines(report: Progress) -> list[str]:
        return training_lines(report, speed, scores)

    with _screen(lines, enabled) as show:

        def tell(report: Progress) -> None:
            nonlocal speed, before, scores
            scores = report.scores or scores
            if before is not None and report.seconds > before:
                speed = report.documents / (report.seconds - before)
            before = report.seconds
            for take in (show, write):
                if take is not None:
                    take(report)

        yield None if show is None and write is None else tell


def sweep() -> AbstractContextManager[Callable[[SweepProgress], None] | None]:
    """A callback that shows a sweep on a terminal; None in a pipe."""
    return _screen(sweep_lines)


def counter(what: str) -> Callable[[int], None] | None:
    """A callback that counts in place on a terminal; None in a pipe.

    Args:
        what: What is counted, in the plural: `documents`.
    """
    if not sys.stderr.isatty():
        return None

    def show(count: int) -> None:
        print(f"\r{count:,} {what}", end="", file=sys.stderr, flush=True)

    return show


@contextmanager
def _screen(lines: Callable[[T], list[str]], enabled: bool = True) -> Iterator[Callable[[T], None] | None]:
    """A callback that shows the latest report in place and leaves the last one standing; None without a terminal."""
    if not enabled or not sys.stderr.isatty() or find_spec("rich") is None:
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    latest: list[T] = []

    def render() -> Text:
        return Text("\n".join(lines(latest[0])) if latest else "", no_wrap=True, overflow="ellipsis")

    def show(report: T) -> None:
        latest[:] = [report]

    with Live(console=Console(stderr=True), refresh_per_second=2, get_renderable=render):
        yield show


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
