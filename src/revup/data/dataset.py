"""A dataset directory: what is in it, and how encoded chunks are merged into one without holding them in memory.

It is movable, holds plain arrays and text, and appears whole or not at all:

    corpus.json        settings, sizes, fingerprint            vocabulary.txt, lemmas.txt   a word a line
    statistics.json    what was found in the documents         frames.txt                   a frame a line
    train/ valid/ test/   tokens.npy read.npy lengths.npy reference.npy knowledge_*.npy confidence.npy keys.npy
                          document.npy ids.jsonl
    beyond.txt         further words that can be read
    vectors.npy, vectors_found.npy, vectors_beyond.npy         pretrained vectors, where given

Nothing here needs torch, so that workers that only encode start at once.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from revup.data.encode import NONE, NULL, PAD, SPECIAL, TOKENS, TUP, UNK, UNSEEN, WINDOWS, Chunk, load_arrays
from revup.data.knowledge import document_key
from revup.data.vectors import read_beyond, read_vectors
from revup.data.vocabulary import Vocabulary, write_vocabulary
from revup.errors import InputError, RevupError
from revup.io.digests import write_digest
from revup.io.files import write_json, write_list

FORMAT = 3
SPLITS = ("train", "valid", "test")
ARRAYS = (
    "tokens",
    "read",
    "lengths",
    "reference",
    "knowledge_frames",
    "knowledge_weights",
    "confidence",
    "keys",
    "document",
)
FILES = (
    *("corpus.json", "statistics.json", "vocabulary.txt", "lemmas.txt", "beyond.txt", "frames.txt"),
    *("vectors.npy", "vectors_found.npy", "vectors_beyond.npy"),
    *(f"{split}/{array}.npy" for split in SPLITS for array in ARRAYS),
    *(f"{split}/ids.jsonl" for split in SPLITS),
)
UNNAMED_CLASSES = 50

Array = NDArray[Any]


@dataclass(frozen=True)
class Settings:
    """How documents become a corpus."""

    events: int = 5
    window: str = "framed"
    vocabulary: int = 150_000
    minimum_count: int = 1
    classes: int = UNNAMED_CLASSES  # how many unnamed classes, for a corpus without any frame
    beyond: int = 100_000  # words that training never had, read by their pretrained vectors
    duplicates: str = "drop"  # or "keep"
    split: tuple[float, float, float] = (0.9, 0.05, 0.05)

    def __post_init__(self) -> None:
        if self.window not in WINDOWS:
            raise RevupError(f"window: expected one of {', '.join(WINDOWS)}, found '{self.window}'")
        if self.duplicates not in ("drop", "keep"):
            raise RevupError(f"duplicates: expected drop or keep, found '{self.duplicates}'")
        for name, least in (
            ("events", 1),
            ("vocabulary", len(SPECIAL) + 1),
            ("minimum_count", 1),
            ("classes", 2),
            ("beyond", 0),
        ):
            if getattr(self, name) < least:
                raise RevupError(f"{name}: expected {least} or more, found {getattr(self, name)}")
        if len(self.split) != 3 or min(self.split) < 0 or not 0.999 < sum(self.split) < 1.001 or self.split[0] == 0:
            raise RevupError(f"split: expected three shares that sum to 1, the first above 0, found {self.split}")


def split_of(identity: str, shares: Sequence[float]) -> str:
    """The split a document belongs to, by its id alone."""
    place = document_key(f"split/{identity}") / 2.0**64
    return "train" if place < shares[0] else "valid" if place < shares[0] + shares[1] else "test"


# ---- merging chunks --------------------------------------------------------------------------------------


def merge(
    paths: Sequence[Path],
    out: Path,
    settings: Settings,
    vectors: str | Path | None = None,
    world: dict[str, Any] | None = None,
    found: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Merge encoded chunks, in order, into a dataset directory; `found` is added to the statistics.

    Three passes: over the documents' keys (which are duplicates?), over what was counted (which words, which
    frames?), over the arrays. The result depends on the documents and their order, not on where chunks were cut.
    """
    kept, survey = _without_duplicates(paths, settings)
    for path, keep in zip(paths, kept, strict=True):
        survey.add(Chunk.load(path), keep, settings)
    if not survey.documents["train"]:
        raise InputError("no documents for training")
    named = bool(survey.frames)
    frames = sorted(survey.frames) if named else [f"class-{number:02d}" for number in range(settings.classes)]
    words = survey.vocabulary(settings)
    vocabulary = Vocabulary(words, survey.lemmas_of(words))
    statistics: dict[str, Any] = {"vectors": None}
    if vectors is not None:
        vocabulary, statistics["vectors"] = _write_vectors(vectors, vocabulary, survey, settings, out)
    rows = survey.rows(named)
    if not rows["train"]:
        raise InputError("no training document has an event to learn from")

    writers = {split: _Writer(out / split, rows[split], settings.events, survey.width) for split in SPLITS}
    lookup = {frame: number for number, frame in enumerate(frames)}
    for path, keep in zip(paths, kept, strict=True):
        chunk = Chunk.load(path)
        mask = keep[chunk.arrays["document"]]
        if named:
            mask &= ~chunk.arrays["unframed"]
        writers[chunk.split].add(renumber(chunk, vocabulary, lookup), mask, chunk.ids)
    for split, writer in writers.items():
        writer.close()
        survey.coverage[split] = writer.coverage

    write_vocabulary(out, vocabulary)
    write_list(out / "frames.txt", frames)
    statistics = {**survey.statistics(named, frames, vocabulary), **statistics, **(found or {})}
    meta = {
        "settings": {**vars(settings), "split": list(settings.split)},
        "named_frames": named,
        "words": len(vocabulary),
        "frames": len(frames),
        "rows": {split: writer.rows for split, writer in writers.items()},
        **(world or {}),
    }
    finish_dataset(out, meta, statistics)
    return statistics


def finish_dataset(folder: Path, meta: dict[str, Any], statistics: dict[str, Any]) -> None:
    """Write what describes a dataset whose lists and arrays are complete: corpus.json, statistics.json, digest.json.

    Args:
        folder: The dataset directory.
        meta: Settings and sizes, and the fingerprint where it is not to be that of the lists and arrays.
        statistics: What was found in the documents.
    """
    write_json(folder / "corpus.json", {"format": FORMAT, "fingerprint": write_digest(folder)[:16], **meta})
    write_json(folder / "statistics.json", statistics)
    write_digest(folder)


def _write_vectors(
    path: str | Path, vocabulary: Vocabulary, survey: _Survey, settings: Settings, out: Path
) -> tuple[Vocabulary, dict[str, Any]]:
    """Write the vectors of the vocabulary and of words beyond it; the vocabulary with these, and how many they are."""
    real = {word: number for word, number in vocabulary.index.items() if number >= len(SPECIAL)}
    matrix, there = read_vectors(path, real, len(vocabulary))
    beyond, further = read_beyond(path, vocabulary.index, settings.beyond, matrix.shape[1])
    np.save(out / "vectors.npy", matrix)
    np.save(out / "vectors_found.npy", there)
    np.save(out / "vectors_beyond.npy", further)
    coverage = {**survey.vector_coverage(vocabulary, there), "beyond": len(beyond)}
    return Vocabulary(vocabulary.words, vocabulary.lemmas, beyond), coverage


def _without_duplicates(paths: Sequence[Path], settings: Settings) -> tuple[list[Array], _Survey]:
    """Which documents of each chunk are kept: of equal ones in a split the first. Takes 16 bytes a document."""
    survey = _Survey()
    splits: list[str] = []
    contents: list[Array] = []
    identities: list[Array] = []
    for path in paths:
        arrays = load_arrays(path, "_text", "content", "document_keys")
        splits.append(json.loads(arrays["_text"].tobytes())["split"])
        contents.append(arrays["content"])
        identities.append(arrays["document_keys"])
    keys = np.concatenate([*identities, np.zeros(0, np.uint64)])
    survey.repeated_ids = len(keys) - len(np.unique(keys))
    kept = [np.ones(len(part), bool) for part in contents]
    distinct: dict[str, Array] = {}
    for split in SPLITS:
        mine = [number for number, name in enumerate(splits) if name == split]
        everything = np.concatenate([*(contents[number] for number in mine), np.zeros(0, np.uint64)])
        distinct[split], first = np.unique(everything, return_index=True)
        survey.duplicates[split] = len(everything) - len(first)
        if settings.duplicates == "drop":
            keep = np.zeros(len(everything), bool)
            keep[first] = True
            for number, end in zip(mine, np.cumsum([len(contents[number]) for number in mine]), strict=True):
                kept[number] = keep[end - len(contents[number]) : end]
    for split in SPLITS[1:]:
        survey.also_in_train[split] = len(np.intersect1d(distinct[split], distinct["train"], assume_unique=True))
    return kept, survey


class _Survey:
    """What all chunks together hold: word counts, frames, statistics."""

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.frames: set[str] = set()
        self.documents: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.framed: Counter[str] = Counter()
        self.duplicates: Counter[str] = Counter()
        self.also_in_train: Counter[str] = Counter()
        self.without_frame: Counter[str] = Counter()
        self.coverage: dict[str, float | None] = {}
        self.repeated_ids = 0
        self.width = 1
        self._lemmas: Counter[tuple[str, str]] = Counter()
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._references: dict[str, Counter[str]] = defaultdict(Counter)
        self._events_per_document: Counter[int] = Counter()
        self._rows = {True: Counter[str](), False: Counter[str]()}

    def add(self, chunk: Chunk, keep: Array, settings: Settings) -> None:
        """Take a chunk in, of which these documents are kept."""
        split, a, counts = chunk.split, chunk.arrays, chunk.statistics
        rows = keep[a["document"]]
        self.documents[split] += counts["documents"]
        self.events[split] += counts["events"]
        self.framed[split] += counts["events_with_frame"]
        self.without_frame[split] += int((rows & a["unframed"]).sum())
        self._rows[True][split] += int((rows & ~a["unframed"]).sum())
        self._rows[False][split] += int(rows.sum())
        self.width = max(self.width, a["knowledge_frames"].shape[-1])
        for size, count in counts["events_per_document"]:
            self._events_per_document[size] += count
        for frame, count in counts["references"]:
            self._references[split][frame] += count
        if split == "train":
            self._learn(chunk, rows, settings)

    def _learn(self, chunk: Chunk, rows: Array, settings: Settings) -> None:
        """Words and frames come from the training documents alone."""
        there = (np.arange(settings.events) < chunk.arrays["lengths"][:, None]) & rows[:, None]
        used = np.bincount(chunk.arrays["tokens"][there].ravel(), minlength=len(chunk.words))
        self.frames.update(chunk.all_frames)
        for word, number in zip(chunk.words, used.tolist(), strict=True):
            if number:
                self.words[word] += number
        for form, lemma, number in chunk.lemmas:
            self._lemmas[form, lemma] += number
        for pred, frame, amount in chunk.statistics["pairs"]:
            self._pairs[pred, frame] += amount

    def rows(self, named: bool) -> Counter[str]:
        """Windows of each split; those without a frame only count where there are no frames at all."""
        return self._rows[named]

    def vocabulary(self, settings: Settings) -> list[str]:
        """Special tokens, then words by falling count (ties by name), as many as fit."""
        real = [(w, c) for w, c in self.words.items() if w not in SPECIAL and c >= settings.minimum_count]
        real.sort(key=lambda item: (-item[1], item[0]))
        return [*SPECIAL, *(word for word, _ in real[: settings.vocabulary - len(SPECIAL)])]

    def lemmas_of(self, words: Sequence[str]) -> list[str]:
        """The lemma most often given for a predicate form; the form itself where none was."""
        best: dict[str, tuple[int, str]] = {}
        for (form, lemma), count in self._lemmas.items():
            best[form] = min(best.get(form, (0, lemma)), (-count, lemma))
        return [best[word][1] if word in best else word for word in words]

    def vector_coverage(self, vocabulary: Vocabulary, found: Array) -> dict[str, Any]:
        counts = np.array([self.words[word] for word in vocabulary.words], np.float64)
        counts[: len(SPECIAL)] = 0
        return {
            "words": int(found.sum()),
            "share_of_words": _share(int(found.sum()), len(vocabulary) - len(SPECIAL)),
            "share_of_tokens": _share(float(counts[found].sum()), float(counts.sum())),
        }

    def statistics(self, named: bool, frames: list[str], vocabulary: Vocabulary) -> dict[str, Any]:
        by_predicate: Counter[str] = Counter()
        for (pred, _), amount in self._pairs.items():
            by_predicate[pred] += amount
        labelled = Counter({pair: amount for pair, amount in self._pairs.items() if pair[1]})
        by_frame: Counter[str] = Counter()
        for (_, frame), amount in labelled.items():
            by_frame[frame] += amount
        events, framed = sum(self.events.values()), sum(self.framed.values())
        return {
            "documents": sum(self.documents.values()),
            "events": events,
            "events_with_frame": framed,
            "share_with_frame": _share(framed, events),
            "frames": len(frames),
            "named_frames": named,
            "words": len(vocabulary),
            "distinct_words": len(self.words) - sum(word in self.words for word in SPECIAL),
            "token_coverage": self.coverage["train"],
            "duplicates": sum(self.duplicates.values()),
            "documents_without_events": self._events_per_document.get(0, 0),
            "repeated_ids": self.repeated_ids,
            "ambiguity_bits": round(ambiguity(labelled), 4),
            "frame_entropy_bits": round(_entropy(by_frame.values()), 4),
            "table_accuracy": _table_accuracy(labelled),
            "distinct_predicates": len(by_predicate),
            "splits": {split: self._split_statistics(split, named, frames) for split in SPLITS},
            "events_per_document": {str(size): n for size, n in sorted(self._events_per_document.items())},
            "frame_counts": _ranked(by_frame),
            "predicate_counts": dict(list(_ranked(by_predicate).items())[:1000]),
        }

    def _split_statistics(self, split: str, named: bool, frames: list[str]) -> dict[str, Any]:
        known = set(frames)
        unseen = {f: c for f, c in sorted(self._references[split].items()) if named and f not in known}
        return {
            "documents": self.documents[split],
            "events": self.events[split],
            "events_with_frame": self.framed[split],
            "windows": self._rows[named][split],
            "duplicates": self.duplicates[split],
            "documents_without_frame": self.without_frame[split],
            "also_in_train": self.also_in_train[split],
            "unseen_frames": unseen,
            "token_coverage": self.coverage[split],
        }


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def _ranked(counts: Counter[str]) -> dict[str, float]:
    """Most frequent first, ties by name; soft labels count by their share, so amounts need not be whole."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {name: amount if isinstance(amount, int) else round(amount, 3) for name, amount in ranked}


def _entropy(amounts: Iterable[float]) -> float:
    given = [amount for amount in amounts if amount > 0]
    total = math.fsum(given)
    return -math.fsum(a / total * math.log2(a / total) for a in given)


def ambiguity(pairs: Counter[tuple[str, str]]) -> float:
    """H(frame | predicate) in bits, over the labelled training events: Σ_p p(p) · H(frame | p)."""
    by_predicate: dict[str, list[float]] = defaultdict(list)
    for (pred, _), amount in pairs.items():
        by_predicate[pred].append(amount)
    total = math.fsum(pairs.values())
    return math.fsum(math.fsum(own) * _entropy(own) for own in by_predicate.values()) / total if total else 0.0


def _table_accuracy(pairs: Counter[tuple[str, str]]) -> float | None:
    """The share of labelled training events whose frame is their predicate's most frequent one."""
    best: Counter[str] = Counter()
    for (pred, _), amount in pairs.items():
        best[pred] = max(best[pred], amount)
    return _share(sum(best.values()), sum(pairs.values()))


class _Writer:
    """Writes the arrays of a split rows by rows, one behind the other, so that none of them is in memory."""

    def __init__(self, folder: Path, rows: int, events: int, width: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rows, self._documents, self._width = rows, 0, width
        self._words = self._unknown = 0
        self._kinds: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            "tokens": ((rows, events, TOKENS), np.dtype("<i4")),
            "read": ((rows, events, TOKENS), np.dtype("<i4")),
            "lengths": ((rows,), np.dtype("<i4")),
            "reference": ((rows, events), np.dtype("<i4")),
            "knowledge_frames": ((rows, events, width), np.dtype("<i4")),
            "knowledge_weights": ((rows, events, width), np.dtype("<f4")),
            "confidence": ((rows, events), np.dtype("<f4")),
            "keys": ((rows, events), np.dtype("<u8")),
            "document": ((rows,), np.dtype("<i8")),
        }
        self._files: dict[str, IO[bytes]] = {}
        for name, (shape, kind) in self._kinds.items():
            self._files[name] = open(folder / f"{name}.npy", "wb")  # noqa: SIM115
            header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(self._files[name], header)
        self._ids = open(folder / "ids.jsonl", "w", encoding="utf-8", newline="\n")  # noqa: SIM115

    def add(self, arrays: dict[str, Array], mask: Array, ids: list[str]) -> None:
        if not mask.any():
            return
        kept, position = np.unique(arrays["document"][mask], return_inverse=True)
        for name, file in self._files.items():
            source = arrays[name][mask] if name != "document" else position + self._documents
            if name in ("knowledge_frames", "knowledge_weights"):
                source = np.pad(source, ((0, 0), (0, 0), (0, self._width - source.shape[-1])))
            file.write(np.ascontiguousarray(source, self._kinds[name][1]).data)
        self._ids.writelines(json.dumps(ids[number]) + "\n" for number in kept)
        self._documents += len(kept)
        slots = arrays["tokens"][mask][..., :-1]
        self._words += int(((slots != PAD) & (slots != NULL)).sum())
        self._unknown += int((slots == UNK).sum())

    @property
    def coverage(self) -> float | None:
        """The share of the words written that are in the vocabulary."""
        return _share(self._words - self._unknown, self._words)

    def close(self) -> None:
        self._ids.close()
        for file in self._files.values():
            file.close()


def renumber(chunk: Chunk, vocabulary: Vocabulary, frames: dict[str, int]) -> dict[str, Array]:
    """A chunk's arrays in the corpus's own words and frames; knowledge of a frame that is not listed is dropped."""
    a = chunk.arrays
    words = np.array([vocabulary.known(word) for word in chunk.words] or [PAD], np.int32)
    read = _read(chunk, vocabulary, words)
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
        "read": np.concatenate([np.where(there[..., None], read, PAD), end], axis=-1).astype(np.int32),
        "reference": numbers[a["reference"]],
        "knowledge_frames": np.where(weights > 0, known, 0).astype(np.int32),
        "knowledge_weights": weights.astype(np.float32),
    }


def _read(chunk: Chunk, vocabulary: Vocabulary, known: NDArray[np.int32]) -> NDArray[np.int32]:
    """By which numbers the slots are read, [n, M, 4]; `known` are those of the chunk's words that can be written."""
    tokens, lemma = chunk.arrays["tokens"], chunk.arrays["lemma"]
    by_vector, by_lemma = (
        np.array([number(word) for word in chunk.words] or [UNK], np.int32)
        for number in (vocabulary.by_vector, vocabulary.by_lemma)
    )
    read: NDArray[np.int32] = np.where(known[tokens] == UNK, by_vector[tokens], known[tokens])
    pred = tokens[..., 0]
    ways = np.stack([known[pred], by_lemma[lemma], by_vector[pred], by_vector[lemma]])  # as `Vocabulary.read` has them
    read[..., 0] = np.take_along_axis(ways, (ways != UNK).argmax(0)[None], 0)[0]
    return read


# ---- files ------------------------------------------------------------------------------------------------


def read_ids(path: Path) -> list[str]:
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]
