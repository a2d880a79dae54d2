"""Format "csv": comma-, tab- or semicolon-separated values with a header; one event a row (revup.data.tables).

Adjacent rows with the same value in the column `document` are one document. The separator is a tab where the file's
name says so (.tsv), else the one of comma, tab and semicolon that is most frequent in the header.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from revup.data.events import Document
from revup.data.readers import Options, Record
from revup.data.tables import Rows, document_of_rows, grouped, layout_of
from revup.errors import InputError
from revup.io.files import LONGEST_LINE, display_name, lines

SEPARATORS = ",\t;"


def records(path: str, options: Options) -> Iterator[Record]:
    """Yield one record a document: its rows."""
    name = display_name(path)
    source = _Lines(path)
    header: list[str] | None = None
    while header is None:
        try:
            first = next(source)
        except StopIteration:
            return
        except InputError as error:
            yield Record(name, source.number, error)
            return
        if first.strip():
            source.back = first
            separator = separator_of(path, first)
            csv.field_size_limit(max(LONGEST_LINE, csv.field_size_limit()))
            table = csv.reader(source, delimiter=separator, strict=True)
            try:
                header = [cell.strip() for cell in next(table)]
            except (csv.Error, StopIteration) as error:
                raise InputError(f"not a valid header of CSV: {error or 'it is empty'}", name, source.number) from None
    layout = layout_of(header, options.columns, name, "line")
    for number, rows in grouped(_rows(table, source, len(header), name), layout, name):
        yield Record(name, number, rows)


def separator_of(path: str, header: str) -> str:
    """Return the separator of a file's columns."""
    if path.lower().removesuffix(".gz").endswith((".tsv", ".tab")):
        return "\t"
    return max(SEPARATORS, key=header.count)


def _rows(
    table: Iterator[list[str]], source: _Lines, width: int, name: str
) -> Iterator[tuple[int, Sequence[str] | InputError]]:
    while True:
        number = source.number + 1
        try:
            row = next(table)
        except StopIteration:
            return
        except InputError as error:
            yield number, error
            continue
        except csv.Error as error:
            yield number, InputError(f"not valid CSV: {error}", name, number)
            continue
        if len(row) == width:
            yield number, row
        elif row:
            yield number, InputError(f"expected {width} cells as in the header, found {len(row)}", name, number)


class _Lines:
    """The lines of a file; one that can't be read is raised as an error, and the next call goes on behind it."""

    def __init__(self, path: str) -> None:
        self.number = 0
        self.back: str | None = None  # a line to be read again
        self._lines = lines(path)

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if self.back is not None:
            text, self.back = self.back, None
            return text
        self.number, found = next(self._lines)
        if isinstance(found, InputError):
            raise found
        return found


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a record."""
    rows: Rows = record.data
    yield document_of_rows(rows, record.path)
