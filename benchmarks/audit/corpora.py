"""The corpora that labels are planted in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import revup


def found(corpora: Path, name: str) -> Path:
    """A file of CORPORA, or of a directory in it."""
    return next((path for path in (corpora / name, *corpora.glob(f"*/{name}")) if path.exists()), corpora / name)


def prepare(name: str, corpora: Path, work: Path) -> None:
    """Make a dataset, unless it is there."""
    if (work / name).exists():
        return
    if name == "world":
        world = revup.World(frames=30, seed=7)
        parts = {"train": world.sample(1500, seed=1), "valid": world.sample(200, seed=3)}
        revup.Corpus.build(**parts, test=world.sample(300, seed=2), out=work / name)
        return
    files = {split: corpora / name / f"{split}.jsonl.gz" for split in ("train", "valid", "test")}
    window = "framed" if name == "wiki" else "all"
    revup.prepare(**files, out=work / name, window=window, vectors=found(corpora, "glove.100d.txt.gz"))


def event_documents(split: Any) -> Any:
    """The document of each event."""
    lengths = np.asarray(split.arrays["lengths"])
    return np.repeat(np.asarray(split.arrays["document"]), lengths)
