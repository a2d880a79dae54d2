"""What every model shares: sizes, randomness, loss."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from revup.data.encode import TOKENS
from revup.errors import RevupError
from revup.fields import check, setting
from revup.ops.fused import kernels

SIZES: dict[str, dict[str, int]] = {
    # 0 means as many as there are frames, as in the published code
    "small": {"embedding": 100, "hidden": 128, "latent": 128, "frame": 128},
    "paper": {"embedding": 300, "hidden": 512, "latent": 0, "frame": 0},
}


# What every model's `default` preset trains with, so that a comparison is of models, not of recipes.
DEFAULT: dict[str, dict[str, Any]] = {
    "network": {"dropout": 0.3, "word_dropout": 0.1, "unigrams": True},
    "training": {
        "learning_rate": 2e-3,
        "schedule": "linear",
        "epochs": 6,
        "least_steps": 1000,
        "most_steps": 10_000,
        "patience": 3,
        "settle": 0.5,
        "measure": "label_nll",
    },
}


# How the published models are wired.
AS_PUBLISHED: dict[str, Any] = {"attention": "full", "shared": False, "aligned": False, "beyond": False}


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """How the network is connected and regularised, whatever its sizes."""

    layers: int = setting(2, "layers of each recurrent network", minimum=1)
    dropout: float = setting(0.0, "dropout rate of word embeddings and encoder states", minimum=0, below=1)
    word_dropout: float = setting(
        0.0,
        "share of the encoder's input words replaced by <unk>, so that unknown words are learned",
        minimum=0,
        below=1,
    )
    beyond: bool = setting(
        True, "read predicates outside the vocabulary by their lemma and other words by their pretrained vector"
    )
    attention: str = setting(
        "confined",
        "what latent m attends to: the tokens of event m (confined) or all tokens (full, as in the paper)",
        choices=("confined", "full"),
    )
    slots: bool = setting(
        True, "with confined attention, also read an event's four slots side by side: states and embeddings"
    )
    shared: bool = setting(True, "one set of latent weights for all events; false: a set for each, as in the paper")
    aligned: bool = setting(
        True, "the decoder is told which latent belongs to the event it writes; false: it is not, as in the paper"
    )
    unigrams: bool = setting(
        False, "initialise the output bias with the log frequencies of the words instead of at random"
    )
    input_feeding: bool = setting(
        False, "feed the decoder's attention vector into its next step, as in the published code (slow)"
    )

    @property
    def places(self) -> int:
        """How many tokens of an event a latent reads side by side."""
        return TOKENS if self.slots and self.attention == "confined" else 0


@dataclass(frozen=True, kw_only=True)
class Network(Wiring):
    """Settings of a network. A size that is None follows from `size`, or from the data (`resolve`)."""

    size: str = setting("small", "named set of sizes, each of which can be overridden", choices=SIZES)
    embedding: int | None = setting(
        None, "size of word embeddings (default: that of the word vectors, if any)", minimum=1
    )
    hidden: int | None = setting(None, "units of each recurrent layer", minimum=1)
    latent: int | None = setting(
        None, "size d_z of an event's latent vector z; 0: as many as there are frames", minimum=0
    )
    frame: int | None = setting(None, "size d_t of a frame embedding; 0: as many as there are frames", minimum=0)

    def __post_init__(self) -> None:
        check(self, "network")

    def resolve(self, classes: int, vector_size: int | None = None) -> Architecture:
        """Fill in every size.

        Args:
            classes: The number of frames.
            vector_size: The size of the pretrained word vectors, if there are any.

        Raises:
            RevupError: `embedding` is set, and not to the size of the word vectors.
        """
        if vector_size is not None and self.embedding not in (None, vector_size):
            raise RevupError(f"network.embedding is {self.embedding}, but the word vectors have {vector_size} numbers")
        sizes = {**SIZES[self.size], **({} if vector_size is None else {"embedding": vector_size})}
        chosen = {name: getattr(self, name) for name in sizes}
        resolved = {name: (sizes[name] if size is None else size) or classes for name, size in chosen.items()}
        wiring: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(Wiring)}
        return Architecture(**{**wiring, **resolved})


@dataclass(frozen=True, kw_only=True)
class Architecture(Wiring):
    """A network with every size resolved: what a model is built from."""

    embedding: int
    hidden: int
    latent: int
    frame: int


@dataclass(frozen=True)
class Sizes:
    """What a model must know of its corpus: V words, K frames, M events."""

    words: int
    classes: int
    events: int


@dataclass
class Loss:
    """What a step minimises, and the named terms it is made of (detached)."""

    total: Tensor
    terms: dict[str, Tensor]


class Draws:
    """All randomness of one step, a function of its seed alone.

    Numbers are drawn for the whole batch and cut to this process's rows, so several processes draw what one would.
    With `copies` = S each document has S samples, one after another.
    """

    def __init__(self, generator: torch.Generator, documents: int, rows: slice = slice(None), copies: int = 1) -> None:
        self.generator, self.documents, self.rows, self.copies = generator, documents, rows, copies

    @classmethod
    def seeded(
        cls, seed: int, documents: int, device: torch.device, rows: slice = slice(None), copies: int = 1
    ) -> Draws:
        return cls(torch.Generator(device).manual_seed(seed % 2**63), documents, rows, copies)

    def normal(self, *shape: int) -> Tensor:
        return self._cut(torch.randn(self._shape(shape), generator=self.generator, device=self.generator.device))

    def uniform(self, *shape: int) -> Tensor:
        return self._cut(torch.rand(self._shape(shape), generator=self.generator, device=self.generator.device))

    def dropout(self, x: Tensor, rate: float) -> Tensor:
        """Zero a share of the numbers of x [B, ...] and scale up the rest."""
        if rate == 0:
            return x
        if (found := kernels(x.device)) is not None:
            return found.dropout_fused(x, self.drawn(*x.shape[1:]), rate)  # type: ignore[no-any-return]
        return x.masked_fill(self.drawn(*x.shape[1:]) < rate, 0.0) / (1 - rate)

    def drawn(self, *shape: int) -> Tensor:
        """U[0,1) numbers [B, ...], one copy per document."""
        return torch.rand((self.documents, *shape), generator=self.generator, device=self.generator.device)[self.rows]

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.documents, self.copies, *shape)

    def _cut(self, numbers: Tensor) -> Tensor:
        return numbers[self.rows].flatten(0, 1)


def step_seed(seed: int, step: int, purpose: str = "train") -> int:
    """The seed of one step's randomness."""
    digest = hashlib.blake2b(f"{purpose}/{seed}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 2**63
