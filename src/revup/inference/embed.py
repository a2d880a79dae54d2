"""Embedding: a vector for every document and every event of a stream of documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.events import Document
from revup.inference.trained import Trained, opened
from revup.io.files import atomic_file
from revup.io.folders import refuse_existing


@dataclass(frozen=True)
class Embeddings:
    """Vectors of N documents and their E events, as plain arrays.

    Attributes:
        documents: A vector per document, [N, d]: the mean of those of its events.
        events: A vector per event, [E, d].
        document_ids: The ids of the documents, [N].
        event_document: The row of each event's document, [E].
        event_index: The index of each event in its document, [E].
    """

    documents: NDArray[np.float32]
    events: NDArray[np.float32]
    document_ids: NDArray[Any]
    event_document: NDArray[np.int64]
    event_index: NDArray[np.int64]

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the arrays to one .npz file, which `numpy.load` opens.

        Args:
            path: The file.
            force: Replace a file that exists.
        """
        refuse_existing(path, force)
        with atomic_file(path) as out:
            np.savez(out, allow_pickle=False, **asdict(self))


def embed(model: Trained | str | Path, documents: Iterable[Document]) -> Embeddings:
    """Embed documents and their events; only the vectors and ids are held in memory.

    Args:
        model: The model, or its run directory.
        documents: What to embed, for instance `revup.read("docs.jsonl")`.

    Returns:
        The vectors, in the order of the documents.

    Raises:
        RevupError: There is no document, or none with an event.
    """
    ids: list[str] = []
    counts: list[int] = []

    def noted() -> Iterator[Document]:
        for document in documents:
            ids.append(document.id)
            counts.append(len(document.events))
            yield document

    whole, events = opened(model).embeddings(noted())
    lengths = np.array(counts)
    owner = np.repeat(np.arange(len(ids)), lengths)
    first = np.cumsum(lengths) - lengths
    return Embeddings(whole, events, np.array(ids), owner, np.arange(len(owner)) - first[owner])
