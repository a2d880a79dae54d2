"""Documents → arrays: normal words, windows of M events, and chunks that can be encoded anywhere and merged in order.

A chunk numbers its own words and frames, so that many workers can encode at once without sharing a vocabulary; the
merge (revup.corpus) renumbers them. Chunks are plain arrays and JSON text on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from revup.errors import RevupError
from revup.events import SLOTS, Document, Event
from revup.knowledge import document_key, event_keys

PAD, UNK, BOS, TUP, NULL = range(5)
SPECIAL = ("<pad>", "<unk>", "<bos>", "<tup>", "<null>")
TOKENS = len(SLOTS) + 1  # an event is written as its four slots and <tup>
WINDOWS = ("framed", "first", "all")
NONE, UNSEEN = -1, -2  # a reference frame that is absent; one that training never saw


def normal(word: str | None) -> str:
    """A slot as it stands in the vocabulary: lower case, inner blanks as '-', `<null>` where missing."""
    if not word:
        return "<null>"
    return word.lower() if word.isalnum() else "-".join(word.lower().split()) or "<null>"


def has_frame(event: Event) -> bool:
    return event.frame is not None or event.frames is not None


def windows(document: Document, size: int, kind: str) -> Iterator[list[tuple[int, Event]]]:
    """Cut a document into windows of at most `size` events, each event with its index in the document.

    framed: the first events that have a frame (the paper's choice); first: the first events; all: every
    consecutive window.
    """
    numbered = list(enumerate(document.events))
    if kind == "framed":
        framed = [pair for pair in numbered if has_frame(pair[1])][:size]
        if framed:
            yield framed
    elif kind == "first":
        yield numbered[:size]
    elif kind == "all":
        yield from (numbered[start : start + size] for start in range(0, len(numbered), size))
    else:
        raise RevupError(f"unknown window '{kind}': one of {', '.join(WINDOWS)}")


def content_key(document: Document) -> int:
    """64 bits that stand for what a document says, its id and frames aside: equal ones are duplicates."""
    text = "\x1e".join("\x1f".join(normal(getattr(event, slot)) for slot in SLOTS) for event in document.events)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


@dataclass
class Chunk:
    """Encoded windows of some documents of one split, in words and frames numbered by the chunk itself.

    tokens [n, M, 4]; lengths [n]; unframed [n]: 1 for windows that stand in for a document without any frame, kept
    only if the whole corpus has none; reference [n, M]; knowledge_frames, knowledge_weights [n, M, W];
    confidence [n, M]; keys [n, M]; document [n]: index into ids and contents.
    """

    split: str
    words: list[str] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    lemmas: list[tuple[str, str, int]] = field(default_factory=list)
    all_frames: list[str] = field(default_factory=list)  # of these documents before windowing
    arrays: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    statistics: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the chunk so that it is there whole or not at all."""
        text = {key: value for key, value in vars(self).items() if key != "arrays"}
        payload = np.frombuffer(json.dumps(text).encode(), np.uint8)
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as out:
            np.savez(out, allow_pickle=False, _text=payload, **self.arrays)
            out.flush()
            os.fsync(out.fileno())
        os.replace(partial, path)

    @classmethod
    def load(cls, path: Path) -> Chunk:
        with np.load(path, allow_pickle=False) as data:
            text = json.loads(data["_text"].tobytes())
            text["lemmas"] = [tuple(item) for item in text["lemmas"]]
            return cls(**text, arrays={name: data[name] for name in data.files if name != "_text"})


def encode(documents: Iterable[Document], split: str, events: int, window: str) -> Chunk:
    """Encode some documents of one split."""
    chunk = Chunk(split)
    words: dict[str, int] = {}
    frames: dict[str, int] = {}
    lemmas: Counter[tuple[str, str]] = Counter()
    all_frames: set[str] = set()
    pairs: Counter[tuple[str, str]] = Counter()
    tokens: list[int] = []
    rows: dict[str, list[Any]] = {name: [] for name in ("lengths", "unframed", "document")}
    reference, known, confidence, index, content = [], [], [], [], []
    event_count = framed_count = 0

    for document in documents:
        event_count += len(document.events)
        for event in document.events:
            if has_frame(event):
                framed_count += 1
                all_frames.update([event.frame] if event.frame else [], event.frames or ())
                if event.frame:
                    pairs[normal(event.pred), event.frame] += 1
        number = len(chunk.ids)
        chunk.ids.append(document.id)
        content.append(content_key(document))
        cut = [(False, part) for part in windows(document, events, window)]
        if not cut and document.events:
            cut = [(True, next(windows(document, events, "first")))]
        for unframed, part in cut:
            rows["lengths"].append(len(part))
            rows["unframed"].append(unframed)
            rows["document"].append(number)
            for position, event in part:
                pred = normal(event.pred)
                slots = (pred, normal(event.subj), normal(event.obj), normal(event.mod))
                tokens.extend(words.setdefault(word, len(words)) for word in slots)
                if event.lemma:
                    lemmas[pred, normal(event.lemma)] += 1
                knowledge = event.frames or ({event.frame: 1.0} if event.frame else {})
                known.append([(frames.setdefault(f, len(frames)), w) for f, w in knowledge.items() if w > 0])
                reference.append(frames.setdefault(event.frame, len(frames)) if event.frame else NONE)
                confidence.append(1.0 if event.confidence is None else event.confidence)
                index.append(position)

    lengths = np.array(rows["lengths"], np.int32)
    there = np.arange(events)[None, :] < lengths[:, None]  # [n, M]: where an event stands
    width = max((len(item) for item in known), default=1) or 1

    def spread(values: Any, kind: Any, fill: float = 0, *tail: int) -> np.ndarray[Any, Any]:
        out = np.full((len(lengths), events, *tail), fill, kind)
        out[there] = np.array(values, kind).reshape(-1, *tail)
        return out

    padded = [item + [(0, 0.0)] * (width - len(item)) for item in known]
    document_keys = np.array([document_key(identity) for identity in chunk.ids], np.uint64)
    owner = np.array(rows["document"], np.int64)
    indices = spread(index, np.int64)
    chunk.arrays = {
        "tokens": spread(tokens, np.int32, 0, len(SLOTS)),
        "lengths": lengths,
        "unframed": np.array(rows["unframed"], bool),
        "document": owner,
        "reference": spread(reference, np.int32, NONE),
        "knowledge_frames": spread([[f for f, _ in item] for item in padded], np.int32, 0, width),
        "knowledge_weights": spread([[w for _, w in item] for item in padded], np.float32, 0, width),
        "confidence": spread(confidence, np.float32),
        "keys": event_keys(document_keys[owner][:, None], indices) if len(owner) else np.zeros((0, events), np.uint64),
        "content": np.array(content, np.uint64),
    }
    chunk.words, chunk.frames = list(words), list(frames)
    chunk.lemmas = [(form, lemma, count) for (form, lemma), count in lemmas.items()]
    chunk.all_frames = sorted(all_frames)
    chunk.statistics = {
        "documents": len(chunk.ids),
        "events": event_count,
        "events_with_frame": framed_count,
        "pairs": [[pred, frame, count] for (pred, frame), count in pairs.items()],
    }
    return chunk
