"""Format "allennlp": the output of AllenNLP's semantic role labeller, and of its successors with the same form.

A sentence is `{"words": […], "verbs": [{"verb": …, "tags": ["B-ARG0", "B-V", …]}, …]}`. Some successors add `frame`
(a PropBank roleset) and `frame_score` to a verb: the event's frame and its confidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from revup.data.events import Document
from revup.data.readers import Options, Record
from revup.data.readers.roles import Argument, Place, Sentence, document, json_records, sentences

records = json_records


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a record."""
    yield document(record, [(data, _events(data, place)) for data, place in sentences(record)])


def _events(data: dict[str, Any], place: Place) -> list[dict[str, Any]]:
    sentence = Sentence(place.words(data, "words"))
    found = []
    for number, verb in enumerate(place.member(data, "verbs", list, "a list of verbs")):
        where = place.at("verbs").at(number)
        if not isinstance(verb, dict):
            raise where.error("an object with 'tags'", verb)
        tags = where.words(verb, "tags")
        if len(tags) != len(sentence.starts):
            raise where.at("tags").error(f"{len(sentence.starts)} tags, one a word", len(tags))
        spans = spans_of(tags)
        predicate = [index for role, span in spans for index in span if role == "V"]
        if predicate:
            event = sentence.event(
                predicate,
                [Argument(*span) for span in spans if span[0] != "V"],
                pos="v",
                frame=where.member(verb, "frame", str, "text or null", optional=True),
                confidence=where.member(verb, "frame_score", (int, float), "a number or null", optional=True),
            )
            found.append((predicate[0], event))
    return [event for _, event in sorted(found, key=lambda item: item[0]) if event is not None]


def spans_of(tags: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return the labelled spans of tags such as B-ARG0, I-ARG0, S-ARG0, O.

    Args:
        tags: A tag for each word.
    """
    spans: list[tuple[str, list[int]]] = []
    for index, tag in enumerate(tags):
        kind, _, role = tag.partition("-")
        if kind not in ("B", "I", "S") or not role:
            continue
        if kind == "I" and spans and spans[-1][0] == role and spans[-1][1][-1] == index - 1:
            spans[-1][1].append(index)
        else:
            spans.append((role, [index]))
    return spans
