"""What a network adds to the prior of the counts: the residual, its gate, its calibration on held-out labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from revup import bottleneck, ops
from revup.data.batches import Batch
from revup.data.corpus import Split
from revup.data.knowledge import Observation
from revup.models.base import Model
from revup.models.network import Architecture, Sizes
from revup.models.randomness import Draws


class FrameContext(nn.Module):
    """What given frames of the other events of a document say about each event's frame: logits [B, M, K].

    A GRU reads the embeddings of the given frames in each direction (0 where none is given); event m is told the state
    before it and the state after it, never its own frame. Where no frame of a document is given the logits are 0, so
    that predictions without labels are left as they are.
    """

    def __init__(self, frame: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(frame, hidden, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, classes)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, embedded: Tensor, given: Tensor) -> Tensor:
        """embedded [B, M, d_t]: the frames, 0 where none is given; given [B, M]: where one is."""
        states = ops.gru(self.rnn, embedded)
        before, after = states.chunk(2, dim=-1)
        around = torch.cat([F.pad(before, (0, 0, 1, 0))[:, :-1], F.pad(after, (0, 0, 0, 1))[:, 1:]], dim=-1)
        some = (given.sum(1) > 0).to(torch.float32).view(-1, 1, 1)
        return ops.linear(self.out, around).float() * some


FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the residual, that calibration chooses from
LEAST_SCORED = 20  # held-out labels; the standard error of fewer is no guide
DOUBTFUL = 0.2  # estimated share of wrong labels above which held-out labels decide nothing
TOGETHER = 0.1  # likewise of what several sources say together: their errors are those that held-out labels share
CALIBRATION_ROWS = 500  # windows at a time
LABELS = (0.5, 3.0, 10.0, 50.0)  # of a predicate: limits between groups of predicates by how much was seen of them


class Residual(nn.Module):
    """What a network adds to the prior of the counts, and how far.

    The residual of an event is scaled by n/(n + gate), n the number of labels counted for its predicate (those of its
    own document left out in training): where nothing was seen of a predicate, the network has learned nothing about it.
    `scale` is calibrated on held-out labels, one factor for each group of predicates (`LABELS`); `context_scale`, the
    factor of what given frames add, on held-out labels of which half is given.
    """

    scale: Tensor
    context_scale: Tensor
    limits: Tensor

    def __init__(self, sizes: Sizes, network: Architecture, objective: Any, doubtful: float = DOUBTFUL) -> None:
        """doubtful: The estimated share of wrong labels above which nothing is added to the counts."""
        super().__init__()
        self.doubtful = doubtful
        self.has_prior = objective.prior != "none"
        self.gate = float(objective.gate) if self.has_prior else 0.0
        self.register_buffer("limits", torch.tensor(LABELS), persistent=False)
        self.register_buffer("scale", torch.ones(len(LABELS) + 1))
        self.dropout = network.dropout
        self.vectors = nn.Linear(sizes.vectors, sizes.classes, bias=False) if sizes.vectors else None
        if self.vectors is not None:
            nn.init.zeros_(self.vectors.weight)  # so that absent vectors cost nothing
        self.context = FrameContext(network.frame, network.hidden, sizes.classes) if network.context else None
        if network.context:
            self.register_buffer("context_scale", torch.ones(()))

    def is_zero(self, draws: Draws | None, revise: bool) -> bool:
        """Whether predictions are those of the counts: calibration chose 0 throughout, no sample, no given frame."""
        return self.has_prior and draws is None and not revise and not bool(self.scale.any())

    def group(self, labels: Tensor) -> Tensor:
        """The group of each predicate by how many labels were counted for it, [B, M]."""
        return torch.bucketize(labels, self.limits)

    def gates(self, batch: Batch) -> Tensor:
        """n/(n + gate) of each event, [B, M]."""
        return batch.labels / (batch.labels + self.gate) if self.gate else torch.ones_like(batch.labels)

    def weight(self, batch: Batch) -> Tensor:
        """The factor of each event's residual, [B, M, 1]."""
        return (self.gates(batch) * self.scale[self.group(batch.labels)]).unsqueeze(-1)

    def is_foregone(self, model: Model, split: Split) -> bool:
        """Whether `calibrate` will set `scale` to 0 whatever is learned: labels are too often wrong."""
        if not self._has_labels(model, split) or model.counts is None:
            return False
        limit = TOGETHER if model.counts.several and self.doubtful == DOUBTFUL else self.doubtful
        return model.error_rate() > limit

    def _has_labels(self, model: Model, split: Split) -> bool:
        return self.has_prior and model.counts is not None and len(split) > 0

    @torch.no_grad()
    def calibrate(self, model: Model, split: Split, observation: Observation) -> None:
        """Set `scale` to the factors with the least −log score of held-out labels, by groups of predicates.

        A factor above 0 has to earn its place: its score must be better than that of the counts alone by more than the
        standard error of the difference over documents, else the factor is 0. Where labels are often wrong
        (`doubtful`), held-out labels share the errors that the network may have learned and can't show that it is
        right: all factors are 0. `context_scale` is set likewise, also there: errors of one event say nothing about
        the label of another.
        """
        if not self._has_labels(model, split):
            return
        batches = model.batches(split, observation, CALIBRATION_ROWS)  # once: their prior does not depend on factors
        if self.is_foregone(model, split):
            self.scale.zero_()
        else:
            losses = []
            groups, documents = torch.zeros(0), torch.zeros(0)
            for factor in FACTORS:
                self.scale.fill_(factor)
                pairs = [_scores(model, batch) for batch in batches.ordered()]
                losses.append(torch.cat([loss[seen] for loss, seen, _ in pairs]))
                groups = torch.cat([self.group(labels)[seen.to(labels.device)].cpu() for _, seen, labels in pairs])
                documents = _documents(split, torch.cat([seen for _, seen, _ in pairs]))
            table = torch.stack(losses)  # [factors, events]
            for group in range(len(self.scale)):
                self.scale[group] = _best_factor(table[:, groups == group], documents[groups == group])
        if self.context is not None:
            losses, documents = [], torch.zeros(0)
            for factor in FACTORS:
                self.context_scale.fill_(factor)
                halves = [_scores_given_half(model, batch, first) for batch in batches.ordered() for first in (0, 1)]
                even, odd = halves[::2], halves[1::2]
                losses.append(torch.cat([loss[seen] for loss, seen in (*even, *odd)]))
                documents = torch.cat(
                    [_documents(split, torch.cat([seen for _, seen in half])) for half in (even, odd)]
                )
            self.context_scale.fill_(_best_factor(torch.stack(losses), documents))

    def of_given(
        self, logits: Tensor, frames: Tensor, knowledge: ops.Knowledge | None, batch: Batch, draws: Draws | None
    ) -> Tensor | None:
        """What given frames add to the logits of the other events, [B, M, K]; None without any.

        In training half of the labels of half of the documents are given.

        Args:
            logits: The proposal without it, [B, M, K].
            frames: The embeddings E of the frames, [K, d_t].
            knowledge: Side knowledge of the events.
            batch: The documents.
            draws: The randomness of a training step.
        """
        if self.context is None or knowledge is None:
            return None
        given = (knowledge.observed > 0).to(logits.dtype)
        if draws is not None:
            given = given * (draws.uniform(given.shape[1]) < 0.5) * (draws.uniform(1) < 0.5)
        posterior = bottleneck.label_posterior(
            torch.softmax(logits.detach(), dim=-1), knowledge.empirical, knowledge.belief
        )
        embedded = ops.mix(posterior * given.unsqueeze(-1), frames)
        factor = (self.context_scale * self.gates(batch)).unsqueeze(-1)
        moved: Tensor = factor * self.context(embedded, given)
        return moved

    def of_vectors(self, batch: Batch, draws: Draws | None = None) -> Tensor | None:
        """The term of the event vectors, [B, M, K]; None without any. With draws some of their numbers are dropped."""
        if self.vectors is None or not batch.vectors.shape[-1]:
            return None
        given = batch.vectors
        if self.training and draws is not None and self.dropout:  # not where latents are sampled
            given = ops.dropout(given, draws.uniform(*given.shape[1:]), self.dropout)
        return ops.linear(self.vectors, given).float()


def _scores(model: Model, batch: Batch, given: Batch | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """−log score of the labels [B, M], where they are observed [B, M], and the labels counted [B, M].

    given: The same documents with the labels that are given; None: no label is.
    """
    found = model.frame_probabilities(batch if given is None else given, revise=given is not None)
    found = found.float().clamp_min(1e-30).log()
    loss = bottleneck.knowledge_loss(found, batch.empirical(found.shape[-1]), batch.observed, batch.belief)
    return loss.double().cpu(), ((batch.observed > 0) & batch.mask).cpu(), batch.labels


def _scores_given_half(model: Model, batch: Batch, first: int) -> tuple[Tensor, Tensor]:
    """−log scores [B, M] where every second label is given, and which others to score [B, M]."""
    half = torch.arange(batch.mask.shape[1], device=batch.mask.device) % 2 == first
    given = replace(batch, observed=batch.observed * half)
    loss, seen, _ = _scores(model, batch, given)
    told = (given.observed.sum(1, keepdim=True) > 0).cpu()
    return loss, seen & ~half.cpu() & told


def _documents(split: Split, seen: Tensor) -> Tensor:
    """The number of the document of each scored event; seen [N, M]."""
    document = torch.from_numpy(np.unique(np.asarray(split.arrays["document"]), return_inverse=True)[1])
    return document.unsqueeze(1).expand_as(seen)[seen]


def _best_factor(losses: Tensor, documents: Tensor) -> float:
    """The one of `FACTORS` with the least mean loss [factors, events]; 0 where none is better than 0 for certain.

    documents [events]: Events of one document are no independent evidence: the error is that over documents.
    """
    gain = losses[:1] - losses
    if gain.shape[1] < LEAST_SCORED:
        return 0.0
    mean = gain.mean(1)
    best = int(mean.argmax())
    number = int(documents.max()) + 1
    sums = torch.zeros(number, dtype=gain.dtype).index_add(0, documents, gain[best] - mean[best])
    known = max(len(documents.unique()), 2)
    error = (sums.square().sum() * known / (known - 1)).sqrt() / gain.shape[1]
    return FACTORS[best] if mean[best] > error else 0.0


def anchor_weight(model: Model) -> float:
    """Weight per event of the penalty KL(r ‖ prior): anchor/(counted labels), at most 1; 0 without any label."""
    labels = 0.0 if model.counts is None else model.counts.labels
    return min(float(model.objective.anchor) / max(labels, 1.0), 1.0) if labels else 0.0
