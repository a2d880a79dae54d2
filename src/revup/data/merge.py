"""Merging encoded chunks into a dataset directory without holding them in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from revup.data.agreement import Agreement
from revup.data.dataset import ARRAYS, SPLITS, Settings, finish_dataset
from revup.data.encode import NULL, PAD, SPECIAL, TOKENS, UNK, Array, Chunk, load_arrays
from revup.data.event_vectors import FOUND, RAW, EventVectors, Reduction, reduce_splits, vectors_of
from revup.data.lexicon import Lexicon
from revup.data.renumber import renumber_chunk
from revup.data.statistics import CorpusCounts, share
from revup.data.told import CONTEXT
from revup.data.vectors import read_beyond, read_vectors
from revup.data.vocabulary import Vocabulary, write_vocabulary
from revup.data.window_choice import Choice
from revup.errors import InputError, RevupError
from revup.io.files import write_list


def merge(
    chosen: Choice,
    out: Path,
    vectors: str | Path | None = None,
    lexicon: Lexicon | None = None,
    event_vectors: GivenVectors | None = None,
    world: dict[str, Any] | None = None,
    found: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Merge encoded chunks into a dataset directory, in three passes: duplicates, then words and frames, then arrays.

    The result depends on the documents and their order, not on how they were cut into chunks.

    Args:
        chosen: The chunks, in order, and how documents become a dataset.
        out: The directory to fill.
        vectors: A file of pretrained word vectors.
        lexicon: The lexicon that the chunks were encoded with.
        event_vectors: Where event vectors come from, if there are any.
        world: What to keep of the synthetic world the documents were sampled from.
        found: Further entries for the statistics.

    Returns:
        The statistics.
    """
    paths, settings = chosen.paths, chosen.settings
    kept, counts = _without_duplicates(paths, settings)
    for path, keep in zip(paths, kept, strict=True):
        counts.add(Chunk.load(path), keep, settings)
    if not counts.documents["train"]:
        raise InputError("no documents for training")
    framed = bool(counts.frames)  # otherwise windows of documents without frames are used
    listed = set[str]()
    if lexicon is not None:
        lexicon = lexicon.as_named_by(counts.frames)
        listed = set(lexicon.frames)
    named = bool(counts.frames or listed)
    unnamed = [f"class-{number:02d}" for number in range(settings.classes)]
    frames = sorted(counts.frames | listed) if named else unnamed
    words = counts.vocabulary(settings)
    vocabulary = Vocabulary(words, counts.lemmas_of(words))
    statistics: dict[str, Any] = {"vectors": None}
    if vectors is not None:
        vocabulary, statistics["vectors"] = _write_vectors(vectors, vocabulary, counts, settings, out)
    rows = counts.rows[framed]
    if not rows["train"]:
        raise InputError("no training document has an event to learn from")

    sources = sorted(counts.sources)
    agreement = Agreement(sources, None if lexicon is None else lexicon.table(frames))
    size = 0 if event_vectors is None else event_vectors.size
    widths = settings.events, counts.width, counts.source_rows, size
    writers = {split: _SplitWriter(out / split, rows[split], *widths) for split in SPLITS}
    for path, keep in zip(paths, kept, strict=True):
        chunk = Chunk.load(path)
        mask = keep[chunk.arrays["document"]]
        if framed:
            mask &= ~chunk.arrays["unframed"]
        arrays = renumber_chunk(chunk, vocabulary, frames, sources)
        if event_vectors is not None and event_vectors.file is not None:
            arrays[RAW], arrays[FOUND] = event_vectors.file.of_keys(arrays["keys"])
        if chunk.split == "train":
            agreement.add({name: arrays[name][mask] for name in agreement.NEEDS})
        writers[chunk.split].add(arrays, mask, chunk.ids)
    for split, writer in writers.items():
        writer.close()
        counts.coverage[split] = writer.coverage
    if event_vectors is not None:
        reduced = reduce_splits(out, SPLITS, event_vectors.encoder or "", event_vectors.like)
        statistics["event_vectors"] = reduced

    write_vocabulary(out, vocabulary)
    write_list(out / "frames.txt", frames)
    if lexicon is not None:
        lexicon.write(out / "lexicon.csv")
    own = {"sources": sources, "agreement": agreement.report()}
    if lexicon is not None:
        own["lexicon"] = {"entries": len(lexicon.keys), "frames_only_there": len(listed - counts.frames)}
    by_corpus = {} if chosen.unused is None else {"window_by_corpus": round(chosen.unused, 4)}
    statistics = {**counts.statistics(named, frames, vocabulary), **statistics, **own, **by_corpus, **(found or {})}
    training = [number for number, frame in enumerate(frames) if frame in counts.frames]
    meta = {
        "settings": {**vars(settings), "split": list(settings.split)},
        "named_frames": named,
        "sources": sources,
        "training_frames": training if 0 < len(training) < len(frames) else None,
        "words": len(vocabulary),
        "frames": len(frames),
        "rows": {split: writer.rows for split, writer in writers.items()},
        **by_corpus,
        **(world or {}),
    }
    finish_dataset(out, meta, statistics)
    return statistics


@dataclass(frozen=True)
class GivenVectors:
    """Where the event vectors of a dataset come from: a file, or the chunks that an encoder has read.

    Attributes:
        size: The size of a vector.
        file: Vectors by event; None where the chunks have them.
        encoder: The name of the encoder that read the chunks.
        like: A reduction to use in place of one fitted to the training split.
    """

    size: int
    file: EventVectors | None = None
    encoder: str | None = None
    like: Reduction | None = None


def given_vectors(path: str | Path | None, encoder: str | None, like: str | Path | None = None) -> GivenVectors | None:
    """Open what event vectors come from, before anything is written; None without any.

    Args:
        path: A .npz file of vectors.
        encoder: The name of a pretrained transformer.
        like: A dataset or run directory whose reduction is to be used.

    Raises:
        RevupError: Both are given, one can't be opened, or the vectors don't fit the reduction.
    """
    if path is None and encoder is None:
        if like is not None:
            raise RevupError("reduce_like: there are no event vectors to reduce; give event_vectors or encoder")
        return None
    if path is not None and encoder is not None:
        raise RevupError("give either event_vectors or encoder, not both")
    reduction = None if like is None else Reduction.load(Path(like))
    if like is not None and reduction is None:
        raise InputError("has no event vectors", str(like))
    file = None if path is None else EventVectors.load(path)
    source = file or vectors_of(encoder)
    assert source is not None
    if reduction is not None:
        reduction.refuse_other(source)
    return GivenVectors(source.size, file, encoder, reduction)


def _write_vectors(
    path: str | Path, vocabulary: Vocabulary, counts: CorpusCounts, settings: Settings, out: Path
) -> tuple[Vocabulary, dict[str, Any]]:
    """Write the vectors of the vocabulary and of further words; return the vocabulary with those, and coverage."""
    real = {word: number for word, number in vocabulary.index.items() if number >= len(SPECIAL)}
    matrix, there = read_vectors(path, real, len(vocabulary))
    beyond, further = read_beyond(path, vocabulary.index, settings.beyond, matrix.shape[1])
    np.save(out / "vectors.npy", matrix)
    np.save(out / "vectors_found.npy", there)
    np.save(out / "vectors_beyond.npy", further)
    coverage = {**counts.vector_coverage(vocabulary, there), "beyond": len(beyond)}
    return Vocabulary(vocabulary.words, vocabulary.lemmas, beyond), coverage


def _without_duplicates(paths: Sequence[Path], settings: Settings) -> tuple[list[Array], CorpusCounts]:
    """Find the documents to keep: of equal ones in a split the first. Needs 16 bytes of memory a document."""
    counts = CorpusCounts()
    splits: list[str] = []
    contents: list[Array] = []
    identities: list[Array] = []
    for path in paths:
        arrays = load_arrays(path, "_text", "content", "document_keys")
        splits.append(json.loads(arrays["_text"].tobytes())["split"])
        contents.append(arrays["content"])
        identities.append(arrays["document_keys"])
    keys = np.concatenate([*identities, np.zeros(0, np.uint64)])
    counts.repeated_ids = len(keys) - len(np.unique(keys))
    kept = [np.ones(len(part), bool) for part in contents]
    distinct: dict[str, Array] = {}
    for split in SPLITS:
        mine = [number for number, name in enumerate(splits) if name == split]
        everything = np.concatenate([*(contents[number] for number in mine), np.zeros(0, np.uint64)])
        distinct[split], first = np.unique(everything, return_index=True)
        counts.duplicates[split] = len(everything) - len(first)
        if settings.duplicates == "drop":
            keep = np.zeros(len(everything), bool)
            keep[first] = True
            for number, end in zip(mine, np.cumsum([len(contents[number]) for number in mine]), strict=True):
                kept[number] = keep[end - len(contents[number]) : end]
    for split in SPLITS[1:]:
        counts.also_in_train[split] = len(np.intersect1d(distinct[split], distinct["train"], assume_unique=True))
    return kept, counts


class _SplitWriter:
    """Writes the arrays of a split a block of rows at a time, so that none of them is held in memory."""

    def __init__(self, folder: Path, rows: int, events: int, width: int, source_rows: int, vector: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rows, self._documents = rows, 0
        self._words = self._unknown = 0
        sizes = {"N": rows, "M": events, "T": TOKENS, "C": len(CONTEXT), "W": width, "R": source_rows, "D": vector}
        self._kinds = {**ARRAYS, **({RAW: ("<f2", "NMD"), FOUND: ("|b1", "NM")} if vector else {})}
        self._widths = {name: sizes[axes[-1]] for name, (_, axes) in ARRAYS.items() if axes[-1] in "WR"}
        self._files: dict[str, IO[bytes]] = {}
        for name, (kind, axes) in self._kinds.items():
            self._files[name] = open(folder / f"{name}.npy", "wb")  # noqa: SIM115
            header = {"descr": kind, "fortran_order": False, "shape": tuple(sizes[axis] for axis in axes)}
            np.lib.format.write_array_header_1_0(self._files[name], header)
        self._ids = open(folder / "ids.jsonl", "w", encoding="utf-8", newline="\n")  # noqa: SIM115

    def add(self, arrays: dict[str, Array], mask: Array, ids: list[str]) -> None:
        if not mask.any():
            return
        kept, position = np.unique(arrays["document"][mask], return_inverse=True)
        for name, file in self._files.items():
            source = arrays[name][mask] if name != "document" else position + self._documents
            if name in self._widths:
                source = np.pad(source, ((0, 0), (0, 0), (0, self._widths[name] - source.shape[-1])))
            file.write(np.ascontiguousarray(source, self._kinds[name][0]).data)
        self._ids.writelines(json.dumps(ids[number]) + "\n" for number in kept)
        self._documents += len(kept)
        slots = arrays["tokens"][mask][..., :-1]
        self._words += int(((slots != PAD) & (slots != NULL)).sum())
        self._unknown += int((slots == UNK).sum())

    @property
    def coverage(self) -> float | None:
        """The share of the words that are in the vocabulary."""
        return share(self._words - self._unknown, self._words)

    def close(self) -> None:
        self._ids.close()
        for file in self._files.values():
            file.close()
