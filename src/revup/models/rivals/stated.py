"""What rivals estimate before the first step: labels as they stand, which of them to prune, which are confused.

Predictions of labels come from the count model fitted to the labels as they stand, each event's own document left out:
a cross-validated classifier without a second training. `pruned` is confident learning (Northcutt et al., 2021) by the
rule of cleanlab, whose results it reproduces; `confusion_matrix` takes the predictions of the events that are surest of
a frame for p(label | frame) (Patrini et al., 2017).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from revup.data.batches import Prior
from revup.data.corpus import Corpus, Split
from revup.data.encode import Array
from revup.data.knowledge import Observation, Seen
from revup.data.sparse_table import Floats, Ints, entries
from revup.models.count_corpus import event_arrays
from revup.models.count_fit import Predictions
from revup.models.count_prior import CountPrior, CountSettings

CLOSE = 1e-6  # probabilities that differ by less are equal
EVENTS = 4096  # whose predictions are held densely
AS_THEY_STAND = CountSettings(noise="none", induce=False)
NO_KEYS = np.zeros(0, np.uint64)


@dataclass(frozen=True)
class StatedLabels:
    """Gives training batches the prior of the counts, and the labels as they stand instead of as evidence.

    Attributes:
        counts: The fitted counts; None: no prior.
        pruned: Hashes of events whose labels are left out, ascending.
    """

    counts: CountPrior | None
    pruned: NDArray[np.uint64] = field(default_factory=lambda: NO_KEYS)

    def seen(self, split: Split, observation: Observation, rows: slice) -> Seen:
        """Return the side knowledge of these rows, labels as beliefs."""
        if self.counts is None:
            seen = split.seen(observation, rows)
        else:
            seen = self.counts.seen(split, observation, rows, corrected=False)
        if not len(self.pruned):
            return seen
        kept = seen.observed & ~np.isin(np.asarray(split.arrays["keys"][rows]), self.pruned)
        return replace(
            seen,
            weights=np.where(kept[..., None], seen.weights, 0),
            observed=kept,
            confidence=np.where(kept, seen.confidence, 0),
            other=np.where(kept, seen.other, 0),
        )

    def prior(self, split: Split, rows: slice, training: bool) -> Prior | None:
        """Return the prior of these rows; None without counts."""
        return None if self.counts is None else self.counts.prior(split, rows, training)


@dataclass(frozen=True)
class StatedPredictions:
    """Labels of training events as they stand, and predictions of these labels from the other documents.

    Attributes:
        keys: Hashes of the events [n].
        labels: Their labels [n]; the most probable frame of a distribution.
        found: Predictions of all training events.
        place: Where each event stands among them [n].
        base: How frames share the remainder of a prediction [K].
    """

    keys: NDArray[np.uint64]
    labels: Ints
    found: Predictions
    place: Ints
    base: Floats

    @classmethod
    def of(cls, corpus: Corpus, observation: Observation) -> StatedPredictions | None:
        """Predict the observed labels of the training split; None where none is observed.

        Args:
            corpus: The dataset.
            observation: Which labels are observed, and which of them are wrong.
        """
        split = corpus.split("train")
        counts = CountPrior.fit(corpus, observation, AS_THEY_STAND)
        seen = counts.seen(split, observation, slice(None))
        use = seen.observed & seen.belief & (seen.weights.max(-1) > 0)
        if not use.any():
            return None
        there = np.arange(use.shape[1]) < np.asarray(split.arrays["lengths"])[:, None]
        place = (np.cumsum(there.ravel()) - 1).reshape(there.shape)[use]
        best = seen.weights.argmax(-1)[..., None]
        labels = np.take_along_axis(seen.frames, best, -1)[..., 0][use].astype(np.int64)
        found = counts.model.predict(event_arrays(split, counts.model.inputs.lemmas), "document")
        return cls(np.asarray(split.arrays["keys"])[use], labels, found, place, counts.model.base)

    def dense(self, chosen: Ints) -> Floats:
        """Predicted probabilities of some of the events [len(chosen), K]."""
        where = self.place[chosen]
        row, position, _ = entries(self.found.start, where)
        frame, probability = self.found.frame[row], self.found.probability[row]
        outside = 1 - np.bincount(position, self.base[frame], minlength=len(where))
        table = self.base * (self.found.rest[where] / np.maximum(outside, 1e-9))[:, None]
        table[position, frame] = probability
        return np.asarray(table)

    def __iter__(self) -> Iterator[Floats]:
        """Blocks of predicted probabilities, in order."""
        for begin in range(0, len(self.labels), EVENTS):
            yield self.dense(np.arange(begin, min(begin + EVENTS, len(self.labels))))

    def pruned(self, rule: str) -> NDArray[np.uint64]:
        """Hashes of the events whose labels are pruned by a rule of `pruned`, ascending."""
        return np.sort(self.keys[pruned(self.labels, self, rule)])

    def confusion_matrix(self, anchors: int) -> Floats:
        """p(label y | true frame k) [K, K]: the mean prediction of the events that are surest of k.

        A frame that no label names is never confused.

        Args:
            anchors: The number of such events for each frame.
        """
        classes = len(self.base)
        row, position, _ = entries(self.found.start, self.place)
        frame, probability = self.found.frame[row], self.found.probability[row]
        order = np.lexsort((-probability, frame))
        frame, position = frame[order], position[order]
        rank = np.arange(len(frame)) - np.searchsorted(frame, frame)
        keep = (rank < anchors) & (np.bincount(self.labels, minlength=classes) > 0)[frame]
        frame, position = frame[keep], position[keep]
        total, number = np.zeros((classes, classes)), np.bincount(frame, minlength=classes)
        for begin in range(0, len(frame), EVENTS):
            part = slice(begin, begin + EVENTS)
            np.add.at(total, frame[part], self.dense(position[part]))
        total[number == 0] = np.eye(classes)[number == 0]
        return np.asarray(total / total.sum(1, keepdims=True))


def pruned(labels: Array, predictions: Iterable[Floats], rule: str) -> NDArray[np.bool_]:
    """Which labels are probably wrong, as cleanlab's `find_label_issues(filter_by=rule)` finds them, [n].

    "confident_learning": the off-diagonals of the confident joint. An event is confidently of a frame if its predicted
    probability is at least the mean of those events that have the frame for their label; with several such frames, of
    the most probable one. "predicted_neq_given": the most probable frame is another than the label.

    Args:
        labels: The labels [n].
        predictions: Blocks of out-of-sample probabilities [.., K], n rows together; iterated more than once.
        rule: confident_learning or predicted_neq_given.
    """
    labels = np.asarray(labels)
    limits, found, begin = thresholds(labels, predictions), [], 0
    for block in predictions:
        given, begin = labels[begin : begin + len(block)], begin + len(block)
        rows, best = np.arange(len(block)), block.argmax(1)
        other = block[rows, best] > block[rows, given] + CLOSE
        if rule == "confident_learning":
            sure = block >= limits - CLOSE
            number = sure.sum(1)
            other &= (number > 0) & (np.where(number > 1, best, sure.argmax(1)) != given)
        found.append(other)
    return np.concatenate(found)


def thresholds(labels: Array, predictions: Iterable[Floats]) -> Floats:
    """Mean probability of each frame over the events that have it for their label [K]; 2 for a frame without any."""
    own, classes, begin = [], 0, 0
    for block in predictions:
        given, begin, classes = labels[begin : begin + len(block)], begin + len(block), block.shape[1]
        own.append(block[np.arange(len(block)), given])
    number = np.bincount(labels, minlength=classes)
    total = np.bincount(labels, np.concatenate(own), minlength=classes)
    mean = np.where(number > 0, total / np.maximum(number, 1), 2.0)
    return np.maximum(mean, 2 * CLOSE)
