"""A corpus: vocabulary, frame list, splits, and their tensors on disk and on the device.

On disk it is a movable directory of plain arrays and text, which appears whole or not at all:

    corpus.json        settings, sizes, fingerprint            vocabulary.txt, lemmas.txt   a word a line
    statistics.json    what was found in the documents         frames.txt                   a frame a line
    train/ valid/ test/   tokens.npy lengths.npy reference.npy knowledge_*.npy confidence.npy keys.npy ids.jsonl
    vectors.npy, vectors_found.npy                             pretrained vectors, where given
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revup.encoding import BOS, NONE, NULL, PAD, SPECIAL, TOKENS, TUP, UNK, UNSEEN, WINDOWS, Chunk, encode, normal
from revup.errors import InputError, RevupError
from revup.events import SLOTS, Document
from revup.knowledge import Observation, Seen, document_key, observe
from revup.vectors import read_vectors

FORMAT = 1
SPLITS = ("train", "valid", "test")
UNNAMED_CLASSES = 50
CHUNK_DOCUMENTS = 4096
STREAM_ROWS = 262_144  # documents in a shard, where a split does not fit the device

Array = NDArray[Any]


@dataclass(frozen=True)
class Settings:
    """How documents become a corpus."""

    events: int = 5
    window: str = "framed"
    vocabulary: int = 150_000
    minimum_count: int = 1
    classes: int = UNNAMED_CLASSES  # how many unnamed classes, for a corpus without any frame
    duplicates: str = "drop"  # or "keep"
    split: tuple[float, float, float] = (0.9, 0.05, 0.05)

    def __post_init__(self) -> None:
        if self.window not in WINDOWS:
            raise RevupError(f"window: expected one of {', '.join(WINDOWS)}, found '{self.window}'")
        if self.duplicates not in ("drop", "keep"):
            raise RevupError(f"duplicates: expected drop or keep, found '{self.duplicates}'")
        for name, least in (("events", 1), ("vocabulary", len(SPECIAL) + 1), ("minimum_count", 1), ("classes", 2)):
            if getattr(self, name) < least:
                raise RevupError(f"{name}: expected {least} or more, found {getattr(self, name)}")
        if len(self.split) != 3 or min(self.split) < 0 or not 0.999 < sum(self.split) < 1.001 or self.split[0] == 0:
            raise RevupError(f"split: expected three shares that sum to 1, the first above 0, found {self.split}")


class Vocabulary:
    """Words ↔ numbers; what is not in it is `<unk>`."""

    def __init__(self, words: Sequence[str], lemmas: Sequence[str] | None = None) -> None:
        self.words = list(words)
        self.index = {word: number for number, word in enumerate(self.words)}
        self.lemmas = list(lemmas) if lemmas is not None else list(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def number(self, word: str | None) -> int:
        """The number of a slot's word as documents have it."""
        found = self.index.get(normal(word), UNK)
        return found if found >= len(SPECIAL) or found == NULL else UNK


@dataclass
class Batch:
    """Some documents on the device, and what is seen of their frames; sizes are those of the whole batch.

    tokens [B, M·5]; mask [B, M]: which events exist; frames, weights [B, M, W]: p_D(t|x), sparse; observed [B, M]: l;
    confidence [B, M]. With several processes a batch holds this process's rows (`rows` of `documents`), and the
    counts are over all of it, so that every process divides by the same numbers.
    """

    tokens: Tensor
    mask: Tensor
    frames: Tensor
    weights: Tensor
    observed: Tensor
    confidence: Tensor
    reference: Tensor
    documents: int
    events: int
    observed_events: int
    rows: slice = field(default_factory=lambda: slice(None))

    def empirical(self, classes: int) -> Tensor:
        """p_D(t|x) as a dense distribution [B, M, K]; all 0 where nothing is seen."""
        dense = self.weights.new_zeros(*self.mask.shape, classes)
        return dense.scatter_add_(-1, self.frames, self.weights)

    @property
    def token_mask(self) -> Tensor:
        """[B, M·5]: which tokens exist."""
        return self.mask.repeat_interleave(TOKENS, dim=1)

    @property
    def observed_share(self) -> float:
        """The share of events of the mini-batch whose frame is seen: what the paper calls ε̂."""
        return self.observed_events / max(self.events, 1)


class Split:
    """One split of a corpus, memory-mapped: arrays of N windows of at most M events."""

    NAMES = (
        "tokens",
        "lengths",
        "reference",
        "knowledge_frames",
        "knowledge_weights",
        "confidence",
        "keys",
        "document",
    )

    def __init__(self, name: str, arrays: dict[str, Array], ids: Callable[[], list[str]], classes: int) -> None:
        self.name, self.arrays, self._ids, self.classes = name, arrays, ids, classes

    def __len__(self) -> int:
        return len(self.arrays["lengths"])

    @property
    def ids(self) -> list[str]:
        """The ids of the documents that the windows come from (`arrays["document"]` numbers them)."""
        return self._ids()

    @property
    def events(self) -> int:
        return int(np.sum(self.arrays["lengths"], dtype=np.int64))

    def seen(self, observation: Observation, rows: slice = slice(None)) -> Seen:
        """What is seen of these rows' frames."""
        a = self.arrays
        return observe(
            a["keys"][rows],
            a["knowledge_frames"][rows],
            a["knowledge_weights"][rows],
            a["confidence"][rows],
            self.classes,
            observation,
        )

    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


@dataclass
class _Shard:
    """Rows of a split on the device, and on the host the two counts a batch needs without asking the device."""

    tokens: Tensor
    lengths: Tensor
    frames: Tensor
    weights: Tensor
    observed: Tensor
    confidence: Tensor
    reference: Tensor
    host_lengths: Array
    host_observed: Array


class Batches:
    """Cuts a split into batches on a device: held there whole where it fits, streamed in shards where not."""

    def __init__(
        self,
        split: Split,
        observation: Observation,
        batch_size: int,
        device: torch.device | str = "cpu",
        shard_rows: int | None = None,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        if not len(split):
            raise RevupError(f"the {split.name} split is empty")
        self.split, self.observation, self.batch_size = split, observation, batch_size
        self.device = torch.device(device)
        self.shard_rows = shard_rows or (len(split) if fits(split.nbytes(), self.device) else STREAM_ROWS)
        self.rank, self.processes = rank, processes
        self._held: tuple[int, _Shard] | None = None

    def __len__(self) -> int:
        return sum(len(self._cuts(self._rows(shard))) for shard in range(self._shards()))

    def epoch(self, number: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, shuffled by seed and epoch alone, from batch `start` on."""
        generator = np.random.default_rng([seed, number])
        position = 0
        for shard in generator.permutation(self._shards()):
            rows = self._rows(int(shard))
            order, cuts = generator.permutation(rows), self._cuts(rows)
            if position + len(cuts) > start:
                yield from self._batches(int(shard), order, cuts[max(0, start - position) :])
            position += len(cuts)

    def ordered(self) -> Iterator[Batch]:
        """Every row once, in order."""
        for shard in range(self._shards()):
            rows = self._rows(shard)
            yield from self._batches(shard, np.arange(rows), self._cuts(rows))

    def _shards(self) -> int:
        return -(-len(self.split) // self.shard_rows)

    def _rows(self, shard: int) -> int:
        return min(self.shard_rows, len(self.split) - shard * self.shard_rows)

    def _cuts(self, rows: int) -> list[tuple[int, int]]:
        """Where batches start and end; a last one too small to share among processes joins the one before it."""
        starts = list(range(0, rows, self.batch_size))
        if len(starts) > 1 and rows - starts[-1] < 16:
            starts.pop()
        return list(zip(starts, [*starts[1:], rows], strict=True))

    def _batches(self, shard: int, order: Array, cuts: list[tuple[int, int]]) -> Iterator[Batch]:
        held = self._load(shard)
        on_device = torch.from_numpy(order).to(self.device)
        for start, end in cuts:
            chosen = order[start:end]
            share = -(-len(chosen) // self.processes)
            rows = slice(self.rank * share, min((self.rank + 1) * share, len(chosen)))
            index = on_device[start + rows.start : start + rows.stop]
            lengths = held.lengths[index]
            yield Batch(
                tokens=held.tokens[index].long(),
                mask=torch.arange(held.observed.shape[1], device=self.device) < lengths[:, None],
                frames=held.frames[index].long(),
                weights=held.weights[index],
                observed=held.observed[index],
                confidence=held.confidence[index],
                reference=held.reference[index].long(),
                documents=len(chosen),
                events=int(held.host_lengths[chosen].sum()),
                observed_events=int(held.host_observed[chosen].sum()),
                rows=rows,
            )

    def _load(self, shard: int) -> _Shard:
        if self._held is None or self._held[0] != shard:
            rows = slice(shard * self.shard_rows, shard * self.shard_rows + self._rows(shard))
            self._held = (shard, load_rows(self.split, rows, self.observation, self.device))
        return self._held[1]


def load_rows(split: Split, rows: slice, observation: Observation, device: torch.device) -> _Shard:
    """Rows of a split as tensors on a device, with what is seen of their frames."""
    a, seen = split.arrays, split.seen(observation, rows)
    lengths = np.ascontiguousarray(a["lengths"][rows])

    def place(array: Array) -> Tensor:
        return torch.from_numpy(np.array(array)).to(device)

    return _Shard(
        tokens=place(a["tokens"][rows].reshape(len(lengths), -1)),
        lengths=place(lengths),
        frames=place(seen.frames),
        weights=place(seen.weights),
        observed=place(seen.observed.astype(np.float32)),
        confidence=place(seen.confidence),
        reference=place(a["reference"][rows]),
        host_lengths=lengths,
        host_observed=seen.observed.sum(1),
    )


def fits(size: int, device: torch.device) -> bool:
    """Whether so many bytes may be held on the device beside the model: half of what is free there now."""
    if device.type == "cuda":
        return size < torch.cuda.mem_get_info(device)[0] // 2
    try:
        return size < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):  # not told on this system
        return size < 2**31


class Corpus:
    """A vocabulary, a frame list and three splits."""

    def __init__(self, path: Path, meta: dict[str, Any], vocabulary: Vocabulary, frames: list[str]) -> None:
        self.path, self.meta, self.vocabulary, self.frames = path, meta, vocabulary, frames

    @classmethod
    def load(cls, path: str | Path) -> Corpus:
        """Open a dataset directory."""
        path = Path(path)
        try:
            meta = json.loads((path / "corpus.json").read_text("utf-8"))
            if not isinstance(meta, dict) or meta.get("format") != FORMAT:
                raise InputError(f"expected a dataset of format {FORMAT}, found {meta.get('format')!r}", str(path))
            vocabulary = Vocabulary(read_list(path / "vocabulary.txt"), read_list(path / "lemmas.txt"))
            corpus = cls(path, meta, vocabulary, read_list(path / "frames.txt"))
            corpus.splits  # noqa: B018  (opens the arrays, so that a damaged dataset says so here)
            return corpus
        except FileNotFoundError as error:
            missing = os.path.basename(str(error.filename))
            raise InputError(f"not a dataset directory: {missing} is missing", str(path)) from None
        except (ValueError, KeyError, AttributeError, NotADirectoryError) as error:
            raise InputError(f"not a dataset directory, or a damaged one: {error}", str(path)) from None

    @classmethod
    def build(
        cls,
        documents: Iterable[Document] | None = None,
        out: str | Path | None = None,
        *,
        train: Iterable[Document] | None = None,
        valid: Iterable[Document] | None = None,
        test: Iterable[Document] | None = None,
        vectors: str | Path | None = None,
        world: Any = None,
        force: bool = False,
        **settings: Any,
    ) -> Corpus:
        """Make a corpus of documents, split by their ids, or of three sets of documents given apart.

        Without `out` it lives in a temporary directory for as long as the object does. `world` is the World the
        documents were sampled from, so that evaluation can show the exact optimum.
        """
        chosen = Settings(**settings)
        given = {"train": train, "valid": valid, "test": test}
        if (documents is None) == (train is None):
            raise RevupError("give either documents, or train (and valid, test)")
        temporary = out is None
        target = Path(tempfile.mkdtemp(prefix="revup-")) / "corpus" if out is None else Path(out)
        if world is not None:  # its exact optimum needs the documents themselves
            documents = None if documents is None else list(documents)
            given = {name: None if part is None else list(part) for name, part in given.items()}
        with assembling(target, force) as work:
            paths = _encode_all(documents, given, chosen, work)
            about = None if world is None else _about_world(world, documents, given, chosen)
            merge(paths, work / "dataset", chosen, vectors=vectors, world=about)
        corpus = cls.load(target)
        if temporary:
            weakref.finalize(corpus, shutil.rmtree, target.parent, ignore_errors=True)
        return corpus

    @property
    def splits(self) -> dict[str, Split]:
        return {name: self.split(name) for name in SPLITS}

    def split(self, name: str) -> Split:
        if name not in SPLITS:
            raise RevupError(f"unknown split '{name}': one of {', '.join(SPLITS)}")
        folder = self.path / name
        arrays = {array: np.load(folder / f"{array}.npy", mmap_mode="r") for array in Split.NAMES}
        if len({len(array) for array in arrays.values()}) != 1:
            raise InputError("the arrays of this split differ in length", str(folder))
        return Split(name, arrays, lambda: read_ids(folder / "ids.jsonl"), len(self.frames))

    @property
    def settings(self) -> Settings:
        return Settings(**{**self.meta["settings"], "split": tuple(self.meta["settings"]["split"])})

    @property
    def events(self) -> int:
        """M: how many events a window has at most."""
        return self.settings.events

    @property
    def has_frames(self) -> bool:
        """Whether the frames have names; a corpus without any has unnamed classes instead."""
        return bool(self.meta["named_frames"])

    @property
    def fingerprint(self) -> str:
        """A digest of everything a model could learn from here."""
        return str(self.meta["fingerprint"])

    @property
    def statistics(self) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads((self.path / "statistics.json").read_text("utf-8")))

    def vectors(self) -> tuple[Array, Array] | None:
        """Pretrained vectors [V, d] and which words have one, where the corpus came with them."""
        if not (self.path / "vectors.npy").exists():
            return None
        return np.load(self.path / "vectors.npy"), np.load(self.path / "vectors_found.npy")


def encode_documents(
    documents: Iterable[Document], vocabulary: Vocabulary, frames: Sequence[str], events: int, window: str = "all"
) -> Split:
    """Documents as an unsaved split in an existing vocabulary and frame list (for predicting on new ones)."""
    chunk = encode(documents, "new", events, window)
    words = np.array([vocabulary.number(word) for word in chunk.words] or [PAD], np.int32)
    lookup = {frame: number for number, frame in enumerate(frames)}
    arrays = _renumber(chunk, words, lookup)
    return Split("new", arrays, lambda: chunk.ids, len(frames))


# ---- merging chunks into a dataset ----------------------------------------------------------------------


def _about_world(
    world: Any, documents: Iterable[Document] | None, given: dict[str, Iterable[Document] | None], settings: Settings
) -> dict[str, Any]:
    """The world a corpus was sampled from, and the best any model can reach on its valid and test documents."""
    parts: dict[str, list[Document]] = {name: list(part or ()) for name, part in given.items()}
    for document in documents or ():
        parts[split_of(document.id, settings.split)].append(document)
    whole = all(len(document.events) <= settings.events for document in parts["test"])
    optimum = {name: world.optimum(parts[name]) for name in ("valid", "test") if parts[name] and whole}
    return {"world": world.config(), "optimum": optimum}


def split_of(identity: str, shares: Sequence[float]) -> str:
    """The split a document belongs to, by its id alone."""
    place = document_key(f"split/{identity}") / 2.0**64
    return "train" if place < shares[0] else "valid" if place < shares[0] + shares[1] else "test"


def _encode_all(
    documents: Iterable[Document] | None, given: dict[str, Iterable[Document] | None], settings: Settings, work: Path
) -> list[Path]:
    """Encode documents in chunks written to `work`; memory holds one chunk at a time."""
    paths: list[Path] = []

    def add(part: list[Document], split: str) -> None:
        if part:
            paths.append(work / f"chunk-{len(paths):06d}.npz")
            encode(part, split, settings.events, settings.window).save(paths[-1])

    for split, source in given.items():
        stream = iter(source or ())
        while part := list(islice(stream, CHUNK_DOCUMENTS)):
            add(part, split)
    stream = iter(documents or ())
    while part := list(islice(stream, CHUNK_DOCUMENTS)):
        for split in SPLITS:
            add([d for d in part if split_of(d.id, settings.split) == split], split)
    return paths


def merge(
    paths: Sequence[Path],
    out: Path,
    settings: Settings,
    vectors: str | Path | None = None,
    world: dict[str, Any] | None = None,
    found: dict[str, Any] | None = None,
) -> None:
    """Merge encoded chunks, in order, into a dataset directory; `found` is added to the statistics."""
    survey = _Survey()
    kept: dict[Path, Array] = {}
    for path in paths:
        kept[path] = survey.add(Chunk.load(path), settings)
    if not survey.documents["train"]:
        raise InputError("no documents for training")
    named = bool(survey.frames)
    frames = sorted(survey.frames) if named else [f"class-{number:02d}" for number in range(settings.classes)]
    words = survey.vocabulary(settings)
    vocabulary = Vocabulary(words, [survey.lemma(word) for word in words])
    lookup = {frame: number for number, frame in enumerate(frames)}
    if not survey.rows(named)["train"]:
        raise InputError("no training document has an event to learn from")

    writers = {
        split: _Writer(out / split, survey.rows(named)[split], settings.events, survey.width) for split in SPLITS
    }
    for path in paths:
        chunk = Chunk.load(path)
        numbers = np.array([vocabulary.number(word) for word in chunk.words] or [PAD], np.int32)
        mask = kept[path][chunk.arrays["document"]]
        if named:
            mask &= ~chunk.arrays["unframed"]
        writers[chunk.split].add(_renumber(chunk, numbers, lookup), mask, chunk.ids)
    for writer in writers.values():
        writer.close()

    write_list(out / "vocabulary.txt", vocabulary.words)
    write_list(out / "lemmas.txt", vocabulary.lemmas)
    write_list(out / "frames.txt", frames)
    coverage = None
    if vectors is not None:
        matrix, rows = read_vectors(vectors, vocabulary.index)
        np.save(out / "vectors.npy", matrix)
        np.save(out / "vectors_found.npy", rows)
        coverage = survey.vector_coverage(vocabulary, rows)
    statistics = {**survey.statistics(named, frames, vocabulary), "vectors": coverage, **(found or {})}
    (out / "statistics.json").write_text(json.dumps(statistics, indent=1, ensure_ascii=False) + "\n", "utf-8")
    meta = {
        "format": FORMAT,
        "settings": {**vars(settings), "split": list(settings.split)},
        "named_frames": named,
        "words": len(vocabulary),
        "frames": len(frames),
        "rows": {split: writer.rows for split, writer in writers.items()},
        **(world or {}),
        "fingerprint": _fingerprint(out),
    }
    (out / "corpus.json").write_text(json.dumps(meta, indent=1) + "\n", "utf-8")


class _Survey:
    """What all chunks together hold: word counts, frames, duplicates, statistics."""

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.frames: set[str] = set()
        self.unseen_frames: Counter[str] = Counter()
        self.lemmas: dict[str, Counter[str]] = defaultdict(Counter)
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.documents: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.framed: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self.without_frame: Counter[str] = Counter()
        self.width = 1
        self._contents: dict[str, set[int]] = defaultdict(set)
        self._ids: set[int] = set()
        self.repeated_ids = 0
        self._rows = {True: Counter[str](), False: Counter[str]()}
        self._other_frames: dict[str, Counter[str]] = defaultdict(Counter)
        self._token_total: Counter[str] = Counter()

    def add(self, chunk: Chunk, settings: Settings) -> Array:
        """Take a chunk in; return which of its documents are kept (those that are not duplicates)."""
        split, a = chunk.split, chunk.arrays
        seen = self._contents[split]
        keep = np.ones(len(chunk.ids), bool)
        for number, content in enumerate(a["content"].tolist()):
            if content in seen:
                self.duplicates[split] += 1
                keep[number] = settings.duplicates == "keep"
            seen.add(content)
        for identity in chunk.ids:
            key = document_key(identity)
            self.repeated_ids += key in self._ids
            self._ids.add(key)
        rows = keep[a["document"]]
        self.documents[split] += chunk.statistics["documents"]
        self.events[split] += chunk.statistics["events"]
        self.framed[split] += chunk.statistics["events_with_frame"]
        self.without_frame[split] += int((rows & a["unframed"]).sum())
        self._rows[True][split] += int((rows & ~a["unframed"]).sum())
        self._rows[False][split] += int(rows.sum())
        self.width = max(self.width, a["knowledge_frames"].shape[-1])
        there = (np.arange(settings.events) < a["lengths"][:, None]) & rows[:, None]
        used = np.bincount(a["tokens"][there].ravel(), minlength=len(chunk.words))
        if split == "train":
            self.frames.update(chunk.all_frames)
            for word, count in zip(chunk.words, used.tolist(), strict=True):
                self.words[word] += count
            for form, lemma, count in chunk.lemmas:
                self.lemmas[form][lemma] += count
        for pred, frame, count in chunk.statistics["pairs"]:
            if split == "train":
                self.pairs[pred, frame] += count
            else:
                self._other_frames[split][frame] += count
        return keep

    def rows(self, named: bool) -> Counter[str]:
        return self._rows[named]

    def vocabulary(self, settings: Settings) -> list[str]:
        """Special tokens, then words by falling count (ties by name), as many as fit."""
        real = [(w, c) for w, c in self.words.items() if w not in SPECIAL and c >= settings.minimum_count]
        real.sort(key=lambda item: (-item[1], item[0]))
        return [*SPECIAL, *(word for word, _ in real[: settings.vocabulary - len(SPECIAL)])]

    def lemma(self, word: str) -> str:
        """The lemma most often given for a predicate form; the form itself where none was."""
        seen = self.lemmas.get(word)
        return min(seen.items(), key=lambda item: (-item[1], item[0]))[0] if seen else word

    def vector_coverage(self, vocabulary: Vocabulary, found: Array) -> dict[str, Any]:
        counts = np.array([self.words[word] for word in vocabulary.words], np.float64)
        counts[: len(SPECIAL)] = 0
        real = len(vocabulary) - len(SPECIAL)
        return {
            "words": int(found.sum()),
            "share_of_words": round(float(found.sum() / max(real, 1)), 4),
            "share_of_tokens": round(float(counts[found].sum() / max(counts.sum(), 1)), 4),
        }

    def statistics(self, named: bool, frames: list[str], vocabulary: Vocabulary) -> dict[str, Any]:
        by_frame: Counter[str] = Counter()
        by_predicate: Counter[str] = Counter()
        for (pred, frame), count in self.pairs.items():
            by_frame[frame] += count
            by_predicate[pred] += count
        known = set(frames)
        inside = sum(self.words[word] for word in vocabulary.words if word not in SPECIAL)
        everything = sum(count for word, count in self.words.items() if word not in SPECIAL)
        return {
            "documents": sum(self.documents.values()),
            "events": sum(self.events.values()),
            "events_with_frame": sum(self.framed.values()),
            "frames": len(frames),
            "named_frames": named,
            "words": len(vocabulary),
            "distinct_words": len([word for word in self.words if word not in SPECIAL]),
            "token_coverage": round(inside / max(everything, 1), 4),
            "duplicates": sum(self.duplicates.values()),
            "repeated_ids": self.repeated_ids,
            "ambiguity_bits": round(ambiguity(self.pairs), 4),
            "splits": {
                split: {
                    "documents": self.documents[split],
                    "events": self.events[split],
                    "events_with_frame": self.framed[split],
                    "windows": self._rows[named][split],
                    "duplicates": self.duplicates[split],
                    "documents_without_frame": self.without_frame[split],
                    "unseen_frames": dict(
                        sorted((f, c) for f, c in self._other_frames[split].items() if named and f not in known)
                    ),
                    "also_in_train": len(self._contents[split] & self._contents["train"]) if split != "train" else 0,
                }
                for split in SPLITS
            },
            "frame_counts": dict(by_frame.most_common()),
            "predicate_counts": dict(by_predicate.most_common(1000)),
        }


def ambiguity(pairs: Counter[tuple[str, str]]) -> float:
    """H(frame | predicate) in bits, over the labelled training events."""
    totals: Counter[str] = Counter()
    for (pred, _), count in pairs.items():
        totals[pred] += count
    everything = sum(totals.values())
    return (
        -sum(c * float(np.log2(c / totals[pred])) for (pred, _), c in pairs.items()) / everything if everything else 0
    )


class _Writer:
    """Writes the arrays of a split row range by row range, memory-mapped."""

    def __init__(self, folder: Path, rows: int, events: int, width: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rows, self._at, self._documents = rows, 0, 0
        shapes: dict[str, tuple[tuple[int, ...], Any]] = {
            "tokens": ((rows, events, TOKENS), np.int32),
            "lengths": ((rows,), np.int32),
            "reference": ((rows, events), np.int32),
            "knowledge_frames": ((rows, events, width), np.int32),
            "knowledge_weights": ((rows, events, width), np.float32),
            "confidence": ((rows, events), np.float32),
            "keys": ((rows, events), np.uint64),
            "document": ((rows,), np.int64),
        }
        self._arrays = {
            name: np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=kind, shape=shape)
            if rows
            else _save_empty(folder / f"{name}.npy", shape, kind)
            for name, (shape, kind) in shapes.items()
        }
        self._ids = open(folder / "ids.jsonl", "w", encoding="utf-8")  # noqa: SIM115

    def add(self, arrays: dict[str, Array], mask: Array, ids: list[str]) -> None:
        count = int(mask.sum())
        if not count:
            return
        owner = arrays["document"][mask]
        kept, position = np.unique(owner, return_inverse=True)
        end = self._at + count
        for name, target in self._arrays.items():
            source = arrays[name][mask] if name != "document" else position + self._documents
            if name in ("knowledge_frames", "knowledge_weights"):
                target[self._at : end, :, : source.shape[-1]] = source
            else:
                target[self._at : end] = source
        self._ids.writelines(json.dumps(ids[number]) + "\n" for number in kept)
        self._at, self._documents = end, self._documents + len(kept)

    def close(self) -> None:
        self._ids.close()
        for array in self._arrays.values():
            if isinstance(array, np.memmap):
                array.flush()


def _save_empty(path: Path, shape: tuple[int, ...], kind: Any) -> Array:
    empty = np.zeros(shape, kind)
    np.save(path, empty)
    return empty


def _renumber(chunk: Chunk, words: Array, frames: dict[str, int]) -> dict[str, Array]:
    """A chunk's arrays in the corpus's own words and frames; knowledge of a frame that is not listed is dropped."""
    a = chunk.arrays
    numbers = np.array([frames.get(frame, UNSEEN) for frame in chunk.frames] + [NONE], np.int32)  # last: index −1
    there = np.arange(a["reference"].shape[1]) < a["lengths"][:, None]
    slots = np.where(there[..., None], words[a["tokens"]], PAD)
    end = np.where(there, TUP, PAD)[..., None]
    known = numbers[a["knowledge_frames"]]
    weights = np.where((known >= 0) & (a["knowledge_weights"] > 0), a["knowledge_weights"], 0)
    total = weights.sum(-1, keepdims=True)
    weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return {
        **a,
        "tokens": np.concatenate([slots, end], axis=-1).astype(np.int32),
        "reference": numbers[a["reference"]],
        "knowledge_frames": np.where(weights > 0, known, 0).astype(np.int32),
        "knowledge_weights": weights.astype(np.float32),
    }


# ---- files ------------------------------------------------------------------------------------------------


class assembling:
    """A working directory beside `target`, whose `dataset` becomes `target` at the end; on an error it goes away."""

    def __init__(self, target: Path, force: bool = False, keep: bool = False) -> None:
        self.target, self.force, self.keep = target, force, keep
        self.work = target.with_name(f".{target.name}.partial")

    def __enter__(self) -> Path:
        refuse_existing(self.target, self.force)
        if self.work.exists() and not self.keep:
            shutil.rmtree(self.work)
        self.work.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.work / "dataset", ignore_errors=True)
        (self.work / "dataset").mkdir()
        return self.work

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            replace_directory(self.work / "dataset", self.target)
        if kind is None or not self.keep:
            shutil.rmtree(self.work, ignore_errors=True)


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


def write_list(path: Path, items: Iterable[str]) -> None:
    """A text file of one item a line; line breaks inside an item are written as blanks."""
    with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="\n") as out:
        out.writelines(" ".join(item.split("\n")) + "\n" for item in items)


def read_list(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "surrogatepass").split("\n")[:-1]


def read_ids(path: Path) -> list[str]:
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "statistics.json":
            digest.update(str(path.relative_to(folder).as_posix()).encode())
            with open(path, "rb") as stream:
                while block := stream.read(2**20):
                    digest.update(block)
    return digest.hexdigest()[:16]


__all__ = ["BOS", "NONE", "NULL", "PAD", "SLOTS", "TOKENS", "TUP", "UNK", "UNSEEN", "Batch", "Batches", "Corpus"]
