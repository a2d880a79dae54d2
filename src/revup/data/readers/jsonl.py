"""Format "jsonl": one document a line (revup.data.events)."""

from __future__ import annotations

from collections.abc import Iterator

from revup.data.events import Document, document_from_line
from revup.data.readers import Options, Record, line_records

records = line_records


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a line."""
    yield document_from_line(record.data, record.path, record.line)
