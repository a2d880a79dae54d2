"""Tables of the count model: labels counted by lemma, form and slot word, and the frames that a predicate may have.

Frames are stored sparsely: a predicate has a support (its labels, its dictionary entry, the first frames of its
neighbours), and all other frames share one remainder in proportion to `base`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.sparse_table import Floats, Ints, Table, entries
from revup.models.count_features import CountInputs, Space, name_vectors, numbered

NEIGHBOURS, SHARPNESS = 60, 10.0  # n, τ
NEAR_FRAMES = 200  # frames of near_l in a support
NAMED_FRAMES = 20  # frames in a support because their names are similar
CELLS = 2**22  # of a dense table that is held at once
SLOT_SMOOTHING, LEMMA_SMOOTHING = 40.0, 10.0  # b, b'


@dataclass(frozen=True)
class Labels:
    """Labels that count: a frame of an event with a weight, one row each."""

    event: Ints
    frame: Ints
    weight: Floats

    @classmethod
    def none(cls) -> Labels:
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))

    def joined(self, other: Labels) -> Labels:
        """Return the rows of both."""
        return Labels(
            np.concatenate([self.event, other.event]),
            np.concatenate([self.frame, other.frame]),
            np.concatenate([self.weight, other.weight]),
        )


@dataclass(frozen=True)
class Training:
    """Training events as the tables number them.

    Attributes:
        lemma, document [n]; form [n]: −1 where the form is not known.
        words: Number of each slot's value among `values`, −1 where it says nothing [slots][n].
        values: The values of each slot, ascending [slots][W].
        entry: p(frame) of each lemma's dictionary entries, averaged over its events [L, K].
    """

    lemma: Ints
    form: Ints
    document: Ints
    words: list[Ints]
    values: list[Ints]
    entry: Table


@dataclass(frozen=True)
class SlotTable:
    """Counts of one slot. by_word [W, K]; of_word [W]; pairs: lemma·W + word, ascending [P]; by_pair [P, K]."""

    values: Ints
    of_word: Floats
    by_word: Table
    pairs: Ints
    by_pair: Table

    def pair(self, lemma: Ints, word: Ints) -> Ints:
        """Return the rows of `by_pair`, −1 where lemma and word were never counted together."""
        there = (lemma >= 0) & (word >= 0)
        return np.where(there, numbered(lemma * max(len(self.values), 1) + word, self.pairs), -1)


@dataclass(frozen=True)
class Counts:
    """All labels counted.

    Attributes:
        lemma [L, K], of_lemma [L]: Labels of each lemma.
        forms: Numbers of the forms that have labels, ascending [F]; form [F, K], of_form [F].
        of_frame [K], lemma_all [L, K]: Labels with the expected labels of unlabelled events.
        mass [L, K]: M, labels and dictionary. base [K]: frames by the lemmas that have them (`bases` in all).
    """

    lemma: Table
    of_lemma: Floats
    forms: Ints
    form: Table
    of_form: Floats
    of_frame: Floats
    lemma_all: Table
    mass: Table
    base: Floats
    bases: float
    slots: list[SlotTable]


def count(training: Training, inputs: CountInputs, labels: Labels, extra: Labels | None = None) -> Counts:
    """Count labels; `extra` are expected labels of unlabelled events, for `of_frame` and the slots only."""
    width, lemmas = inputs.frames, inputs.lemmas
    event, frame, weight = labels.event, labels.frame, labels.weight
    lemma, form = training.lemma[event], training.form[event]
    by_lemma = Table(lemma, frame, weight, width)
    there = form >= 0
    forms, form = np.unique(form[there], return_inverse=True)
    by_form = Table(form, frame[there], weight[there], width)
    whole = labels if extra is None else labels.joined(extra)
    slots = [
        _slot(training.lemma, training.words[j], training.values[j], labels, whole, width)
        for j in range(len(training.words))
    ]
    row = np.concatenate([by_lemma.row, training.entry.row])
    column = np.concatenate([by_lemma.column, training.entry.column])
    value = np.concatenate([by_lemma.value, training.entry.value])
    base = np.bincount(column, np.minimum(value, 1.0), minlength=width) + 1.0 / width
    return Counts(
        lemma=by_lemma,
        of_lemma=by_lemma.sums(lemmas),
        forms=forms.astype(np.int64),
        form=by_form,
        of_form=by_form.sums(len(forms)),
        of_frame=np.bincount(whole.frame, whole.weight, minlength=width).astype(np.float64),
        lemma_all=by_lemma if extra is None else Table(training.lemma[whole.event], whole.frame, whole.weight, width),
        mass=Table(row, column, value, width),
        base=base / base.sum(),
        bases=float(base.sum()),
        slots=slots,
    )


def _slot(lemma: Ints, word: Ints, values: Ints, labels: Labels, whole: Labels, width: int) -> SlotTable:
    there = word[whole.event] >= 0
    by_word = Table(word[whole.event[there]], whole.frame[there], whole.weight[there], width)
    there = word[labels.event] >= 0
    event = labels.event[there]
    pairs, pair = np.unique(lemma[event] * max(len(values), 1) + word[event], return_inverse=True)
    by_pair = Table(pair, labels.frame[there], labels.weight[there], width)
    for table in (by_word, by_pair):  # as they are stored
        table.value = table.value.astype(np.float32).astype(np.float64)
    return SlotTable(values, by_word.sums(len(values)), by_word, pairs.astype(np.int64), by_pair)


# ---- supports --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Units:
    """Predicates apart from their form: lemma (−1 unknown), dictionary entry (−1 none), row of the vector of an unknown
    lemma (−1 none) [units]."""

    lemma: Ints
    entry: Ints
    row: Ints

    def __len__(self) -> int:
        return len(self.lemma)


@dataclass(frozen=True)
class Supports:
    """Frames of units, with what the equations need of them.

    Attributes:
        start: Where each unit begins [units + 1]; frame [rows].
        near: Σ_n k_n·M_n(t); similar: cos(l, name of t); listed: D(t); elsewhere: F_{−l}(t); count: C_l(t) [rows].
        near_total: Σ_n k_n·N_n; labels: N_l; lemma [units].
    """

    start: Ints
    frame: Ints
    near: Floats
    similar: Floats
    listed: Floats
    elsewhere: Floats
    count: Floats
    near_total: Floats
    labels: Floats
    lemma: Ints


class Neighbours:
    """The nearest lemmas of the training documents that have labels or an entry; found once for the same lemmas."""

    def __init__(self, space: Space | None, inputs: CountInputs) -> None:
        self.space, self.inputs = space, inputs
        self.names = name_vectors(inputs, space)
        self._found: dict[tuple[bytes, bytes], tuple[Ints, NDArray[np.float32]]] = {}

    def find(self, units: Units, usable: NDArray[np.bool_], keep: bool = False) -> tuple[Ints, NDArray[np.float32]]:
        """Return the neighbours of units and their cosines [units, n]; cosine −inf for a unit without a vector.

        Args:
            units: The units.
            usable: Which lemmas may be neighbours [L].
            keep: Whether to remember the answer.
        """
        if self.space is None:
            return np.zeros((len(units), 0), np.int64), np.zeros((len(units), 0), np.float32)
        use = np.flatnonzero(usable & self.space.has)
        key = (use.tobytes(), units.lemma.tobytes() + units.row.tobytes()) if keep else (b"", b"")
        if keep and key in self._found:
            return self._found[key]
        number = min(NEIGHBOURS, len(use))
        nearest = np.zeros((len(units), number), np.int64)
        cosine = np.full((len(units), number), -np.inf, np.float32)
        target = self.space.lemma[use]
        for begin in range(0, len(units) if number else 0, 1024):
            part = slice(begin, begin + 1024)
            vectors, has = self._vectors(units, part)
            found = vectors @ target.T
            found[units.lemma[part][:, None] == use[None, :]] = -np.inf
            top = np.argpartition(-found, number - 1, axis=1)[:, :number]
            nearest[part] = use[top]
            cosine[part] = np.where(has[:, None], np.take_along_axis(found, top, 1), -np.inf)
        if keep:
            self._found = {key: (nearest, cosine)}
        return nearest, cosine

    def similar(self, units: Units, part: slice) -> NDArray[np.float32]:
        """Return cos(lemma, name of a frame) of some units [units, K]; 0 without vectors."""
        if self.names is None:
            return np.zeros((len(units.lemma[part]), self.inputs.frames), np.float32)
        vectors, has = self._vectors(units, part)
        return np.asarray((vectors * has[:, None]) @ self.names.T)

    def _vectors(self, units: Units, part: slice) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        assert self.space is not None
        lemma, row = units.lemma[part], units.row[part]
        out = self.space.lemma[np.maximum(lemma, 0)].copy()
        has = self.space.has[np.maximum(lemma, 0)] & (lemma >= 0)
        fresh = np.flatnonzero((lemma < 0) & (row >= 0))
        if len(fresh) and self.inputs.vectors is not None:
            out[fresh] = self.space.unit(self.inputs.vectors[row[fresh]])
            has[fresh] = True
        return out, has


def supports(units: Units, counts: Counts, inputs: CountInputs, neighbours: Neighbours, keep: bool = False) -> Supports:
    """Return the supports of units. keep: remember their neighbours for the next call."""
    width, lemmas = inputs.frames, inputs.lemmas
    total = counts.mass.sums(lemmas)
    nearest, cosine = neighbours.find(units, total > 1e-6, keep)
    weight = np.exp(SHARPNESS * (cosine.astype(np.float64) - 1.0)) / (total[nearest] + 1.0)
    near_total = (weight * total[nearest]).sum(1)
    starts = {name: getattr(counts, name).starts(lemmas) for name in ("lemma", "mass")}
    listed = inputs.dictionary
    listed_start = None if listed is None else listed.starts(int(units.entry.max(initial=-1)) + 1)
    first = np.argsort(-counts.base, kind="stable")[:NEAR_FRAMES]
    blocks: list[list[NDArray[Any]]] = []
    step = max(1, CELLS // width)
    for begin in range(0, len(units), step):
        part = slice(begin, begin + step)
        size = len(units.lemma[part])
        near = _dense(nearest[part], weight[part], counts.mass, starts["mass"], width)
        kept = near > 0
        if width > NEAR_FRAMES:
            kept &= near >= np.partition(near, width - NEAR_FRAMES, axis=1)[:, width - NEAR_FRAMES, None]
        lemma, entry = units.lemma[part], units.entry[part]
        known = np.flatnonzero(lemma >= 0)
        place, where, _ = entries(starts["lemma"], lemma[known])
        own = np.zeros((size, width))
        own[known[where], counts.lemma.column[place]] = counts.lemma.value[place]
        book = np.zeros((size, width))
        if listed is not None and listed_start is not None:
            known = np.flatnonzero(entry >= 0)
            place, where, _ = entries(listed_start, entry[known])
            book[known[where], listed.column[place]] = listed.value[place]
        kept |= (own > 0) | (book > 0)
        similar = neighbours.similar(units, part)
        most = min(NAMED_FRAMES, width)
        least = np.partition(similar, width - most, axis=1)[:, width - most, None]
        kept |= similar >= np.maximum(least, 1e-6)
        bare = np.flatnonzero(~kept.any(1))
        kept[bare[:, None], first[None, :]] = True
        row, frame = np.nonzero(kept)
        elsewhere = counts.of_frame[frame]
        has = lemma[row] >= 0
        elsewhere = elsewhere - np.where(has, counts.lemma_all(np.maximum(lemma[row], 0), frame), 0.0)
        columns = (near[kept], similar[kept].astype(np.float64), book[kept], np.maximum(elsewhere, 0.0), own[kept])
        blocks.append([kept.sum(1), frame, *columns])
    parts = [np.concatenate(column) for column in zip(*blocks, strict=True)] if blocks else [np.zeros(0)] * 7
    return Supports(
        start=np.append(0, np.cumsum(parts[0])).astype(np.int64),
        frame=parts[1].astype(np.int64),
        near=parts[2],
        similar=parts[3],
        listed=parts[4],
        elsewhere=parts[5],
        count=parts[6],
        near_total=near_total,
        labels=np.where(units.lemma >= 0, np.append(counts.of_lemma, 0.0)[units.lemma], 0.0),
        lemma=units.lemma,
    )


def _dense(nearest: Ints, weight: Floats, mass: Table, start: Ints, width: int) -> Floats:
    """Return Σ_n k_n·M_n [units, K]."""
    rows, number = nearest.shape
    if not number:
        return np.zeros((rows, width))
    place, where, _ = entries(start, nearest.ravel())
    value = mass.value[place] * weight.ravel()[where]
    flat = where // number * width + mass.column[place]
    return np.bincount(flat, value, minlength=rows * width).reshape(rows, width).astype(np.float64, copy=False)


@dataclass(frozen=True)
class Compiled:
    """θ_f of predicates (a unit with a form), small frames in the remainder.

    Attributes:
        key: Number of each predicate, ascending as far as training had it [pairs].
        lemma, labels, log_rest: Its lemma, N_l, log of the remainder's mass [pairs].
        start: Where its rows begin [pairs + 1].
        frame, log_theta, count: Frame, log θ_f(t), C_l(t) [rows].
    """

    key: Ints
    lemma: Ints
    labels: Floats
    log_rest: NDArray[Any]
    start: Ints
    frame: NDArray[Any]
    log_theta: NDArray[Any]
    count: NDArray[Any]

    @classmethod
    def none(cls) -> Compiled:
        ints, floats = np.zeros(0, np.int64), np.zeros(0)
        return cls(ints, ints, floats, floats, np.zeros(1, np.int64), ints, floats, floats)

    def joined(self, other: Compiled) -> Compiled:
        """Return both, the other's predicates last."""
        names = ("key", "lemma", "labels", "log_rest", "frame", "log_theta", "count")
        columns = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names}
        return Compiled(start=np.concatenate([self.start, self.start[-1] + other.start[1:]]), **columns)


# ---- slots -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OwnSlot:
    """What is left out of a slot's counts: of (C_w, F, C_{w,l}) [rows] and of (N_w, N) [queries]."""

    word: Floats
    frame: Floats
    pair: Floats
    of_word: Floats
    total: Floats


def slot_ratio(
    table: SlotTable,
    of_frame: Floats,
    word: Ints,
    lemma: Ints,
    position: Ints,
    frame: Ints,
    count: Floats,
    own: OwnSlot | None = None,
) -> Floats:
    """Return log p(w|t, l)/p(w) at the rows of queries.

    Args:
        table: The slot's counts.
        of_frame: F [K].
        word, lemma: Of each query [queries], −1 unknown.
        position, frame: The query and the frame of each row [rows].
        count: C_l(t), without what is left out [rows].
        own: What is left out.
    """
    out = np.zeros(len(position))
    if not len(table.values):
        return out
    seen = np.where(word >= 0, table.of_word[word], 0.0) - (0.0 if own is None else own.of_word)
    spoken = seen > 1e-6
    chosen = np.flatnonzero(spoken[position])
    if not len(chosen):
        return out
    at, column = position[chosen], frame[chosen]
    total = of_frame.sum() - (0.0 if own is None else own.total[at])
    share = seen[at] / (total + 1.0) + 1e-12
    joint = table.by_word(word[at], column)
    size = of_frame[column]
    if own is not None:
        joint, size = np.maximum(joint - own.word[chosen], 0.0), np.maximum(size - own.frame[chosen], 0.0)
    p = (joint + SLOT_SMOOTHING * share) / (size + SLOT_SMOOTHING)
    pair = table.pair(lemma, word)
    both = np.zeros(len(chosen))
    hit = np.flatnonzero(pair[at] >= 0)
    both[hit] = table.by_pair(pair[at[hit]], column[hit])
    if own is not None:
        both = np.maximum(both - own.pair[chosen], 0.0)
    p = (both + LEMMA_SMOOTHING * p) / (np.maximum(count[chosen], 0.0) + LEMMA_SMOOTHING)
    out[chosen] = np.log(p / share)
    return out
