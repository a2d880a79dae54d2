"""Tagger: the encoder with a softmax per event, trained on the observed labels only.

    H = encoder(x)                              2-layer bidirectional GRU, or a small Transformer
    h_m = attention over event m's states, queried by their mean
    q_m = softmax(linear(h_m))
    L = −(1/n) Σ_observed E_{p_D} log q_m       n: observed events of the batch

A supervised baseline: no decoder, no latents, and no learning from unobserved events. `default` uses the options of the
other models: the log prior of the counts is added to the logits, labels are evidence under an estimated reliability
(−log Σ_k q_k p(y|k)), and the frames of the other events are an input. `plain` has none of them. The other presets are
`default` with the method of a rival in place of the evidence (`revup.models.rivals`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revup import bottleneck, ops
from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus, Split
from revup.data.encode import TOKENS
from revup.data.knowledge import Observation
from revup.fields import setting
from revup.models import layers
from revup.models.base import Loss, Model
from revup.models.count_prior import PLAIN, CountPrior
from revup.models.layers import Attention, Encoder, InputWords, event_tokens, word_embedding
from revup.models.network import DEFAULT, Architecture, Sizes
from revup.models.randomness import Draws
from revup.models.residual import DOUBTFUL, Residual, anchor_weight
from revup.models.rivals.methods import Prepared, method_loss, prepare
from revup.models.rivals.settings import RAMPED, WITH_PEER, RivalSettings, presets

STRENGTH = 9.0  # λ of labels that are given at prediction, as in RevUp


@dataclass(frozen=True, kw_only=True)
class Objective(RivalSettings):
    """The encoder, the prior, and how labels are treated."""

    encoder: str = setting("gru", "the encoder of documents", choices=("gru", "transformer"))


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": DEFAULT,
    "plain": {**DEFAULT, "network": {**DEFAULT["network"], "context": False}, "objective": PLAIN},
    "paper": {"network": {"beyond": False}, "objective": PLAIN},
    "released": {"network": {"beyond": False}, "objective": PLAIN},
    **presets(DEFAULT),
}


class TransformerEncoder(nn.Module):
    """Word embeddings plus slot and event embeddings → self-attention layers: H [B, T, 2h].

    Missing tokens are masked. Dropout is applied as in the GRU encoder: to embeddings and states.
    """

    def __init__(self, network: Architecture, events: int) -> None:
        super().__init__()
        self.reader, self.dropout, self.size = InputWords(network), network.dropout, 2 * network.hidden
        self.inputs = nn.Linear(network.embedding, self.size)
        self.slots = nn.Parameter(torch.randn(TOKENS, self.size) * 0.1)
        self.events = nn.Parameter(torch.randn(events, 1, self.size) * 0.1)
        layer = nn.TransformerEncoderLayer(
            self.size, math.gcd(self.size, 8), 2 * self.size, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, network.layers, nn.LayerNorm(self.size), enable_nested_tensor=False)

    def forward(self, words: nn.Embedding, batch: Batch, draws: Draws | None = None) -> Tensor:
        embedded = self.reader(words, batch, draws)
        x = self.inputs(embedded) + (self.slots + self.events).flatten(0, 1)
        token_mask = batch.token_mask
        looked_at = token_mask | ~token_mask.any(1, keepdim=True)  # an empty document attends to padding: no NaN
        states: Tensor = self.body(x, src_key_padding_mask=~looked_at)
        return draws.dropout(states, self.dropout) if draws is not None else states


class Tagger(Model):
    """The module: encoder, attention within each event, softmax."""

    predicts_frames = True
    writes_text = False
    reads_event_vectors = True
    calibrated = ("residual.scale", "residual.context_scale")
    objective: Objective
    progress: Tensor  # epochs, for methods that set in gradually
    steps: Tensor

    def __init__(self, sizes: Sizes, network: Architecture, objective: Objective) -> None:
        super().__init__(sizes, network, objective)
        self.prepared = Prepared()
        self.words = word_embedding(sizes.words, network.embedding)
        self.encoder: Encoder | TransformerEncoder
        if objective.encoder == "transformer":
            self.encoder = TransformerEncoder(network, sizes.events)
        else:
            self.encoder = Encoder(network)
        self.attention = Attention(self.encoder.size, self.encoder.size, network.hidden, network.places)
        self.classify = nn.Linear(network.hidden, sizes.classes)
        # only held-out labels judge a rival, however many of them are wrong: that is its claim
        doubtful = DOUBTFUL if objective.method == "evidence" else 1.0
        self.residual = Residual(sizes, network, objective, doubtful)
        self.frames: nn.Parameter | None = None  # E [K, d_t], for the frames of the other events
        if network.context:
            self.frames = nn.Parameter(torch.randn(sizes.classes, network.frame) * network.frame**-0.5)
        if objective.method in RAMPED:
            self.register_buffer("progress", torch.zeros(()))
            self.register_buffer("steps", torch.zeros(()))
        self.peer: Tagger | None = None  # a second network: averaged weights, or the one that is taught together
        if objective.method in WITH_PEER:
            self.peer = Tagger(sizes, network, replace(objective, method="evidence"))
            self.peer.requires_grad_(objective.method == "coteaching")

    # ---- data and counts -----------------------------------------------------------------------------------------

    def use_vectors(self, vectors: NDArray[Any], found: NDArray[Any]) -> None:
        layers.use_vectors(self.words, vectors, found)
        self.encoder.reader.keep(vectors, found)
        if self.peer is not None:
            self.peer.use_vectors(vectors, found)

    def use_counts(self, counts: CountPrior | None) -> None:
        super().use_counts(counts)
        if self.peer is not None:
            self.peer.use_counts(counts)

    def prepare(self, corpus: Corpus, observation: Observation) -> dict[str, float]:
        if self.objective.method == "evidence":
            return super().prepare(corpus, observation)
        self.prepared, figures = prepare(self, corpus, observation)
        return figures

    def batches(
        self, split: Split, observation: Observation, batch_size: int, training: bool = False, **options: Any
    ) -> Batches:
        if training and self.objective.method != "evidence":
            options = {"knowledge": self.prepared.stated, **options}
        return super().batches(split, observation, batch_size, training, **options)

    def calibrate(self, split: Split, observation: Observation) -> None:
        self.residual.calibrate(self, split, observation)

    def leaves_frames_to_counts(self, split: Split) -> bool:
        return self.residual.is_foregone(self, split)

    # ---- the network ---------------------------------------------------------------------------------------------

    def represent(self, batch: Batch, draws: Draws | None = None) -> Tensor:
        """h_m of every event, [B, M, h]."""
        states = self.encoder(self.words, batch, draws)
        events = event_tokens(states).flatten(0, 1)  # [B·M, 5, 2h]
        query = events.mean(1, keepdim=True)
        attended = self.attention(query, events, batch.mask.new_ones(events.shape[:2]))[0]
        return attended.view(*batch.mask.shape, -1)  # type: ignore[no-any-return]

    def logits(
        self, represented: Tensor, batch: Batch, knowledge: ops.Knowledge | None = None, draws: Draws | None = None
    ) -> Tensor:
        """Logits [B, M, K]; knowledge: of the events, of which the given frames move the others."""
        logits: Tensor = ops.linear(self.classify, represented).float()
        given, weight = self.residual.of_vectors(batch, draws), self.residual.weight(batch)
        logits = logits if given is None else logits + given
        if self.objective.prior != "none":
            logits = logits * weight + self.log_prior(batch)
        if self.frames is None:
            return logits
        moved = self.residual.of_given(logits, self.frames, knowledge, batch, draws)
        return logits if moved is None else logits + moved

    def knowledge(self, batch: Batch) -> ops.Knowledge:
        """p_D(t|x) or a likelihood [B, M, K], l and confidence [B, M] of a batch."""
        belief = None if self.counts is None else batch.belief
        return ops.Knowledge(batch.empirical(self.sizes.classes), batch.observed, batch.confidence, belief)

    @staticmethod
    def _revised(proposed: Tensor, knowledge: ops.Knowledge) -> Tensor:
        posterior = bottleneck.label_posterior(proposed, knowledge.empirical, knowledge.belief)
        return bottleneck.revise(proposed, posterior, knowledge.observed, STRENGTH * knowledge.strength)

    def forward(self, batch: Batch, draws: Draws) -> Loss:
        """The mean −log score of the whole batch's side knowledge, each event's weighted by its confidence."""
        if self.objective.method != "evidence":
            return method_loss(self, batch, draws)
        o, knowledge = self.objective, self.knowledge(batch)
        logits = self.logits(self.represent(batch, draws), batch, knowledge, draws)
        log_prior = self.log_prior(batch) if o.prior != "none" and o.anchor else None
        losses = ops.frame_losses("classification", logits, log_prior, knowledge)
        count = batch.observed_events + 1e-9
        loss = (losses.learned * batch.confidence * batch.mask).sum() / count
        terms = {"classification": loss.detach()}
        if losses.anchor is not None:  # `default`: keep q near the prior
            anchor = (losses.anchor * batch.mask).sum() / count
            terms["anchor"] = anchor.detach()
            loss = loss + anchor_weight(self) * anchor
        return Loss(loss, terms)

    # ---- frames and embeddings -----------------------------------------------------------------------------------

    def frame_probabilities(self, batch: Batch, draws: Draws | None = None, revise: bool = False) -> Tensor:
        """q(t|x), [B, M, K]; nothing is sampled. Revised with the batch's labels if asked."""
        if self.residual.is_zero(draws, revise):  # then the network need not be computed
            return torch.softmax(self.log_prior(batch), dim=-1)
        knowledge = self.knowledge(batch) if revise else None
        proposed = torch.softmax(self.logits(self.represent(batch), batch, knowledge), dim=-1)
        return proposed if knowledge is None else self._revised(proposed, knowledge)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Events [B, M, h]: h_m; documents [B, h]: their mean over the document's events."""
        events = self.represent(batch)
        return ops.masked_mean(events, batch.mask), events
