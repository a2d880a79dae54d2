"""Encoding documents as arrays: normalised words, windows of M events, chunks.

A chunk numbers its own words and frames, so that many workers can encode without sharing a vocabulary; the merge
(revup.data.merge) renumbers them. On disk a chunk is plain arrays and JSON text.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from revup.data.event_vectors import FOUND, RAW, VectorSource
from revup.data.events import SLOTS, Document, Event
from revup.data.knowledge import document_key, event_keys
from revup.data.lexicon import Lexicon
from revup.data.told import (
    CONTEXT,
    MOST_CONFIDENT,
    context_words,
    frame_name,
    further_knowledge,
    has_knowledge,
    own_knowledge,
)
from revup.errors import InputError, RevupError
from revup.io.archives import DAMAGED
from revup.io.files import atomic_file

Array = NDArray[Any]
PAD, UNK, BOS, TUP, NULL = range(5)
SPECIAL = ("<pad>", "<unk>", "<bos>", "<tup>", "<null>")
TOKENS = len(SLOTS) + 1  # an event is written as its four slots and <tup>
WINDOWS = ("framed", "first", "all")
NONE, UNSEEN = -1, -2  # reference frames: absent; not among the training frames
NO_ENTRY = -1  # of the lexicon


def normal(word: str | None) -> str:
    """Normalise a slot's word as in the vocabulary: lower case, blanks as "-", `<null>` where missing."""
    if not word:
        return "<null>"
    return word.lower() if word.isalnum() else "-".join(word.lower().split()) or "<null>"


def windows(document: Document, size: int, kind: str) -> Iterator[list[tuple[int, Event]]]:
    """Cut a document into windows of events, each with its index in the document.

    Args:
        document: The document.
        size: The maximum number of events in a window.
        kind: "framed" for the first events that have a frame (as in the paper), "first" for the first events, "all"
            for all consecutive windows. A document without such events has no window.
    """
    numbered = list(enumerate(document.events))
    if kind == "framed":
        numbered = [pair for pair in numbered if has_knowledge(pair[1])][:size]
    elif kind == "first":
        numbered = numbered[:size]
    elif kind != "all":
        raise RevupError(f"unknown window '{kind}': one of {', '.join(WINDOWS)}")
    yield from (numbered[start : start + size] for start in range(0, len(numbered), size))


@dataclass
class Chunk:
    """Encoded windows of some documents of one split, in words, frames and sources numbered by the chunk itself.

    Arrays: tokens [n, M, 4]; lemma [n, M], the predicate's lemma or the predicate itself; entry [n, M], of the lexicon;
    context [n, M, 4], hashes of the words around the predicate; lengths [n]; unframed [n], true for the window of a
    document without any frame, used only if no event of the corpus has one; reference [n, M]; knowledge_frames,
    knowledge_weights [n, M, W] and knowledge_kind [n, M]: what the keys frame, frames and candidates say; source_* [n,
    M, R]: a row for each frame that a further source names; confidence [n, M]; keys [n, M]; document [n], an index into
    ids; document_keys and content [documents]. With event vectors also raw_vectors [n, M, d] and vectors_found [n, M].
    """

    split: str
    words: list[str] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    lemmas: list[tuple[str, str, int]] = field(default_factory=list)
    all_frames: list[str] = field(default_factory=list)  # of these documents before windowing
    arrays: dict[str, Array] = field(default_factory=dict)
    statistics: dict[str, Any] = field(default_factory=dict)

    def write(self, out: IO[bytes]) -> None:
        """Write the chunk as .npz to an open file."""
        text = {key: value for key, value in vars(self).items() if key != "arrays"}
        np.savez(out, allow_pickle=False, _text=np.frombuffer(json.dumps(text).encode(), np.uint8), **self.arrays)

    def save(self, path: Path) -> None:
        """Write the chunk to a file, atomically."""
        with atomic_file(path) as out:
            self.write(out)

    @classmethod
    def load(cls, path: Path) -> Chunk:
        """Read what `save` wrote."""
        arrays = load_arrays(path)
        text = json.loads(arrays.pop("_text").tobytes())
        text["lemmas"] = [tuple(item) for item in text["lemmas"]]
        return cls(**text, arrays=arrays)


def load_arrays(path: Path, *names: str) -> dict[str, Array]:
    """Read the named arrays of a chunk on disk; all of them where none is named."""
    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: data[name] for name in names or data.files}
    except (OSError, ValueError, KeyError, *DAMAGED) as error:
        raise InputError(f"damaged chunk of an unfinished dataset: {error}", str(path)) from None


def encode(
    documents: Iterable[Document],
    split: str,
    events: int,
    window: str,
    lexicon: Lexicon | None = None,
    vectors: VectorSource | None = None,
) -> Chunk:
    """Encode documents of one split.

    Args:
        documents: The documents.
        split: The split's name.
        events: The maximum number of events in a window.
        window: How windows are cut (`windows`).
        lexicon: The lexicon whose entries events are looked up in.
        vectors: What gives the events of windows their vectors.
    """
    encoder = _Encoder(split, events, window, lexicon)
    for document in documents:
        encoder.add(document)
    chunk = encoder.chunk()
    if vectors is not None:
        chunk.arrays |= _vectors(vectors, encoder.events, chunk.arrays)
    return chunk


def _vectors(source: VectorSource, events: list[Event], arrays: dict[str, Array]) -> dict[str, Array]:
    """The vectors of the windows' events as arrays; half of float32 is precise enough for what is reduced anyway."""
    there = np.arange(arrays["keys"].shape[1]) < arrays["lengths"][:, None]
    values, has = source.of(events, arrays["keys"][there])
    raw, found = np.zeros((*there.shape, source.size), np.float16), np.zeros(there.shape, bool)
    raw[there], found[there] = np.clip(values, -6e4, 6e4), has
    return {RAW: raw, FOUND: found}


_NO_CONTEXT = [0] * len(CONTEXT)


class _Forms(dict[str | None, str]):
    """Words → normalised words, each computed once."""

    def __missing__(self, word: str | None) -> str:
        form = self[word] = normal(word)
        return form


class _Numbers(dict[str, int]):
    """Names → numbers in order of appearance."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


class _Encoder:
    """Collects rows as flat lists and converts them to arrays at the end."""

    def __init__(self, split: str, events: int, window: str, lexicon: Lexicon | None) -> None:
        self._split, self._events, self._window, self._lexicon = split, events, window, lexicon
        self._forms, self._words, self._frames, self._sources = _Forms(), _Numbers(), _Numbers(), _Numbers()
        self._hashes: dict[str, int] = {}
        self._entries: dict[tuple[str, str | None], int] = {}
        self._lemmas: Counter[tuple[str, str]] = Counter()
        self._all_frames: set[str] = set()
        self._ids: list[str] = []
        self._content: list[int] = []
        # one entry a window
        self._lengths: list[int] = []
        self._unframed: list[bool] = []
        self._owner: list[int] = []
        # one entry an event of a window (four in tokens)
        self._tokens: list[int] = []
        self._lemma: list[int] = []
        self._reference: list[int] = []
        self._entry: list[int] = []
        self._context: list[int] = []
        self._known: list[list[tuple[int, float]]] = []
        self._kind: list[int] = []
        self._told: list[list[tuple[int, int, int, float, float]]] = []  # source, kind, frame, weight, confidence
        self.events: list[Event] = []
        self._confidence: list[float] = []
        self._index: list[int] = []
        # over whole documents, before windows are cut
        self._sizes: Counter[int] = Counter()  # number of events → number of documents
        self._framed = 0
        self._pairs: dict[tuple[str, str], float] = defaultdict(int)  # predicate, frame ("" for none) → events
        self._references: Counter[str] = Counter()

    def add(self, document: Document) -> None:
        forms = self._forms
        slots = [(forms[e.pred], forms[e.subj], forms[e.obj], forms[e.mod]) for e in document.events]
        self._ids.append(document.id)
        # documents without events are no duplicates of each other
        texts = [event.text or "" for event in document.events]
        self._content.append(_content_key(slots, texts) if slots else document_key(document.id))
        self._count(document, slots)
        cut, unframed = list(windows(document, self._events, self._window)), False
        if not cut and document.events:
            cut, unframed = [self._without_frames(document)], True
        for window in cut:
            self._lengths.append(len(window))
            self._unframed.append(unframed)
            self._owner.append(len(self._ids) - 1)
            for index, event in window:
                self._add_event(index, event, slots[index])

    def _without_frames(self, document: Document) -> list[tuple[int, Event]]:
        """Return the window of a document without frames: the first events that the lexicon knows, else the first."""
        listed = [pair for pair in enumerate(document.events) if self._entry_of(pair[1]) != NO_ENTRY]
        return listed[: self._events] or next(windows(document, self._events, "first"))

    def _entry_of(self, event: Event) -> int:
        if self._lexicon is None:
            return NO_ENTRY
        key = event.lemma or event.pred, event.pos
        if key not in self._entries:
            self._entries[key] = self._lexicon.entry(*key)
        return self._entries[key]

    def _hash(self, word: str | None) -> int:
        if word is None:
            return 0
        if word not in self._hashes:
            self._hashes[word] = document_key(word) & 0xFFFFFFFF or 1
        return self._hashes[word]

    def _add_event(self, index: int, event: Event, slots: tuple[str, str, str, str]) -> None:
        words, frames, own = self._words, self._frames, own_knowledge(event)
        self._tokens += [words[slots[0]], words[slots[1]], words[slots[2]], words[slots[3]]]
        self._lemma.append(words[self._forms[event.lemma or event.pred]])
        if event.lemma:
            self._lemmas[slots[0], self._forms[event.lemma]] += 1
        self._entry.append(self._entry_of(event))
        self._context += [self._hash(word) for word in context_words(event)] if event.text else _NO_CONTEXT
        self._known.append([(frames[name], share) for name, share in own.frames] if own else [])
        self._kind.append(own.kind if own else 0)
        self._told.append(
            [
                (self._sources[told.source], told.kind, frames[name], share, told.confidence)
                for told in further_knowledge(event)
                for name, share in told.frames
            ]
        )
        self._reference.append(frames[frame_name(event.frame)] if event.frame else NONE)
        self._confidence.append(1.0 if event.confidence is None else min(event.confidence, MOST_CONFIDENT))
        self._index.append(index)
        self.events.append(event)

    def _count(self, document: Document, slots: list[tuple[str, str, str, str]]) -> None:
        """Count what statistics and the frame list need, before windows are cut."""
        self._sizes[len(document.events)] += 1
        for event, (pred, *_) in zip(document.events, slots, strict=True):
            own, further = own_knowledge(event), further_knowledge(event)
            self._all_frames.update(name for told in (own, *further) if told for name, _ in told.frames)
            self._framed += has_knowledge(event)
            if event.frame:
                name = frame_name(event.frame)
                self._all_frames.add(name)
                self._pairs[pred, name] += 1
                self._references[name] += 1
            elif own is not None or further:
                for name, share in (own or further[0]).frames:
                    self._pairs[pred, name] += share
            else:
                self._pairs[pred, ""] += 1

    def chunk(self) -> Chunk:
        lengths = np.array(self._lengths, np.int32)
        there = np.arange(self._events)[None, :] < lengths[:, None]  # [n, M]: which events exist
        width = max(map(len, self._known), default=1) or 1
        nothing = [(0, 0.0)] * width
        known = np.array([(item + nothing)[:width] for item in self._known], np.float64).reshape(-1, width, 2)
        rows = max(map(len, self._told), default=0)
        empty = [(0, 0, 0, 0.0, 1.0)] * rows
        told = np.array([(item + empty)[:rows] for item in self._told], np.float64).reshape(len(self._told), rows, 5)

        def spread(values: Any, kind: Any, fill: float = 0, *tail: int) -> Array:
            out = np.full((len(lengths), self._events, *tail), fill, kind)
            out[there] = np.asarray(values, kind).reshape(int(there.sum()), *tail)
            return out

        owner = np.array(self._owner, np.int64)
        document_keys = np.array([document_key(identity) for identity in self._ids], np.uint64)
        keys = event_keys(document_keys[owner][:, None], spread(self._index, np.int64))
        return Chunk(
            self._split,
            list(self._words),
            list(self._frames),
            self._ids,
            list(self._sources),
            [(form, lemma, count) for (form, lemma), count in self._lemmas.items()],
            sorted(self._all_frames),
            {
                "tokens": spread(self._tokens, np.int32, 0, len(SLOTS)),
                "lemma": spread(self._lemma, np.int32),
                "entry": spread(self._entry, np.int32, NO_ENTRY),
                "context": spread(self._context, np.uint32, 0, len(CONTEXT)),
                "lengths": lengths,
                "unframed": np.array(self._unframed, bool),
                "document": owner,
                "reference": spread(self._reference, np.int32, NONE),
                "knowledge_frames": spread(known[..., 0], np.int32, 0, width),
                "knowledge_weights": spread(known[..., 1], np.float32, 0, width),
                "knowledge_kind": spread(self._kind, np.int8),
                "source_name": spread(told[..., 0], np.int16, 0, rows),
                "source_kind": spread(told[..., 1], np.int8, 0, rows),
                "source_frame": spread(told[..., 2], np.int32, 0, rows),
                "source_weight": spread(told[..., 3], np.float32, 0, rows),
                "source_confidence": spread(told[..., 4], np.float32, 1, rows),
                "confidence": spread(self._confidence, np.float32),
                "keys": keys,
                "content": np.array(self._content, np.uint64),
                "document_keys": document_keys,
            },
            {
                "documents": self._sizes.total(),
                "events": sum(size * count for size, count in self._sizes.items()),
                "events_with_frame": self._framed,
                "events_per_document": list(self._sizes.items()),
                "pairs": [[pred, frame, count] for (pred, frame), count in self._pairs.items()],
                "references": list(self._references.items()),
            },
        )


def _content_key(slots: list[tuple[str, str, str, str]], texts: list[str]) -> int:
    """Return a 64-bit hash of a document's slots and texts, without id and frames: equal ones are duplicates."""
    parts = ["\x1f".join(event) for event in slots]
    text = "\x1e".join(parts if not any(texts) else [*parts, *texts])
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
