"""What sources say, as labels for the count model to count.

Labels of one source pass through `label_noise.single_source`, those of several that name the same events through
`reliability.estimate`, with the dictionary's and the neighbours' G as the prior of the true frame. Distributions count
as they are. Candidates that stand alone are narrowed down by the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from revup.data.label_noise import SingleSource, single_source
from revup.data.reliability import ENOUGH, Reliability, estimate
from revup.data.source_evidence import Source
from revup.data.sparse_table import Floats, Ints, Table, entries, shared_predicates
from revup.models.count_correction import RATES, Channel, confusable_rate, corrected
from revup.models.count_evidence import rates_of
from revup.models.count_tables import Labels

NEGLIGIBLE = 0.1  # error rate below which labels are taken as they are
MOSTLY = 0.5  # share of confusable errors from which on they are not taken for arbitrary ones
SURE = 0.95  # probability from which on a label that sources agree on is taken for the truth
LEAST_SHARE = 0.01  # of a corrected label that counts
MOST_ROWS = 1_000_000  # of the prior of the true frame of events: rarer frames of a predicate share the remainder
PASSES = 3  # of counting labels by predicate and estimating the sources' rates


@dataclass(frozen=True)
class Combined:
    """labels: To count. trusted: Those that scalars can be estimated from: right ones, or those that several sources
    agree on; corrected labels depend on each other, so leaving one out says nothing. narrow: Sources of candidates to
    be narrowed down. reliability: Of each source. channels: How corrected sources err. joint_error: How often the
    most probable frame of events that several sources name is wrong; None where there are none."""

    labels: Labels
    trusted: Labels
    narrow: dict[str, Source]
    reliability: dict[str, Reliability]
    channels: dict[str, Channel]
    joint_error: float | None = None


class Prior:
    """G of predicates given labels, as `combine` needs it; the model implements it."""

    predicate: Ints  # [n]
    lemma: Ints  # [n]
    strength: Floats  # a [predicates]
    has_entry: bool
    listed: tuple[Ints, Ints]  # predicate and frame of dictionary entries

    def table(self, labels: Labels) -> Table:
        """Return G [predicates, K] with these labels counted."""
        raise NotImplementedError


def combine(
    sources: Mapping[str, Source],
    events: int,
    frames: int,
    prior: Prior,
    document: Ints,
    noise: bool,
    known_rates: Mapping[str, tuple[float, float]],
) -> Combined:
    """Return one set of labels from all sources.

    Args:
        sources: What each source says of events.
        events, frames: Their numbers.
        prior: G, from dictionary and neighbours.
        document: The document of each event.
        noise: Whether to estimate error rates; otherwise labels are taken for the truth.
        known_rates: (ρ, κ) of sources that are not to be estimated.
    """
    given = {name: source for name, source in sources.items() if len(source.item)}
    if not noise:
        direct = {name: _rows(s, events) for name, s in given.items() if s.kind != "candidates"}
        labels = _averaged(list(direct.values()), events)
        return Combined(labels, labels, _narrow(given, set(given), labels, events), {}, {})
    together = _overlapping(given, events)
    reliability: dict[str, Reliability] = {}
    channels: dict[str, Channel] = {}
    parts: list[Labels] = []
    trusted: list[Labels] = []
    joint_error = None
    for name, source in given.items():
        if source.kind == "label" and name not in together:
            labels, reliability[name], channel = _alone(source, prior, document, frames, known_rates.get(name))
            parts.append(labels)
            if channel is None:
                trusted.append(labels)
            else:
                channels[name] = channel
    beliefs = {name for name, source in given.items() if source.kind == "distribution"}
    if together:
        joint = {name: given[name] for name in given if name in together | beliefs}
        labels, reports = _jointly(joint, events, frames, prior, known_rates)
        parts.append(labels)
        joint_error = _expected_error(labels, np.unique(np.concatenate([given[name].item for name in together])))
        reliability |= reports
        right = [_rows(given[n], events) for n, r in reports.items() if given[n].kind == "label" and _right(r)]
        trusted += right or [_agreed(joint, reports, events, frames)]
    else:
        said = [_rows(given[name], events) for name in given if name in beliefs]
        parts, trusted = parts + said, trusted + said
        reliability |= {n: Reliability(None, None, False, len(np.unique(given[n].item))) for n in beliefs}
    labels = _averaged(parts, events)
    narrow = _narrow(given, set(given) - together, labels, events)
    reliability |= {n: Reliability(None, None, False, len(np.unique(s.item))) for n, s in narrow.items()}
    ordered = {name: reliability[name] for name in given if name in reliability}
    return Combined(labels, _averaged(trusted, events), narrow, ordered, channels, joint_error)


def _overlapping(given: Mapping[str, Source], events: int) -> set[str]:
    """Return the labels and candidates that name enough of the same events for their rates to be told together."""
    named = {name: np.bincount(s.item, minlength=events) > 0 for name, s in given.items()}
    out = set()
    for name, source in given.items():
        others = [named[n] for n in named if n != name]
        if source.kind != "distribution" and others:
            shared = int((named[name] & np.any(others, axis=0)).sum())
            if shared >= min(ENOUGH, int(named[name].sum())):
                out.add(name)
    return out


def _narrow(given: Mapping[str, Source], names: set[str], labels: Labels, events: int) -> dict[str, Source]:
    """Return the candidates of events that have no label."""
    labelled = np.bincount(labels.event, minlength=events) > 0
    out = {}
    for name in given:
        source = given[name]
        if name in names and source.kind == "candidates":
            keep = ~labelled[source.item]
            weight = None if source.weight is None else source.weight[keep]
            out[name] = Source("candidates", source.item[keep], source.frame[keep], weight, source.confidence)
    return {name: source for name, source in out.items() if len(source.item)}


def _rows(source: Source, events: int) -> Labels:
    """Return what a source says as labels, with weights that sum to 1 for an event."""
    weight = np.ones(len(source.item)) if source.weight is None else np.asarray(source.weight, float)
    total = np.bincount(source.item, weight, minlength=events)
    return Labels(source.item, source.frame, weight / np.maximum(total, 1e-300)[source.item])


def _averaged(parts: list[Labels], events: int) -> Labels:
    """Return labels of several sources, averaged where they name the same event."""
    whole = Labels.none()
    number = np.zeros(events)
    for part in parts:
        whole = whole.joined(part)
        number[np.unique(part.event)] += 1
    keep = whole.weight > 0
    event, frame, weight = whole.event[keep], whole.frame[keep], whole.weight[keep]
    weight = weight / number[event]
    order = np.argsort(event, kind="stable")
    return Labels(event[order], frame[order], weight[order])


def _alone(
    source: Source,
    prior: Prior,
    document: Ints,
    frames: int,
    known: tuple[float, float] | None,
) -> tuple[Labels, Reliability, Channel | None]:
    """Correct the labels of one source: an error rate first, then labels, twice, with G of those corrected so far."""
    first = Labels(source.item, source.frame, np.ones(len(source.item)))
    labels, predicate = first, prior.predicate[source.item]
    back = None
    for _ in range(2):
        back = prior.table(labels) if prior.has_entry or labels is not first else None
        found = single_source(predicate, source.frame, frames, back, document=document[source.item], known=known)
        rate, share = found.reliability.error_rate, found.reliability.confusable or 0.0
        if rate is None or rate < NEGLIGIBLE:
            return first, found.reliability, None
        labels = _spread(predicate, first, found, frames)
    (rho, kappa), report = found.channel, found.reliability
    back = prior.table(labels)
    if known is None and (rate or 0.0) * share >= NEGLIGIBLE:
        rho = confusable_rate(predicate, source.frame, back, rho, kappa)
        report = _suspected(report, rho / found.channel[0], rho <= RATES[0])
    if known is None and (report.error_rate or 0.0) < NEGLIGIBLE:
        return first, report, None
    for _ in range(2):
        told = corrected(predicate, [source.frame], [(rho, kappa)], back, prior.strength, kappa < MOSTLY)
        labels = Labels(source.item[told.event], told.frame, told.weight)
        back = prior.table(labels)
    cells = Table(prior.lemma[source.item], source.frame, np.ones(len(source.item)), frames)
    cells.value = np.ones(len(cells.key))
    return labels, report, Channel(rho, kappa, cells)


def _suspected(report: Reliability, factor: float, lowest: bool) -> Reliability:
    """Return the reliability of a source suspected of confusable errors, whose rate is smaller by a factor.

    Any part of them may be ambiguity, so the interval begins with the arbitrary errors and ends where it did. A rate at
    the low end of those that are tried is an upper bound.
    """
    rate = (report.error_rate or 0.0) * factor
    low, high = rate * (1 - (report.confusable or 0.0)), (report.interval or (rate, rate))[1]
    if lowest:
        return replace(report, error_rate=None, confusable=None, identified=False, interval=(low, rate))
    return replace(report, error_rate=rate, interval=(low, max(high, rate)))


def _spread(predicate: Ints, labels: Labels, found: SingleSource, frames: int) -> Labels:
    """Return each label replaced by the posterior over the true frame."""
    key = found.predicate * frames + found.label
    order = np.argsort(key, kind="stable")
    cells = np.unique(key)
    start = np.searchsorted(key[order], np.append(cells, np.iinfo(np.int64).max))
    row, position, _ = entries(start, np.searchsorted(cells, predicate * frames + labels.frame))
    row = order[row]
    return Labels(labels.event[position], found.frame[row], found.probability[row])


def _jointly(
    given: Mapping[str, Source],
    events: int,
    frames: int,
    prior: Prior,
    known_rates: Mapping[str, tuple[float, float]],
) -> tuple[Labels, dict[str, Reliability]]:
    """Return the posterior over the true frame of events that several sources name."""
    items = np.unique(np.concatenate([source.item for source in given.values()]))
    place = np.zeros(events, np.int64)
    place[items] = np.arange(len(items))
    named = [source for source in given.values() if source.kind != "candidates"] or list(given.values())
    start = Labels.none() if prior.has_entry else _averaged([_rows(source, events) for source in named], events)
    back = prior.table(start)
    keep = back.value > 1e-4
    slim = Table(back.row[keep], back.column[keep], back.value[keep], frames)
    labels = [source for source in given.values() if source.kind == "label"]
    seen = np.concatenate([prior.listed[0], *(prior.predicate[s.item] for s in labels)])
    graph = shared_predicates(seen, np.concatenate([prior.listed[1], *(s.frame for s in labels)]), frames)
    moved = {name: _renumbered(source, place, items) for name, source in given.items()}
    known = {name: rates for name, rates in known_rates.items() if name in given}
    for _ in range(1 if prior.has_entry else PASSES):
        rows = _of_predicates(prior, start, items, slim)
        found = estimate(moved, len(items), frames, rows, graph, known_rates=known)
        start = Labels(items[found.item], found.frame, found.probability)
    keep = found.probability > LEAST_SHARE
    joint = Labels(items[found.item[keep]], found.frame[keep], found.probability[keep])
    told = _by_predicate({n: s for n, s in given.items() if s.kind == "label"}, found.sources, prior, back, events)
    others = [source.item for source in given.values() if source.kind != "label"]
    plain = ~np.isin(told.event, np.concatenate(others)) if others else np.ones(len(told.event), bool)
    keep = ~np.isin(joint.event, told.event[plain])
    told = Labels(told.event[plain], told.frame[plain], told.weight[plain])
    return Labels(joint.event[keep], joint.frame[keep], joint.weight[keep]).joined(told), found.sources


def _expected_error(labels: Labels, events: Ints) -> float:
    """Return how often the most probable frame of these events is wrong, by the posterior itself.

    Events with nothing but a distribution are none of them: its spread is no error.
    """
    best = np.zeros(int(events.max()) + 1)
    own = labels.event < len(best)
    np.maximum.at(best, labels.event[own], labels.weight[own])
    return float(np.clip(1.0 - best[events].mean(), 0.0, 1.0))


def _renumbered(source: Source, place: Ints, items: Ints) -> Source:
    """Return a source on items that are numbered anew."""
    confidence = source.confidence
    if not isinstance(confidence, (int, float)):
        confidence = np.broadcast_to(np.asarray(confidence, float), (len(place),))[items]
    return Source(source.kind, place[source.item], source.frame, source.weight, confidence)


def _agreed(given: Mapping[str, Source], reports: Mapping[str, Reliability], events: int, frames: int) -> Labels:
    """Return the labels that sources make nearly certain by themselves, whatever their predicate says.

    They stand in for labels that can be trusted where no source is right by itself. None where a rate is not known.
    """
    labels = {name: source for name, source in given.items() if source.kind == "label"}
    if not labels or any(reports[name].error_rate is None for name in labels):
        return Labels.none()
    items = np.unique(np.concatenate([source.item for source in labels.values()]))
    place = np.zeros(events, np.int64)
    place[items] = np.arange(len(items))
    moved = {name: _renumbered(source, place, items) for name, source in labels.items()}
    found = estimate(moved, len(items), frames, known_rates={name: rates_of(reports[name], "label") for name in labels})
    sure = found.probability >= SURE
    return Labels(items[found.item[sure]], found.frame[sure], np.ones(int(sure.sum())))


def _of_predicates(prior: Prior, labels: Labels, items: Ints, back: Table) -> tuple[Ints, Ints, Floats]:
    """Return the prior of the true frame of items, as rows: θ of their predicates without their own labels, else G.

    One source can't be told from the other by their disagreement alone; by the other labels of a predicate it can.
    Wrong labels give a frequent predicate nearly all frames: on large corpora the rarest of them have no row.
    """
    width, predicate, size = back.width, prior.predicate[items], int(prior.predicate.max(initial=0)) + 1
    if not len(labels.event):
        row, position, _ = entries(back.starts(size), predicate)
        return position, back.column[row], back.value[row]
    counted = Table(prior.predicate[labels.event], labels.frame, labels.weight, width)
    own = Table(labels.event, labels.frame, labels.weight, width)
    total = np.bincount(prior.predicate[labels.event], labels.weight, minlength=size)
    mine = np.bincount(labels.event, labels.weight, minlength=int(items.max()) + 1)[items]
    key = np.union1d(counted.key, back.key)  # predicate·K + frame
    frequency = np.bincount(predicate, minlength=size)
    key = key[_most_probable(key, counted, back, total + prior.strength[:size], prior.strength, frequency)]
    row, position, _ = entries(np.searchsorted(key, np.arange(size + 1) * width), predicate)
    frame, here = key[row] % width, predicate[position]
    others = np.maximum(counted(here, frame) - own(items[position], frame), 0.0)
    count = others + prior.strength[here] * back(here, frame)
    value = count / (np.maximum(total[predicate] - mine, 0.0) + prior.strength[predicate])[position]
    keep = value > 1e-5
    return position[keep], frame[keep], value[keep]


def _most_probable(
    key: Ints, counted: Table, back: Table, total: Floats, strength: Floats, frequency: Ints
) -> NDArray[np.bool_]:
    """Return which frames of predicates have rows: all, or the most probable ones that make `MOST_ROWS` of events."""
    predicate, frame = key // counted.width, key % counted.width
    rows = frequency[predicate]
    if int(rows.sum()) <= MOST_ROWS:
        return np.ones(len(key), bool)
    share = (counted(predicate, frame) + strength[predicate] * back(predicate, frame)) / np.maximum(total, 1e-300)[
        predicate
    ]
    order = np.argsort(-share, kind="stable")
    keep = np.zeros(len(key), bool)
    keep[order[np.cumsum(rows[order]) <= MOST_ROWS]] = True
    return keep


def _by_predicate(
    given: Mapping[str, Source], reports: Mapping[str, Reliability], prior: Prior, back: Table, events: int
) -> Labels:
    """Return what labels of several sources tell of events, with the other labels of their predicates."""
    items = np.unique(np.concatenate([source.item for source in given.values()])) if given else np.zeros(0, np.int64)
    if not len(items):
        return Labels.none()
    place = np.zeros(events, np.int64)
    place[items] = np.arange(len(items))
    predicate, labels, rates = prior.predicate[items], [], []
    for name, source in given.items():
        label = np.full(len(items), -1, np.int64)
        label[place[source.item]] = source.frame
        labels.append(label)
        rates.append(_channel_rates(reports[name], prior.predicate[source.item], source.frame, back.width))
    told = Labels.none()
    for _ in range(2):
        told = corrected(predicate, labels, rates, back, prior.strength)
        told = Labels(items[told.event], told.frame, told.weight)
        back = prior.table(told)
    return told


def _channel_rates(report: Reliability, predicate: Ints, label: Ints, frames: int) -> tuple[float, float]:
    """Return ρ and κ among predicates with several labels: confusable errors leave the others as they are."""
    rate, kappa = rates_of(report, "label")
    kinds = np.bincount(np.unique(predicate * frames + label) // frames, minlength=int(predicate.max(initial=0)) + 1)
    several = max(float((kinds[predicate] > 1).mean()), 0.1)
    return min(rate * (1 - kappa + kappa / several), 0.9), kappa


def _right(report: Reliability) -> bool:
    return report.error_rate is not None and report.error_rate < NEGLIGIBLE
