"""Format "hanlp": HanLP documents with semantic roles.

A document is `{"tok": […], "srl": […]}` (also `tok/fine` and the like), with `pos` and `lem` where they were asked for.
Lists of lists are several sentences. A predicate is a list of `[form, role, begin, end]`, its own role being PRED.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from revup.data.events import Document
from revup.data.readers import Options, Record
from revup.data.readers.roles import Argument, Place, Sentence, document, json_records, sentences
from revup.errors import InputError

records = json_records


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a record."""
    yield document(record, [(data, list(_events(data, place))) for data, place in sentences(record)])


def _events(data: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    layers = {task: _layer(data, task, place) for task in ("tok", "srl", "pos", "lem")}
    words = layers["tok"] or []
    one = not words or isinstance(words[0], str)  # a sentence that is not in a list
    for number in range(1 if one else len(words)):
        sentence: dict[str, Any] = {}
        for task, layer in layers.items():
            if layer is not None:
                if not one and len(layer) != len(words):
                    raise place.at(task).error(f"{len(words)} sentences", len(layer))
                sentence[task] = layer if one else layer[number]
        yield from _sentence(sentence, place if one else place.at(number))


def _layer(data: dict[str, Any], task: str, place: Place) -> list[Any] | None:
    """Return what a task found: by its own name, or the last one with a further name behind a slash."""
    names = sorted(key for key in data if key == task or key.startswith(task + "/"))
    key = task if task in names or not names else names[-1]
    found: list[Any] | None = place.member(data, key, list, "a list", optional=task in ("pos", "lem"))
    return found


def _sentence(data: dict[str, Any], place: Place) -> Iterator[dict[str, Any]]:
    words = place.words(data, "tok")
    tags = place.words(data, "pos") if data.get("pos") else None
    lemmas = place.words(data, "lem") if data.get("lem") else None
    for name, layer in (("pos", tags), ("lem", lemmas)):
        if layer is not None and len(layer) != len(words):
            raise place.at(name).error(f"{len(words)} of them, one a word", len(layer))
    sentence = Sentence(words, tags)
    found = []
    for number, items in enumerate(place.member(data, "srl", list, "a list of predicates")):
        where = place.at("srl").at(number)
        if not isinstance(items, list):
            raise where.error("a list of [form, role, begin, end]", items)
        spans = [_span(item, len(words), where.at(index)) for index, item in enumerate(items)]
        predicate = next((span.words for span in spans if span.role == "PRED" and span.words), None)
        if predicate is None:
            continue
        at = predicate[0]
        pos = None if tags is None else {"V": "v", "N": "n"}.get(tags[at][:1].upper())
        event = sentence.event(predicate, [span for span in spans if span.role != "PRED"], pos=pos)
        if event is not None:
            if lemmas and len(predicate) == 1 and lemmas[at] and lemmas[at] != event["pred"]:
                event["lemma"] = lemmas[at]
            found.append((at, event))
    yield from (event for _, event in sorted(found, key=lambda item: item[0]))


def _span(item: Any, size: int, place: Place) -> Argument:
    if not isinstance(item, list) or len(item) < 4 or not isinstance(item[1], str):
        raise place.error("[form, role, begin, end]", item)
    begin, end = item[2], item[3]
    if type(begin) is not int or type(end) is not int or not 0 <= begin <= end <= size:
        raise InputError(f"expected words from 0 to {size}, found {begin!r} to {end!r}", *place)
    return Argument(item[1], range(begin, end))
