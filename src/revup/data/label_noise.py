"""Errors of a single source of labels, estimated from how far the labels of each predicate agree.

One source cannot be checked against another, but events of one predicate can be checked against each other: most
predicates have one frame, so labels that scatter over all predicates alike are errors, while labels that scatter over
some predicates are ambiguity. A predicate has a dominant frame t, a share s of minor frames, and k different labels:

    p(y = t) = (1 − s)(1 − ρ) + ρ(1 − κ)/K + s·ρκ/(k − 1)
    p(y ≠ t) = [ρκ + s(1 − ρ)]·q(y) + ρ(1 − κ)/K,    q: c(y|t) of the other predicates at first, then 1/(k − 1)

ρ is the error rate, κ the share of errors that go to confusable frames (see `revup.data.reliability`). t and s are
summed out; the weights of s are estimated, but at least a fixed part of the predicates has s = 0: without that
assumption confusable errors and ambiguity cannot be told apart. The rate is None unless the likelihood says it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from revup.data.reliability import GRID, SMALL, WIDEST, Reliability, interval
from revup.data.source_evidence import TINY
from revup.data.sparse_table import Floats, Ints, Table, entries, matches

RATE_PRIOR = (1.0, 100.0)  # Beta prior of the error rate: wrong and right labels seen beforehand
EVIDENCE = 6.0  # log likelihood by which errors must explain the labels better than ambiguity alone
_SHARES = np.array([0.0, 0.1, 0.3, 0.5])  # s
_WEIGHTS = np.array([0.7, 0.1, 0.1, 0.1])  # prior of s, worth _WORTH predicates
_WORTH, _LEAST = 30.0, 0.4  # least weight of s = 0
_SPREAD = 4.0  # frames beside those observed that repeated errors go to, where the dominant frame is not observed
_APART = 0.1  # factor on c(y|t) of a second label there: both must be confusable with the dominant frame
_DOMINANT = 6  # frames of a predicate that may be its dominant one
_KAPPA = np.array([0.03, 0.2, 0.5, 0.8, 0.97])


@dataclass(frozen=True)
class SingleSource:
    """What `single_source` finds.

    Attributes:
        reliability: Of the source.
        predicate, label, frame, probability: The posterior over the true frame of an event of the predicate that the
            source labelled so [rows]. Where the rate is not identified, the labels as they are.
        channel: ρ and κ of the equations; fewer labels are wrong where predicates have no frame to be confused with.
    """

    reliability: Reliability
    predicate: Ints
    label: Ints
    frame: Ints
    probability: Floats
    channel: tuple[float, float] = (0.0, 0.0)


def single_source(
    predicate: Ints,
    label: Ints,
    frames: int,
    prior: Table | None = None,
    rate_prior: tuple[float, float] = RATE_PRIOR,
    document: Ints | None = None,
    known: tuple[float, float] | None = None,
) -> SingleSource:
    """Estimate the error rate of one source of labels, and correct its labels.

    The rate is None where nothing tells errors from ambiguity: no predicate is labelled twice (in two documents), there
    is one frame, or a large rate and none explain the labels about equally well.

    Args:
        predicate, label: The predicate and the label of each event [events].
        frames: The number of frames K.
        prior: p(t|predicate) up to a constant [predicates, K], such as a dictionary's.
        rate_prior: Wrong and right labels seen beforehand.
        document: The document of each event; labels of one document do not confirm each other.
        known: (ρ, κ), where they are not to be estimated.
    """
    cells = _Cells(np.asarray(predicate, np.int64), np.asarray(label, np.int64), frames, prior)
    if known is not None and frames > 1 and len(label):
        rho, kappa = (float(np.clip(value, 1e-6, 1 - 1e-6)) for value in known)
        cell, true, probability, _ = cells.posterior(rho, kappa)
        given = Reliability(known[0], known[1], True, len(label))
        return SingleSource(given, cells.predicate[cell], cells.label[cell], true, probability, (rho, kappa))
    if document is None:
        repeats = len(label) - cells.groups
    else:
        both = np.unique(np.stack([predicate, document]), axis=1).shape[1]
        repeats = both - cells.groups
    if frames < 2 or repeats < 1:
        return _as_they_are(cells, len(label), None)

    def penalty(rho: float, kappa: float) -> float:
        beta = rate_prior[0] * np.log(rho) + rate_prior[1] * np.log1p(-rho)
        return float(beta + np.log(kappa) + np.log1p(-kappa))

    likelihood = np.array([[cells.log_likelihood(rho, kappa) for kappa in _KAPPA] for rho in GRID])
    start = (likelihood + [[penalty(rho, kappa) for kappa in _KAPPA] for rho in GRID]).max(1).argmax()
    rho, kappa = _highest(lambda r, k: cells.log_likelihood(r, k) + penalty(r, k), float(GRID[start]))
    curve, top = likelihood.max(1), cells.log_likelihood(rho, kappa)
    cell, true, probability, confused = cells.posterior(rho, kappa)
    moved = cells.count[cell] * probability * confused * (cells.label[cell] != true)
    share = min(float(moved.sum() / cells.count.sum()), rho * kappa)  # less where no frame is confusable
    wrong = rho * (1 - kappa) * (1 - 1 / frames) + share
    span = interval(rho, top, GRID, curve)
    found = (span[0] * wrong / rho, min(span[1] * wrong / rho, 1.0))
    top, clean = max(top, float(curve.max())), float(curve[GRID <= 0.02].max())
    above = found[0] >= SMALL / 2 and found[1] - found[0] <= WIDEST and top - clean >= EVIDENCE
    if not (above or found[1] <= SMALL):
        return _as_they_are(cells, len(label), found)
    reliability = Reliability(wrong, share / max(wrong, TINY), True, len(label), found)
    return SingleSource(reliability, cells.predicate[cell], cells.label[cell], true, probability, (rho, kappa))


def _as_they_are(cells: _Cells, items: int, found: tuple[float, float] | None) -> SingleSource:
    reliability = Reliability(None, None, False, items, found)
    return SingleSource(reliability, cells.predicate, cells.label, cells.label, np.ones(len(cells.label)))


def _highest(score: Callable[[float, float], float], rho: float) -> tuple[float, float]:
    """Return the probabilities ρ and κ of the highest score: a 3 × 3 grid of log-odds that moves to its
    best point, or shrinks if that is its centre."""
    best, step = np.array([np.log(rho / (1 - rho)), 0.0]), np.array([0.4, 2.0])
    seen: dict[tuple[float, float], float] = {}

    def at(x: Floats) -> tuple[float, float]:
        first, second = np.clip(1 / (1 + np.exp(-x)), 1e-6, 1 - 1e-6)
        return float(first), float(second)

    while step[0] > 0.02:
        grid = [best + step * (np.array(offset) - 1) for offset in np.ndindex(3, 3)]
        for x in grid:
            key = (float(x[0]), float(x[1]))
            if key not in seen:
                seen[key] = score(*at(x))
        top = max(grid, key=lambda x: seen[float(x[0]), float(x[1])])
        step = step / 2 if (top == best).all() else step
        best = top
    return at(best)


class _Cells:
    """Counts n of (predicate, label), and the possible dominant frames t of each predicate paired with all its labels.

    Labels of a predicate that are as frequent and as confusable with t as each other are one term with a multiplicity:
    under uniform noise most labels of a frequent predicate are such.
    """

    def __init__(self, predicate: Ints, label: Ints, frames: int, prior: Table | None) -> None:
        key, count = np.unique(predicate * frames + label, return_counts=True)
        self.predicate, self.label, self.count, self.frames = key // frames, key % frames, count.astype(float), frames
        _, group, kinds = np.unique(self.predicate, return_inverse=True, return_counts=True)
        self.group, self.groups, start = group, len(kinds), np.cumsum(kinds) - kinds
        order = np.lexsort((-count, group))
        rank = np.empty(len(key), np.int64)
        rank[order] = np.arange(len(key)) - start[group[order]]
        likely = rank < _DOMINANT
        self.dominant = np.flatnonzero(likely)
        owner, frame = group[self.dominant], self.label[self.dominant]
        self.kinds = kinds[owner]
        first = np.cumsum(self.kinds) - self.kinds
        self.pair = np.repeat(np.arange(len(self.dominant)), self.kinds)
        self.cell = np.arange(len(self.pair)) + (start[owner] - first)[self.pair]
        i, j = matches(owner, owner)
        shared = Table(frame[i], frame[j], np.ones(len(i)), frames)
        degree = np.bincount(shared.row, shared.value * (shared.row != shared.column), minlength=frames)
        own = np.minimum(self.kinds, _DOMINANT) - 1  # what the predicate itself adds to the graph is left out
        self.elsewhere = np.maximum(degree[frame] - own, 0.0)
        self.same = self.dominant[self.pair] == self.cell
        joint = np.zeros(len(self.pair))
        both = np.flatnonzero(likely[self.cell] & ~self.same)
        joint[both] = np.maximum(shared(frame[self.pair[both]], self.label[self.cell[both]]) - 1.0, 0.0)
        self._merge(joint)
        weight, unnamed = np.ones(len(self.dominant)), np.ones(self.groups)
        if prior is not None:
            share = prior(self.predicate[self.dominant], frame)
            weight = frames * share + 0.1
            unnamed = np.maximum(1 - np.bincount(owner, share, minlength=self.groups), 0.01) * max(0.1 * frames, 1.0)
        self.log_prior, self.log_unnamed = np.log(weight), np.log(unnamed)
        top = np.flatnonzero(rank[self.dominant] == 0)  # one for each predicate
        self.top_term, self.top_owner, _ = entries(np.append(self.term_first, len(self.term)), top)

    def _merge(self, joint: Floats) -> None:
        """Gather the terms of each dominant frame by (is it t, n, joint)."""
        n = self.count[self.cell]
        order = np.lexsort((joint, n, self.same, self.pair))
        columns = np.stack([self.pair[order], self.same[order], n[order], joint[order]])
        first = np.flatnonzero(np.r_[True, (columns[:, 1:] != columns[:, :-1]).any(0)])
        self.term = columns[0][first].astype(np.int64)
        self.term_same, self.term_n, joint = columns[1][first] > 0, columns[2][first], columns[3][first]
        self.times = np.diff(np.append(first, len(order))).astype(float)
        self.term_first = np.flatnonzero(np.r_[True, self.term[1:] != self.term[:-1]])
        self.graph = (joint + 1.0 / self.frames) / (self.elsewhere[self.term] + 1.0)

    def log_joint(self, rho: float, kappa: float) -> Floats:
        """Return log p(labels|t, s) [dominant, shares]."""
        anywhere, others = rho * (1 - kappa) / self.frames, np.maximum(self.kinds - 1, 1)
        alone = 1.0 / (self.elsewhere + 1.0)  # no frame to be confused with: the label stays
        out = np.empty((len(self.dominant), len(_SHARES)))
        for column, s in enumerate(_SHARES):
            back = np.where(self.kinds == 1, (1 - s) * rho * kappa * alone, s * rho * kappa / others)
            off = rho * kappa + s * (1 - rho)
            stays = np.log((1 - s) * (1 - rho) + anywhere + back + TINY)[self.term]
            again = np.log(off / others + anywhere + TINY)[self.term]
            leaves = np.log(off * self.graph + anywhere + TINY) + (self.term_n - 1) * again
            value = self.times * np.where(self.term_same, self.term_n * stays, leaves)
            out[:, column] = np.add.reduceat(value, self.term_first)
        return out

    def log_unseen(self, rho: float, kappa: float) -> Floats:
        """Return log p(labels|s) for a dominant frame that no label names [predicates, shares].

        With it a single label says nothing: its probability is the same whatever ρ, κ and s are.
        """
        term, owner = self.top_term, self.top_owner
        n, times, kinds = self.term_n[term], self.times[term], np.bincount(self.group)
        anywhere = rho * (1 - kappa) / self.frames
        out = np.empty((self.groups, len(_SHARES)))
        for column, s in enumerate(_SHARES):
            off = rho * kappa + s * (1 - rho)
            again = (n - 1) * np.log(s * (1 - rho) / kinds + rho * kappa / (kinds + _SPREAD) + anywhere + TINY)[owner]
            first = np.log(off + rho * (1 - kappa) + TINY)
            once = np.where(self.term_same[term], first, np.log(off * _APART * self.graph[term] + anywhere + TINY))
            out[:, column] = np.bincount(owner, times * (once + again), minlength=self.groups)
        return out

    def by_share(self, joint: Floats, unseen: Floats) -> tuple[Floats, Floats]:
        """Return p(labels|s)/e^top [predicates, shares] with the dominant frame summed out, and top [predicates]."""
        owner = self.group[self.dominant]
        joint, unseen = joint + self.log_prior[:, None], unseen + self.log_unnamed[:, None]
        top = unseen.max(1)
        np.maximum.at(top, owner, joint.max(1))
        out = np.exp(unseen - top[:, None])
        np.add.at(out, owner, np.exp(joint - top[owner][:, None]))
        return out, top

    def log_likelihood(self, rho: float, kappa: float) -> float:
        """Return log p(labels), with the weights of s that maximise it under their prior."""
        shares, top = self.by_share(self.log_joint(rho, kappa), self.log_unseen(rho, kappa))
        weights = _best_weights(shares)
        penalty = _WORTH * float((_WEIGHTS * np.log(weights)).sum())
        return float((np.log(np.maximum(shares @ weights, 1e-300)) + top).sum()) + penalty

    def posterior(self, rho: float, kappa: float) -> tuple[Ints, Ints, Floats, Floats]:
        """Return p(t|predicate, label) as rows: cell, t, probability, share of confusable errors in it."""
        joint = self.log_joint(rho, kappa)
        shares, top = self.by_share(joint, self.log_unseen(rho, kappa))
        weights, owner = _best_weights(shares), self.group[self.dominant]
        weight = np.exp(joint + self.log_prior[:, None] - top[owner][:, None]) * weights
        weight /= (shares @ weights)[owner][:, None]
        major, minor = (weight * (1 - _SHARES)).sum(1), (weight * _SHARES).sum(1)
        others = np.maximum(self.kinds - 1, 1)[self.pair]
        share = np.where(self.same, major[self.pair], minor[self.pair] / others)
        expected = np.bincount(self.cell, share, minlength=len(self.label))  # E p(t|predicate)
        noise = np.where(self.same, 1 - rho, rho * kappa / others) + rho * (1 - kappa) / self.frames
        value = expected[self.dominant][self.pair] * noise
        value /= np.bincount(self.cell, value, minlength=len(self.label))[self.cell]
        keep = value > 1e-3
        confused = np.where(self.same, 0.0, rho * kappa / others) / noise
        return self.cell[keep], self.label[self.dominant][self.pair][keep], value[keep], confused[keep]


def _best_weights(shares: Floats, iterations: int = 30) -> Floats:
    """Return the weights of s that maximise Σ log Σ_s w_s·p_s under their prior, with w_0 at least _LEAST."""
    weights = _WEIGHTS
    for _ in range(iterations):
        part = shares * weights
        total = (part / np.maximum(part.sum(1, keepdims=True), 1e-300)).sum(0) + _WORTH * _WEIGHTS
        before, weights = weights, total / total.sum()
        if weights[0] < _LEAST:
            weights = np.append(_LEAST, (1 - _LEAST) * weights[1:] / weights[1:].sum())
        if np.abs(weights - before).max() < 1e-3:
            break
    return weights
