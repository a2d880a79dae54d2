"""Events and documents, and their JSON Lines form.

A document is a sequence of events. An event says who did what to whom (predicate, subject, object, modifier), and may
carry a reference frame to score against, side knowledge about its frame, and the confidence of that knowledge.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from revup.errors import InputError
from revup.io.files import open_output

if TYPE_CHECKING:
    from revup.data.documents import Given

SLOTS = ("pred", "subj", "obj", "mod")

KNOWLEDGE = ("frame", "frames", "candidates", "sources")  # keys that say something about an event's frame
KINDS = ("label", "candidates", "distribution")

EVENT_KEYS = frozenset((*SLOTS, *KNOWLEDGE, "confidence", "lemma", "pos", "text", "span"))
_OPTIONAL_TEXT = ("subj", "obj", "mod", "frame", "lemma", "pos", "text")
Value = str | Sequence[str] | Mapping[str, Any]  # what a source says of an event


@dataclass(slots=True)
class Event:
    """Who did what to whom, with the event's frame or side knowledge about it.

    Attributes:
        pred: The predicate, inflected or not.
        subj, obj, mod: Subject, object and modifier (a preposition); None where missing.
        frame: The reference frame; also the side knowledge, where `frames` and `candidates` are absent.
        frames: Side knowledge as a distribution over the true frame: frame → weight of 0 or more.
        confidence: Scales the strength λ of the side knowledge.
        lemma: The predicate's lemma.
        text: The clause or sentence.
        pos: The predicate's part of speech ("v", "n", …).
        span: Where the predicate stands in `text`: the characters from start to end, end excluded.
        candidates: Side knowledge as frames of which one is true, or as frame → weight.
        sources: Name → what a further source says: a frame, a list of candidates, a distribution (frame → weight), or
            {"kind": "label" | "candidates" | "distribution", "value": …, "confidence": …}.
        extra: Other keys of the JSON form, kept as they are.
    """

    pred: str
    subj: str | None = None
    obj: str | None = None
    mod: str | None = None
    frame: str | None = None
    frames: Mapping[str, float] | None = None
    confidence: float | None = None
    lemma: str | None = None
    text: str | None = None
    pos: str | None = None
    span: tuple[int, int] | None = None
    candidates: Sequence[str] | Mapping[str, float] | None = None
    sources: Mapping[str, Value] | None = None
    extra: dict[str, Any] | None = None


@dataclass(slots=True)
class Document:
    """A sequence of events. Its id and an event's index identify the event, in draws of observed labels for example.

    Attributes:
        id: The document's id.
        events: Its events, in order.
        extra: Other keys of the JSON form, kept as they are.
    """

    id: str
    events: list[Event]
    extra: dict[str, Any] | None = field(default=None)


# ---- from and to JSON ------------------------------------------------------------------------------------


def document_from_json(data: object, default_id: str = "", path: str = "", line: int = 0) -> Document:
    """Make a document of a parsed JSON value.

    Args:
        data: The value.
        default_id: The id of a document that has none.
        path, line: The place that errors name.

    Raises:
        InputError: A field is missing or wrong.
    """
    if not isinstance(data, dict):
        raise InputError(f"expected an object with 'events', found {json_kind(data)}", path, line)
    identity = data.get("id")
    if identity is None:
        identity = default_id
    elif isinstance(identity, int) and not isinstance(identity, bool):
        identity = str(identity)
    elif not isinstance(identity, str):
        raise InputError(f"expected text, found {json_kind(identity)}", path, line, "id")
    items = data.get("events")
    if not isinstance(items, list):
        found = "nothing" if "events" not in data else json_kind(items)
        raise InputError(f"expected a list of events, found {found}", path, line, "events")
    events = [_event_from_json(item, path, line, index) for index, item in enumerate(items)]
    extra = {key: value for key, value in data.items() if key not in ("id", "events")} if len(data) > 2 else None
    return Document(identity, events, extra or None)


def _event_from_json(data: object, path: str, line: int, index: int) -> Event:
    def fail(key: str, message: str) -> InputError:
        return InputError(message, path, line, f"events[{index}]" + (f".{key}" if key else ""))

    if not isinstance(data, dict):
        raise fail("", f"expected an object with 'pred', found {json_kind(data)}")
    pred = data.get("pred")
    if not isinstance(pred, str) or not pred.strip():
        found = "nothing" if "pred" not in data else "empty text" if isinstance(pred, str) else json_kind(pred)
        raise fail("pred", f"expected the predicate as text, found {found}")
    for key in _OPTIONAL_TEXT:
        value = data.get(key)
        if value is not None and not isinstance(value, str):
            raise fail(key, f"expected text or null, found {json_kind(value)}")
    if data.get("frame") is not None and not data["frame"].strip():
        raise fail("frame", f"expected the name of a frame or null, found {'blank' if data['frame'] else 'empty'} text")
    get = data.get
    event = Event(pred, get("subj"), get("obj"), get("mod"), get("frame"))
    event.lemma, event.text, event.pos = get("lemma"), get("text"), get("pos")
    if get("span") is not None:
        event.span = _span(data["span"], fail)
    if get("frames") is not None:
        _check_weights(data["frames"], "frames", fail)
        event.frames = data["frames"] or None
    if get("candidates") is not None:
        _check_candidates(data["candidates"], "candidates", fail)
        event.candidates = data["candidates"]
    if get("sources") is not None:
        _check_sources(data["sources"], fail)
        event.sources = data["sources"] or None
    confidence = get("confidence")
    if confidence is not None:
        if not _is_weight(confidence):
            raise fail("confidence", f"expected a number of 0 or more, found {json_kind(confidence)}")
        event.confidence = float(confidence)
    if not EVENT_KEYS.issuperset(data):
        event.extra = {key: value for key, value in data.items() if key not in EVENT_KEYS}
    return event


Fail = Callable[[str, str], InputError]


def _span(value: object, fail: Fail) -> tuple[int, int]:
    whole = isinstance(value, (list, tuple)) and len(value) == 2 and all(type(place) is int for place in value)
    if not whole or not 0 <= value[0] < value[1]:  # type: ignore[index]
        raise fail("span", "expected two whole numbers [start, end) with 0 <= start < end")
    return value[0], value[1]  # type: ignore[index]


def _check_weights(frames: object, key: str, fail: Fail, empty: bool = True) -> None:
    """Raise an error unless this is an object of frame: weight with a positive sum."""
    if not isinstance(frames, dict):
        raise fail(key, f"expected an object of frame: weight, found {json_kind(frames)}")
    for name, weight in frames.items():
        if not name.strip():
            raise fail(key, "expected the names of frames, found an empty one")
        if not _is_weight(weight):
            raise fail(f"{key}.{name}", f"expected a weight of 0 or more, found {json_kind(weight)}")
    if (frames or not empty) and not 0 < sum(map(float, frames.values())) < math.inf:
        raise fail(key, "expected weights with a positive, finite sum" if frames else "expected a frame, found none")


def _check_candidates(given: object, key: str, fail: Fail) -> None:
    """Raise an error unless this is a list of frames or an object of frame: weight, with at least one frame."""
    if isinstance(given, dict):
        return _check_weights(given, key, fail, empty=False)
    if not isinstance(given, (list, tuple)):
        raise fail(key, f"expected a list of frames, found {json_kind(given)}")
    if not given:
        raise fail(key, "expected at least one frame, found none")
    for place, name in enumerate(given):
        if not isinstance(name, str) or not name.strip():
            raise fail(f"{key}[{place}]", f"expected the name of a frame, found {json_kind(name)}")
    return None


def _check_sources(given: object, fail: Fail) -> None:
    """Raise an error unless every source has a name and says something about the frame."""
    if not isinstance(given, dict):
        raise fail("sources", f"expected an object of name: what the source says, found {json_kind(given)}")
    for name, value in given.items():
        if not name.strip():
            raise fail("sources", "expected the name of a source, found an empty one")
        key = f"sources.{name}"
        if is_written_out(value):
            kind, confidence = value["kind"], value.get("confidence")
            if kind not in KINDS:
                raise fail(f"{key}.kind", f"expected one of {', '.join(KINDS)}, found {json_kind(kind)}")
            if confidence is not None and not _is_weight(confidence):
                raise fail(f"{key}.confidence", f"expected a number of 0 or more, found {json_kind(confidence)}")
            value, key = value["value"], f"{key}.value"
        else:
            kind = "label" if isinstance(value, str) else "distribution" if isinstance(value, dict) else "candidates"
        if kind == "label":
            if not isinstance(value, str) or not value.strip():
                raise fail(key, f"expected the name of a frame, found {json_kind(value)}")
        elif kind == "distribution":
            _check_weights(value, key, fail, empty=False)
        elif value is None or isinstance(value, (bool, int, float, str)):
            raise fail(key, f"expected a frame, a list of candidates or a distribution, found {json_kind(value)}")
        else:
            _check_candidates(value, key, fail)


def is_written_out(value: object) -> bool:
    """Return whether what a source says is written out with its kind."""
    return isinstance(value, Mapping) and "kind" in value and "value" in value


def document_to_json(document: Document) -> dict[str, Any]:
    """Return the JSON form of a document; missing fields are left out, other keys are put back."""
    return {
        "id": document.id,
        "events": [_event_to_json(event) for event in document.events],
        **(document.extra or {}),
    }


def _event_to_json(event: Event) -> dict[str, Any]:
    keys = (*SLOTS, "frame", "confidence", "lemma", "text", "pos", "span", "candidates", "sources")
    data = {key: value for key in keys if (value := getattr(event, key)) is not None}
    if event.frames is not None:
        data["frames"] = dict(event.frames)
    if event.span is not None:
        data["span"] = list(event.span)
    return {**data, **event.extra} if event.extra else data


def document_to_line(document: Document) -> str:
    """Return a document as a line of the JSONL form, with its line break."""
    return json.dumps(document_to_json(document), ensure_ascii=False) + "\n"


def document_from_line(text: str, path: str = "", line: int = 0) -> Document:
    """Make a document of one line of the JSONL form, where a document without events is an error.

    Args:
        text: The line.
        path, line: Its place, which errors name and the default id is made of.
    """
    document = document_from_json(json_from_line(text, path, line), default_document_id(path, line), path, line)
    if not document.events:
        raise InputError("a document needs at least one event", path, line, "events")
    return document


def json_from_line(text: str, path: str = "", line: int = 0) -> object:
    """Parse a line as JSON with finite numbers and text that can be written as UTF-8.

    Args:
        text: The line.
        path, line: The place that errors name.

    Raises:
        InputError: It is not such JSON.
    """
    try:
        data: object = json.loads(text.rstrip("\r\n"), parse_constant=_no_constant, parse_float=_finite)
        if "\\ud" in text or "\\uD" in text:  # only an escape can bring in half a surrogate pair
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InputError("not valid JSON: half a surrogate pair is no character", path, line) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise InputError(f"not valid JSON: {error.msg} at {place}{_other_format(path)}", path, line) from None
    except RecursionError:
        raise InputError("not valid JSON: nested too deep", path, line) from None
    except ValueError as error:
        raise InputError(f"not valid JSON: {str(error).split(';')[0]}", path, line) from None
    return data


def _other_format(path: str) -> str:
    """What to add to an error about a file whose name is not one of JSON Lines."""
    suffix = Path(str(path).removesuffix(".gz")).suffix.lower()
    if suffix == ".txt":
        return "; raw text is read with --format text"
    return f"; --format says what a {suffix} file holds" if suffix not in ("", ".json", ".jsonl", ".ndjson") else ""


def default_document_id(path: str, line: int) -> str:
    """Return the id of a document that has none: the name of its file and its line."""
    return f"{os.path.basename(path)}:{line}"


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is too large a number")
    return number


def _is_weight(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max


def json_kind(value: object) -> str:
    """Describe a JSON value for an error message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"the number {str(value)[:40]}"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return "a list" if isinstance(value, list) else "an object"


# ---- files -----------------------------------------------------------------------------------------------


def write(documents: Given, path: str | Path, force: bool = True, flush: bool = False) -> int:
    """Write documents in the JSONL form.

    Args:
        documents: Documents or dicts of their JSON form, or one of them; they are written as they come.
        path: The file; ".gz" is compressed, "-" is standard output.
        force: Replace a file that exists.
        flush: Pass every document on at once, for whoever reads it from a pipe.

    Returns:
        How many documents were written.
    """
    from revup.data.documents import as_documents

    count = 0
    with open_output(path, force) as out:
        for document in as_documents(documents):
            out.write(document_to_line(document))
            if flush:
                out.flush()
            count += 1
    return count
