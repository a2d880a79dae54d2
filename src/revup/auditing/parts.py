"""What is audited, a part at a time: documents as they come, or a split of a dataset as the run saw it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from revup.data.corpus import Corpus, Split
from revup.data.documents import Given, as_documents
from revup.data.encode import NULL, UNSEEN
from revup.data.events import Document, Event
from revup.data.knowledge import Observation, document_key, event_indices
from revup.data.told import LABEL, further_knowledge, own_knowledge
from revup.inference.evaluate import in_own_terms
from revup.inference.trained import Trained

DOCUMENTS, ROWS = 500, 5000  # documents, or windows of a dataset, at a time
MOST_INDEX = 2**31  # of an event in its document


@dataclass(frozen=True)
class Part:
    """Some documents with their events as the model reads them.

    Attributes:
        documents: The documents. Those of a dataset hold the events that it has of them, in the vocabulary's words.
        place: Number of the document and index of each event of the split, in its order.
        index: The index of each event in the original document.
        split: The events.
        observation: Which labels are in question.
        unknown: Number of the event → its label, where the model does not know that frame ("" if its name is lost).
    """

    documents: list[Document]
    place: list[tuple[int, int]]
    index: list[int]
    split: Split
    observation: Observation
    unknown: dict[int, str] = field(default_factory=dict)


def is_dataset(path: str | Path) -> bool:
    """Return whether a path is a dataset directory."""
    return str(path) != "-" and (Path(path) / "corpus.json").is_file()


def parts(model: Trained, given: Given | Corpus, split: str = "train") -> Iterator[Part]:
    """Yield what is to be audited.

    Args:
        model: The model.
        given: Documents, or a dataset. Of the one that the model was trained on, the training labels are those that it
            observed, with its ε and η.
        split: Part of the dataset.
    """
    if isinstance(given, Corpus):
        yield from _of_dataset(model, given, split)
        return
    stream, frames = iter(as_documents(given)), frozenset(model.frames)
    while part := list(islice(stream, DOCUMENTS)):
        place = [(number, index) for number, document in enumerate(part) for index in range(len(document.events))]
        if place:
            events = (part[number].events[index] for number, index in place)
            unknown = {number: name for number, event in enumerate(events) if (name := _unknown(event, frames))}
            yield Part(part, place, [index for _, index in place], model.encode(part), Observation(), unknown)


def _unknown(event: Event, frames: Container[str]) -> str | None:
    """The first label of an event that names a frame which is not among these."""
    own = own_knowledge(event)
    told = (*([own] if own else []), *further_knowledge(event))
    labels = (each.frames[0][0] for each in told if each.kind == LABEL)
    return next((name for name in labels if name not in frames), None)


def _of_dataset(model: Trained, corpus: Corpus, name: str) -> Iterator[Part]:
    whole = in_own_terms(corpus.split(name), corpus, model)
    own = name == "train" and corpus.fingerprint == model.data.get("fingerprint")
    observation = model.config.observation if own else Observation()
    ids, names = whole.ids, _unknown_by_key(corpus, name, model)
    for begin in range(0, len(whole), ROWS):
        rows = slice(begin, begin + ROWS)
        arrays = {key: np.asarray(array[rows]) for key, array in whole.arrays.items()}
        part = Split(whole.name, arrays, lambda: ids, whole.classes, whole.sources, whole._frame_set)
        documents, place, index = _documents(part, ids, model, observation)
        there = np.arange(arrays["keys"].shape[1]) < arrays["lengths"][:, None]
        lost = np.flatnonzero(arrays["reference"][there] == UNSEEN)
        keys = arrays["keys"][there][lost].tolist()
        unknown = {int(number): names.get(key, "") for number, key in zip(lost, keys, strict=True)}
        yield Part(documents, place, index, part, observation, unknown)


def _unknown_by_key(corpus: Corpus, name: str, model: Trained) -> dict[int, str]:
    """Key of an event → its label, where the model does not know that frame and the dataset does."""
    known = frozenset(model.frames)
    lacking = np.array([frame not in known for frame in corpus.frames], bool)
    if not lacking.any():
        return {}
    arrays = corpus.split(name).arrays
    reference, keys = np.asarray(arrays["reference"]), np.asarray(arrays["keys"])
    found = (reference >= 0) & lacking[np.maximum(reference, 0)]
    return {key: corpus.frames[k] for key, k in zip(keys[found].tolist(), reference[found].tolist(), strict=True)}


def _documents(
    split: Split, ids: list[str], model: Trained, observation: Observation
) -> tuple[list[Document], list[tuple[int, int]], list[int]]:
    """Return the documents of some windows in the vocabulary's words, with the labels that are in question."""
    a = split.arrays
    there = np.arange(a["keys"].shape[1]) < a["lengths"][:, None]
    owner = np.repeat(a["document"], there.sum(1))
    numbers, position = np.unique(owner, return_inverse=True)
    hashes = np.array([document_key(ids[number]) for number in numbers], np.uint64)
    index = event_indices(hashes[position], a["keys"][there])
    index[(index < 0) | (index > MOST_INDEX)] = 0  # keys that no event has: the dataset was changed
    labels = np.full(len(owner), -1, np.int64)
    for source in split.told(observation).values():
        if source.kind == "label":
            labels[source.item] = np.where(labels[source.item] < 0, source.frame, labels[source.item])
    words, frames = model.vocabulary.words, model.frames
    lemmas = model.vocabulary.lemmas
    documents: list[Document] = []
    place: list[tuple[int, int]] = []
    last = -1
    for number, (tokens, label) in enumerate(zip(a["tokens"][there].tolist(), labels.tolist(), strict=True)):
        if owner[number] != last:
            documents.append(Document(ids[owner[number]], []))
            last = owner[number]
        said = [None if token == NULL else words[token] for token in tokens[:4]]
        event = Event(str(said[0]), said[1], said[2], said[3], frames[label] if label >= 0 else None)
        if lemmas[tokens[0]] != said[0]:
            event = replace(event, lemma=lemmas[tokens[0]])
        place.append((len(documents) - 1, len(documents[-1].events)))
        documents[-1].events.append(event)
    return documents, place, index.tolist()
