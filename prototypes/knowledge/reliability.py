"""Reliability of knowledge sources: a posterior over the true frame of each item, and an error rate for each source.

Sources name frames of items; t is the true frame, K the number of frames:

    label y           p(y|t) = 1 − ρ if y = t, else ρ·[(1 − κ)/(K − 1) + κ·c(y|t)]
    candidates A, w   p(A|t) ∝ (1 − ρ)·w(t)/Σw if t ∈ A, else ρ/(K − |A|)
    distribution d    a belief: b(t) = Σ_s (1 − ρ_s)·d_s(t)/Σ_s (1 − ρ_s), averaged and never sharpened

    p(t|item) ∝ b(t)·Π_s p(y_s|t)^confidence,    b: the belief, else the item's prior, else the prior over frames

ρ is the source's error rate (for candidates: how often the entry lacks the true frame), κ the share of its errors that
are confusable; c(y|t) says which frames share predicates with t (`shared_predicates`). All are pooled over frames and
estimated by EM (Dawid and Skene) under a Beta prior. Evidence is stored for named frames only; all other frames of an
item are one remainder. `label_noise.single_source` estimates ρ and κ where one source stands alone. A rate that the
data cannot tell is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Kind = Literal["label", "candidates", "distribution"]

RATE_PRIOR = (1.0, 9.0)  # Beta prior of an error rate: wrong and right labels seen beforehand
ASSUMED_RATE = 0.1  # stands in for a rate that cannot be identified
ENOUGH = 20  # comparisons below which a rate is not identified
TINY = 1e-12


@dataclass(frozen=True)
class Source:
    """What one source says: one row for each frame it names of an item.

    item, frame [rows]; weight [rows]: of candidates and distributions, 1 where not given; confidence: exponent of the
    likelihood, one number or one for each item [items].
    """

    kind: Kind
    item: Ints
    frame: Ints
    weight: Floats | None = None
    confidence: float | Floats = 1.0


@dataclass(frozen=True)
class Reliability:
    """error_rate: share of items that the source has wrong, None where it cannot be identified; confusable: share of
    these errors that go to frames sharing predicates with the true one, None where it is not modelled; items: how many
    it names."""

    error_rate: float | None
    confusable: float | None
    identified: bool
    items: int


@dataclass(frozen=True)
class Estimate:
    """Posterior over the true frame as rows of (item, frame, probability), sorted by item and frame; other [items]: the
    probability of all frames that nobody named; sources: name → Reliability; frame_prior [K]."""

    item: Ints
    frame: Ints
    probability: Floats
    other: Floats
    sources: dict[str, Reliability]
    frame_prior: Floats
    log_likelihood: float


def estimate(
    sources: Mapping[str, Source],
    items: int,
    frames: int,
    prior: tuple[Ints, Ints, Floats] | None = None,
    confusable: Table | None = None,
    *,
    confusion: Literal["pooled", "full"] = "pooled",
    frame_prior: Literal["uniform", "estimated"] = "uniform",
    rate_prior: tuple[float, float] = RATE_PRIOR,
    known_rates: Mapping[str, tuple[float, float]] | None = None,
    iterations: int = 100,
    tolerance: float = 1e-7,
) -> Estimate:
    """Posterior over the true frame of each item, and the reliability of each source.

    prior: rows (item, frame, probability) that sum to at most 1 for an item; what is missing is spread over its other
    frames. confusable: c(y|t), [K, K], rows t summing to 1 or 0. confusion "full": a matrix p(y|t) for each label
    source instead of ρ and κ, without priors (Dawid and Skene's own model; needs many labels for each frame).
    frame_prior: the prior over frames where nothing else is given. rate_prior: (0, 0) for maximum likelihood.
    known_rates: (ρ, κ) of sources that are not to be estimated, such as those found by `label_noise.single_source`.
    """
    known = dict(known_rates or {})
    support = _Support(sources, items, frames, prior, full=confusion == "full")
    views = {name: _view(source, support, frames, confusable) for name, source in sources.items()}
    beliefs = [name for name, source in sources.items() if source.kind == "distribution"]
    evidence = [name for name in sources if name not in beliefs]
    rates = {
        name: list(known.get(name, (ASSUMED_RATE, 0.5 if views[name].spread is not None else 0.0))) for name in sources
    }
    posterior, other = support.majority(views)
    matrices: dict[str, Floats] = {}
    by_frame = np.full(frames, 1.0 / frames)
    likelihood = -np.inf
    for step in range(iterations):
        if frame_prior == "estimated":
            by_frame = support.mean_by_frame(posterior, other, by_frame)
        for name in sources:
            view = views[name]
            if confusion == "full" and view.kind == "label":
                matrices[name] = view.matrix(posterior, support)
            elif name not in known:
                rates[name] = view.maximise(posterior, other, rates[name], rate_prior, first=step == 0)
        log_joint, log_other = support.log_prior(by_frame, [(views[name], rates[name][0]) for name in beliefs])
        for name in evidence:
            inside, outside = views[name].log_evidence(rates[name], support, matrices.get(name))
            log_joint, log_other = log_joint + inside, log_other + outside
        posterior, other, before = support.normalise(log_joint, log_other)
        likelihood, gain = before, before - likelihood
        if gain < tolerance * max(1, items):
            break
    reports = {}
    for name, view in views.items():
        others = sum(np.isin(view.named, views[o].named) for o in sources if o != name) + (0 if prior is None else 1)
        enough = frames > 1 and int((np.asarray(others) >= 2).sum()) >= ENOUGH
        identified = enough or name in known
        rate, share = rates[name]
        confused = None if view.spread is None or not identified else float(share)
        reports[name] = Reliability(float(rate) if identified else None, confused, identified, len(view.named))
    return Estimate(support.item, support.frame, posterior, other, reports, by_frame, likelihood)


class Table:
    """A sparse table of numbers [rows, width], looked up at many places at once; equal places are summed."""

    def __init__(self, row: Ints, column: Ints, value: Floats, width: int) -> None:
        self.key, place = np.unique(row * width + column, return_inverse=True)
        self.value = np.bincount(place.ravel(), value, minlength=len(self.key)).astype(float)
        self.row, self.column, self.width = self.key // width, self.key % width, width

    def __call__(self, row: Ints, column: Ints) -> Floats:
        if not len(self.key):
            return np.zeros(np.broadcast(row, column).shape)
        key = row * self.width + column
        place = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[place] == key, self.value[place], 0.0)


def matches(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """All pairs (i, j) with left[i] = right[j]."""
    order = np.argsort(right, kind="stable")
    begin, end = (np.searchsorted(right[order], left, side) for side in ("left", "right"))
    size = end - begin
    i = np.repeat(np.arange(len(left)), size)
    return i, order[np.arange(len(i)) - (np.cumsum(size) - size)[i] + begin[i]]


def shared_predicates(predicate: Ints, frame: Ints, frames: int) -> Table:
    """c(y|t) [K, K]: probability of frame y when a predicate of t is taken at random and another of its frames drawn.

    predicate, frame [rows]: which predicates have which frames (repetitions count once).
    """
    key = np.unique(predicate * frames + frame)
    predicate, frame = key // frames, key % frames
    i, j = matches(predicate, predicate)
    i, j = i[i != j], j[i != j]
    shared = Table(frame[i], frame[j], np.ones(len(i)), frames)
    shared.value /= np.bincount(shared.row, shared.value, minlength=frames)[shared.row]
    return shared


class _Support:
    """The frames that somebody named, item by item: sorted rows of (item, frame)."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        items: int,
        frames: int,
        prior: tuple[Ints, Ints, Floats] | None,
        full: bool,
    ) -> None:
        keys = [source.item * frames + source.frame for source in sources.values()]
        if prior is not None:
            keys.append(prior[0] * frames + prior[1])
        key = np.unique(np.concatenate(keys))
        if full:  # a matrix can move an item to any frame that was named together with its labels
            i, j = matches(key // frames, key // frames)
            together = np.unique(key[i] % frames * frames + key[j] % frames)  # pairs of frames
            i, j = matches(key % frames, together // frames)
            key = np.unique(key[i] // frames * frames + together[j] % frames)
        self.key, self.item, self.frame, self.items, self.frames = key, key // frames, key % frames, items, frames
        self.size = np.bincount(self.item, minlength=items)
        self.prior: Floats | None = None
        if prior is not None:
            self.prior = np.zeros(len(key))
            np.add.at(self.prior, self.rows(prior[0], prior[1]), prior[2])
            self.has_prior = np.bincount(prior[0], minlength=items) > 0

    def rows(self, item: Ints, frame: Ints) -> Ints:
        return np.searchsorted(self.key, item * self.frames + frame).astype(np.int64)

    def sum(self, values: Floats) -> Floats:
        return np.bincount(self.item, values, minlength=self.items).astype(float)

    def majority(self, views: Mapping[str, _View]) -> tuple[Floats, Floats]:
        votes = np.zeros(len(self.key))
        for view in views.values():
            np.add.at(votes, view.row, view.weight)
        total = self.sum(votes)
        return votes / np.maximum(total, TINY)[self.item], (total <= 0).astype(float)

    def mean_by_frame(self, posterior: Floats, other: Floats, before: Floats) -> Floats:
        """Mean posterior of each frame; an item's remainder is shared among the frames outside in proportion."""
        outside = np.maximum(1 - self.sum(before[self.frame]), TINY)
        ratio = np.where(other > 0, other / outside, 0.0)
        inside = np.bincount(self.frame, posterior - before[self.frame] * ratio[self.item], minlength=self.frames)
        total: Floats = np.maximum(inside + before * ratio.sum(), 0.0)
        return np.asarray(total / total.sum())

    def log_prior(self, by_frame: Floats, beliefs: list[tuple[_View, float]]) -> tuple[Floats, Floats]:
        inside = by_frame[self.frame]
        if self.prior is not None:
            left = np.maximum(1 - self.sum(self.prior), 0.0) / np.maximum(self.frames - self.size, 1)
            inside = np.where(self.has_prior[self.item], self.prior + left[self.item], inside)
        average, weight = np.zeros(len(self.key)), np.zeros(self.items)
        for view, rate in beliefs:
            trust = max(1 - rate, 1e-3) * view.confidence
            np.add.at(average, view.row, view.weight * trust[self.item[view.row]])
            weight[view.named] += trust[view.named]
        told = weight > 0
        inside = np.where(told[self.item], average / np.maximum(weight, TINY)[self.item], inside)
        outside = np.where(self.size < self.frames, np.maximum(1 - self.sum(inside), 0.0), 0.0)
        with np.errstate(divide="ignore"):
            return np.log(inside), np.log(np.where(outside > 1e-9, outside, 0.0))

    def normalise(self, log_joint: Floats, log_other: Floats) -> tuple[Floats, Floats, float]:
        top = log_other.copy()
        np.maximum.at(top, self.item, log_joint)
        top = np.where(np.isfinite(top), top, 0.0)
        inside, outside = np.exp(log_joint - top[self.item]), np.exp(log_other - top)
        total = np.maximum(self.sum(inside) + outside, 1e-300)
        return inside / total[self.item], outside / total, float((np.log(total) + top).sum())


@dataclass
class _View:
    """A source on the support. row, weight: its rows there, weights summing to 1 for an item; named: its items;
    spread: c(y|t) at every row of the support, for labels; label [items]: its label, −1 where it has none."""

    kind: Kind
    row: Ints
    weight: Floats
    named: Ints
    confidence: Floats
    item: Ints
    label: Ints
    frames: int
    size: Floats
    spread: Floats | None

    def maximise(
        self, posterior: Floats, other: Floats, rate: list[float], prior: tuple[float, float], first: bool
    ) -> list[float]:
        """M-step: expected share of wrong items, and of confusable ones among these."""
        n = len(self.named)
        hit = np.bincount(self.item[self.row], posterior[self.row], minlength=len(other))
        if self.kind == "distribution":  # against the score of a calibrated distribution: Σ d²
            score = float((posterior[self.row] * self.weight).sum() / max(float((self.weight**2).sum()), TINY))
            return [float(np.clip((n * (1 - score) + prior[0]) / (n + sum(prior) + TINY), 0.0, 1.0)), 0.0]
        wrong = n - float(hit[self.named].sum())
        rho = (wrong + prior[0]) / (n + prior[0] + prior[1] + TINY)
        kappa = rate[1]
        if self.spread is not None:
            away = posterior * (self.label[self.item] >= 0)
            away[self.row] = 0.0
            confused = kappa * self.spread
            anywhere = (1 - kappa) / max(self.frames - 1, 1)
            expected = float((away * confused / np.maximum(confused + anywhere, TINY)).sum())
            kappa = (expected + (prior[0] > 0)) / (wrong + 2 * (prior[0] > 0) + TINY)
        return [float(np.clip(rho, 1e-10, 1 - 1e-10)), float(np.clip(kappa, 0.0, 1.0))]

    def log_evidence(self, rate: list[float], support: _Support, matrix: Floats | None) -> tuple[Floats, Floats]:
        """log p(what the source says|t) at every row of the support and for the remainder [items]."""
        rho, kappa = rate
        there = np.bincount(self.named, minlength=support.items) > 0
        if self.kind == "label":
            anywhere = rho * (1 - kappa) / max(self.frames - 1, 1)
            inside = (
                np.full(len(support.key), anywhere) if self.spread is None else anywhere + rho * kappa * self.spread
            )
            outside = np.full(support.items, anywhere)
            inside[self.row] = 1 - rho
            if matrix is not None:
                inside, outside = matrix, np.full(support.items, TINY)
        else:
            missing = rho / np.maximum(self.frames - self.size, 1)
            inside, outside = missing[support.item], missing
            inside[self.row] = (1 - rho) * self.weight
        log_inside = np.log(np.maximum(inside, 1e-300)) * self.confidence[support.item]
        return np.where(there[support.item], log_inside, 0.0), np.where(
            there, np.log(np.maximum(outside, 1e-300)) * self.confidence, 0.0
        )

    def matrix(self, posterior: Floats, support: _Support) -> Floats:
        """p(y|t) by expected counts, at every row of the support: y the item's label, t the row's frame."""
        label = self.label[support.item]
        told = label >= 0
        cells, cell = np.unique(support.frame[told] * self.frames + label[told], return_inverse=True)
        count = np.maximum(np.bincount(cell, posterior[told], minlength=len(cells)), 1e-10)
        total = np.bincount(cells // self.frames, count, minlength=self.frames)
        out = np.ones(len(label))
        out[told] = (count / total[cells // self.frames])[cell]
        return out


def _view(source: Source, support: _Support, frames: int, confusable: Table | None) -> _View:
    item, frame = np.asarray(source.item, np.int64), np.asarray(source.frame, np.int64)
    weight = np.ones(len(item)) if source.weight is None else np.asarray(source.weight, float)
    if (weight < 0).any() or not np.isfinite(weight).all():
        raise ValueError("weights: expected finite numbers of 0 or more")
    total = np.bincount(item, weight, minlength=support.items)
    named, size = np.unique(item), np.bincount(item, minlength=support.items).astype(float)
    if (total[named] <= 0).any():
        raise ValueError("weights: those of an item sum to 0")
    row = support.rows(item, frame)
    label, spread = np.full(support.items, -1, np.int64), None
    if source.kind == "label":
        if (size > 1).any():
            raise ValueError("a label source names one frame for an item")
        label[item] = frame
        if confusable is not None:
            told = label[support.item] >= 0
            spread = np.zeros(len(support.key))
            spread[told] = confusable(support.frame[told], label[support.item][told])
    confidence = np.broadcast_to(np.asarray(source.confidence, float), (support.items,))
    return _View(source.kind, row, weight / total[item], named, confidence, support.item, label, frames, size, spread)
