"""Labelling and embedding the documents of a file on a Ray cluster: the same bytes as one process writes.

This process cuts the file into chunks of records and sends them to workers, which have the model in memory. Each chunk
that comes back is a file in `.NAME.partial` beside the output, with a report that is written last; the output is made
of them in order. So a worker that is killed loses no finished chunk, and neither does this process: the same call
continues with the chunks that are missing.
"""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from revup import __version__
from revup.data.chunks import chunk_limits, chunks, file_state, finished_chunks
from revup.data.cluster import SetAside, on_cluster
from revup.data.events import Document, document_from_line, document_to_line
from revup.data.readers import Options, Record, format_of, parse_all, reader
from revup.data.unknown_keys import UnknownKeys, once_each, warn_of
from revup.errors import InputError, RevupError
from revup.inference.abstain import Abstention
from revup.inference.embed import Embeddings
from revup.inference.event_values import together
from revup.inference.loading import load, opened
from revup.inference.predict import predict
from revup.inference.trained import Trained
from revup.io.files import atomic_file, open_output, write_json
from revup.io.folders import refuse_existing, work_folder

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Job:
    """What a worker needs to know, the same for every chunk."""

    run: Mapping[str, bytes]  # the files of the run directory
    digest: str  # over them
    device: str
    precision: str
    format: str
    options: Options
    skip_bad: bool
    top: int = 5
    revise: bool = False
    at_least: float | None = None


@dataclass(frozen=True)
class Task:
    """One chunk of records; or the error that ended the reading, in its place among the chunks."""

    number: int
    records: list[Record]
    failure: RevupError | None = None


@dataclass(frozen=True)
class Part:
    """What came of a chunk: the bytes of its file, and a report."""

    content: bytes
    report: dict[str, Any]


# ---- on a worker ---------------------------------------------------------------------------------------------------

_loaded: dict[str, Trained] = {}  # the model that this worker has in memory, by the digest of its files


def label_records(job: Job, task: Task) -> Part:
    """Label the documents of a chunk: lines of the JSONL form."""
    model = _model(job)
    rule = None if job.at_least is None else Abstention(model, job.at_least, job.revise)
    bad: list[InputError] = []
    unknown = UnknownKeys()
    documents = _documents(job, task, bad, unknown)
    lines = list(map(document_to_line, predict(model, documents, job.top, job.revise, rule or 0.0)))
    report = _report(task, len(lines), bad, unknown) | {"kept": None if rule is None else rule.counts}
    return Part("".join(lines).encode(), report)


def embed_records(job: Job, task: Task) -> Part:
    """Embed the documents of a chunk: arrays of their ids, numbers of events, and vectors of both."""
    bad: list[InputError] = []
    unknown = UnknownKeys()
    documents = list(_documents(job, task, bad, unknown))
    rows = _model(job).event_vectors(documents) if documents else []
    none = np.zeros((len(rows), 0), np.float32), np.zeros((0, 0), np.float32)
    whole, events = together(rows) if any(map(len, rows)) else none
    arrays = {
        "ids": np.array([document.id for document in documents], dtype=np.str_),
        "lengths": np.array([len(found) for found in rows], dtype=np.int64),
        "documents": whole,
        "events": events,
    }
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    return Part(stream.getvalue(), _report(task, len(documents), bad, unknown))


def _model(job: Job) -> Trained:
    if job.digest not in _loaded:
        torch.set_num_threads(1)  # a worker has one processor
        with tempfile.TemporaryDirectory() as folder:
            for name, content in job.run.items():
                (Path(folder) / name).write_bytes(content)
            _loaded.clear()
            _loaded[job.digest] = load(folder, job.device, job.precision, allow_unfinished=True)
    return _loaded[job.digest]


def _documents(job: Job, task: Task, bad: list[InputError], unknown: UnknownKeys) -> Iterator[Document]:
    if task.failure is not None:
        raise task.failure
    parse = reader(job.format).parse

    def noted(record: Record) -> Iterator[Document]:
        for document in parse(record, job.options):
            unknown.add(document, record.path, record.line)
            yield document

    return parse_all(task.records, noted, bad.append if job.skip_bad else None)


def _report(task: Task, documents: int, bad: list[InputError], unknown: UnknownKeys) -> dict[str, Any]:
    first = str(bad[0]) if bad else None
    return {
        "number": task.number,
        "documents": documents,
        "skipped": len(bad),
        "first_skipped": first,
        "unknown_keys": unknown.notes,
    }


# ---- here ----------------------------------------------------------------------------------------------------------


def predict_on_cluster(
    model: Trained | str | Path,
    file: str | Path,
    out: str | Path | None = None,
    *,
    table: str | Path | None = None,
    top: int = 5,
    revise: bool = False,
    at_least: float | Abstention | None = None,
    format: str | None = None,
    skip_bad: bool = False,
    workers: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Label the documents of a file on a Ray cluster, into a file: the bytes that `revup predict` writes.

    The cluster is the one that the environment variable RAY_ADDRESS names, or processes on this machine. After Ctrl-C,
    a kill or a full disk the same call continues with the chunks that are missing. A document that ends its worker
    every time is set aside, in `OUT.set-aside.jsonl`.

    Args:
        model: The model, or its run directory.
        file: The documents to label.
        out: The JSONL file to write; ".gz" is compressed.
        table: A flat table of the predictions to write, beside or in place of `out`.
        top: How many frames to give for each event.
        revise: Use the labels that the documents carry as side knowledge.
        at_least: Leave `predicted` empty below this probability. An `Abstention` counts what was kept.
        format: The format of `file`; by default what its name tells.
        skip_bad: Skip bad records, in place of an error at the first.
        workers: The number of processes here, where RAY_ADDRESS names no cluster; by default one for each core.
        force: Replace files that exist.
        progress: Called with the number of documents labelled so far, after every chunk.
        **options: How the file is read: fields of `revup.data.readers.Options`.

    Returns:
        `documents`: how many were labelled; `skipped`, and the `first_skipped` one's error; `set_aside`: documents that
        ended their workers, each with its `path`, `line` and the `reason`.

    Raises:
        InputError: A record is wrong, or there is none; file, line and field are named.
        OutputExistsError: An output exists and `force` is false.
        UnfinishedError: The cluster broke down; the same call resumes.
    """
    targets = [Path(str(target)) for target in (out, table) if target is not None]
    if not targets or any(str(target) == "-" for target in targets):
        raise RevupError("the engine 'ray' needs files to write to: give --out FILE or --table FILE")
    for target in targets:
        refuse_existing(target, force)
    model = opened(model)
    if not model.module.predicts_frames:
        raise RevupError(f"the model {model.config.model} does not predict frames")
    rule = at_least if isinstance(at_least, Abstention) else None
    limit = rule.at_least if rule is not None else at_least if isinstance(at_least, (int, float)) else None
    job = _job(model, file, format, options, skip_bad)
    job = replace(job, top=top, revise=revise, at_least=limit)
    with work_folder(targets[0], force) as work:
        reports = _compute(label_records, job, file, work, workers, progress)
        _write_predictions(_lines(work, reports), out, table, force)
        if rule is not None:
            for report in reports:
                rule.add(*report["kept"])
        return _outcome(reports, targets[0])


def embed_on_cluster(
    model: Trained | str | Path,
    file: str | Path,
    out: str | Path,
    *,
    format: str | None = None,
    skip_bad: bool = False,
    workers: int | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Embed the documents of a file on a Ray cluster, into a file: the bytes that `revup embed` writes.

    Args:
        model: The model, or its run directory.
        file: The documents to embed.
        out: The .npz file to write.
        format: The format of `file`; by default what its name tells.
        skip_bad: Skip bad records, in place of an error at the first.
        workers: The number of processes here, where RAY_ADDRESS names no cluster; by default one for each core.
        force: Replace a file that exists.
        progress: Called with the number of documents embedded so far, after every chunk.
        **options: How the file is read: fields of `revup.data.readers.Options`.

    Returns:
        As `predict_on_cluster`.

    Raises:
        InputError: A record is wrong, or there is none; file, line and field are named.
        OutputExistsError: The output exists and `force` is false.
        UnfinishedError: The cluster broke down; the same call resumes.
    """
    job = _job(opened(model), file, format, options, skip_bad)
    with work_folder(out, force) as work:
        reports = _compute(embed_records, job, file, work, workers, progress)
        _joined(work, reports).save(out, force)
        return _outcome(reports, Path(out))


def _joined(work: Path, reports: list[dict[str, Any]]) -> Embeddings:
    """The vectors of all chunks."""
    parts = []
    for report in reports:
        with np.load(_path(work, report["number"]), allow_pickle=False) as found:
            parts.append({name: found[name] for name in found})
    size = max(part["events"].shape[1] for part in parts)
    if not size:
        raise RevupError("no document with events to embed")
    for part in parts:
        if not len(part["events"]):  # of documents without events: zeros, as many as the others have
            part["documents"], part["events"] = (
                np.zeros((len(part["ids"]), size), np.float32),
                np.zeros((0, size), "f4"),
            )
    ids = [name for part in parts for name in part["ids"].tolist()]
    lengths, documents, events = (
        np.concatenate([part.pop(name) for part in parts]) for name in ("lengths", "documents", "events")
    )
    return Embeddings.joined(ids, lengths, documents, events)


def _job(model: Trained, file: str | Path, format: str | None, options: Mapping[str, Any], skip_bad: bool) -> Job:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "run")
        run = {path.name: path.read_bytes() for path in sorted((Path(folder) / "run").iterdir())}
    digest = hashlib.sha256(b"".join(name.encode() + content for name, content in run.items())).hexdigest()
    kind = format or format_of(file)
    reader(kind)  # an unknown one is refused before anything is sent
    return Job(run, digest, model.device.type, model.precision, kind, Options(**options), skip_bad)


def _path(work: Path, number: int) -> Path:
    return work / f"{number:08d}.part"


def _compute(
    function: Callable[[Job, Task], Part],
    job: Job,
    file: str | Path,
    work: Path,
    workers: int | None,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """Compute the chunks that are missing; returns the reports of all, in order."""
    manifest = {
        **{name: value for name, value in asdict(job).items() if name not in ("run", "options")},
        "revup": __version__,
        "what": function.__name__,
        "options": asdict(job.options),
        "chunk": chunk_limits(),
        "file": file_state(file),
        "frames": file_state(job.options.frames),
        "spacy_model": file_state(job.options.spacy_model),
    }
    done = finished_chunks(work, json.loads(json.dumps(manifest)))
    reports = list(done.values())
    documents = sum(report["documents"] for report in reports)
    cut = enumerate(chunks(reader(job.format).records(str(file), job.options)))
    left = (Task(number, *part) for number, part in cut if number not in done)
    with closing(on_cluster(function, job, left, workers, job.device == "cuda")) as results:
        for part, aside in results:
            report = part.report | {"set_aside": [_shown(each) for each in aside]}
            with atomic_file(_path(work, report["number"])) as out:
                out.write(part.content)
            write_json(work / f"{report['number']:08d}.json", report)  # last: it marks the chunk as complete
            reports.append(report)
            documents += report["documents"]
            if progress is not None:
                progress(documents)
    if not documents:
        raise InputError("no documents in it", str(file))
    return sorted(reports, key=lambda report: report["number"])


def _shown(aside: SetAside) -> dict[str, Any]:
    record = aside.record
    text = record.data if isinstance(record.data, str) else None
    return {"path": record.path, "line": record.line, "reason": aside.reason, "text": text}


def _lines(work: Path, reports: list[dict[str, Any]]) -> Iterator[str]:
    for report in reports:
        with open(_path(work, report["number"]), encoding="utf-8", newline="\n") as lines:
            yield from lines


def _write_predictions(lines: Iterator[str], out: str | Path | None, table: str | Path | None, force: bool) -> None:
    if table is None:
        assert out is not None
        with open_output(out, force) as stream:
            stream.writelines(lines)
        return
    from revup.data.table_output import PREDICTION_COLUMNS, prediction_rows, table_file

    with table_file(table, PREDICTION_COLUMNS, force) as write_row:

        def tabled() -> Iterator[str]:
            for line in lines:
                for row in prediction_rows([document_from_line(line)]):
                    write_row(row)
                yield line

        if out is None:
            for _ in tabled():
                pass
        else:
            with open_output(out, force) as stream:
                stream.writelines(tabled())


def _outcome(reports: list[dict[str, Any]], target: Path) -> dict[str, Any]:
    """What to report; documents that were set aside are also kept in a file."""
    warn_of(once_each(("", report["unknown_keys"]) for report in reports))
    aside = [each for report in reports for each in report["set_aside"]]
    if aside:
        with atomic_file(target.with_name(f"{target.name}.set-aside.jsonl"), "w") as out:
            out.writelines(json.dumps(each, ensure_ascii=False) + "\n" for each in aside)
    return {
        "documents": sum(report["documents"] for report in reports),
        "skipped": sum(report["skipped"] for report in reports),
        "first_skipped": next((report["first_skipped"] for report in reports if report["skipped"]), None),
        "set_aside": [{name: each[name] for name in ("path", "line", "reason")} for each in aside],
    }
