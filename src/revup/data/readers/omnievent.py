"""Format "omnievent": results of OmniEvent's `infer`.

A result is `{"text": …, "events": [{"type": …, "trigger": …, "offset": [start, end], "arguments": [{"mention": …,
"offset": […], "role": …}]}]}`; `infer` returns a list of them. The type is the frame, unless it is "NA".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from revup.data.events import Document
from revup.data.readers import Options, Record
from revup.data.readers.roles import Argument, Place, Sentence, document, json_records, sentences

records = json_records


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a record."""
    yield document(record, [(data, _events(data, place)) for data, place in sentences(record)])


def _events(data: dict[str, Any], place: Place) -> list[dict[str, Any]]:
    sentence = Sentence.of_text(place.member(data, "text", str, "text"), place.at("text"))
    found = []
    for number, item in enumerate(place.member(data, "events", list, "a list of events")):
        where = place.at("events").at(number)
        if not isinstance(item, dict):
            raise where.error("an object with 'trigger'", item)
        predicate = _words(sentence, item, "trigger", where)
        kind = where.member(item, "type", str, "text or null", optional=True)
        arguments = []
        for index, argument in enumerate(where.member(item, "arguments", list, "a list", optional=True) or ()):
            inner = where.at("arguments").at(index)
            if not isinstance(argument, dict):
                raise inner.error("an object with 'mention'", argument)
            role = inner.member(argument, "role", str, "text or null", optional=True) or ""
            arguments.append(Argument(role, _words(sentence, argument, "mention", inner)))
        if predicate:
            found.append((predicate[0], sentence.event(predicate, arguments, frame=None if kind == "NA" else kind)))
    return [event for _, event in sorted(found, key=lambda item: item[0]) if event is not None]


def _words(sentence: Sentence, item: dict[str, Any], key: str, place: Place) -> list[int]:
    """Return the words of a mention."""
    place.member(item, key, str, "text")
    offset = place.member(item, "offset", list, "[start, end)")
    if len(offset) != 2 or not all(type(end) is int for end in offset):
        raise place.at("offset").error("[start, end)", offset)
    return sentence.within(*offset)
