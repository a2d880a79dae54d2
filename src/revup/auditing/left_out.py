"""What a model says of events without their own labels.

Counts that hold an event's own label would confirm it. So the priors of training events leave it out; nothing is left
out of events that the run was not trained on: it remembers those it was. What leaving out needs is not stored in a run,
the counts are fitted again on its dataset, which takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.batches import Batches, Prior
from revup.data.corpus import Corpus, Split
from revup.data.decisions import trusted_labels
from revup.data.knowledge import Observation, Seen
from revup.data.sparse_table import Table
from revup.errors import InputError, RevupError
from revup.inference.evaluate import trained_on
from revup.inference.trained import Trained
from revup.models.count_prior import CountPrior

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WINDOWS = 500  # in a batch


@dataclass(frozen=True)
class TrainingEvents:
    """Hashes of the training events, ascending [n], their priors without their own labels [n, …], and which frames
    labels gave to the lemmas [L, K]."""

    keys: NDArray[np.uint64]
    prior: Prior
    named: Table


def reviewed_labels(model: Trained) -> dict[tuple[str, int], str]:
    """Return the reviewed labels that a run was trained with: (document id, index of the event) → frame."""
    path = _labels_path(model)
    return {} if path is None else trusted_labels(path)


def _labels_path(model: Trained) -> Path | None:
    where = model.data.get("labels")
    if not where:
        return None
    path = (model.path or Path(".")) / str(where)
    return path if path.exists() else None


def training_events(model: Trained, counts: CountPrior, folds: int = 0) -> TrainingEvents | None:
    """Return the training events of a run; None where nothing was counted.

    Args:
        model: The model.
        counts: Its counts.
        folds: 0: leave out each event's own label. N: leave out all labels of a part of the documents, N times.

    Raises:
        RevupError: The run's dataset is not there, or has fewer documents than folds.
    """
    try:
        corpus = trained_on(model)
    except (RevupError, InputError):
        if len(counts.keys):
            raise
        return None
    if (path := _labels_path(model)) is not None:
        corpus = corpus.with_labels(trusted_labels(path), path)
    return folded_events(corpus, model, folds) if folds else left_out_events(corpus, model, "event")


def left_out_events(corpus: Corpus, model: Trained, what: str = "event") -> TrainingEvents:
    """Fit the counts again and leave the labels of each event, or of its document, out of its prior.

    Args:
        corpus: The dataset that the model was trained on.
        model: The model.
        what: "event" or "document".
    """
    again = CountPrior.fit(corpus, model.config.observation, model.config.objective)
    prior = again.left_out(corpus.split("train"), "document" if what == "document" else "event")
    return _training_events(corpus, model, prior)


def folded_events(corpus: Corpus, model: Trained, folds: int) -> TrainingEvents:
    """Fit the counts once for each part of the documents, without its labels.

    A network of the model is not trained again.

    Args:
        corpus: The dataset that the model was trained on.
        model: The model.
        folds: The number of parts.

    Raises:
        RevupError: There are fewer documents than folds.
    """
    split = corpus.split("train")
    owner = np.asarray(split.arrays["document"])
    documents = np.unique(owner)
    if not 2 <= folds <= len(documents):
        raise RevupError(f"folds: expected 2 to {len(documents)}, the number of training documents, found {folds}")
    part = np.empty(len(documents), np.int64)
    part[np.random.default_rng(model.config.seed).permutation(len(documents))] = np.arange(len(documents)) % folds
    part = part[np.searchsorted(documents, owner)]  # of each window
    base = model.module.counts.model.base if model.module.counts is not None else None
    found: list[Prior] = []
    for number in range(folds):
        own = part == number
        keys = np.asarray(split.arrays["keys"])[own]
        fit = CountPrior.fit(corpus, model.config.observation, model.config.objective, without=keys.ravel())
        prior = fit.prior(split, slice(None), False)
        gain = prior.gain
        if base is not None:  # the run reads the prior by its own base
            change = np.log(fit.model.base) - np.log(base)
            gain = np.where(gain != 0, gain + change[prior.frames], 0.0).astype(np.float32)
        found.append(Prior(prior.frames[own], gain[own], prior.rest[own], prior.labels[own]))
    width = max(each.frames.shape[-1] for each in found)
    order = np.argsort(np.concatenate([np.flatnonzero(part == number) for number in range(folds)]))
    columns = [(_widened(each.frames, width), _widened(each.gain, width), each.rest, each.labels) for each in found]
    return _training_events(corpus, model, Prior(*(np.concatenate(c)[order] for c in zip(*columns, strict=True))))


def _training_events(corpus: Corpus, model: Trained, prior: Prior) -> TrainingEvents:
    split = corpus.split("train")
    there = np.arange(prior.rest.shape[1]) < np.asarray(split.arrays["lengths"])[:, None]
    keys = np.asarray(split.arrays["keys"])[there]
    order = np.argsort(keys)
    parts = (prior.frames, prior.gain, prior.rest, prior.labels)
    lemma = np.asarray(split.arrays["lemma"])[there].astype(np.int64)
    told = [source for source in split.told(model.config.observation).values() if source.kind == "label"]
    item = np.concatenate([source.item for source in told]) if told else np.zeros(0, np.int64)
    frame = np.concatenate([source.frame for source in told]) if told else np.zeros(0, np.int64)
    known = lemma[item] >= 0
    named = Table(lemma[item][known], frame[known], np.ones(int(known.sum())), split.classes)
    return TrainingEvents(keys[order], Prior(*(part[there][order] for part in parts)), named)


class LeftOut:
    """The knowledge of batches in which the priors of training events leave out their own labels.

    Args:
        counts: The run's counts.
        training: Its training events.
    """

    def __init__(self, counts: CountPrior, training: TrainingEvents | None) -> None:
        self.counts, self.training = counts, training
        self.named = counts.model.counts.lemma if training is None else training.named

    def seen(self, split: Split, observation: Observation, rows: slice) -> Seen:
        """Return the side knowledge of these rows."""
        return self.counts.seen(split, observation, rows)

    def prior(self, split: Split, rows: slice, training: bool) -> Prior:
        """Return the prior of these rows, without the own labels of events that were counted."""
        found = self.counts.prior(split, rows, False)
        if self.training is None or not len(self.training.keys):
            return found
        keys, left_out = self.training.keys, self.training.prior
        asked = np.asarray(split.arrays["keys"][rows])
        place = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        counted = (keys[place] == asked) & (np.arange(asked.shape[1]) < split.arrays["lengths"][rows][:, None])
        width = max(found.frames.shape[-1], left_out.frames.shape[-1])
        frames, gain = (_widened(part, width) for part in (found.frames, found.gain))
        frames[counted] = _widened(left_out.frames[place[counted]], width)
        gain[counted] = _widened(left_out.gain[place[counted]], width)
        rest, labels = found.rest.copy(), found.labels.copy()
        rest[counted], labels[counted] = left_out.rest[place[counted]], left_out.labels[place[counted]]
        return Prior(frames, gain, rest, labels)


def _widened(part: NDArray[Any], width: int) -> NDArray[Any]:
    return np.pad(part, [*[(0, 0)] * (part.ndim - 1), (0, width - part.shape[-1])])


@torch.no_grad()
def probabilities(model: Trained, knowledge: LeftOut, split: Split) -> tuple[Floats, Floats]:
    """Return p(frame|event) without the event's own label [events, K], and the labels counted for its lemma [events].

    Args:
        model: The model.
        knowledge: Its counts with own labels left out.
        split: The events.
    """
    model.module.eval()
    batches = Batches(split, Observation(0.0), WINDOWS, model.device, knowledge=knowledge)
    found, seen = [], []
    for batch in batches.ordered():
        found.append(model.module.frame_probabilities(batch)[batch.mask].double().cpu().numpy())
        seen.append(batch.labels[batch.mask].double().cpu().numpy())
    return np.concatenate(found), np.concatenate(seen)
