"""Encoding chunks of records by one process, by several, or on a Ray cluster."""

from __future__ import annotations

import io
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from revup.data.cluster import in_order, on_cluster
from revup.data.dataset import SPLITS, Settings, split_of
from revup.data.event_vectors import vectors_of
from revup.data.events import Document, Value
from revup.data.lexicon import Lexicon
from revup.data.readers import Options, Record, parse_all, placed, reader
from revup.data.told import add_source, map_document
from revup.data.unknown_keys import UnknownKeys
from revup.data.window_choice import Read, both_ways
from revup.errors import InputError, RevupError, UnfinishedError
from revup.io.files import atomic_file, write_json

ALL = ".all"  # of the name of a file in windows of all events
KINDS = ("", ALL)
EXAMPLES = 5  # how many bad records are quoted


@dataclass(frozen=True)
class Job:
    """What a worker needs to know, the same for every chunk."""

    settings: Settings
    lexicon: Lexicon | None
    skip_bad: bool
    further: Mapping[str, Mapping[str, list[Value | None]]] = field(default_factory=dict)  # source → id → says
    frame_map: Mapping[str, str | None] = field(default_factory=dict)
    encoder: str | None = None  # name of the transformer that gives events their vectors


@dataclass(frozen=True)
class Task:
    """One chunk of records of one source; or the error that ended the reading, in its place among the chunks."""

    number: int
    source: int
    split: str | None
    format: str
    options: Options
    records: list[Record]
    failure: RevupError | None = None


@dataclass
class _Encoded:
    """An encoded chunk: the bytes of its files, by split and kind of window, and a report."""

    parts: dict[str, bytes]
    report: dict[str, Any]

    def save(self, work: Path) -> dict[str, Any]:
        """Write the files; the report comes last and marks the chunk as complete."""
        for split, data in self.parts.items():
            with atomic_file(chunk_path(work, self.report["number"], split)) as out:
                out.write(data)
        write_json(work / f"{self.report['number']:08d}.json", self.report)
        return self.report


def encode_records(job: Job, task: Task, read: Read | None = None) -> _Encoded:
    """Parse, label and encode one chunk of records, on any machine; `read`: what this process has encoded before."""
    if task.failure is not None:
        raise task.failure
    parts: dict[str, list[Document]] = {}
    errors: list[InputError] = []
    unknown = UnknownKeys()
    count = 0
    for document in _documents(job, task, errors, unknown):
        split = task.split or split_of(document.id, job.settings.split)
        parts.setdefault(split, []).append(document)
        count += 1
    encoded = {}
    how: dict[str, Any] = {"read": read or Read(), "lexicon": job.lexicon, "vectors": vectors_of(job.encoder)}
    splits = [split for split in SPLITS if split in parts]
    for split in splits:
        for part, kind in zip(both_ways(parts.pop(split), split, job.settings, task.number, **how), KINDS, strict=True):
            if part is not None:
                stream = io.BytesIO()
                part.write(stream)
                encoded[split + kind] = stream.getvalue()
    report = {
        "number": task.number,
        "source": task.source,
        "splits": splits,
        "both_ways": len(encoded) == len(splits) * len(KINDS),
        "documents": count,
        "skipped": len(errors),
        "reasons": Counter(map(reason, errors)),
        "examples": [str(error) for error in errors[:EXAMPLES]],
        "unknown_keys": unknown.notes,
    }
    return _Encoded(encoded, report)


def _documents(job: Job, task: Task, errors: list[InputError], unknown: UnknownKeys) -> Iterator[Document]:
    parse = reader(task.format).parse
    note = errors.append if job.skip_bad else None

    def told(record: Record) -> Iterator[Document]:
        for document in parse(record, task.options):
            unknown.add(document, record.path, record.line)
            with placed(record):
                for name, says in job.further.items():
                    if document.id in says:
                        document = add_source(document, name, says[document.id])
            yield map_document(document, job.frame_map) if job.frame_map else document

    return parse_all(task.records, told, note)


def reason(error: InputError) -> str:
    """Return what is wrong without numbers and quoted text, so that errors of one kind can be counted together."""
    text = f"{error.field}: {error.message}" if error.field else error.message
    return re.sub(r"\d+", "#", re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", text))[:200]


def chunk_path(work: Path, number: int, split: str) -> Path:
    """Return where the part of a chunk that belongs to a split is written; in windows of all events, split + ALL."""
    return work / f"{number:08d}.{split}.npz"


def run_tasks(
    job: Job, tasks: Iterable[Task], work: Path, workers: int, engine: str
) -> Generator[dict[str, Any], None, None]:
    """Encode chunks and yield their reports in order.

    Args:
        job: What is the same for every chunk.
        tasks: The chunks.
        work: Where encoded chunks are written.
        workers: The number of local processes.
        engine: "local", or "ray" for the cluster that RAY_ADDRESS names.
    """
    if engine == "ray":
        return _by_ray(job, tasks, work, workers)
    if workers == 1:
        read = Read()
        return (encode_records(job, task, read).save(work) for task in tasks)
    return _by_processes(job, tasks, work, workers)


def _by_processes(job: Job, tasks: Iterable[Task], work: Path, workers: int) -> Generator[dict[str, Any], None, None]:
    # not fork: a parent that has used torch's or numpy's threads can't be copied safely
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (job, work))
    try:
        yield from in_order(tasks, lambda task: pool.submit(_work, task), Future.result, workers + 2)
    except BrokenProcessPool:
        message = "a worker process died, possibly out of memory; the same call resumes where it stopped"
        raise UnfinishedError(message) from None
    finally:
        pool.shutdown(cancel_futures=True)


_worker: tuple[Job, Path, Read] | None = None  # what this worker process was started with


def _start_worker(job: Job, work: Path) -> None:
    global _worker
    _worker = job, work, Read()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when its parent is killed; it would wait for its next task for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(task: Task) -> dict[str, Any]:
    assert _worker is not None
    job, work, read = _worker
    return encode_records(job, task, read).save(work)


def _by_ray(job: Job, tasks: Iterable[Task], work: Path, workers: int) -> Generator[dict[str, Any], None, None]:
    """Encode on the cluster that RAY_ADDRESS names, or on `workers` processes here; only this machine writes files."""
    for encoded, aside in on_cluster(encode_records, job, tasks, workers):
        errors = [InputError(f"ended its worker: {each.reason}", each.record.path, each.record.line) for each in aside]
        if errors and not job.skip_bad:
            raise errors[0]
        encoded.report["skipped"] += len(errors)
        encoded.report["reasons"].update(map(reason, errors))
        encoded.report["examples"] = [*encoded.report["examples"], *map(str, errors)][:EXAMPLES]
        yield encoded.save(work)
