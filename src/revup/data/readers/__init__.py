"""Readers of input formats, one module a format.

A reader is a module with two functions. `records(path, options)` cuts a source, cheaply and in order, into
self-contained pieces; `parse(record, options)` makes documents of one piece, in any process. So every format can be
parsed by many workers, a bad piece can be counted and skipped, and memory does not grow with the corpus. To add a
format, write such a module and add its name to `FORMATS`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from revup.data.events import Document
from revup.data.tables import parse_columns
from revup.data.unknown_keys import UnknownKeys
from revup.errors import InputError, RevupError
from revup.fields import check, setting
from revup.io.files import display_name, lines

T = TypeVar("T")
FORMATS = (
    *("jsonl", "released", "tuples", "cloze", "concrete", "conllu", "text", "framenet", "csv", "parquet"),
    *("frame-semantic-transformer", "open-sesame", "hanlp", "allennlp", "omnievent"),
)

BY_SUFFIX = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".conllu": "conllu", ".comm": "concrete"}


class Record(NamedTuple):
    """One piece of a source: its place, and its data (or an InputError where it could not be read)."""

    path: str
    line: int
    data: Any


@dataclass(frozen=True)
class Options:
    """How files are read; each reader uses the options of its format."""

    frames: str | None = setting(None, "tuples: parallel file of frames")
    spacy_model: str | None = setting(None, "text: name or path of a spaCy model")
    document: str = setting(
        "line",
        "text, and what other tools write: whether a line (open-sesame: a sentence) or a whole file is a document",
        choices=("line", "file"),
    )
    words: str = setting(
        "form", "conllu, text, framenet: whether arguments are word forms or lemmas", choices=("form", "lemma")
    )
    tool: str | None = setting(None, "concrete, released: annotation tool whose events are read")
    frame_tool: str | None = setting(None, "concrete: annotation tool whose frames are read, if not that of the events")
    columns: str | None = setting(None, "csv, parquet: which column holds what, such as pred=verb,subj=agent")

    def __post_init__(self) -> None:
        if isinstance(self.columns, Mapping):
            object.__setattr__(self, "columns", json.dumps(self.columns))
        parse_columns(self.columns)
        for name in ("frames", "spacy_model"):
            if isinstance(getattr(self, name), Path):
                object.__setattr__(self, name, str(getattr(self, name)))
        check(self)


class Reader(Protocol):
    """What a reader's module has."""

    def records(self, path: str, options: Options) -> Iterator[Record]:
        """Cut a source into records."""

    def parse(self, record: Record, options: Options) -> Iterable[Document]:
        """Make documents of one record, or raise InputError."""


def reader(name: str) -> Reader:
    """Return the reader of a format; its libraries are imported only now."""
    if name not in FORMATS:
        raise RevupError(f"unknown format '{name}': one of {', '.join(FORMATS)}")
    return cast(Reader, import_module(f"revup.data.readers.{name.replace('-', '_')}"))


def format_of(path: str | Path) -> str:
    """Return the format that a file's name tells: that of its suffix in `BY_SUFFIX`, else "jsonl".

    Args:
        path: The file; a last suffix ".gz" is passed over.
    """
    return BY_SUFFIX.get(Path(str(path).lower().removesuffix(".gz")).suffix, "jsonl")


def line_records(path: str, options: Options) -> Iterator[Record]:
    """Yield the records of a format that has one document a line: every line that is not blank."""
    name = display_name(path)
    for number, text in lines(path):
        if isinstance(text, InputError) or text.strip():
            yield Record(name, number, text)


def read(
    path: str | Path,
    format: str | None = None,
    on_error: Callable[[InputError], None] | None = None,
    check: Callable[[Document], None] | None = None,
    **options: Any,
) -> Iterator[Document]:
    """Read the documents of a file one by one.

    A key of an event that is unknown and close to a known one is warned of, once a file (`RevupWarning`).

    Args:
        path: The file; ".gz" is decompressed, "-" is standard input.
        format: Its format, one of `FORMATS`; by default what its name tells (`format_of`).
        on_error: Called with the error of every bad record, which is then skipped; without it the first is raised.
        check: Called with every document; an `InputError` that it raises gets file and line, and is one of that record.
        **options: Fields of `Options`, such as spacy_model="en_core_web_sm" for format="text".

    Yields:
        The documents, in order.

    Raises:
        InputError: A record is wrong; file, line and field are named.
    """
    chosen, settings, unknown = reader(format or format_of(path)), Options(**options), UnknownKeys()

    def parse(record: Record) -> Iterator[Document]:
        for document in chosen.parse(record, settings):
            if check is not None:
                with placed(record):
                    check(document)
            unknown.warn(document, record.path, record.line)
            yield document

    yield from parse_all(chosen.records(str(path), settings), parse, on_error)


@contextmanager
def placed(record: Record) -> Iterator[None]:
    """Name file and line of a record in an `InputError` that has none."""
    try:
        yield
    except InputError as error:
        raise (error if error.path else InputError(error.message, record.path, record.line, error.field)) from None


def parse_all(
    records: Iterable[Record], parse: Callable[[Record], Iterable[T]], on_error: Callable[[InputError], None] | None
) -> Iterator[T]:
    """Parse records one after the other.

    Args:
        records: The records.
        parse: What a record becomes.
        on_error: Called with the error of each bad record, which is then skipped; by default the error is raised.
    """
    for record in records:
        try:
            if isinstance(record.data, InputError):
                raise record.data
            yield from parse(record)
        except InputError as error:
            if on_error is None:
                raise
            on_error(error)
