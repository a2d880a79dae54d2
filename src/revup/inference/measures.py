"""Measures of a model on a split: perplexity, frame classification, calibration; all from one pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus, Split
from revup.data.encode import NONE, UNSEEN
from revup.data.knowledge import Observation
from revup.models.base import Draws, Model, step_seed

BATCH = 500  # fixed, so that the samples of an evaluation do not depend on a setting
BINS = 15  # of the reliability diagram


class Classification:
    """Counts of predictions: add batches, then ask for accuracy, macro averages and calibration.

    Attributes:
        classes: The number of frames K.
        right: Correct predictions of each frame, [K].
        predicted: Predictions of each frame, [K].
        actual: Events of each reference frame, [K].
        unseen: Events whose reference frame is not in the frame list.
        nll: Σ −log p(reference frame).
        bins: Bins of the predicted probability, [BINS, (events, correct ones, Σ probability)].
    """

    def __init__(self, classes: int) -> None:
        self.classes, self.unseen, self.nll = classes, 0, 0.0
        self.right, self.predicted, self.actual = (np.zeros(classes, np.int64) for _ in range(3))
        self.bins = np.zeros((BINS, 3))

    def add(self, reference: NDArray[Any], predicted: NDArray[Any], probabilities: NDArray[Any] | None = None) -> None:
        """Add n events.

        Args:
            reference: Numbers of their reference frames, [n]; UNSEEN for one that is not in the frame list.
            predicted: Numbers of the predicted frames, [n].
            probabilities: The distributions over frames, [n, K]; without them there is no calibration.
        """
        known, hit = reference >= 0, reference == predicted
        self.unseen += int((reference == UNSEEN).sum())
        self.right += np.bincount(reference[hit & known], minlength=self.classes)
        self.predicted += np.bincount(predicted, minlength=self.classes)
        self.actual += np.bincount(reference[known], minlength=self.classes)
        if probabilities is not None:
            rows = np.flatnonzero(known)
            chosen = probabilities[rows, reference[rows]].astype(np.float64)
            self.nll += float(-np.log(np.maximum(chosen, 1e-30)).sum()) + int((~known).sum()) * math.log(1e30)
            confidence = probabilities[np.arange(len(predicted)), predicted].astype(np.float64)
            place = np.minimum((confidence * BINS).astype(int), BINS - 1)
            for column, values in enumerate((np.ones(len(hit)), hit.astype(float), confidence)):
                self.bins[:, column] += np.bincount(place, values, minlength=BINS)

    @property
    def events(self) -> int:
        """Events with a reference frame."""
        return int(self.actual.sum()) + self.unseen

    def scores(self) -> dict[str, Any]:
        """Accuracy and macro averages, as scikit-learn defines them: over classes that occur or are predicted."""
        if not self.events:
            return dict.fromkeys(("accuracy", "macro_f1", "macro_precision", "macro_recall"))
        with np.errstate(invalid="ignore", divide="ignore"):
            precision = np.where(self.predicted > 0, self.right / self.predicted, 0.0)
            recall = np.where(self.actual > 0, self.right / self.actual, 0.0)
            f1 = np.where(self.predicted + self.actual > 0, 2 * self.right / (self.predicted + self.actual), 0.0)
        there = (self.predicted + self.actual) > 0
        count = int(there.sum()) + (self.unseen > 0)  # frames outside the list count as one further class
        return {
            "accuracy": float(self.right.sum() / self.events),
            "macro_f1": float(f1[there].sum() / count),
            "macro_precision": float(precision[there].sum() / count),
            "macro_recall": float(recall[there].sum() / count),
        }

    def calibration(self) -> dict[str, Any]:
        """Mean −log p(reference frame), the expected calibration error, and the reliability diagram behind it."""
        total = float(self.bins[:, 0].sum())
        if not total:
            return {"label_nll": None, "calibration_error": None, "reliability": []}
        rows = [
            {"events": int(n), "accuracy": right / n, "confidence": confidence / n}
            for n, right, confidence in self.bins.tolist()
            if n
        ]
        error = sum(row["events"] * abs(row["accuracy"] - row["confidence"]) for row in rows) / total
        return {"label_nll": self.nll / total, "calibration_error": error, "reliability": rows}


def draws_for(batch: Batch, number: int, seed: int, device: torch.device, purpose: str = "evaluate") -> Draws:
    """The randomness of one batch of an evaluation, a function of the seed, the purpose and the batch's number."""
    return Draws.seeded(step_seed(seed, number, purpose), batch.documents, device)


@torch.no_grad()
def evaluate_split(
    module: Model, split: Split, seed: int = 0, samples: int = 0, sampled: bool = False, text: bool = True
) -> dict[str, Any]:
    """Compute all measures of a model on a split of its own vocabulary and frames.

    Args:
        module: The model; it is given no labels.
        split: The documents.
        seed: Seed of all samples.
        samples: Average over so many samples of the continuous latents; 0 takes their mean.
        sampled: Predict the frame of one Gumbel sample, as the paper does.
        text: Whether to compute perplexities.

    Returns:
        The measures by name (`revup.evaluate` lists them).
    """
    device = module.device
    module.eval()
    score = Classification(split.classes)
    tokens = 0
    nll = {"perplexity": 0.0, "perplexity_hard": 0.0}
    for number, batch in enumerate(Batches(split, Observation(0.0), BATCH, device).ordered()):
        if module.predicts_frames:
            scored = batch.mask & (batch.reference != NONE)
            if samples:
                drawn = [draws_for(batch, number * samples + s, seed, device, "samples") for s in range(samples)]
                probabilities = (
                    sum((module.frame_probabilities(batch, d) for d in drawn), start=torch.zeros(())) / samples
                )
            else:
                probabilities = module.frame_probabilities(batch)
            chosen = probabilities.argmax(-1)
            if sampled:
                chosen = module.sampled_frames(batch, draws_for(batch, number, seed, device, "predict"))
            score.add(*(x[scored].cpu().numpy() for x in (batch.reference, chosen, probabilities.float())))
        if module.writes_text and text:
            tokens += int(batch.token_mask.sum())
            for name, hard in (("perplexity", False), ("perplexity_hard", True)):
                nll[name] += float(module.token_nll(batch, draws_for(batch, number, seed, device), hard).double().sum())
    return {
        "documents": int(split.arrays["document"][-1]) + 1 if len(split) else 0,
        "events": split.events,
        "events_scored": score.events,
        "events_with_unseen_frame": score.unseen,
        **{name: math.exp(value / tokens) if tokens else None for name, value in nll.items()},
        **score.scores(),
        **score.calibration(),
    }


@torch.no_grad()
def validate(module: Model, split: Split, observation: Observation, seed: int, text: bool = True) -> dict[str, float]:
    """Compute the scores that early stopping goes by: against the *observed* labels of the validation split.

    Args:
        module: The model.
        split: The validation split; its reference frames are not used.
        observation: Which labels are observed, and which of them are wrong.
        seed: Seed of all samples.
        text: Whether to compute the perplexity.

    Returns:
        `accuracy` and `label_nll` against the observed labels, where there are any; `perplexity`, where the model
        writes text. The label's probability allows for the model's estimated error rate.
    """
    device = module.device
    module.eval()
    right = observed = label_nll = nll = tokens = torch.zeros((), dtype=torch.float64, device=device)
    estimated = module.error_rate()
    rate = 0.0 if estimated is None else float(estimated)
    for number, batch in enumerate(Batches(split, observation, BATCH, device).ordered()):
        if module.predicts_frames and batch.observed_events:
            probabilities = module.frame_probabilities(batch).double()
            seen = batch.observed.double()
            labels = batch.empirical(split.classes).double()
            right = right + ((probabilities.argmax(-1) == labels.argmax(-1)) * seen).sum()
            noisy = (1 - rate) * (probabilities * labels).sum(-1) + rate / split.classes
            label_nll = label_nll - (noisy.clamp_min(1e-30).log() * seen).sum()
            observed = observed + seen.sum()
        if module.writes_text and text:
            nll = (
                nll + module.token_nll(batch, draws_for(batch, number, seed, device, "validate"), False).double().sum()
            )
            tokens = tokens + batch.token_mask.sum()
    scores = {}
    if observed > 0:
        scores = {"accuracy": float(right / observed), "label_nll": float(label_nll / observed)}
    if tokens > 0:
        scores["perplexity"] = float(torch.exp(nll / tokens))
    return scores


def optimum(corpus: Corpus, split: str) -> dict[str, float] | None:
    """The best scores that any model can reach on a split; None where the dataset does not know them."""
    found = corpus.meta.get("optimum") or {}
    return found.get(split)
