"""Prediction: the frames of every event of a stream of documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from revup.data.events import Document
from revup.inference.trained import Trained, opened


def predict(
    model: Trained | str | Path, documents: Iterable[Document], top: int = 5, revise: bool = False
) -> Iterator[Document]:
    """Label the events of documents; any number of documents in constant memory.

    Args:
        model: The model, or its run directory.
        documents: What to label, for instance `revup.read("docs.jsonl")`.
        top: How many frames to give for each event.
        revise: Use the labels that the documents carry as side knowledge; otherwise they are ignored.

    Returns:
        The documents in their order, each event with a further key
        `predicted: [{"frame": …, "probability": …}, …]`, the most probable frame first.

    Raises:
        RevupError: The model does not predict frames.
    """
    for document, events in opened(model).predict_documents(documents, top, revise):
        labelled = []
        for event, frames in zip(document.events, events, strict=True):
            shown = [{"frame": name, "probability": round(probability, 6)} for name, probability in frames]
            labelled.append(replace(event, extra={**(event.extra or {}), "predicted": shown}))
        yield replace(document, events=labelled)
