"""Our own form: JSON Lines, a document a line (revup.events)."""

from __future__ import annotations

from collections.abc import Iterator

from revup.events import Document, display_name, document_from_line, lines
from revup.readers import Options, Record


def records(path: str, options: Options) -> Iterator[Record]:
    name = display_name(path)
    for number, text in lines(path):
        if not isinstance(text, str) or text.strip():
            yield Record(name, number, text)


def parse(record: Record, options: Options) -> Iterator[Document]:
    yield document_from_line(record.data, record.path, record.line)
