"""Making a dataset directory from files: reading, labelling, encoding and merging, in constant memory.

The parent process cuts the sources into chunks of records, cheaply and in order. Workers parse and encode them
(revup.data.workers) and write them to the working directory `.OUT.partial`; the merge (revup.data.merge) reads them in
order. So one worker, many, and a Ray cluster make the identical dataset, and an interrupted call resumes with the
chunks that are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from revup import __version__
from revup.data.chunks import chunk_limits, chunks, file_state, finished_chunks
from revup.data.cluster import check_engine
from revup.data.dataset import FORMAT, SPLITS, Settings, as_given
from revup.data.lexicon import Lexicon
from revup.data.merge import given_vectors, merge
from revup.data.readers import Options, format_of, reader
from revup.data.told import LEXICON, OWN, read_frame_map, read_source
from revup.data.unknown_keys import once_each, warn_of
from revup.data.window_choice import choose
from revup.data.workers import EXAMPLES, KINDS, Job, Task, chunk_path, run_tasks
from revup.errors import InputError, RevupError, UnfinishedError, did_you_mean
from revup.io.folders import atomic_folder, refuse_existing

MOST_WORKERS = 1000  # each is a process
_REASONS = 50  # how many kinds of bad input are counted apart

Progress = Callable[[int], None]
Files = str | Path | Sequence[str | Path]


def prepare(
    files: Files = (),
    out: str | Path = "",
    *,
    format: str | None = None,
    train: Files | None = None,
    valid: Files | None = None,
    test: Files | None = None,
    settings: Settings | None = None,
    options: Options | None = None,
    frames: Files = (),
    vectors: str | Path | None = None,
    lexicon: str | Path | Lexicon | None = None,
    event_vectors: str | Path | None = None,
    encoder: str | None = None,
    reduce_like: str | Path | None = None,
    frames_from: Mapping[str, str | Path] | None = None,
    frame_map: str | Path | Mapping[str, str | None] | None = None,
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
        format: The format of the files, one of `revup.data.readers.FORMATS`; by default what the name of each tells.
        train, valid, test: The files of each split.
        settings: How documents become a dataset; its fields may also be given by name (`events=5, window="all"`).
        options: How files are read; its fields may also be given by name (`spacy_model="en_core_web_sm"`).
        frames: Format "tuples": parallel files of frames, one for each file (train's, valid's, test's in this order).
        vectors: A text file of pretrained word vectors (GloVe, word2vec, fastText).
        lexicon: A lexicon, or its path: the frames that predicates may have. It is kept in the dataset and in every run
            trained on it, and consulted in training and at prediction.
        event_vectors: A .npz file of vectors of events, in the form that `revup embed` writes.
        encoder: In its place: the name or directory of a pretrained transformer that reads the events' sentences
            (`text` and `span`); its vectors of predicates are used.
        reduce_like: A dataset or run whose reduction of event vectors is used, so that its models can be evaluated on
            this dataset; otherwise one is fitted to the training documents.
        frames_from: Further sources: name → JSONL file of documents with the same ids, whose frames the source says.
        frame_map: Frames to rename, merge (two with one new name) or leave out (None): old name → new name, or a JSON
            file of such an object.
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
    check_engine(engine)
    if not 1 <= workers <= MOST_WORKERS:
        raise RevupError(f"workers: expected a number from 1 to {MOST_WORKERS}, found {workers}")
    given_files = {"train": train, "valid": valid, "test": test}
    sources = _sources(_listed(files), given_files, format, options, _listed(frames))
    target = Path(out)
    named = (vectors, lexicon, frame_map, event_vectors, *(frames_from or {}).values())
    reads = [*(source.path for source in sources), *(path for path in named if isinstance(path, (str, Path)))]
    refuse_existing(target, force, reads=reads)
    known = Lexicon.load(lexicon) if isinstance(lexicon, (str, Path)) else lexicon
    names = read_frame_map(frame_map) if isinstance(frame_map, (str, Path)) else dict(frame_map or {})
    known = known.renamed(names) if known is not None and names else known
    further = {name: read_source(path) for name, path in (frames_from or {}).items()}
    for name in further:
        if not name.strip():
            raise RevupError("frames_from: expected the name of a source, found an empty one")
        if name == OWN or (name == LEXICON and known is not None):
            raise RevupError(f"frames_from: '{name}' is the name of another source here")
    given = given_vectors(event_vectors, encoder, reduce_like)
    job = Job(settings, known, skip_bad, further, names, encoder)
    manifest = _manifest(job, sources, lexicon, frames_from or {})
    with atomic_folder(target, force, resume=True) as folder, _writing(target):
        work = folder.parent
        done = finished_chunks(work, manifest)
        folder.mkdir(exist_ok=True)
        reports = [*done.values()]
        documents = sum(report["documents"] for report in reports)
        left = (task for task in _tasks(sources) if task.number not in done)
        with closing(run_tasks(job, left, work, workers, engine)) as results:
            for report in results:
                reports.append(report)
                documents += report["documents"]
                if progress is not None:
                    progress(documents)
        reports.sort(key=lambda report: report["number"])
        warn_of(once_each((report["source"], report["unknown_keys"]) for report in reports))
        found = _skipped(reports)
        _refuse_empty(sources, reports, found)
        windows = choose(*_chunk_files(work, reports), settings)
        statistics = merge(windows, folder, vectors=vectors, lexicon=known, event_vectors=given, found=found)
        for name, path in (frames_from or {}).items():
            if name not in statistics["sources"]:
                raise InputError("says nothing of any event: its documents need the ids of those prepared", str(path))
        return statistics


# ---- sources and chunks -----------------------------------------------------------------------------------


def _chosen(settings: Settings, options: Options, choices: dict[str, Any]) -> tuple[Settings, Options]:
    names = {field.name for field in fields(Settings)}, {field.name for field in fields(Options)} - {"frames"}
    unknown = sorted(choices.keys() - names[0] - names[1])
    if unknown:
        known = sorted(names[0] | names[1])
        hint = did_you_mean(unknown[0], known) or f": one of {', '.join(known)}"
        raise RevupError(f"no setting '{unknown[0]}'{hint}")
    first, second = ({key: value for key, value in choices.items() if key in part} for part in names)
    return replace(settings, **as_given(first)), replace(options, **second)


def _listed(files: Files | None) -> list[str | Path]:
    return [files] if isinstance(files, (str, Path)) else list(files or ())


@dataclass(frozen=True)
class _Source:
    """A file, the split it belongs to (None: its documents are split by their ids), and how to read it."""

    path: str
    split: str | None
    format: str
    options: Options


def _sources(
    files: Sequence[str | Path],
    given: dict[str, Any],
    format: str | None,
    options: Options,
    frames: Sequence[str | Path],
) -> list[_Source]:
    if format is not None:
        reader(format)  # an unknown one is refused before anything is written
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
        _Source(
            str(path),
            split,
            format or format_of(path),
            replace(options, frames=str(frames[number])) if frames else options,
        )
        for number, (split, path) in enumerate(named)
    ]


def _tasks(sources: Sequence[_Source]) -> Iterator[Task]:
    """Yield chunks of records in reading order; where they are cut depends on the records alone."""
    number = 0
    for index, source in enumerate(sources):
        for part, failure in chunks(reader(source.format).records(source.path, source.options)):
            yield Task(number, index, source.split, source.format, source.options, part, failure)
            number += 1


def _chunk_files(work: Path, reports: Sequence[dict[str, Any]]) -> tuple[list[Path], list[Path] | None]:
    """Return the files of all chunks, and the same in windows of all events, if all chunks have them."""
    named = [(report["number"], split) for report in reports for split in report["splits"]]
    paths, every = ([chunk_path(work, number, split + kind) for number, split in named] for kind in KINDS)
    return paths, every if all(report["both_ways"] or not report["splits"] for report in reports) else None


# ---- resuming ---------------------------------------------------------------------------------------------


def _manifest(
    job: Job,
    sources: Sequence[_Source],
    lexicon: str | Path | Lexicon | None,
    frames_from: Mapping[str, str | Path],
) -> dict[str, Any]:
    """Return everything that the chunks depend on."""
    return {
        "revup": __version__,
        "dataset": FORMAT,
        "settings": {**asdict(job.settings), "split": list(job.settings.split)},
        "lexicon": file_state(lexicon)
        if isinstance(lexicon, (str, Path))
        else None
        if lexicon is None
        else str(lexicon),
        "frames_from": {name: file_state(path) for name, path in frames_from.items()},
        "frame_map": dict(job.frame_map),
        "encoder": None if job.encoder is None else [job.encoder, file_state(job.encoder)],
        "skip_bad": job.skip_bad,
        "chunk": chunk_limits(),
        "sources": [
            [
                *(source.split, source.format, file_state(source.path)),
                *(file_state(source.options.frames), asdict(source.options)),
            ]
            for source in sources
        ],
        "model": file_state(sources[0].options.spacy_model),
    }


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
