"""Training events without the labels of their own document, lemma or event, as queries of the count model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from revup.data.sparse_table import Floats, Ints, Table, entries
from revup.models.count_features import numbered
from revup.models.count_fit import Query
from revup.models.count_tables import Counts, Labels, OwnSlot, Training, slot_ratio


class OwnCounts:
    """Labels of groups of events, to be left out where one of these events is asked about.

    Args:
        outer: What is left out together, of all training events: their document, or their lemma.
        inner: What is counted, of all training events: lemma, form, word; −1 is not counted.
        labels: The labels.
        width: The number of frames K.
    """

    def __init__(self, outer: Ints, inner: Ints, labels: Labels, width: int) -> None:
        size = int(inner.max(initial=0)) + 2
        self.group = np.where(inner >= 0, outer * size + inner, -1)
        there = self.group[labels.event] >= 0
        self.groups, place = np.unique(self.group[labels.event[there]], return_inverse=True)
        self.table = Table(place, labels.frame[there], labels.weight[there], width)
        self.starts, self.sums = self.table.starts(len(self.groups)), np.append(self.table.sums(len(self.groups)), 0.0)

    def __call__(self, events: Ints, key: Ints) -> tuple[Floats, Floats]:
        """Return the labels of each event's own group, at the rows of events and in all [queries].

        Args:
            events: The events that are asked about [queries].
            key: query·K + frame of each row, ascending [rows].
        """
        row = numbered(self.group[events], self.groups)
        asked = np.flatnonzero(row >= 0)
        cell, position, _ = entries(self.starts, row[asked])
        at = numbered(asked[position] * self.table.width + self.table.column[cell], key)
        found = at >= 0
        value = np.bincount(at[found], self.table.value[cell[found]], minlength=len(key)).astype(np.float64)
        return value, np.where(row >= 0, self.sums[row], 0.0)


class LeftOut:
    """What is left out of the counts for each training event: the labels of its own group.

    Args:
        outer: What is left out together, of all training events: their document, or their lemma.
        training: All training events.
        counts: The counts.
        labels, whole: What was counted: observed labels, and these with expected labels.
        slots: Which slots to compute.
    """

    def __init__(
        self, outer: Ints, training: Training, counts: Counts, labels: Labels, whole: Labels, slots: Sequence[bool]
    ) -> None:
        width = len(counts.of_frame)
        self.outer, self.training, self.counts, self.slots = outer, training, counts, slots
        self.lemma = OwnCounts(outer, training.lemma, labels, width)
        self.lemma_whole = self.lemma if labels is whole else OwnCounts(outer, training.lemma, whole, width)
        self.form = OwnCounts(outer, training.form, labels, width)
        self.frame = OwnCounts(outer, np.zeros(len(outer), np.int64), whole, width)
        groups = np.arange(int(outer.max(initial=0)) + 1)
        self.base = OwnCounts(groups, np.zeros_like(groups), own_base(outer, training, counts, labels), width)
        self.words, self.pairs = {}, {}
        for j, (table, word) in enumerate(zip(counts.slots, training.words, strict=True)):
            if slots[j]:
                both = np.where(word >= 0, training.lemma * max(len(table.values), 1) + word, -1)
                self.words[j] = OwnCounts(outer, word, whole, width)
                self.pairs[j] = OwnCounts(outer, both, labels, width)

    def __call__(self, q: Query, events: Ints) -> Query:
        """Return a query of training events without the labels of their own groups, with its slots.

        Args:
            q: The events' predicates with all labels counted.
            events: The events.
        """
        counts, key = self.counts, q.position * len(self.counts.of_frame) + q.frame
        own, own_n = self.lemma(events, key)
        own_form, own_n_form = self.form(events, key)
        own_frame, own_total = self.frame(events, key)
        own_all = own if self.lemma_whole is self.lemma else self.lemma_whole(events, key)[0]
        count = np.maximum(q.count - own, 0.0)
        ratios = np.zeros((len(self.slots), len(key)))
        for j, words in self.words.items():
            own_word, own_n_word = words(events, key)
            own_pair, _ = self.pairs[j](events, key)
            left = OwnSlot(own_word, own_frame, own_pair, own_n_word, own_total)
            word = self.training.words[j][events]
            ratios[j] = slot_ratio(counts.slots[j], counts.of_frame, word, q.lemma, q.position, q.frame, count, left)
        change, less = self.base(self.outer[events], key)
        return replace(
            q,
            base=(q.base * counts.bases - change) / (counts.bases - less)[q.position],
            elsewhere=np.maximum(q.elsewhere - (own_frame - own_all), 0.0),
            count=count,
            form_count=np.maximum(q.form_count - own_form, 0.0),
            labels=np.maximum(q.labels - own_n, 0.0),
            form_labels=np.maximum(q.form_labels - own_n_form, 0.0),
            slots=ratios,
        )


def own_base(outer: Ints, training: Training, counts: Counts, labels: Labels) -> Labels:
    """Return what labels of each group add to `base` (before it is normalised), as labels of the group's number."""
    width, size = len(counts.of_frame), int(training.lemma.max(initial=0)) + 1
    groups, place = np.unique((outer * size + training.lemma)[labels.event], return_inverse=True)
    own = Table(place, labels.frame, labels.weight, width)
    lemma, group = (groups % size)[own.row], (groups // size)[own.row]
    whole = counts.lemma(lemma, own.column)
    change = np.minimum(whole, 1.0) - np.clip(whole - own.value, 0.0, 1.0)
    keep = change > 1e-9
    return Labels(group[keep], own.column[keep], change[keep])
