"""Revise the labels of one noisy source by the events themselves, and choose between two explanations of them.

`revup.models.count_correction` sees labels by predicate only. There, confusable errors and ambiguity look the same:
labels of 60% A and 40% B may be one frame with errors, or two frames. The events tell them apart: arguments and
document foretell which of two true frames an event has, and foretell nothing of an error. With p(t|event) of the count
model, the labels of the event's own document left out, and the channel p(y|t, l), u = min_t p(y|t, l):

    r_y(t) = p(t|event)·(p(y|t, l) − u)/Σ_t' p(t'|event)·p(y|t', l)       what the label tells of the true frame
    w      = 1 − p(y|event)·p(y|y, l)/Σ_t' p(t'|event)·p(y|t', l)         that it is wrong
    L      = Σ log Σ_t p(t|event)·p(y|t, l)                               left-out likelihood of the observed labels

Arbitrary errors take one such step from the corrected labels; then all scalars maximise L. For confusable errors two
explanations are fitted: the corrected labels as they are (errors first), and labels taken as given, then revised in
turns with the weights of the slots and the rate ρ = mean w (ambiguity first), as long as L rises. Where L of ambiguity
first is clearly higher, it is the explanation. Otherwise L can't tell (labels of two frames that are wrong half of the
time say nothing): labels, scalars and the channel's ρ are the mean of both, while the reported error rate stays that of
errors first, with an interval that holds both. L counts labels that another document repeats for the same lemma: p(y|t,
l) depends on which labels a lemma has, so that a label which occurs once would explain itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from revup.data.reliability import Reliability
from revup.data.source_evidence import Source
from revup.data.sparse_table import Floats, Ints, Table
from revup.models.count_correction import LEAST, Channel
from revup.models.count_features import pair_sums
from revup.models.count_fit import Predictions
from revup.models.count_tables import Labels

if TYPE_CHECKING:
    from revup.models.count_training import Fitted

ROUNDS = 4  # of revising labels, at most
RATES = (0.01, 0.9)  # limits of ρ
EQUAL = 1e-6  # difference of L that is none
CLEARLY = 0.03  # by which L of a label must be higher, in the mean


@dataclass(frozen=True)
class Revision:
    """Labels of a source as the events of the training documents tell them.

    Attributes:
        labels: What each label tells of the true frame; weights of an event sum to 1 at most.
        wrong: The probability that it is wrong [labels].
        log_likelihood: Of each observed label [labels].
    """

    labels: Labels
    wrong: Floats
    log_likelihood: Floats


def revision(fitted: Fitted, source: Source, channel: Channel) -> Revision:
    """Return the labels of a source, revised by the predictions of their events without their documents' labels."""
    item, label = source.item, source.frame
    with fitted.lemmas_only():
        found = fitted.alone("document", item)
    said = channel.likelihood(fitted.lemma[item], label)
    at, frame, value, other = said
    p = probabilities(found, fitted.model.base, at, frame)
    least = other.copy()
    np.minimum.at(least, at, value)
    total = stated(p, said)
    share = p * (value - least[at]) / total[at]
    own = frame == label[at]
    right = pair_sums((p * value)[own], at[own], len(item)) / total
    keep = share > LEAST
    labels = Labels(item[at[keep]], frame[keep], share[keep])
    return Revision(labels, np.clip(1 - right, 0.0, 1.0), np.log(total))


def probabilities(found: Predictions, base: Floats, position: Ints, frame: Ints) -> Floats:
    """Return p(frame|event) of rows.

    Args:
        found: Predictions of events.
        base: How frames share the remainder [K].
        position, frame: The event and the frame of each row.
    """
    owner = np.repeat(np.arange(len(found.rest)), np.diff(found.start))
    outside = np.maximum(1 - pair_sums(base[found.frame], owner, len(found.rest)), 1e-9)
    p = Table(owner, found.frame, found.probability, len(base))(position, frame)
    return np.asarray(np.where(p > 0, p, base[frame] * (found.rest / outside)[position]))


def stated(p: Floats, said: tuple[Ints, Ints, Floats, Floats]) -> Floats:
    """Return Σ_t p(t|event)·p(y|t, l) of labels.

    Args:
        p: p(t|event) at the rows of what the channel said.
        said: What `Channel.likelihood` returned.
    """
    at, _, value, other = said
    return np.asarray(np.maximum(pair_sums(p * (value - other[at]), at, len(other)) + other, 1e-12))


@dataclass(frozen=True)
class Explained:
    """The ambiguity-first explanation of a source's labels: labels, scalars, channel, error rate, L of each label."""

    labels: Labels
    scalars: dict[str, float]
    channel: Channel
    rate: float
    log_likelihood: Floats


def ambiguity_first(fitted: Fitted, rest: Labels, source: Source, channel: Channel, seed: int) -> Explained:
    """Explain labels by ambiguity first.

    Args:
        fitted: The model with its training events.
        rest: Labels of events that the source does not name.
        source: The labels.
        channel: How they err, as it seems without context.
        seed: Of the sample that scalars are estimated from.
    """
    lemma = fitted.lemma[source.item]
    kinds = np.bincount(channel.labels.row, minlength=int(lemma.max(initial=0)) + 1)
    several, scored = kinds[lemma] > 1, repeated(fitted, source)
    labels = Labels(source.item, source.frame, np.ones(len(source.item)))
    fitted.estimate_all(labels, fitted.pool(labels.joined(rest)), seed)
    best: Explained | None = None
    for _ in range(ROUNDS):
        assert fitted.supports is not None
        fitted.estimate_noisy(source, channel, fitted.supports, seed, slots_only=True)
        fitted.compile()
        found = revision(fitted, source, channel)
        if best is not None and (found.log_likelihood - best.log_likelihood)[scored].sum() < -EQUAL:
            break  # where L stays the same, labels tell nothing, and revised ones say so
        rate = float(found.wrong.mean())
        best = Explained(labels, dict(fitted.model.scalars), channel, rate, found.log_likelihood)
        labels = found.labels
        if several.any():
            channel = replace(channel, rho=float(np.clip(found.wrong[several].mean(), *RATES)))
        fitted.pool(labels.joined(rest))
    assert best is not None
    return best


def repeated(fitted: Fitted, source: Source) -> NDArray[np.bool_]:
    """Return which labels another document gives to the same lemma."""
    width, document = fitted.model.inputs.frames, fitted.training.document[source.item]
    key = fitted.lemma[source.item] * width + source.frame
    pairs = np.unique(np.stack([key, document]), axis=1)
    keys, number = np.unique(pairs[0], return_counts=True)
    return np.asarray(number[np.searchsorted(keys, key)] > 1)


def mean_labels(first: Labels, second: Labels) -> Labels:
    """Return the mean of two sets of labels of the same events."""
    both = first.joined(second)
    order = np.argsort(both.event, kind="stable")
    return Labels(both.event[order], both.frame[order], both.weight[order] / 2)


def told_by_context(report: Reliability, rate: float, alone: bool) -> Reliability:
    """Return the reliability of a source with the error rate that ambiguity first found, alone or in the interval."""
    low, high = report.interval or (rate, rate)
    if alone or report.error_rate is None:
        return replace(report, error_rate=rate, identified=True, interval=(min(low, rate), max(high, rate)))
    return replace(report, interval=(min(low, rate), max(high, rate)))
