"""Time limits and interruptions of work that trains many runs, and is continued by the next call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from signal import SIGINT

from revup.errors import Interrupted
from revup.reporting.progress import Progress


class TimeUp(Exception):
    """The time limit is reached; what was begun is resumed by the next call."""


@dataclass(frozen=True)
class Deadline:
    """When to stop, as wall-clock times: `soft` at the next good moment, `hard` at once. The rest is for writing."""

    soft: float = float("inf")
    hard: float = float("inf")

    @classmethod
    def after(cls, minutes: float) -> Deadline:
        """So many minutes from now, less the time that stopping and writing take; 0: never."""
        if not minutes:
            return cls()
        margin = min(45.0, 0.15 * minutes * 60)
        end = time.time() + minutes * 60
        return cls(end - margin, end - margin / 3)

    @property
    def near(self) -> bool:
        return time.time() > self.soft

    def check(self, progress: Progress | None = None) -> None:
        """Raise TimeUp if the time is up; training that calls this with its progress is saved first."""
        if self.near and not (progress and progress.finished):
            raise TimeUp


@contextmanager
def resumed_by(command: str) -> Iterator[None]:
    """Say after an interruption how to continue the whole, not the run that was being trained."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(stop.signal if isinstance(stop, Interrupted) else SIGINT, command) from None
