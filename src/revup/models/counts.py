"""Counts: pooled counts of labels, neighbours, arguments, dictionary and sources as a model of its own; no network.

`revup.models.count_model` has the equations, `revup.models.count_prior` how they are fitted to a corpus. It is the
baseline of every other model, which stand on the same counts, and trains within seconds on a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from revup import bottleneck, ops
from revup.data.batches import Batch
from revup.fields import setting
from revup.models.base import Model
from revup.models.count_prior import CountSettings
from revup.models.network import Architecture, Sizes
from revup.models.randomness import Draws


@dataclass(frozen=True, kw_only=True)
class Objective(CountSettings):
    """How labels are treated."""

    strength: float = setting(9.0, "strength λ of labels that are given at prediction", minimum=0)


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {},
    "paper": {"objective": {"noise": "none"}},
    "released": {"objective": {"noise": "none"}},
}


class Counts(Model):
    """The counts alone: `prepare` does all the training."""

    predicts_frames = True
    writes_text = False
    learns = False
    objective: Objective

    def __init__(self, sizes: Sizes, network: Architecture, objective: Objective) -> None:
        super().__init__(sizes, network, objective)

    def frame_probabilities(self, batch: Batch, draws: Draws | None = None, revise: bool = False) -> Tensor:
        """The prior [B, M, K]; revised with the batch's labels if asked."""
        proposed = torch.softmax(self.log_prior(batch), dim=-1)
        if not revise:
            return proposed
        posterior = bottleneck.label_posterior(proposed, batch.empirical(self.sizes.classes), batch.belief)
        return bottleneck.revise(proposed, posterior, batch.observed, self.objective.strength * batch.confidence)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Events [B, M, K]: the prior; documents [B, K]: their mean over the document's events."""
        events = self.frame_probabilities(batch)
        return ops.masked_mean(events, batch.mask), events
