"""What the count model reads of an event, as numbers: predicate, lemma, dictionary entry, words of its slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.encode import NULL, UNK
from revup.data.sparse_table import Floats, Ints, Table

NEUTRAL = np.iinfo(np.int64).min  # a slot that says nothing
CLASSES = 64  # of words by their vectors
ROUNDS = 10  # of k-means
COMPONENTS = 2  # principal directions taken out of the word vectors: they tell frequency, not meaning
ARGUMENTS = ("subj", "obj", "mod", "ending", "present", "subj class", "obj class")
CONTEXT = ("word −2", "word −1", "word +1", "word +2")


@dataclass(frozen=True)
class EventArrays:
    """Events of a split, in order.

    Attributes:
        read: Numbers of the words of predicate, subject, object and modifier [n, 4], as `Vocabulary` numbers them:
            below V a word, below 2V a predicate read by its lemma's word, from there on a word known by its vector.
        lemma: Number of the predicate's lemma among those of the training documents [n], −1 if unknown.
        lemma_read: Number of the lemma as a word, else of the predicate [n]; `UNK` without a vector.
        entry: Row of the dictionary [n], −1 without an entry.
        document: Number of the document [n].
        context: Hashes of the words at −2, −1, +1 and +2 around the predicate [n, 4], 0 where unknown.
    """

    read: Ints
    lemma: Ints
    lemma_read: Ints
    entry: Ints
    document: Ints
    context: Ints

    def __len__(self) -> int:
        return len(self.lemma)

    def take(self, rows: NDArray[Any]) -> EventArrays:
        """Return some of the events."""
        return EventArrays(
            self.read[rows],
            self.lemma[rows],
            self.lemma_read[rows],
            self.entry[rows],
            self.document[rows],
            self.context[rows],
        )


@dataclass(frozen=True)
class FrameNames:
    """The words of the frames' names: which frame, row of `CountInputs.vectors` and weight (1/names with it) [n]."""

    frame: Ints
    row: Ints
    weight: Floats


@dataclass(frozen=True)
class CountInputs:
    """What all events share.

    Attributes:
        words: The size V of the vocabulary.
        lemmas: The number L of lemmas of the training documents.
        frames: The number K of frames.
        endings: Class of each word's ending against its lemma [V + X], 0 if unknown; numbered as `vectors`.
        dictionary: p(frame|entry) [entries, K], or None.
        vectors: Word vectors [V + X, d], of the vocabulary's words and of X words beyond it, or None.
        found: Which words have a vector [V + X].
        names: The words of the frames' names, or None.
    """

    words: int
    lemmas: int
    frames: int
    endings: Ints
    dictionary: Table | None = None
    vectors: NDArray[Any] | None = None
    found: NDArray[np.bool_] | None = None
    names: FrameNames | None = None


def rows_of(number: NDArray[Any], words: int) -> Ints:
    """Return the rows of `CountInputs.vectors` for numbers of words."""
    return np.where(number < words, number, number - words).astype(np.int64)


def slot_names(events: EventArrays) -> list[str]:
    """Return the slots that training events fill; context counts only where some event has it."""
    return [*ARGUMENTS, *(CONTEXT if len(events) and (events.context != 0).any() else ())]


def slot_values(events: EventArrays, inputs: CountInputs, classes: NDArray[Any] | None, slots: int) -> list[Ints]:
    """Return the value of each slot of each event [slots][n], `NEUTRAL` where it says nothing.

    Args:
        events: The events.
        inputs: What they share.
        classes: Class of each word by its vector [V + X], −1 without; None where there are no vectors.
        slots: The number of slots, of `ARGUMENTS` and `CONTEXT` in this order.
    """
    subject, verb, others = events.read[:, 1], events.read[:, 0], events.read[:, 1:4]
    values = [np.where(others[:, j] == UNK, NEUTRAL, others[:, j]) for j in range(3)]
    row = rows_of(verb, inputs.words)
    known = (verb != UNK) & (verb < inputs.words) | (verb >= 2 * inputs.words)
    ending = np.where(known, inputs.endings[np.minimum(row, len(inputs.endings) - 1)], 0)
    values.append(np.where(ending == 0, NEUTRAL, ending))
    values.append(((others != NULL) @ np.array([1, 2, 4])).astype(np.int64))
    for number in (subject, events.read[:, 2]):
        if classes is None:
            values.append(np.full(len(events), NEUTRAL))
        else:
            kind = classes[rows_of(number, inputs.words)].astype(np.int64)
            values.append(np.where((number == UNK) | (number == NULL) | (kind < 0), NEUTRAL, kind))
    around = events.context[:, : slots - len(ARGUMENTS)]
    values += list(np.where(around == 0, NEUTRAL, around).T)
    return [value.astype(np.int64) for value in values]


def numbered(values: Ints, known: Ints) -> Ints:
    """Return the places of values among known ones (ascending), −1 where they are not there."""
    if not len(known):
        return np.full(len(values), -1, np.int64)
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.where(known[place] == values, place, -1).astype(np.int64)


def word_classes(events: EventArrays, inputs: CountInputs, seed: int) -> NDArray[np.int16] | None:
    """Return the class of each word [V + X], −1 without: arguments never seen share counts with similar ones.

    Spherical k-means on the vectors of the words that are subjects or objects; None without vectors.
    """
    if inputs.vectors is None or inputs.found is None:
        return None
    used = np.unique(events.read[:, 1:3])
    used = rows_of(used[(used != UNK) & (used != NULL)], inputs.words)
    used = used[inputs.found[used]]
    out = np.full(len(inputs.vectors), -1, np.int16)
    if not len(used):
        return out
    unit = normalised(inputs.vectors[used].astype(np.float32))
    centre = unit[np.random.default_rng(seed).choice(len(unit), min(CLASSES, len(unit)), replace=False)]
    for _ in range(ROUNDS):
        nearest = _nearest(unit, centre)
        order = np.argsort(nearest, kind="stable")
        first = np.searchsorted(nearest[order], np.arange(len(centre)))
        there = np.bincount(nearest, minlength=len(centre)) > 0
        total = np.zeros_like(centre)
        total[there] = np.add.reduceat(unit[order], first[there], axis=0)
        centre = normalised(total)
    known = np.flatnonzero(inputs.found)
    for begin in range(0, len(known), 8192):
        part = known[begin : begin + 8192]
        out[part] = _nearest(normalised(inputs.vectors[part].astype(np.float32)), centre)
    return out


def _nearest(unit: NDArray[Any], centre: NDArray[Any]) -> Ints:
    parts = [(unit[begin : begin + 8192] @ centre.T).argmax(1) for begin in range(0, len(unit), 8192)]
    return np.concatenate(parts).astype(np.int64)


def normalised(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return vectors of length 1 (0 stays 0)."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9))


@dataclass(frozen=True)
class Space:
    """Word vectors as the neighbours are found by: centred, without their first principal directions.

    Attributes:
        centre, directions: What is taken out [d], [COMPONENTS, d].
        lemma: Vector of each lemma of the training documents, of length 1 or 0 [L, d].
        has: Which lemmas have a vector [L].
    """

    centre: NDArray[np.float32]
    directions: NDArray[np.float32]
    lemma: NDArray[np.float32]
    has: NDArray[np.bool_]

    def unit(self, vectors: NDArray[Any]) -> NDArray[np.float32]:
        """Return vectors in this space, of length 1."""
        moved = vectors.astype(np.float32) - self.centre
        moved = moved - moved @ self.directions.T @ self.directions
        return normalised(moved).astype(np.float32)


def space_of(events: EventArrays, inputs: CountInputs) -> Space | None:
    """Return the space of the training documents' lemmas: a lemma's vector is the mean of the words it is read as."""
    if inputs.vectors is None or inputs.found is None:
        return None
    pairs = np.unique(np.stack([events.lemma, events.lemma_read])[:, events.lemma >= 0], axis=1)
    row = rows_of(pairs[1], inputs.words)
    keep = (pairs[1] != UNK) & inputs.found[row]
    lemma, row = pairs[0][keep], row[keep]
    number = np.bincount(lemma, minlength=inputs.lemmas)
    total = np.zeros((inputs.lemmas, inputs.vectors.shape[1]), np.float32)
    np.add.at(total, lemma, inputs.vectors[row].astype(np.float32))
    mean, has = total / np.maximum(number, 1).astype(np.float32)[:, None], number > 0
    usable = mean[has]
    if len(usable) < 2:
        return None
    centre = usable.mean(0)
    directions = np.linalg.svd(usable - centre, full_matrices=False)[2][:COMPONENTS]
    space = Space(centre, directions, np.zeros((0, 0), np.float32), has)
    return Space(centre, directions, space.unit(mean) * has[:, None], has)


def name_vectors(inputs: CountInputs, space: Space | None) -> NDArray[np.float32] | None:
    """Return the vectors of the frames' names in the space of the lemmas, of length 1 or 0 [K, d]."""
    names = inputs.names
    if space is None or names is None or inputs.vectors is None or inputs.found is None:
        return None
    there = inputs.found[names.row]
    frame, row, weight = names.frame[there], names.row[there], names.weight[there].astype(np.float32)
    total = np.zeros((inputs.frames, inputs.vectors.shape[1]), np.float32)
    np.add.at(total, frame, space.unit(inputs.vectors[row]) * weight[:, None])
    return normalised(total).astype(np.float32)


def pair_sums(values: Floats, position: Ints, size: int) -> Floats:
    """Return the sum of the values at each position."""
    return np.bincount(position, values, minlength=size).astype(np.float64)
