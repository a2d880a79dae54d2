"""Directories: written atomically, and locked while a process works in them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from revup.errors import InputError, OutputExistsError, RevupError, UnfinishedError
from revup.io.digests import sealed_by

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # not on this system
    flock = None  # type: ignore[assignment]

LOCK = ".lock"
# a link in place of a lock is not followed, a pipe not waited for
_PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextmanager
def lock(
    folder: str | Path, target: str | Path | None = None, doing: str = "using", patience: float = 0.0
) -> Iterator[None]:
    """Hold the exclusive lock of a directory while the block runs. On systems without fcntl this does nothing.

    Args:
        folder: The directory, which is created where it is missing; the lock is its file `.lock`.
        target: The path named in the error message; by default the directory.
        doing: What the error message says that the other process is doing with it.
        patience: Seconds to wait for another process to release it.

    Raises:
        RevupError: Another process holds the lock.
        InputError: The directory can't be written to.
    """
    name = str(target or folder)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(Path(folder) / LOCK, _PLAIN | os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", name) from None
    with file:
        lock_file(file, name, doing, patience)
        yield


def lock_file(file: IO[Any], name: str, doing: str = "using", patience: float = 0.0) -> None:
    """Take the exclusive lock of an open file, until it is closed. On systems without fcntl this does nothing.

    Args:
        file: The file.
        name: The path named in the error message.
        doing: What the error message says that the other process is doing with it.
        patience: Seconds to wait for another process to release it.

    Raises:
        RevupError: Another process holds the lock.
    """
    end = time.monotonic() + patience
    while flock is not None:
        try:
            flock(file, LOCK_EX | LOCK_NB)
            return
        except OSError:
            if time.monotonic() >= end:
                raise RevupError(f"{name}: another process is {doing} it now") from None
            time.sleep(0.1)


@contextmanager
def atomic_folder(target: str | Path, force: bool = False, resume: bool = False) -> Iterator[Path]:
    """Fill a directory that appears complete when the block ends, or not at all.

    The directory is filled inside a working directory `.NAME.partial` next to the target, where the block may also keep
    scratch files (in the parent of what is yielded). Only one process at a time may write a target.

    Args:
        target: The directory to write.
        force: Replace a directory that exists.
        resume: Keep the working directory after Ctrl-C, a kill or a full disk, so that the same call finds its scratch
            files again. An input error removes it nevertheless.

    Yields:
        The empty directory to fill.

    Raises:
        OutputExistsError: The target exists and `force` is false.
        InputError: The target is or holds the directory one works in.
        RevupError: Another process is writing the target.
    """
    target = Path(target).absolute()
    refuse_existing(target, force)
    work = target.with_name(f".{target.name}.partial")
    with lock(work, target, "writing"):
        if not resume:
            clear(work)
        folder = work / "result"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        keep = False
        try:
            yield folder
            refuse_existing(target, force)  # it may have appeared in the meantime
            replace_directory(folder, target)
        except BaseException as error:
            keep = resume and (isinstance(error, UnfinishedError) or not isinstance(error, RevupError))
            raise
        finally:
            if not keep:
                shutil.rmtree(work, ignore_errors=True)


@contextmanager
def work_folder(target: str | Path, force: bool = False) -> Iterator[Path]:
    """A working directory `.NAME.partial` beside a file that is to be written, found again by the next call.

    It is kept after Ctrl-C, a kill or a full disk, and removed when the block ends or the input is wrong.

    Args:
        target: The file.
        force: Replace a file that exists.

    Yields:
        The directory, which may hold what an earlier call left.

    Raises:
        OutputExistsError: The file exists and `force` is false.
        RevupError: Another process is writing it.
    """
    target = Path(target).absolute()
    refuse_existing(target, force)
    work = target.with_name(f".{target.name}.partial")
    with lock(work, target, "writing"):
        keep = False
        try:
            yield work
        except BaseException as error:
            keep = isinstance(error, UnfinishedError) or not isinstance(error, RevupError)
            raise
        finally:
            if not keep:
                shutil.rmtree(work, ignore_errors=True)


def clear(work: Path) -> None:
    """Empty a working directory except for its lock."""
    for path in work.iterdir():
        if path.name != LOCK:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def refuse_existing(target: str | Path, force: bool, resumable: bool = False, reads: Iterable[str | Path] = ()) -> None:
    """Raise OutputExistsError where an output exists, unless it may be replaced.

    Args:
        target: The file or directory to write.
        force: Whether it may be replaced.
        resumable: Whether the work that made it can be continued.
        reads: Input files and directories: one of them, or a directory that holds one, is never replaced.

    Raises:
        OutputExistsError: It exists and may not be replaced.
        InputError: Its replacement would remove an input, the directory one works in, or a part of a run or dataset.
    """
    if not Path(target).exists():
        return
    if not force:
        error = OutputExistsError("exists already", str(target))
        error.resumable = resumable
        raise error
    place = Path(target).resolve()
    for kept in (Path.cwd(), *map(Path, reads)):
        if place == kept.resolve() and not place.is_dir():
            raise InputError("can't be replaced: it is an input", str(target))
        if place.is_dir() and place in (kept.resolve(), *kept.resolve().parents):
            raise InputError(f"can't be replaced: {kept} would be removed with it", str(target))
    if (whole := sealed_by(place)) is not None:
        raise InputError(f"can't be replaced: it is a part of {whole}", str(target))


def replace_directory(source: Path, target: Path) -> None:
    """Move a finished directory to its target, replacing an existing one."""
    if not target.exists():
        os.replace(source, target)
        return
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    os.replace(target, old)
    os.replace(source, target)
    shutil.rmtree(old) if old.is_dir() else old.unlink()
