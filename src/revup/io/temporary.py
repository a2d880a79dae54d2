"""Temporary files of writers that were killed: found by the lock that nobody holds any more, and removed."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # not on this system
    flock = None  # type: ignore[assignment]

ENDING = ".partial"


def temporary_path(target: Path) -> Path:
    """Return the name under which this thread writes a file before it gets its own: hidden, beside it."""
    return target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}{ENDING}")


def claim(temporary: Path) -> IO[bytes]:
    """Create a temporary file and lock it; it counts as in use until what is returned is closed.

    Args:
        temporary: The file, of `temporary_path`.

    Raises:
        OSError: It can't be created.
    """
    file = open(temporary, "wb")  # noqa: SIM115
    if flock is not None:
        with suppress(OSError):  # a file system without locks: nothing is removed there either
            flock(file, LOCK_EX | LOCK_NB)
    return file


def remove_abandoned(target: Path) -> None:
    """Remove what writers of a file left that were killed. Those of writers at work, in any process, stay.

    Args:
        target: The file that they wrote.
    """
    if flock is None:
        return
    start = f".{target.name}."
    with suppress(OSError):
        names = [each.name for each in os.scandir(target.parent) if each.name.startswith(start)]
        for name in names:
            process, dash, thread = name[len(start) :].removesuffix(ENDING).partition("-")
            if name.endswith(ENDING) and dash and process.isdigit() and thread.isdigit():
                _remove_unlocked(target.with_name(name))


def _remove_unlocked(path: Path) -> None:
    with suppress(OSError), open(path, "rb", opener=_without_waiting) as file:
        flock(file, LOCK_EX | LOCK_NB)  # fails where its writer is at work
        path.unlink()


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe of that name is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)
