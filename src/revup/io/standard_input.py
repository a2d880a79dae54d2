"""Standard input, of which a reader can know whether more is there.

It has a reader of its own: a thread may still wait in it when the process ends, and Python aborts where it then finds
the reader of `sys.stdin` in use.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import IO, Any

from revup.errors import InputError

_BUFFER = 2**16


class _Raw(io.RawIOBase):
    """The bytes of a file descriptor; without `waits`, reading gives nothing where it would have to wait."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.waits = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if not self.waits and not self.is_ready():
            return None
        found = os.read(self._descriptor, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def is_ready(self) -> bool:
        """Return whether reading does not wait: bytes are there, or the end is reached."""
        try:
            return bool(select.select([self._descriptor], [], [], 0)[0])
        except (OSError, ValueError):  # not known of this kind of input
            return True


def open_standard_input() -> IO[bytes]:
    """Return standard input as a binary file.

    Raises:
        InputError: It is closed.
    """
    if sys.stdin is None:
        raise InputError("standard input is closed")
    try:
        return io.BufferedReader(_Raw(sys.stdin.fileno()), _BUFFER)
    except (OSError, ValueError, AttributeError):  # replaced by something without a file descriptor
        return sys.stdin.buffer


def is_idle(stream: IO[bytes]) -> bool:
    """Return whether a line of standard input is not there yet and none of it is arriving; False for other files.

    Args:
        stream: An open binary file.
    """
    raw = getattr(stream, "raw", None)
    if not isinstance(raw, _Raw) or not isinstance(stream, io.BufferedReader):
        return False
    raw.waits = False
    try:
        held = stream.peek(1)
    finally:
        raw.waits = True
    return b"\n" not in held and not raw.is_ready()
