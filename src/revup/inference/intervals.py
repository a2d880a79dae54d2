"""Intervals of scores by a bootstrap over documents, the unit that is sampled: events of one document are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.corpus import Corpus
from revup.data.encode import NONE
from revup.data.knowledge import Observation
from revup.inference.evaluate import in_own_terms
from revup.inference.measures import BATCH
from revup.inference.trained import Trained

RESAMPLES = 2000


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
        `accuracy_interval` and `label_nll_interval`, each (low, high): percentiles over resamples of the documents.
        Empty where frames have no names, the model predicts none, or fewer than two documents are scored.
    """
    if not (model.module.predicts_frames and corpus.has_frames and model.data.get("named_frames", True)):
        return {}
    counts = _by_document(model, corpus, split)  # [D, (events, correct, Σ −log p)]
    counts = counts[counts[:, 0] > 0]
    if len(counts) < 2:
        return {}
    draws = np.random.default_rng(seed)
    drawn = np.empty((RESAMPLES, 2))
    for row in range(RESAMPLES):
        events, correct, nll = counts[draws.integers(len(counts), size=len(counts))].sum(0)
        drawn[row] = correct / events, nll / events
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0).tolist()
    names = ("accuracy_interval", "label_nll_interval")
    return {name: (low[place], high[place]) for place, name in enumerate(names)}


@torch.no_grad()
def _by_document(model: Trained, corpus: Corpus, split: str) -> NDArray[np.float64]:
    part = in_own_terms(corpus.split(split), corpus, model)
    owner = np.asarray(part.arrays["document"])
    found = np.zeros((int(owner.max()) + 1 if len(owner) else 0, 3))
    first = 0
    model.module.eval()
    for batch in model.module.batches(part, Observation(0.0), BATCH).ordered():
        probabilities = model.module.frame_probabilities(batch).double()
        scored = (batch.mask & (batch.reference != NONE)).cpu().numpy()
        reference = batch.reference.clamp_min(0).long()
        known = (batch.reference >= 0).cpu().numpy()
        chosen = probabilities.gather(-1, reference.unsqueeze(-1)).squeeze(-1).clamp_min(1e-30).cpu().numpy()
        hit = (probabilities.argmax(-1) == batch.reference).cpu().numpy()
        values: tuple[NDArray[Any], ...] = (scored, scored & hit, scored * -np.log(np.where(known, chosen, 1e-30)))
        rows = owner[first : first + len(scored)]
        for column, value in enumerate(values):
            np.add.at(found[:, column], rows, value.sum(1))
        first += len(scored)
    return found
