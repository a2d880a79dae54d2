"""Uncertainty over test documents: intervals of scores and of paired differences, by resampling documents.

Events of a document depend on each other, so documents are drawn with replacement, not events or windows. A score of a
system is the mean over its seeds of the ratio of two sums over documents (right answers and events, say):

    score_b = 1/S Σ_s  Σ_d w_bd a_sd / Σ_d w_bd n_sd        w_b: how often sample b draws each document, b = 1..2000

The interval is from the 2.5th to the 97.5th percentile of score_b. For a difference both systems have the same w_b and
the same seeds; it is called a difference where the interval excludes 0. Seeds are not resampled: their spread is shown
beside it. With few documents (below some 20) such intervals are too narrow. So a second interval is made for a
difference, the jackknife's: with θ_d the difference without document d, and t the quantile with n − 1 degrees of
freedom,

    θ ± t_{n−1} √((n−1)/n Σ_d (θ_d − θ̄)²)

Where it includes zero although the bootstrap's excludes it, the difference is not certain.

The draws are ours (`revup.data.knowledge.uniforms`) and the sums are of whole numbers: the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.knowledge import uniforms
from revup.inference.event_scores import NATS
from revup.inference.students_t import t_quantile

SAMPLES = 2000
ENOUGH = 20  # documents; intervals of fewer are too narrow
LEVEL = 0.95
_STREAM = 21

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Sums = Mapping[str, Sequence[int]]  # measure → its sum over each document


@lru_cache(maxsize=16)
def draws(documents: int) -> NDArray[np.int64]:
    """How often each bootstrap sample draws each document, [SAMPLES, documents]."""
    numbers = np.arange(SAMPLES * documents, dtype=np.uint64).reshape(SAMPLES, documents)
    chosen = (uniforms(numbers, documents, _STREAM) * documents).astype(np.int64)
    chosen += np.arange(SAMPLES)[:, None] * documents
    return np.bincount(chosen.ravel(), minlength=SAMPLES * documents).reshape(SAMPLES, documents)


class Ratio:
    """A score that is a ratio of two sums over documents.

    Attributes:
        above, below: The sums: `right` and `events` for accuracy.
        nats: Whether the first one is of logarithms, in 10⁻⁴ nats.
        exponential: Whether the score is exp of the ratio, as a perplexity is.
    """

    def __init__(self, above: str, below: str, nats: bool = False, exponential: bool = False) -> None:
        self.above, self.below, self.nats, self.exponential = above, below, nats, exponential

    def there(self, sums: Sums) -> bool:
        """Whether documents have this score."""
        return self.above in sums and sum(sums[self.below]) > 0

    def samples(self, sums: Sums) -> Floats:
        """The score under each bootstrap sample, and as the last one that of all documents, [SAMPLES + 1]."""
        above, below = (np.asarray(sums[name], np.int64) for name in (self.above, self.below))
        weights = draws(len(above))
        totals = [np.append(weights @ values, values.sum()) for values in (above, below)]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = totals[0] / totals[1] / (NATS if self.nats else 1)
        return np.asarray(np.exp(ratio) if self.exponential else ratio)

    def left_out(self, sums: Sums) -> Floats:
        """The score without each document in turn, and as the last one that of all documents, [documents + 1]."""
        above, below = (np.asarray(sums[name], np.int64) for name in (self.above, self.below))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.append(above.sum() - above, above.sum()) / np.append(below.sum() - below, below.sum())
        ratio = ratio / (NATS if self.nats else 1)
        return np.asarray(np.exp(ratio) if self.exponential else ratio)


def interval(samples: Sequence[Floats]) -> Interval | None:
    """The interval of the mean over seeds.

    Args:
        samples: For each seed what `Ratio.samples` gives.
    """
    if not samples:
        return None
    return _percentiles(np.mean([each[:-1] for each in samples], axis=0))


def difference(first: Mapping[int, Floats], second: Mapping[int, Floats]) -> tuple[list[float], Interval | None]:
    """One system's score minus another's, paired by seed and by document.

    Args:
        first, second: Seed → what `Ratio.samples` gives.

    Returns:
        The difference for each seed that both have, and the interval of their mean.
    """
    seeds = [seed for seed in first if seed in second and len(first[seed]) == len(second[seed])]
    if not seeds:
        return [], None
    found = [first[seed] - second[seed] for seed in seeds]
    return [float(each[-1]) for each in found], interval(found)


def jackknife(first: Mapping[int, Floats], second: Mapping[int, Floats]) -> Interval | None:
    """The second interval of a difference, for few documents.

    Args:
        first, second: Seed → what `Ratio.left_out` gives.

    Returns:
        The interval; None where no seed is in both, or the score needs every document.
    """
    seeds = [seed for seed in first if seed in second and len(first[seed]) == len(second[seed])]
    if not seeds:
        return None
    found = np.mean([first[seed] - second[seed] for seed in seeds], axis=0)
    without, value = found[:-1], float(found[-1])
    if len(without) < 2 or np.isnan(found).any():
        return None
    freedom = len(without) - 1
    error = math.sqrt(freedom / len(without) * float(((without - without.mean()) ** 2).sum()))
    width = _reach(freedom) * error
    return value - width, value + width


def excludes_zero(found: Interval | None) -> bool:
    """Whether a difference is one."""
    return found is not None and not found[0] <= 0 <= found[1]


@lru_cache(maxsize=64)
def _reach(freedom: int) -> float:
    return t_quantile(LEVEL, freedom)


def _percentiles(values: Floats) -> Interval | None:
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return None
    low, high = (_percentile(known, share) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return low, high


def _percentile(ordered: Floats, share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return float(ordered[below] + (place - below) * (ordered[above] - ordered[below]))


def rounded(found: Any, digits: int) -> str:
    """An interval as tables show it."""
    return "" if found is None else f"[{found[0]:.{digits}f}, {found[1]:.{digits}f}]"
