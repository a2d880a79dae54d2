"""Making a dataset directory from files: reading, labelling, encoding and merging, in constant memory.

The parent process cuts the sources into chunks of records, cheaply and in order. Workers parse and encode them
(revup.data.workers) and write them to the working directory `.OUT.partial`; the merge (revup.data.merge) reads them in
order. So one worker, many, and a Ray cluster make the identical dataset, and an interrupted call resumes with the
chunks that are missing.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from revup import __version__
from revup.data.dataset import FORMAT, SPLITS, Settings
from revup.data.lexicon import Lexicon, Mode
from revup.data.merge import merge
from revup.data.readers import Options, Record, reader
from revup.data.workers import ENGINES, EXAMPLES, Job, Task, chunk_path, run_tasks
from revup.errors import InputError, RevupError, UnfinishedError
from revup.io.files import write_json
from revup.io.folders import atomic_folder, clear, refuse_existing

CHUNK_RECORDS = 2000
CHUNK_SIZE = 2**20  # characters or bytes of records after which a chunk is full all the same
_REASONS = 50  # how many kinds of bad input are counted apart

Progress = Callable[[int], None]
Files = str | Path | Sequence[str | Path]


def prepare(
    files: Files = (),
    out: str | Path = "",
    *,
    format: str = "jsonl",
    train: Files | None = None,
    valid: Files | None = None,
    test: Files | None = None,
    settings: Settings | None = None,
    options: Options | None = None,
    frames: Files = (),
    vectors: str | Path | None = None,
    lexicon: str | Path | Lexicon | None = None,
    lexicon_mode: Mode = "hard",
    workers: int = 1,
    engine: str = "local",
    skip_bad: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    **choices: Any,
) -> dict[str, Any]:
    """Make a dataset directory from files of documents.

    Give either `files`, which are split by document id, or `train` (with `valid` and `test`). A wrong input leaves
    nothing behind. After Ctrl-C, a kill or a full disk, finished chunks stay in `.OUT.partial` beside `out`, and the
    same call resumes with them if the files have not changed; standard input can't be read again and starts over.

    Args:
        files: Files to split by document id in the shares `split`; ".gz" is decompressed, "-" is standard input.
        out: The dataset directory to write.
        format: The format of the files, one of `revup.data.readers.FORMATS`.
        train, valid, test: The files of each split.
        settings: How documents become a dataset; its fields may also be given by name (`events=5, window="all"`).
        options: How files are read; its fields may also be given by name (`spacy_model="en_core_web_sm"`).
        frames: Format "tuples": parallel files of frames, one for each file (train's, valid's, test's in this order).
        vectors: A text file of pretrained word vectors (GloVe, word2vec, fastText).
        lexicon: A lexicon, or its path, whose frames label events that carry none.
        lexicon_mode: "hard" for the most likely frame of a predicate, "soft" for the distribution over its frames.
        workers: The number of processes that parse and encode.
        engine: "local", or "ray" for the cluster that the environment variable RAY_ADDRESS names.
        skip_bad: Count bad records in the statistics and skip them, in place of an error at the first.
        force: Replace `out` if it exists.
        progress: Called with the number of documents encoded so far, after every chunk.
        **choices: Fields of `Settings` and `Options` by name.

    Returns:
        The statistics of the dataset, as in its statistics.json.

    Raises:
        InputError: A file can't be read or a record is wrong; file, line and field are named.
        OutputExistsError: `out` exists and `force` is false.
        UnfinishedError: The disk is full or a worker died; the same call resumes.
    """
    settings, options = _chosen(settings or Settings(), options or Options(), choices)
    if not str(out):
        raise RevupError("out: expected the directory to write, found nothing")
    if engine not in ENGINES:
        raise RevupError(f"engine: expected one of {', '.join(ENGINES)}, found '{engine}'")
    if workers < 1:
        raise RevupError(f"workers: expected 1 or more, found {workers}")
    sources = _sources(_listed(files), {"train": train, "valid": valid, "test": test}, options, _listed(frames))
    reader(format)  # an unknown one is refused before anything is written
    target = Path(out)
    refuse_existing(target, force)
    known = Lexicon.load(lexicon) if isinstance(lexicon, (str, Path)) else lexicon
    job = Job(format, settings, known, lexicon_mode, skip_bad)
    manifest = _manifest(job, sources, lexicon)
    with atomic_folder(target, force, resume=True) as folder, _writing(target):
        work = folder.parent
        done = _finished_chunks(folder, manifest)
        reports = [*done.values()]
        documents = sum(report["documents"] for report in reports)
        left = (task for task in _tasks(format, sources) if task.number not in done)
        with closing(run_tasks(job, left, work, workers, engine)) as results:
            for report in results:
                reports.append(report)
                documents += report["documents"]
                if progress is not None:
                    progress(documents)
        reports.sort(key=lambda report: report["number"])
        found = _skipped(reports)
        _refuse_empty(sources, reports, found)
        paths = [chunk_path(work, report["number"], split) for report in reports for split in report["splits"]]
        return merge(paths, folder, settings, vectors=vectors, found=found)


# ---- sources and chunks -----------------------------------------------------------------------------------


def _chosen(settings: Settings, options: Options, choices: dict[str, Any]) -> tuple[Settings, Options]:
    names = {field.name for field in fields(Settings)}, {field.name for field in fields(Options)} - {"frames"}
    unknown = sorted(choices.keys() - names[0] - names[1])
    if unknown:
        raise RevupError(f"no setting '{unknown[0]}': one of {', '.join(sorted(names[0] | names[1]))}")
    first, second = ({key: value for key, value in choices.items() if key in part} for part in names)
    return replace(settings, **first), replace(options, **second)


def _listed(files: Files | None) -> list[str | Path]:
    return [files] if isinstance(files, (str, Path)) else list(files or ())


@dataclass(frozen=True)
class _Source:
    """A file, the split it belongs to (None: its documents are split by their ids), and how to read it."""

    path: str
    split: str | None
    options: Options


def _sources(
    files: Sequence[str | Path], given: dict[str, Any], options: Options, frames: Sequence[str | Path]
) -> list[_Source]:
    parts = {split: _listed(part) for split, part in given.items()}
    if bool(files) == bool(parts["train"]) or (files and any(parts.values())):
        raise RevupError("give either files, which are split by document id, or train (with valid and test)")
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


def _tasks(format: str, sources: Sequence[_Source]) -> Iterator[Task]:
    """Yield chunks of records in reading order; where they are cut depends on the records alone."""
    number = 0
    for index, source in enumerate(sources):
        for part, failure in _chunks(reader(format).records(source.path, source.options)):
            yield Task(number, index, source.split, source.options, part, failure)
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


# ---- resuming ---------------------------------------------------------------------------------------------


def _manifest(job: Job, sources: Sequence[_Source], lexicon: str | Path | Lexicon | None) -> dict[str, Any]:
    """Return everything that the chunks depend on."""
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


def _finished_chunks(folder: Path, manifest: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the reports of chunks that an earlier call finished; if it was another job, clear what it left."""
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


# ---- reports ----------------------------------------------------------------------------------------------


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
        "skipped_examples": [text for report in reports for text in report["examples"]][:EXAMPLES],
    }


def _refuse_empty(sources: Sequence[_Source], reports: Sequence[dict[str, Any]], found: dict[str, Any]) -> None:
    """Raise InputError where a split that was given has no document."""
    count: Counter[str | None] = Counter()
    for report in reports:
        count[sources[report["source"]].split] += report["documents"]
    for split in dict.fromkeys(source.split for source in sources):
        if not count[split]:
            names = ", ".join(source.path for source in sources if source.split == split)
            bad = f": all {found['skipped']} are bad, for example {(found['skipped_examples'] or [''])[0]}"
            why = bad if found["skipped"] else ""
            raise InputError(f"no documents{why}", names[:300])
