"""What sources say of each event, under their reliabilities: the evidence that networks learn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from revup.data.reliability import Reliability
from revup.data.source_evidence import Kind, Source, Support, view_of
from revup.data.sparse_table import Floats, Ints, Table, entries, shared_predicates
from revup.models.count_correction import Channel

LEAST_RATE, MISSING_RATE = 1e-3, 0.05  # of a source whose rate is not known: labels; candidates
COMMON = 0.02  # share of a lemma's labels from which on a frame belongs to it


@dataclass(frozen=True)
class Evidence:
    """What sources say of events.

    Attributes:
        event, frame, value: Rows [rows], sorted. Where `belief` is false: the likelihood of what labels and candidates
            say if the frame is the true one, 1 at most; where it is true: p_D(t|x), which sums to 1.
        other: The value of all frames without a row [n]; 1 where no source speaks.
        belief: Whether the event has a distribution [n].
        spoken: Whether some source speaks of the event [n].
    """

    event: Ints
    frame: Ints
    value: Floats
    other: Floats
    belief: NDArray[np.bool_]
    spoken: NDArray[np.bool_]


def rates_of(report: Reliability | None, kind: Kind) -> tuple[float, float]:
    """Return ρ and κ of a source, small where they are not known."""
    least = LEAST_RATE if kind == "label" else MISSING_RATE if kind == "candidates" else 0.0
    rate = least if report is None or report.error_rate is None else max(report.error_rate, LEAST_RATE)
    return rate, 0.0 if report is None else report.confusable or 0.0


@dataclass(frozen=True)
class Confusable:
    """Which frames may be mistaken for each other: frames of each lemma [L, K], and c(y|t) [K, K]."""

    of_lemma: Table
    graph: Table


def confusable_frames(counts: Table, of_lemma: Floats, mass: Table, frames: int) -> Confusable:
    """Return the frames that lemmas have, by their dictionary entries or by a share of their labels, and c(y|t)."""
    labels = counts(mass.row, mass.column)
    listed = mass.value - labels > 1e-9
    common = (labels > 0.5) & (labels >= COMMON * of_lemma[mass.row])
    lemma, frame = mass.row[listed | common], mass.column[listed | common]
    return Confusable(Table(lemma, frame, np.ones(len(lemma)), frames), shared_predicates(lemma, frame, frames))


def evidence(
    sources: Mapping[str, Source],
    events: int,
    frames: int,
    reliability: Mapping[str, Reliability],
    channels: Mapping[str, Channel],
    confusable: Confusable,
    lemma: Ints,
    noise: bool,
) -> Evidence:
    """Return what sources say of events, under their reliabilities."""
    given = {name: source for name, source in sources.items() if len(source.item)}
    spoken = np.zeros(events, bool)
    for source in given.values():
        spoken[source.item] = True
    belief = np.zeros(events, bool)
    for source in given.values():
        if source.kind == "distribution" or (not noise and source.kind == "label"):
            belief[source.item] = True
    if not given:
        nothing = np.zeros(0, np.int64)
        return Evidence(nothing, nothing, np.zeros(0), np.ones(events), belief, spoken)
    if not noise:  # labels are beliefs
        given = {
            n: Source("distribution" if s.kind == "label" else s.kind, s.item, s.frame, s.weight, s.confidence)
            for n, s in given.items()
        }
    rates = {name: list(rates_of(reliability.get(name), source.kind)) for name, source in given.items()}
    graph = confusable.graph
    told = {
        name: channels[name].likelihood(lemma[source.item], source.frame)
        for name, source in given.items()
        if name in channels and source.kind == "label"
    }
    near = [(given[name].item[rows[0]], rows[1]) for name, rows in told.items()]
    for name, source in given.items():
        if source.kind == "label" and name not in told and rates[name][1] > 0:
            near.append(_confused(source, confusable, lemma, frames))
    item, frame = (np.concatenate([part[k] for part in near]) if near else np.zeros(0, np.int64) for k in range(2))
    extra = (item, frame, np.zeros(len(item)))
    support = Support(given, events, frames, extra, False)
    views = {name: view_of(source, support, frames, graph) for name, source in given.items()}
    log_inside, log_other = np.zeros(len(support.key)), np.zeros(events)
    for name, view in views.items():
        if view.kind != "distribution":
            if name in told:
                inside, outside = _by_channel(given[name], told[name], support, view.confidence)
            else:
                inside, outside = view.log_evidence(rates[name], support, None)
            log_inside, log_other = log_inside + inside, log_other + outside
    beliefs = [(view, rates[name][0]) for name, view in views.items() if view.kind == "distribution"]
    if beliefs:
        average, _ = support.log_prior(np.full(frames, 1.0 / frames), beliefs)
        log_inside = np.where(belief[support.item], log_inside + average, log_inside)
    top = np.where(belief, -np.inf, log_other)
    np.maximum.at(top, support.item, log_inside)
    top = np.where(np.isfinite(top), top, 0.0)
    value, other = np.exp(log_inside - top[support.item]), np.where(belief, 0.0, np.exp(log_other - top))
    total = np.bincount(support.item, value, minlength=events)
    value = np.where(belief[support.item], value / np.maximum(total, 1e-300)[support.item], value)
    keep = (value > 0) | ~belief[support.item]
    return Evidence(support.item[keep], support.frame[keep], value[keep], other, belief, spoken)


def _by_channel(
    source: Source, told: tuple[Ints, Ints, Floats, Floats], support: Support, confidence: Floats
) -> tuple[Floats, Floats]:
    """Return the log likelihood of a corrected source's labels at every row of the support, and for the remainder."""
    position, frame, value, unnamed = told
    outside = np.zeros(support.items)
    outside[source.item] = np.log(np.maximum(unnamed, 1e-300))
    inside = outside[support.item]
    inside[support.rows(source.item[position], frame)] = np.log(np.maximum(value, 1e-300))
    return inside * confidence[support.item], outside * confidence


def _confused(source: Source, confusable: Confusable, lemma: Ints, frames: int) -> tuple[Ints, Ints]:
    """Return the items of a label source with the frames t of their lemmas that a label may be mistaken from."""
    known = np.flatnonzero(lemma[source.item] >= 0)
    pairs, place = np.unique(lemma[source.item[known]] * frames + source.frame[known], return_inverse=True)
    table = confusable.of_lemma
    cell, pair, _ = entries(table.starts(int(lemma.max(initial=0)) + 1), pairs // frames)
    keep = confusable.graph(table.column[cell], (pairs % frames)[pair]) > 0
    cell, pair = cell[keep], pair[keep]
    start = np.searchsorted(pair, np.arange(len(pairs) + 1))
    row, position, _ = entries(start, place)
    return source.item[known[position]], table.column[cell[row]]
