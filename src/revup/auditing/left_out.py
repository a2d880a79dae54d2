"""What a model says of events without their own labels.

Counts that hold an event's own label would confirm it. So the priors of training events leave it out; nothing is left
out of events that the run was not trained on: it remembers those it was. What leaving out needs is not stored in a run,
the counts are fitted again on its dataset, which takes seconds.

Where labels name arbitrary frames, the counts are of corrected labels, by which too many labels look like errors (on
framenet15 and maven at 10%). So predictions are stacked with those of counts of the labels as given:

    r = (1 − λ)·r_corrected + λ·r_given

λ is found by EM from the labels themselves, p(y) = (1 − ρ)·r(y) + ρ/K. Confusable errors are not stacked: counts of
labels as given foretell them too, and `revup.models.count_revision` has weighed both explanations already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.batches import Batches, Prior
from revup.data.corpus import Corpus, Split
from revup.data.decisions import trusted_labels
from revup.data.knowledge import Observation, Seen
from revup.data.sources import REVIEWED
from revup.data.sparse_table import Table
from revup.errors import InputError, RevupError
from revup.inference.evaluate import trained_on
from revup.inference.trained import Trained
from revup.models.count_prior import CountPrior
from revup.models.count_sources import MOSTLY

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WINDOWS = 500  # in a batch
ITERATIONS = 200  # of EM
START = 0.1, 0.3  # ρ and λ
LEAST = 0.01  # λ that is worth a second prediction
MOST_STACKED = 50_000  # labels of a corpus that is stacked: a second prediction of more takes minutes


@dataclass(frozen=True)
class TrainingEvents:
    """Training events without their own labels.

    Attributes:
        keys: Their hashes, ascending [n].
        prior: Their priors without their own labels [n, …].
        named: Which frames labels gave to the lemmas [L, K].
        as_given: Counts of the labels as given, likewise; None where these don't help.
        share: λ.
    """

    keys: NDArray[np.uint64]
    prior: Prior
    named: Table
    as_given: LeftOut | None = None
    share: float = 0.0


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
    return folded_events(corpus, model, folds) if folds else left_out_events(corpus, model)


def left_out_events(corpus: Corpus, model: Trained) -> TrainingEvents:
    """Fit the counts again and leave the label of each event out of its prior.

    Args:
        corpus: The dataset that the model was trained on.
        model: The model.
    """
    split, observation, settings = corpus.split("train"), model.config.observation, model.config.objective
    again = CountPrior.fit(corpus, observation, settings)
    found = _training_events(corpus, model, again.left_out(split, "event"))
    arbitrary = any(channel.kappa < MOSTLY for channel in again.model.channels.values())
    if not arbitrary or again.labels > MOST_STACKED:
        return found
    plain = CountPrior.fit(corpus, observation, replace(settings, noise="none", noise_rate=None))
    as_given = LeftOut(plain, _training_events(corpus, model, plain.left_out(split, "event")))
    share = _share(model, split, LeftOut(model.module.counts or again, found), as_given)
    return replace(found, as_given=as_given, share=share) if share > LEAST else found


def _share(model: Trained, split: Split, corrected: LeftOut, as_given: LeftOut) -> float:
    """λ of the training labels."""
    told = split.told(model.config.observation)
    labels = [source for name, source in told.items() if source.kind == "label" and name != REVIEWED]
    item = np.concatenate([source.item for source in labels])
    frame = np.concatenate([source.frame for source in labels])
    order = np.argsort(item, kind="stable")
    item, frame = item[order], frame[order]
    own = [_of_labels(model, knowledge, split, item, frame) for knowledge in (corrected, as_given)]
    return stacked_share(own[0], own[1], len(model.frames))


def stacked_share(corrected: Floats, as_given: Floats, frames: int) -> float:
    """Return λ, by EM.

    Args:
        corrected: Probabilities of the labels by counts of corrected labels [n].
        as_given: By counts of the labels as given [n].
        frames: The number of frames K.
    """
    rho, share = START
    for _ in range(ITERATIONS):
        parts = (1 - rho) * np.stack([(1 - share) * corrected, share * as_given])
        posterior = parts / (parts.sum(0) + rho / frames)
        right = float(posterior.sum())
        rho, share = 1 - right / len(corrected), float(posterior[1].sum()) / max(right, 1e-9)
    return share


def _of_labels(model: Trained, knowledge: LeftOut, split: Split, item: Ints, frame: Ints) -> Floats:
    """The predicted probabilities of labels; items ascend."""
    found, begin = [], 0
    for r, _ in _predicted(model, knowledge, split):
        low, high = np.searchsorted(item, (begin, begin + len(r)))
        found.append(r[item[low:high] - begin, frame[low:high]])
        begin += len(r)
    return np.concatenate(found)


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


def probabilities(model: Trained, knowledge: LeftOut, split: Split) -> tuple[Floats, Floats]:
    """Return p(frame|event) without the event's own label [events, K], and the labels counted for its lemma [events].

    Args:
        model: The model.
        knowledge: Its counts with own labels left out.
        split: The events.
    """
    found, seen = (np.concatenate(part) for part in zip(*_predicted(model, knowledge, split), strict=True))
    if (training := knowledge.training) is not None and training.as_given is not None:
        begin = 0
        for r, _ in _predicted(model, training.as_given, split):
            part = found[begin : begin + len(r)]
            part += training.share * (r - part)
            begin += len(r)
    return found, seen


@torch.no_grad()
def _predicted(model: Trained, knowledge: LeftOut, split: Split) -> Iterator[tuple[Floats, Floats]]:
    """Predictions of all events by these counts, and the labels counted for their lemmas, a batch at a time."""
    module = model.module.eval()
    own, base = module.log_base.clone(), knowledge.counts.log_base
    for batch in Batches(split, Observation(0.0), WINDOWS, model.device, knowledge=knowledge).ordered():
        module.log_base.copy_(base)  # priors are read by the base of their own counts
        try:
            r = module.frame_probabilities(batch)[batch.mask].double().cpu().numpy()
        finally:
            module.log_base.copy_(own)
        yield r, batch.labels[batch.mask].double().cpu().numpy()
