"""The dataset directory: its files, the settings it was made with, and how splits are written.

It can be moved, holds only plain arrays and text, and is written atomically:

    corpus.json        settings, sizes, fingerprint            vocabulary.txt, lemmas.txt   one word a line
    statistics.json    counts over the documents               frames.txt                   one frame a line
    digest.json        digests of all files                    beyond.txt                   words known by their vector
    lexicon.csv        the lexicon, where given
    train/ valid/ test/   tokens.npy read.npy lemma.npy lemma_read.npy entry.npy context.npy lengths.npy reference.npy
                          knowledge_*.npy source_*.npy confidence.npy keys.npy document.npy ids.jsonl
    vectors.npy, vectors_found.npy, vectors_beyond.npy         pretrained vectors, where given
    event_vectors.safetensors, and in each split vectors.npy   event vectors and how they were reduced, where given

Nothing here needs torch, so that worker processes start quickly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from revup.data.encode import SPECIAL, WINDOWS
from revup.data.event_vectors import REDUCED, REDUCTION
from revup.data.knowledge import document_key
from revup.errors import RevupError
from revup.fields import check, setting
from revup.io.digests import write_digest
from revup.io.files import write_json

FORMAT = 4
MOST_EVENTS = 1000  # of a window: every window is padded to this length
MOST_CLASSES = 100_000  # a model computes a probability of each for every event
MOST_WORDS = 10_000_000
PUBLISHED_EVENTS = 5  # of a window, as in the paper
BY_CORPUS = "auto"  # the window that is chosen by the corpus (revup.data.window_choice)
SPLITS = ("train", "valid", "test")
ARRAYS = {
    # of a split: type and shape, with rows N, events M, tokens of an event T, words around its predicate C, frames
    # known of an event W, frames that further sources name of it R
    "tokens": ("<i4", "NMT"),
    "read": ("<i4", "NMT"),
    "lemma": ("<i4", "NM"),
    "lemma_read": ("<i4", "NM"),
    "entry": ("<i4", "NM"),
    "context": ("<u4", "NMC"),
    "lengths": ("<i4", "N"),
    "reference": ("<i4", "NM"),
    "knowledge_frames": ("<i4", "NMW"),
    "knowledge_weights": ("<f4", "NMW"),
    "knowledge_kind": ("<i1", "NM"),
    "source_name": ("<i2", "NMR"),
    "source_kind": ("<i1", "NMR"),
    "source_frame": ("<i4", "NMR"),
    "source_weight": ("<f4", "NMR"),
    "source_confidence": ("<f4", "NMR"),
    "confidence": ("<f4", "NM"),
    "keys": ("<u8", "NM"),
    "document": ("<i8", "N"),
}
FILES = (
    *("corpus.json", "statistics.json", "vocabulary.txt", "lemmas.txt", "beyond.txt", "frames.txt", "lexicon.csv"),
    *("vectors.npy", "vectors_found.npy", "vectors_beyond.npy", REDUCTION),
    *(f"{split}/{array}.npy" for split in SPLITS for array in ARRAYS),
    *(f"{split}/{name}" for split in SPLITS for name in ("ids.jsonl", f"{REDUCED}.npy")),
)


@dataclass(frozen=True)
class Settings:
    """How documents become a dataset."""

    events: int = setting(PUBLISHED_EVENTS, "maximum number of events in a window (M)", minimum=1, maximum=MOST_EVENTS)
    window: str = setting(
        BY_CORPUS,
        "which events of a document are used: the first with a frame, the first, or all in consecutive windows; auto: "
        "framed, or all in a small corpus of which framed would leave most unused",
        choices=(*WINDOWS, BY_CORPUS),
    )
    vocabulary: int = setting(
        150_000, "size of the vocabulary, the special tokens included", minimum=len(SPECIAL) + 1, maximum=MOST_WORDS
    )
    minimum_count: int = setting(1, "how often a word must occur in training to be in the vocabulary", minimum=1)
    classes: int = setting(
        50, "number of unnamed classes of a corpus in which no event has a frame", minimum=2, maximum=MOST_CLASSES
    )
    beyond: int = setting(
        100_000, "words outside the vocabulary that are read by their pretrained vectors", minimum=0, maximum=MOST_WORDS
    )
    duplicates: str = setting(
        "drop", "whether documents that equal an earlier one of their split are dropped", choices=("drop", "keep")
    )
    split: tuple[float, float, float] = (0.9, 0.05, 0.05)
    """The shares of train, valid and test, where documents are split by their ids."""

    def __post_init__(self) -> None:
        check(self)
        if self.window == BY_CORPUS and self.events != PUBLISHED_EVENTS:
            object.__setattr__(self, "window", "framed")
        if len(self.split) != 3 or min(self.split) < 0 or not 0.999 < sum(self.split) < 1.001 or self.split[0] == 0:
            raise RevupError(f"split: expected three shares that sum to 1, the first above 0, found {self.split}")


def as_given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by name, with the window that they mean: a number of events asks for the paper's windows.

    Args:
        values: The fields of `Settings` that were given.
    """
    return {"window": "framed", **values} if "events" in values else dict(values)


def split_of(identity: str, shares: Sequence[float]) -> str:
    """Return the split of a document, which follows from its id alone.

    Args:
        identity: The document's id.
        shares: The shares of train, valid and test.
    """
    place = document_key(f"split/{identity}") / 2.0**64
    return "train" if place < shares[0] else "valid" if place < shares[0] + shares[1] else "test"


def finish_dataset(folder: Path, meta: dict[str, Any], statistics: dict[str, Any]) -> None:
    """Write what describes a dataset whose lists and arrays are complete: corpus.json, statistics.json, digest.json.

    Args:
        folder: The dataset directory.
        meta: Settings and sizes, and the fingerprint where it is not to be that of the lists and arrays.
        statistics: What was found in the documents.
    """
    write_json(folder / "corpus.json", {"format": FORMAT, "fingerprint": write_digest(folder)[:16], **meta})
    write_json(folder / "statistics.json", statistics)
    write_digest(folder)
