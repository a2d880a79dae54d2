"""Format "text": plain text, parsed by spaCy; events come from the dependency trees (revup.data.readers.trees).

A document is a line or a file. In a file, blank lines separate paragraphs, each parsed alone. The spaCy model is an
installed package, a directory, or an archive of one; its labels may be Universal Dependencies or ClearNLP.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from revup.data.events import Document, Event, default_document_id
from revup.data.readers import Options, Record
from revup.data.readers.english import Token
from revup.data.readers.trees import located_events
from revup.errors import InputError, RevupError, missing_extra, reason
from revup.io.archives import is_archive, unpacked
from revup.io.files import LONGEST_LINE, display_name, lines, lines_and_pauses

LONGEST_TEXT = 1_000_000  # characters in one parse: spaCy's own limit, which bounds memory
_BATCH = 32  # documents in a record, so that spaCy processes several at once
_BATCH_TEXT = 100_000  # characters after which a record is full all the same
_HOW = "name an installed package (en_core_web_sm), a model's directory or an archive of one as the spaCy model"
_ATTRIBUTES = ["ORTH", "LEMMA", "POS", "TAG", "DEP"]
_NOT_NEEDED = (
    "ner",
    "entity_linker",
    "entity_ruler",
    "textcat",
    "textcat_multilabel",
    "spancat",
    "span_ruler",
    "revup",
)

Texts = list[tuple[int, list[str]]]  # documents: first line and paragraphs


def records(path: str, options: Options) -> Iterator[Record]:
    """Yield batches of documents; a line that can't be read is a record of its own."""
    if not options.spacy_model:
        raise RevupError(f"the format 'text' needs a spaCy model: {_HOW}")
    return _by_line(path) if options.document == "line" else _by_file(path)


def _by_line(path: str) -> Iterator[Record]:
    name = display_name(path)
    batch: Texts = []
    size = 0
    for number, text in lines_and_pauses(path):
        if text is None:  # nobody should wait for the answer to a line until others come
            if batch:
                yield Record(name, batch[0][0], batch)
                batch, size = [], 0
            continue
        cleaned = text if isinstance(text, InputError) else _paragraph([text], name, number)
        if not cleaned:
            continue
        if batch and (len(batch) == _BATCH or size > _BATCH_TEXT or isinstance(cleaned, InputError)):
            yield Record(name, batch[0][0], batch)
            batch, size = [], 0
        if isinstance(cleaned, InputError):
            yield Record(name, number, cleaned)
        else:
            batch.append((number, [cleaned]))
            size += len(cleaned)
    if batch:
        yield Record(name, batch[0][0], batch)


def _by_file(path: str) -> Iterator[Record]:
    name = display_name(path)
    paragraphs: list[str] = []
    open_lines: list[str] = []
    start, size = 1, 0
    for number, text in chain(lines(path), [(0, "")]):
        if isinstance(text, InputError):
            yield Record(name, number, text)
            return
        size += len(text)
        if size > LONGEST_LINE:
            message = f"the file is longer than {LONGEST_LINE // 2**20} MiB: too long for one document"
            yield Record(name, number, InputError(message, name, number))
            return
        if text.strip():
            start = start if open_lines else number
            open_lines.append(text)
        elif open_lines:
            paragraph = _paragraph(open_lines, name, start)
            if isinstance(paragraph, InputError):
                yield Record(name, start, paragraph)
                return
            paragraphs.append(paragraph)
            open_lines = []
    if paragraphs:
        yield Record(name, 1, [(1, paragraphs)])


def _paragraph(text: list[str], name: str, line: int) -> str | InputError:
    """Join lines with single blanks, so that line breaks and indents don't affect the parse."""
    cleaned = " ".join(word for piece in text for word in piece.split())
    if len(cleaned) > LONGEST_TEXT:
        return InputError(f"expected at most {LONGEST_TEXT} characters to parse, found {len(cleaned)}", name, line)
    return cleaned


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Parse the texts of a record and yield them as documents."""
    pipeline = load_model(options.spacy_model or "")
    documents: Texts = record.data
    parsed = pipeline.pipe((text for _, paragraphs in documents for text in paragraphs), batch_size=_BATCH)
    for line, paragraphs in documents:
        found = [event for _ in paragraphs for _, event in events_of(next(parsed), options.words)]
        yield Document(default_document_id(record.path, line), found)


def events_of(parsed: Any, words: str = "form") -> Iterator[tuple[int, Event]]:
    """Yield the events of a parsed text, each with the index of its predicate's token.

    Args:
        parsed: A `spacy.tokens.Doc` with dependencies and tags.
        words: Whether arguments are the "form" or the "lemma" of their head word.
    """
    tokens = _tokens(parsed)
    for sentence in parsed.sents:
        start, end = sentence.start, sentence.end
        own = tokens[start:end]
        for token in own:
            governor = token.head - start
            # another component may set sentence boundaries across the parse: a head outside is a root
            token.head = governor + 1 if 0 <= governor < end - start and governor != token.index - start else 0
            token.index -= start - 1
        found = located_events(own, words)
        text = sentence.text if found else ""
        for token, event in found:
            index = start + token.index - 1
            at = parsed[index].idx - sentence.start_char
            event.text, event.span = text, (at, at + len(token.form))
            yield index, event


def _tokens(parsed: Any) -> list[Token]:
    """Return all tokens with their indices, and those of their heads, in the whole text."""
    strings = _Strings(parsed.vocab.strings)
    heads = parsed.to_array("HEAD").astype("int64").tolist()  # relative to the token
    return [
        Token(index, strings[form], strings[lemma], strings[pos], strings[tag], index + head, strings[dep])
        for index, ((form, lemma, pos, tag, dep), head) in enumerate(
            zip(parsed.to_array(_ATTRIBUTES).tolist(), heads, strict=True)
        )
    ]


class _Strings(dict[int, str]):
    """Numbers of spaCy's strings → strings, each looked up once."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._store = store

    def __missing__(self, number: int) -> str:
        text: str = self._store[number]
        self[number] = text
        return text


@lru_cache(maxsize=2)
def load_model(model: str) -> Any:
    """Load a spaCy pipeline, once per process, without the components that events don't need."""
    try:
        import spacy
    except ImportError:
        raise missing_extra("text", "the format 'text'") from None
    place = Path(model)
    if is_archive(place):
        with unpacked(place) as folder:
            pipeline = _loaded(spacy, _model_directory(folder, model), model)
    elif place.is_dir():
        pipeline = _loaded(spacy, _model_directory(place, model), model)
    elif place.exists():
        raise RevupError(f"{model}: expected a model's directory or an archive of one, found another file: {_HOW}")
    elif spacy.util.is_package(model):
        pipeline = _loaded(spacy, model, model)
    else:
        install = f"`python -m spacy download {model}` installs those of spaCy"
        raise RevupError(f"no spaCy model '{model}': {install}; or {_HOW}")
    _check(pipeline, model)
    return pipeline


def _model_directory(folder: Path, model: str) -> Path:
    """Find the model's directory: this one, or one further down as in packages and archives."""
    found = sorted(folder.rglob("config.cfg"), key=lambda file: (len(file.parts), file))
    if not found:
        raise RevupError(f"{model}: not a spaCy model: no config.cfg in it")
    return found[0].parent


def _loaded(spacy: Any, source: str | Path, model: str) -> Any:
    try:
        return spacy.load(source, exclude=list(_NOT_NEEDED))
    except Exception as error:  # any fault of a model becomes one line
        why = reason(error) or "of another version of spaCy, perhaps"
        raise RevupError(f"{model}: not a spaCy model that can be loaded: {why}") from None


def _check(pipeline: Any, model: str) -> None:
    """Check on a sentence that the pipeline gives trees and tags."""
    probe = pipeline("The jury convicted him.")
    if not probe.has_annotation("DEP"):
        raise RevupError(f"{model}: the pipeline has no parser, so no events can be found: {_HOW}")
    if not probe.has_annotation("TAG") and not probe.has_annotation("POS"):
        raise RevupError(f"{model}: the pipeline has no tagger, so no verbs can be found: {_HOW}")
