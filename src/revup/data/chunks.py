"""Files cut into chunks of records; and which chunks of a job that was stopped are finished.

The parent process of a job cuts its sources, cheaply and in order; workers compute the chunks. Each finished chunk has
a report, `NUMBER.json` in the job's working directory, written last. So one worker and many give the same chunks, and a
job that was stopped continues with those that are missing.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from revup.data.readers import Record
from revup.errors import RevupError
from revup.io.files import write_json
from revup.io.folders import clear

CHUNK_RECORDS = 2000
CHUNK_SIZE = 2**20  # characters or bytes of records after which a chunk is full all the same


def chunk_limits() -> list[int]:
    """Return what decides where chunks are cut."""
    return [CHUNK_RECORDS, CHUNK_SIZE]


def chunks(records: Iterator[Record]) -> Iterator[tuple[list[Record], RevupError | None]]:
    """Yield chunks of records in reading order; where they are cut depends on the records alone.

    Args:
        records: The records of a source.

    Yields:
        Records, or the error that ended the reading, in its place among the chunks.
    """
    part: list[Record] = []
    size = 0
    try:
        for record in records:
            part.append(record)
            size += _size(record.data)
            if len(part) == CHUNK_RECORDS or size >= CHUNK_SIZE:
                yield part, None
                part, size = [], 0
    except RevupError as error:
        yield part, None  # the records before it may hold an earlier error
        yield [], error
        return
    if part:
        yield part, None


def _size(data: Any) -> int:
    """Return about how many characters or bytes a record holds."""
    if isinstance(data, (str, bytes)):
        return len(data)
    return sum(map(_size, data)) if isinstance(data, (list, tuple)) else 1


def file_state(path: Any) -> Any:
    """Return names, sizes and times of a file or directory, so that a change is noticed."""
    if path is None:
        return None
    place = Path(str(path))
    if str(path) == "-":
        return f"standard input {uuid.uuid4()}"
    if not place.exists():
        return str(path)
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    states = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return [str(place.absolute()), hashlib.sha256(repr(states).encode()).hexdigest()]


def finished_chunks(work: Path, manifest: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the reports of chunks that an earlier call finished; if it was another job, clear what it left.

    Args:
        work: The working directory, which this process has locked.
        manifest: Everything that the chunks depend on.
    """
    path = work / "manifest.json"
    try:
        earlier = json.loads(path.read_text("utf-8"))
        if earlier == manifest:
            reports = [json.loads(file.read_text("utf-8")) for file in sorted(work.glob("[0-9]*.json"))]
            return {report["number"]: report for report in reports}
    except (OSError, ValueError):
        pass
    clear(work)
    write_json(path, manifest)
    return {}
