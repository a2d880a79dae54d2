"""Format "conllu": CoNLL-U from any parser; events come from the dependency trees (revup.data.readers.trees).

A document goes from one `# newdoc` comment to the next and takes its id from `# newdoc id = …`; sentences before
the first such comment, or a whole file without any, are one document. Ten tab-separated columns are expected;
multiword tokens (1-2) and empty nodes (1.1) are not part of the tree and are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from revup.data.events import Document, default_document_id
from revup.data.readers import Options, Record
from revup.data.readers.english import Token
from revup.data.readers.trees import located_events, unreached
from revup.errors import InputError
from revup.io.files import LONGEST_LINE, display_name, lines

_NEWDOC = re.compile(r"#\s*newdoc\b\s*(?:id\s*=\s*(.*))?")
_TEXT = re.compile(r"#\s*text\s*=\s*(.*)")
_NO_WORD = re.compile(r"[0-9]+(-[0-9]+|\.[0-9]+)")
_NUMBER = re.compile(r"[0-9]{1,9}")
_COLUMNS = 10


def records(path: str, options: Options) -> Iterator[Record]:
    """Yield one record a document: its id and lines, or the error of a line that can't be read."""
    name = display_name(path)
    start, identity, size = 1, "", 0
    kept: list[str] | None = []  # None: the document had an error, and the rest of it is skipped
    for number, text in lines(path):
        marker = _NEWDOC.match(text) if isinstance(text, str) and text.startswith("#") else None
        if marker is not None:
            if kept is not None and _has_words(kept):
                yield Record(name, start, (identity, kept))
            start, identity, size, kept = number, (marker[1] or "").strip(), 0, []
        if kept is None:
            continue
        size += 0 if isinstance(text, InputError) else len(text)
        if size > LONGEST_LINE:
            message = f"the document is longer than {LONGEST_LINE // 2**20} MiB: mark documents by # newdoc"
            text = InputError(message, name, start)
        if isinstance(text, InputError):
            yield Record(name, number, text)
            kept = None
        else:
            kept.append(text)
    if kept is not None and _has_words(kept):
        yield Record(name, start, (identity, kept))


def _has_words(kept: list[str]) -> bool:
    return any(text.strip() and not text.startswith("#") for text in kept)


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a record."""
    found = []
    for tokens, told in sentences(record):
        located = located_events(tokens, options.words)
        text, starts = _places(tokens, told) if located else ("", [])
        for token, event in located:
            start = starts[token.index - 1]
            event.text, event.span = text, (start, start + len(token.form))
            found.append(event)
    yield Document(record.data[0] or default_document_id(record.path, record.line), found)


def _places(tokens: list[Token], told: str) -> tuple[str, list[int]]:
    """Return the text of a sentence and where its words begin: in the text that is told, else joined by blanks."""
    starts, end = [], 0
    for token in tokens:
        start = told.find(token.form, end)
        if start < 0 or told[end:start].strip():
            break
        starts.append(start)
        end = start + len(token.form)
    if len(starts) == len(tokens):
        return told, starts
    starts, end = [], 0
    for token in tokens:
        starts.append(end)
        end += len(token.form) + 1
    return " ".join(token.form for token in tokens), starts


def sentences(record: Record) -> Iterator[tuple[list[Token], str]]:
    """Yield the trees of one document, each with the text of its comment; raise InputError where one is no tree."""
    tokens: list[Token] = []
    told = ""
    rows: list[int] = []  # the line of each token
    for number, text in enumerate((*record.data[1], ""), record.line):
        text = text.rstrip("\r\n")
        if not text.strip():
            if tokens:
                _check_tree(tokens, rows, record.path)
                yield tokens, told
            tokens, rows, told = [], [], ""
        elif text.startswith("#"):
            comment = _TEXT.match(text)
            told = comment[1].strip() if comment is not None else told
        else:
            token = _token(text, len(tokens) + 1, record.path, number)
            if token is not None:
                tokens.append(token)
                rows.append(number)


def _token(text: str, expected: int, path: str, line: int) -> Token | None:
    """Parse one row; None for a multiword token or an empty node."""
    columns = text.split("\t")
    if len(columns) != _COLUMNS:
        raise InputError(f"expected {_COLUMNS} tab-separated columns, found {len(columns)}", path, line)
    index, form, lemma, upos, tag, _, head, deprel, _, _ = columns
    if _NO_WORD.fullmatch(index):
        return None
    if index != str(expected):
        raise InputError(f"expected the number {expected}, found {index[:40]!r}", path, line, "ID")
    if not form.strip():
        raise InputError("expected a word, found nothing", path, line, "FORM")
    if not _NUMBER.fullmatch(head):
        raise InputError(f"expected the number of a word, or 0 at the root, found {head[:40]!r}", path, line, "HEAD")
    lemma = "" if lemma == "_" and form != "_" else lemma
    return Token(expected, form, lemma, _given(upos), _given(tag), int(head), _given(deprel))


def _given(value: str) -> str:
    return "" if value == "_" else value


def _check_tree(tokens: list[Token], rows: list[int], path: str) -> None:
    for token, row in zip(tokens, rows, strict=True):
        if token.head > len(tokens):
            found = f"expected a word of the sentence, 1 to {len(tokens)}, or 0 at the root, found {token.head}"
            raise InputError(found, path, row, "HEAD")
    lost = unreached(tokens)
    if lost:
        found = f"the heads form a cycle: {lost[0].form[:40]!r} leads to no root"
        raise InputError(found, path, rows[lost[0].index - 1], "HEAD")
