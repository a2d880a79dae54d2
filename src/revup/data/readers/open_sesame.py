"""Format "open-sesame": the CoNLL 2009-like files of Open-SESAME, predicted or made from FrameNet.

Fifteen columns, of which are read: ID, FORM, PLEMMA (4th), PPOS (6th), the sentence's number (7th), the lexical unit
(`convict.v`, 13th), the frame (14th) and the frame element (B-, I-, S- or O, 15th). A sentence is repeated for each of
its targets. Targets are events if they are verbs, or nouns with an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from revup.data.events import Document, default_document_id, document_from_json
from revup.data.readers import Options, Record
from revup.data.readers.allennlp import spans_of
from revup.data.readers.roles import Argument, Sentence
from revup.errors import InputError
from revup.io.files import LONGEST_LINE, display_name, lines

_COLUMNS = 15
_FORM, _LEMMA, _TAG, _NUMBER, _UNIT, _FRAME, _ROLE = 1, 3, 5, 6, 12, 13, 14
_UNITS = re.compile(r"(.+)\.([a-z]+)", re.S)

Block = tuple[int, list[str]]  # a sentence with one target: its first line, and its rows


def records(path: str, options: Options) -> Iterator[Record]:
    """Yield one record a sentence, or one for the whole file: its blocks."""
    name = display_name(path)
    kept: list[Block] = []
    number, size = "", 0
    for block in _blocks(path):
        if isinstance(block, Record):
            if kept:
                yield Record(name, kept[0][0], kept)
            yield block
            kept, size = [], 0
            if options.document == "file":
                return
            continue
        own = _sentence_number(block)
        size += sum(map(len, block[1]))
        if kept and options.document == "line" and own != number:
            yield Record(name, kept[0][0], kept)
            kept, size = [], sum(map(len, block[1]))
        if size > LONGEST_LINE:
            message = f"the document is longer than {LONGEST_LINE // 2**20} MiB"
            yield Record(name, block[0], InputError(message, name, block[0]))
            return
        kept.append(block)
        number = own
    if kept:
        yield Record(name, kept[0][0], kept)


def _blocks(path: str) -> Iterator[Block | Record]:
    name = display_name(path)
    start, rows, size = 0, list[str](), 0
    for number, text in lines(path):
        if isinstance(text, InputError):
            yield Record(name, number, text)
            start, rows, size = 0, [], 0
        elif text.strip():
            start = start or number
            size += len(text)
            if size > LONGEST_LINE:
                message = f"the sentence is longer than {LONGEST_LINE // 2**20} MiB"
                yield Record(name, start, InputError(message, name, start))
                return
            rows.append(text.rstrip("\r\n"))
        elif rows:
            yield start, rows
            start, rows, size = 0, [], 0
    if rows:
        yield start, rows


def _sentence_number(block: Block) -> str:
    columns = block[1][0].split("\t")
    return columns[_NUMBER] if len(columns) == _COLUMNS else ""


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a record."""
    found: list[tuple[str, int, dict[str, Any]]] = []
    order: dict[str, int] = {}  # sentences, as they come
    for start, rows in record.data:
        number, at, event = _event(rows, record.path, start)
        order.setdefault(number, len(order))
        if event is not None:
            found.append((number, at, event))
    ranked = sorted(found, key=lambda item: (order[item[0]], item[1]))
    data = {"events": [event for _, _, event in ranked]}
    yield document_from_json(data, default_document_id(record.path, record.line), record.path, record.line)


def _event(rows: list[str], path: str, start: int) -> tuple[str, int, dict[str, Any] | None]:
    """Return the number of the sentence, where the target stands, and its event."""
    table = []
    for line, text in enumerate(rows, start):
        columns = text.split("\t")
        if len(columns) != _COLUMNS:
            raise InputError(f"expected {_COLUMNS} tab-separated columns, found {len(columns)}", path, line)
        if not columns[_FORM].strip():
            raise InputError("expected a word, found nothing", path, line, "FORM")
        table.append(columns)
    sentence = Sentence([row[_FORM] for row in table], [_given(row[_TAG]) for row in table])
    target = [index for index, row in enumerate(table) if row[_UNIT] != "_"]
    number = table[0][_NUMBER]
    if not target:
        return number, 0, None
    unit = _UNITS.fullmatch(table[target[0]][_UNIT])
    lemma, pos = (unit[1], unit[2]) if unit else (table[target[0]][_LEMMA], "")
    arguments = [Argument(*span) for span in spans_of([row[_ROLE] for row in table])]
    others = [each for each in arguments if not set(target).issuperset(each.words)]
    if pos not in ("", "v") and not (pos == "n" and others):
        return number, target[0], None
    event = sentence.event(target, arguments, frame=_given(table[target[0]][_FRAME]) or None, pos=pos or None)
    lemma = "-".join(lemma.lower().replace("_", " ").split())
    if event is not None and lemma and lemma != event["pred"]:
        event["lemma"] = lemma
    return number, target[0], event


def _given(value: str) -> str:
    return "" if value == "_" else value
