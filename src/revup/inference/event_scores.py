"""Scores of an evaluation event by event, and their sums over documents: what a bootstrap over documents needs.

Sums of logarithms are whole numbers of 10⁻⁴ nats, so that further sums of them are the same on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revup.data.batches import Batch
from revup.data.corpus import Split
from revup.data.encode import NONE
from revup.data.told import DISTRIBUTION

NATS = 10_000  # whole numbers to a nat
BINS = 15  # of the calibration error
SMALLEST = 1e-30  # a probability that is 0 counts as this

Array = NDArray[Any]
Sums = dict[str, list[int]]


class EventScores:
    """Collects the scores of every event of a split, batch by batch in the order of its rows.

    Attributes:
        scored: Events with a reference frame, [N, M].
        right: Scored events whose most probable frame is the reference, [N, M].
        nll: −log p(reference), in 10⁻⁴ nats, [N, M].
        soft: Events that carry a distribution, [N, M].
        cross_entropy: −Σ p_D log p, in 10⁻⁴ nats, [N, M].
        agreement: Soft events whose most probable frame is that of the distribution, [N, M].
        confidence, mass: The probability of the predicted frame, and what the distribution gives it, [N, M].
        text: −log p of the tokens of each row, in 10⁻⁴ nats: `tokens`, `perplexity`, `perplexity_hard`, [N].
    """

    def __init__(self, split: Split) -> None:
        shape = np.asarray(split.arrays["reference"]).shape
        there = np.arange(shape[1]) < np.asarray(split.arrays["lengths"])[:, None]
        weights = np.asarray(split.arrays["knowledge_weights"])
        self._split, self._row = split, 0
        self.scored = np.zeros(shape, bool)
        self.soft = there & (np.asarray(split.arrays["knowledge_kind"]) == DISTRIBUTION) & (weights.sum(-1) > 0)
        self.right, self.agreement = np.zeros(shape, bool), np.zeros(shape, bool)
        self.nll, self.cross_entropy = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.confidence, self.mass = np.zeros(shape), np.zeros(shape)
        self.text = {name: np.zeros(shape[0], np.int64) for name in ("tokens", "perplexity", "perplexity_hard")}

    def add(self, batch: Batch, probabilities: Tensor | None, chosen: Tensor | None, text: dict[str, Tensor]) -> None:
        """Add the next rows.

        Args:
            batch: The rows.
            probabilities: The distributions over frames, [B, M, K]; None of a model without frames.
            chosen: The predicted frames, [B, M].
            text: −log p of the tokens by measure, [B, T]; empty of a model that does not write text.
        """
        rows = slice(self._row, self._row + batch.documents)
        self._row = rows.stop
        for name, values in text.items():
            self.text[name][rows] = _whole(values.double().sum(1).cpu().numpy())
        if text:
            self.text["tokens"][rows] = batch.token_mask.sum(1).cpu().numpy()
        if probabilities is None or chosen is None:
            return
        reference = batch.reference.cpu().numpy()
        scored = batch.mask.cpu().numpy() & (reference != NONE)
        predicted = chosen.cpu().numpy()
        asked = torch.from_numpy(np.maximum(reference, 0)).to(probabilities.device)
        p = probabilities.gather(-1, asked[..., None])[..., 0].double().cpu().numpy()
        p = np.where(reference >= 0, p, 0.0)
        self.scored[rows] = scored
        self.right[rows] = scored & (predicted == reference)
        self.nll[rows] = np.where(scored, _whole(-np.log(np.maximum(p, SMALLEST))), 0)
        use = self.soft[rows]
        if use.any():
            self._add_soft(rows, use, probabilities, predicted)

    def _add_soft(self, rows: slice, use: Array, probabilities: Tensor, predicted: Array) -> None:
        weights = np.asarray(self._split.arrays["knowledge_weights"][rows])[use].astype(np.float64)
        frames = np.asarray(self._split.arrays["knowledge_frames"][rows])[use].astype(np.int64)
        found = probabilities.cpu()[torch.from_numpy(use)].double().numpy()
        p = np.maximum(np.take_along_axis(found, frames, 1), SMALLEST)
        best = np.take_along_axis(frames, weights.argmax(1)[:, None], 1)[:, 0]
        answer = predicted[use]
        self.cross_entropy[rows][use] = _whole(-(weights * np.log(p)).sum(1))
        self.agreement[rows][use] = answer == best
        self.confidence[rows][use] = found[np.arange(len(found)), answer]
        self.mass[rows][use] = (weights * (frames == answer[:, None])).sum(1)

    def by_document(self) -> Sums:
        """The sums over each document, in the order of the split's ids; measures that the split lacks are left out."""
        document = np.asarray(self._split.arrays["document"])
        count = int(document.max()) + 1 if len(document) else 0

        def total(values: Array) -> list[int]:
            per_row = values.sum(1) if values.ndim > 1 else values
            return [int(x) for x in np.bincount(document, per_row.astype(np.float64), minlength=count)]

        found: Sums = {}
        if self.scored.any():
            found |= {"events": total(self.scored), "right": total(self.right), "nll": total(self.nll)}
        if self.soft.any() and self.cross_entropy.any():
            found |= {
                "soft_events": total(self.soft),
                "cross_entropy": total(self.cross_entropy),
                "agreement": total(self.agreement),
            }
        if self.text["tokens"].any():
            found |= {name: total(values) for name, values in self.text.items()}
        return found

    def accuracy(self, chosen: Array | None = None) -> dict[str, Any]:
        """The number of scored events, and the accuracy on them; of some events only if asked, [N, M]."""
        scored = self.scored if chosen is None else self.scored & chosen
        events = int(scored.sum())
        return {"events": events, "accuracy": float(self.right[scored].mean()) if events else None}

    def soft_calibration(self) -> float | None:
        """The calibration error: |mean confidence − mean mass of the predicted frame| in bins of the confidence."""
        if not self.soft.any() or not self.confidence.any():
            return None
        confidence, mass = self.confidence[self.soft], self.mass[self.soft]
        place = np.minimum((confidence * BINS).astype(int), BINS - 1)
        gaps = np.bincount(place, confidence - mass, minlength=BINS)
        return float(np.abs(gaps).sum() / len(confidence))


def _whole(nats: Array) -> Array:
    return np.asarray(np.rint(nats * NATS), np.int64)
