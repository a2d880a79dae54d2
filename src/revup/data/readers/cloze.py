"""HAQAE's inverse narrative cloze: a line of six event sequences separated by `<DIST>`, the first the true one.

A distractor gives only a continuation: the true first event stands before it. As documents (to prepare and train
on) the items are their true chains; `items` gives the whole of them, to choose among the six.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from revup.data.events import Document, Event, default_document_id
from revup.data.readers import Options, Record, line_records
from revup.data.readers.tuples import events_of
from revup.errors import InputError

SEPARATOR, SEQUENCES = "<DIST>", 6


@dataclass(slots=True)
class ClozeItem:
    """A true chain of events, and the six chains to choose among: all begin alike, the first is the true one."""

    id: str
    true: list[Event]
    candidates: list[list[Event]]


def records(path: str, options: Options) -> Iterator[Record]:
    return line_records(path)


def parse(record: Record, options: Options) -> Iterator[Document]:
    item = _item(record)
    yield Document(item.id, item.true)


def items(path: str | Path, on_error: Callable[[InputError], None] | None = None) -> Iterator[ClozeItem]:
    """Stream the items of a file; `on_error` takes bad lines instead of stopping at the first."""
    for record in records(str(path), Options()):
        try:
            if isinstance(record.data, InputError):
                raise record.data
            item = _item(record)
        except InputError as error:
            if on_error is None:
                raise
            on_error(error)
        else:
            yield item


def _item(record: Record) -> ClozeItem:
    sequences = record.data.split(SEPARATOR)
    if len(sequences) != SEQUENCES:
        message = f"expected {SEQUENCES} sequences separated by {SEPARATOR}, found {len(sequences)}"
        raise InputError(message, record.path, record.line)
    true, *distractors = (
        events_of(text, record.path, record.line, f"sequences[{index}].events") for index, text in enumerate(sequences)
    )
    if len(true) < 2:
        message = f"expected a first event and its continuation, found {len(true)} events"
        raise InputError(message, record.path, record.line, "sequences[0]")
    for index, continuation in enumerate(distractors, 1):
        if not continuation:
            message = "expected the events of a continuation, found none"
            raise InputError(message, record.path, record.line, f"sequences[{index}]")
    candidates = [true, *([true[0], *events] for events in distractors)]
    return ClozeItem(default_document_id(record.path, record.line), true, candidates)
