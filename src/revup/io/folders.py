"""Folders that appear whole or not at all, and locks on them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from revup.errors import InputError, RevupError

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # not on this system
    flock = None  # type: ignore[assignment]


class Unfinished(RevupError):
    """Work that stopped through no fault of its input, and that the same call takes up again."""


class assembling:
    """A working directory beside `target`, whose `dataset` becomes `target` at the end; on an error it goes away.

    With `keep` it stays after whatever is not an error of the input (Ctrl-C, a full disk, a kill), and is found again
    as it was left, its `dataset` aside. Only one process at a time may work there.
    """

    def __init__(self, target: Path, force: bool = False, keep: bool = False) -> None:
        self.target, self.force, self.keep = target.absolute(), force, keep
        self.work = self.target.with_name(f".{self.target.name}.partial")
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Path:
        refuse_existing(self.target, self.force)
        try:
            self.work.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.work / "lock", "wb")
        except OSError as error:
            raise InputError(f"can't be written: {error.strerror or error}", str(self.target)) from None
        try:
            if flock is not None:
                flock(self._lock, LOCK_EX | LOCK_NB)
        except OSError:
            self._lock.close()
            raise RevupError(f"{self.target}: another process is writing it now") from None
        if not self.keep:
            clear(self.work)
        shutil.rmtree(self.work / "dataset", ignore_errors=True)
        (self.work / "dataset").mkdir()
        return self.work

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            replace_directory(self.work / "dataset", self.target)
        goes_on = self.keep and kind is not None and (not issubclass(kind, RevupError) or issubclass(kind, Unfinished))
        if not goes_on:
            shutil.rmtree(self.work, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()


def clear(work: Path) -> None:
    """Empty a working directory, its lock aside."""
    for path in work.iterdir():
        if path.name != "lock":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def refuse_existing(target: Path, force: bool) -> None:
    """An output that exists is an error unless forced."""
    if target.exists() and not force:
        raise InputError("exists already (--force replaces it)", str(target))


def replace_directory(source: Path, target: Path) -> None:
    """Put a finished directory in its place, at once."""
    if target.exists():
        old = target.with_name(f".{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        os.replace(target, old)
        os.replace(source, target)
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    else:
        os.replace(source, target)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Only one sweep at a time may work in a directory."""
    (out / "work").mkdir(parents=True, exist_ok=True)
    with open(out / "work" / "lock", "wb") as lock:
        try:
            if flock is not None:
                flock(lock, LOCK_EX | LOCK_NB)
        except OSError:
            raise RevupError(f"{out}: another experiment is at work there now") from None
        yield
