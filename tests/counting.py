"""Small inputs of the count model, and its predictions as dense tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from revup.data.encode import NULL
from revup.data.reliability import Source
from revup.data.sparse_table import Table
from revup.models.count_model import CountInputs, CountModel, EventArrays, Predictions

WORDS = 40


def events(lemma: Any, document: Any = None, **given: Any) -> EventArrays:
    """Events whose predicate is word 5 + lemma, without arguments or entries where not given."""
    lemma = np.asarray(lemma, np.int64)
    n = len(lemma)
    read = np.full((n, 4), NULL, np.int64)
    read[:, 0] = lemma + 5
    for column, name in enumerate(("pred", "subj", "obj", "mod")):
        if name in given:
            read[:, column] = given[name]
    return EventArrays(
        read=read,
        lemma=lemma,
        lemma_read=np.asarray(given.get("lemma_read", lemma + 5), np.int64),
        entry=np.asarray(given.get("entry", np.full(n, -1)), np.int64),
        document=np.arange(n) if document is None else np.asarray(document, np.int64),
        context=np.asarray(given.get("context", np.zeros((n, 4))), np.int64),
    )


def inputs(lemmas: int, frames: int, dictionary: Table | None = None, vectors: bool = False) -> CountInputs:
    words = np.random.default_rng(0).normal(size=(WORDS, 8)).astype(np.float16)
    found = np.arange(WORDS) >= 5
    endings = np.zeros(WORDS, np.int64)
    return CountInputs(
        WORDS, lemmas, frames, endings, dictionary, words if vectors else None, found if vectors else None
    )


def labels(frame: Any, item: Any = None) -> Source:
    frame = np.asarray(frame, np.int64)
    return Source("label", np.arange(len(frame)) if item is None else np.asarray(item, np.int64), frame)


def dense(model: CountModel, found: Predictions) -> Any:
    """The probabilities of all frames [n, K]."""
    n, width = len(found.rest), model.inputs.frames
    position = np.repeat(np.arange(n), np.diff(found.start))
    out = np.zeros((n, width))
    out[position, found.frame] = found.probability
    for i in range(n):
        outside = np.setdiff1d(np.arange(width), found.frame[found.start[i] : found.start[i + 1]])
        if len(outside):
            out[i, outside] = found.rest[i] * model.base[outside] / model.base[outside].sum()
    return out


def corpus(n: int = 300, lemmas: int = 12, frames: int = 6, seed: int = 0) -> tuple[EventArrays, Any]:
    """Labelled events with arguments that tell something."""
    random = np.random.default_rng(seed)
    lemma = random.integers(lemmas, size=n)
    frame = (lemma + random.choice([0, 0, 0, 1], size=n)) % frames
    words = {name: 20 + (frame + random.integers(3, size=n)) % 12 for name in ("subj", "obj")}
    return events(lemma, random.integers(n // 5, size=n), **words), frame


def a_dictionary(lemmas: int, frames: int) -> Table:
    row = np.repeat(np.arange(lemmas), 2)
    frame = np.stack([np.arange(lemmas) % frames, (np.arange(lemmas) + 1) % frames], 1).ravel()
    return Table(row, frame, np.full(len(row), 0.5), frames)


def only(model: CountModel, **scalars: float) -> None:
    """Replace scalars of a fitted model and compile it again."""
    model.scalars = {**model.scalars, **scalars}
    assert model._training is not None
    model._training.compile()
