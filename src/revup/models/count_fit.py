"""Equations and scalars of the count model (see `revup.models.count_model` for the equations).

The scalars maximise the likelihood of observed labels, each predicted without the labels of its own document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from revup.data.sparse_table import Floats, Ints, entries
from revup.models.count_features import numbered, pair_sums
from revup.models.count_tables import Counts, Labels, Supports

SAMPLE = 2000  # labelled events that the scalars are estimated from
DEFAULTS = {
    **{"a_entry": 1.0, "a": 0.0, "a_form": 0.7, "alpha": 0.5, "beta": 0.3, "gamma": 0.3, "mu": -3.0, "c": -6.2},
    **{"nu": 4.0, "nu_entry": 1.0, "document": 0.3},
}
SLOT_WEIGHT = 0.15
OF_ENTRIES = ("a_entry", "alpha", "beta", "gamma", "mu", "nu_entry")
_POSITIVE = ("alpha", "beta", "gamma", "nu", "nu_entry")
_LARGEST = {"nu": 10.0, "nu_entry": 10.0}  # of positive scalars; e² for the others
_FLOOR = 1e-12

Rows = tuple[Ints, Ints, Ints]  # row of the supports, query of each row, where each query begins
Scalars = Mapping[str, float | Tensor]


@dataclass(frozen=True)
class Query:
    """Predicates or events with the frames that they may have: [rows] ragged over [queries].

    Attributes:
        lemma: Of each query. position, frame: Of each row. first: Where each query begins.
        near, similar, base, listed, elsewhere, count, form_count: Of each row, as in `Supports`; base(t); C_f(t).
        near_total, near_lost, labels, form_labels: Of each query.
        slots: log p(w|t, l)/p(w) of each slot [slots, rows].
    """

    lemma: Ints
    position: Ints
    first: Ints
    frame: Ints
    near: Floats
    similar: Floats
    base: Floats
    listed: Floats
    elsewhere: Floats
    count: Floats
    form_count: Floats
    near_total: Floats
    near_lost: Floats
    labels: Floats
    form_labels: Floats
    slots: Floats = field(default_factory=lambda: np.zeros((0, 0)))


def query(supports: Supports, unit: Ints, form: Ints, counts: Counts, rows: Rows | None = None) -> Query:
    """Return predicates as queries.

    Args:
        supports: Supports of units.
        unit: The unit of each predicate [queries].
        form: The number of its form, −1 unknown [queries].
        counts: The counts.
        rows: Which rows of the supports to ask about; all where absent.
    """
    row, position, first = entries(supports.start, unit) if rows is None else rows
    frame, place = supports.frame[row], numbered(form, counts.forms)
    near, near_total = supports.near[row], supports.near_total[unit]
    there = np.flatnonzero(place[position] >= 0)
    form_count = np.zeros(len(row))
    form_count[there] = counts.form(place[position[there]], frame[there])
    return Query(
        lemma=supports.lemma[unit],
        position=position,
        first=first,
        frame=frame,
        near=near,
        similar=supports.similar[row],
        base=counts.base[frame],
        listed=supports.listed[row],
        elsewhere=supports.elsewhere[row],
        count=supports.count[row],
        form_count=form_count,
        near_total=near_total,
        near_lost=np.maximum(near_total - pair_sums(near, position, len(unit)), 0.0),
        labels=supports.labels[unit],
        form_labels=np.where(place >= 0, np.append(counts.of_form, 0.0)[place], 0.0),
    )


def back_off(x: Scalars, q: Query) -> tuple[Tensor, Tensor]:
    """Return G at rows, and the mass of the remainder [queries]."""
    c, position, size = _tensor(x["c"]).exp(), torch.from_numpy(q.position), len(q.labels)
    outside = torch.from_numpy(np.maximum(1.0 - pair_sums(q.base, q.position, size), 0.0))
    named = torch.from_numpy(q.similar)
    near = (torch.from_numpy(q.near) + c * torch.from_numpy(q.base)) * (_tensor(x["nu"]) * named).exp()
    rest = torch.from_numpy(q.near_lost) + c * outside
    total = rest.index_add(0, position, near)
    near, rest = near / total[position], rest / total
    listed = q.listed > 0
    if not listed.any():
        return near, rest
    inside = torch.from_numpy(np.flatnonzero(listed))
    owner = position[inside]
    score = (
        _tensor(x["alpha"]) * torch.from_numpy(np.log(q.listed[listed]))
        + _tensor(x["beta"]) * torch.from_numpy(np.log(q.elsewhere[listed] + 0.5))
        + _tensor(x["gamma"]) * (near[inside] + 1e-4).log()
        + _tensor(x["nu_entry"]) * named[inside]
    ).exp()
    share = score / torch.zeros(size, dtype=torch.float64).index_add(0, owner, score)[owner]
    entry = torch.zeros_like(near).index_add(0, inside, share)
    has = torch.from_numpy(pair_sums(q.listed, q.position, size) > 0)
    missing = torch.where(has, _tensor(x["mu"]).sigmoid(), torch.ones((), dtype=torch.float64))
    return (1 - missing)[position] * entry + missing[position] * near, missing * rest


def theta(x: Scalars, q: Query) -> tuple[Tensor, Tensor]:
    """Return θ_f at rows, and the mass of the remainder [queries]."""
    back, rest = back_off(x, q)
    position = torch.from_numpy(q.position)
    has = torch.from_numpy(pair_sums(q.listed, q.position, len(q.labels)) > 0)
    a, a_form = torch.where(has, _tensor(x["a_entry"]), _tensor(x["a"])).exp(), _tensor(x["a_form"]).exp()
    n, n_form = torch.from_numpy(q.labels), torch.from_numpy(q.form_labels)
    by_lemma = (torch.from_numpy(q.count) + a[position] * back) / (n + a)[position]
    by_form = (torch.from_numpy(q.form_count) + a_form * by_lemma) / (n_form + a_form)[position]
    return by_form, rest * a / (n + a) * a_form / (n_form + a_form)


def _tensor(value: float | Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


def log_probability(x: Scalars, q: Query) -> tuple[Tensor, Tensor]:
    """Return log p(t|event) at rows, and that of the remainder [queries]."""
    inside, rest = theta(x, q)
    position = torch.from_numpy(q.position)
    score, left = (inside + _FLOOR).log(), (rest + _FLOOR).log()
    if len(q.slots):
        weights = torch.stack([_tensor(x[f"slot{j}"]) for j in range(len(q.slots))])
        score = score + weights @ torch.from_numpy(q.slots)
    top = torch.maximum(
        left.detach().scatter_reduce(0, position, score.detach(), "amax", include_self=True), left.detach()
    )
    total = (left - top).exp().index_add(0, position, (score - top[position]).exp()).log() + top
    return score - total[position], left - total


@dataclass(frozen=True)
class Predictions:
    """Probabilities of frames, event by event.

    Attributes:
        start: Where each event's rows begin [n + 1].
        frame, probability: [rows], ascending by frame.
        rest: Probability of all other frames, shared in proportion to `CountModel.base` [n].
        seen: Labels counted for the lemma, without those left out [n].
    """

    start: Ints
    frame: Ints
    probability: Floats
    rest: Floats
    seen: Floats


def predictions(blocks: list[Any], seen: Floats) -> Predictions:
    parts = [np.concatenate(column) for column in zip(*blocks, strict=True)] if blocks else [np.zeros(0)] * 4
    start = np.append(0, np.cumsum(parts[0])).astype(np.int64)
    return Predictions(start, parts[1].astype(np.int64), parts[2], parts[3], seen)


# ---- scalars ---------------------------------------------------------------------------------------------


def sample(labelled: Ints, seed: int) -> Ints:
    """Return the labelled events that the scalars are estimated from."""
    events = np.unique(labelled)
    if len(events) <= SAMPLE:
        return events
    return np.sort(np.random.default_rng(seed).choice(events, SAMPLE, replace=False))


def estimate(
    scalars: Mapping[str, float],
    q: Query,
    likelihood: Callable[[Tensor, Tensor], Tensor],
    fixed: Sequence[str] = (),
    caution: float = 1.0,
) -> dict[str, float]:
    """Return the scalars of the highest likelihood of labels, under Gaussian priors at the given ones.

    Args:
        scalars: The defaults.
        q: The events with their own labels left out.
        likelihood: Of `of_labels` or `of_noisy_labels`.
        fixed: Scalars that stay.
        caution: The weight of the priors.
    """
    names = [name for name in scalars if name not in (*fixed, "document")]
    centre = torch.tensor([scalars[name] for name in names], dtype=torch.float64)
    slot = torch.tensor([name.startswith("slot") for name in names])
    positive = slot | torch.tensor([name in _POSITIVE for name in names])
    spread = torch.where(slot, 0.5, 1.0).double()
    limit = torch.tensor([_LARGEST.get(name, math.exp(2.0)) for name in names], dtype=torch.float64).log()

    def values(raw: Tensor) -> Tensor:
        return torch.where(positive, torch.minimum(raw, limit).exp(), raw.clamp(-9.0, 9.0))

    def loss(raw: Tensor) -> Tensor:
        now = values(raw)
        x: dict[str, float | Tensor] = {**scalars, **dict(zip(names, now.unbind(), strict=True))}
        apart = (((now - centre) / spread) ** 2).sum() / 2
        return (caution * apart - likelihood(*log_probability(x, q))) / len(q.labels)

    found = values(minimise(loss, torch.where(positive, centre.clamp_min(1e-6).log(), centre)))
    if not bool(torch.isfinite(found).all()):
        return dict(scalars)
    return {**scalars, **dict(zip(names, found.tolist(), strict=True))}


def of_labels(q: Query, events: Ints, labels: Labels, width: int) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the log-likelihood of labels that are taken for the truth, given log p at rows and of remainders.

    Args:
        q: The events as queries.
        events: The events, ascending.
        labels: The labels.
        width: The number of frames K.
    """
    chosen = np.isin(labels.event, events)
    where, weight = np.searchsorted(events, labels.event[chosen]), labels.weight[chosen]
    row = numbered(where * width + labels.frame[chosen], q.position * width + q.frame)
    inside = row >= 0
    target = torch.from_numpy(pair_sums(weight[inside], row[inside], len(q.frame)))
    outside = torch.from_numpy(pair_sums(weight[~inside], where[~inside], len(events)))
    hit = torch.from_numpy(np.flatnonzero(target.numpy()))
    return lambda log_inside, log_rest: (target[hit] * log_inside[hit]).sum() + (outside * log_rest).sum()


def of_noisy_labels(
    q: Query, position: Ints, frame: Ints, value: Floats, other: Floats, width: int
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the log-likelihood Σ log Σ_t p(y|t)·p(t) of labels that may be wrong.

    Args:
        q: The labelled events as queries.
        position, frame, value: Rows of p(y|t): the query, t, and the value.
        other: p(y|t) for all other frames t [queries].
        width: The number of frames K.
    """
    row = numbered(position * width + frame, q.position * width + q.frame)
    inside = row >= 0
    evidence = other[q.position].copy()
    evidence[row[inside]] = value[inside]
    at, weight, left = torch.from_numpy(q.position), torch.from_numpy(evidence), torch.from_numpy(other)

    def likelihood(log_inside: Tensor, log_rest: Tensor) -> Tensor:
        total = torch.zeros(len(other), dtype=torch.float64).index_add(0, at, weight * log_inside.exp())
        return (total + left * log_rest.exp() + _FLOOR).log().sum()

    return likelihood


def minimise(loss: Callable[[Tensor], Tensor], start: Tensor, steps: int = 60, tolerance: float = 1e-6) -> Tensor:
    """Return where a smooth function of a few numbers is lowest (BFGS; importing torch.optim takes seconds)."""

    @torch.enable_grad()
    def at(x: Tensor) -> tuple[float, Tensor]:
        x = x.detach().requires_grad_()
        value = loss(x)
        (gradient,) = torch.autograd.grad(value, x)
        return float(value.detach()), gradient.nan_to_num()

    unit = torch.eye(len(start), dtype=torch.float64)
    x, inverse = start.detach(), unit
    value, gradient = at(x)
    for _ in range(steps):
        direction = -inverse @ gradient
        slope = float(direction @ gradient)
        if slope >= 0:
            inverse = unit
            direction, slope = -gradient, -float(gradient @ gradient)
        length = min(1.0, 1.0 / max(float(direction.abs().max()), 1e-12))
        for _ in range(12):
            new_value, new_gradient = at(x + length * direction)
            if new_value <= value + 1e-4 * length * slope:
                break
            length /= 3
        else:
            break
        step, change = length * direction, new_gradient - gradient
        gain, x, value, gradient = value - new_value, x + step, new_value, new_gradient
        curvature = float(step @ change)
        if curvature > 1e-12:
            if bool((inverse == unit).all()):
                inverse = inverse * curvature / float(change @ change)
            side = unit - torch.outer(step, change) / curvature
            inverse = side @ inverse @ side.T + torch.outer(step, step) / curvature
        if gain < tolerance:
            break
    return x
