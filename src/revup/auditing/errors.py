"""How many labels are wrong, and p(wrong) of each.

Two kinds of errors leave different traces. *Arbitrary* errors name any frame; `revup.auditing.arbitrary` finds their
number, and where they are most of the errors, p(wrong) is that of its mixture. *Confusable* errors name another frame
of the same predicate. One source alone can't tell them from ambiguity: any part of the labels that others of their
predicate contradict may be wrong, and the interval holds up to two thirds of them, as many as errors at a rate of 40%
were in simulated corpora; where the source's rate is above that, it reaches to the upper end of the rate. It gets
narrow where a second source names the same events (r then holds what it says), more where several do, or where labels
are reviewed. Where most errors are confusable, a label is doubtful only if one other frame of the lemma is much more
probable, however improbable the label itself is; with the weights w of `revup.auditing.judge`:

    odds(wrong) = exp(s + k·[max_{t ≠ y} w(t)·r(t) − r(y)])

s is set so that p(wrong) sums to the expected number of errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from revup.auditing.arbitrary import arbitrary_errors
from revup.auditing.judge import ASSUMED_RATE, Judged
from revup.auditing.left_out import Floats
from revup.data.reliability import Reliability
from revup.data.sources import REVIEWED
from revup.models.count_sources import MOSTLY

STEEP = 3.0  # k
SPREAD = 0.08  # relative standard deviation of the number of arbitrary errors beside that of the sample
CONTRADICTED = 0.67  # confusable errors at most, as a share of the expected number of contradicted labels
SPREAD_OF_TWO = 0.06  # relative standard deviation of the number of errors where two sources name the same events
BIAS_OF_TWO = 0.01  # and what is added to it, as a share of the labels
AMONG_CONTRADICTED = 1.5  # how much more often contradicted labels are confusable errors than others, with two sources
FORETOLD = 0.003  # r(y) of a label that nothing foretells, where labels are contradicted
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


def errors(judged: Judged, frames: int, reliability: Mapping[str, Reliability]) -> Errors:
    """Estimate the number of wrong labels, and with it p(wrong) of each.

    Args:
        judged: The events.
        frames: The number of frames K.
        reliability: What the model knows of its sources.
    """
    use = np.flatnonzero(judged.label >= 0)
    n = len(use)
    asked = Counter(judged.source[number] for number in use.tolist())  # labels in question of each source
    found = {name: each for name, each in reliability.items() if name in asked and each.error_rate is not None}
    known = sum(asked[name] for name in found)
    rate = sum((each.error_rate or 0.0) * asked[name] for name, each in found.items()) / max(known, 1)
    share = sum((each.confusable or 0.0) * asked[name] for name, each in found.items()) / max(known, 1)
    found_arbitrary = arbitrary_errors(judged.given[use], judged.surest[use], judged.mass, frames, rate * (1 - share))
    arbitrary, given, against = found_arbitrary.number, judged.given[use], judged.against[use]
    contradicted = float((against / (against + given + FORETOLD) * (1 - found_arbitrary.wrong)).sum())
    told_by = "agreement"
    total = rate * n if found else min(ASSUMED_RATE * n, contradicted / 2)
    confusable = total - arbitrary if not found else min(total - arbitrary, rate * share * n)
    mostly = confusable > arbitrary  # of the errors are confusable
    expected = arbitrary + confusable if mostly else arbitrary
    if mostly and share >= MOSTLY:  # the source says so too: of its arbitrary errors, unsure predictions show few
        expected = total
    spans = [(each.interval, asked[name]) for name, each in found.items() if each.interval is not None]
    named = sum(count for _, count in spans)
    ends = [n * sum(span[end] * count for span, count in spans) / named for end in (0, 1)] if spans else []
    sampled = QUANTILE * float(np.sqrt(max(rate * n, 1.0)))  # of a number of errors at a known rate
    several = [name for name, each in reliability.items() if each.confusable is not None and name != REVIEWED]
    if len(several) == 2:  # r holds what the other says: labels that it does not confirm are errors of either kind
        expected = arbitrary + AMONG_CONTRADICTED * arbitrary / n * share * contradicted
        variance = (SPREAD_OF_TWO * expected) ** 2 + expected + 1 + (BIAS_OF_TWO * n) ** 2
        low, high = (expected + side * QUANTILE * float(np.sqrt(variance)) for side in (-1, 1))
    else:
        spread = QUANTILE * float(np.hypot(SPREAD * arbitrary, np.sqrt(arbitrary + 1)))
        low, high = arbitrary - spread, arbitrary + spread + CONTRADICTED * contradicted
        if expected > high:  # more than agreement allows: as far as the sources' own intervals reach
            high = max([expected, *ends[1:]]) + sampled
    if len(several) > 2 and ends:  # two that differ don't say which of them is wrong; the prediction does, above
        told_by, expected, low, high = "sources", rate * n, ends[0] - sampled, ends[1] + sampled
    log_odds = STEEP * (against * judged.shares[use, 0] - given) if mostly else found_arbitrary.log_odds
    checked = judged.reviewed[use] >= 0
    shift = _shift(log_odds, expected)
    wrong = np.zeros(len(judged))
    if checked.any():
        told_by = "reviewed"
        bad = (judged.reviewed[use] != judged.label[use])[checked]
        shifts = [_shift(log_odds, float(np.clip(end, 0.5, n - 0.5))) for end in (low, high)]
        before = float(np.clip((shifts[1] - shifts[0]) / (2 * QUANTILE), 0.1, SHIFT))  # as far as agreement told s
        shift, deviation = _reviewed(log_odds[checked], bad, shift, before)
        rest = [_sigmoid(log_odds[~checked] + shift + side * QUANTILE * deviation) for side in (-1, 0, 1)]
        low, expected, high = (float(bad.sum() + p.sum()) for p in rest)
        slack = QUANTILE * float(np.sqrt((rest[1] * (1 - rest[1])).sum()))
        low, high = (
            expected - float(np.hypot(expected - low, slack)),
            expected + float(np.hypot(high - expected, slack)),
        )
    wrong[use] = _sigmoid(log_odds + shift)
    if checked.any():
        wrong[use[checked]] = np.where(bad, RIGHT, 1 - RIGHT)
    interval = (max(min(low, expected), 0.0), min(max(high, expected), float(n)))
    return Errors(expected, interval, arbitrary, contradicted, told_by, wrong)


def _sigmoid(values: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-np.clip(values, -50, 50)))


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
