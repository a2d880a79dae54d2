"""How many labels are wrong.

Two kinds of errors leave different traces. *Arbitrary* errors name any frame: with rate ρ_a a label y of an event is

    p(y) = (1 − ρ_a)·[(1 − d)·r(y) + d·b(y)] + ρ_a/K

r is the prediction without the label, b(y) how many lemmas have frame y (a right label that r does not foretell is
drawn from these), d = `SURPRISE`. ρ_a is found by EM; b counts labels by how far they are right. Counts of labels that
were not corrected predict labels, errors among them: there r(y) − ρ_a/K takes the place of (1 − ρ_a)·r(y).

*Confusable* errors name another frame of the same predicate. One source alone can't tell them from ambiguity: any part
of the labels that others of their predicate contradict may be wrong, and the interval holds up to two thirds of them,
as many as errors at a rate of 40% were in simulated corpora. It gets narrow where a second source names the same events
(r then holds what it says), more where several do, or where labels are reviewed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from revup.auditing.judge import ASSUMED_RATE, UNFORESEEN, Judged
from revup.auditing.left_out import Floats, Ints
from revup.data.reliability import Reliability
from revup.data.sources import REVIEWED

SURPRISE = {True: 0.008, False: 0.004}  # d, of counts whose labels were corrected, and of others
ITERATIONS = 100
PRIOR = 10.0  # labels that the run's own error rate is worth
SPREAD = 0.08  # relative standard deviation of ρ_a beside that of the sample
CONTRADICTED = 0.67  # confusable errors at most, as a share of the expected number of contradicted labels
SPREAD_OF_TWO = 0.06  # relative standard deviation of the number of errors where two sources name the same events
BIAS_OF_TWO = 0.01  # and what is added to it, as a share of the labels
MOSTLY = 0.5  # share of confusable ones among the errors from which on they are part of the estimate
QUANTILE = 1.645  # of the normal distribution: a 90% interval
RIGHT = 0.99  # probability that a reviewed label is right
SHIFT = 2.0  # standard deviation of s before labels are reviewed, at most
MANY = 60  # steps of bisection


@dataclass(frozen=True)
class Errors:
    """The expected number of wrong labels.

    Attributes:
        expected, interval: In all, with a 90% interval.
        arbitrary: Expected number of arbitrary errors.
        contradicted: Expected number of labels that others of their predicate contradict, arbitrary errors aside.
        told_by: What the interval rests on: "agreement" (one source), "sources" (several) or "reviewed" labels.
        wrong: p(wrong) of each event, 0 without a label [n].
    """

    expected: float
    interval: tuple[float, float]
    arbitrary: float
    contradicted: float
    told_by: str
    wrong: Floats


def errors(judged: Judged, frames: int, reliability: Mapping[str, Reliability], corrected: bool = False) -> Errors:
    """Estimate the number of wrong labels, and with it p(wrong) of each.

    Args:
        judged: The events.
        frames: The number of frames K.
        reliability: What the model knows of its sources.
        corrected: Whether its counts are of labels that were corrected.
    """
    use = np.flatnonzero(judged.label >= 0)
    n = len(use)
    asked = Counter(judged.source[number] for number in use.tolist())  # labels in question of each source
    found = {name: each for name, each in reliability.items() if name in asked and each.error_rate is not None}
    known = sum(asked[name] for name in found)
    rate = sum((each.error_rate or 0.0) * asked[name] for name, each in found.items()) / max(known, 1)
    share = sum((each.confusable or 0.0) * asked[name] for name, each in found.items()) / max(known, 1)
    arbitrary, each_arbitrary = _arbitrary(judged, use, frames, rate * (1 - share), corrected)
    contradicted = float((np.exp(_log_part(judged, use)) * (1 - each_arbitrary)).sum())
    told_by = "agreement"
    if not found:
        expected = max(arbitrary, min(ASSUMED_RATE * n, contradicted / 2))
    else:
        expected = max(arbitrary, rate * n) if share >= MOSTLY else arbitrary
    several = [name for name, each in reliability.items() if each.confusable is not None and name != REVIEWED]
    if len(several) == 2:  # r holds what the other says: labels that it does not confirm are errors of either kind
        variance = (SPREAD_OF_TWO * arbitrary) ** 2 + arbitrary + 1 + (BIAS_OF_TWO * n) ** 2
        low, high = (arbitrary + side * QUANTILE * float(np.sqrt(variance)) for side in (-1, 1))
    else:
        spread = QUANTILE * float(np.hypot(SPREAD * arbitrary, np.sqrt(arbitrary + 1)))
        low, high = arbitrary - spread, arbitrary + spread + CONTRADICTED * contradicted
    spans = [(each.interval, asked[name]) for name, each in found.items() if each.interval is not None]
    if len(several) > 2 and spans:  # two that differ don't say which of them is wrong; the prediction does, above
        told_by, total = "sources", sum(count for _, count in spans)
        expected = rate * n
        low, high = (n * sum(span[end] * count for span, count in spans) / total for end in (0, 1))
        slack = QUANTILE * float(np.sqrt(max(expected, 1.0)))
        low, high = low - slack, high + slack
    log_odds = judged.log_odds(share >= MOSTLY)[use]
    checked = judged.reviewed[use] >= 0
    shift = _shift(log_odds, expected)
    wrong = np.zeros(len(judged))
    if checked.any():
        told_by = "reviewed"
        bad = (judged.reviewed[use] != judged.label[use])[checked]
        ends = [_shift(log_odds, float(np.clip(end, 0.5, n - 0.5))) for end in (low, high)]
        before = float(np.clip((ends[1] - ends[0]) / (2 * QUANTILE), 0.1, SHIFT))  # as far as agreement told s
        shift, deviation = _reviewed(log_odds[checked], bad, shift, before)
        ends = [
            float(bad.sum() + _sigmoid(log_odds[~checked] + shift + side * QUANTILE * deviation).sum())
            for side in (-1, 0, 1)
        ]
        slack = QUANTILE * float(np.sqrt(max(ends[1], 1.0)))
        low, expected, high = ends[0] - slack, ends[1], ends[2] + slack
    wrong[use] = _sigmoid(log_odds + shift)
    if checked.any():
        wrong[use[checked]] = np.where(bad, RIGHT, 1 - RIGHT)
    interval = (max(min(low, expected), 0.0), min(max(high, expected), float(n)))
    return Errors(expected, interval, arbitrary, contradicted, told_by, wrong)


def _sigmoid(values: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(values, -50, 50)))


def _log_part(judged: Judged, use: Ints) -> Floats:
    """log of the share of the frames' mass that is against a label."""
    against = judged.against[use]
    return np.log((against + 1e-9) / (against + judged.given[use] + UNFORESEEN))


def _arbitrary(judged: Judged, use: Ints, frames: int, prior: float, corrected: bool) -> tuple[float, Floats]:
    """Return the expected number of arbitrary errors, and p(arbitrary error) of each label, by EM."""
    label, given, n = judged.label[use], judged.given[use], len(use)
    lemma = np.where(judged.lemma[use] >= 0, judged.lemma[use], judged.lemma.max(initial=0) + 1)
    cell, place = np.unique(lemma * frames + label, return_inverse=True)
    wrong, rate, surprise = np.where(given < 2 / frames, 0.9, 0.01), 0.1, SURPRISE[corrected]
    for _ in range(ITERATIONS):
        log_wrong = np.log(np.maximum(wrong, 1e-12))
        all_wrong = np.bincount(place, log_wrong, minlength=len(cell))
        there = 1 - np.exp(all_wrong)  # probability that the lemma has the frame
        lemmas = np.bincount(cell % frames, there, minlength=frames)
        own = there[place] - (1 - np.exp(all_wrong[place] - log_wrong))
        others = np.maximum(lemmas[label] - own, 0.0)
        once = float(((lemmas > 0.05) & (lemmas < 1.5)).sum())  # frames of one lemma: how likely new ones are
        total = max(float(lemmas.sum()), 1e-9)
        base = np.where(others > 0.5, others, np.maximum(others, min(once, 0.1 * total))) / total
        seen = (1 - rate) * given if corrected else np.maximum(given - rate / frames, 0.0)
        right = (1 - surprise) * seen + (1 - rate) * surprise * base
        wrong = rate / frames / (right + rate / frames)
        before, rate = rate, (float(wrong.sum()) + PRIOR * prior) / (n + PRIOR)
        if abs(rate - before) < 1e-6:
            break
    return rate * n, wrong


def _shift(log_odds: Floats, expected: float) -> float:
    """Return the s at which p(wrong) sums to the expected number of errors."""
    low, high = -30.0, 30.0
    for _ in range(MANY):
        middle = (low + high) / 2
        low, high = (low, middle) if float(_sigmoid(log_odds + middle).sum()) > expected else (middle, high)
    return (low + high) / 2


def _reviewed(log_odds: Floats, wrong: NDArray[np.bool_], start: float, spread: float) -> tuple[float, float]:
    """Return s and its standard deviation, from labels that were reviewed and what these were before."""
    shift = start
    for _ in range(MANY):
        p = _sigmoid(log_odds + shift)
        slope = float(wrong.sum() - p.sum()) - (shift - start) / spread**2
        curve = float((p * (1 - p)).sum()) + 1 / spread**2
        step = float(np.clip(slope / curve, -1.0, 1.0))
        shift += step
        if abs(step) < 1e-6:
            break
    return shift, float(curve**-0.5)
