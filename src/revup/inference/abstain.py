"""Abstention: leave out predictions below a probability, and say which accuracy to expect of those that are kept.

At the end of training the probabilities p of predicted frames are compared with the *observed* labels of the
validation split, and the run keeps the result in bins of p. A curve with two parameters turns a probability into the
accuracy to expect, under a prior that leaves probabilities as they are:

    logit a(p) = α + β logit p,      α ~ N(0, ½²),  log β ~ N(0, ½²)

It is fitted to the agreement with the labels. A label that is wrong with probability ρ, and then any other of the K
frames, agrees with a prediction with probability (1 − ρ) a + ρ (1 − a)/(K − 1), a = a(p); ρ is the run's own estimate.
Of several sources the label is the frame that they speak for most, and ρ the share of their likelihood that it lacks.
So a(p) is the accuracy against true frames, as far as ρ is right and errors are uniform: confusable errors make it too
low. The accuracy to expect of kept predictions is the mean of a(p) over them. Without validation labels it is the mean
of p.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.corpus import Split
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.inference.measures import BATCH
from revup.inference.trained import Trained
from revup.models.base import Model

EDGES = (*(round(0.05 * step, 2) for step in range(18)), 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 0.995, 0.999)  # of the bins
PRIOR = 0.5  # standard deviation of α and log β
CERTAIN = 0.5  # a distribution is compared with if one frame has more than this of it
EQUAL = 1.001  # ratio of two likelihoods up to which labels or candidates speak for both frames

Floats = NDArray[np.float64]


@torch.no_grad()
def measure_calibration(module: Model, split: Split, observation: Observation) -> list[dict[str, float]]:
    """Compare the probabilities of predicted frames with the observed labels of a split.

    Args:
        module: The model; it is not given the labels.
        split: The validation split; its reference frames are not used.
        observation: Which labels are observed, and which of them are wrong.

    Returns:
        A row for each bin that has events: `from`, its lower edge, `events`, their mean `probability`, the share
        `agreement` of predictions that are the label, and `label_error`, the estimated share of wrong labels. Empty
        where the model predicts no frames or there is no label.
    """
    if not module.predicts_frames or not len(split):
        return []
    module.eval()
    several, known_rate = module.counts is not None and module.counts.several, module.error_rate()
    sums = np.zeros((len(EDGES), 4))
    for batch in module.batches(split, observation, BATCH).ordered():
        if not batch.observed_events:
            continue
        top = module.frame_probabilities(batch).max(-1)
        said = batch.empirical(split.classes).double()
        said = said / said.sum(-1, keepdim=True).clamp_min(1e-30)
        largest, label = said.topk(min(2, split.classes), dim=-1)
        believed = batch.belief > 0
        # a likelihood is largest at the label: what labels of all sources together speak for most
        agreement = torch.where(believed, said.gather(-1, top.indices[..., None])[..., 0], top.indices == label[..., 0])
        rate = 1 - largest[..., 0] if several else torch.full_like(largest[..., 0], known_rate)
        wrong = torch.where(believed, 0.0, rate)
        told = torch.where(believed, largest[..., 0] > CERTAIN, largest[..., 0] > EQUAL * largest[..., -1])
        columns = (torch.ones_like(wrong), top.values.double().clamp(0, 1), agreement, wrong)
        scored = (batch.observed > 0) & told
        events = torch.stack(columns, dim=-1)[scored].cpu().numpy()
        np.add.at(sums, np.searchsorted(EDGES, events[:, 1], side="right") - 1, events)
    return [
        {
            "from": edge,
            "events": int(events),
            "probability": float(probability / events),
            "agreement": float(agreement / events),
            "label_error": float(wrong / events),
        }
        for edge, (events, probability, agreement, wrong) in zip(EDGES, sums, strict=True)
        if events
    ]


class Calibration:
    """The accuracy to expect of predictions, by their probability.

    Args:
        rows: What `measure_calibration` returned.
        classes: The number of frames K.
    """

    def __init__(self, rows: Sequence[Mapping[str, float]], classes: int) -> None:
        self.events = sum(int(row["events"]) for row in rows)
        self.alpha, self.beta = _fit(rows, classes) if rows else (0.0, 1.0)

    def accuracy(self, probability: float) -> float:
        """Return a(p)."""
        if (self.alpha, self.beta) == (0.0, 1.0):
            return probability
        return float(_curve(np.array(self.alpha), np.array(self.beta), np.array(probability)))


def _curve(alpha: Floats, beta: Floats, probability: Floats) -> Floats:
    p = np.clip(probability, 1e-6, 1 - 1e-6)
    return np.asarray(1 / (1 + np.exp(-(alpha + beta * np.log(p / (1 - p))))))


def _fit(rows: Sequence[Mapping[str, float]], classes: int) -> tuple[float, float]:
    """Return α and β of the highest posterior, by a grid that is refined around its best point."""
    events, probability, agreement, wrong = (
        np.array([row[name] for row in rows], dtype=float)
        for name in ("events", "probability", "agreement", "label_error")
    )
    centre, reach = np.zeros(2), np.array([4.0, 2.0])  # α and log β
    for _ in range(6):
        alpha, log_beta = (
            np.linspace(middle - size, middle + size, 33) for middle, size in zip(centre, reach, strict=True)
        )
        a = _curve(alpha[:, None, None], np.exp(log_beta)[None, :, None], probability)
        agree = np.clip((1 - wrong) * a + wrong * (1 - a) / max(classes - 1, 1), 1e-12, 1 - 1e-12)
        fit = (events * (agreement * np.log(agree) + (1 - agreement) * np.log1p(-agree))).sum(axis=-1)
        fit -= (alpha[:, None] ** 2 + log_beta**2) / (2 * PRIOR**2)
        row, column = np.unravel_index(fit.argmax(), fit.shape)
        centre, reach = np.array([alpha[row], log_beta[column]]), reach / 4
    return float(centre[0]), float(np.exp(centre[1]))


def _bin(probability: float) -> int:
    return bisect_right(EDGES, probability) - 1


class Abstention:
    """Decides which predictions to keep, and counts.

    Args:
        model: The model.
        at_least: Keep predictions of at least this probability.
        revise: Labels in the input are used. Validation had none, so the model's own probabilities are not corrected.

    Attributes:
        events: How many predictions it has decided about.
        kept: How many of them it kept.
        measured: Labels of the validation split behind the correction.
    """

    def __init__(self, model: Trained, at_least: float, revise: bool = False) -> None:
        if not 0 <= at_least <= 1:
            raise RevupError(f"at-least: expected a probability from 0 to 1, found {at_least}")
        self.at_least, self.revise = at_least, revise
        self.calibration = Calibration([] if revise else model.state.calibration, len(model.frames))
        self._known: dict[float, float] = {}  # accuracies of probabilities, to three digits: there are many events
        self.events = self.kept = 0
        self.measured = self.calibration.events
        self._expected = 0.0

    def keep(self, predicted: Sequence[tuple[str, float]]) -> bool:
        """Whether to keep the prediction of an event: its frames with their probabilities, the most probable first."""
        probability = predicted[0][1]
        self.events += 1
        if probability < self.at_least:
            return False
        self.kept += 1
        place = round(probability, 3)
        if place not in self._known:
            self._known[place] = self.calibration.accuracy(place)
        self._expected += self._known[place]
        return True

    @property
    def counts(self) -> tuple[int, int, float]:
        """What it has counted: predictions, those kept, and how many of these are expected to be right."""
        return self.events, self.kept, self._expected

    def add(self, events: int, kept: int, expected: float) -> None:
        """Add what another one has counted."""
        self.events, self.kept, self._expected = self.events + events, self.kept + kept, self._expected + expected

    @property
    def accuracy(self) -> float | None:
        """The accuracy to expect of the predictions kept so far; None where there are none."""
        return self._expected / self.kept if self.kept else None

    def report(self) -> str:
        """The figures in a sentence."""
        said = f"kept {self.kept} of {self.events} predictions with a probability of at least {self.at_least:g}"
        if self.accuracy is None:
            return said
        basis = f"by {self.measured} labels of the validation split" if self.measured else "by its own probabilities"
        return f"{said}; expected accuracy {self.accuracy:.3f} ({basis})"


def expected_accuracy(model: Trained, at_least: float) -> dict[str, Any]:
    """Return what to expect of a threshold, from the validation split of a run's training.

    Args:
        model: The model.
        at_least: The threshold; between two edges of the stored bins, a bin counts in proportion.

    Returns:
        `at_least`; `kept`, the share of predictions with at least that probability; `accuracy`, theirs
        against true frames; `events`, the validation events with an observed label that both come from. None where
        there were no such events.
    """
    if not 0 <= at_least <= 1:
        raise RevupError(f"at-least: expected a probability from 0 to 1, found {at_least}")
    curve = Calibration(model.state.calibration, len(model.frames))
    total = kept = right = 0.0
    ends = (*EDGES[1:], 1.0)
    for row in model.state.calibration:
        start = row["from"]
        end = ends[_bin(start)]
        share = 1.0 if at_least <= start else max(0.0, (end - at_least) / (end - start))
        total += row["events"]
        kept += share * row["events"]
        right += share * row["events"] * curve.accuracy(row["probability"])
    return {
        "at_least": at_least,
        "kept": kept / total if total else None,
        "accuracy": right / kept if kept else None,
        "events": int(total),
    }
