"""Fitting the count model, and predicting its training events with labels left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.encode import UNK
from revup.data.source_evidence import Source
from revup.data.sparse_table import Floats, Ints, Table, entries
from revup.models import count_sources
from revup.models.count_context import (
    context_gain,
    context_weight,
    frequency,
    in_context,
    of_trusted,
    without_document,
)
from revup.models.count_correction import Channel
from revup.models.count_features import NEUTRAL, CountInputs, EventArrays, numbered, pair_sums, slot_values
from revup.models.count_fit import (
    DEFAULTS,
    OF_ENTRIES,
    Predictions,
    Query,
    Rows,
    back_off,
    estimate,
    log_probability,
    of_labels,
    of_noisy_labels,
    predictions,
    query,
    sample,
)
from revup.models.count_left_out import LeftOut
from revup.models.count_revision import (
    CLEARLY,
    ambiguity_first,
    mean_labels,
    probabilities,
    repeated,
    revision,
    stated,
    told_by_context,
)
from revup.models.count_sources import MOSTLY, Combined, combine
from revup.models.count_tables import Labels, Supports, Training, Units, count, supports

if TYPE_CHECKING:
    from revup.models.count_model import CountModel

UNLABELLED = 0.3  # u
ENOUGH = 20  # labelled events that scalars are estimated from
UNSURE = 0.1  # missing weight of the labels of an event from which on its prediction counts
PASSES = 3  # of narrowing candidates down
HIDDEN_FRAMES = 40  # of a predicate whose lemma is left out
NO_FORM = 9.0  # log a_f at which a form counts nothing beside its lemma
PRUNE = 1e-4  # of the largest probability of a predicate: frames below go into the remainder
EVENTS = 2**15  # predicted at once

LeaveOut = Literal["nothing", "event", "document", "lemma"]


def training_of(events: EventArrays, inputs: CountInputs, classes: NDArray[Any] | None, slots: int) -> Training:
    """Return training events as the tables number them."""
    values = slot_values(events, inputs, classes, slots)
    known = [np.unique(value[value != NEUTRAL]) for value in values]
    words = [numbered(value, table) for value, table in zip(values, known, strict=True)]
    form = np.where(events.read[:, 0] == UNK, -1, events.read[:, 0])
    return Training(events.lemma, form, events.document, words, known, entries_of_lemmas(events, inputs))


def number_of_entries(inputs: CountInputs) -> int:
    book = inputs.dictionary
    return 0 if book is None or not len(book.key) else int(book.key[-1]) // book.width + 1


def entries_of_lemmas(events: EventArrays, inputs: CountInputs) -> Table:
    """Return the dictionary entries of lemmas, averaged over their events [L, K]."""
    book = inputs.dictionary
    nothing = np.zeros(0, np.int64)
    if book is None:
        return Table(nothing, nothing, np.zeros(0), inputs.frames)
    has = events.entry >= 0
    size = number_of_entries(inputs) + 1
    keys, number = np.unique(events.lemma[has] * size + events.entry[has], return_counts=True)
    lemma, entry = keys // size, keys % size
    share = number / np.maximum(np.bincount(lemma, number, minlength=inputs.lemmas), 1)[lemma]
    row, position, _ = entries(book.starts(size), entry)
    return Table(lemma[position], book.column[row], book.value[row] * share[position], inputs.frames)


class Fitted(count_sources.Prior):
    """A model with its training events: what fitting and leaving labels out need."""

    def __init__(self, model: CountModel, events: EventArrays, training: Training) -> None:
        self.model, self.events, self.training = model, events, training
        self.defaults = dict(model.scalars)
        columns, unit = np.unique(np.stack([events.lemma, events.entry]), axis=1, return_inverse=True)
        self.units = Units(columns[0], columns[1], np.full(len(columns[0]), -1, np.int64))
        self.lemma = events.lemma
        self.predicate: Ints = unit.reshape(-1).astype(np.int64)
        book = model.inputs.dictionary
        self.listed = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        if book is not None:
            row, position, _ = entries(book.starts(int(columns[1].max(initial=0)) + 1), np.maximum(columns[1], 0))
            there = columns[1][position] >= 0
            self.listed = (position[there], book.column[row[there]])
        self.has_entry = len(self.listed[0]) > 0
        listed = np.bincount(self.listed[0], minlength=len(self.units)) > 0
        self.strength = np.exp(np.where(listed, model.scalars["a_entry"], model.scalars["a"]))
        self.labels, self.whole = Labels.none(), Labels.none()
        self.sources: Mapping[str, Source] = {}
        self.supports: Supports | None = None

    def same(self, events: EventArrays) -> bool:
        """Return whether these are the training events."""
        mine = self.events
        return len(events) == len(mine) and bool(
            (events.lemma == mine.lemma).all() and (events.document == mine.document).all()
        )

    def pool(self, labels: Labels, extra: Labels | None = None) -> Supports:
        """Count labels anew."""
        model = self.model
        model.counts = count(self.training, model.inputs, labels, extra)
        self.labels, self.whole = labels, labels if extra is None else labels.joined(extra)
        self.supports = supports(self.units, model.counts, model.inputs, model.neighbours, keep=True)
        return self.supports

    def table(self, labels: Labels) -> Table:
        """Return G [units, K] with these labels counted."""
        found, model = self.pool(labels), self.model
        unit = np.arange(len(self.units))
        q = query(found, unit, np.full(len(unit), -1), model.counts)
        back, _ = back_off(model.scalars, q)
        return Table(q.position, q.frame, back.numpy(), model.inputs.frames)

    def learn(
        self,
        sources: Mapping[str, Source],
        known_rates: Mapping[str, tuple[float, float]],
        unlabelled: bool,
        seed: int,
    ) -> None:
        """Combine the sources, estimate the scalars, narrow candidates down, add expected labels, and compile."""
        model, number, document = self.model, len(self.events), self.training.document
        self.sources = sources
        combined = combine(sources, number, model.inputs.frames, self, document, model.noise, known_rates)
        labels = combined.labels
        model.reliability, model.channels = combined.reliability, combined.channels
        model.joint_error = combined.joint_error
        self.estimate(combined, self.pool(labels), seed)
        noisy = self.noisy(combined)
        if noisy is not None and (self.arbitrary(combined, noisy) or noisy not in known_rates):
            labels = self.revised(combined, noisy, seed)
        self.compile()
        if combined.narrow:
            for _ in range(PASSES):
                self.pool(labels.joined(self.narrowed(combined.narrow)))
                self.compile()
            labels = self.labels
        missing = 1.0 - pair_sums(labels.weight, labels.event, len(self.events))
        if unlabelled and self.has_entry and (missing > UNSURE).any():
            self.pool(labels, self.expected(np.flatnonzero(missing > UNSURE), missing))
            self.compile()
        model.frequency = frequency(model.compiled, self.pair, model.base)
        model.scalars["document"] = self.document_weight(combined, seed)

    def document_weight(self, combined: Combined, seed: int) -> float:
        """Return the weight of document context, estimated where there are enough labels."""
        default, document, model = self.defaults["document"], self.training.document, self.model
        name = self.noisy(combined)
        if name is not None and not self.arbitrary(combined, name):
            name = None
        trusted = combined.trusted
        chosen = sample(trusted.event if name is None else self.sources[name].item, seed)
        if len(chosen) < ENOUGH:
            return default
        events = np.flatnonzero(np.isin(document, np.unique(document[chosen])))
        found = self.alone("document", events)
        gain = self.gain(found, events)
        if name is None:
            known = np.isin(trusted.event, chosen)
            labels = Labels(np.searchsorted(events, trusted.event[known]), trusted.frame[known], trusted.weight[known])
            return context_weight(of_trusted(found, gain, labels, model.inputs.frames))
        said = self.said(self.sources[name], model.channels[name], chosen)
        position = np.searchsorted(events, chosen)[said[0]]

        def likelihood(weight: float) -> float:
            p = probabilities(in_context(found, gain, weight), model.base, position, said[1])
            return float(np.log(stated(p, said)).sum())

        return context_weight(likelihood)

    def gain(self, found: Predictions, events: Ints) -> Floats:
        """Return what whole documents of training events add to predictions without their labels."""
        part, model = self.events.take(events), self.model
        f = without_document(found, part.document, model.base)
        return context_gain(found, part, f, model.inputs.frames)

    def estimate(self, combined: Combined, found: Supports, seed: int) -> None:
        """Estimate the scalars from trusted labels, or from noisy ones if these are more and err arbitrarily."""
        self.estimate_all(combined.trusted, found, seed)
        name = self.noisy(combined)
        if name is not None and self.arbitrary(combined, name):
            self.estimate_noisy(self.sources[name], combined.channels[name], found, seed)

    def estimate_all(self, labels: Labels, found: Supports, seed: int) -> None:
        """Estimate the scalars from labels that are taken for the truth, if there are enough."""
        model, width = self.model, self.model.inputs.frames
        model.scalars = dict(self.defaults)
        chosen = sample(labels.event, seed)
        if len(chosen) >= ENOUGH:
            q = self.without_own(chosen, found)
            fixed = () if self.has_entry else OF_ENTRIES
            model.scalars = estimate(self.defaults, q, of_labels(q, chosen, labels, width), fixed)

    def estimate_noisy(
        self, source: Source, channel: Channel, found: Supports, seed: int, slots_only: bool = False
    ) -> None:
        """Estimate the scalars by the likelihood of labels that may be wrong.

        A label that is wrong at the rate ρ tells less: the priors of the scalars weigh 1/(1 − ρ).

        Args:
            source: The labels.
            channel: How they err.
            found: What was counted.
            seed: Of the sample of labels.
            slots_only: Whether the other scalars stay. Confusable errors of a predicate depend on each other, so that
                leaving one out tells nothing of how far to trust its counts.
        """
        model = self.model
        chosen = sample(source.item, seed)
        q = self.without_own(chosen, found)
        start = {n: value if n in DEFAULTS else self.defaults[n] for n, value in model.scalars.items()}
        fixed = tuple(DEFAULTS) if slots_only else () if self.has_entry else OF_ENTRIES
        likelihood = of_noisy_labels(q, *self.said(source, channel, chosen), model.inputs.frames)
        model.scalars = estimate(start, q, likelihood, fixed, 1.0 if slots_only else 1.0 / (1.0 - channel.rho))

    def said(self, source: Source, channel: Channel, chosen: Ints) -> tuple[Ints, Ints, Floats, Floats]:
        """Return what a source's labels of some events say, as `Channel.likelihood`."""
        label = np.zeros(len(self.events), np.int64)
        label[source.item] = source.frame
        return channel.likelihood(self.lemma[chosen], label[chosen])

    def noisy(self, combined: Combined) -> str | None:
        """Return the largest noisy source, if it says more than trusted labels."""
        size = {name: len(self.sources[name].item) for name in combined.channels}
        least = max(ENOUGH, len(np.unique(combined.trusted.event)))
        return max((name for name in size if size[name] > least), key=lambda name: size[name], default=None)

    def arbitrary(self, combined: Combined, name: str) -> bool:
        """Return whether errors of a noisy source are mostly any frame."""
        return combined.channels[name].kappa < MOSTLY

    def revised(self, combined: Combined, name: str, seed: int) -> Labels:
        """Return all labels, those of the noisy source revised by their events (`revup.models.count_revision`)."""
        model, source, channel = self.model, self.sources[name], combined.channels[name]
        rest = _without(combined.labels, source.item)
        self.compile()
        found = revision(self, source, channel)
        if self.arbitrary(combined, name):
            labels = found.labels.joined(rest)
            self.estimate(combined, self.pool(labels), seed)
            return labels
        scored, scalars = repeated(self, source), model.scalars
        other = ambiguity_first(self, rest, source, channel, seed)
        gain = (other.log_likelihood - found.log_likelihood)[scored]
        alone = bool(gain.sum() > CLEARLY * len(gain))
        labels, model.scalars, model.channels[name] = other.labels.joined(rest), other.scalars, other.channel
        if not alone:
            labels = mean_labels(combined.labels, labels)
            model.scalars = {key: (scalars[key] + value) / 2 for key, value in other.scalars.items()}
            model.channels[name] = replace(channel, rho=(channel.rho + other.channel.rho) / 2)
        model.reliability[name] = told_by_context(model.reliability[name], other.rate, alone)
        self.pool(labels)
        return labels

    def without_own(self, events: Ints, found: Supports) -> Query:
        """Return events as queries, without the labels of their own documents."""
        model, outer = self.model, self.training.document
        q = query(found, self.predicate[events], self.training.form[events], model.counts)
        slots = [True] * len(model.slots)
        return LeftOut(outer, self.training, model.counts, self.labels, self.labels, slots)(q, events)

    def narrowed(self, narrow: Mapping[str, Source]) -> Labels:
        """Return the model's predictions of events, multiplied by the likelihood of their candidates."""
        model = self.model
        said = model.evidence(narrow, self.events)
        events = np.flatnonzero(said.spoken)
        found = model.alone(self.events.take(events))
        width = model.inputs.frames
        position = np.repeat(np.arange(len(events)), np.diff(found.start))
        place = np.full(len(self.events), -1, np.int64)
        place[events] = np.arange(len(events))
        outside = 1 - pair_sums(model.base[found.frame], position, len(events))
        prior = Table(position, found.frame, found.probability, width)
        row, frame = place[said.event], said.frame
        p = prior(row, frame)
        p = np.where(p > 0, p, model.base[frame] * (found.rest / np.maximum(outside, 1e-9))[row]) * said.value
        total = pair_sums(p, row, len(events))
        weight = p / np.maximum(total, 1e-300)[row]
        keep = weight > count_sources.LEAST_SHARE
        return Labels(said.event[keep], frame[keep], weight[keep])

    def expected(self, rest: Ints, missing: Floats) -> Labels:
        """Return predictions of events without a label, or with one that tells little, as labels of weight u."""
        found = self.model.alone(self.events.take(rest))
        keep = found.probability > 0.01
        event = np.repeat(rest, np.diff(found.start))
        weight = UNLABELLED * missing[event] * found.probability
        return Labels(event[keep], found.frame[keep], weight[keep])

    def compile(self) -> None:
        """Compile the training events' predicates."""
        model = self.model
        assert self.supports is not None
        known = numbered(self.training.form, model.counts.forms) >= 0
        form = np.where(known, self.training.form, -1)
        key = model._key(self.events.lemma, self.events.entry, np.full(len(form), -1), form)
        keys, example, self.pair = np.unique(key, return_index=True, return_inverse=True)
        model.compiled, self.kept = model._compile_supports(self.supports, self.predicate[example], form[example], keys)
        model._confusable = None

    # ---- leaving labels out ------------------------------------------------------------------------------

    def predict(self, leave_out: LeaveOut) -> Predictions:
        """Return predictions of all training events without their own labels, those of their document or lemma."""
        events = np.arange(len(self.events))
        found = self.alone(leave_out, events)
        return in_context(found, self.gain(found, events), self.model.scalars["document"])

    def alone(self, leave_out: LeaveOut, chosen_events: Ints) -> Predictions:
        """Return predictions of training events with labels left out, by each event alone."""
        model = self.model
        used = [model.scalars[f"slot{j}"] > 1e-3 for j in range(len(model.slots))]
        start, rows, group = self._kept_rows(leave_out)
        outer = self._outer(leave_out)
        without = LeftOut(outer, self.training, model.counts, self.labels, self.whole, used)
        blocks, seen = [], []
        assert self.supports is not None
        for begin in range(0, len(chosen_events), EVENTS):
            events = chosen_events[begin : begin + EVENTS]
            row, position, first = entries(start, group[events])
            chosen: Rows = rows[row], position, first
            form = self.training.form[events] if leave_out != "lemma" else np.full(len(events), -1)
            q = query(self.supports, self.predicate[events], form, model.counts, chosen)
            q = without(q, events)
            with torch.no_grad():
                inside, rest = (tensor.numpy() for tensor in log_probability(model.scalars, q))
            blocks.append((np.diff(np.append(first, len(row))), q.frame, np.exp(inside), np.exp(rest)))
            seen.append(q.labels)
        return predictions(blocks, np.concatenate(seen) if seen else np.zeros(0))

    @contextmanager
    def lemmas_only(self) -> Iterator[None]:
        """Predict by lemma, not by form: both count the same labels, which revised by both would confirm themselves."""
        scalars = self.model.scalars
        self.model.scalars = {**scalars, "a_form": NO_FORM}
        try:
            yield
        finally:
            self.model.scalars = scalars

    def _outer(self, leave_out: LeaveOut) -> Ints:
        """Return what is left out together, as a number of each event."""
        if leave_out == "event":
            return np.arange(len(self.events), dtype=np.int64)
        return self.training.document if leave_out == "document" else self.training.lemma

    def _kept_rows(self, leave_out: LeaveOut) -> tuple[Ints, Ints, Ints]:
        """Return which rows of the supports to ask about: where groups begin, their rows, and the group of each event.

        An event that leaves out much of its predicate's labels is asked about all of them.
        """
        model, found = self.model, self.supports
        assert found is not None
        unit = np.arange(len(self.units))
        if leave_out == "lemma":
            q = query(found, unit, np.full(len(unit), -1), model.counts)
            back = back_off(model.scalars, q)[0].numpy()
            order = np.lexsort((-back, q.position))
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order)) - q.first[q.position[order]]
            keep = ((rank < HIDDEN_FRAMES) & (back > PRUNE)) | (found.listed > 0) | (rank == 0)
            return (
                np.append(0, np.cumsum(np.bincount(q.position[keep], minlength=len(unit)))),
                np.flatnonzero(keep),
                self.predicate,
            )
        pairs = model.compiled
        # groups: all predicates with their pruned rows, then all units with all rows
        start = np.concatenate([pairs.start, pairs.start[-1] + found.start[1:]])
        rows = np.concatenate([self.kept, np.arange(len(found.frame))])
        total = np.bincount(self.training.lemma[self.labels.event], self.labels.weight, minlength=model.inputs.lemmas)
        key = self._outer(leave_out) * model.inputs.lemmas + self.training.lemma
        groups, place = np.unique(key[self.labels.event], return_inverse=True)
        own = np.append(pair_sums(self.labels.weight, place, len(groups)), 0.0)[numbered(key, groups)]
        much = (own > 0.3 * total[self.training.lemma]) & (own > 0)
        return start, rows, np.where(much, len(pairs.key) + self.predicate, self.pair)


def _without(labels: Labels, events: Ints) -> Labels:
    """Return the labels of other events."""
    keep = ~np.isin(labels.event, events)
    return Labels(labels.event[keep], labels.frame[keep], labels.weight[keep])
