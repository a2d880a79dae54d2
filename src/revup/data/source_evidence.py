"""Evidence of knowledge sources, item by item and in sparse form: the inner part of `revup.data.reliability`.

Frames that somebody named of an item are stored as rows (the support); all other frames of the item are one remainder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from revup.data.sparse_table import Floats, Ints, Table, matches

Kind = Literal["label", "candidates", "distribution"]
Prior = tuple[Ints, Ints, Floats]
TINY = 1e-12


@dataclass(frozen=True)
class Source:
    """What one source says: one row for each frame that it names of an item.

    Attributes:
        kind: "label" (one frame an item, wrong at some rate), "candidates" (the true frame is one of these) or
            "distribution" (a belief over the true frame).
        item, frame: [rows].
        weight: Of candidates and distributions [rows]; 1 where not given.
        confidence: Exponent of the likelihood: one number, or one for each item [items].
    """

    kind: Kind
    item: Ints
    frame: Ints
    weight: Floats | None = None
    confidence: float | Floats = 1.0


class Support:
    """The frames that somebody named, item by item: sorted rows of (item, frame)."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        items: int,
        frames: int,
        prior: Prior | None,
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
        """Return the rows of these frames of these items, which must be there."""
        return np.searchsorted(self.key, item * self.frames + frame).astype(np.int64)

    def sum(self, values: Floats) -> Floats:
        """Return the sum over the rows of each item."""
        return np.bincount(self.item, values, minlength=self.items).astype(float)

    def majority(self, views: Mapping[str, View]) -> tuple[Floats, Floats]:
        """Return the share of votes of each row, and 1 for items without any: where EM starts."""
        votes = np.zeros(len(self.key))
        for view in views.values():
            np.add.at(votes, view.row, view.weight)
        total = self.sum(votes)
        return votes / np.maximum(total, TINY)[self.item], (total <= 0).astype(float)

    def mean_by_frame(self, posterior: Floats, other: Floats, before: Floats) -> Floats:
        """Return the mean posterior of each frame; an item's remainder is shared in proportion among frames outside."""
        outside = np.maximum(1 - self.sum(before[self.frame]), TINY)
        ratio = np.where(other > 0, other / outside, 0.0)
        inside = np.bincount(self.frame, posterior - before[self.frame] * ratio[self.item], minlength=self.frames)
        total: Floats = np.maximum(inside + before * ratio.sum(), 0.0)
        return np.asarray(total / total.sum())

    def log_prior(self, by_frame: Floats, beliefs: list[tuple[View, float]]) -> tuple[Floats, Floats]:
        """Return log b(t) of rows and remainders: the average belief, else the prior of the item or of frames."""
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
        """Return the posterior of rows and remainders (E-step), and the log likelihood."""
        top = log_other.copy()
        np.maximum.at(top, self.item, log_joint)
        top = np.where(np.isfinite(top), top, 0.0)
        inside, outside = np.exp(log_joint - top[self.item]), np.exp(log_other - top)
        total = np.maximum(self.sum(inside) + outside, 1e-300)
        return inside / total[self.item], outside / total, float((np.log(total) + top).sum())


@dataclass
class View:
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

    def maximise(self, posterior: Floats, other: Floats, rate: list[float], prior: tuple[float, float]) -> list[float]:
        """Return ρ and κ (M-step): the expected share of wrong items, and of confusable ones among these."""
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

    def log_evidence(self, rate: list[float], support: Support, matrix: Floats | None) -> tuple[Floats, Floats]:
        """Return log p(what the source says|t) at every row of the support and for the remainder [items]."""
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

    def matrix(self, posterior: Floats, support: Support) -> Floats:
        """Return p(y|t) by expected counts, at every row of the support: y the item's label, t the row's frame."""
        label = self.label[support.item]
        told = label >= 0
        cells, cell = np.unique(support.frame[told] * self.frames + label[told], return_inverse=True)
        count = np.maximum(np.bincount(cell, posterior[told], minlength=len(cells)), 1e-10)
        total = np.bincount(cells // self.frames, count, minlength=self.frames)
        out = np.ones(len(label))
        out[told] = (count / total[cells // self.frames])[cell]
        return out


def view_of(source: Source, support: Support, frames: int, confusable: Table | None) -> View:
    """Return a source on the support.

    Raises:
        ValueError: A weight is negative or not finite, those of an item sum to 0, or a label source names two frames.
    """
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
    return View(source.kind, row, weight / total[item], named, confidence, support.item, label, frames, size, spread)
