"""Merging encoded chunks into a dataset directory without holding them in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from revup.data.dataset import ARRAYS, SPLITS, Settings, finish_dataset
from revup.data.encode import NULL, PAD, SPECIAL, TOKENS, UNK, Array, Chunk, load_arrays
from revup.data.renumber import renumber_chunk
from revup.data.statistics import CorpusCounts, share
from revup.data.vectors import read_beyond, read_vectors
from revup.data.vocabulary import Vocabulary, write_vocabulary
from revup.errors import InputError
from revup.io.files import write_list


def merge(
    paths: Sequence[Path],
    out: Path,
    settings: Settings,
    vectors: str | Path | None = None,
    world: dict[str, Any] | None = None,
    found: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Merge encoded chunks into a dataset directory, in three passes: duplicates, then words and frames, then arrays.

    The result depends on the documents and their order, not on how they were cut into chunks.

    Args:
        paths: The chunks, in order.
        out: The directory to fill.
        settings: How documents become a dataset.
        vectors: A file of pretrained word vectors.
        world: What to keep of the synthetic world the documents were sampled from.
        found: Further entries for the statistics.

    Returns:
        The statistics.
    """
    kept, counts = _without_duplicates(paths, settings)
    for path, keep in zip(paths, kept, strict=True):
        counts.add(Chunk.load(path), keep, settings)
    if not counts.documents["train"]:
        raise InputError("no documents for training")
    named = bool(counts.frames)
    frames = sorted(counts.frames) if named else [f"class-{number:02d}" for number in range(settings.classes)]
    words = counts.vocabulary(settings)
    vocabulary = Vocabulary(words, counts.lemmas_of(words))
    statistics: dict[str, Any] = {"vectors": None}
    if vectors is not None:
        vocabulary, statistics["vectors"] = _write_vectors(vectors, vocabulary, counts, settings, out)
    rows = counts.rows[named]
    if not rows["train"]:
        raise InputError("no training document has an event to learn from")

    writers = {split: _SplitWriter(out / split, rows[split], settings.events, counts.width) for split in SPLITS}
    for path, keep in zip(paths, kept, strict=True):
        chunk = Chunk.load(path)
        mask = keep[chunk.arrays["document"]]
        if named:
            mask &= ~chunk.arrays["unframed"]
        writers[chunk.split].add(renumber_chunk(chunk, vocabulary, frames), mask, chunk.ids)
    for split, writer in writers.items():
        writer.close()
        counts.coverage[split] = writer.coverage

    write_vocabulary(out, vocabulary)
    write_list(out / "frames.txt", frames)
    statistics = {**counts.statistics(named, frames, vocabulary), **statistics, **(found or {})}
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

    def __init__(self, folder: Path, rows: int, events: int, width: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rows, self._documents, self._width = rows, 0, width
        self._words = self._unknown = 0
        sizes = {"N": rows, "M": events, "T": TOKENS, "W": width}
        self._files: dict[str, IO[bytes]] = {}
        for name, (kind, axes) in ARRAYS.items():
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
            if name in ("knowledge_frames", "knowledge_weights"):
                source = np.pad(source, ((0, 0), (0, 0), (0, self._width - source.shape[-1])))
            file.write(np.ascontiguousarray(source, ARRAYS[name][0]).data)
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
