"""Documents as Python callers give them: one or many, `Document`s or dicts of the JSON form, NaN as a missing value."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from revup.data.events import Document, Event, default_document_id, document_from_json, document_to_json
from revup.data.tables import NOT_A_VALUE
from revup.data.unknown_keys import UnknownKeys
from revup.errors import InputError, RevupError, named_type

Given = Document | Mapping[str, Any] | Iterable[Document | Mapping[str, Any]]

_texts = attrgetter("subj", "obj", "mod", "frame", "lemma", "pos", "text")
_TEXT = {str, type(None)}
_EXPECTED = "expected documents (revup.Document or dicts such as {'events': [{'pred': 'left'}]})"


def as_documents(given: Given) -> Iterator[Document]:
    """Yield documents one by one, as they are asked for.

    Args:
        given: A `Document`, a dict of its JSON form, or an iterable of both. NaN and other missing values of pandas are
            the same as absent keys.

    Raises:
        RevupError: It is something else; the message says what is expected.
        InputError: A field of a document is wrong.
    """
    if isinstance(given, (Document, Mapping)):
        given = [given]
    unknown = UnknownKeys()
    for number, item in enumerate(_iterable(given), 1):
        if isinstance(item, Document):
            whole = _is_sound(item)
            yield item if whole else _from_json({"id": item.id, "events": item.events, **(item.extra or {})}, number)
        elif isinstance(item, Mapping):
            document = _from_json(item, number)
            unknown.warn(document, f"document {number}")
            yield document
        else:
            raise RevupError(f"{_EXPECTED}, found {named_type(item)} as number {number}")


def _iterable(given: Any) -> Iterable[Any]:
    if isinstance(given, (str, bytes, os.PathLike)):
        raise RevupError(f"{_EXPECTED}, found {named_type(given)}: revup.read opens a file")
    if hasattr(given, "__arrow_c_stream__"):
        raise RevupError(f"{_EXPECTED}, found {named_type(given)}: revup.from_table makes documents of a table")
    if not isinstance(given, Iterable):
        raise RevupError(f"{_EXPECTED}, found {named_type(given)}")
    return given


def _is_sound(document: Document) -> bool:
    """Whether a document's fields have their types, as those that readers make; others are checked in full."""
    if type(document.id) is not str or type(document.events) is not list:
        return False
    for event in document.events:
        if type(event) is not Event or type(event.pred) is not str or not event.pred.strip():
            return False
        if not _TEXT.issuperset(map(type, _texts(event))) or (event.frame is not None and not event.frame.strip()):
            return False
        if event.confidence is not None and not (type(event.confidence) is float and event.confidence >= 0):
            return False
        if event.frames is not None and not _are_weights(event.frames):
            return False
        if event.candidates is not None or event.sources is not None or not _is_span(event.span):
            return False
    return True


def _are_weights(frames: Any) -> bool:
    return type(frames) is dict and all(type(weight) in (int, float) and weight >= 0 for weight in frames.values())


def _is_span(span: Any) -> bool:
    return span is None or (type(span) is tuple and len(span) == 2 and type(span[0]) is type(span[1]) is int)


def _from_json(data: Mapping[str, Any], number: int) -> Document:
    try:
        return document_from_json(_present(data), default_document_id("documents", number))
    except InputError as error:
        raise InputError(error.message, f"document {number}", 0, error.field) from None


def _present(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON form without missing values."""
    events = data.get("events")
    if isinstance(events, Iterable) and not isinstance(events, (str, Mapping)):
        parts = (_event_json(event) for event in events)
        return {**_json_value({**data, "events": None}), "events": [_json_value(event) for event in parts]}
    return dict(_json_value(data))


def _event_json(event: Any) -> Any:
    return document_to_json(Document("", [event]))["events"][0] if isinstance(event, Event) else event


def _json_value(value: Any) -> Any:
    """Return a value as JSON has it; a member that is NaN is left out of an object, and null in a list."""
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): _json_value(member) for key, member in value.items() if not is_nan(member)}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json_value(member) for member in value]
    if is_nan(value):
        return None
    if isinstance(value, float):
        return float(value)
    return _json_value(value.tolist()) if hasattr(value, "tolist") else str(value)


def is_nan(value: Any) -> bool:
    """Return whether a value stands for a missing one: NaN of any library, `pandas.NA`, `pandas.NaT`."""
    if isinstance(value, (str, bool, int, Mapping, list, tuple)) or value is None:
        return False
    if type(value).__name__ in NOT_A_VALUE:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # an array
        return False
