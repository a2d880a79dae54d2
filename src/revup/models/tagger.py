"""Tagger: the encoder with a softmax per event, trained on the observed labels only.

    H = encoder(x)                              2-layer bidirectional GRU, or a small Transformer
    h_m = attention over event m's states, queried by their mean
    q_m = softmax(linear(h_m))
    L = −(1/n) Σ_observed E_{p_D} log q_m       n: observed events of the batch

A supervised baseline: no decoder, no latents, and no learning from unobserved events. With `prior` = pooled, the log
prior of the pooled counts is added to the logits. With `noise` = estimated, the loss is −log Σ_k q_k p(y|k) under the
noise model with an estimated error rate. Both options work as in the other models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revup import bottleneck, ops
from revup.data.batches import Batch
from revup.data.corpus import Corpus
from revup.data.encode import TOKENS
from revup.data.knowledge import Observation
from revup.fields import check, setting
from revup.models import layers
from revup.models.base import DEFAULT, Architecture, Draws, Loss, Model, Sizes
from revup.models.counts import PooledPrior, error_rate, fit_prior
from revup.models.layers import Attention, Encoder, InputWords, event_tokens, word_embedding


@dataclass(frozen=True)
class Objective:
    """The encoder, the prior, and how observed labels are treated."""

    encoder: str = setting("gru", "the encoder of documents", choices=("gru", "transformer"))
    prior: str = setting(
        "none",
        "counts that the frame logits start from: of all words of an event, of its predicate alone, or none",
        choices=("pooled", "predicate", "none"),
    )
    noise: str = setting(
        "none",
        "how observed labels are treated: wrong at an estimated rate, or never wrong (none)",
        choices=("estimated", "none"),
    )
    noise_rate: float | None = setting(
        None, "the share of wrong labels, given instead of estimated", minimum=0, below=1
    )

    def __post_init__(self) -> None:
        check(self, "objective")

    @property
    def needs_pool(self) -> bool:
        return self.prior != "none" or self.noise == "estimated"


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": DEFAULT,
    "paper": {"network": {"beyond": False}},
    "released": {"network": {"beyond": False}},
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
    objective: Objective

    def __init__(self, sizes: Sizes, network: Architecture, objective: Objective) -> None:
        super().__init__(sizes, network, objective)
        self.words = word_embedding(sizes.words, network.embedding)
        self.encoder: Encoder | TransformerEncoder
        if objective.encoder == "transformer":
            self.encoder = TransformerEncoder(network, sizes.events)
        else:
            self.encoder = Encoder(network)
        self.attention = Attention(self.encoder.size, self.encoder.size, network.hidden, network.places)
        self.classify = nn.Linear(network.hidden, sizes.classes)
        self.prior = PooledPrior(sizes.words, sizes.classes, objective.prior) if objective.needs_pool else None

    def prepare(self, corpus: Corpus, observation: Observation) -> dict[str, float]:
        """Fit the pooled counts on the training split before the first step; returns figures to report."""
        return fit_prior(self.prior, self.objective.noise, self.objective.noise_rate, corpus, observation)

    def use_vectors(self, vectors: NDArray[Any], found: NDArray[Any]) -> None:
        layers.use_vectors(self.words, vectors, found)
        self.encoder.reader.keep(vectors, found)

    def error_rate(self) -> Tensor | None:
        return error_rate(self.prior, self.objective.noise)

    def represent(self, batch: Batch, draws: Draws | None = None) -> Tensor:
        """h_m of every event, [B, M, h]."""
        states = self.encoder(self.words, batch, draws)
        events = event_tokens(states).flatten(0, 1)  # [B·M, 5, 2h]
        query = events.mean(1, keepdim=True)
        attended = self.attention(query, events, batch.mask.new_ones(events.shape[:2]))[0]
        return attended.view(*batch.mask.shape, -1)  # type: ignore[no-any-return]

    def logits(self, represented: Tensor, batch: Batch, own: Tensor | None) -> Tensor:
        """Logits [B, M, K]; own: labels to exclude from the pooled counts."""
        logits: Tensor = ops.linear(self.classify, represented).float()
        if self.prior is not None and self.objective.prior != "none":
            logits = logits + self.prior(batch.words(self.network.beyond), own)
        return logits

    def forward(self, batch: Batch, draws: Draws) -> Loss:
        """The mean −log p of the whole batch's observed labels, each weighted by its confidence."""
        empirical = batch.empirical(self.sizes.classes)
        logits = self.logits(self.represent(batch, draws), batch, empirical)
        rate = self.prior.noise_rate if self.prior is not None and self.objective.noise == "estimated" else 0.0
        nll = bottleneck.noisy_label_loss(logits, empirical, batch.observed, rate)
        loss = (nll * batch.confidence * batch.mask).sum() / (batch.observed_events + 1e-9)
        return Loss(loss, {"classification": loss.detach()})

    # ---- frames and embeddings -----------------------------------------------------------------------------------

    def frame_probabilities(self, batch: Batch, draws: Draws | None = None, revise: bool = False) -> Tensor:
        """q(t|x), [B, M, K]; nothing is sampled. Revised with the batch's labels at λ = 1 times confidence if asked."""
        proposed = torch.softmax(self.logits(self.represent(batch), batch, None), dim=-1)
        if not revise:
            return proposed
        return bottleneck.revise(proposed, batch.empirical(self.sizes.classes), batch.observed, batch.confidence)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Events [B, M, h]: h_m; documents [B, h]: their mean over the document's events."""
        events = self.represent(batch)
        return ops.masked_mean(events, batch.mask), events
