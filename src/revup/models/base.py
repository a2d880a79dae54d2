"""The interface of all models, `Model`, and the records that pass through it: loss, latents, texts being written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revup import bottleneck, ops
from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus, Split
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.models.count_prior import CountPrior, CountSettings
from revup.models.network import Architecture, Sizes
from revup.models.randomness import Draws
from revup.models.shared_counts import fitted_counts


@dataclass
class Loss:
    """The total loss of a step, and its named terms (detached)."""

    total: Tensor
    terms: dict[str, Tensor]


@dataclass(frozen=True)
class Memory:
    """The latents that a decoder attends over; a language model has none (L = 0)."""

    latents: Tensor  # [B, L, d]
    mask: Tensor  # [B, L], true where a latent exists

    @classmethod
    def full(cls, latents: Tensor) -> Memory:
        """A memory in which every latent [B, L, d] exists."""
        return cls(latents, torch.ones(latents.shape[:2], dtype=torch.bool, device=latents.device))

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> Memory:
        """The memory of a model without latents, for this number of texts."""
        return cls.full(torch.zeros(rows, 0, 0, device=device))

    def __len__(self) -> int:
        return len(self.latents)

    def select(self, rows: Tensor) -> Memory:
        """These rows in this order; a row may occur more than once."""
        return Memory(self.latents[rows], self.mask[rows])

    def followed_by(self, more: Memory, count: int) -> Memory:
        """The first `count` latents of every row, then those of `more`; all of them exist."""
        return Memory.full(torch.cat([self.latents[:, :count], more.latents], dim=1))


@dataclass(frozen=True)
class Written:
    """The state of texts that are written one token a step."""

    hidden: Tensor  # of the GRU, [layers, B, h]
    memory: Memory
    fed: Tensor | None = None  # the last attention vector [B, 1, h], where input feeding is on
    position: int = 0  # tokens written so far

    def select(self, rows: Tensor) -> Written:
        """These texts in this order; a text may occur more than once (beam search)."""
        fed = None if self.fed is None else self.fed[rows]
        return Written(self.hidden[:, rows], self.memory.select(rows), fed, self.position)


class Model(nn.Module):
    """The interface of all models to training and inference.

    Class attributes declare a model's capabilities; a method that a model does not support raises a `RevupError`. The
    labels of a batch are used for training, and for inference only if `revise` is true.
    """

    predicts_frames: ClassVar[bool]
    writes_text: ClassVar[bool]
    has_latents: ClassVar[bool] = False  # the text is written from latents inferred from it
    reads_event_vectors: ClassVar[bool] = False
    learns: ClassVar[bool] = True  # by gradient steps; False: `prepare` does all the training
    text_parts: ClassVar[tuple[str, ...]] = ()  # submodules trained in the decoder phase
    word_arrays: ClassVar[
        tuple[str, ...]
    ] = ()  # buffers with a row for each word of the vocabulary and beyond, or none
    calibrated: ClassVar[tuple[str, ...]] = ()  # weights that are 1 in training, and chosen by `calibrate` at its end
    settled: bool = False  # decoder phase: the decoder is trained on one-hot frames
    counts: CountPrior | None = None  # fitted counts: the prior, and the reliability of sources
    log_base: Tensor
    sizes: Sizes
    network: Architecture
    objective: Any

    def __init__(self, sizes: Sizes, network: Architecture, objective: Any) -> None:
        super().__init__()
        self.sizes, self.network, self.objective = sizes, network, objective
        self.register_buffer("log_base", torch.zeros(sizes.classes), persistent=False)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.log_base.device

    def use_counts(self, counts: CountPrior | None) -> None:
        """Stand on fitted counts."""
        self.counts = counts
        if counts is not None:
            self.log_base.copy_(counts.log_base)

    def batches(
        self, split: Split, observation: Observation, batch_size: int, training: bool = False, **options: Any
    ) -> Batches:
        """A split in batches on the model's device, with the prior and the side knowledge that its counts give.

        Args:
            split: The split, in the model's own vocabulary and frames.
            observation: Which labels are observed, and which of them are wrong.
            batch_size: Windows in a batch.
            training: Whether to train on them.
            **options: Further arguments of `Batches`.
        """
        known: dict[str, Any] = {"knowledge": self.counts, "training": training, **options}
        return Batches(split, observation, batch_size, self.device, **known)

    def log_prior(self, batch: Batch) -> Tensor:
        """The log prior of the counts, [B, M, K]."""
        return batch.log_prior(self.log_base)

    # ---- training ------------------------------------------------------------------------------------------------

    def prepare(self, corpus: Corpus, observation: Observation) -> dict[str, float]:
        """Collect statistics of the training split before the first step: fit the counts, if the objective needs any.

        Args:
            corpus: The dataset.
            observation: Which labels are observed, and which of them are wrong.

        Returns:
            Figures to report, by name.
        """
        if not (isinstance(self.objective, CountSettings) and self.objective.needs_counts):
            return {}
        counts = fitted_counts(corpus, observation, self.objective)
        self.use_counts(counts)
        return counts.figures()

    def use_vectors(self, vectors: NDArray[Any], found: NDArray[Any]) -> None:
        """Start from pretrained word vectors.

        Args:
            vectors: One per word of the vocabulary and of the list of further words, [V + X, d].
            found: Whether there is a vector, [V + X].
        """

    def use_frequencies(self, counts: NDArray[Any]) -> None:
        """Start the bias over the vocabulary at the log frequencies of the words.

        Args:
            counts: Occurrences of each word in the training split, [V].
        """

    def forward(self, batch: Batch, draws: Draws) -> Loss:
        """The loss of a batch, divided by the whole batch's counts.

        Args:
            batch: Documents with their observed labels.
            draws: The randomness of this step.
        """
        self._cannot("be trained by gradient steps")

    def calibrate(self, split: Split, observation: Observation) -> None:
        """Choose how far to trust what was learned beyond the counts, by the observed labels of held-out documents.

        Args:
            split: The validation split; its reference frames are not used.
            observation: Which labels are observed, and which of them are wrong.
        """

    def leaves_frames_to_counts(self, split: Split) -> bool:
        """Whether `calibrate` will leave the frames to the counts, whatever is learned; known before training.

        Args:
            split: The validation split.
        """
        return False

    def error_rate(self) -> float:
        """The estimated share of wrong labels among the observed ones; 0 where it can't be told or is not estimated.

        Of several sources that name the same events: how often they are wrong together.
        """
        return 0.0 if self.counts is None else self.counts.error_rate

    # ---- frames and embeddings -----------------------------------------------------------------------------------

    def frame_probabilities(self, batch: Batch, draws: Draws | None = None, revise: bool = False) -> Tensor:
        """The distribution over frames of every event, [B, M, K].

        Args:
            batch: Documents.
            draws: Sample the continuous latents; None takes their mean.
            revise: Mix the batch's labels into the prediction.
        """
        self._cannot("predict frames")

    def sampled_frames(self, batch: Batch, draws: Draws) -> Tensor:
        """One frame for every event, [B, M]: a sample where the model draws frames, else the most probable one."""
        return self.frame_probabilities(batch).argmax(-1)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Vectors of the documents [B, d] and of their events [B, M, d]."""
        self._cannot("embed documents")

    # ---- text ----------------------------------------------------------------------------------------------------

    def memory(self, batch: Batch, draws: Draws | None = None, hard: bool = False) -> Memory:
        """The latents inferred from a batch's text.

        Args:
            batch: Documents.
            draws: Sample the latents; None takes their mean.
            hard: One-hot frames, not distributions over them.
        """
        self._cannot("write text")

    def prompt_memory(self, batch: Batch) -> Memory:
        """The latents inferred from the beginning of a text, for writing what follows.

        A latent that attends to one event exists only where its event does. One that attends to all tokens is
        inferred from those that are given, whether or not its own event is among them.
        """
        return self.memory(batch)

    def text_nll(self, tokens: Tensor, memory: Memory) -> Tensor:
        """−log p of each token given those before it and the latents, [B, T], for any number T of tokens."""
        self._cannot("write text")

    def token_nll(self, batch: Batch, draws: Draws | None = None, hard: bool = False) -> Tensor:
        """−log p of each token given the latents inferred from the same text, [B, M·5]; 0 where there is no token.

        Args:
            batch: Documents.
            draws: Sample the latents, frames as Gumbel-softmax samples; None takes their mean.
            hard: Take the most probable frames, one-hot; then nothing is sampled.
        """
        memory = self.memory(batch, None if hard else draws, hard)
        return self.text_nll(batch.tokens, memory) * batch.token_mask

    def start(self, memory: Memory) -> Written:
        """The state before the first token, one text for each row of the memory."""
        self._cannot("write text")

    def step(self, tokens: Tensor, state: Written) -> tuple[Tensor, Written]:
        """Read the last tokens [B] (<bos> at first): log-probabilities of the next ones [B, V], and the state after."""
        self._cannot("write text")

    def text_attention(self, tokens: Tensor, memory: Memory) -> Tensor:
        """The attention of the decoder to its latents at each token, [B, T, L]."""
        self._cannot("attend over latents")

    # ---- generation, the bound, inspection -----------------------------------------------------------------------

    def sample_memory(self, generators: Sequence[np.random.Generator]) -> tuple[Memory, list[list[int]]]:
        """Draw latents from the model's own prior.

        Args:
            generators: One source of randomness for each text.

        Returns:
            The latents, and the numbers of the frames or codes that were drawn for each text.
        """
        self._cannot("write text")

    def memory_of_frames(self, numbers: Tensor) -> Memory:
        """The latents of chosen frames.

        Args:
            numbers: The frames, [B, L].
        """
        self._cannot("write text from chosen frames")

    def sample_latents(self, batch: Batch, draws: Sequence[Draws]) -> Iterator[tuple[Memory, Tensor]]:
        """Sample latents given a batch's text, for the importance-weighted bound.

        Args:
            batch: Documents.
            draws: The randomness of each sample.

        Returns:
            Samples of the latents, each with log p(latents) − log q(latents | text) [B]; one for each of `draws`, or a
            single one where inference draws nothing.
        """
        self._cannot("write text")

    def inspect_latents(self, batches: Iterable[Batch]) -> dict[str, Any]:
        """Statistics of the latents over some batches, by the name of the latent; {} for a model without any."""
        return {}

    def _cannot(self, what: str) -> NoReturn:
        raise RevupError(f"the model {type(self).__name__.lower()} does not {what}")


class WithoutText(Model):
    """A model that reads frames off an event and writes no text: an event's vector is its distribution over frames."""

    def propose(self, batch: Batch) -> Tensor:
        """p(frame|event) [B, M, K], without the batch's labels."""
        raise NotImplementedError

    def frame_probabilities(self, batch: Batch, draws: Draws | None = None, revise: bool = False) -> Tensor:
        """The proposal [B, M, K]; revised with the batch's labels at λ = 1 times confidence if asked."""
        proposed = self.propose(batch)
        if not revise:
            return proposed
        return bottleneck.revise(proposed, batch.empirical(proposed.shape[-1]), batch.observed, batch.confidence)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Documents [B, K]: the mean over their events; events [B, M, K]: p(frame|event)."""
        events = self.frame_probabilities(batch)
        return ops.masked_mean(events, batch.mask), events
