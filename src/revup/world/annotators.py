"""Simulated annotators: sources of labels whose error rate, and where their errors go, are planted.

An annotator labels an event of true frame t with

    p(y|t) = 1 − ρ   if y = t,      else   ρ · [(1 − κ)/(K − 1) + κ · c(y|t)]

ρ is its error rate, κ the share of its errors that are confusable, and c(y|t) is in proportion to the number of
predicates that y and t share. So ρ is the share of wrong labels: unlike with η, no replacement is right by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from revup.data.events import Document, Event
from revup.data.knowledge import Keys, document_key, event_keys, uniforms
from revup.errors import RevupError
from revup.fields import check, setting
from revup.world.exact import Floats, Ints
from revup.world.probabilities import invert

_LABELS, _WRONG, _CONFUSABLE, _REPLACEMENT = range(1, 5)  # streams of random numbers of an event and an annotator


@dataclass(frozen=True)
class Annotator:
    """A simulated source of labels."""

    rate: float = setting(0.1, "error rate: the probability that a label is wrong", minimum=0, maximum=1)
    confusable: float = setting(
        0.0,
        "share of the errors that are frames sharing predicates with the true one; the others are any frame",
        minimum=0,
        maximum=1,
    )
    coverage: float = setting(1.0, "share of the events that it labels", minimum=0, maximum=1)

    def __post_init__(self) -> None:
        check(self, "annotator")


def annotators(sources: Mapping[str, float | Annotator]) -> dict[str, Annotator]:
    """Return the annotator of each source's name; a number is an error rate."""
    for name in sources:
        if not isinstance(name, str) or not name.strip():
            raise RevupError(f"sources: expected a name for each source, found {name!r}")
    return {
        name: source if isinstance(source, Annotator) else Annotator(rate=source) for name, source in sources.items()
    }


def sharing(predicate_probs: Floats) -> Floats:
    """Return c(y|t) [K, K] (rows t), in proportion to the number of predicates that y and t share; its diagonal is 0.

    Args:
        predicate_probs: p(pred|t) [K, P]. A frame that shares no predicate is confused with any other.
    """
    uses = (predicate_probs > 0).astype(np.float64)
    shared = uses @ uses.T
    np.fill_diagonal(shared, 0.0)
    shared[shared.sum(axis=1) == 0] = 1.0
    np.fill_diagonal(shared, 0.0)
    return np.asarray(shared / shared.sum(axis=1, keepdims=True))


def confusion(annotator: Annotator, shared: Floats) -> Floats:
    """Return p(y|t) of an annotator, [K, K] (rows t).

    Args:
        annotator: Its error rate, and where its errors go.
        shared: c(y|t) [K, K].
    """
    anywhere = (1 - np.eye(len(shared))) / (len(shared) - 1)
    wrong = (1 - annotator.confusable) * anywhere + annotator.confusable * shared
    return np.asarray((1 - annotator.rate) * np.eye(len(shared)) + annotator.rate * wrong)


def draw_labels(annotator: Annotator, name: str, keys: Keys, truth: Ints, shared: Floats, seed: int) -> Ints:
    """Draw an annotator's labels; a higher error rate makes a superset of the labels wrong.

    Args:
        annotator: The annotator.
        name: Its name; annotators of different names err independently.
        keys: Hashes of the events [n].
        truth: Their true frames [n].
        shared: c(y|t) [K, K].
        seed: Seed of the draws.

    Returns:
        Frames [n], −1 for an event without a label.
    """
    keys = keys ^ np.uint64(document_key(f"annotator/{name}"))
    draw = uniforms(keys, seed, _REPLACEMENT)
    others = len(shared) - 1
    anywhere = (truth + 1 + np.minimum((draw * others).astype(np.int64), others - 1)) % len(shared)
    confusable = uniforms(keys, seed, _CONFUSABLE) < annotator.confusable
    wrong = uniforms(keys, seed, _WRONG) < annotator.rate
    label = np.where(wrong, np.where(confusable, invert(shared, truth, draw), anywhere), truth)
    return np.where(uniforms(keys, seed, _LABELS) < annotator.coverage, label, -1)


def annotate(
    documents: Sequence[Document],
    sources: Mapping[str, Annotator],
    frames: Sequence[str],
    shared: Floats,
    seed: int,
    truth: bool,
) -> list[Document]:
    """Return copies of documents whose events have a `sources` key; `World.annotate` explains the arguments."""
    column = {name: index for index, name in enumerate(frames)}
    events = [event for document in documents for event in document.events]
    for document in documents:
        for index, event in enumerate(document.events):
            if event.frame not in column:
                found = "none" if event.frame is None else repr(event.frame)
                raise RevupError(f"{document.id}: events[{index}].frame: expected a frame of this world, found {found}")
    true = np.array([column[event.frame or ""] for event in events], dtype=np.int64)
    owners = np.array([document_key(document.id) for document in documents for _ in document.events], dtype=np.uint64)
    places = np.array([index for document in documents for index in range(len(document.events))], dtype=np.int64)
    keys = event_keys(owners, places)
    drawn = {name: draw_labels(each, name, keys, true, shared, seed).tolist() for name, each in sources.items()}
    labelled = []
    for number, event in enumerate(events):
        said = {name: frames[labels[number]] for name, labels in drawn.items() if labels[number] >= 0}
        told = {**statements(event), **said}
        labelled.append(replace(event, frame=event.frame if truth else None, sources=told or None))
    rest = iter(labelled)
    return [replace(document, events=[next(rest) for _ in document.events]) for document in documents]


def statements(event: Event) -> Mapping[str, Any]:
    """Return what each source says about an event."""
    return event.sources or {}
