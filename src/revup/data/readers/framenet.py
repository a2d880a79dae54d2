"""Format "framenet": FrameNet's full-text annotation (XML in NLTK's layout) through NLTK's reader; gold frames.

The source is FrameNet's directory (with `luIndex.xml` and `fulltext/`) or an archive of it. Events are the manually
annotated targets that are verbs (except modals) or eventive nouns: nouns of a frame that some verb evokes as well.
Arguments come from the layers FE, GF and PT, and are head words:

    verb:  Ext → subj, Obj → obj, exchanged in the passive, where Dep `by …` → subj
    noun:  Gen, Ext, Dep `by …` → subj, Dep `of …` → obj
    both:  Dep with another preposition → mod, and its noun → obj where there is no other

Frames are named in the annotation itself, so a frame may be missing from the frame folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from revup.data.events import Document, Event
from revup.data.readers import Options, Record
from revup.data.readers.spans import TaggedWords
from revup.errors import InputError, missing_extra, reason
from revup.io.archives import is_archive, unpacked

_INDEX, _FOLDER = "luIndex.xml", "fulltext"
_MODALS = frozenset(("can", "could", "may", "might", "must", "shall", "should", "will", "would", "ought", "ought to"))
_TAG_LAYERS = frozenset(("PENN", "BNC"))
_ARGUMENT_LAYERS = frozenset(("Target", "FE", "GF", "PT"))
_CLAUSES = ("S", "VP", "QUO", "PPing", "PPinterrog")  # types of phrase that have no head word
_RELATIVE = frozenset((None, "who", "whom", "which", "that", "whose", "where"))
_LAYOUT = f"expected FrameNet's directory (or an archive of it) with {_INDEX} and {_FOLDER}/*.xml"


# ---- records ---------------------------------------------------------------------------------------------


def records(path: str, options: Options) -> Iterator[Record]:
    """Yield one record a document: its name, the frames that a verb evokes, and its XML."""
    _nltk()
    source = Path(path)
    if not source.exists():
        raise InputError("no such file or directory", path)
    if source.is_dir():
        yield from _from_directory(source, path, "/")
    elif is_archive(source):
        try:
            with unpacked(source, _is_wanted) as folder:
                yield from _from_directory(folder, path, ": ")
        except InputError as error:
            yield Record(path, 0, error)
    else:
        raise InputError(f"{_LAYOUT}, found a file that is no archive", path)


def _is_wanted(name: str) -> bool:
    *folders, file = name.split("/")
    return file == _INDEX or (folders[-1:] == [_FOLDER] and file.endswith(".xml") and not file.startswith("."))


def _from_directory(source: Path, name: str, separator: str) -> Iterator[Record]:
    """Yield the documents of the topmost FrameNet in a directory, which errors call by `name`."""
    found = (place.parent for depth in ("", "*/", "*/*/") for place in sorted(source.glob(depth + _INDEX)))
    root = next(found, source)
    documents = [file for file in sorted((root / _FOLDER).glob("*.xml")) if _is_wanted(f"{_FOLDER}/{file.name}")]
    if not (root / _INDEX).is_file() or not documents:
        raise InputError(_LAYOUT, name)

    def shown(file: Path) -> str:
        return f"{name}{separator}{file.relative_to(source).as_posix()}"

    frames = _verb_frames((root / _INDEX).read_bytes(), shown(root / _INDEX))
    for document in documents:
        try:
            yield Record(shown(document), 0, (document.stem, frames, document.read_bytes()))
        except OSError as error:
            message = f"can't be read: {error.strerror or error}"
            yield Record(shown(document), 0, InputError(message, shown(document)))


def _verb_frames(xml: bytes, path: str) -> str:
    """Return the frames with a verb among their lexical units, one a line."""
    units = [element for element in _xml(xml, path).iter() if element.tag.endswith("}lu") or element.tag == "lu"]
    return "\n".join(sorted({unit.get("frameName", "") for unit in units if unit.get("name", "").endswith(".v")}))


def _xml(data: bytes, path: str) -> ElementTree.Element:
    try:
        if b"<!ENTITY" in data:  # FrameNet has none, and they can expand without limit
            raise InputError("not FrameNet's XML: it declares entities", path)
        return ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        line, column = error.position
        raise InputError(f"broken XML: {str(error).split(': line')[0]} at column {column + 1}", path, line) from None
    except (ValueError, LookupError) as error:
        raise InputError(f"broken XML: {error}", path) from None


# ---- parsing ---------------------------------------------------------------------------------------------


@cache
def _nltk() -> Any:
    """Return NLTK's reader, changed to work on XML elements and to load no frames.

    It would load the frame of each annotation from the frame folder, and fail where one is missing.
    """
    try:
        from nltk.corpus.reader.framenet import AttrDict, FramenetCorpusReader
    except ImportError:
        raise missing_extra("text", "the format 'framenet'") from None

    class FullText(FramenetCorpusReader):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def lu(self, fn_luid: int, **known: Any) -> Any:
            return AttrDict(ID=fn_luid, frame=None, **known)

    return FullText()


def parse(record: Record, options: Options) -> Iterator[Document]:
    """Yield the document of a record."""
    name, frames, xml = record.data
    root = _xml(xml, record.path)
    if root.tag.split("}")[-1] != "fullTextAnnotation":
        raise InputError(f"expected <fullTextAnnotation>, found <{root.tag.split('}')[-1][:60]}>", record.path)
    _trim(root, frozenset(frames.split("\n")), record.path)
    try:
        sentences = _nltk()._handle_fulltextannotation_elt(root)["sentence"]
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        why = reason(error) or "an element or attribute is missing"
        raise InputError(f"not FrameNet's full-text annotation: {why}", record.path) from None
    lemmatise = options.words == "lemma"
    yield Document(name, [event for sentence in sentences for event in _Sentence(sentence, lemmatise).events()])


def _trim(root: ElementTree.Element, verb_frames: frozenset[str], path: str) -> None:
    """Remove all but each sentence's tags and the layers of its events: NLTK is slow."""
    for sentence in [child for child in root if _tag(child) == "sentence"]:
        sets = [child for child in sentence if _tag(child) == "annotationSet"]
        for position, annotation in enumerate(sets):
            if position and not _is_event(annotation, verb_frames):
                sentence.remove(annotation)
                continue
            for layer in [child for child in annotation if _tag(child) == "layer"]:
                if layer.get("name") not in (_TAG_LAYERS if position == 0 else _ARGUMENT_LAYERS):
                    annotation.remove(layer)
                elif layer.get("name") == "FE":
                    layer[:] = []  # NLTK requires the layer; GF and PT have its spans
                for label in layer:
                    _check_span(label, annotation, path)


def _is_event(annotation: ElementTree.Element, verb_frames: frozenset[str]) -> bool:
    lemma, _, pos = annotation.get("luName", "").rpartition(".")
    if annotation.get("status") != "MANUAL":
        return False
    return lemma not in _MODALS if pos == "v" else pos == "n" and annotation.get("frameName") in verb_frames


def _check_span(label: ElementTree.Element, annotation: ElementTree.Element, path: str) -> None:
    for key in ("start", "end"):
        value = label.get(key)
        if value is not None and not (value.isascii() and value.isdecimal() and len(value) < 10):
            field = f"annotationSet {annotation.get('ID', '?')[:40]}: label: {key}"
            raise InputError(f"expected the position of a letter, found {value[:40]!r}", path, 0, field)


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rsplit("}", 1)[-1]


class _Sentence:
    """A sentence's words by their positions, and its annotated events in the order of the text."""

    def __init__(self, sentence: Any, lemmatise: bool) -> None:
        self.text: str = sentence["text"] or ""
        self.annotations = sentence["annotationSet"][1:]
        tagged = sorted(span for span in sentence["POS"] if span[0] < span[1] <= len(self.text))
        self.places = [(start, stop) for start, stop, _ in tagged]
        words = [self.text[start:stop] for start, stop in self.places]
        self.words = TaggedWords(words, [str(tag) for _, _, tag in tagged])
        self.lemmatise = lemmatise

    def events(self) -> list[Event]:
        found: list[tuple[int, Event]] = []
        for annotation in self.annotations:
            lemma, _, pos = str(annotation["luName"]).rpartition(".")
            spans = [span for span in annotation.get("Target", ()) if self.text[slice(*span)].strip()]
            if spans:
                found.append((spans[0][0], self._event(annotation, spans, pos, lemma, str(annotation["frameName"]))))
        return [event for _, event in sorted(found, key=lambda pair: pair[0])]

    def _event(self, annotation: Any, spans: list[tuple[int, int]], pos: str, lemma: str, frame: str) -> Event:
        pred = "-".join(" ".join(self.text[slice(*span)].lower() for span in spans).split())
        lemma = "-".join(lemma.split())
        event = Event(pred, frame=frame, lemma=lemma if lemma and lemma != pred else None, pos=pos or None)
        start, stop = spans[0]
        if 0 <= start < stop <= len(self.text):
            event.text, event.span = self.text, (start, stop)
        target = self._inside(*spans[0])
        passive = pos == "v" and bool(target) and self.words.is_passive(target[0])
        turned = passive or (bool(target) and self.words.tags[target[0]].endswith("VN"))
        phrases = {(start, stop): str(phrase) for start, stop, phrase in annotation.get("PT", ())}
        fallback = None
        for start, stop, function in annotation.get("GF", ()):
            span = self._inside(start, stop)
            if not span or phrases.get((start, stop), "").startswith(_CLAUSES):
                continue
            head = self._word(self.words.head(span))
            if function == "Dep" and len(span) > 1 and self.words.is_preposition(span[0]):
                preposition = self.words.words[span[0]].lower()
                if preposition == "by" and (passive or pos == "n") and event.subj is None:
                    event.subj = head
                elif preposition == "of" and pos == "n" and event.obj is None:
                    event.obj = head
                elif event.mod is None:
                    event.mod, fallback = preposition, head
            elif function in ("Ext", "Head", "Gen"):
                as_object = passive if function == "Ext" else turned and function == "Head"
                slot = "obj" if as_object else "subj"
                if getattr(event, slot) in _RELATIVE:  # "people who want": FrameNet marks both; the noun is preferred
                    setattr(event, slot, head)
            elif function == "Obj" and event.obj in _RELATIVE:
                event.obj = head
        event.obj = event.obj or fallback
        return event

    def _inside(self, start: int, stop: int) -> list[int]:
        """Return the indices of the words between two positions of the text."""
        return [index for index, (first, last) in enumerate(self.places) if start <= first and last <= stop]

    def _word(self, index: int | None) -> str | None:
        if index is None:
            return None
        word = self.words.words[index].lower()
        return _lemma(word) if self.lemmatise else word


def _lemma(word: str) -> str:
    try:
        from simplemma import lemmatize
    except ImportError:
        raise missing_extra("text", "lemmas of words") from None
    return str(lemmatize(word, lang="en")).lower()
