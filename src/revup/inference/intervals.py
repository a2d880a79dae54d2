"""Intervals of scores by a bootstrap over documents, the unit that is sampled: events of one document are alike."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.corpus import Corpus
from revup.data.encode import NONE
from revup.data.knowledge import Observation
from revup.inference.evaluate import in_own_terms
from revup.inference.measures import BATCH, Classification
from revup.inference.trained import Trained

RESAMPLES = 2000
SCORES = ("accuracy", "macro_f1", "macro_precision", "macro_recall", "label_nll")


def intervals(
    model: Trained, corpus: Corpus, split: str = "test", level: float = 0.9, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Intervals of a model's frame scores on a split.

    Args:
        model: The model; it is given no labels.
        corpus: The dataset.
        split: train, valid or test.
        level: The probability that an interval should cover the score on the population of documents.
        seed: Seed of the resampling.

    Returns:
        `NAME_interval` of each of `SCORES`, (low, high): percentiles over resamples of the documents.
        Empty where frames have no names, the model predicts none, or fewer than two documents are scored.
    """
    if not (model.module.predicts_frames and corpus.has_frames and model.data.get("named_frames", True)):
        return {}
    found = _events(model, corpus, split)
    _, document = np.unique(found.document, return_inverse=True)
    documents = int(document.max()) + 1 if len(document) else 0
    if documents < 2:
        return {}
    draws = np.random.default_rng(seed)
    drawn = np.empty((RESAMPLES, len(SCORES)))
    for row in range(RESAMPLES):
        times = np.bincount(draws.integers(documents, size=documents), minlength=documents)[document]
        drawn[row] = _scores(found, times, len(model.frames))
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0).tolist()
    return {f"{name}_interval": (low[place], high[place]) for place, name in enumerate(SCORES)}


class _Events(NamedTuple):
    """The scored events of a split: their document, reference and predicted frame, and −log p of the reference."""

    document: NDArray[np.int64]
    reference: NDArray[np.int64]
    predicted: NDArray[np.int64]
    nll: NDArray[np.float64]


def _scores(found: _Events, times: NDArray[np.int64], classes: int) -> list[float]:
    """The scores of a resample that has each event so many times."""
    counted, known = Classification(classes), found.reference >= 0
    hit = known & (found.reference == found.predicted)
    for name, which, frames in (("right", hit, "predicted"), ("actual", known, "reference"), ("predicted", ..., "")):
        numbers = getattr(found, frames or name)[which]
        setattr(counted, name, np.bincount(numbers, times[which], minlength=classes))
    counted.unseen = int(times[~known].sum())
    scores = counted.scores() | {"label_nll": float((found.nll * times).sum() / times.sum())}
    return [scores[name] for name in SCORES]


@torch.no_grad()
def _events(model: Trained, corpus: Corpus, split: str) -> _Events:
    part = in_own_terms(corpus.split(split), corpus, model)
    owner = np.asarray(part.arrays["document"])
    columns: list[tuple[NDArray[Any], ...]] = []
    first = 0
    model.module.eval()
    for batch in model.module.batches(part, Observation(0.0), BATCH).ordered():
        probabilities = model.module.frame_probabilities(batch).double()
        reference = batch.reference.long()
        chosen = probabilities.gather(-1, reference.clamp_min(0).unsqueeze(-1)).squeeze(-1).clamp_min(1e-30)
        nll = -torch.where(reference >= 0, chosen, 1e-30).log()
        scored = (batch.mask & (batch.reference != NONE)).cpu().numpy()
        rows = np.broadcast_to(owner[first : first + len(scored), None], scored.shape)
        values = (rows, *(each.cpu().numpy() for each in (reference, probabilities.argmax(-1), nll)))
        columns.append(tuple(value[scored] for value in values))
        first += len(scored)
    return _Events(*map(np.concatenate, zip(*columns, strict=True)))
