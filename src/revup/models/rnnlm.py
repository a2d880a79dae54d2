"""RNNLM: a left-to-right GRU language model of the event tokens, without any latent.

    h_i = GRU(w_{i−1}, h_{i−1}),  w_0 = <bos>,        p(w_i | w_<i) = softmax(W h_i + b)
    L = −(1/N) Σ_i log p(w_i | w_<i)

Each token is conditioned on those before it alone, so its perplexity is a language model's, exp of the mean −log p
over all five tokens of each event with the number of events given: that of a proper distribution over documents,
and never better on average than the true one. It knows no frames. The paper calls it bidirectional, which a language
model that writes from left to right cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from revup.data.batches import Batch
from revup.data.corpus import Corpus
from revup.data.encode import BOS
from revup.data.knowledge import Observation
from revup.models.base import DEFAULT, Draws, Loss, Network, Sizes
from revup.models.layers import Recurrent, Written, event_tokens, mean_where, shifted, word_embedding
from revup.ops.vocabulary_loss import token_loss


@dataclass(frozen=True)
class Objective:
    """No settings: the loss is the negative log-likelihood alone."""


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": DEFAULT,
    "paper": {},
    "released": {},
}


class RNNLM(nn.Module):
    """The module: embeddings, GRU, vocabulary."""

    has_frames = False
    has_text = True
    capturable = True
    objective_class = Objective

    def __init__(self, sizes: Sizes, network: Network, objective: Objective) -> None:
        super().__init__()
        assert network.embedding is not None
        assert network.hidden is not None
        self.sizes, self.network, self.objective = sizes, network, objective
        self.words = word_embedding(sizes.words, network.embedding)
        self.rnn = Recurrent(network.embedding, network.hidden, network.layers, batch_first=True)
        self.vocabulary = nn.Linear(network.hidden, sizes.words)

    def prepare(self, corpus: Corpus, observation: Observation) -> dict[str, float]:
        return {}

    def states(self, tokens: Tensor, draws: Draws | None = None) -> Tensor:
        """tokens read [B, T] → the state after each, [B, T, h]."""
        embedded, rate = self.words(tokens), self.network.dropout
        if draws is None:
            return self.rnn.states(embedded)
        return draws.dropout(self.rnn.states(draws.dropout(embedded, rate)), rate)

    def forward(self, batch: Batch, draws: Draws) -> Loss:
        """The mean −log p per token of the whole batch."""
        states, count = self.states(shifted(batch.tokens), draws), batch.events * 5
        loss, _ = token_loss(states, self.vocabulary, batch.tokens, batch.token_mask, count)
        return Loss(loss, {"reconstruction": loss.detach()})

    # ---- what users ask ------------------------------------------------------------------------------------------

    def token_nll(self, batch: Batch, draws: Draws | None = None, hard: bool = False) -> Tensor:
        """−log p of each token given those before it, [B, M·5]; 0 where there is no token. Nothing is drawn."""
        states, there = self.states(shifted(batch.tokens)), batch.token_mask
        return token_loss(states, self.vocabulary, batch.tokens, there)[1] * there

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Events [B, M, h]: the state after reading up to the end of each; documents [B, h]: their mean."""
        states = self.states(F.pad(batch.tokens, (1, 0), value=BOS))[:, 1:]
        events = event_tokens(states)[:, :, -1]
        return mean_where(events, batch.mask), events

    # ---- writing, one token a step -------------------------------------------------------------------------------

    def start(self, batch: Batch, draws: Draws | None = None, hard: bool = True) -> Written:
        """Before the first token of as many texts as the batch has; the batch's own text is not looked at."""
        weight = self.vocabulary.weight
        return Written(weight.new_zeros(self.network.layers, len(batch.tokens), self.rnn.hidden_size))

    def step(self, tokens: Tensor, state: Written) -> tuple[Tensor, Written]:
        """Read the last tokens [B] (<bos> at first): log-probabilities of the next ones [B, V], and the state after."""
        out, hidden = self.rnn(self.words(tokens).unsqueeze(1), state.hidden)
        return torch.log_softmax(self.vocabulary(out.squeeze(1)).float(), dim=-1), Written(hidden)
