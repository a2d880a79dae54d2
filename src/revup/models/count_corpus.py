"""A corpus in the numbers of the count model: events, frame names, and induced frames where there is no label."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.corpus import Split
from revup.data.encode import PAD, SPECIAL
from revup.data.lexicon import Lexicon
from revup.data.source_evidence import Source
from revup.data.vocabulary import Vocabulary
from revup.models.count_features import CountInputs, EventArrays, FrameNames, rows_of

Array = NDArray[Any]
_NAME_WORD = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![^\W\d_A-Z])")
_ENDINGS = ("ing", "ed", "s", "en")


def count_inputs(
    vocabulary: Vocabulary, frames: list[str], lexicon: Lexicon | None, vectors: tuple[Array, Array] | None
) -> CountInputs:
    """Return what all events of a corpus or run share.

    Args:
        vocabulary: The vocabulary.
        frames: The frame list.
        lexicon: The dictionary, if there is one.
        vectors: Word vectors [V + X, d], and which words have one.
    """
    words = [*zip(vocabulary.words, vocabulary.lemmas, strict=True), *((word, "") for word in vocabulary.beyond)]
    endings = np.array([_ending(word, lemma) for word, lemma in words], np.int64)
    endings[: len(SPECIAL)] = 0
    dictionary = None if lexicon is None else lexicon.table(frames)
    return CountInputs(
        len(vocabulary),
        vocabulary.distinct_lemmas + 1,  # one more: that of training predicates outside the vocabulary
        len(frames),
        endings,
        dictionary,
        None if vectors is None else vectors[0].astype(np.float16),
        None if vectors is None else vectors[1].astype(bool),
        None if vectors is None else frame_names(frames, vocabulary),
    )


def frame_names(frames: list[str], vocabulary: Vocabulary) -> FrameNames:
    """Return the words of the frames' names that can be read: Commerce_buy is commerce and buy, put-9.1 is put."""
    pairs = [
        (number, word.lower())
        for number, frame in enumerate(frames)
        for word in dict.fromkeys(_NAME_WORD.findall(frame.lower() if frame.isupper() else frame))
    ]
    common = Counter(word for _, word in pairs)
    found = [(number, max(vocabulary.known(word), vocabulary.by_vector(word)), common[word]) for number, word in pairs]
    read = np.array([row for row in found if row[1] >= len(SPECIAL)], np.int64).reshape(-1, 3)
    return FrameNames(read[:, 0], rows_of(read[:, 1], len(vocabulary)), 1.0 / read[:, 2])


def _ending(word: str, lemma: str) -> int:
    """Class of a word's ending: it tells verbs from nouns where no part of speech is given."""
    if word == lemma:
        return 1
    return next((2 + place for place, end in enumerate(_ENDINGS) if word.endswith(end)), 2 + len(_ENDINGS))


def event_arrays(split: Split, lemmas: int, rows: slice = slice(None)) -> EventArrays:
    """Return the events of some rows of a split as the count model takes them.

    Args:
        split: The split.
        lemmas: The number of lemmas; the last one is that of training predicates outside the vocabulary.
        rows: The rows.
    """
    a, there = split.arrays, present(split, rows)

    def flat(name: str) -> Array:
        return np.asarray(a[name][rows])[there].astype(np.int64)

    lemma = flat("lemma")
    if split.name == "train":
        lemma = np.where(lemma < 0, lemmas - 1, lemma)
    document = np.repeat(np.asarray(a["document"][rows]), there.sum(1)).astype(np.int64)
    return EventArrays(flat("read")[:, :4], lemma, flat("lemma_read"), flat("entry"), document, flat("context"))


def present(split: Split, rows: slice) -> NDArray[np.bool_]:
    lengths = np.asarray(split.arrays["lengths"][rows])
    found: NDArray[np.bool_] = np.arange(split.arrays["keys"].shape[1]) < lengths[:, None]
    return found


def whole_documents(split: Split, rows: slice) -> tuple[slice, slice]:
    """Return rows with all other rows of their documents, and where the rows are among them."""
    document = np.asarray(split.arrays["document"])
    begin, end, _ = rows.indices(len(document))
    if begin >= end:
        return slice(begin, begin), slice(0, 0)
    before, after = document[:begin][::-1] == document[begin], document[end:] == document[end - 1]
    first = begin - int(np.argmin(np.append(before, False)))
    last = end + int(np.argmin(np.append(after, False)))
    return slice(first, last), slice(begin - first, end - first)


def without_labels(told: Mapping[str, Source], left_out: NDArray[np.bool_]) -> dict[str, Source]:
    """Return sources without what they say of some events [n]."""
    kept = {}
    for name, source in told.items():
        keep = ~left_out[source.item]
        weight = None if source.weight is None else source.weight[keep]
        kept[name] = replace(source, item=source.item[keep], frame=source.frame[keep], weight=weight)
    return kept


def induced(split: Split, vocabulary: Vocabulary, vectors: tuple[Array, Array] | None) -> Source:
    """Induce frames from predicates where no label is observed.

    Each of the K most frequent lemmas defines one frame. A rarer lemma joins the frequent lemma with the most similar
    word vector; without a vector it is assigned an arbitrary frame.

    Args:
        split: The training split.
        vocabulary: The vocabulary.
        vectors: Word vectors, and which words have one.

    Returns:
        Labels of all events.
    """
    there = present(split, slice(None))
    preds = np.asarray(split.arrays["tokens"])[..., 0][there]
    numbers: dict[str, int] = {}
    lemma_of = np.array([numbers.setdefault(lemma, len(numbers)) for lemma in vocabulary.lemmas], np.int64)
    lemmas, counts = np.unique(lemma_of[preds[preds != PAD]], return_counts=True)
    lemmas = lemmas[np.argsort(-counts, kind="stable")]
    frame = np.zeros(len(numbers), np.int64)
    frame[lemmas] = np.arange(len(lemmas)) % split.classes
    rare = lemmas[split.classes :]
    if len(rare) and vectors is not None:
        mean = np.zeros((len(frame), vectors[0].shape[1]), np.float64)
        known = np.flatnonzero(vectors[1][: len(lemma_of)])
        np.add.at(mean, lemma_of[known], vectors[0][known])
        mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-9)
        cosine = mean[rare] @ mean[lemmas[: split.classes]].T
        frame[rare] = np.where(cosine.max(1) > 0, cosine.argmax(1), frame[rare])
    return Source("label", np.arange(len(preds)), frame[lemma_of[preds]])
