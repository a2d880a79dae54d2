"""Format "parquet": a Parquet file; one event a row (revup.data.tables).

Adjacent rows with the same value in the column `document` are one document. Batches of rows are read one after the
other, so memory does not grow with the file.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from revup.data.events import Document
from revup.data.readers import Options, Record
from revup.data.tables import ROWS_AT_ONCE, Rows, document_of_rows, grouped, import_arrow, layout_of, rows_of_batches
from revup.errors import InputError
from revup.io.files import display_name, open_binary


def records(path: str, options: Options) -> Iterator[Record]:
    """Yield one record a document: its rows."""
    arrow, name = import_arrow(), display_name(path)
    from pyarrow import parquet

    with _seekable(path) as stream:
        try:
            file = parquet.ParquetFile(stream)
            layout = layout_of(file.schema_arrow.names, options.columns, name)
            batches = file.iter_batches(batch_size=ROWS_AT_ONCE)
            for number, rows in grouped(enumerate(rows_of_batches(batches), 1), layout, name):
                yield Record(name, number, rows)
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())[:300]
            yield Record(name, 0, InputError(f"not a valid Parquet file: {reason}", name))


@contextmanager
def _seekable(path: str) -> Iterator[IO[Any]]:
    """Open a file that can be read from its end; standard input and compressed files are copied to a temporary one."""
    with open_binary(path) as stream:
        if path != "-" and not path.endswith(".gz"):
            yield stream
            return
        with tempfile.TemporaryFile() as copy:
            try:
                shutil.copyfileobj(stream, copy)
            except (EOFError, OSError) as error:
                raise InputError(f"can't be read: {error}", display_name(path)) from None
            copy.seek(0)
            yield copy


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a record."""
    rows: Rows = record.data
    yield document_of_rows(rows, record.path)
