"""Views of a corpus: a dataset directory made of part of another's rows, with a vocabulary and frame list of its own.

As with any corpus, words and frames are those of its training documents; any other word of a held-out document is
`<unk>`, any other frame unseen. The fingerprint is derived from that of the original and from what was taken, so a
view is written once and found again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.corpus import Corpus, Split
from revup.data.dataset import SPLITS, finish_dataset
from revup.data.encode import NO_ENTRY, NONE, PAD, SPECIAL
from revup.data.renumber import renumber
from revup.data.vocabulary import Vocabulary, write_vocabulary
from revup.errors import InputError, RevupError
from revup.io.files import write_list
from revup.io.folders import atomic_folder

Array = NDArray[Any]
Arrays = dict[str, Array]


def first_documents(corpus: Corpus, target: Path, documents: int, held_out: int, words: int) -> Corpus:
    """A view of the first documents of each split.

    Args:
        corpus: The whole corpus.
        target: Where the view is written.
        documents: Training documents.
        held_out: Validation and test documents each.
        words: Size of the vocabulary: the most frequent words of the training documents.

    Returns:
        The view.
    """
    parts = {}
    for name in SPLITS:
        arrays = corpus.split(name).arrays
        rows = np.flatnonzero(np.asarray(arrays["document"]) < (documents if name == "train" else held_out))
        parts[name] = {key: np.asarray(array[rows]) for key, array in arrays.items()}
    train = parts["train"]
    known = np.unique(train["knowledge_frames"][train["knowledge_weights"] > 0])
    frames = np.union1d(known, train["reference"][train["reference"] >= 0])
    taken = {"first": documents, "held_out": held_out, "words": words}
    everything = np.arange(len(corpus.frames))
    return derive(corpus, target, parts, frames if len(frames) else everything, words, taken)


def frequent_frames(corpus: Corpus, target: Path, documents: int, frames: int) -> Corpus:
    """A view of the first training documents with two or more events of some frequent frames, and of these events only.

    Args:
        corpus: The whole corpus.
        target: Where the view is written.
        documents: Training documents.
        frames: Number of frames, chosen by `ambiguous_frames`.

    Returns:
        The view.

    Raises:
        RevupError: There is no such document.
    """
    train = corpus.split("train").arrays
    reference = np.asarray(train["reference"])
    chosen = ambiguous_frames(np.asarray(train["tokens"])[..., 0], reference, len(corpus.frames), frames)
    mask = np.isin(reference, chosen)
    rows = np.flatnonzero(mask.sum(1) >= min(2, corpus.events))[:documents]
    if not len(rows):
        raise RevupError("no training document has two events of the frequent frames")
    parts = {name: {key: np.asarray(array[:0]) for key, array in train.items()} for name in SPLITS}
    parts["train"] = _packed({key: np.asarray(array[rows]) for key, array in train.items()}, mask[rows])
    return derive(corpus, target, parts, chosen, len(corpus.vocabulary), {"frequent": frames, "documents": documents})


def ambiguous_frames(preds: Array, reference: Array, classes: int, wanted: int) -> Array:
    """Frequent frames that share predicates: the most frequent ones alone hardly share any.

    Args:
        preds: Predicates of the events.
        reference: Reference frames of the events, negative where there is none.
        classes: Number of frames.
        wanted: How many to choose: half of them the most frequent, then one by one the frame that shares the
            predicates of most events with those chosen.

    Returns:
        Their sorted numbers.
    """
    there = reference >= 0
    used, place = np.unique(preds[there], return_inverse=True)
    counts = np.zeros((len(used), classes), np.int32)
    np.add.at(counts, (place, reference[there]), 1)
    chosen = np.argsort(-counts.sum(0), kind="stable")[: -(-wanted // 2)].tolist()
    while len(chosen) < min(wanted, classes):
        shared = np.minimum(counts, counts[:, chosen].sum(1, keepdims=True)).sum(0).astype(np.float64)
        shared += counts.sum(0) / (1 + counts.sum())  # where none is shared, by frequency
        shared[chosen] = -1
        chosen.append(int(shared.argmax()))
    return np.sort(np.array(chosen))


def _packed(arrays: Arrays, mask: Array) -> Arrays:
    """Only the events under the mask, moved to the front of their windows."""
    order = np.argsort(~mask, axis=1, kind="stable")
    there = np.take_along_axis(mask, order, 1)
    packed = dict(arrays)
    for key, array in arrays.items():
        if array.ndim > 1:
            index = order.reshape(*order.shape, *[1] * (array.ndim - 2))
            kept = there.reshape(index.shape)
            empty = {"tokens": PAD, "read": PAD, "reference": NONE, "entry": NO_ENTRY}.get(key, 0)
            packed[key] = np.where(kept, np.take_along_axis(array, index, 1), np.array(empty, array.dtype))
    packed["lengths"] = mask.sum(1).astype(arrays["lengths"].dtype)
    return packed


def derive(
    corpus: Corpus, target: Path, parts: Mapping[str, Arrays], frames: Array, words: int, taken: Mapping[str, Any]
) -> Corpus:
    """Write some rows of a corpus as a corpus of its own, or find it written already.

    Args:
        corpus: The whole corpus.
        target: Where the view is written.
        parts: The arrays of each split.
        frames: Numbers of the frames that are kept.
        words: Size of the vocabulary.
        taken: What identifies this view among those of the corpus.

    Returns:
        The view.
    """
    about = {"of": corpus.fingerprint, **taken}
    fingerprint = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    if target.exists():
        try:
            made = Corpus.load(target)
            if made.fingerprint == fingerprint:
                return made
        except InputError:
            pass  # damaged: written again
    kept = _kept_words(parts["train"], len(corpus.vocabulary), words)
    old = corpus.vocabulary
    words_of, lemmas_of = ([of[number] for number in kept] for of in (old.words, old.lemmas))
    vocabulary = Vocabulary(words_of, lemmas_of, old.beyond)
    frame_names = [corpus.frames[number] for number in frames]
    with atomic_folder(target, force=True) as folder:
        for name, arrays in parts.items():
            renumbered = renumber(arrays, old, corpus.frames, vocabulary, frame_names)
            _write_split(folder / name, corpus.split(name), renumbered)
        write_vocabulary(folder, vocabulary)
        write_list(folder / "frames.txt", frame_names)
        if (vectors := corpus.vectors()) is not None:
            np.save(folder / "vectors.npy", vectors[0][kept])
            np.save(folder / "vectors_found.npy", vectors[1][kept])
            np.save(folder / "vectors_beyond.npy", vectors[0][len(old) :])
        if corpus.lexicon is not None:
            corpus.lexicon.write(folder / "lexicon.csv")
        meta = {
            **{key: value for key, value in corpus.meta.items() if key not in ("optimum", "world", "training_frames")},
            "words": len(kept),
            "frames": len(frames),
            "rows": {name: len(arrays["lengths"]) for name, arrays in parts.items()},
            "view": about,
            "fingerprint": fingerprint,
        }
        finish_dataset(folder, meta, {"view": about})
    return Corpus.load(target)


def _kept_words(train: Arrays, size: int, words: int) -> Array:
    """The special tokens, then the most frequent words of the training rows, ties by their old number."""
    counts = np.bincount(train["tokens"].ravel(), minlength=size)
    counts[: len(SPECIAL)] = 0
    order = np.argsort(-counts, kind="stable")[:words]
    return np.concatenate([np.arange(len(SPECIAL)), order[counts[order] > 0]])


def _write_split(folder: Path, split: Split, arrays: Arrays) -> None:
    folder.mkdir()
    documents, numbers = np.unique(arrays["document"], return_inverse=True)
    written = {**arrays, "document": numbers.astype(np.int64)}
    for name in Split.NAMES:
        np.save(folder / f"{name}.npy", written[name])
    ids: Sequence[str] = split.ids if len(documents) else []
    (folder / "ids.jsonl").write_text("".join(json.dumps(ids[number]) + "\n" for number in documents), "utf-8")
