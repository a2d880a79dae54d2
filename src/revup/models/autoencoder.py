"""Base classes of RevUp, SSDVAE and HAQAE: a decoder that attends over latents writes the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revup import ops
from revup.data.batches import Batch
from revup.data.corpus import Split
from revup.data.knowledge import Observation
from revup.models import layers
from revup.models.base import Memory, Model, Written
from revup.models.layers import Decoder, Encoder, shifted
from revup.models.network import Architecture, Sizes
from revup.models.randomness import Draws, draw_numbers
from revup.models.residual import Residual


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


class FrameLatents(Protocol):
    """Latents that are frames, one for each event."""

    logits: Tensor  # of q(t|x), [B, M, K]
    embedded: Tensor  # e, [B, M, d_t]

    @property
    def frames(self) -> Tensor:
        """t [B, M, K]."""
        ...


class FrameAutoencoder(Autoencoder):
    """An autoencoder whose latents are frames: t_m selects the row e_m of the table `frames`."""

    predicts_frames = True
    reads_event_vectors = True
    text_parts = ("decoder", "vocabulary")
    calibrated = ("residual.scale", "residual.context_scale")

    def __init__(
        self,
        sizes: Sizes,
        network: Architecture,
        objective: Any,
        latent_weights: Callable[[Architecture, int, int], nn.Module],
    ) -> None:
        """latent_weights: constructs a latent's weights from a network, the size of the encoder's states, and K."""
        super().__init__(sizes, network, objective)
        self.words = layers.word_embedding(sizes.words, network.embedding)
        self.encoder = Encoder(network)
        self.first_query = nn.Linear(self.encoder.size, network.frame)
        sets = 1 if network.shared else sizes.events
        self.latents = nn.ModuleList(latent_weights(network, self.encoder.size, sizes.classes) for _ in range(sets))
        self.frames = nn.Parameter(torch.randn(sizes.classes, network.frame) * network.frame**-0.5)  # E [K, d_t]
        self.decoder = Decoder(network, network.frame)
        self.vocabulary = nn.Linear(network.hidden, sizes.words)
        self.residual = Residual(sizes, network, objective)

    def calibrate(self, split: Split, observation: Observation) -> None:
        self.residual.calibrate(self, split, observation)

    def leaves_frames_to_counts(self, split: Split) -> bool:
        return self.residual.is_foregone(self, split)

    def encode(self, batch: Batch, draws: Draws | None = None) -> Tensor:
        """H, [B, T, d]."""
        states: Tensor = self.encoder(self.words, batch, draws)
        return states

    def prior_of(self, batch: Batch) -> Tensor | None:
        """The log prior of the counts [B, M, K] that the logits start from; None where they start from nothing."""
        return self.log_prior(batch) if self.objective.prior != "none" else None

    def reconstruction_loss(self, batch: Batch, embedded: Tensor, samples: int = 1) -> Tensor:
        """L_y: the mean per token, or the sum over a document's tokens averaged over documents (and samples)."""
        count = batch.documents if self.objective.reconstruction == "sum" else batch.events * 5
        count = count * samples if samples > 1 else count
        states = self.decoder(ops.embed(self.words, shifted(batch.tokens)), embedded, batch.mask)
        return ops.vocabulary_loss(states, self.vocabulary, batch.tokens, batch.token_mask, count)[0]

    def latents_of(
        self, batch: Batch, draws: Draws | None = None, hard: bool = False, revise: bool = False
    ) -> FrameLatents:
        """The latents of a batch, inferred without its labels unless `revise` is true."""
        raise NotImplementedError

    def frame_prior(self) -> Tensor:
        """p(t_m = k), [M, K], before any text is read: uniform."""
        return torch.full((self.sizes.events, self.sizes.classes), 1.0 / self.sizes.classes, device=self.device)

    def sampled_frames(self, batch: Batch, draws: Draws) -> Tensor:
        """The paper's prediction: the frame of one Gumbel sample, [B, M]."""
        return self.latents_of(batch, draws).frames.argmax(-1)

    def memory(self, batch: Batch, draws: Draws | None = None, hard: bool = False) -> Memory:
        """e_1..e_M, each where its event exists."""
        return Memory(self.latents_of(batch, draws, hard).embedded, batch.mask)

    def prompt_memory(self, batch: Batch) -> Memory:
        found = self.memory(batch)
        return found if self.network.attention == "confined" else Memory.full(found.latents)

    def memory_of_frames(self, numbers: Tensor) -> Memory:
        return Memory.full(self.frames[numbers])

    def sample_memory(self, generators: Sequence[np.random.Generator]) -> tuple[Memory, list[list[int]]]:
        """t_m from the prior over frames."""
        numbers = draw_numbers(self.frame_prior(), generators)
        return self.memory_of_frames(torch.tensor(numbers, device=self.device)), numbers

    def sample_latents(self, batch: Batch, draws: Sequence[Draws]) -> Iterator[tuple[Memory, Tensor]]:
        """t_m ~ q(t_m | t_<m, x), any continuous latent at its mean."""
        log_prior = self.frame_prior().double().log()
        for each in draws:
            latents = self.latents_of(batch, _FrameDraws(each), hard=True)
            numbers = latents.frames.argmax(-1)
            ratio = log_ratio(log_prior, latents.logits, numbers, batch.mask)
            yield Memory(self.frames[numbers], batch.mask), ratio


class _FrameDraws(Draws):
    """Draws that sample frames only and leave continuous latents at their mean."""

    def __init__(self, draws: Draws) -> None:
        super().__init__(draws.generator, draws.documents, draws.rows, draws.copies)

    def normal(self, *shape: int) -> Tensor:
        return torch.zeros(self._shape(shape), device=self.generator.device)[self.rows].flatten(0, 1)


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
