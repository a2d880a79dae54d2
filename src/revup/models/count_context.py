"""Document context of the count model: frames that other events of a document have are more probable for each event.

    p(t|event i, document) ∝ p(t|event i) · [1 + Σ_j w_ij·p(t|event j)/(λ·f(t))]^v,    w_ij = e^{−(|i − j| − 1)/h}

j runs over the events of the same document that are at most `REACH` places away and have another lemma: those of the
same lemma have the same counts and would only confirm each other's errors. f(t) is how frequent a frame is in the
training documents, by the counts' own predictions (so that events without a label count too). v is estimated from
observed labels, each predicted without the labels of its document: from trusted ones, or where the largest source errs
arbitrarily, from its labels under their channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from revup.data.sparse_table import Floats, Ints, entries
from revup.models.count_features import EventArrays, numbered, pair_sums
from revup.models.count_fit import DEFAULTS, Predictions
from revup.models.count_tables import Compiled, Labels

DISTANCE, REACH = 15.0, 40  # h in events; the farthest event that counts
STRENGTH = 20.0  # λ, in events
SMOOTHING = 20.0  # events by which f(t) is drawn to the base distribution
LEAST = 0.01  # probability of a frame from which on it counts for the other events
WEIGHTS = np.linspace(0.0, 1.0, 41)  # v that is chosen from
SPREAD = 0.3  # of its Gaussian prior


def frequency(compiled: Compiled, pair: Ints, base: Floats) -> Floats:
    """Return f [K]: the mean θ_f of the training events, drawn to the base distribution.

    Args:
        compiled: Compiled predicates.
        pair: The predicate of each training event.
        base: The base distribution [K].
    """
    number = np.bincount(pair, minlength=len(compiled.key)).astype(np.float64)
    weight = np.repeat(number, np.diff(compiled.start)) * np.exp(compiled.log_theta.astype(np.float64))
    total = pair_sums(weight, compiled.frame.astype(np.int64), len(base))
    return np.asarray((total + SMOOTHING * base) / (total.sum() + SMOOTHING))


def without_document(found: Predictions, document: Ints, base: Floats) -> Floats:
    """Return f(t) at the rows of training events, each without its own document.

    Args:
        found: Predictions of whole documents.
        document: Of each event.
        base: The base distribution [K].
    """
    event = np.repeat(np.arange(len(document)), np.diff(found.start))
    keys, place = np.unique(document[event] * len(base) + found.frame, return_inverse=True)
    own = pair_sums(found.probability, place, len(keys))[place]
    total = pair_sums(found.probability, found.frame, len(base))[found.frame]
    number = np.unique(document, return_inverse=True)[1]
    others = len(document) - np.bincount(number)[number][event]
    return np.asarray((np.maximum(total - own, 0.0) + SMOOTHING * base[found.frame]) / (others + SMOOTHING))


def context_gain(found: Predictions, events: EventArrays, f: Floats, frames: int) -> Floats:
    """Return log [1 + Σ_j w_ij·p_j(t)/(λ·f(t))] at the rows of predictions.

    Args:
        found: Predictions of events.
        events: The events, in order, documents as a whole.
        f: f(t) at the rows.
        frames: The number of frames K.
    """
    n, document = len(events), events.document
    word = np.where(events.lemma >= 0, events.lemma, -1 - events.lemma_read)
    out = np.zeros(len(found.frame))
    key = np.repeat(np.arange(n), np.diff(found.start)) * frames + found.frame
    kept = np.flatnonzero(found.probability > LEAST)
    start = np.searchsorted(kept, found.start)
    for distance in range(1, min(REACH, n - 1) + 1):
        first = np.flatnonzero(document[distance:] == document[:-distance])
        if not len(first):
            break
        first = first[word[first] != word[first + distance]]
        for event, other in ((first, first + distance), (first + distance, first)):
            entry, position, _ = entries(start, other)
            row = kept[entry]
            at = numbered(event[position] * frames + found.frame[row], key)
            there = at >= 0
            weight = np.exp((1 - distance) / DISTANCE)
            out += np.bincount(at[there], weight * found.probability[row[there]], minlength=len(out))
    return np.asarray(np.log1p(out / (STRENGTH * np.maximum(f, 1e-12))))


def in_context(found: Predictions, gain: Floats, weight: float) -> Predictions:
    """Return predictions multiplied by e^{v·gain}."""
    position = np.repeat(np.arange(len(found.rest)), np.diff(found.start))
    moved = found.probability * np.exp(weight * gain)
    total = pair_sums(moved, position, len(found.rest)) + found.rest
    return replace(found, probability=moved / total[position], rest=found.rest / total)


def context_weight(log_likelihood: Callable[[float], float]) -> float:
    """Return the weight v of the highest likelihood of labels, under a Gaussian prior at its default.

    Args:
        log_likelihood: Of the labels, for a weight.
    """
    scores = [log_likelihood(v) - (v - DEFAULTS["document"]) ** 2 / (2 * SPREAD**2) for v in WEIGHTS.tolist()]
    return float(WEIGHTS[int(np.argmax(scores))])


def of_trusted(found: Predictions, gain: Floats, labels: Labels, frames: int) -> Callable[[float], float]:
    """Return the log-likelihood of labels that are taken for the truth, given the weight v.

    Args:
        found: Predictions of events, each by itself.
        gain: What `context_gain` returned.
        labels: Labels of some of them.
        frames: The number of frames K.
    """
    position = np.repeat(np.arange(len(found.rest)), np.diff(found.start))
    row = numbered(labels.event * frames + labels.frame, position * frames + found.frame)
    own = np.where(row >= 0, gain[row], 0.0)
    labelled: NDArray[np.bool_] = np.zeros(len(found.rest), bool)
    labelled[labels.event] = True
    use = np.flatnonzero(labelled[position] & (gain > 0))

    def likelihood(weight: float) -> float:
        more = pair_sums(found.probability[use] * np.expm1(weight * gain[use]), position[use], len(found.rest))
        return float((labels.weight * (weight * own - np.log1p(more)[labels.event])).sum())

    return likelihood
