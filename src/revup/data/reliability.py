"""Reliability of knowledge sources: a posterior over the true frame of each item, and an error rate for each source.

Sources name frames of items; t is the true frame, K the number of frames:

    label y           p(y|t) = 1 − ρ if y = t, else ρ·[(1 − κ)/(K − 1) + κ·c(y|t)]
    candidates A, w   p(A|t) ∝ (1 − ρ)·w(t)/Σw if t ∈ A, else ρ/(K − |A|)
    distribution d    a belief: b(t) = Σ_s (1 − ρ_s)·d_s(t)/Σ_s (1 − ρ_s), averaged and never sharpened

    p(t|item) ∝ b(t)·Π_s p(y_s|t)^confidence,    b: the belief, else the item's prior, else the prior over frames

ρ is the source's error rate (for candidates: how often the entry lacks the true frame), κ the share of its errors that
are confusable; c(y|t) says which frames share predicates with t (`shared_predicates`). All are pooled over frames and
estimated by EM (Dawid and Skene) under a Beta prior. A rate comes with the interval in which its profile likelihood is
high; where that interval is wide, the data cannot tell the rate, and it is None. Where one source of labels stands
alone, `revup.data.label_noise.single_source` estimates ρ and κ from how far the labels of each predicate agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from revup.data.source_evidence import Kind, Prior, Source, Support, View, view_of
from revup.data.sparse_table import Floats, Ints, Table, shared_predicates

__all__ = ["Estimate", "Kind", "Reliability", "Source", "Table", "estimate", "shared_predicates"]

RATE_PRIOR = (1.0, 9.0)  # Beta prior of an error rate: wrong and right labels seen beforehand
ASSUMED_RATE = 0.1  # stands in for a rate that cannot be identified
DROP = 1.35  # of the log likelihood at the ends of a 90% interval
WIDEST = 0.3  # width of the interval above which a rate is not identified
SMALL = 0.1  # a rate is known to be small if its interval ends below
SAMPLE = 2000  # items that an interval is computed from
ENOUGH = 20  # items that two other sources name: what the rate of a distribution is estimated from
GRID: Floats = np.array([0.003, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97])


@dataclass(frozen=True)
class Reliability:
    """How far a source is right.

    Attributes:
        error_rate: The share of items that the source has wrong; None where the data cannot tell.
        confusable: The share of these errors that go to frames sharing predicates with the true one; None where it is
            not modelled.
        identified: Whether the data can tell the error rate, or it was given.
        items: The number of items that the source names.
        interval: The error rates in a 90% interval, also where it is too wide to name one; None where not computed.
    """

    error_rate: float | None
    confusable: float | None
    identified: bool
    items: int
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Estimate:
    """What `estimate` finds.

    Attributes:
        item, frame, probability: The posterior over the true frame [rows], sorted by item and frame.
        other: The probability of all frames that nobody named of an item [items].
        sources: The reliability of each source.
        frame_prior: The prior over frames [K].
        log_likelihood: Of what all sources say.
    """

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
    prior: Prior | None = None,
    confusable: Table | None = None,
    *,
    confusion: Literal["pooled", "full"] = "pooled",
    frame_prior: Literal["uniform", "estimated"] = "uniform",
    rate_prior: tuple[float, float] = RATE_PRIOR,
    known_rates: Mapping[str, tuple[float, float]] | None = None,
    iterations: int = 100,
    tolerance: float = 1e-7,
) -> Estimate:
    """Estimate the posterior over the true frame of each item, and the reliability of each source.

    Args:
        sources: Name → what the source says.
        items: The number of items.
        frames: The number of frames K.
        prior: Rows (item, frame, probability) that sum to at most 1 for an item; what is missing is spread over its
            other frames.
        confusable: c(y|t) [K, K], rows t summing to 1 or 0 (`shared_predicates`); without it errors are uniform.
        confusion: "full" estimates a matrix p(y|t) for each label source instead of ρ and κ, without priors (Dawid and
            Skene's own model, which needs many labels for each frame).
        frame_prior: The prior over frames where nothing else is given.
        rate_prior: Wrong and right labels seen beforehand; (0, 0) for maximum likelihood.
        known_rates: (ρ, κ) of sources that are not to be estimated.
        iterations: The maximum number of EM iterations.
        tolerance: EM stops when an item's mean log likelihood gains less.

    Raises:
        ValueError: A weight is negative or not finite, those of an item sum to 0, or a label source names two frames.
    """
    known = dict(known_rates or {})
    model = _Model(sources, items, frames, prior, confusable, confusion == "full", frame_prior == "estimated")
    rates = {name: list(known.get(name, model.first_rate(name))) for name in sources}
    model.climb(rates, set(known), rate_prior, iterations, tolerance)
    reports = {}
    for name, view in model.views.items():
        rate, share = rates[name]
        span, identified = None, True
        if name not in known:
            span = _span(name, sources, items, frames, prior, confusable, rates, set(known)) if frames > 1 else None
            identified = span is not None and _narrow(span)
            if view.kind == "distribution":
                others = sum(np.isin(view.named, o.named) for n, o in model.views.items() if n != name)
                identified = int((np.asarray(others) >= 2).sum()) >= ENOUGH
        confused = float(share) if view.spread is not None and identified else None
        reports[name] = Reliability(float(rate) if identified else None, confused, identified, len(view.named), span)
    support = model.support
    return Estimate(
        support.item, support.frame, model.posterior, model.other, reports, model.by_frame, model.likelihood
    )


class _Model:
    """EM over the sources of some items."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        items: int,
        frames: int,
        prior: Prior | None,
        confusable: Table | None,
        full: bool = False,
        frames_too: bool = False,
    ) -> None:
        self.support = Support(sources, items, frames, prior, full)
        self.views: dict[str, View] = {n: view_of(s, self.support, frames, confusable) for n, s in sources.items()}
        self.items, self.full, self.frames_too = items, full, frames_too
        self.by_frame: Floats = np.full(frames, 1.0 / frames)
        self.posterior, self.other = self.support.majority(self.views)
        self.likelihood = -np.inf

    def first_rate(self, name: str) -> tuple[float, float]:
        return ASSUMED_RATE, 0.5 if self.views[name].spread is not None else 0.0

    def climb(
        self,
        rates: dict[str, list[float]],
        fixed: set[str],
        rate_prior: tuple[float, float],
        iterations: int,
        tolerance: float,
        held: str | None = None,
    ) -> None:
        """Run EM: M-step for `rates` (in place) except `fixed` ones and the ρ of `held`, then E-step."""
        matrices: dict[str, Floats] = {}
        likelihood = -np.inf
        for _ in range(iterations):
            if self.frames_too:
                self.by_frame = self.support.mean_by_frame(self.posterior, self.other, self.by_frame)
            for name, view in self.views.items():
                if self.full and view.kind == "label":
                    matrices[name] = view.matrix(self.posterior, self.support)
                elif name not in fixed:
                    new = view.maximise(self.posterior, self.other, rates[name], rate_prior)
                    rates[name] = [rates[name][0], new[1]] if name == held else new
            before, likelihood = likelihood, self.expect(rates, matrices)
            if likelihood - before < tolerance * max(1, self.items):
                break
        self.likelihood = likelihood

    def expect(self, rates: Mapping[str, list[float]], matrices: Mapping[str, Floats]) -> float:
        """Compute the posterior (E-step) and return the log likelihood."""
        beliefs = [(view, rates[name][0]) for name, view in self.views.items() if view.kind == "distribution"]
        log_joint, log_other = self.support.log_prior(self.by_frame, beliefs)
        for name, view in self.views.items():
            if view.kind != "distribution":
                inside, outside = view.log_evidence(rates[name], self.support, matrices.get(name))
                log_joint, log_other = log_joint + inside, log_other + outside
        self.posterior, self.other, likelihood = self.support.normalise(log_joint, log_other)
        return likelihood


def _span(
    name: str,
    sources: Mapping[str, Source],
    items: int,
    frames: int,
    prior: Prior | None,
    confusable: Table | None,
    rates: Mapping[str, list[float]],
    fixed: set[str],
) -> tuple[float, float] | None:
    """Return the interval of a source's error rate by its profile likelihood: at each value all other rates are best.

    It is computed from a sample of the items that the source names, its drop scaled to all of them.
    """
    if sources[name].kind == "distribution":
        return None
    named = np.unique(sources[name].item)
    chosen = named[:: max(1, len(named) // SAMPLE)] if len(named) > SAMPLE else named
    place = np.full(items, -1, np.int64)
    place[chosen] = np.arange(len(chosen))
    part = {n: s for n, s in ((n, _restricted(s, place, items)) for n, s in sources.items()) if len(s.item)}
    inner: Prior | None = None
    if prior is not None:
        keep = place[prior[0]] >= 0
        inner = place[prior[0][keep]], prior[1][keep], prior[2][keep]
    model = _Model(part, len(chosen), frames, inner, confusable)
    curve = np.full(len(GRID), -np.inf)

    def climb(rate: float, start: Mapping[str, list[float]]) -> dict[str, list[float]]:
        trial = {n: list(start[n]) for n in part}
        trial[name][0] = rate
        model.expect(trial, {})
        model.climb(trial, fixed, (0.0, 0.0), 10, 1e-5, held=name)
        return trial

    middle = int(np.abs(GRID - rates[name][0]).argmin())
    centre = climb(rates[name][0], rates)
    top, scale = model.likelihood, len(named) / len(chosen)
    for side in (range(middle, len(GRID)), range(middle - 1, -1, -1)):
        trial = centre
        for step in side:
            trial = climb(float(GRID[step]), trial)
            curve[step] = model.likelihood
            if (top - model.likelihood) * scale > 5 * DROP:
                break
    return interval(rates[name][0], top * scale, GRID, curve * scale)


def _narrow(span: tuple[float, float]) -> bool:
    """Return whether an interval names a rate: both ends are small, or they are of the same order."""
    return span[1] <= SMALL or (span[1] - span[0] <= WIDEST and span[0] >= span[1] / 4)


def _restricted(source: Source, place: Ints, items: int) -> Source:
    """Return a source on some of the items, renumbered by `place`."""
    keep = place[source.item] >= 0
    confidence = source.confidence
    if not isinstance(confidence, (int, float)):
        whole = np.broadcast_to(np.asarray(confidence, float), (items,))
        confidence = whole[np.flatnonzero(place >= 0)]
    weight = None if source.weight is None else np.asarray(source.weight)[keep]
    return replace(
        source, item=place[source.item[keep]], frame=source.frame[keep], weight=weight, confidence=confidence
    )


def interval(best: float, top: float, grid: Floats, curve: Floats) -> tuple[float, float]:
    """Return the ends at which a log likelihood has fallen by `DROP`: a 90% interval.

    Args:
        best: The rate of the highest likelihood.
        top: That likelihood; a higher point of the curve replaces it.
        grid: Rates, ascending.
        curve: The log likelihood there; −inf beyond a point that is low enough.
    """
    top = max(top, float(curve.max()))
    ends = []
    for side, limit in ((-1, 0.0), (1, 1.0)):
        within = (grid - best) * side
        inside = within[(within >= 0) & (top - curve <= DROP)]
        reach = float(inside.max(initial=0.0))
        beyond = np.flatnonzero((within > reach) & (top - curve > DROP))
        if not len(beyond):
            ends.append(limit)
            continue
        nearest = beyond[within[beyond].argmin()]
        distance, fall = float(within[nearest]), float(top - curve[nearest])
        end = max(reach, distance * float(np.sqrt(DROP / fall))) if np.isfinite(fall) else reach
        ends.append(best + side * end)
    return max(ends[0], 0.0), min(ends[1], 1.0)
