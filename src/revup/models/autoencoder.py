"""What RevUp, SSDVAE and HAQAE share: the text is written by a decoder that attends over latents."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revup import ops
from revup.models import layers
from revup.models.base import Memory, Model, Written
from revup.models.layers import Decoder, Encoder, shifted


class Autoencoder(Model):
    """A model that encodes a text into latents and decodes it from them."""

    writes_text = True
    has_latents = True
    words: nn.Embedding
    encoder: Encoder
    decoder: Decoder
    vocabulary: nn.Linear

    def use_vectors(self, vectors: NDArray[Any], found: NDArray[Any]) -> None:
        layers.use_vectors(self.words, vectors, found)
        self.encoder.reader.keep(vectors, found)

    def use_frequencies(self, counts: NDArray[Any]) -> None:
        layers.use_frequencies(self.vocabulary, counts)

    def text_nll(self, tokens: Tensor, memory: Memory) -> Tensor:
        states = self.decoder(ops.embed(self.words, shifted(tokens)), memory.latents, memory.mask)
        return ops.vocabulary_loss(states, self.vocabulary, tokens, torch.ones_like(tokens))[1]

    def text_attention(self, tokens: Tensor, memory: Memory) -> Tensor:
        kept: list[Tensor] = []
        handle = self.decoder.attention.register_forward_hook(lambda _, given, out: kept.append(out[1]))
        try:
            self.text_nll(tokens, memory)
        finally:
            handle.remove()
        return torch.cat(kept, dim=1)

    def start(self, memory: Memory) -> Written:
        return layers.start(self.decoder, memory)

    def step(self, tokens: Tensor, state: Written) -> tuple[Tensor, Written]:
        return layers.step(self.words, self.decoder, self.vocabulary, tokens, state)


def log_ratio(log_prior: Tensor, logits: Tensor, numbers: Tensor, mask: Tensor) -> Tensor:
    """log p(t) − log q(t | x) of sampled frames, summed over the events of each document, [B].

    Args:
        log_prior: log p(t_m = k), [M, K].
        logits: The logits of q, [B, M, K].
        numbers: The sampled frames, [B, M].
        mask: Which events exist, [B, M].
    """
    chosen = numbers.unsqueeze(-1)
    inferred = torch.log_softmax(logits.double(), dim=-1).gather(-1, chosen)
    prior = log_prior.expand(len(chosen), -1, -1).gather(-1, chosen)
    return ((prior - inferred).squeeze(-1) * mask).sum(1)
