"""Who watches a command at work: a terminal, TensorBoard, nobody in a pipe. Their libraries may be missing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from revup.training.checkpoint import State
    from revup.training.loop import Progress


@contextmanager
def training(enabled: bool = True, board: Path | None = None) -> Iterator[Callable[[Progress, State], None] | None]:
    """A callback that shows training on a terminal (and in TensorBoard where it is installed); quiet in a pipe."""
    writer = _tensorboard(board) if board is not None and enabled else None
    show = _terminal() if enabled and sys.stderr.isatty() else None
    if show is None and writer is None:
        yield None
        return

    def tell(progress: Progress, state: State) -> None:
        if show is not None:
            show.update(progress, state)
        if writer is not None:
            writer(progress)

    with show if show is not None else nullcontext():
        yield tell


def counter(what: str) -> Callable[[int], None] | None:
    """A callback that counts on a terminal, in place; none in a pipe."""
    if not sys.stderr.isatty():
        return None

    def show(count: int) -> None:
        print(f"\r{count:,} {what}", end="", file=sys.stderr, flush=True)

    return show


@contextmanager
def sweep() -> Iterator[Callable[[Any], None] | None]:
    """A callback that shows a sweep on a terminal; quiet in a pipe."""
    try:
        from revup.reporting.sweep_screen import Screen
    except ImportError:
        yield None
        return
    if not sys.stderr.isatty():
        yield None
        return
    with Screen() as screen:
        yield screen


def _terminal() -> Any:
    try:
        from revup.reporting.training_screen import Screen
    except ImportError:
        return None
    return Screen()


def _tensorboard(folder: Path) -> Callable[[Progress], None] | None:
    """Writes loss terms and scores for TensorBoard, from the first figures on, if it is installed."""
    from importlib.util import find_spec

    if find_spec("tensorboard") is None:
        return None
    writer: Any = None

    def write(progress: Progress) -> None:
        nonlocal writer
        if writer is None:
            from torch.utils.tensorboard import SummaryWriter

            writer = SummaryWriter(str(folder))
        for group, values in (("train", progress.terms), ("valid", progress.scores or {})):
            for name, value in values.items():
                writer.add_scalar(f"{group}/{name}", value, progress.step)
        writer.flush()

    return write
