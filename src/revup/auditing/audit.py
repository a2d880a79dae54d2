"""Audit of labels: which are probably wrong, what they should be instead, and how many errors there are.

`revup.auditing.judge` says how far each label is contradicted by everything else, `revup.auditing.errors` how many are
wrong; p_wrong follows from both. p_given is the probability of the given frame without its own label.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from revup.auditing.errors import Errors, errors
from revup.auditing.issues import describe
from revup.auditing.judge import Judged, judge
from revup.auditing.left_out import LeftOut, reviewed_labels, training_events
from revup.auditing.parts import parts
from revup.auditing.reasons import contradictions, explain
from revup.data.corpus import Corpus
from revup.data.documents import Given
from revup.errors import RevupError
from revup.inference.loading import opened
from revup.inference.trained import Trained

FLAGGED = 0.5  # p_wrong from which on a label counts as flagged
CERTAIN = 0.95  # probability from which on a missing label is listed
SHOWN = 4  # frames of a row's posterior


@dataclass
class Audit:
    """What an audit found.

    Attributes:
        rows: The issues as `revup.auditing.issues` describes them, most suspicious first.
        summary: Figures: `events`, `labelled`, `unknown_labels` (how many name a frame that the model does not know:
            they are not judged), `unknown_frames` (which), `estimated_errors`, `estimated_errors_interval`,
            `error_rate`, `sources`, `flagged`, `told_by` (what the interval rests on), `arbitrary_errors`,
            `contradicted`, and by frame and predicate `expected_errors_by_frame`, `expected_errors_by_predicate`,
            `mixed_up` (pairs of frames), `contradictions` (equal events with different labels).
    """

    rows: list[dict[str, Any]]
    summary: dict[str, Any] = field(default_factory=dict)


def audit(
    model: Trained | str | Path,
    documents: Given | Corpus,
    *,
    missing: bool = False,
    split: str = "train",
    folds: int = 0,
) -> Audit:
    """Find labels that are probably wrong.

    Args:
        model: The model, or its run directory.
        documents: Documents with labels, usually those that the model was trained on, or a dataset. Of the dataset that
            the model was trained on, the training labels are audited as it observed them.
        missing: Also list events without a label whose frame is nearly certain, with `given` None.
        split: Part of the dataset.
        folds: 0: training events are judged without their own labels. N: by counts that are fitted N times, each time
            without the labels of a part of the documents.

    Returns:
        One row for every labelled event, most suspicious first, and figures.

    Raises:
        RevupError: The model has no counts, no event has a label, or there are fewer documents than folds.
    """
    model = opened(model)
    judged = judged_events(model, documents, split, "an audit", folds)
    if not (judged.label >= 0).any():
        named = [name for name, _ in unknown_frames(judged)[:3] if name]
        raise RevupError(
            "no event has a label that the model knows" + (f"; it does not know {', '.join(named)}" if named else "")
        )
    found = errors_of(model, judged)
    rows = [row for number in range(len(judged)) if (row := issue(model, judged, found, number, missing)) is not None]
    explain(model, judged.documents, rows)
    for row in rows:
        del row["place"]
    rows.sort(key=lambda row: (row["given"] is None, -row["p_wrong"], row["id"], row["event"]))
    return Audit(rows, _summary(model, judged, found, rows))


def judged_events(model: Trained, documents: Given | Corpus, split: str, what: str, folds: int = 0) -> Judged:
    """Return events with what the model says of them without their own labels.

    Args:
        model: The model.
        documents: Documents, or a dataset.
        split: Part of the dataset.
        what: Who asks, for the error.
        folds: As in `audit`.

    Raises:
        RevupError: The model has no counts, or there are fewer documents than folds.
    """
    counts = model.module.counts
    if counts is None or not model.module.predicts_frames:
        raise RevupError(f"{what} needs a model with counts, such as counts or revup; this is {model.config.model}")
    knowledge = LeftOut(counts, training_events(model, counts, folds))
    return judge(model, knowledge, parts(model, documents, split), reviewed_labels(model))


def errors_of(model: Trained, judged: Judged) -> Errors:
    """Return how many labels are wrong, and which.

    Args:
        model: The model.
        judged: The events.
    """
    counts = model.module.counts
    return errors(judged, len(model.frames), {} if counts is None else counts.model.reliability)


def issue(model: Trained, judged: Judged, found: Errors, number: int, missing: bool = True) -> dict[str, Any] | None:
    """Return a row of the list, without reasons; None for an event without a label that is not nearly certain.

    Args:
        model: The model.
        judged: The events.
        found: How many labels are wrong, and which.
        number: The event.
        missing: Whether events without a label are listed.
    """
    label, wrong = int(judged.label[number]), float(found.wrong[number])
    frames, shares = judged.frames[number], judged.shares[number]
    if label < 0 and (number in judged.unknown or not (missing and shares[0] >= CERTAIN)):
        return None
    return row_of(model, judged, number, label, wrong if label >= 0 else 1.0, frames, shares)


def row_of(
    model: Trained, judged: Judged, number: int, label: int, wrong: float, frames: Any, shares: Any
) -> dict[str, Any]:
    """Return a row about an event; `wrong` is the mass of the frames other than its label."""
    where, index = judged.place[number]
    document = judged.documents[where]
    posterior = {model.frames[k]: round(float(wrong * p), 4) for k, p in zip(frames, shares, strict=True) if p > 0}
    if label >= 0:
        posterior[model.frames[label]] = round(1 - wrong, 4)
    best = sorted(posterior.items(), key=lambda pair: -pair[1])[:SHOWN]
    return {
        "id": document.id,
        "event": judged.index[number],
        "pred": document.events[index].pred,
        "given": None if label < 0 else model.frames[label],
        "p_given": None if label < 0 else round(float(judged.given[number]), 6),
        "p_wrong": 0.0 if label < 0 else round(min(max(wrong, 0.0), 1.0), 6),
        "proposed": model.frames[int(frames[0])],
        "p_proposed": round(float(wrong * shares[0]), 6),
        "source": judged.source[number],
        "reasons": [],
        "posterior": dict(best),
        **describe(document, index),
        "place": (where, index),
    }


def unknown_labels(judged: Judged) -> dict[str, Any]:
    """Return how many labels name a frame that the model does not know, and the most frequent of these frames.

    Args:
        judged: The events.
    """
    return {"unknown_labels": len(judged.unknown), "unknown_frames": dict(unknown_frames(judged)[:20])}


def unknown_frames(judged: Judged) -> list[tuple[str, int]]:
    """Return frames of labels that the model does not know, each with the number of its events, most frequent first.

    Args:
        judged: The events.
    """
    return sorted(Counter(judged.unknown.values()).items(), key=lambda pair: (-pair[1], pair[0]))


def _summary(model: Trained, judged: Judged, found: Errors, rows: list[dict[str, Any]]) -> dict[str, Any]:
    labelled = int((judged.label >= 0).sum())
    by_frame, by_predicate, mixed = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for row in rows:
        if row["given"] is not None:
            by_frame[row["given"]] += row["p_wrong"]
            by_predicate[row["pred"].lower()] += row["p_wrong"]
            mixed[row["given"], row["proposed"]] += row["p_proposed"]
    counts = model.module.counts
    return {
        "events": len(judged),
        "labelled": labelled,
        **unknown_labels(judged),
        "estimated_errors": round(found.expected, 1),
        "estimated_errors_interval": [round(end, 1) for end in found.interval],
        "error_rate": round(found.expected / max(labelled, 1), 4),
        "sources": {
            name: {"error_rate": each.error_rate, "identified": each.identified, "interval": each.interval}
            for name, each in ({} if counts is None else counts.model.reliability).items()
        },
        "flagged": int((found.wrong >= FLAGGED).sum()),
        "told_by": found.told_by,
        "arbitrary_errors": round(found.arbitrary, 1),
        "contradicted": round(found.contradicted, 1),
        "reviewed": int((judged.reviewed >= 0).sum()),
        "expected_errors_by_frame": {name: round(count, 2) for name, count in by_frame.most_common(20)},
        "expected_errors_by_predicate": {name: round(count, 2) for name, count in by_predicate.most_common(20)},
        "mixed_up": [
            {"given": given, "proposed": proposed, "expected": round(count, 2)}
            for (given, proposed), count in mixed.most_common(20)
        ],
        "contradictions": contradictions(judged.documents),
    }
