"""Correct labels, predicate by predicate.

A label y of predicate l comes from the true frame t by a channel, ρ and κ as in `revup.data.reliability`, k the number
of different labels of l:

    p(y|t, l) = (1 − ρ)·[y = t] + ρκ·[y ≠ t]/(k − 1) + ρ(1 − κ)/K        1/(k + m) for a frame t that no label names

Where k = 1, the label also stays if the frame has none to be confused with. A part u = min_t p(y|t, l) of a label's
probability does not depend on the true frame: as far as the label comes from there, it says nothing and counts nothing.
What it tells of t is found by iteration, with θ from all other labels of the predicate:

    r_y(t) = θ(t)·(p(y|t, l) − u)/[u + Σ_t' θ(t')·(p(y|t', l) − u)],    θ = (C_l − r_y + a·G_l)/(N_l − Σ r_y + a)
    C_l(t) = Σ_y n_y·r_y(t)

So labels that are wrong half of the time between two frames leave the choice to G, and labels that are nearly all wrong
leave a dictionary's entry alone. ρ of confusable errors has the highest variational bound of

    p(labels|ρ) = Π_l ∫ Dirichlet(θ; a·G_l) Π_y [Σ_t θ(t)·p(y|t, l)]^{n_y} dθ,

unless `single_source` finds less: both take some ambiguity for errors. Where several sources label an event, p(y|t, l)
is the product over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from revup.data.sparse_table import Floats, Ints, Table, entries
from revup.models.count_features import pair_sums
from revup.models.count_tables import Labels

ITERATIONS, BOUND_ITERATIONS = 100, 30
PREDICATES = 2000  # that ρ is estimated from
STRENGTH = 1.0  # a, in the estimate of ρ
UNNAMED = 4.0  # m
COMMON = 6  # labels of a predicate that say which frames are confusable
NEGLIGIBLE = 0.02  # of p(y|y, l): smaller differences between frames are left out
LEAST = 1e-3  # of a corrected label that is kept
RATES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)


class Candidates:
    """Frames that predicates may have: those that labels name, and those of G.

    Args:
        predicate: The predicate of each item.
        labels: The label of each item by each source, −1 where it has none [sources][items].
        prior: G [predicates, K], rows summing to 1 at most.
    """

    def __init__(self, predicate: Ints, labels: Sequence[Ints], prior: Table) -> None:
        width = prior.width
        self.frames, self.predicate = width, predicate
        self.groups, self.group = np.unique(predicate, return_inverse=True)
        self.size = len(self.groups)
        row, position, _ = entries(prior.starts(int(self.groups.max(initial=0)) + 1), self.groups)
        likely = prior.value[row] > 1e-4
        named = [(predicate * width + label)[label >= 0] for label in labels]
        listed = self.groups[position[likely]] * width + prior.column[row[likely]]
        self.rows = np.unique(np.concatenate([*named, listed]))  # predicate·K + frame of each candidate
        self.owner: Ints = np.asarray(np.searchsorted(self.groups, self.rows // width), np.int64)
        self.back = prior(self.rows // width, self.rows % width)  # G


class GivenLabels:
    """Labels of one source among candidates. kinds: k; alone: see `_alone` [predicates]; key: predicate·K + label."""

    def __init__(self, candidates: Candidates, label: Ints) -> None:
        self.all, width = candidates, candidates.frames
        there = label >= 0
        self.key, amount = np.unique((candidates.predicate * width + label)[there], return_counts=True)
        self.amount = amount.astype(float)  # n_y
        self.group = np.searchsorted(candidates.groups, self.key // width)
        self.kinds = np.bincount(self.group, minlength=candidates.size).astype(float)
        self.named: Ints = np.asarray(np.searchsorted(candidates.rows, self.key), np.int64)  # row of each label
        self.observed = np.zeros(len(candidates.rows), bool)
        self.observed[self.named] = True
        self.alone = np.zeros(candidates.size)
        self.alone[self.group] = _alone(self.kinds[self.group], self.key % width, width)

    def channel(self, rho: float, kappa: float) -> tuple[Floats, Floats, Floats]:
        """Return p(y|t, l) for y = t, for another label t, and for a frame t that no label names [predicates]."""
        return _channel(rho, kappa, self.kinds, self.alone, self.all.frames)

    def bound(self, rho: float, kappa: float) -> float:
        """Return the variational lower bound of log p(labels|ρ)."""
        channel, owner, size = self.channel(rho, kappa), self.all.owner, self.all.size
        prior = STRENGTH * np.maximum(self.all.back, 1e-6)
        prior_rest = np.maximum(STRENGTH - pair_sums(prior, owner, size), 1e-6)
        strength = pair_sums(prior, owner, size) + prior_rest
        counted, counted_rest = np.zeros(len(prior)), np.zeros(size)
        counted[self.named] = self.amount
        for step in range(BOUND_ITERATIONS + 1):
            total = _digamma(strength + pair_sums(counted, owner, size) + counted_rest)
            log_share = _digamma(prior + counted) - total[owner]
            log_rest = _digamma(prior_rest + counted_rest) - total
            mix = self._mixed(np.exp(log_share), np.exp(log_rest), channel)
            if step < BOUND_ITERATIONS:
                counted, counted_rest = self._expected(np.exp(log_share), np.exp(log_rest), mix, channel)
        divergence = float((counted * log_share).sum() + (counted_rest * log_rest).sum())
        divergence += float((_log_gamma(strength + pair_sums(counted, owner, size) + counted_rest)).sum())
        divergence -= float(_log_gamma(strength).sum())
        divergence -= float((_log_gamma(prior + counted) - _log_gamma(prior)).sum())
        divergence -= float((_log_gamma(prior_rest + counted_rest) - _log_gamma(prior_rest)).sum())
        return float((self.amount * np.log(np.maximum(mix, 1e-300))).sum()) - divergence

    def _mixed(self, share: Floats, rest: Floats, channel: tuple[Floats, Floats, Floats]) -> Floats:
        """Return Σ_t θ(t)·p(y|t, l) of each label [cells]; rest: θ of all frames that are no candidates."""
        right, wrong, unnamed = channel
        inside = pair_sums(share * self.observed, self.all.owner, self.all.size)
        outside = pair_sums(share, self.all.owner, self.all.size) + rest - inside
        own, group = share[self.named], self.group
        return np.asarray(
            own * right[group] + (inside[group] - own) * wrong[group] + (outside * unnamed)[group], np.float64
        )

    def _expected(
        self, share: Floats, rest: Floats, mix: Floats, channel: tuple[Floats, Floats, Floats]
    ) -> tuple[Floats, Floats]:
        """Return the expected number of labels of each candidate [rows], and of other frames [predicates]."""
        right, wrong, unnamed = channel
        ratio = self.amount / np.maximum(mix, 1e-300)
        total = np.bincount(self.group, ratio, minlength=self.all.size)
        mine = np.zeros(len(self.all.rows))
        mine[self.named] = ratio
        owner = self.all.owner
        inside = mine * right[owner] + (total[owner] - mine) * wrong[owner]
        return share * np.where(self.observed, inside, (total * unnamed)[owner]), rest * total * unnamed


def corrected(
    predicate: Ints,
    labels: Sequence[Ints],
    rates: Sequence[tuple[float, float]],
    prior: Table,
    strength: Floats,
    together: bool = False,
) -> Labels:
    """Return what labels tell of the true frame of each item; the weights of an item sum to 1 at most.

    Args:
        predicate: The predicate of each item.
        labels: The label of each item by each source, −1 where it has none [sources][items].
        rates: ρ and κ of each source.
        prior: G [predicates, K], rows summing to 1 at most.
        strength: a of each predicate.
        together: Whether equal labels of one source that only tell of their own frame are right or wrong together.
    """
    candidates = Candidates(predicate, labels, prior)
    rows, owner, size = candidates.rows, candidates.owner, candidates.size
    cell = candidates.group  # items of a predicate with the same labels are one cell
    for label in labels:
        cell = np.unique(cell * (candidates.frames + 1) + label + 1, return_inverse=True)[1]
    _, example, amount = np.unique(cell, return_index=True, return_counts=True)
    group = candidates.group[example]
    given = [GivenLabels(candidates, label) for label in labels]
    channels = [source.channel(*rate) for source, rate in zip(given, rates, strict=True)]
    row, at = _pairs(candidates, given, channels, labels, example)
    value, outside, own = np.ones(len(row)), np.ones(len(example)), np.zeros(len(row), bool)
    for label, source, (right, wrong, unnamed) in zip(labels, given, channels, strict=True):
        spoken = label[example] >= 0
        same = spoken[at] & (rows[row] == (predicate * candidates.frames + label)[example][at])
        here = np.where(same, right[owner[row]], np.where(source.observed[row], wrong[owner[row]], unnamed[owner[row]]))
        value = value * np.where(spoken[at], here, 1.0)
        outside = outside * np.where(spoken, unnamed[group], 1.0)
        own |= same
    least = np.minimum(np.minimum.reduceat(value, np.flatnonzero(np.r_[True, at[1:] != at[:-1]])), outside)
    told = value - least[at]
    a = strength[candidates.groups]
    back = a[owner] * candidates.back
    share = (
        own / np.maximum(pair_sums(own.astype(float), at, len(example)), 1.0)[at]
    )  # of an item, as it goes to a frame
    single = np.flatnonzero(own & (np.bincount(at, minlength=len(example))[at] == 1) & together)
    for _ in range(ITERATIONS):
        weight = amount[at] * share
        others = np.maximum(pair_sums(weight, row, len(rows))[row] - share, 0.0) + back[row]  # without the item itself
        number = pair_sums(weight, group[at], size)[group] - pair_sums(share, at, len(example))
        value = others * told
        silent = least * (number + a[group])  # what says nothing
        total = pair_sums(value, at, len(example)) + silent
        before, share = share, value / np.maximum(total, 1e-300)[at]
        share[single] = share_of_right(
            amount[at[single]], back[row[single]], told[single] / np.maximum(silent, 1e-300)[at[single]]
        )
        if np.abs(share - before).max(initial=0.0) < 1e-4:
            break
    keep = share > LEAST
    row, at, share = row[keep], at[keep], share[keep]
    place, item, _ = entries(np.searchsorted(at, np.arange(len(example) + 1)), cell)
    return Labels(item, rows[row[place]] % candidates.frames, share[place])


def share_of_right(number: Ints, prior: Floats, odds: Floats) -> Floats:
    """Return the expected share of equal labels that are right, of labels that only tell of their own frame.

    Of n labels x are right with probability ∝ C(n, x)·Γ(prior + x)/Γ(prior)·odds^x. A frame that is not expected needs
    more of them than chance brings: the shares of single labels, each given the others', would not tell.

    Args:
        number: n of each frame.
        prior: a·G of the frame.
        odds: What a right label is worth, against one that says nothing.
    """
    start = np.append(0, np.cumsum(number + 1))
    owner = np.repeat(np.arange(len(number)), number + 1)
    x = (np.arange(start[-1]) - start[owner]).astype(np.float64)
    n, a = number[owner].astype(np.float64), np.maximum(prior, 1e-9)[owner]
    score = _log_gamma(n + 1.0) - _log_gamma(x + 1.0) - _log_gamma(n - x + 1.0)
    score += _log_gamma(a + x) - _log_gamma(a) + x * np.log(np.maximum(odds, 1e-300))[owner]
    if not len(number):
        return np.zeros(0)
    weight = np.exp(score - np.maximum.reduceat(score, start[:-1])[owner])
    return np.asarray(np.add.reduceat(weight * x, start[:-1]) / np.add.reduceat(weight, start[:-1]) / number)


def _pairs(
    candidates: Candidates,
    given: Sequence[GivenLabels],
    channels: Sequence[tuple[Floats, Floats, Floats]],
    labels: Sequence[Ints],
    example: Ints,
) -> tuple[Ints, Ints]:
    """Return the candidates that labels may tell of, a cell's own labels among them: rows and cells, by cell."""
    owner, size = candidates.owner, candidates.size
    group, key = candidates.group[example], candidates.predicate[example] * candidates.frames
    rows, cells = [], []
    named, tells = np.zeros(len(owner), bool), np.zeros(size, bool)
    for label, source, (right, wrong, unnamed) in zip(labels, given, channels, strict=True):
        there = np.flatnonzero(label[example] >= 0)
        rows.append(np.searchsorted(candidates.rows, key[there] + label[example][there]))
        cells.append(there)
        tells |= np.abs(wrong - unnamed) > NEGLIGIBLE * right  # its errors tell something too
        named |= source.observed
    inside = np.flatnonzero(named)
    wide = np.flatnonzero(tells[group])
    place, position, _ = entries(np.searchsorted(owner[inside], np.arange(size + 1)), group[wide])
    row, cell = np.concatenate([*rows, inside[place]]), np.concatenate([*cells, wide[position]])
    pair = np.unique(cell * len(owner) + row)
    return pair % len(owner), pair // len(owner)


def _channel(rho: float, kappa: float, kinds: Floats, alone: Floats, frames: int) -> tuple[Floats, Floats, Floats]:
    flat = rho * (1 - kappa) / frames
    right = 1 - rho + np.where(kinds == 1, rho * kappa * alone, 0.0)
    wrong, unnamed = rho * kappa / np.maximum(kinds - 1, 1), rho * kappa / (kinds + UNNAMED)
    return right + flat, wrong + flat, unnamed + flat


def _alone(kinds: Floats, frame: Ints, frames: int) -> Floats:
    """Return the chance that a label has no frame to be confused with, of labels whose predicates have k kinds."""
    degree = np.bincount(frame, np.minimum(kinds, COMMON) - 1, minlength=frames)
    return np.asarray(1.0 / (degree[frame] + 1.0), np.float64)


@dataclass(frozen=True)
class Channel:
    """How a source that was corrected errs.

    Attributes:
        rho, kappa: ρ and κ.
        labels: Which labels the source gave the events of each lemma [L, K].
    """

    rho: float
    kappa: float
    labels: Table

    def likelihood(self, lemma: Ints, label: Ints) -> tuple[Ints, Ints, Floats, Floats]:
        """Return p(y|t, l) of labels as rows (position, t, value), and its value for all other frames [labels].

        Args:
            lemma: The lemma of each labelled event, −1 unknown.
            label: The label y of each.
        """
        table, frames = self.labels, self.labels.width
        size = int(max(lemma.max(initial=0), table.row.max(initial=0))) + 1
        number = np.append(np.bincount(table.row, minlength=size), 0).astype(float)
        degree = np.bincount(table.column, np.minimum(number[table.row], COMMON) - 1, minlength=frames)
        known = np.where(lemma >= 0, table(np.maximum(lemma, 0), label) > 0, False)
        kinds = number[lemma] + ~known
        alone = np.asarray(1.0 / (degree[label] + 1.0), np.float64)
        right, wrong, unnamed = _channel(self.rho, self.kappa, kinds, alone, frames)
        here = np.arange(len(lemma))
        row, position, _ = entries(np.append(table.starts(size), len(table.key)), np.where(lemma >= 0, lemma, size))
        tells = np.abs(wrong - unnamed) > NEGLIGIBLE * right
        other = (table.column[row] != label[position]) & tells[position]
        position, frame = np.append(position[other], here), np.append(table.column[row][other], label)
        return position, frame, np.append(wrong[position[: int(other.sum())]], right), unnamed


def confusable_rate(predicate: Ints, label: Ints, prior: Table, highest: float, kappa: float) -> float:
    """Return the ρ of the highest bound, `highest` at most."""
    used = np.unique(predicate)
    if len(used) > PREDICATES:
        keep = np.isin(predicate, used[:: len(used) // PREDICATES + 1])
        predicate, label = predicate[keep], label[keep]
    given = GivenLabels(Candidates(predicate, [label], prior), label)
    rates = [rate for rate in RATES if rate < highest] + [highest]
    bounds: dict[int, float] = {}
    low, high = 0, len(rates) - 1
    while high - low > 2:  # the bound rises, then falls
        left, right = low + (high - low) // 3, high - (high - low) // 3
        for place in (left, right):
            if place not in bounds:
                bounds[place] = given.bound(rates[place], kappa)
        low, high = (left, high) if bounds[left] < bounds[right] else (low, right)
    return max((given.bound(rates[place], kappa), rates[place]) for place in range(low, high + 1))[1]


def _digamma(values: Floats) -> Floats:
    return np.asarray(torch.digamma(torch.from_numpy(values)).numpy(), np.float64)


def _log_gamma(values: Floats) -> Floats:
    return np.asarray(torch.lgamma(torch.from_numpy(values)).numpy(), np.float64)
