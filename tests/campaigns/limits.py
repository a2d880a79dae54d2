"""What one input of a campaign may cost: processor time, and the memory of the process that reads it."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

LONGEST = 10  # seconds of processor time for one input
LARGEST = 2**30  # bytes that the process may grow to


class BeyondLimits(BaseException):
    """An input took too long or too much; no `except Exception` of what is tested may swallow it."""


class Watch:
    """Looks at the process once in a second of its processor time, because asking at every input is slow."""

    def __init__(self) -> None:
        self._busy, self._seconds, self._largest = False, 0, max(LARGEST, memory_used())

    @contextmanager
    def one_input(self) -> Iterator[None]:
        """Raise `BeyondLimits` where what is done in the block takes too long, or the process has grown too large."""
        self._busy, self._seconds = True, 0
        try:
            yield
        finally:
            self._busy = False
        if self._seconds:
            self.check_memory()

    def check_memory(self) -> None:
        """Raise `BeyondLimits` where the process has grown beyond the limit, or further since that was said."""
        used = memory_used()
        if used > self._largest:
            self._largest = used
            raise BeyondLimits(f"the process has grown to {used / 2**30:.1f} GiB")

    def tick(self, number: int, frame: FrameType | None) -> None:
        """Count a second."""
        self._seconds += 1
        if self._busy and self._seconds > LONGEST:
            raise BeyondLimits(f"more than {LONGEST} seconds of processor time")


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch the inputs of a campaign."""
    watch = Watch()
    earlier = signal.signal(signal.SIGPROF, watch.tick)
    signal.setitimer(signal.ITIMER_PROF, 1, 1)
    try:
        yield watch
        watch.check_memory()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, earlier)


def memory_used() -> int:
    """The largest size that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
