"""The window that is chosen by the corpus, where none is given: `framed` as in the paper, or `all`.

A small corpus (at most `SMALL` events in `CHUNKS` chunks) of which `framed` would leave more than half of the labelled
events unused, or of all events where none is labelled, takes `all`: long documents would be cut to their beginning.
Which it is shows only after everything is read, and a source can't always be read twice: so the first chunks are
encoded both ways, and the merge takes one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from revup.data.dataset import BY_CORPUS, Settings
from revup.data.encode import Chunk, encode
from revup.data.events import Document

SMALL = 100_000  # events
CHUNKS = 64  # that are encoded both ways
MOST_UNUSED = 0.5  # of the events that count


@dataclass
class Read:
    """How many events a process has encoded: after `SMALL` of them the corpus is large, whatever the others find."""

    events: int = 0


def both_ways(
    documents: Sequence[Document], split: str, settings: Settings, chunk: int, read: Read, **given: Any
) -> tuple[Chunk, Chunk | None]:
    """Encode documents, and if the window is to be chosen by the corpus, also in windows of all events.

    Args:
        documents: The documents.
        split: The split's name.
        settings: How documents become a dataset.
        chunk: The number of the chunk; only the first ones are encoded both ways.
        read: What this process has encoded so far; these documents are added.
        **given: Further arguments of `revup.data.encode.encode`. Vectors of an encoder take too long to compute twice.
    """
    if settings.window != BY_CORPUS:
        return encode(documents, split, settings.events, settings.window, **given), None
    first = encode(documents, split, settings.events, "framed", **given)
    read.events += first.statistics["events"]
    if read.events > SMALL or chunk >= CHUNKS or given.get("vectors") is not None:
        return first, None
    return first, encode(documents, split, settings.events, "all", **given)


@dataclass(frozen=True)
class Choice:
    """The chunks to merge, settings with their window, and why it is another than `framed`: the share left unused."""

    paths: Sequence[Path]
    settings: Settings
    unused: float | None = None


def choose(framed: Sequence[Path], every: Sequence[Path] | None, settings: Settings) -> Choice:
    """Choose the window by the corpus, where none was given.

    Args:
        framed: The chunks.
        every: The same chunks in windows of all events; None where some have none.
        settings: How documents become a dataset.
    """
    if settings.window != BY_CORPUS:
        return Choice(framed, settings)
    if every is not None and (unused := _unused(framed)) is not None and unused > MOST_UNUSED:
        return Choice(every, replace(settings, window="all"), unused)
    return Choice(framed, replace(settings, window="framed"))


def _unused(paths: Sequence[Path]) -> float | None:
    """The share of the events that count which no window of `framed` holds; None in a large or an empty corpus."""
    events = labelled = used = of_labelled = 0
    for path in paths:
        chunk = Chunk.load(path)
        lengths, unframed = chunk.arrays["lengths"], chunk.arrays["unframed"]
        events += chunk.statistics["events"]
        labelled += chunk.statistics["events_with_frame"]
        used += int(lengths.sum())
        of_labelled += int(np.where(unframed, 0, lengths).sum())
    count, held = (labelled, of_labelled) if labelled else (events, used)
    return 1 - held / count if 0 < events <= SMALL and count else None
