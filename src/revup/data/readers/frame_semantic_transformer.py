"""Format "frame-semantic-transformer": results of its `detect_frames`, as JSON of `dataclasses.asdict(result)`.

A result is `{"sentence": …, "trigger_locations": […], "frames": [{"name": …, "trigger_location": 9, "frame_elements":
[{"name": "Agent", "text": …}]}]}`. Triggers that are prepositions are no events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from revup.data.events import Document
from revup.data.readers import Options, Record
from revup.data.readers.roles import LONGEST_SEARCHED, Argument, Place, Sentence, document, json_records, sentences

records = json_records


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a record."""
    yield document(record, [(data, _events(data, place)) for data, place in sentences(record)])


def _events(data: dict[str, Any], place: Place) -> list[dict[str, Any]]:
    sentence = Sentence.of_text(place.member(data, "sentence", str, "text"), place.at("sentence"), LONGEST_SEARCHED)
    found = []
    for number, item in enumerate(place.member(data, "frames", list, "a list of frames")):
        where = place.at("frames").at(number)
        if not isinstance(item, dict):
            raise where.error("an object with 'trigger_location'", item)
        name = where.member(item, "name", str, "the name of a frame")
        at = where.member(item, "trigger_location", int, "the number of a character")
        predicate = sentence.within(at, at + 1)
        if not predicate or sentence.words.is_preposition(predicate[0]):
            continue
        arguments = []
        for index, element in enumerate(where.member(item, "frame_elements", list, "a list", optional=True) or ()):
            inner = where.at("frame_elements").at(index)
            if not isinstance(element, dict):
                raise inner.error("an object with 'text'", element)
            role = inner.member(element, "name", str, "text")
            arguments.append(Argument(role, sentence.find(inner.member(element, "text", str, "text"), at)))
        found.append((predicate[0], sentence.event(predicate, arguments, frame=name)))
    return [event for _, event in sorted(found, key=lambda item: item[0]) if event is not None]
