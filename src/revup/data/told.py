"""What an event's keys say about its frame: knowledge of one or several sources, each of one kind.

The keys `frame`, `frames` and `candidates` are one source, called "frame"; `sources` names further ones. Beside
`frames` or `candidates`, `frame` is only the reference to score against.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from revup.data.events import (
    KINDS,
    KNOWLEDGE,
    Document,
    Event,
    Value,
    document_from_line,
    is_written_out,
    json_from_line,
)
from revup.data.unknown_keys import UnknownKeys
from revup.errors import InputError
from revup.io.files import display_name, lines, open_binary

OWN = "frame"  # name of the source that the keys frame, frames and candidates are
LEXICON = "lexicon"  # name of the source that the lexicon of a dataset is
LABEL, CANDIDATES, DISTRIBUTION = range(len(KINDS))  # numbers of the kinds
_KEYS = ("frame", "candidates", "frames")  # of the source OWN, by kind
LARGEST_MAP = 2**26  # bytes of a map of frames
MOST_CONFIDENT = 1e9  # at which λ̂ is 0 in float32, and whose square float32 can hold


@dataclass(frozen=True, slots=True)
class Told:
    """What one source says of an event.

    Attributes:
        source: The source's name.
        kind: LABEL, CANDIDATES or DISTRIBUTION.
        frames: Frames and weights that sum to 1.
        confidence: Exponent of the source's likelihood.
    """

    source: str
    kind: int
    frames: list[tuple[str, float]]
    confidence: float = 1.0


def has_knowledge(event: Event) -> bool:
    """Return whether an event has a frame or side knowledge about it."""
    return bool(event.frame) or bool(event.frames) or bool(event.candidates) or bool(event.sources)


def own_knowledge(event: Event) -> Told | None:
    """Return what the keys `frame`, `frames` and `candidates` say, as knowledge of the source "frame"."""
    if event.frames:
        frames = _shares(event.frames)
        return Told(OWN, DISTRIBUTION, frames) if frames else None
    if event.candidates:
        return Told(OWN, CANDIDATES, _listed(event.candidates))
    return Told(OWN, LABEL, [(frame_name(event.frame), 1.0)]) if event.frame else None


def further_knowledge(event: Event) -> list[Told]:
    """Return what the key `sources` says, in the order of their names."""
    return [_of_source(name, event.sources[name]) for name in sorted(event.sources or ())] if event.sources else []


def check_knowledge(document: Document, frames: Container[str]) -> None:
    """Raise an error where what is said of an event is about frames that a model does not know.

    A label must be a known frame; of candidates and distributions at least one frame must be, and others are left out.

    Args:
        document: The document.
        frames: The frames that the model knows.

    Raises:
        InputError: The field of the first such frame is named.
    """
    for index, event in enumerate(document.events):
        own = own_knowledge(event)
        for told in (*([own] if own else []), *further_knowledge(event)):
            names = [name for name, _ in told.frames]
            if not any(name in frames for name in names):
                what = f"the frame '{names[0][:60]}'" if len(names) == 1 else "any of these frames"
                key = f"sources.{told.source}" if told is not own else _KEYS[told.kind]
                raise InputError(f"the model does not know {what}", field=f"events[{index}].{key}")


def frame_name(name: str) -> str:
    """Return a frame's name without line breaks: the frame list has one frame a line."""
    return " ".join(name.split("\n")) if "\n" in name else name


def _of_source(name: str, value: Any) -> Told:
    confidence = 1.0
    if is_written_out(value):
        kind, given = KINDS.index(value["kind"]), value.get("confidence")
        confidence = 1.0 if given is None else min(float(given), MOST_CONFIDENT)
        value = value["value"]
    else:
        kind = LABEL if isinstance(value, str) else DISTRIBUTION if isinstance(value, Mapping) else CANDIDATES
    if kind == LABEL:
        return Told(name, kind, [(frame_name(value), 1.0)], confidence)
    return Told(name, kind, _shares(value) if kind == DISTRIBUTION else _listed(value), confidence)


def _listed(given: Any) -> list[tuple[str, float]]:
    """Return candidates with their weights: equal ones where none are given."""
    return _shares(given if isinstance(given, Mapping) else dict.fromkeys(given, 1.0))


def _shares(given: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return frames of positive weight, their weights summing to 1."""
    largest = max(given.values())  # dividing by the largest first avoids overflow
    kept: dict[str, float] = {}
    for name, weight in given.items():
        if weight > 0:
            kept[frame_name(name)] = kept.get(frame_name(name), 0.0) + weight / largest
    total = sum(kept.values())
    return [(name, share / total) for name, share in kept.items()]


# ---- further sources in files of their own -------------------------------------------------------------------------


def read_source(path: Any) -> dict[str, list[Value | None]]:
    """Read what a further source says: a JSONL file of documents with the ids of those it is about.

    Returns:
        Document id → for each event what the source says: its `frame`, `frames` or `candidates`; None without any.

    Raises:
        InputError: A line is wrong, a document stands there twice, or there is none.
    """
    found: dict[str, list[Value | None]] = {}
    unknown = UnknownKeys()
    for line, text in lines(path):
        if isinstance(text, InputError):
            raise text
        if text.strip():
            document = document_from_line(text, display_name(path), line)
            if document.id in found:
                raise InputError(f"the document {document.id} stands there twice", display_name(path), line, "id")
            unknown.warn(document, display_name(path), line)
            found[document.id] = [_said(event) for event in document.events]
    if not found:
        raise InputError("no documents in it", display_name(path))
    return found


def add_source(document: Document, name: str, says: Sequence[Value | None]) -> Document:
    """Return a document with what a further source says of its events.

    Args:
        document: The document.
        name: The source's name.
        says: What it says of each event.

    Raises:
        InputError: The source has another number of events.
    """
    if len(says) != len(document.events):
        problem = f"the source {name} has {len(says)} events in the document {document.id}"
        raise InputError(f"{problem}, the document itself {len(document.events)}")
    events = [
        event if value is None else replace(event, sources={**(event.sources or {}), name: value})
        for event, value in zip(document.events, says, strict=True)
    ]
    return replace(document, events=events)


def _said(event: Event) -> Value | None:
    if event.candidates and not event.frames:
        return {"kind": "candidates", "value": event.candidates}
    return event.frames or event.frame


# ---- maps of frames ------------------------------------------------------------------------------------------------


def read_frame_map(path: Any) -> dict[str, str | None]:
    """Read a map of frames: a JSON object of old name: new name, or null for a frame to leave out.

    Two frames with the same new name are merged; frames that are not in the map stay as they are.

    Raises:
        InputError: It is not such an object.
    """
    name = display_name(path)
    with open_binary(path) as stream:
        text = stream.read(LARGEST_MAP + 1)
    if len(text) > LARGEST_MAP:
        raise InputError(f"a map of frames has at most {LARGEST_MAP} bytes", name)
    data = json_from_line(text.decode("utf-8", "replace"), name)
    if not isinstance(data, dict):
        raise InputError("expected an object of old frame: new frame or null", name)
    for old, new in data.items():
        if new is not None and (not isinstance(new, str) or not new.strip()):
            raise InputError("expected the name of a frame, or null to leave it out", name, field=old)
    return data


def map_document(document: Document, frames: Mapping[str, str | None]) -> Document:
    """Return a document whose frames are renamed, merged or left out, in all keys that name frames."""
    return replace(document, events=[map_event(event, frames) for event in document.events])


def map_event(event: Event, frames: Mapping[str, str | None]) -> Event:
    """Return an event whose frames are renamed, merged or left out; knowledge without any frame left is dropped."""
    if not any(getattr(event, key) for key in KNOWLEDGE):
        return event

    def new(name: str) -> str | None:
        return frames.get(name, name)

    def mapped(value: Any) -> Any:
        if isinstance(value, str):
            return new(value)
        if is_written_out(value):
            inner = mapped(value["value"])
            return {**value, "value": inner} if inner else None
        if isinstance(value, Mapping):
            sums: dict[str, float] = {}
            for name, weight in value.items():
                if (to := new(name)) is not None:
                    sums[to] = sums.get(to, 0.0) + weight
            return sums if sum(sums.values()) > 0 else None
        return list(dict.fromkeys(to for name in value if (to := new(name)) is not None)) or None

    given = {
        key: mapped(value) if (value := getattr(event, key)) else value for key in ("frame", "frames", "candidates")
    }
    sources = {name: kept for name, value in (event.sources or {}).items() if (kept := mapped(value)) is not None}
    return replace(event, **given, sources=sources or None)


# ---- words around the predicate ------------------------------------------------------------------------------------

CONTEXT = (-2, -1, 1, 2)  # places of the words around the predicate that counts look at
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")


def context_words(event: Event) -> Iterator[str | None]:
    """Yield the lower-cased words at the places `CONTEXT` around the predicate in its sentence; None where unknown."""
    at: int | None = None
    words: tuple[str, ...] = ()
    if event.text:
        start = event.span[0] if event.span else place_of(event.pred, event.text)
        if start is not None:
            ends, words = _words_of(event.text)
            number = bisect_right(ends, start)  # the word that holds the character, or the next one
            if number < len(words) and start >= ends[number] - len(words[number]):
                at = number
    for offset in CONTEXT:
        place = None if at is None else at + offset
        yield words[place].lower() if place is not None and 0 <= place < len(words) else None


@lru_cache(maxsize=4)
def _words_of(text: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return where the words of a sentence end, and the words; the events of a sentence follow one another."""
    found = [(match.end(), match.group()) for match in _WORD.finditer(text)]
    return tuple(end for end, _ in found), tuple(word for _, word in found)


def place_of(pred: str, text: str) -> int | None:
    """Return where the predicate stands in the text, if it stands there once."""
    found = [match.start() for match in re.finditer(rf"\b{re.escape(pred)}\b", text, re.IGNORECASE)]
    return found[0] if len(found) == 1 else None
