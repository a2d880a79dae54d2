"""`ISSUES.decisions.jsonl` while a review runs: every decision is on disk before the next event is shown.

A decision is one line, appended and synchronised; undoing cuts the last line off. So a kill at any moment leaves all
decisions that were acknowledged, and at most one unfinished line, which the next review removes.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from revup.data.decisions import Decision, decision_from_json
from revup.data.events import json_from_line
from revup.errors import DEVICE_ERRORS, InputError, RevupError, UnfinishedError
from revup.io.folders import lock_file


class DecisionLog:
    """The decisions about one list of issues, on disk; made by `open_decisions`.

    Attributes:
        path: The file.
        entries: Its decisions in order; a later one about the same event replaces an earlier one.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.entries = path, list[Decision]()
        self._file, self._starts, self._size = file, list[int](), 0

    def append(self, decision: Decision) -> None:
        """Write a decision; it is on disk when this returns.

        Args:
            decision: The decision.

        Raises:
            RevupError: The file was changed by another program, or can't be written.
        """
        self._check_unchanged()
        line = json.dumps(decision.to_json(), ensure_ascii=False).encode("utf-8") + b"\n"
        try:
            written = 0
            while written < len(line):
                written += os.write(self._file.fileno(), line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._size)  # half a line is worse than none
            raise self._failure(error) from None
        self.entries.append(decision)
        self._starts.append(self._size)
        self._size += len(line)

    def undo(self) -> Decision:
        """Take the last decision back; it is gone from the disk when this returns.

        Returns:
            The decision that was taken back.

        Raises:
            RevupError: There is none, the file was changed by another program, or it can't be written.
        """
        if not self.entries:
            raise RevupError("nothing to undo")
        self._check_unchanged()
        self._cut(self._starts[-1])
        self._starts.pop()
        return self.entries.pop()

    def _load(self) -> None:
        """Read the file; a last line without an end was never acknowledged and is removed."""
        self._file.seek(0)
        data, start = self._file.read(), 0
        for number, raw in enumerate(io.BytesIO(data), 1):
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                if text.strip():
                    decision = decision_from_json(json_from_line(text, str(self.path), number), str(self.path), number)
                    self.entries.append(decision)
                    self._starts.append(start)
            except UnicodeDecodeError as error:
                if raw.endswith(b"\n"):
                    raise InputError(f"not UTF-8 text at byte {error.start}", str(self.path), number) from None
                raw = b""
            except InputError:
                if raw.endswith(b"\n"):
                    raise
                raw = b""
            start += len(raw)
        self._cut(start)
        if start and not data[:start].endswith(b"\n"):
            self._size += os.write(self._file.fileno(), b"\n")

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._file.fileno(), size)
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failure(error) from None
        self._size = size

    def _check_unchanged(self) -> None:
        """Refuse to go on where the file was replaced, removed or edited: decisions would be lost."""
        mine = os.fstat(self._file.fileno())
        try:
            there = os.stat(self.path)
            same = (there.st_dev, there.st_ino, there.st_size) == (mine.st_dev, mine.st_ino, self._size)
        except OSError:
            same = False
        if not same:
            raise RevupError(f"{self.path}: another program changed or removed it; start the review again")

    def _failure(self, error: OSError) -> RevupError:
        kind = UnfinishedError if error.errno in DEVICE_ERRORS else RevupError
        return kind(f"{self.path}: can't be written: {error.strerror or error}")


@contextmanager
def open_decisions(path: str | Path) -> Iterator[DecisionLog]:
    """Open a file of decisions to add to it, for this process alone; it is made where it is missing.

    Args:
        path: The file.

    Raises:
        InputError: It can't be opened, or a line of it is no decision.
        RevupError: Another process has it open.
    """
    place = Path(path)
    created = not place.exists()
    try:
        file = open(place, "a+b", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", str(path)) from None
    with file:
        lock_file(file, str(path), "reviewing")
        if created:
            _sync_directory(place.parent)
        log = DecisionLog(place, file)
        log._load()
        try:
            yield log
        finally:
            if not log.entries and created:
                with suppress(OSError, RevupError):
                    log._check_unchanged()
                    place.unlink()


def now() -> str:
    """Return the time of a decision: ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _sync_directory(folder: Path) -> None:
    """Put a new file's name on disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
