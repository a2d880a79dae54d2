"""Measures of a model on a split: perplexity, frame classification, calibration; all from one pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revup import bottleneck
from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus, Split
from revup.data.encode import NONE, UNSEEN
from revup.data.knowledge import Observation
from revup.data.told import DISTRIBUTION
from revup.inference.event_scores import EventScores
from revup.models.base import Model
from revup.models.randomness import Draws, step_seed

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


class SoftScores:
    """Cross-entropy to the distributions that events carry, and agreement with their most probable frames.

    A model is not given the distributions. Frames outside the frame list are left out of them.
    """

    def __init__(self, split: Split) -> None:
        kind, lengths = np.asarray(split.arrays["knowledge_kind"]), np.asarray(split.arrays["lengths"])
        self._use = (kind == DISTRIBUTION) & (np.arange(kind.shape[1]) < lengths[:, None])
        self._split, self._row = split, 0
        self._events, self._sums = 0, np.zeros(3)  # cross-entropy, entropy, agreement

    def add(self, probabilities: Tensor) -> None:
        """Add the predicted distributions [B, M, K] of the next rows."""
        rows = slice(self._row, self._row + len(probabilities))
        self._row, use = rows.stop, self._use[rows]
        weights = np.asarray(self._split.arrays["knowledge_weights"][rows])[use].astype(np.float64)
        use[use] = weights.sum(1) > 0
        weights = weights[weights.sum(1) > 0]
        if not len(weights):
            return
        frames = np.asarray(self._split.arrays["knowledge_frames"][rows])[use].astype(np.int64)
        predicted = probabilities.cpu()[torch.from_numpy(use)].double().numpy()
        p = np.maximum(np.take_along_axis(predicted, frames, 1), 1e-30)
        own = np.where(weights > 0, weights * np.log(np.maximum(weights, 1e-300)), 0.0)
        best = np.take_along_axis(frames, weights.argmax(1)[:, None], 1)[:, 0]
        self._events += len(weights)
        self._sums += -(weights * np.log(p)).sum(), -own.sum(), (predicted.argmax(1) == best).sum()

    def scores(self) -> dict[str, float | None]:
        """Mean cross-entropy, mean entropy of the distributions, share of events whose top frames agree."""
        names = ("soft_cross_entropy", "soft_entropy", "soft_agreement")
        if not self._events:
            return dict.fromkeys(names)
        return dict(zip(names, (self._sums / self._events).tolist(), strict=True))


def draws_for(batch: Batch, number: int, seed: int, device: torch.device, purpose: str = "evaluate") -> Draws:
    """The randomness of one batch of an evaluation, a function of the seed, the purpose and the batch's number."""
    return Draws.seeded(step_seed(seed, number, purpose), batch.documents, device)


@torch.no_grad()
def evaluate_split(
    module: Model,
    split: Split,
    seed: int = 0,
    samples: int = 0,
    sampled: bool = False,
    text: bool = True,
    merged: NDArray[np.int64] | None = None,
    events: EventScores | None = None,
    ambiguous: NDArray[np.bool_] | None = None,
    writer: Model | None = None,
) -> dict[str, Any]:
    """Compute all measures of a model on a split of its own vocabulary and frames.

    Args:
        module: The model; it is given no labels.
        split: The documents.
        seed: Seed of all samples.
        samples: Average over so many samples of the continuous latents; 0 takes their mean.
        sampled: Predict the frame of one Gumbel sample, as the paper does.
        text: Whether to compute perplexities.
        merged: The frame that each frame is scored as, [K]; -1 for one whose events are not scored.
        events: Collects the scores of every event.
        ambiguous: Events to be scored apart as well, [N, M]: those whose dictionary entry has several frames.
        writer: The model whose perplexities are computed, where it is another (`Trained.writer`).

    Returns:
        The measures by name (`revup.evaluate` lists them).
    """
    device, writer = module.device, writer or module
    module.eval()
    writer.eval()
    classes = split.classes if merged is None else int(merged.max()) + 1
    score, apart, soft = Classification(classes), Classification(classes), SoftScores(split)
    tokens = row = 0
    nll = {"perplexity": 0.0, "perplexity_hard": 0.0}
    for number, batch in enumerate(module.batches(split, Observation(0.0), BATCH).ordered()):
        probabilities, chosen, surprise = None, None, dict[str, Tensor]()
        if module.predicts_frames:
            scored = batch.mask & (batch.reference != NONE)
            if samples:
                drawn = (draws_for(batch, number * samples + s, seed, device, "samples") for s in range(samples))
                probabilities = (
                    sum((module.frame_probabilities(batch, d) for d in drawn), start=torch.zeros(())) / samples
                )
            else:
                probabilities = module.frame_probabilities(batch)
            soft.add(probabilities)
            chosen = probabilities.argmax(-1)
            if sampled:
                chosen = module.sampled_frames(batch, draws_for(batch, number, seed, device, "predict"))
            found = [x[scored].cpu().numpy() for x in (batch.reference, chosen, probabilities.float())]
            score.add(*(found if merged is None else _merge(merged, *found)))
            if ambiguous is not None:
                part = ambiguous[row : row + len(batch.mask)][scored.cpu().numpy()]
                few = [x[part] for x in found]
                apart.add(*(few if merged is None else _merge(merged, *few))[:2])
        row += len(batch.mask)
        if module.writes_text and text:
            tokens += int(batch.token_mask.sum())
            for name, hard in (("perplexity", False), ("perplexity_hard", True)):
                surprise[name] = writer.token_nll(batch, draws_for(batch, number, seed, device), hard).double()
                nll[name] += float(surprise[name].sum())
        if events is not None:
            events.add(batch, probabilities, chosen, surprise)
    return {
        "documents": int(split.arrays["document"][-1]) + 1 if len(split) else 0,
        "events": split.events,
        "events_scored": score.events,
        "events_with_unseen_frame": score.unseen,
        **{name: math.exp(value / tokens) if tokens else None for name, value in nll.items()},
        **score.scores(),
        **score.calibration(),
        "ambiguous_events": None if ambiguous is None else apart.events,
        "ambiguous_accuracy": None if ambiguous is None else apart.scores()["accuracy"],
        **soft.scores(),
    }


def _merge(merged: NDArray[np.int64], reference: Any, chosen: Any, probabilities: Any) -> tuple[Any, Any, Any]:
    """Reference frames, predicted frames and probabilities of events in terms of merged frames."""
    kept = (reference < 0) | (merged[reference] >= 0)
    reference, chosen, probabilities = reference[kept], chosen[kept], probabilities[kept]
    together = np.zeros((len(reference), int(merged.max()) + 2), probabilities.dtype)  # the last one: left out
    np.add.at(together.T, merged, probabilities.T)
    together = together[:, :-1] / np.maximum(together[:, :-1].sum(1, keepdims=True), 1e-30)
    best = np.where(merged[chosen] >= 0, merged[chosen], together.argmax(1)) if len(chosen) else chosen
    return np.where(reference >= 0, merged[reference], reference), best, together


@torch.no_grad()
def validate(
    module: Model,
    split: Split,
    observation: Observation,
    seed: int,
    text: bool = True,
    batches: Batches | None = None,
) -> dict[str, float]:
    """Compute the scores that early stopping goes by: against the *observed* labels of the validation split.

    Args:
        module: The model.
        split: The validation split; its reference frames are not used.
        observation: Which labels are observed, and which of them are wrong.
        seed: Seed of all samples.
        text: Whether to compute the perplexity.
        batches: The split in batches, where the same ones are used again and again.

    Returns:
        `accuracy` and `label_nll` against the observed labels, where there are any; `perplexity`, where the model
        writes text. `label_nll` is −log of the probability of labels and candidates under the estimated reliability of
        their sources (up to a constant), and the cross-entropy to distributions.
    """
    device = module.device
    module.eval()
    right = observed = label_nll = nll = tokens = torch.zeros((), dtype=torch.float64, device=device)
    batches = module.batches(split, observation, BATCH) if batches is None else batches
    for number, batch in enumerate(batches.ordered()):
        if module.predicts_frames and batch.observed_events:
            log_probabilities = module.frame_probabilities(batch).double().clamp_min(1e-30).log()
            seen, labels = batch.observed.double(), batch.empirical(split.classes).double()
            right = right + ((log_probabilities.argmax(-1) == labels.argmax(-1)) * seen).sum()
            surprise = bottleneck.knowledge_loss(log_probabilities, labels, seen, batch.belief)
            label_nll = label_nll + surprise.sum()
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
