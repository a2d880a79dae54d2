"""RNNLM: a left-to-right GRU language model of the event tokens, without any latent.

    h_i = GRU(w_{i−1}, h_{i−1}),  w_0 = <bos>,        p(w_i | w_<i) = softmax(W h_i + b)
    L = −(1/N) Σ_i log p(w_i | w_<i)

Each token is conditioned on the preceding tokens only, so its perplexity is a language model's: exp of the mean −log p
over all five tokens of each event, given the number of events. The model is a proper distribution over documents, so
its expected perplexity is at least that of the true distribution. It uses no frames. The paper calls it bidirectional,
which is not possible for a left-to-right language model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from revup import ops
from revup.data.batches import Batch
from revup.data.encode import BOS
from revup.models import layers
from revup.models.base import Loss, Memory, Model, Written
from revup.models.layers import event_tokens, shifted, word_embedding
from revup.models.network import DEFAULT, Architecture, Sizes
from revup.models.randomness import Draws


@dataclass(frozen=True)
class Objective:
    """No settings: the loss is the negative log-likelihood alone."""


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": DEFAULT,
    "paper": {},
    "released": {},
}


class RNNLM(Model):
    """The module: embeddings, GRU, vocabulary."""

    predicts_frames = False
    writes_text = True

    def __init__(self, sizes: Sizes, network: Architecture, objective: Objective) -> None:
        super().__init__(sizes, network, objective)
        self.words = word_embedding(sizes.words, network.embedding)
        self.rnn = nn.GRU(network.embedding, network.hidden, network.layers, batch_first=True)
        self.vocabulary = nn.Linear(network.hidden, sizes.words)

    def use_vectors(self, vectors: NDArray[Any], found: NDArray[Any]) -> None:
        layers.use_vectors(self.words, vectors, found)

    def use_frequencies(self, counts: NDArray[Any]) -> None:
        layers.use_frequencies(self.vocabulary, counts)

    def states(self, tokens: Tensor, draws: Draws | None = None) -> Tensor:
        """tokens read [B, T] → the state after each, [B, T, h]."""
        embedded, rate = ops.embed(self.words, tokens), self.network.dropout
        if draws is None:
            return ops.gru(self.rnn, embedded)
        return draws.dropout(ops.gru(self.rnn, draws.dropout(embedded, rate)), rate)

    def forward(self, batch: Batch, draws: Draws) -> Loss:
        """The mean −log p per token of the whole batch."""
        states, count = self.states(shifted(batch.tokens), draws), batch.events * 5
        loss, _ = ops.vocabulary_loss(states, self.vocabulary, batch.tokens, batch.token_mask, count)
        return Loss(loss, {"reconstruction": loss.detach()})

    # ---- embeddings and text -------------------------------------------------------------------------------------

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Events [B, M, h]: the state after reading up to the end of each; documents [B, h]: their mean."""
        states = self.states(F.pad(batch.tokens, (1, 0), value=BOS))[:, 1:]
        events = event_tokens(states)[:, :, -1]
        return ops.masked_mean(events, batch.mask), events

    def memory(self, batch: Batch, draws: Draws | None = None, hard: bool = False) -> Memory:
        """No latents."""
        return Memory.empty(len(batch.tokens), batch.tokens.device)

    def text_nll(self, tokens: Tensor, memory: Memory) -> Tensor:
        """−log p of each token given those before it, [B, T]."""
        return ops.vocabulary_loss(self.states(shifted(tokens)), self.vocabulary, tokens, torch.ones_like(tokens))[1]

    def start(self, memory: Memory) -> Written:
        weight = self.vocabulary.weight
        return Written(weight.new_zeros(self.network.layers, len(memory), self.rnn.hidden_size), memory)

    def step(self, tokens: Tensor, state: Written) -> tuple[Tensor, Written]:
        out, hidden = self.rnn(self.words(tokens).unsqueeze(1), state.hidden)
        return torch.log_softmax(self.vocabulary(out.squeeze(1)).float(), dim=-1), replace(state, hidden=hidden)

    def sample_memory(self, generators: Sequence[np.random.Generator]) -> tuple[Memory, list[list[int]]]:
        """No latents."""
        return Memory.empty(len(generators), self.device), [[] for _ in generators]

    def sample_latents(self, batch: Batch, draws: Sequence[Draws]) -> Iterator[tuple[Memory, Tensor]]:
        """No latents: the bound is the likelihood itself."""
        yield self.memory(batch), torch.zeros(len(batch.tokens), device=batch.tokens.device)
