"""What to label next, and which labels to check again, in one ranking by what it is expected to gain.

The gain of an entry is the expected number of events of the file that have a right frame because of it: events without
a label have the model's prediction, the others their label. Labelling an event of a lemma gains what `revup.auditing.
gain` says, and the event itself, as far as the model is not sure of it. Checking a label gains by p(wrong): the label
itself, and what a label of its lemma is worth to other events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from revup.auditing.audit import errors_of, judged_events, row_of, unknown_labels
from revup.auditing.errors import Errors
from revup.auditing.gain import MOST, accuracies, mean_predictions, slopes
from revup.auditing.judge import Judged
from revup.auditing.left_out import Floats, Ints
from revup.data.corpus import Corpus
from revup.data.documents import Given
from revup.data.events import Event
from revup.errors import RevupError
from revup.inference.loading import opened
from revup.inference.trained import Trained
from revup.models.count_prior import CountPrior

QUANTILE = 1.645  # of the normal distribution: a 90% interval
BIAS = 0.02  # standard deviation of the mean confidence as an estimate of accuracy, with many labels
SCATTER = 0.8  # what is added to it by few labels, times the square root of their number
DOUBT = 0.2  # standard deviation of the expected rise of the accuracy, as a share of it
FEW = 10  # documents below which lemmas are taken to recur from event to event
DOCUMENTS, ASSUMED = 0.06, 5  # standard deviation of accuracy between documents, and how many of them that is worth
LEAST = 1e-6  # gain from which on an entry is listed
FORECASTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # numbers of labels, as multiples of n, that the forecast names


@dataclass
class Suggestions:
    """What to label or check next.

    Attributes:
        rows: The entries, most useful first: those of `revup.auditing.issues`, with `action` ("label" or "check") and
            `gain`.
        summary: Figures: `events`, `labelled`, `suggested`, `label`, `check`, `gain` (of the whole list),
            `accuracy` (expected now, of predictions for new documents) and `accuracy_interval` (90%), `forecast` (a
            list of `labels`, `accuracy`, `accuracy_interval`), `unknown_labels`, `unknown_frames` (as in an audit).
    """

    rows: list[dict[str, Any]]
    summary: dict[str, Any] = field(default_factory=dict)


def suggest(
    model: Trained | str | Path, documents: Given | Corpus, n: int = 100, *, split: str = "train", check: bool = True
) -> Suggestions:
    """Choose what to label next, and which labels to check again.

    Args:
        model: The model, or its run directory.
        documents: Documents with and without labels, or a dataset.
        n: How many entries at most.
        split: Part of the dataset.
        check: Whether labels are to be checked again, too.

    Returns:
        The entries, most useful first, and a forecast of the accuracy.

    Raises:
        RevupError: The model has no counts, or there is nothing to label.
    """
    if n < 1:
        raise RevupError(f"n: expected 1 or more, found {n}")
    model = opened(model)
    judged = judged_events(model, documents, split, "suggest")
    counts = model.module.counts
    assert counts is not None  # judged_events has checked it
    found = errors_of(model, judged) if (judged.label >= 0).any() else None
    plan = Plan(judged, counts, found, model.lexicon is not None)
    chosen = plan.order(n, check)
    rows = [_row(model, plan, number, gain) for number, gain in chosen]
    if not rows:
        raise RevupError("there is nothing to label or to check: every event has a label, and none is doubtful")
    return Suggestions(rows, _summary(plan, chosen, n))


class Plan:
    """Events in the order in which they are to be labelled.

    Args:
        judged: The events.
        counts: The model's counts.
        found: Which labels are wrong; None without labels.
        listed: Whether there is a dictionary.

    Attributes:
        open: Events without a label.
        group: The lemma of each of them, as a number [open].
        now: Expected accuracy of predictions for new documents.
        between: Its variance between documents.
        events_of: The number of events of each document.
        recurring: The share of their events that each lemma will have [lemmas].
    """

    def __init__(self, judged: Judged, counts: CountPrior, found: Errors | None, listed: bool) -> None:
        self.judged, self.found = judged, found
        undecided = judged.reviewed < 0
        labelled = judged.label >= 0
        labelled[list(judged.unknown)] = True  # by a frame that the model does not know
        self.open = np.flatnonzero(~labelled & undecided)
        self.labelled = np.flatnonzero((judged.label >= 0) & undecided)
        names: dict[str, int] = {}
        every = [lemma_of(judged.documents[where].events[index]) for where, index in judged.place]
        number = np.array([names.setdefault(name, len(names)) for name in every], np.int64)
        self.lemmas, self.lemma = list(names), number
        self.group: Ints = number[self.open]
        mean, self.number = mean_predictions(self.group, len(names), judged.frames[self.open], judged.shares[self.open])
        strength = float(np.exp(counts.model.scalars["a_entry" if listed else "a"]))
        seen = np.bincount(self.group, judged.seen[self.open], minlength=len(names)) / np.maximum(self.number, 1)
        has = self.number > 0
        self.curves = np.ones((len(names), MOST + 1))
        self.curves[has] = accuracies(mean[has], seen[has] + strength)
        self.slopes = slopes(self.curves * self.number[:, None])
        sure = np.where(
            judged.label < 0, judged.shares[:, 0], np.maximum(judged.given, judged.against * judged.shares[:, 0])
        )
        where = np.array([where for where, _ in judged.place], np.int64)
        self.now, self.recurring = self._new_documents(sure, where)
        self.between, self.events_of = between_documents(sure, where)

    def order(self, n: int, check: bool = True) -> list[tuple[int, float]]:
        """Return the best entries with their gains, falling.

        Args:
            n: How many at most.
            check: Whether labels are checked again.
        """
        sure = self.judged.shares[self.open, 0]
        entropy = -(self.judged.shares[self.open] * np.log(self.judged.shares[self.open] + 1e-12)).sum(1)
        order = np.lexsort((self._repeats(), -entropy, self.group))
        order = order[np.lexsort((self._repeats()[order], self.group[order]))]  # different words first
        rank = np.arange(len(order)) - np.searchsorted(self.group[order], self.group[order])
        worth = np.where(rank < MOST, self.slopes[self.group[order], np.minimum(rank, MOST - 1)], 0.0)
        gain = worth + (1 - sure[order])
        events = self.open[order]
        if check and self.found is not None:
            wrong = self.found.wrong[self.labelled]
            events = np.concatenate([events, self.labelled])
            gain = np.concatenate([gain, wrong * (1 + self.slopes[self.lemma[self.labelled], 0])])
        best = np.argsort(-gain, kind="stable")[:n]
        return [(int(events[place]), float(gain[place])) for place in best if gain[place] > LEAST]

    def _repeats(self) -> Ints:
        """How many earlier events of the file have the same lemma, form and object [open]."""
        seen: dict[tuple[Any, ...], int] = {}
        out = np.zeros(len(self.open), np.int64)
        for place, number in enumerate(self.open.tolist()):
            where, index = self.judged.place[number]
            event = self.judged.documents[where].events[index]
            key = (event.pred, event.obj)
            out[place] = seen.get(key, 0)
            seen[key] = out[place] + 1
        return out

    def accuracy(self, chosen: Sequence[int] = ()) -> Floats:
        """Return the expected accuracy of predictions for new documents before and after labels of some events [2]."""
        spent = np.bincount(self.lemma[np.array(chosen, np.int64)], minlength=len(self.lemmas))
        rows = np.arange(len(self.lemmas))
        rise = self.curves[rows, np.minimum(spent, MOST)] - self.curves[rows, 0]
        return np.array([self.now, min(self.now + float((self.recurring * rise).sum()), 1.0)])

    def _new_documents(self, sure: Floats, unit: Ints) -> tuple[float, Floats]:
        """Return the accuracy to expect in new documents, and the share that each lemma will have of their events.

        A lemma that only one document has says how many events of new documents have a lemma that is not here (Good and
        Turing's estimate); these are predicted as events of lemmas without a label are.
        """
        judged, n, lemmas = self.judged, max(len(self.judged), 1), len(self.lemmas)
        if len(np.unique(unit)) < FEW:
            unit = np.arange(len(judged))
        owner = np.unique(self.lemma * (unit.max(initial=0) + 1) + unit) // (unit.max(initial=0) + 1)
        once = np.bincount(owner, minlength=lemmas) < 2
        recurring = np.where(once, 0, np.bincount(self.lemma, minlength=lemmas)) / n
        # of a lemma's events those without a label: the others are predicted without their own
        weight = np.where((judged.label < 0) & (judged.reviewed < 0), 1.0, 1e-9)
        mean = np.bincount(self.lemma, weight * sure, minlength=lemmas) / np.bincount(
            self.lemma, weight, minlength=lemmas
        )
        unknown = judged.seen < 0.5
        first = unknown & once[self.lemma]
        new = sure[first] if first.any() else sure[unknown] if unknown.any() else sure
        return float((recurring * mean).sum() + (1 - recurring.sum()) * new.mean()), recurring


def between_documents(sure: Floats, document: Ints) -> tuple[float, Ints]:
    """Return the variance of confidence between documents, by moments, and the number of events of each document."""
    _, unit, size = np.unique(document, return_inverse=True, return_counts=True)
    n, documents, between = len(sure), len(size), 0.0
    if 1 < documents < n:
        mean = np.bincount(unit, sure) / size
        within = float(((sure - mean[unit]) ** 2).sum()) / (n - documents)
        among = float((size * (mean - sure.mean()) ** 2).sum()) / (documents - 1)
        between = max(among - within, 0.0) * (documents - 1) / (n - float((size**2).sum()) / n)
    known = documents if 1 < documents < n else 0
    return (known * between + ASSUMED * DOCUMENTS**2) / (known + ASSUMED), size


def lemma_of(event: Event) -> str:
    """Return what events are grouped by: the lemma, else the predicate."""
    return (event.lemma or event.pred).lower()


def _row(model: Trained, plan: Plan, number: int, gain: float) -> dict[str, Any]:
    judged, label = plan.judged, int(plan.judged.label[number])
    wrong = 1.0 if label < 0 or plan.found is None else float(plan.found.wrong[number])
    row = row_of(model, judged, number, label, wrong, judged.frames[number], judged.shares[number])
    del row["place"]
    name = plan.lemmas[plan.lemma[number]]
    others = int(plan.number[plan.lemma[number]]) - (label < 0)
    if label < 0:
        said = [f"{others} other events of “{name}” have no label; {judged.seen[number]:.0f} labels are known"]
    else:
        said = [f"the label is wrong with probability {wrong:.2f}; {others} events of “{name}” have no label"]
    return {**row, "reasons": said, "action": "label" if label < 0 else "check", "gain": round(gain, 4)}


def _summary(plan: Plan, chosen: Sequence[tuple[int, float]], n: int) -> dict[str, Any]:
    labels = [number for number, _ in chosen if plan.judged.label[number] < 0]
    whole = [number for number, _ in plan.order(int(max(FORECASTS) * n), check=False)]
    sizes = sorted({max(1, round(part * n)) for part in FORECASTS})
    forecast = [forecast_of(plan, whole[:size]) for size in sizes if size <= len(whole)]
    now = forecast_of(plan, []) if len(plan.open) else {"accuracy": None, "accuracy_interval": None}
    return {
        "events": len(plan.judged),
        "labelled": int((plan.judged.label >= 0).sum()),
        **unknown_labels(plan.judged),
        "suggested": len(chosen),
        "label": len(labels),
        "check": len(chosen) - len(labels),
        "gain": round(sum(gain for _, gain in chosen), 2),
        "accuracy": now["accuracy"],
        "accuracy_interval": now["accuracy_interval"],
        "forecast": forecast,
    }


def forecast_of(plan: Plan, chosen: Sequence[int], held_out: Ints | None = None) -> dict[str, Any]:
    """Return the accuracy to expect of predictions after some events were labelled.

    Args:
        plan: The plan.
        chosen: The events.
        held_out: The number of events of each document that the accuracy is measured on; None: the interval is that of
            the accuracy itself.
    """
    now, then = plan.accuracy(chosen)
    known = int(((plan.judged.label >= 0) | (plan.judged.reviewed >= 0)).sum())
    variance = BIAS**2 + SCATTER**2 / max(known, 1) + (DOUBT * (then - now)) ** 2
    variance += plan.between * _concentration(plan.events_of)
    if held_out is not None:
        variance += then * (1 - then) / held_out.sum() + plan.between * _concentration(held_out)
    reach = QUANTILE * float(np.sqrt(variance))
    return {
        "labels": len(chosen),
        "accuracy": round(float(then), 4),
        "accuracy_interval": [round(max(float(then) - reach, 0.0), 4), round(min(float(then) + reach, 1.0), 4)],
    }


def _concentration(events_of: Ints) -> float:
    """Return Σm²/(Σm)²: one over the number of documents, were they all of one size."""
    return float((events_of.astype(float) ** 2).sum() / max(float(events_of.sum()), 1.0) ** 2)
