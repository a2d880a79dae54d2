"""Prediction: the frames of every event of a stream of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from revup.data.documents import Given
from revup.data.events import Document, Event, document_to_json
from revup.inference.abstain import Abstention
from revup.inference.loading import opened
from revup.inference.trained import Trained


def predict(
    model: Trained | str | Path,
    documents: Given,
    top: int = 5,
    revise: bool = False,
    at_least: float | Abstention = 0.0,
    live: bool = False,
) -> Iterator[Document]:
    """Label the events of documents; any number of documents in constant memory.

    Args:
        model: The model, or its run directory.
        documents: What to label, for instance `revup.read("docs.jsonl")`: documents or dicts of their JSON form, or one
            of them.
        top: How many frames to give for each event.
        revise: Use the labels that the documents carry as side knowledge; otherwise they are ignored.
        at_least: Leave `predicted` empty where the most probable frame has less than this probability. An `Abstention`
            also counts, and knows the accuracy to expect of what it kept.
        live: Answer a document as soon as it is there, rather than waiting until a batch is full. The documents are
            then read by another thread.

    Returns:
        The documents in their order, each event with a further key
        `predicted: [{"frame": …, "probability": …}, …]`, the most probable frame first, and `known`: whether training,
        lexicon or word vectors know its predicate.

    Raises:
        RevupError: The model does not predict frames.
    """
    model = opened(model)
    rule = at_least if isinstance(at_least, Abstention) else Abstention(model, at_least, revise) if at_least else None
    for document, events in model.predict_documents(documents, top, revise, live):
        yield label(document, events, model.knows, None if rule is None else rule.keep)


def label(
    document: Document,
    predicted: Sequence[Sequence[tuple[str, float]]],
    knows: Callable[[Event], bool],
    keep: Callable[[Sequence[tuple[str, float]]], bool] | None = None,
) -> Document:
    """Return a document whose events have the keys `predicted` and `known`.

    Args:
        document: The document.
        predicted: Frames with probabilities for each event, the most probable first.
        knows: Whether an event's predicate is known.
        keep: Decides which predictions are kept; the others are left empty.
    """
    labelled = [
        replace(event, extra={**(event.extra or {}), **_answer(event, frames, knows, keep)})
        for event, frames in zip(document.events, predicted, strict=True)
    ]
    return replace(document, events=labelled)


def labelled_json(
    document: Document,
    predicted: Sequence[Sequence[tuple[str, float]]],
    knows: Callable[[Event], bool],
    keep: Callable[[Sequence[tuple[str, float]]], bool] | None = None,
) -> dict[str, Any]:
    """Return the JSON form of what `label` returns, in half of the time.

    Args:
        document, predicted, knows, keep: As for `label`.
    """
    data = document_to_json(document)
    for shown, event, frames in zip(data["events"], document.events, predicted, strict=True):
        shown |= _answer(event, frames, knows, keep)
    return data


def _answer(
    event: Event,
    frames: Sequence[tuple[str, float]],
    knows: Callable[[Event], bool],
    keep: Callable[[Sequence[tuple[str, float]]], bool] | None,
) -> dict[str, Any]:
    """The keys that a prediction adds to an event."""
    shown = [{"frame": name, "probability": round(probability, 6)} for name, probability in frames]
    return {"predicted": shown if keep is None or keep(frames) else [], "known": knows(event)}
