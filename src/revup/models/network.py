"""Settings of a network, what the presets of several models share, and the sizes that a model is built with."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from revup.data.encode import TOKENS
from revup.errors import RevupError
from revup.fields import check, setting

SIZES: dict[str, dict[str, int]] = {
    # 0 means as many as there are frames, as in the published code
    "small": {"embedding": 100, "hidden": 128, "latent": 128, "frame": 128},
    "paper": {"embedding": 300, "hidden": 512, "latent": 0, "frame": 0},
}


# Shared by every model's `default` preset, so that comparisons reflect the models and not their training settings.
DEFAULT: dict[str, dict[str, Any]] = {
    "network": {"dropout": 0.3, "word_dropout": 0.1, "unigrams": True, "context": True},
    "training": {
        "learning_rate": 2e-3,
        "schedule": "linear",
        "epochs": 6,
        "least_steps": 400,
        "most_epochs": 100,
        "most_steps": 10_000,
        "patience": 3,
        "settle": 0.5,
        "measure": "label_nll",
    },
}


# Network options of the published models.
AS_PUBLISHED: dict[str, Any] = {"attention": "full", "shared": False, "aligned": False, "beyond": False}


LARGEST_SIZE = 2**16  # of a layer or a vector; weights between two such layers would take 16 GiB
MOST_LAYERS = 64


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Network options other than sizes: connections and regularisation."""

    layers: int = setting(2, "layers of each recurrent network", minimum=1, maximum=MOST_LAYERS)
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
    context: bool = setting(
        False, "let the frames of the other events of a document, also those given at prediction, move each frame"
    )
    unigrams: bool = setting(
        False, "initialise the output bias with the log frequencies of the words instead of at random"
    )
    input_feeding: bool = setting(
        False, "feed the decoder's attention vector into its next step, as in the published code (slow)"
    )

    @property
    def places(self) -> int:
        """Number of an event's tokens that are concatenated as input of its latent; 0 if they are not."""
        return TOKENS if self.slots and self.attention == "confined" else 0


@dataclass(frozen=True, kw_only=True)
class Network(Wiring):
    """Settings of a network. A size that is None follows from `size`, or from the data (`resolve`)."""

    size: str = setting("small", "named set of sizes, each of which can be overridden", choices=SIZES)
    embedding: int | None = setting(
        None,
        "size of word embeddings (default: that of the word vectors, if any)",
        minimum=1,
        maximum=LARGEST_SIZE,
    )
    hidden: int | None = setting(None, "units of each recurrent layer", minimum=1, maximum=LARGEST_SIZE)
    latent: int | None = setting(
        None,
        "size d_z of an event's latent vector z; 0: as many as there are frames",
        minimum=0,
        maximum=LARGEST_SIZE,
    )
    frame: int | None = setting(
        None,
        "size d_t of a frame embedding; 0: as many as there are frames",
        minimum=0,
        maximum=LARGEST_SIZE,
    )

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
    """Sizes that depend on the corpus: V words, K frames, M events, event vectors of a size (0: none)."""

    words: int
    classes: int
    events: int
    vectors: int = 0
