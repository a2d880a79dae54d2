"""Embedding: a vector for every document and every event of a stream of documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.documents import Given, as_documents
from revup.data.events import Document
from revup.inference.event_values import together
from revup.inference.loading import opened
from revup.inference.trained import Trained
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

    @classmethod
    def of(cls, ids: list[str], vectors: list[NDArray[np.float32]]) -> Embeddings:
        """Put the vectors of documents together.

        Args:
            ids: The ids of the documents.
            vectors: The vectors of each document's events, [events, d].

        Raises:
            RevupError: There is no document, or none with an event.
        """
        return cls.joined(ids, np.array([len(rows) for rows in vectors]), *together(vectors))

    @classmethod
    def joined(
        cls, ids: list[str], lengths: NDArray[np.int64], documents: NDArray[np.float32], events: NDArray[np.float32]
    ) -> Embeddings:
        """Number the events of documents.

        Args:
            ids: The ids of the documents.
            lengths: How many events each has, [N].
            documents: Their vectors, [N, d].
            events: The vectors of all their events, [E, d].
        """
        owner = np.repeat(np.arange(len(ids)), lengths)
        first = np.cumsum(lengths) - lengths
        return cls(documents, events, np.array(ids), owner, np.arange(len(owner)) - first[owner])

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the arrays to one .npz file, which `numpy.load` opens.

        Args:
            path: The file.
            force: Replace a file that exists.
        """
        refuse_existing(path, force)
        with atomic_file(path) as out:
            np.savez(out, allow_pickle=False, **vars(self))


def embed(model: Trained | str | Path, documents: Given) -> Embeddings:
    """Embed documents and their events; only the vectors and ids are held in memory.

    Args:
        model: The model, or its run directory.
        documents: What to embed, for instance `revup.read("docs.jsonl")`: documents or dicts of their JSON form, or one
            of them.

    Returns:
        The vectors, in the order of the documents.

    Raises:
        RevupError: There is no document, or none with an event.
    """
    ids: list[str] = []

    def noted() -> Iterator[Document]:
        for document in as_documents(documents):
            ids.append(document.id)
            yield document

    return Embeddings.of(ids, opened(model).document_vectors(noted()))
