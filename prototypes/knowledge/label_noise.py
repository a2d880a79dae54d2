"""Errors of a single source of labels, estimated from how far the labels of each predicate agree.

One source cannot be checked against another, but events of one predicate can be checked against each other: most
predicates have one frame, so labels that scatter over all predicates alike are errors, while labels that scatter over a
few predicates are ambiguity. The rate is identified through predicates that repeat; where too few do, it is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reliability import ENOUGH, TINY, Floats, Ints, Reliability, Table, matches

RATE_PRIOR = (1.0, 100.0)  # Beta prior of the error rate: wrong and right labels seen beforehand
_MINOR_SHARES = np.array([0.0, 0.1, 0.3, 0.5])  # share of a predicate's labels outside its dominant frame
_MINOR_WEIGHTS = np.array([0.7, 0.1, 0.1, 0.1])  # their prior: most predicates have one frame
_DOMINANT = 6  # frames of a predicate that may be its dominant one


@dataclass(frozen=True)
class SingleSource:
    """reliability: of the source; predicate, label, frame, probability [rows]: posterior over the true frame of an
    event of the predicate that the source labelled so."""

    reliability: Reliability
    predicate: Ints
    label: Ints
    frame: Ints
    probability: Floats


def single_source(
    predicate: Ints,
    label: Ints,
    frames: int,
    prior: Table | None = None,
    rate_prior: tuple[float, float] = RATE_PRIOR,
) -> SingleSource:
    """Error rate of one source of labels from how far the labels of each predicate agree, and the corrected labels.

    A predicate has a dominant frame t, a share s of minor frames, and k different labels; with ρ and κ as above,

        p(y = t) = (1 − s)(1 − ρ) + ρ(1 − κ)/K + s·ρκ/(k − 1)
        p(y ≠ t) = [ρκ + s(1 − ρ)]·q(y) + ρ(1 − κ)/K,    q: c(y|t) of the other predicates at first, then 1/(k − 1)

    t and s are summed out; ρ and κ maximise the result. It identifies ρ through predicates that have one frame: most of
    them do, by the prior of s. Where too few predicates repeat, the rate is None and labels are returned as they are.

    predicate, label [events]; prior: p(t|predicate) up to a constant, [predicates, K], such as a dictionary's.
    """
    cells = _Cells(predicate, label, frames, prior)
    enough = frames > 1 and cells.repeats >= ENOUGH
    if not enough:
        one = np.ones(len(cells.label))
        nothing = Reliability(None, None, False, len(label))
        return SingleSource(nothing, cells.predicate, cells.label, cells.label, one)

    def score(rho: float, kappa: float) -> float:
        penalty = rate_prior[0] * np.log(rho) + rate_prior[1] * np.log1p(-rho) + np.log(kappa) + np.log1p(-kappa)
        return float(cells.log_marginal(rho, kappa)[1].sum() + penalty)

    rho, kappa = _highest(score, (-3.0, 0.0), (4.0, 4.0))
    row, true, probability = cells.posterior(rho, kappa)
    found = Reliability(float(rho), float(kappa), True, len(label))
    return SingleSource(found, cells.predicate[row], cells.label[row], true, probability)


def _highest(score: Callable[[float, float], float], start: tuple[float, float], reach: tuple[float, float]) -> Floats:
    """Two probabilities of the highest score: a 3 × 3 grid of log-odds that follows its best point and shrinks."""
    best, step = np.array(start), np.array(reach) / 2
    seen: dict[tuple[float, float], float] = {}
    while step.max() > 0.02:
        grid = [best + step * (np.array(offset) - 1) for offset in np.ndindex(3, 3)]
        for x in grid:
            if tuple(x) not in seen:
                seen[tuple(x)] = score(*np.clip(1 / (1 + np.exp(-x)), 1e-6, 1 - 1e-6))
        top = max(grid, key=lambda x: seen[tuple(x)])
        if (top == best).all():
            step = step / 2
        best = top
    return np.asarray(np.clip(1 / (1 + np.exp(-best)), 1e-6, 1 - 1e-6))


class _Cells:
    """Counts of (predicate, label), and for each predicate its possible dominant frames paired with all its labels."""

    def __init__(self, predicate: Ints, label: Ints, frames: int, prior: Table | None) -> None:
        key, count = np.unique(predicate * frames + label, return_counts=True)
        self.predicate, self.label, self.count, self.frames = key // frames, key % frames, count.astype(float), frames
        _, group, kinds = np.unique(self.predicate, return_inverse=True, return_counts=True)
        self.group, self.groups, start = group, len(kinds), np.cumsum(kinds) - kinds
        self.repeats = int(count.sum()) - self.groups
        order = np.lexsort((-count, group))
        rank = np.empty(len(key), np.int64)
        rank[order] = np.arange(len(key)) - start[group[order]]
        likely = rank < _DOMINANT
        self.dominant = np.flatnonzero(likely)
        width = kinds[group[self.dominant]]
        self.first = np.cumsum(width) - width
        self.pair = np.repeat(np.arange(len(self.dominant)), width)
        self.cell = np.arange(int(width.sum())) - self.first[self.pair] + start[group[self.dominant]][self.pair]
        true, seen = self.label[self.dominant][self.pair], self.label[self.cell]
        self.same, self.kinds = true == seen, width[self.pair]
        likely_group, likely_label = group[self.dominant], self.label[self.dominant]
        i, j = matches(likely_group, likely_group)
        shared = Table(likely_label[i], likely_label[j], np.ones(len(i)), frames)
        degree = np.bincount(shared.row, shared.value * (shared.row != shared.column), minlength=frames)
        own = np.minimum(width, _DOMINANT) - 1  # what the predicate itself adds to the graph is left out
        elsewhere = np.maximum(degree[self.label[self.dominant]] - own, 0.0)
        joint = np.maximum(shared(true, seen) - likely[self.cell], 0.0) * ~self.same
        self.graph = (joint + 1.0 / frames) / (elsewhere[self.pair] + 1.0)
        self.alone = 1.0 / (elsewhere[self.pair] + 1.0)  # no frame to be confused with: the label stays
        weight = np.ones(len(self.dominant))
        if prior is not None:
            weight = prior(self.predicate[self.dominant], self.label[self.dominant]) + 1e-4
        self.log_prior = np.log(weight / np.bincount(group[self.dominant], weight)[group[self.dominant]])

    def log_marginal(self, rho: float, kappa: float) -> tuple[Floats, Floats]:
        """log p(labels, t, s) [dominant, shares], and its sum over t and s [predicates]."""
        anywhere, n, others = rho * (1 - kappa) / self.frames, self.count[self.cell], np.maximum(self.kinds - 1, 1)
        out = np.empty((len(self.dominant), len(_MINOR_SHARES)))
        for column, s in enumerate(_MINOR_SHARES):
            back = np.where(self.kinds == 1, (1 - s) * rho * kappa * self.alone, s * rho * kappa / others)
            off = rho * kappa + s * (1 - rho)
            stays = n * np.log((1 - s) * (1 - rho) + anywhere + back + TINY)
            leaves = np.log(off * self.graph + anywhere + TINY) + (n - 1) * np.log(off / others + anywhere + TINY)
            out[:, column] = np.add.reduceat(np.where(self.same, stays, leaves), self.first)
        out += np.log(_MINOR_WEIGHTS) + self.log_prior[:, None]
        by_frame, group = np.logaddexp.reduce(out, axis=1), self.group[self.dominant]
        top = np.full(self.groups, -np.inf)
        np.maximum.at(top, group, by_frame)
        return out, top + np.log(np.bincount(group, np.exp(by_frame - top[group]), minlength=self.groups))

    def posterior(self, rho: float, kappa: float) -> tuple[Ints, Ints, Floats]:
        """p(t|predicate, label) as rows: cell, t, probability."""
        joint, total = self.log_marginal(rho, kappa)
        weight = np.exp(joint - total[self.group[self.dominant]][:, None])
        major, minor = (weight * (1 - _MINOR_SHARES)).sum(1), (weight * _MINOR_SHARES).sum(1)
        others = np.maximum(self.kinds - 1, 1)
        share = np.where(self.same, major[self.pair], minor[self.pair] / others)
        expected = np.bincount(self.cell, share, minlength=len(self.label))  # E p(t|predicate)
        noise = np.where(self.same, 1 - rho, rho * kappa / others) + rho * (1 - kappa) / self.frames
        value = expected[self.dominant][self.pair] * noise
        value /= np.bincount(self.cell, value, minlength=len(self.label))[self.cell]
        keep = value > 1e-3
        return self.cell[keep], self.label[self.dominant][self.pair][keep], value[keep]
