"""How far a label is contradicted by everything else that is known of its event.

For a label y of an event with lemma l, r the model's prediction without that label, multiplied by what other sources
say of the event:

    against = Σ_{t ∈ S_l, t ≠ y} r(t) + u·Σ_{t ∉ S_l, t ≠ y} r(t)

S_l are the frames that labels give to the lemma. What a wrong label stands for is nearly always among them; mass of r
on other frames says that little is known of the predicate, not that the label is wrong, so it counts by the small
factor u. `revup.auditing.errors` makes p(wrong) of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from revup.auditing.arbitrary import LEVELS, mass_by_level
from revup.auditing.left_out import Floats, Ints, LeftOut, probabilities
from revup.auditing.parts import Part
from revup.data.events import Document
from revup.data.reliability import Reliability
from revup.data.source_evidence import Source
from revup.data.sources import REVIEWED
from revup.data.sparse_table import Table, entries
from revup.data.told import OWN
from revup.inference.trained import Trained

UNNAMED = 0.03  # u
MISSING = 0.05  # rate at which candidates lack the true frame, where it can't be told
ASSUMED_RATE = 0.05  # of a source whose error rate can't be told
TOP = 12  # frames of an event that are kept


@dataclass(frozen=True)
class Compared:
    """Labels beside predictions that were made without them.

    Attributes:
        given: r(y), 0 without a label [n]. against: The mass of the other frames, by their weights [n].
        surest: max_t r(t) [n].
        frames, shares: The most probable frames other than the label, and their shares of `against` [n, TOP].
        mass: How much probability has each level, of labelled events (`mass_by_level`).
    """

    given: Floats
    against: Floats
    surest: Floats
    frames: Ints
    shares: Floats
    mass: Floats


@dataclass(frozen=True)
class Judged:
    """Events with what the model says of them without their own labels.

    Attributes:
        documents: All documents.
        place: Number of the document, and index of the event in it as the document stands here [n].
        index: The index in the original document [n].
        source: Who gave the label; None without one [n].
        label: The label, −1 without one [n]. lemma: Number of the lemma, −1 unknown [n].
        seen: Labels counted for the lemma [n].
        reviewed: The frame that a reviewer decided on, −1 where nobody did [n].
        mass, given, against, surest, frames, shares: As in `Compared`.
        unknown: Events whose label names a frame that the model does not know: number → that frame.
    """

    documents: list[Document]
    place: list[tuple[int, int]]
    index: list[int]
    source: list[str | None]
    mass: Floats
    unknown: Mapping[int, str]
    label: Ints
    lemma: Ints
    seen: Floats
    reviewed: Ints
    given: Floats
    against: Floats
    surest: Floats
    frames: Ints
    shares: Floats

    def __len__(self) -> int:
        return len(self.label)


def judge(model: Trained, knowledge: LeftOut, given: Iterable[Part], reviewed: Mapping[tuple[str, int], str]) -> Judged:
    """Compare labels with the model's predictions and other sources.

    Args:
        model: The model.
        knowledge: Its counts, with own labels left out.
        given: What to judge.
        reviewed: (document id, index of the event) → frame.
    """
    documents: list[Document] = []
    place: list[tuple[int, int]] = []
    index: list[int] = []
    source: list[str | None] = []
    columns: list[list[Floats | Ints]] = []
    mass = np.zeros(len(LEVELS) - 1)
    unknown: dict[int, str] = {}
    frames = {name: number for number, name in enumerate(model.frames)}
    for part in given:
        unknown |= {len(place) + number: name for number, name in part.unknown.items()}
        for number, event in part.place:
            place.append((len(documents) + number, event))
        decided = [
            frames.get(reviewed.get((part.documents[number].id, event), ""), -1)
            for (number, _), event in zip(part.place, part.index, strict=True)
        ]
        documents += part.documents
        index += part.index
        who, label, lemma, seen, c = _judged(model, knowledge, part)
        source += who
        columns.append(
            [label, lemma, seen, np.array(decided, np.int64), c.given, c.against, c.surest, c.frames, c.shares]
        )
        mass += c.mass
    if not columns:
        none, zero = np.zeros(0, np.int64), np.zeros(0)
        columns = [[none, none, zero, none, zero, zero, zero, np.zeros((0, TOP), np.int64), np.zeros((0, TOP))]]
    whole = [np.concatenate(column) for column in zip(*columns, strict=True)]
    return Judged(documents, place, index, source, mass, unknown, *whole)


def _judged(model: Trained, knowledge: LeftOut, part: Part) -> tuple[list[str | None], Ints, Ints, Floats, Compared]:
    """Who gave the labels, the labels, the lemmas, the labels counted for them, and how the labels compare."""
    split = part.split
    r, seen = probabilities(model, knowledge, split)
    there = np.arange(split.arrays["keys"].shape[1]) < np.asarray(split.arrays["lengths"])[:, None]
    lemma = np.asarray(split.arrays["lemma"])[there].astype(np.int64)
    told = {name: source for name, source in split.told(part.observation).items() if name != REVIEWED}
    who, label = _in_question(told, len(r))
    for name, source in told.items():
        item, likelihood = _likelihood(model, source)
        other = np.array([who[number] != name for number in item.tolist()], bool)
        r[item[other]] *= likelihood[other]
    r /= np.maximum(r.sum(1, keepdims=True), 1e-300)
    return who, label, lemma, seen, compared(r, label, lemma, knowledge.named)


def compared(r: Floats, label: Ints, lemma: Ints, named: Table) -> Compared:
    """Compare labels with predictions that were made without them.

    Args:
        r: Predictions [n, K].
        label: Labels, −1 without one [n].
        lemma: Numbers of the lemmas, −1 unknown [n].
        named: Which frames labels give to lemmas [L, K].
    """
    rows, has = np.arange(len(r)), label >= 0
    given = np.where(has, r[rows, label], 0.0)
    weight = np.full(r.shape, UNNAMED)
    known = np.flatnonzero(lemma >= 0)
    cell, position, _ = entries(named.starts(max(int(lemma.max(initial=0)) + 1, 1)), lemma[known])
    weight[known[position], named.column[cell]] = 1.0
    other = r * np.where(has[:, None], weight, 1.0)
    other[rows[has], label[has]] = 0.0
    against = other.sum(1)
    top = min(TOP, r.shape[1])
    frames = np.argsort(-other, axis=1, kind="stable")[:, :top]
    shares = np.take_along_axis(other, frames, 1) / np.maximum(against, 1e-300)[:, None]
    pad = ((0, 0), (0, TOP - top))
    frames, shares = np.pad(frames, pad).astype(np.int64), np.pad(shares, pad)
    return Compared(given, against, r.max(1, initial=0.0), frames, shares, mass_by_level(r[has]))


def _in_question(told: Mapping[str, Source], events: int) -> tuple[list[str | None], Ints]:
    """The label in question of each event, and who gave it: its own frame, else the first source with a label."""
    who: list[str | None] = [None] * events
    label = np.full(events, -1, np.int64)
    names = [name for name, source in told.items() if source.kind == "label"]
    for name in sorted(names, key=lambda name: (name != OWN, name), reverse=True):
        label[told[name].item] = told[name].frame
        for item in told[name].item.tolist():
            who[item] = name
    return who, label


def _likelihood(model: Trained, source: Source) -> tuple[Ints, Floats]:
    """The events that a source speaks of, and p(what it says|t) [events, K]; a distribution counts as it is."""
    counts, classes = model.module.counts, len(model.frames)
    named, row = np.unique(source.item, return_inverse=True)
    weight = np.ones(len(row)) if source.weight is None else np.asarray(source.weight)
    table = np.zeros((len(named), classes))
    np.add.at(table, (row, source.frame), weight)
    if source.kind == "distribution":
        return named, table + 1e-6
    wrong = label_rate({} if counts is None else counts.model.reliability) if source.kind == "label" else MISSING
    inside = table > 0
    outside = wrong / np.maximum(classes - inside.sum(1, keepdims=True), 1)
    return named, np.where(inside, (1 - wrong) * table / table.max(1, keepdims=True), outside)


def label_rate(reliability: Mapping[str, Reliability]) -> float:
    """The error rate of labels: the mean over the sources whose rate can be told."""
    found = [each for name, each in reliability.items() if each.error_rate is not None and name != REVIEWED]
    items = sum(each.items for each in found)
    if not items:
        return ASSUMED_RATE
    return min(max(sum((each.error_rate or 0.0) * each.items for each in found) / items, 0.002), 0.98)
