"""Readers: text outside → Documents, one file a format.

A reader is a module with two functions. `records(path, options)` cuts a source, cheaply and in order, into
self-contained pieces; `parse(record, options)` makes documents of one piece, wherever it runs. So any format can
be parsed by many workers, a bad piece can be counted and passed over, and memory does not grow with the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from revup.data.events import Document
from revup.errors import InputError, RevupError
from revup.io.files import display_name, lines

FORMATS = ("jsonl", "released", "tuples", "cloze", "concrete", "conllu", "text", "framenet")


class Record(NamedTuple):
    """One piece of a source: where it stands, and what is there (or why it could not be read)."""

    path: str
    line: int
    data: Any


@dataclass(frozen=True)
class Options:
    """What a user may choose about reading; each reader uses what concerns it."""

    frames: str | None = None  # tuples: a parallel file of frames
    spacy_model: str | None = None  # text: a model's name or path
    document: str = "line"  # text: a document is a "line" or a "file"
    words: str = "form"  # conllu, text, framenet: argument words as "form" or "lemma"
    tool: str | None = None  # concrete, released: the annotation tool
    frame_tool: str | None = None  # concrete: the tool whose frames to take, where it is another


class Reader(Protocol):
    def records(self, path: str, options: Options) -> Iterator[Record]: ...

    def parse(self, record: Record, options: Options) -> Iterable[Document]: ...


def reader(name: str) -> Reader:
    """The reader of a format, its libraries imported only now."""
    if name not in FORMATS:
        raise RevupError(f"unknown format '{name}': one of {', '.join(FORMATS)}")
    return cast(Reader, import_module(f"revup.data.readers.{name}"))


def line_records(path: str) -> Iterator[Record]:
    """The records of a format that has a document a line: every line but the blank ones."""
    name = display_name(path)
    for number, text in lines(path):
        if isinstance(text, InputError) or text.strip():
            yield Record(name, number, text)


def read(
    path: str | Path,
    format: str = "jsonl",
    on_error: Callable[[InputError], None] | None = None,
    **options: Any,
) -> Iterator[Document]:
    """Stream the documents of a file; `on_error` takes bad records instead of stopping at the first."""
    chosen, settings = reader(format), Options(**options)
    for record in chosen.records(str(path), settings):
        try:
            if isinstance(record.data, InputError):
                raise record.data
            yield from chosen.parse(record, settings)
        except InputError as error:
            if on_error is None:
                raise
            on_error(error)
