"""`counts`: pooled counts of predicates, neighbours, arguments and a dictionary as a model of its own; no network.

For an event with predicate form f, lemma l and words w_j in its slots (C: counts of labels, N: their sums):

    near_l(t)  ∝ (Σ_n k_n·M_n(t) + c·base(t))·e^{ν·cos(l,t)},      k_n = e^{τ(cos(l,n) − 1)}/(N_n + 1),   M = C + D
    entry_l(t) ∝ D_l(t)^α · (F_{−l}(t) + ½)^β · near_l(t)^γ · e^{ν'·cos(l,t)}     over the frames of the entry D_l
    G_l        = (1 − μ)·entry_l + μ·near_l                        μ: how often an entry lacks the true frame; 1 without
    θ_l        = (C_l + a·G_l)/(N_l + a),    θ_f = (C_f + a_f·θ_l)/(N_f + a_f)
    p(t|event) ∝ θ_f(t) · Π_j [p(w_j|t, l)/p(w_j)]^{v_j}
    p(w|t)     = (C_w(t) + b·p(w))/(F(t) + b),    p(w|t, l) = (C_{w,l}(t) + b'·p(w|t))/(C_l(t) + b')

n runs over the nearest labelled or listed lemmas of the training documents, without l itself; cos(l,t) is the
similarity of the lemma's vector and that of the frame's name; F_{−l}: labels of all other lemmas. Slots are the
arguments, the predicate's ending, which arguments are present, classes of the arguments by their vectors, and the words
around the predicate. The scalars a, a_f, α, β, γ, μ, ν, ν', c, v_j maximise the likelihood of the observed labels, each
predicted from the other documents only, under Gaussian priors at their defaults; without labels the defaults stand.
Where the labels of one source are often wrong, only the v_j are estimated, by the likelihood Σ_t p(t|event)·p(y|t, l),
and the labels are revised by their events (`revup.models.count_revision`). Events without a label then count with a
weight u by their own prediction, in F and in the slots. At last the other events of the document are taken into account
(`revup.models.count_context`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.encode import UNK
from revup.data.reliability import Reliability
from revup.data.source_evidence import Source
from revup.data.sparse_table import Floats, Ints, entries
from revup.errors import InputError
from revup.models import count_evidence
from revup.models.count_context import context_gain, in_context
from revup.models.count_correction import Channel
from revup.models.count_evidence import Confusable, Evidence, confusable_frames
from revup.models.count_features import (
    ARGUMENTS,
    CONTEXT,
    CountInputs,
    EventArrays,
    Space,
    numbered,
    pair_sums,
    rows_of,
    slot_names,
    slot_values,
    space_of,
    word_classes,
)
from revup.models.count_fit import DEFAULTS, SLOT_WEIGHT, Predictions, predictions, query, theta
from revup.models.count_storage import Reader, channel_tensors, compiled_tensors, counts_tensors, reliability_tensor
from revup.models.count_tables import Compiled, Counts, Labels, Neighbours, Supports, Units, count, slot_ratio, supports
from revup.models.count_training import EVENTS, PRUNE, Fitted, LeaveOut, number_of_entries, training_of

__all__ = ["CountInputs", "CountModel", "EventArrays", "Evidence", "LeaveOut", "Predictions"]

PAIRS = 2048  # predicates compiled at once


class CountModel:
    """A fitted count model; `fit` makes it, `predict` uses it.

    Attributes:
        scalars: The estimated numbers of the equations.
        reliability: How far each source is right.
        joint_error: How often several sources together are wrong about an event; None where none is named by several.
        base: The distribution that the remainder is shared by [K].
        frequency: How frequent frames are in the training documents [K].
        slots: Names of the slots.
    """

    def __init__(
        self,
        inputs: CountInputs,
        counts: Counts,
        space: Space | None,
        classes: NDArray[np.int16] | None,
        slots: list[str],
        scalars: dict[str, float],
        reliability: dict[str, Reliability],
        noise: bool,
    ) -> None:
        self.inputs, self.counts, self.space, self.classes = inputs, counts, space, classes
        self.slots, self.scalars, self.reliability, self.noise = slots, scalars, reliability, noise
        self.joint_error: float | None = None
        self.channels: dict[str, Channel] = {}
        self.neighbours = Neighbours(space, inputs)
        self.compiled = Compiled.none()
        self.frequency = counts.base
        self._confusable: Confusable | None = None
        self._training: Fitted | None = None

    @property
    def base(self) -> Floats:
        return self.counts.base

    # ---- fitting -----------------------------------------------------------------------------------------

    @classmethod
    def fit(
        cls,
        events: EventArrays,
        sources: Mapping[str, Source],
        inputs: CountInputs,
        *,
        noise: bool = True,
        unlabelled: bool = True,
        known_rates: Mapping[str, tuple[float, float]] | None = None,
        seed: int = 0,
    ) -> CountModel:
        """Fit the model.

        Args:
            events: The training events.
            sources: What each source says of them; an item is the index of an event.
            inputs: What all events share.
            noise: Whether to estimate how far labels are wrong; otherwise they are taken for the truth.
            unlabelled: Whether events without a label count, by their own prediction.
            known_rates: (ρ, κ) of sources that are not to be estimated.
            seed: Of the word classes and of the sample that the scalars are estimated from.

        Raises:
            ValueError: Arrays or sources don't fit each other.
        """
        _check(events, sources, inputs)
        classes, names = word_classes(events, inputs, seed), slot_names(events)
        training = training_of(events, inputs, classes, len(names))
        scalars = {**DEFAULTS, **{f"slot{j}": SLOT_WEIGHT for j in range(len(names))}}
        counts = count(training, inputs, Labels.none())
        model = cls(inputs, counts, space_of(events, inputs), classes, names, scalars, {}, noise)
        model._training = Fitted(model, events, training)
        model._training.learn(sources, known_rates or {}, unlabelled, seed)
        return model

    # ---- prediction --------------------------------------------------------------------------------------

    def predict(self, events: EventArrays, leave_out: LeaveOut = "nothing") -> Predictions:
        """Return probabilities of frames.

        Args:
            events: The events, documents as a whole and in order.
            leave_out: For training events only, which labels not to count: those of the "event" itself, of its own
                "document", or of its "lemma" and form (its neighbours, dictionary entry and slots remain).

        Raises:
            ValueError: Labels are to be left out of events that are not the training events.
        """
        if leave_out != "nothing":
            if self._training is None or not self._training.same(events):
                raise ValueError("labels can only be left out of the events that the model was fitted to")
            return self._training.predict(leave_out)
        found = self.alone(events)
        gain = context_gain(found, events, self.frequency[found.frame], self.inputs.frames)
        return in_context(found, gain, self.scalars["document"])

    def alone(self, events: EventArrays) -> Predictions:
        """Return probabilities of frames by each event alone, without its document."""
        compiled, pair = self._pairs(events)
        values = slot_values(events, self.inputs, self.classes, len(self.slots))
        used = [j for j in range(len(self.slots)) if self.scalars[f"slot{j}"] > 1e-3]
        words = {j: numbered(values[j], self.counts.slots[j].values) for j in used}
        blocks = []
        for begin in range(0, len(events), EVENTS):
            part = slice(begin, begin + EVENTS)
            row, position, first = entries(compiled.start, pair[part])
            frame, lemma, count = compiled.frame[row], compiled.lemma[pair[part]], compiled.count[row]
            score, left = compiled.log_theta[row], compiled.log_rest[pair[part]]
            for j in used:
                table = self.counts.slots[j]
                ratio = slot_ratio(table, self.counts.of_frame, words[j][part], lemma, position, frame, count)
                score = score + self.scalars[f"slot{j}"] * ratio
            blocks.append((np.diff(np.append(first, len(row))), frame, *_softmax(score, left, position, first)))
        return predictions(blocks, compiled.labels[pair])

    def _pairs(self, events: EventArrays) -> tuple[Compiled, Ints]:
        """Return compiled predicates that hold all of the events', and the predicate of each event."""
        form = np.where(numbered(events.read[:, 0], self.counts.forms) >= 0, events.read[:, 0], -1)
        row = np.full(len(events), -1, np.int64)
        if self.inputs.found is not None:
            place = rows_of(events.lemma_read, self.inputs.words)
            row = np.where((events.lemma < 0) & (events.lemma_read != UNK) & self.inputs.found[place], place, -1)
        key = self._key(events.lemma, events.entry, row, form)
        keys, example, inverse = np.unique(key, return_index=True, return_inverse=True)
        compiled = self.compiled
        place = numbered(keys, compiled.key)
        new = np.flatnonzero(place < 0)
        if len(new):
            at = example[new]
            fresh = self._compile(events.lemma[at], events.entry[at], row[at], form[at], keys[new])
            place[new] = len(compiled.key) + np.arange(len(new))
            compiled = compiled.joined(fresh)
        return compiled, place[inverse]

    def _key(self, lemma: Ints, entry: Ints, row: Ints, form: Ints) -> Ints:
        """Return a number for each predicate: lemma (else row of its vector), entry and form."""
        listed = number_of_entries(self.inputs) + 1
        rows = len(self.inputs.endings) + 1
        unit = np.where(lemma >= 0, lemma, self.inputs.lemmas + row + 1) * listed + entry + 1
        return np.asarray(unit * (self.inputs.words + rows + 1) + form + 1)

    def _compile(self, lemma: Ints, entry: Ints, row: Ints, form: Ints, key: Ints) -> Compiled:
        """Compile predicates."""
        columns, unit = np.unique(np.stack([lemma, entry, row]), axis=1, return_inverse=True)
        units = Units(*columns)
        found = supports(units, self.counts, self.inputs, self.neighbours)
        return self._compile_supports(found, unit.reshape(-1), form, key)[0]

    def _compile_supports(self, found: Supports, unit: Ints, form: Ints, key: Ints) -> tuple[Compiled, Ints]:
        """Compile predicates whose supports are there; also return the rows of the supports that were kept."""
        blocks, rows = [], []
        for begin in range(0, len(unit), PAIRS):
            part = slice(begin, begin + PAIRS)
            q = query(found, unit[part], form[part], self.counts)
            value, left = (tensor.numpy() for tensor in theta(self.scalars, q))
            keep = value > PRUNE * np.maximum.reduceat(value, q.first)[q.position]
            left = left + pair_sums(value * ~keep, q.position, len(left))
            number = pair_sums(keep.astype(float), q.position, len(left)).astype(np.int64)
            blocks.append((number, np.log(left + 1e-12), q.frame[keep], np.log(value[keep]), q.count[keep]))
            rows.append(entries(found.start, unit[part])[0][keep])
        parts = [np.concatenate(column) for column in zip(*blocks, strict=True)] if blocks else [np.zeros(0)] * 5
        start = np.append(0, np.cumsum(parts[0])).astype(np.int64)
        lemma, labels = found.lemma[unit], found.labels[unit]
        single = [parts[k].astype(np.float32) for k in (1, 3, 4)]  # as they are stored
        compiled = Compiled(key, lemma, labels, single[0], start, parts[2].astype(np.int32), single[1], single[2])
        return compiled, np.concatenate(rows) if rows else np.zeros(0, np.int64)

    # ---- storage -----------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the model as tensors; what leaving labels out needs is not among them."""
        out = counts_tensors(self.counts) | compiled_tensors(self.compiled)
        out["scalars"] = torch.tensor(list(self.scalars.values()), dtype=torch.float64)
        out["reliability"] = reliability_tensor(self.reliability)
        if self.joint_error is not None:
            out["joint_error"] = torch.tensor([self.joint_error], dtype=torch.float64)
        out |= channel_tensors(self.channels)
        out["noise"] = torch.tensor([int(self.noise)])
        out["frequency"] = torch.from_numpy(self.frequency)
        if self.classes is not None:
            out["classes"] = torch.from_numpy(self.classes)
        if self.space is not None:
            for name in ("centre", "directions", "lemma", "has"):
                out[f"space.{name}"] = torch.from_numpy(np.ascontiguousarray(getattr(self.space, name)))
        return out

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, torch.Tensor], inputs: CountInputs) -> CountModel:
        """Return the model that `tensors` describes; it predicts the same bits.

        Args:
            tensors: What `tensors` returned.
            inputs: The inputs that it was fitted with.

        Raises:
            InputError: A tensor is missing, damaged or doesn't fit the inputs.
        """
        reader = Reader(tensors, inputs)
        scalars = reader.scalars()
        slots = [*ARGUMENTS, *CONTEXT][: len(scalars) - len(DEFAULTS)]
        counts, noise = reader.counts(len(slots)), bool(reader.ints("noise", 0, 2).any())
        model = cls(inputs, counts, reader.space(), reader.classes(), slots, scalars, reader.reliability(), noise)
        model.joint_error = reader.joint_error()
        model.channels = reader.channels(list(model.reliability))
        model.frequency = reader.frequency()
        compiled = reader.compiled()
        model.compiled = compiled if isinstance(compiled, Compiled) else model._recompile(compiled)
        return model

    def _recompile(self, key: Ints) -> Compiled:
        """Compile the predicates of these keys."""
        listed, numbers = number_of_entries(self.inputs) + 1, self.inputs.words + len(self.inputs.endings) + 2
        unit, form = key // numbers, key % numbers - 1
        lemma, entry = unit // listed, unit % listed - 1
        if len(lemma) and lemma.max() >= self.inputs.lemmas:
            raise InputError("expected predicates of the training documents", field="counts.compiled.key")
        return self._compile(lemma, entry, np.full(len(key), -1), form, key)

    # ---- evidence ----------------------------------------------------------------------------------------

    def evidence(self, sources: Mapping[str, Source], events: EventArrays, corrected: bool = True) -> Evidence:
        """Return what sources say of events, under their reliabilities.

        Args:
            sources: What each source says; an item is the index of an event.
            events: The events.
            corrected: Whether labels may be wrong, where that was estimated; otherwise they are beliefs.
        """
        if self._confusable is None:
            counts = self.counts
            self._confusable = confusable_frames(counts.lemma, counts.of_lemma, counts.mass, self.inputs.frames)
        return count_evidence.evidence(
            sources,
            len(events),
            self.inputs.frames,
            self.reliability,
            self.channels,
            self._confusable,
            events.lemma,
            self.noise and corrected,
        )


def _check(events: EventArrays, sources: Mapping[str, Source], inputs: CountInputs) -> None:
    if not len(events):
        raise ValueError("events: expected at least one")
    if events.lemma.min() < 0 or events.lemma.max() >= inputs.lemmas:
        raise ValueError(f"events.lemma: expected numbers from 0 to {inputs.lemmas - 1} in training events")
    for name, source in sources.items():
        if len(source.item) and (source.item.min() < 0 or source.item.max() >= len(events)):
            raise ValueError(f"source {name}: expected items from 0 to {len(events) - 1}")
        if len(source.frame) and (source.frame.min() < 0 or source.frame.max() >= inputs.frames):
            raise ValueError(f"source {name}: expected frames from 0 to {inputs.frames - 1}")


def _softmax(score: Floats, left: Floats, position: Ints, first: Ints) -> tuple[Floats, Floats]:
    """Return probabilities of rows and remainders."""
    top = np.maximum(np.maximum.reduceat(score, first), left) if len(first) else left
    inside, outside = np.exp(score - top[position]), np.exp(left - top)
    total = np.add.reduceat(inside, first) + outside if len(first) else outside
    return inside / total[position], outside / total
