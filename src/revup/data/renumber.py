"""Arrays of a split in the numbers of another vocabulary and frame list.

Words that the new vocabulary lacks become `<unk>`. A reference frame that the new list lacks becomes UNSEEN, and side
knowledge about it is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from revup.data.encode import NONE, PAD, TUP, UNK, UNSEEN, Array, Chunk
from revup.data.lexicon import Lexicon
from revup.data.vocabulary import Vocabulary


def renumber(
    arrays: Mapping[str, Array],
    old: Vocabulary,
    old_frames: Sequence[str],
    new: Vocabulary,
    new_frames: Sequence[str],
    lexicon: Lexicon | None = None,
) -> dict[str, Array]:
    """Translate the arrays of a split from one vocabulary and frame list to another.

    Args:
        arrays: The arrays of a split (`revup.data.dataset.ARRAYS`).
        old, old_frames: The vocabulary and frame list they are numbered by.
        new, new_frames: Those to number them by.
        lexicon: The lexicon whose entries to look up, if it is not the one that they were looked up in.

    Returns:
        All arrays, the numbered ones translated.
    """
    read = new.translation(old)
    names, place = old.lemma_names(np.asarray(arrays["lemma"]), np.asarray(arrays["lemma_read"]))
    written = np.where(read < len(new), read, UNK)
    return {
        **arrays,
        "tokens": written[np.asarray(arrays["tokens"])],
        "read": read[np.asarray(arrays["read"])],
        "lemma": np.array([new.lemma_of(name, name) for name in names] or [-1], np.int32)[place],
        "lemma_read": read[np.asarray(arrays["lemma_read"])],
        **({} if lexicon is None else {"entry": np.array([lexicon.entry(name) for name in names], np.int32)[place]}),
        **_renumber_frames(arrays, old_frames, new_frames),
    }


def renumber_chunk(
    chunk: Chunk, vocabulary: Vocabulary, frames: Sequence[str], sources: Sequence[str] | None = None
) -> dict[str, Array]:
    """Number an encoded chunk by a vocabulary and a frame list.

    Args:
        chunk: Windows numbered by the chunk's own words, frames and sources.
        vocabulary, frames: Those to number them by.
        sources: The names of the sources to number them by; the chunk's own where absent.

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
    read = _read(chunk, vocabulary, words)
    names = np.array([(sources or chunk.sources).index(name) for name in chunk.sources] or [0], np.int16)
    return {
        **a,
        "source_name": names[a["source_name"]],
        "tokens": with_end(words[a["tokens"]]),
        "read": with_end(read),
        **_lemmas(chunk, vocabulary, words, read[..., 0]),
        **labels,
    }


def _renumber_frames(arrays: Mapping[str, Array], old: Sequence[str], new: Sequence[str]) -> dict[str, Array]:
    index = {frame: number for number, frame in enumerate(new)} if old else {}  # documents to predict have none
    # indices −2 and −1 are UNSEEN and NONE themselves
    numbers = np.array([*(index.get(frame, UNSEEN) for frame in old), UNSEEN, NONE], np.int32)
    known = numbers[np.asarray(arrays["knowledge_frames"])]
    weights = np.where(known >= 0, arrays["knowledge_weights"], 0).astype(np.float32)
    return {
        "reference": numbers[np.asarray(arrays["reference"])],
        "knowledge_frames": np.where(weights > 0, known, 0).astype(np.int32),
        "knowledge_weights": weights,
        **_renumber_sources(arrays, numbers),
    }


def _renumber_sources(arrays: Mapping[str, Array], numbers: Array) -> dict[str, Array]:
    """What further sources say in other numbers of frames; frames outside the list have no weight."""
    frames = numbers[np.asarray(arrays["source_frame"])]
    weights = np.where(frames >= 0, arrays["source_weight"], 0).astype(np.float32)
    return {"source_frame": np.where(weights > 0, frames, 0).astype(np.int32), "source_weight": weights}


def _lemmas(chunk: Chunk, vocabulary: Vocabulary, known: Array, read: Array) -> dict[str, Array]:
    """The numbers of the predicates' lemmas, and those by which the lemmas are read as words, [n, M]."""
    pred, lemma = chunk.arrays["tokens"][..., 0], chunk.arrays["lemma"]
    words = chunk.words or [""]
    pairs, inverse = np.unique(pred.astype(np.int64) * len(words) + lemma, return_inverse=True)
    names = [(words[pair // len(words)], words[pair % len(words)]) for pair in pairs.tolist()]
    numbers = [vocabulary.lemma_of(form, name) for form, name in names] or [-1]
    as_words = [vocabulary.read(name, name) for _, name in names] or [UNK]
    as_word = np.array(as_words, np.int32)[inverse].reshape(pred.shape)
    return {
        "lemma": np.array(numbers, np.int32)[inverse].reshape(pred.shape),
        "lemma_read": np.where(as_word == UNK, read, as_word).astype(np.int32),
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
