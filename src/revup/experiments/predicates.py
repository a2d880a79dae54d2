"""Predicates: the most ambiguous ones, and the mean predicted frames of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.corpus import Corpus, Split
from revup.data.encode import TOKENS
from revup.data.knowledge import Observation
from revup.inference.measures import BATCH
from revup.inference.trained import Trained
from revup.world.world import World

Floats = NDArray[np.float64]


def frame_means(
    model: Trained, split: Split, predicates: Sequence[int], revise: bool = False, hard: bool = False
) -> Floats:
    """Mean predicted frames of predicates, [P, K].

    Args:
        model: A model that predicts frames.
        split: The events to average over.
        predicates: Numbers of the predicates in the vocabulary.
        revise: Take the revised distribution, with every label observed, instead of the proposal.
        hard: Take the most probable frame, one-hot, instead of its distribution.

    Returns:
        The means, 0 for a predicate without events.
    """
    row = {number: place for place, number in enumerate(predicates)}
    total, count = np.zeros((len(predicates), split.classes)), np.zeros(len(predicates))
    for batch in model.module.batches(split, Observation(float(revise)), BATCH).ordered():
        with torch.no_grad():
            found = model.module.frame_probabilities(batch, revise=revise)[batch.mask].double().cpu().numpy()
        if hard:
            found = np.eye(found.shape[1])[found.argmax(1)]
        place = np.array([row.get(word, -1) for word in batch.tokens[:, ::TOKENS][batch.mask].tolist()])
        np.add.at(total, place[place >= 0], found[place >= 0])
        np.add.at(count, place[place >= 0], 1)
    return np.asarray(total / np.maximum(count, 1)[:, None])


def known_frames(world: World, corpus: Corpus) -> tuple[list[str], Floats]:
    """The world's predicates, and exact p(frame|predicate), [P, K], in the order of the corpus's frames."""
    names, table = world.frame_given_predicate()
    return names, table[:, [world.frames.index(frame) for frame in corpus.frames]]


def entropy(table: Floats) -> Floats:
    """Entropy of each row of probabilities, in nats."""
    return np.asarray(-(table * np.log(np.maximum(table, 1e-300))).sum(-1))


def most_ambiguous(table: Floats, frequency: Floats, shown: int) -> NDArray[np.intp]:
    """Of the frequent predicates those with the most uncertain frame, ordered by their most probable frame.

    Args:
        table: p(frame|predicate), [P, K].
        frequency: Of each predicate, [P].
        shown: How many to choose, out of twice as many frequent ones.

    Returns:
        Their rows in the table.
    """
    often = np.argsort(-frequency, kind="stable")[: 2 * shown]
    often = often[frequency[often] > 0]
    chosen = often[np.argsort(-entropy(table[often]), kind="stable")[:shown]]
    return np.asarray(chosen[np.lexsort((-table[chosen].max(1), table[chosen].argmax(1)))])
