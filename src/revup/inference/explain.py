"""Why a model predicts what it does: the dictionary's and the counts' say, and what the context changed of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from revup.data.batches import Batch
from revup.data.events import Document, Event
from revup.errors import RevupError

if TYPE_CHECKING:
    from revup.inference.trained import Trained

LEAST_CHANGE = 0.001  # of a probability that is worth a line


def can_explain(model: Trained) -> bool:
    """Whether a model can tell its parts: it predicts frames, and stands on counts."""
    return model.module.predicts_frames and model.module.counts is not None


def explain(
    model: Trained, documents: Sequence[Document], top: int = 5, revise: bool = False
) -> list[list[dict[str, Any]]]:
    """What the parts of a model contribute to the frames of every event.

    Args:
        model: The model.
        documents: What is labelled.
        top: Frames of each part.
        revise: Use the labels that the documents carry, as `predict` does.

    Returns:
        Per document, per event: `lexicon`, the frames that the dictionary lists of the predicate; `counts`, what the
        counts say of the event alone, both most probable first as {"frame", "probability"}; `context`, by how much the
        document's other events, the network and (with `revise`) the given labels moved probabilities away from that,
        {"frame", "change"}, the largest change first; `labels`, how many labels of the predicate were counted.

    Raises:
        RevupError: The model has no counts, or does not predict frames.
    """
    if not can_explain(model):
        raise RevupError(f"the model {model.config.model} (preset {model.config.preset}) can't tell its parts")

    def counts(batch: Batch) -> Tensor:
        prior = torch.softmax(model.module.log_prior(batch).float(), dim=-1)
        return torch.cat([prior, batch.labels.unsqueeze(-1).float()], dim=-1)

    def final(batch: Batch) -> Tensor:
        return model.module.frame_probabilities(batch, revise=revise).float()

    single = [Document(f"{number}", [event]) for number, event in enumerate(e for d in documents for e in d.events)]
    alone = iter(model.by_document(single, False, counts))
    return [
        [_event(model, event, next(alone)[0], row, top) for event, row in zip(document.events, found, strict=True)]
        for document, found in zip(documents, model.by_document(documents, revise, final), strict=True)
    ]


def _event(model: Trained, event: Event, alone: Any, final: Any, top: int) -> dict[str, Any]:
    counts, labels = alone[:-1], float(alone[-1])
    change = final - counts
    most = abs(change).argsort(kind="stable")[::-1][:top]
    return {
        "lexicon": _listed(model, event, top),
        "counts": [
            {"frame": model.frames[k], "probability": float(counts[k])} for k in (-counts).argsort(kind="stable")[:top]
        ],
        "context": [
            {"frame": model.frames[k], "change": float(change[k])} for k in most if abs(change[k]) >= LEAST_CHANGE
        ],
        "labels": labels,
    }


def _listed(model: Trained, event: Event, top: int) -> list[dict[str, Any]]:
    """What the dictionary lists of the predicate, among the model's frames."""
    if model.lexicon is None:
        return []
    number = model.lexicon.entry(event.lemma or event.pred, event.pos)
    if number < 0:
        return []
    predicate, pos = model.lexicon.keys[number]
    senses = model.lexicon.senses(predicate, pos or None)
    known = [(frame, share) for frame, share in senses.items() if frame in set(model.frames)]
    return [{"frame": frame, "probability": share} for frame, share in known[:top]]
