"""Documents as tables: an event is a row, and adjacent rows with the same `document` are one document.

Tables come from CSV and Parquet files (revup.data.readers.csv, .parquet) and from memory (`from_table`: anything with
`__arrow_c_stream__`, such as pandas, polars and Arrow, or rows as dicts). `Layout` says what each column holds. A row
becomes the JSON form of an event, which `document_from_json` checks: tables and JSON Lines hold the same things.
"""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

from revup.data.events import Document, default_document_id, document_from_json, json_from_line, json_kind
from revup.errors import InputError, RevupError, missing_extra, named_type
from revup.io.files import LONGEST_LINE

TEXT_COLUMNS = ("pred", "subj", "obj", "mod", "frame", "lemma", "pos", "text")
JSON_COLUMNS = ("frames", "candidates", "sources")
SPAN_COLUMNS = ("span_start", "span_end")
COLUMNS = (
    *("document", "pred", "subj", "obj", "mod", "frame", *JSON_COLUMNS, "confidence", "lemma", "pos", "text"),
    *("span", *SPAN_COLUMNS, "extra", "document_extra"),
)
NOT_A_VALUE = frozenset(("NAType", "NaTType"))  # names of the types of pandas.NA and pandas.NaT
MISSING = frozenset(("", "NaN", "null", "NULL", "<NA>"))  # texts that stand for a missing value
IDS_REMEMBERED = 100_000  # documents among which one that comes again is noticed: memory stays constant
ROWS_AT_ONCE = 10_000  # of an Arrow table that are Python objects at a time

_PLACE = re.compile(r"events\[(\d+)\]\.?(\w*)(.*)")
_OTHER = ""  # the key of a column that is kept under its own name


class Layout(NamedTuple):
    """What the columns of a table hold.

    Attributes:
        names: The columns' names.
        keys: What each holds: one of `COLUMNS`, "" for a value that is kept under the column's name, None to ignore it.
        unit: What rows are counted in: "line" or "row".
    """

    names: tuple[str, ...]
    keys: tuple[str | None, ...]
    unit: str = "row"

    def column(self, key: str) -> str:
        """Return the name of the column that holds a key; the key itself where none does."""
        return self.names[self.keys.index(key)] if key in self.keys else key

    def error(self, message: str, path: str, number: int, column: str = "") -> InputError:
        """Return the error of a cell, or of a row where no column is named."""
        place = [f"row {number}"] if self.unit == "row" else []
        place += [f"column '{column}'"] if column else []
        return InputError(message, path, 0 if self.unit == "row" else number, ": ".join(place))


class Rows(NamedTuple):
    """The rows of one document: the data of a record."""

    layout: Layout
    identity: str
    rows: list[tuple[int, Sequence[Any] | InputError]]


# ---- columns ---------------------------------------------------------------------------------------------


def parse_columns(columns: str | Mapping[str, str] | None) -> dict[str, str]:
    """Read which column holds what.

    Args:
        columns: A mapping from keys of `COLUMNS` to names of columns, or the same as text: `pred=verb,subj=agent`, or a
            JSON object where names hold commas or equals signs. An empty name says that the table has no such column.

    Raises:
        RevupError: It is no such mapping, or a key is unknown.
    """
    if columns is None:
        return {}
    if isinstance(columns, str):
        columns = _columns_from_text(columns)
    if not isinstance(columns, Mapping) or not all(isinstance(name, str) for name in columns.values()):
        raise RevupError("columns: expected names of columns, such as {'pred': 'verb', 'subj': 'agent'}")
    for key in columns:
        if key not in COLUMNS:
            raise RevupError(f"columns: unknown key '{key}': one of {', '.join(COLUMNS)}")
    return dict(columns)


def _columns_from_text(text: str) -> Any:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError:
            raise RevupError(f"columns: expected KEY=COLUMN,… or a JSON object, found '{text[:60]}'") from None
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise RevupError(f"columns: expected KEY=COLUMN,… such as pred=verb,subj=agent, found '{text[:60]}'")
    return {key.strip(): name.strip() for key, _, name in pairs}


def layout_of(names: Sequence[str], columns: str | Mapping[str, str] | None, path: str, unit: str = "row") -> Layout:
    """Return what the columns of a table hold.

    Args:
        names: The columns' names.
        columns: Which column holds what, where its name is not the key (`parse_columns`).
        path: The file that errors name.
        unit: What rows are counted in: "line" or "row".

    Raises:
        InputError: A column is missing or stands there twice.
    """
    mapped = parse_columns(columns)
    there = ", ".join(repr(name) for name in names if name)[:300] or "none"
    for key, name in mapped.items():
        if name and name not in names:
            raise InputError(f"no column '{name}' for {key}: there are {there}", path)
    for name in names:
        if name and names.count(name) > 1:
            raise InputError(f"the column '{name}' stands there twice", path)
    by_name = {name: key for key, name in mapped.items() if name}
    if len(by_name) < sum(map(bool, mapped.values())):
        raise InputError("columns: one column can't hold two keys", path)
    keys = [by_name.get(name) or _default_key(name, mapped) for name in names]
    if "pred" not in keys:
        how = "name it in `columns`, as in pred=verb (--columns pred=verb)"
        raise InputError(f"no column 'pred' for the predicate: {how}; there are {there}", path)
    return Layout(tuple(names), tuple(keys), unit)


def _default_key(name: str, mapped: Mapping[str, str]) -> str | None:
    if not name or name.startswith("__index_level_") or name in mapped:  # pandas' index; a key that is held elsewhere
        return None
    return name if name in COLUMNS else _OTHER


# ---- rows to documents -----------------------------------------------------------------------------------


def grouped(
    rows: Iterable[tuple[int, Sequence[Any] | InputError]], layout: Layout, path: str
) -> Iterator[tuple[int, Rows | InputError]]:
    """Cut the rows of a table into documents; without a column `document` every row is one.

    Args:
        rows: Rows with their numbers; an error in place of a row belongs to the document that is being read.
        layout: What the columns hold.
        path: The file that errors name.

    Yields:
        The number of a document's first row, and its rows; or an error.
    """
    at = layout.keys.index("document") if "document" in layout.keys else None
    seen = SeenIds()
    current: Rows | None = None
    start = size = 0
    for number, row in rows:
        identity = None if isinstance(row, InputError) else _identity(row, at, number, layout, path)
        if isinstance(identity, InputError):
            row, identity = identity, None
        if current is not None and (identity is None or identity == current.identity):
            current.rows.append((number, row))
        elif identity is None:
            yield number, row  # type: ignore[misc]  # an error: only those have no id
            continue
        else:
            if current is not None:
                yield start, current
            start, size = number, 0
            current = Rows(layout, identity, [(number, row)])
            if at is not None and not seen.add(identity):
                message = f"rows of the document {identity[:60]!r} are not together: sort the table by this column"
                current.rows[0] = number, layout.error(message, path, number, layout.names[at])
        size += 0 if isinstance(row, InputError) else sum(len(cell) if isinstance(cell, str) else 8 for cell in row)
        if size > LONGEST_LINE:
            message = f"the document is longer than {LONGEST_LINE // 2**20} MiB"
            current.rows[:] = [(start, layout.error(message, path, start))]
    if current is not None:
        yield start, current


class SeenIds:
    """The last ids of documents, to notice one that comes again."""

    def __init__(self, most: int = IDS_REMEMBERED) -> None:
        self._ids: set[str] = set()
        self._order: deque[str] = deque()
        self._most = most

    def add(self, identity: str) -> bool:
        """Add an id; return whether it is new."""
        if identity in self._ids:
            return False
        self._ids.add(identity)
        self._order.append(identity)
        if len(self._order) > self._most:
            self._ids.discard(self._order.popleft())
        return True


def _identity(row: Sequence[Any], at: int | None, number: int, layout: Layout, path: str) -> str | InputError:
    if at is None:
        return default_document_id(path or "table", number)
    cell = row[at]
    if isinstance(cell, str) and cell:
        return cell
    if isinstance(cell, int) and not isinstance(cell, bool):
        return str(cell)
    if isinstance(cell, float) and cell.is_integer():  # pandas makes whole numbers floats where one is missing
        return str(int(cell))
    found = "nothing" if cell == "" or is_missing(cell) else _kind(cell)
    return layout.error(f"expected the document's id, found {found}", path, number, layout.names[at])


def document_of_rows(rows: Rows, path: str) -> Document:
    """Make a document of its rows.

    A row in which everything but the document is missing stands for no event.

    Args:
        rows: The rows.
        path: The file that errors name.

    Raises:
        InputError: A cell is wrong: file, row and column are named.
    """
    layout = rows.layout
    numbers: list[int] = []
    events: list[dict[str, Any]] = []
    extra: dict[str, Any] = {}
    for number, row in rows.rows:
        if isinstance(row, InputError):
            raise row
        event, about = _event_of_row(row, layout, path, number)
        extra.update(about)
        if event:
            events.append(event)
            numbers.append(number)
    try:
        return document_from_json({**extra, "id": rows.identity, "events": events}, path=path)
    except InputError as error:
        place = _PLACE.fullmatch(error.field)
        if place is None:
            raise layout.error(error.message, path, rows.rows[0][0], error.field) from None
        key = place[2] if place[2] != "span" or "span" in layout.keys else "span_start"
        raise layout.error(error.message, path, numbers[int(place[1])], layout.column(key) + place[3]) from None


def _event_of_row(row: Sequence[Any], layout: Layout, path: str, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON form of a row's event, and of what it says about its document."""
    event: dict[str, Any] = {}
    about: dict[str, Any] = {}
    ends: dict[str, Any] = {}
    for key, name, cell in zip(layout.keys, layout.names, row, strict=True):
        if key is None or key == "document" or is_missing(cell):
            continue
        try:
            if key in TEXT_COLUMNS:
                event[key] = cell
            elif key == "confidence":
                event[key] = _number(cell)
            elif key in SPAN_COLUMNS:
                ends[key] = _whole(cell)
            elif key == _OTHER:
                event.setdefault(name, _plain(cell))
            elif key in ("extra", "document_extra"):
                (event if key == "extra" else about).update(_object(cell))
            else:
                event[key] = _structured(cell)
        except InputError as error:
            raise layout.error(error.message, path, number, name) from None
    if ends:
        if len(ends) == 1:
            (there,) = ends
            absent = SPAN_COLUMNS[there == SPAN_COLUMNS[0]]
            raise layout.error(f"expected the other end of {there} too", path, number, layout.column(absent))
        event["span"] = [ends[key] for key in SPAN_COLUMNS]
    return event, about


# ---- cells -----------------------------------------------------------------------------------------------


def is_missing(cell: Any) -> bool:
    """Return whether a cell holds nothing: null, NaN, or a text of `MISSING`."""
    if cell is None:
        return True
    if isinstance(cell, str):
        return cell in MISSING
    if isinstance(cell, float):
        return cell != cell
    return type(cell).__name__ in NOT_A_VALUE


def _number(cell: Any) -> Any:
    try:
        return float(cell) if isinstance(cell, (str, Decimal)) else cell
    except ValueError:
        raise InputError(f"expected a number, found {json_kind(cell)}") from None


def _whole(cell: Any) -> int:
    try:
        number = int(cell)
        if isinstance(cell, bool) or (not isinstance(cell, str) and number != cell):
            raise ValueError
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"expected a whole number, found {_kind(cell)}") from None
    return number


def _object(cell: Any) -> dict[str, Any]:
    found = _structured(cell)
    if not isinstance(found, dict):
        raise InputError(f"expected an object, found {_kind(found)}")
    return found


def _structured(cell: Any) -> Any:
    """Return the value of a cell that is JSON text, or a list, struct or map of Arrow."""
    if isinstance(cell, str):
        return json_from_line(cell)
    return _plain(cell)


def _plain(cell: Any) -> Any:
    """Return a cell as a JSON value; what JSON has no form for becomes text, and missing members are left out."""
    if isinstance(cell, (str, bool, int)) or cell is None:
        return cell
    if isinstance(cell, float):
        return float(cell) if math.isfinite(cell) else str(cell)
    if isinstance(cell, Mapping):
        return {str(key): _plain(value) for key, value in cell.items() if not is_missing(value)}
    if isinstance(cell, (list, tuple)):
        if cell and all(isinstance(item, tuple) and len(item) == 2 for item in cell):  # a map of Arrow
            return _plain(dict(cell))
        return [_plain(item) for item in cell]
    if isinstance(cell, Decimal):
        return float(cell)
    if isinstance(cell, (datetime, date, time)):
        return cell.isoformat()
    return _plain(cell.tolist()) if hasattr(cell, "tolist") else str(cell)


def _kind(cell: Any) -> str:
    plain = isinstance(cell, (str, bool, int, float, list, dict)) or cell is None
    return json_kind(cell) if plain else f"a {type(cell).__name__}"


# ---- tables in memory ------------------------------------------------------------------------------------


def from_table(table: Any, columns: Mapping[str, str] | str | None = None) -> list[Document]:
    """Make documents of a table in memory: an event is a row, and adjacent rows with the same `document` are one.

    The columns are the keys of an event (`revup.Event`) and `document`; those of other names are kept with the event.
    Null, NaN and empty text are missing values. Without a column `document` every row is a document of its own.

    Args:
        table: Anything with `__arrow_c_stream__` (a frame of pandas or polars, a table of Arrow, which need the extra
            `tables`), or an iterable of rows as dicts.
        columns: Key → name of the column that holds it, where they differ: `{"pred": "verb", "document": "story"}`.

    Returns:
        The documents, in the order of the table.

    Raises:
        InputError: A cell is wrong, or rows of one document are not together; row and column are named.
    """
    names, rows = _rows_of(table)
    if not names:
        return []
    layout = layout_of(names, columns, "")
    documents = []
    for _, found in grouped(enumerate(rows, 1), layout, ""):
        if isinstance(found, InputError):
            raise found
        documents.append(document_of_rows(found, ""))
    return documents


def _rows_of(table: Any) -> tuple[list[str], Iterable[Sequence[Any]]]:
    if hasattr(table, "__arrow_c_stream__"):
        arrow = import_arrow()
        try:
            reader = arrow.RecordBatchReader.from_stream(table)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError) as error:
            raise RevupError(f"not a table that Arrow can hold: {' '.join(str(error).split())[:300]}") from None
        return list(reader.schema.names), rows_of_batches(reader)
    expected = "expected a table (pandas, polars, Arrow) or rows as dicts"
    if isinstance(table, (str, bytes, Mapping)) or not isinstance(table, Iterable):
        raise RevupError(f"{expected}, found {named_type(table)}")
    rows = list(table)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise RevupError(f"{expected}, found {named_type(row)} as row {number}")
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    return names, ([row.get(name) for name in names] for row in rows)


def rows_of_batches(batches: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of Arrow's record batches as tuples of Python objects."""
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            part = batch.slice(start, ROWS_AT_ONCE)
            yield from zip(*(column.to_pylist() for column in part.columns), strict=True)


def import_arrow() -> Any:
    """Return the module pyarrow."""
    try:
        import pyarrow
    except ImportError:
        raise missing_extra("tables", "a table of Arrow, pandas or polars, or a Parquet file,") from None
    return pyarrow
