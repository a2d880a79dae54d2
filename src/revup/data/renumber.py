"""Arrays of a split in the numbers of another vocabulary and frame list.

Words that the new vocabulary lacks become `<unk>`. A reference frame that the new list lacks becomes UNSEEN, and side
knowledge about it is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from revup.data.encode import NONE, PAD, TUP, UNK, UNSEEN, Array, Chunk
from revup.data.vocabulary import Vocabulary


def renumber(
    arrays: Mapping[str, Array], old: Vocabulary, old_frames: Sequence[str], new: Vocabulary, new_frames: Sequence[str]
) -> dict[str, Array]:
    """Translate the arrays of a split from one vocabulary and frame list to another.

    Args:
        arrays: The arrays of a split (`revup.data.dataset.ARRAYS`).
        old, old_frames: The vocabulary and frame list they are numbered by.
        new, new_frames: Those to number them by.

    Returns:
        All arrays, the numbered ones translated.
    """
    read = new.translation(old)
    written = np.where(read < len(new), read, UNK)
    return {
        **arrays,
        "tokens": written[np.asarray(arrays["tokens"])],
        "read": read[np.asarray(arrays["read"])],
        **_renumber_frames(arrays, old_frames, new_frames),
    }


def renumber_chunk(chunk: Chunk, vocabulary: Vocabulary, frames: Sequence[str]) -> dict[str, Array]:
    """Number an encoded chunk by a vocabulary and a frame list.

    Args:
        chunk: Windows numbered by the chunk's own words and frames.
        vocabulary, frames: Those to number them by.

    Returns:
        The arrays of a split, `<tup>` added behind each event; the weights of side knowledge sum to 1 again.
    """
    a = chunk.arrays
    words = np.array([vocabulary.known(word) for word in chunk.words] or [PAD], np.int32)
    there = np.arange(a["reference"].shape[1]) < a["lengths"][:, None]
    end = np.where(there, TUP, PAD)[..., None]

    def with_end(slots: Array) -> Array:
        return np.concatenate([np.where(there[..., None], slots, PAD), end], axis=-1).astype(np.int32)

    labels = _renumber_frames(a, chunk.frames, frames)
    weights = labels["knowledge_weights"]
    total = weights.sum(-1, keepdims=True)
    labels["knowledge_weights"] = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return {
        **a,
        "tokens": with_end(words[a["tokens"]]),
        "read": with_end(_read(chunk, vocabulary, words)),
        **labels,
    }


def _renumber_frames(arrays: Mapping[str, Array], old: Sequence[str], new: Sequence[str]) -> dict[str, Array]:
    index = {frame: number for number, frame in enumerate(new)}
    # indices −2 and −1 are UNSEEN and NONE themselves
    numbers = np.array([*(index.get(frame, UNSEEN) for frame in old), UNSEEN, NONE], np.int32)
    known = numbers[np.asarray(arrays["knowledge_frames"])]
    weights = np.where(known >= 0, arrays["knowledge_weights"], 0).astype(np.float32)
    return {
        "reference": numbers[np.asarray(arrays["reference"])],
        "knowledge_frames": np.where(weights > 0, known, 0).astype(np.int32),
        "knowledge_weights": weights,
    }


def _read(chunk: Chunk, vocabulary: Vocabulary, known: Array) -> Array:
    """The numbers by which the slots are read, [n, M, 4]; `known` are those by which the chunk's words are written."""
    tokens, lemma = chunk.arrays["tokens"], chunk.arrays["lemma"]
    by_vector, by_lemma = (
        np.array([number(word) for word in chunk.words] or [UNK], np.int32)
        for number in (vocabulary.by_vector, vocabulary.by_lemma)
    )
    read = np.where(known[tokens] == UNK, by_vector[tokens], known[tokens])
    pred = tokens[..., 0]
    ways = np.stack([known[pred], by_lemma[lemma], by_vector[pred], by_vector[lemma]])  # as `Vocabulary.read` has them
    read[..., 0] = np.take_along_axis(ways, (ways != UNK).argmax(0)[None], 0)[0]
    return read
