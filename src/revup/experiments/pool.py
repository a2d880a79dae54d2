"""A pool of events whose labels are revealed bit by bit, and counts that are fitted to those revealed.

The training events of a dataset that have a reference frame are the pool; test events are predicted by the counts.
`revup suggest` is asked through its own plan, on the same predictions as every other strategy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from revup.auditing.errors import errors
from revup.auditing.judge import Judged, compared
from revup.auditing.suggest import Plan
from revup.data.corpus import Corpus, Split
from revup.data.events import Document, Event
from revup.data.source_evidence import Source
from revup.data.sources import REVIEWED
from revup.data.sparse_table import Table
from revup.data.told import OWN
from revup.experiments.strategies import State
from revup.models.count_corpus import count_inputs, event_arrays
from revup.models.count_features import EventArrays, rows_of
from revup.models.count_fit import Predictions
from revup.models.count_model import CountModel
from revup.models.count_prior import REVIEWED_RATES, CountPrior

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
KEPT = 6  # fits that several curves share
DIMENSIONS = 32  # of the vectors that strategies see


def references(split: Split) -> Ints:
    """Return the reference frames of a split's events, −1 without one [events]."""
    there = np.arange(split.arrays["keys"].shape[1]) < np.asarray(split.arrays["lengths"])[:, None]
    return np.asarray(split.arrays["reference"])[there].astype(np.int64)


class Pool:
    """Events to be labelled, and events to be predicted.

    Args:
        corpus: The dataset.
        rows: The training events to use; by default all. Those without a reference are never labelled.
        scored: Training events that are predicted in place of the test split's.

    Attributes:
        events, item, truth: The training events, which of them are the pool, and the frames of these.
        test, answers: The events that are predicted, and their frames.
        x: Vectors of the pool's events [pool, DIMENSIONS].
    """

    def __init__(self, corpus: Corpus, rows: Ints | None = None, scored: Ints | None = None) -> None:
        train = corpus.split("train")
        self.inputs = count_inputs(corpus.vocabulary, corpus.frames, corpus.lexicon, corpus.vectors())
        whole, reference = event_arrays(train, self.inputs.lemmas), references(train)
        rows = np.arange(len(whole)) if rows is None else rows
        self.events = whole.take(rows)
        self.item = np.flatnonzero(reference[rows] >= 0)
        self.truth: Ints = reference[rows][self.item]
        if scored is None:
            test, answers = event_arrays(corpus.split("test"), self.inputs.lemmas), references(corpus.split("test"))
        else:
            test, answers = whole.take(scored), reference[scored]
        known = np.bincount(self.events.lemma, minlength=self.inputs.lemmas) > 0
        has = np.flatnonzero(answers >= 0)
        test = test.take(has)
        self.test: EventArrays = replace(test, lemma=np.where(known[test.lemma], test.lemma, -1))
        self.answers: Ints = answers[has]
        self.x = self._vectors()
        self._blank = self._judged()
        self._shared: dict[tuple[int, bytes, bytes], Fit] = {}

    def __len__(self) -> int:
        return len(self.item)

    def fit(self, label: Ints, trusted: Ints | None = None, seed: int = 0) -> Fit:
        """Fit the counts to some labels.

        Args:
            label: Labels, −1 without one [pool].
            trusted: Labels that are trusted, likewise.
            seed: Of the fit.
        """
        trusted = np.full(len(self), -1, np.int64) if trusted is None else trusted
        told = {}
        for name, given in ((OWN, label), (REVIEWED, trusted)):
            has = np.flatnonzero(given >= 0)
            if len(has):
                told[name] = Source("label", self.item[has], given[has])
        rates = {REVIEWED: REVIEWED_RATES} if REVIEWED in told else {}
        return Fit(self, CountModel.fit(self.events, told, self.inputs, known_rates=rates, seed=seed), label, trusted)

    def shared(self, label: Ints, trusted: Ints | None = None, seed: int = 0) -> Fit:
        """Return `fit` of labels that several curves have in common: the last few are kept."""
        key = (seed, label.tobytes(), b"" if trusted is None else trusted.tobytes())
        if key not in self._shared:
            self._shared[key] = self.fit(label, trusted, seed)
            if len(self._shared) > KEPT:
                del self._shared[next(iter(self._shared))]
        return self._shared[key]

    def _vectors(self) -> Floats:
        """The predicate's vector beside the mean of its arguments', by principal components."""
        inputs = self.inputs
        words = rows_of(self.events.read[self.item], inputs.words)
        if inputs.vectors is None or inputs.found is None:
            table = np.random.default_rng(0).standard_normal((int(words.max(initial=0)) + 1, DIMENSIONS))
            there = words >= 0
        else:
            table, there = inputs.vectors.astype(np.float64), (words >= 0) & inputs.found[words]
        found = table[words] * there[..., None]
        rest = found[:, 1:].sum(1) / np.maximum(there[:, 1:].sum(1), 1)[:, None]
        both = np.concatenate([found[:, 0], rest], 1)
        both -= both.mean(0)
        _, axes = np.linalg.eigh(both.T @ both)
        return np.asarray(both @ axes[:, ::-1][:, :DIMENSIONS])

    def _judged(self) -> Judged:
        """The pool as `revup suggest` takes it, before anything is known of it."""
        words, lemma, n = self.events.read[self.item], self.events.lemma[self.item], len(self)
        documents: dict[int, Document] = {}
        place = []
        for word, number, owner in zip(
            words.tolist(), lemma.tolist(), self.events.document[self.item].tolist(), strict=True
        ):
            document = documents.setdefault(owner, Document(str(owner), []))
            document.events.append(Event(str(word[0]), None, str(word[2]), lemma=str(number)))
            place.append((owner, len(document.events) - 1))
        numbers = {owner: number for number, owner in enumerate(documents)}
        none, zero = np.full(n, -1, np.int64), np.zeros(n)
        return Judged(
            list(documents.values()),
            [(numbers[owner], index) for owner, index in place],
            list(range(n)),
            [OWN] * n,
            zero,
            {},
            none,
            lemma,
            zero,
            none,
            zero,
            zero,
            zero,
            none[:, None],
            zero[:, None],
        )


@dataclass
class Fit:
    """Counts that were fitted to some labels of a pool.

    Attributes:
        pool, model, label, trusted: The pool, the counts, and the labels.
    """

    pool: Pool
    model: CountModel
    label: Ints
    trusted: Ints

    def accuracy(self) -> float:
        """Return the accuracy on the pool's test events."""
        return self._accuracy

    @cached_property
    def _accuracy(self) -> float:
        return float((best(self.model, self.model.predict(self.pool.test)) == self.pool.answers).mean())

    def state(self) -> State:
        """Return what strategies may know."""
        return State(self.p, self.label, self.trusted, self.pool.x, self.suggested)

    def suggested(self, n: int, check: bool) -> Ints:
        """Return the events that `revup suggest` names."""
        plan = self._plan(True) if check else self.plan
        return np.array([number for number, _ in plan.order(n, check)], np.int64)

    @cached_property
    def _left_out(self) -> Predictions:
        return self.model.predict(self.pool.events, "event")

    @cached_property
    def p(self) -> Floats:
        """Predictions without own labels [pool, K]."""
        return dense(self.model, self._left_out, self.pool.item)

    @cached_property
    def plan(self) -> Plan:
        """The plan of `revup suggest`, as long as no label is to be checked."""
        return self._plan(False)

    def _plan(self, check: bool) -> Plan:
        pool, p, seen = self.pool, self.p, self._left_out.seen[self.pool.item]
        lemma, has = pool.events.lemma[pool.item], np.flatnonzero(self.label >= 0)
        named = Table(lemma[has], self.label[has], np.ones(len(has)), pool.inputs.frames)
        found = compared(p, self.label, lemma, named)
        judged = replace(pool._blank, label=self.label, seen=seen, reviewed=self.trusted, **vars(found))
        wrong = None
        if check and len(has):
            wrong = errors(judged, pool.inputs.frames, self.model.reliability)
        counts = CountPrior(self.model, np.zeros(0, bool), np.zeros(0, np.uint64))
        return Plan(judged, counts, wrong, pool.inputs.dictionary is not None)


def dense(model: CountModel, found: Predictions, rows: Ints) -> Floats:
    """Return probabilities of some events as a matrix [rows, K].

    Args:
        model: The counts.
        found: Their predictions.
        rows: Which events.
    """
    number = np.repeat(np.arange(len(found.rest)), np.diff(found.start))
    outside = np.maximum(1.0 - np.bincount(number, model.base[found.frame], minlength=len(found.rest)), 1e-9)
    out = (found.rest / outside)[rows, None] * model.base
    place = np.full(len(found.rest), -1, np.int64)
    place[rows] = np.arange(len(rows))
    keep = place[number] >= 0
    out[place[number[keep]], found.frame[keep]] = found.probability[keep]
    return np.asarray(out)


def best(model: CountModel, found: Predictions) -> Ints:
    """Return the most probable frame of each event."""
    return np.asarray(dense(model, found, np.arange(len(found.rest))).argmax(1), np.int64)
