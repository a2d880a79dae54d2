"""Writing tables: documents as tables that `revup.data.tables` reads back exactly, and flat tables of predictions.

What a cell can't hold (text that means a missing value, a key that has no column) is in the column `extra` as JSON.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from revup.data.documents import Given, as_documents
from revup.data.events import Document, document_to_json
from revup.data.tables import JSON_COLUMNS, MISSING, SPAN_COLUMNS, TEXT_COLUMNS, SeenIds, import_arrow
from revup.errors import InputError, RevupError
from revup.io.files import atomic_path, open_output
from revup.io.folders import refuse_existing

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
DOCUMENT_COLUMNS = {
    "document": "string",
    **dict.fromkeys(("pred", "subj", "obj", "mod", "frame", *JSON_COLUMNS), "string"),
    "confidence": "double",
    **dict.fromkeys(("lemma", "pos", "text"), "string"),
    **dict.fromkeys(SPAN_COLUMNS, "int64"),
    "extra": "string",
    "document_extra": "string",
}
PREDICTION_COLUMNS = {
    "document": "string",
    "event": "int64",
    "pred": "string",
    "rank": "int64",
    "frame": "string",
    "probability": "double",
    "known": "bool",
}

_ROWS = 10_000  # of a table of Arrow that are held before they are written
_LARGEST = 2**63

Row = tuple[Any, ...]


# ---- rows ------------------------------------------------------------------------------------------------


def document_rows(documents: Given) -> Iterator[Row]:
    """Yield the events of documents as rows of `DOCUMENT_COLUMNS`.

    A document without events is a row in which everything but the document is missing.

    Args:
        documents: The documents.

    Raises:
        RevupError: Two documents have one id, or one has none: rows are grouped by it.
    """
    seen = SeenIds()
    for document in as_documents(documents):
        if not document.id:
            raise RevupError("a document without an id can't be in a table: its rows are grouped by the id")
        if not seen.add(document.id):
            raise RevupError(f"two documents have the id {document.id[:60]!r}: rows of a table are grouped by the id")
        about = document_to_json(document)
        events = about.pop("events")
        del about["id"]
        for index, event in enumerate(events or [{}]):
            yield _event_row(document.id, event, about if index == 0 else {})


def _event_row(identity: str, event: dict[str, Any], about: dict[str, Any]) -> Row:
    cells: dict[str, Any] = {"document": identity, "document_extra": _json(about) if about else None}
    for key in TEXT_COLUMNS:
        if isinstance(event.get(key), str) and event[key] not in MISSING:
            cells[key] = event.pop(key)
    for key in JSON_COLUMNS:
        if event.get(key) is not None:
            cells[key] = _json(event.pop(key))
    if isinstance(event.get("confidence"), float):
        cells["confidence"] = event.pop("confidence")
    if _is_span(event.get("span")):
        cells["span_start"], cells["span_end"] = event.pop("span")
    if event:
        cells["extra"] = _json(event)
    return tuple(cells.get(key) for key in DOCUMENT_COLUMNS)


def _is_span(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(isinstance(end, int) and not isinstance(end, bool) and -_LARGEST <= end < _LARGEST for end in value)
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def prediction_rows(documents: Iterable[Document]) -> Iterator[Row]:
    """Yield predictions as rows of `PREDICTION_COLUMNS`.

    Args:
        documents: Documents with predictions, as `revup.predict` gives them.

    Yields:
        A row for every frame of every event, the most probable first (rank 1); one row without a frame for an event
        without predictions. `known` is null where the prediction does not say it.
    """
    for document in documents:
        for index, event in enumerate(document.events):
            said = event.extra or {}
            known = said.get("known")
            frames = said.get("predicted") or []
            if not frames:
                yield document.id, index, event.pred, None, None, None, known
            for rank, each in enumerate(frames, 1):
                yield document.id, index, event.pred, rank, each["frame"], each["probability"], known


# ---- tables and files ------------------------------------------------------------------------------------


def arrow_table(rows: Iterable[Row], columns: dict[str, str]) -> Any:
    """Return rows as a table of Arrow.

    Args:
        rows: The rows.
        columns: The names of the columns and their types.
    """
    arrow = import_arrow()
    schema = _schema(columns)
    stream, batches = iter(rows), []
    while part := list(islice(stream, _ROWS)):
        batches.append(_batch(part, schema))
    return arrow.Table.from_batches(batches, schema)


def to_table(documents: Given) -> Any:
    """Return documents as a table of Arrow, an event a row; `from_table` makes the documents of it again.

    Args:
        documents: Documents or dicts of their JSON form, or one of them; no two with the same id.

    Returns:
        A `pyarrow.Table`, which pandas, polars and others take: `.to_pandas()`, `polars.from_arrow(…)`.

    Raises:
        RevupError: Two documents have one id.
    """
    return arrow_table(document_rows(documents), DOCUMENT_COLUMNS)


def is_table(path: str | Path) -> bool:
    """Return whether a file's name is that of a table."""
    return str(path).lower().endswith(SUFFIXES)


def write_table(documents: Given, path: str | Path, force: bool = False) -> None:
    """Write documents as a table, an event a row, which the formats csv and parquet read.

    Args:
        documents: The documents; they are written as they come.
        path: The file: .csv, .tsv (also .gz) or .parquet.
        force: Replace a file that exists.
    """
    with table_file(path, DOCUMENT_COLUMNS, force) as write:
        for row in document_rows(documents):
            write(row)


def table_file(
    path: str | Path, columns: dict[str, str], force: bool = False
) -> AbstractContextManager[Callable[[Row], object]]:
    """Open a table for writing that appears complete when the block ends, or not at all.

    Args:
        path: The file: .csv, .tsv (also .gz), .parquet, or "-" for CSV on standard output.
        columns: The names of the columns and their types.
        force: Replace a file that exists.

    Returns:
        A context manager of the function that writes one row.

    Raises:
        InputError: The name is not that of a table, or the file exists.
    """
    if str(path) != "-" and not is_table(path):
        raise InputError(f"expected a file whose name ends in {', '.join(SUFFIXES)}", str(path))
    if str(path).lower().endswith(".parquet"):
        return _parquet_file(path, columns, force)
    return _csv_file(path, columns, force)


@contextmanager
def _csv_file(path: str | Path, columns: dict[str, str], force: bool) -> Iterator[Callable[[Row], object]]:
    separator = "\t" if ".tsv" in Path(str(path).lower()).suffixes else ","
    with open_output(path, force) as out:
        table, quoted = (
            csv.writer(out, delimiter=separator, lineterminator="\n", quoting=quoting)
            for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
        )
        table.writerow(columns)

        def write(row: Row) -> None:
            # before Python 3.13 a carriage return alone is not quoted, and readers take it for a line break
            returns = any(isinstance(cell, str) and "\r" in cell for cell in row)
            (quoted if returns else table).writerow(row)

        yield write


@contextmanager
def _parquet_file(path: str | Path, columns: dict[str, str], force: bool) -> Iterator[Callable[[Row], object]]:
    import_arrow()
    from pyarrow import parquet

    refuse_existing(path, force)
    schema = _schema(columns)
    waiting: list[Row] = []
    with atomic_path(path) as temporary, parquet.ParquetWriter(temporary, schema) as out:

        def flush() -> None:
            out.write_batch(_batch(waiting, schema))
            waiting.clear()

        def write(row: Row) -> None:
            waiting.append(row)
            if len(waiting) == _ROWS:
                flush()

        yield write
        if waiting:
            flush()


def _schema(columns: dict[str, str]) -> Any:
    arrow = import_arrow()
    kinds = {"string": arrow.string(), "double": arrow.float64(), "int64": arrow.int64(), "bool": arrow.bool_()}
    return arrow.schema([(name, kinds[kind]) for name, kind in columns.items()])


def _batch(rows: Sequence[Row], schema: Any) -> Any:
    arrow = import_arrow()
    columns = [arrow.array(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    return arrow.record_batch(columns, schema)
