"""Files → a dataset directory: read, label, encode and merge, by as many workers as there are, in constant memory.

The parent cuts the sources into records, in order and cheaply; a chunk of records is parsed and encoded by whichever
worker is free, and lies in the working directory `.OUT.partial` under its number; the merge takes the chunks by
number. So one worker, many, and a Ray cluster make the identical dataset, and a run that was killed goes on with the
chunks that it still lacks.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import signal
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, TypeVar, cast

from revup import __version__
from revup.data.dataset import FORMAT, SPLITS, Settings, merge, split_of
from revup.data.encode import SPECIAL, encode
from revup.data.events import Document
from revup.data.lexicon import Lexicon, Mode
from revup.data.readers import Options, Record, reader
from revup.errors import InputError, RevupError, UnfinishedError, missing_extra
from revup.io.files import atomic_file, write_json
from revup.io.folders import atomic_folder, clear, refuse_existing

CHUNK_RECORDS = 2000
CHUNK_SIZE = 2**20  # characters or bytes of records after which a chunk is full all the same
ENGINES = ("local", "ray")
_REASONS, _EXAMPLES = 50, 5  # how many kinds of bad input are told apart, and how many are quoted

Progress = Callable[[int], None]  # called with the number of documents encoded so far
_Ticket = TypeVar("_Ticket")
_Result = TypeVar("_Result")


def prepare(
    files: Sequence[str | Path] = (),
    out: str | Path = "",
    *,
    format: str = "jsonl",
    train: str | Path | Sequence[str | Path] | None = None,
    valid: str | Path | Sequence[str | Path] | None = None,
    test: str | Path | Sequence[str | Path] | None = None,
    settings: Settings | None = None,
    options: Options | None = None,
    frames: Sequence[str | Path] = (),
    vectors: str | Path | None = None,
    lexicon: str | Path | Lexicon | None = None,
    lexicon_mode: Mode = "hard",
    workers: int = 1,
    engine: str = "local",
    skip_bad: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Make a dataset directory of files, split by document id, or of files given for each split; return its statistics.

    `frames` are the parallel files of the format `tuples`, one for each file (train's, valid's, test's in this order).
    An error of the input leaves nothing behind. After a kill, Ctrl-C or a full disk the finished chunks stay in
    `.OUT.partial`, and the same call, if the files have not changed, takes them up. What comes from standard input
    can't be read again, and starts over.
    """
    settings, options, target = settings or Settings(), options or Options(), Path(out)
    if not str(out):
        raise RevupError("prepare needs a directory to write to (--out)")
    if engine not in ENGINES:
        raise RevupError(f"unknown engine '{engine}': one of {', '.join(ENGINES)}")
    if workers < 1:
        raise RevupError(f"workers: expected 1 or more, found {workers}")
    sources = _sources(files, {"train": train, "valid": valid, "test": test}, options, frames)
    reader(format)  # an unknown one says so before anything is written
    refuse_existing(target, force)
    known = Lexicon.load(lexicon) if isinstance(lexicon, (str, Path)) else lexicon
    job = _Job(format, settings, known, lexicon_mode, skip_bad)
    manifest = _manifest(job, sources, lexicon)
    with atomic_folder(target, force, resume=True) as folder, _writing(target):
        work = folder.parent
        done = _taken_up(folder, manifest)
        reports = [*done.values()]
        documents = sum(report["documents"] for report in reports)
        left = (task for task in _tasks(format, sources) if task.number not in done)
        with closing(_run(job, left, work, workers, engine)) as results:
            for report in results:
                reports.append(report)
                documents += report["documents"]
                if progress is not None:
                    progress(documents)
        reports.sort(key=lambda report: report["number"])
        found = _skipped(reports)
        _refuse_empty(sources, reports, found)
        paths = [_chunk_path(work, report["number"], split) for report in reports for split in report["splits"]]
        return merge(paths, folder, settings, vectors=vectors, found=found)


# ---- what is to be done -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """A file, the split it belongs to (None: its documents are split by their ids), and how to read it."""

    path: str
    split: str | None
    options: Options


@dataclass(frozen=True)
class _Job:
    """What a worker needs to know, the same for every chunk."""

    format: str
    settings: Settings
    lexicon: Lexicon | None
    mode: Mode
    skip_bad: bool


@dataclass(frozen=True)
class _Task:
    """One chunk of records of one source; or the error that ended the reading, in its place among the chunks."""

    number: int
    source: int
    split: str | None
    options: Options
    records: list[Record]
    failure: RevupError | None = None


def _sources(
    files: Sequence[str | Path], given: dict[str, Any], options: Options, frames: Sequence[str | Path]
) -> list[_Source]:
    if isinstance(files, (str, Path)):
        files = [files]
    parts = {split: [part] if isinstance(part, (str, Path)) else list(part or ()) for split, part in given.items()}
    if bool(files) == bool(parts["train"]) or (files and any(parts.values())):
        raise RevupError("give either files, which are split by document id, or --train with --valid and --test")
    named = [(None, path) for path in files] + [(split, path) for split in SPLITS for path in parts[split]]
    if sum(str(path) == "-" for _, path in named) > 1:
        raise RevupError("standard input (-) can be read only once")
    if options.frames is not None:
        frames = [options.frames, *frames]
    if frames and len(frames) != len(named):
        raise RevupError(f"expected a file of frames for each of the {len(named)} files, found {len(frames)}")
    return [
        _Source(str(path), split, replace(options, frames=str(frames[number])) if frames else options)
        for number, (split, path) in enumerate(named)
    ]


def _tasks(format: str, sources: Sequence[_Source]) -> Iterator[_Task]:
    """Chunks of records in reading order; where they are cut depends on the records alone."""
    number = 0
    for index, source in enumerate(sources):
        for part, failure in _chunks(reader(format).records(source.path, source.options)):
            yield _Task(number, index, source.split, source.options, part, failure)
            number += 1


def _chunks(records: Iterator[Record]) -> Iterator[tuple[list[Record], RevupError | None]]:
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
        yield part, None  # what stands before it may hold an error that comes first
        yield [], error
        return
    if part:
        yield part, None


def _size(data: Any) -> int:
    """About how much a record holds."""
    if isinstance(data, (str, bytes)):
        return len(data)
    return sum(map(_size, data)) if isinstance(data, (list, tuple)) else 1


# ---- the work ---------------------------------------------------------------------------------------------


@dataclass
class _Encoded:
    """A chunk encoded: a file's bytes for each split that has documents, and a report."""

    parts: dict[str, bytes]
    report: dict[str, Any]

    def save(self, work: Path) -> dict[str, Any]:
        """Write it; the report comes last, and says that the chunk is whole."""
        for split, data in self.parts.items():
            with atomic_file(_chunk_path(work, self.report["number"], split)) as out:
                out.write(data)
        write_json(work / f"{self.report['number']:08d}.json", self.report)
        return self.report


def encode_records(job: _Job, task: _Task) -> _Encoded:
    """Parse, label and encode one chunk of records, on whatever machine."""
    if task.failure is not None:
        raise task.failure
    parts: dict[str, list[Document]] = {}
    errors: list[InputError] = []
    count = 0
    for document in _documents(job, task, errors):
        split = task.split or split_of(document.id, job.settings.split)
        parts.setdefault(split, []).append(document)
        count += 1
    encoded = {}
    for split in SPLITS:
        if split in parts:
            stream = io.BytesIO()
            encode(parts.pop(split), split, job.settings.events, job.settings.window).write(stream)
            encoded[split] = stream.getvalue()
    report = {
        "number": task.number,
        "source": task.source,
        "splits": list(encoded),
        "documents": count,
        "skipped": len(errors),
        "reasons": Counter(map(reason, errors)),
        "examples": [str(error) for error in errors[:_EXAMPLES]],
    }
    return _Encoded(encoded, report)


def _documents(job: _Job, task: _Task, errors: list[InputError]) -> Iterator[Document]:
    chosen = reader(job.format)
    for record in task.records:
        parsed: list[Document] = []
        try:
            if isinstance(record.data, InputError):
                raise record.data
            parsed.extend(chosen.parse(record, task.options))
        except InputError as error:
            if not job.skip_bad:
                raise
            errors.append(error)
        yield from parsed if job.lexicon is None else (job.lexicon.label_document(d, job.mode) for d in parsed)


def reason(error: InputError) -> str:
    """What is wrong, without what differs from one such error to the next."""
    text = f"{error.field}: {error.message}" if error.field else error.message
    return re.sub(r"\d+", "#", re.sub(r"'[^']*'|\"[^\"]*\"", "'…'", text))[:200]


def _chunk_path(work: Path, number: int, split: str) -> Path:
    return work / f"{number:08d}.{split}.npz"


# ---- who does it ------------------------------------------------------------------------------------------


def _run(
    job: _Job, tasks: Iterable[_Task], work: Path, workers: int, engine: str
) -> Generator[dict[str, Any], None, None]:
    """Encode the chunks, by whichever means, and give their reports in order."""
    if engine == "ray":
        return _by_ray(job, tasks, work, workers)
    if workers == 1:
        return (encode_records(job, task).save(work) for task in tasks)
    return _by_processes(job, tasks, work, workers)


def _in_order(
    tasks: Iterable[_Task], submit: Callable[[_Task], _Ticket], result: Callable[[_Ticket], _Result], most: int
) -> Iterator[_Result]:
    """Results in the order of the tasks, with at most so many under way: memory does not grow with the corpus."""
    under_way: deque[_Ticket] = deque()
    for task in tasks:
        under_way.append(submit(task))
        if len(under_way) >= most:
            yield result(under_way.popleft())
    while under_way:
        yield result(under_way.popleft())


def _by_processes(job: _Job, tasks: Iterable[_Task], work: Path, workers: int) -> Generator[dict[str, Any], None, None]:
    # not fork: a parent that has used torch's or numpy's threads can't be copied safely
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (job, work))
    try:
        yield from _in_order(tasks, lambda task: pool.submit(_work, task), Future.result, workers + 2)
    except BrokenProcessPool:
        message = "a worker ended suddenly, perhaps for want of memory; the same command goes on where it stopped"
        raise UnfinishedError(message) from None
    finally:
        pool.shutdown(cancel_futures=True)


_worker: tuple[_Job, Path] | None = None  # of a worker process: what it was started with


def _start_worker(job: _Job, work: Path) -> None:
    global _worker
    _worker = job, work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for its next task for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(task: _Task) -> dict[str, Any]:
    assert _worker is not None
    job, work = _worker
    return encode_records(job, task).save(work)


def _by_ray(job: _Job, tasks: Iterable[_Task], work: Path, workers: int) -> Generator[dict[str, Any], None, None]:
    """On the cluster that RAY_ADDRESS names, or on `workers` processes here. Only this machine writes files."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise missing_extra("cluster", "the engine 'ray'") from None
    started = not ray.is_initialized()
    if started:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        here: dict[str, Any] = {"address": "local", "num_cpus": workers, "include_dashboard": False}
        ray.init(**quiet, **({} if os.environ.get("RAY_ADDRESS") else here))
    try:
        shared = ray.put(job)
        remote = ray.remote(encode_records)
        most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        results = _in_order(tasks, lambda task: remote.remote(shared, task), lambda ref: _fetch(ray, ref), most)
        yield from (encoded.save(work) for encoded in results)
    finally:
        if started:
            ray.shutdown()


def _fetch(ray: Any, reference: Any) -> _Encoded:
    try:
        return cast(_Encoded, ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, RevupError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        found = str(error).strip().splitlines()[0][:200]
        raise UnfinishedError(f"ray: {found}; the same command goes on where it stopped") from None


# ---- going on after a kill --------------------------------------------------------------------------------


def _manifest(job: _Job, sources: Sequence[_Source], lexicon: str | Path | Lexicon | None) -> dict[str, Any]:
    """All that the chunks depend on."""
    return {
        "revup": __version__,
        "dataset": FORMAT,
        "format": job.format,
        "settings": {**asdict(job.settings), "split": list(job.settings.split)},
        "lexicon": None if lexicon is None else [str(lexicon) if job.lexicon is lexicon else _state(lexicon), job.mode],
        "skip_bad": job.skip_bad,
        "chunk": [CHUNK_RECORDS, CHUNK_SIZE],
        "sources": [
            [source.split, _state(source.path), _state(source.options.frames), asdict(source.options)]
            for source in sources
        ],
        "model": _state(sources[0].options.spacy_model),
    }


def _state(path: Any) -> Any:
    """What a file or directory is like now: a change shows."""
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


def _taken_up(folder: Path, manifest: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The reports of the chunks that an earlier run finished; where it was about something else, all is cleared."""
    work = folder.parent
    path = work / "manifest.json"
    try:
        earlier = json.loads(path.read_text("utf-8"))
        if earlier == manifest:
            reports = [json.loads(file.read_text("utf-8")) for file in sorted(work.glob("[0-9]*.json"))]
            return {report["number"]: report for report in reports}
    except (OSError, ValueError):
        pass
    clear(work)
    folder.mkdir()
    write_json(path, manifest)
    return {}


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnfinishedError(f"{target}: can't be written: {error.strerror or error}") from None


# ---- what was found ---------------------------------------------------------------------------------------


def _skipped(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    reasons: Counter[str] = Counter()
    for report in reports:
        reasons.update(report["reasons"])
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    kinds = dict(ranked[:_REASONS])
    if len(ranked) > _REASONS:
        kinds["other"] = sum(count for _, count in ranked[_REASONS:])
    return {
        "skipped": sum(report["skipped"] for report in reports),
        "skipped_reasons": kinds,
        "skipped_examples": [text for report in reports for text in report["examples"]][:_EXAMPLES],
    }


def _refuse_empty(sources: Sequence[_Source], reports: Sequence[dict[str, Any]], found: dict[str, Any]) -> None:
    """Each split that was given must have a document."""
    count: Counter[str | None] = Counter()
    for report in reports:
        count[sources[report["source"]].split] += report["documents"]
    for split in dict.fromkeys(source.split for source in sources):
        if not count[split]:
            names = ", ".join(source.path for source in sources if source.split == split)
            why = (
                f": all {found['skipped']} are bad, such as {found['skipped_examples'][0]}" if found["skipped"] else ""
            )
            raise InputError(f"no documents there{why}", names[:300])


def render_statistics(statistics: dict[str, Any]) -> str:
    """Statistics as text for a terminal."""
    s = statistics
    covered = _percent(s["token_coverage"], ", ", " of the text")
    rows = [
        ("documents", f"{s['documents']:,}"),
        ("events", f"{s['events']:,}"),
        ("with a frame", f"{s['events_with_frame']:,}{_percent(s['share_with_frame'], ' (', ')')}"),
        ("frames", f"{s['frames']:,}" if s["named_frames"] else f"none known: {s['frames']} unnamed classes"),
        ("words", f"{s['words'] - len(SPECIAL):,} of {s['distinct_words']:,}{covered}"),
        ("predicates", f"{s['distinct_predicates']:,}"),
    ]
    if s["named_frames"]:
        left = f"{s['ambiguity_bits']:.2f} of {s['frame_entropy_bits']:.2f} bits of the frame left by the predicate"
        rows.append(("ambiguity", left + _percent(s["table_accuracy"], "; ", " have its likeliest frame")))
    if s.get("vectors"):
        own = s["vectors"]
        share = _percent(own["share_of_words"], ", ") + _percent(own["share_of_tokens"], "; ", " of the text")
        rows.append(("vectors", f"{own['words']:,} words{share}"))
    rows.append(("duplicates", f"{s['duplicates']:,}"))
    if s["repeated_ids"]:
        rows.append(("repeated ids", f"{s['repeated_ids']:,} (their events share one draw of what is seen)"))
    rows.append(("skipped", f"{s.get('skipped', 0):,}"))
    rows += [("", f"{count:,} × {why}") for why, count in s.get("skipped_reasons", {}).items()]
    rows += [("", f"e.g. {example}") for example in s.get("skipped_examples", [])[:1]]
    text = [f"{name:<14}{value}" for name, value in rows]
    return "\n".join([*text, "", *_split_table(s), *_distributions(s)])


def _percent(share: float | None, before: str = "", after: str = "") -> str:
    return "" if share is None else f"{before}{100 * share:.1f}%{after}"


def _split_table(s: dict[str, Any]) -> list[str]:
    names = ("documents", "events", "windows", "duplicates", "no frame", "in train", "unseen frames", "known words")
    lines = [" " * 6 + "".join(f"{name:>14}" for name in names)]
    for split, own in s["splits"].items():
        cells = [own["documents"], own["events"], own["windows"], own["duplicates"], own["documents_without_frame"]]
        numbers = [f"{cell:,}" for cell in [*cells, own["also_in_train"], len(own["unseen_frames"])]]
        lines.append(f"{split:<6}" + "".join(f"{n:>14}" for n in [*numbers, _percent(own["token_coverage"]) or "–"]))
    return lines


def _distributions(s: dict[str, Any], most: int = 8) -> list[str]:
    lines = []
    for title, counts in (("frames", s["frame_counts"]), ("predicates", s["predicate_counts"])):
        if counts:
            first = [f"{name} {amount:,.0f}" for name, amount in list(counts.items())[:most]]
            lines += ["", f"most frequent {title}: " + ", ".join(first)]
    return lines
