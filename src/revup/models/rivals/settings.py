"""The methods of the tagger that stand for rivals: their settings, and a preset for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from revup.fields import setting
from revup.models.count_prior import ResidualSettings

# method → what it is
METHODS = {
    "evidence": "labels are evidence under their estimated reliability, as in the other models",
    "gce": "generalised cross-entropy",
    "bootstrap": "soft bootstrapping",
    "elr": "early-learning regularisation",
    "forward": "forward correction with an estimated confusion matrix",
    "confident": "confident learning: prune the labels that are probably wrong, then train",
    "coteaching": "two networks, each trained on the events with the smallest losses of the other",
    "selftrain": "the model's own confident predictions as labels of the other events",
    "consistency": "the same, learned from the text with words dropped",
}
WITH_PEER = ("elr", "coteaching")  # methods with a second network
RAMPED = ("elr", "coteaching", "selftrain")  # methods that set in gradually
PRUNING = ("confident_learning", "predicted_neq_given")  # cleanlab's names


@dataclass(frozen=True, kw_only=True)
class RivalSettings(ResidualSettings):
    """How the tagger treats wrong and missing labels."""

    method: str = setting(
        "evidence", "how wrong and missing labels are treated: as evidence, or by a published method", choices=METHODS
    )
    power: float = setting(0.7, "gce: exponent q, from cross-entropy (0) to absolute error (1)", above=0, maximum=1)
    trust: float = setting(
        0.95, "bootstrap: weight β of a label against the model's own prediction", minimum=0, maximum=1
    )
    early: float = setting(3.0, "elr: weight λ of agreeing with earlier predictions", minimum=0)
    remember: float = setting(
        0.99, "elr: share of the averaged weights that a step leaves as they are", minimum=0, below=1
    )
    anchors: int = setting(
        10, "forward: events per frame, those surest of it, whose predictions are its row of the matrix", minimum=1
    )
    prune: str = setting(
        "confident_learning", "confident: which labels are pruned, by cleanlab's names", choices=PRUNING
    )
    forget: float | None = setting(
        None,
        "coteaching: share of the labels left out of a step (default: the estimated error rate)",
        minimum=0,
        below=1,
    )
    ramp: float = setting(1.0, "elr, coteaching, selftrain: epochs in which the method sets in", above=0)
    threshold: float = setting(
        0.9, "selftrain, consistency: probability from which on a prediction serves as a label", minimum=0, maximum=1
    )
    unlabelled: float = setting(1.0, "selftrain, consistency: weight of such labels", minimum=0)
    strong: float = setting(0.3, "consistency: share of the words dropped where they are learned", minimum=0, below=1)


def presets(default: dict[str, dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """A preset for each rival: the default settings, and its method.

    Args:
        default: The preset `default` of the tagger.
    """
    return {name: {**default, "objective": {"method": name}} for name in METHODS if name != "evidence"}
