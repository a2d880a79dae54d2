"""What every model shares: sizes, randomness, loss."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from revup.data.encode import TOKENS
from revup.errors import RevupError
from revup.ops.fused import kernels

SIZES: dict[str, dict[str, int]] = {
    # latent and frame 0 mean "as many as there are frames", as in the published code
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


@dataclass(frozen=True)
class Network:
    """Sizes and wiring. What is None follows from `size`."""

    size: str = "small"
    embedding: int | None = None
    hidden: int | None = None
    latent: int | None = None  # d_z
    frame: int | None = None  # d_t
    layers: int = 2
    dropout: float = 0.0  # of word embeddings and encoder states
    word_dropout: float = 0.0  # share of the encoder's words read as <unk>, so that it learns what that means
    beyond: bool = True  # predicates known by their lemma, and words with a pretrained vector, are not <unk>
    attention: str = "confined"  # latent m looks at event m's tokens; "full": at all tokens, as in the paper
    slots: bool = True  # where confined, an event's tokens are also read side by side, states and embeddings
    shared: bool = True  # one set of latent weights for all m (RevUp's μ starts as a rotation); False: as published
    aligned: bool = True  # the decoder knows which latent belongs to the event it writes; False: as in the paper
    unigrams: bool = False  # the bias over the vocabulary starts at the words' log frequencies, not at random
    input_feeding: bool = False  # the decoder's attention vector goes into its next step, as published: slow

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise RevupError(f"network.size: expected one of {', '.join(SIZES)}, found '{self.size}'")
        if self.attention not in ("confined", "full"):
            raise RevupError(f"network.attention: expected confined or full, found '{self.attention}'")
        for name in ("dropout", "word_dropout"):
            if not 0 <= getattr(self, name) < 1:
                shown = f"network.{name.replace('_', '-')}"
                raise RevupError(f"{shown}: expected a number from 0 to below 1, found {getattr(self, name)}")
        for name, low in (("embedding", 1), ("hidden", 1), ("layers", 1), ("latent", 0), ("frame", 0)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise RevupError(f"network.{name}: expected {low} or more, found {value}")

    @property
    def places(self) -> int:
        """How many tokens a latent reads side by side."""
        return TOKENS if self.slots and self.attention == "confined" else 0

    def resolve(self, classes: int, vector_size: int | None = None) -> Network:
        """Every size filled in, for so many frames and, where given, pretrained vectors of that size."""
        sizes: dict[str, Any] = {name: getattr(self, name) for name in SIZES[self.size]}
        sizes = {name: SIZES[self.size][name] if value is None else value for name, value in sizes.items()}
        for name in ("latent", "frame"):
            sizes[name] = sizes[name] or classes
        if vector_size is not None and self.embedding is None:
            sizes["embedding"] = vector_size
        elif vector_size is not None and vector_size != self.embedding:
            raise RevupError(f"network.embedding is {self.embedding}, but the word vectors have {vector_size} numbers")
        return replace(self, **sizes)


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


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise RevupError(f"objective.{name.replace('_', '-')}: expected {' or '.join(allowed)}, found '{value}'")


def step_seed(seed: int, step: int, purpose: str = "train") -> int:
    """The seed of one step's randomness."""
    digest = hashlib.blake2b(f"{purpose}/{seed}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 2**63
