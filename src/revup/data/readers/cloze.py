"""Format "cloze": HAQAE's inverse narrative cloze, six event sequences a line separated by `<DIST>`, the true first.

A distractor is only a continuation, which the true first event precedes. Read as documents, items are their true
chains; `items` reads all six candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from revup.data.events import Document, Event, default_document_id
from revup.data.readers import Options, Record, line_records, parse_all
from revup.data.readers.tuples import events_of
from revup.errors import InputError

SEPARATOR, SEQUENCES = "<DIST>", 6


@dataclass(slots=True)
class ClozeItem:
    """A true chain of events and six candidates with the same first event, the true chain first."""

    id: str
    true: list[Event]
    candidates: list[list[Event]]


records = line_records


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the true chain of an item as a document."""
    item = _item(record)
    yield Document(item.id, item.true)


def items(path: str | Path, on_error: Callable[[InputError], None] | None = None) -> Iterator[ClozeItem]:
    """Read the items of a file one by one.

    Args:
        path: The file; ".gz" is decompressed, "-" is standard input.
        on_error: Called with the error of every bad line, which is then skipped; without it the first is raised.
    """
    return parse_all(records(str(path), Options()), lambda record: [_item(record)], on_error)


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
