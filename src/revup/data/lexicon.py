"""Side knowledge from a lexicon: FrameNet, VerbNet, PropBank or a table of the user's lists the frames that a predicate
may evoke. Events are labelled with the most likely of them (hard) or with the distribution over all (soft).

    p(frame | predicate) = weight(predicate, frame) / Σ_f weight(predicate, f)

The weight of a sense is that of the table; in FrameNet the number of its annotated sentences plus one (a sense without
annotation is rare, not impossible); and 1 in VerbNet and PropBank, which have no weights.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from xml.etree.ElementTree import Element, ParseError

from revup.data.events import Document, Event
from revup.errors import InputError, RevupError, missing_extra
from revup.io.archives import is_archive, unpacked
from revup.io.files import display_name, lines

Mode = Literal["hard", "soft"]

_LAYOUTS = (
    "expected a CSV table with a header, or a directory or archive of FrameNet (frame/*.xml), PropBank (frames/*.xml) "
    "or VerbNet (*.xml)"
)
_POS = {"verb": "v", "noun": "n", "adj": "a", "adjective": "a", "j": "a", "adverb": "adv", "l": "v"}
# past forms that are words themselves, or that the lemmatiser gets wrong
_PASTS = {"bore": "bear", "born": "bear", "bent": "bend", "bound": "bind", "bit": "bite", "broke": "break"}
_PASTS |= {"drunk": "drink", "felt": "feel", "gone": "go", "ground": "grind", "left": "leave", "rung": "ring"}
_PASTS |= {"rose": "rise", "shook": "shake", "shot": "shoot", "swore": "swear", "thought": "think", "won": "win"}
_PASTS |= {"wound": "wind"}
_REQUIRED = ("predicate", "frame")


@dataclass(frozen=True)
class Lexicon:
    """The senses of predicates.

    Attributes:
        entries: predicate → (frame, part of speech or "") → weight.
    """

    entries: Mapping[str, Mapping[tuple[str, str], float]]

    @classmethod
    def load(cls, path: str | Path) -> Lexicon:
        """Read a lexicon.

        Args:
            path: A CSV file with the columns `predicate,frame[,pos][,weight]`, or a directory or archive of FrameNet,
                VerbNet or PropBank.

        Raises:
            InputError: It is none of these, or a line or element of it is wrong.
        """
        source = Path(path)
        if is_archive(source):
            with unpacked(source, lambda name: name.endswith(".xml") and not _is_bulk(name)) as folder:
                return cls._collect(_from_xml(folder, str(path)))
        if source.is_dir():
            return cls._collect(_from_xml(source, str(path)))
        return cls._collect(_from_csv(path))

    @classmethod
    def _collect(cls, senses: Iterator[tuple[str, str, str, float]]) -> Lexicon:
        entries: dict[str, dict[tuple[str, str], float]] = {}
        for predicate, frame, pos, weight in senses:
            known = entries.setdefault(_key(predicate), {})
            sense = (frame, _POS.get(pos.lower(), pos.lower()))
            known[sense] = known.get(sense, 0.0) + weight
        return cls(entries)

    @property
    def frames(self) -> list[str]:
        """The names of all frames, sorted."""
        return sorted({frame for senses in self.entries.values() for frame, _ in senses})

    def senses(self, predicate: str, pos: str | None = None) -> dict[str, float]:
        """Return p(frame | predicate), most likely first; empty for an unknown predicate.

        Args:
            predicate: The predicate; looked up as it stands, then by its lemma.
            pos: Leave out senses of another part of speech than this ("v", "n", …).
        """
        for key in _candidates(predicate):
            weights: dict[str, float] = {}
            for (frame, sense_pos), weight in self.entries.get(key, {}).items():
                if weight and (pos is None or sense_pos in ("", pos)):
                    weights[frame] = weights.get(frame, 0.0) + weight
            if weights:
                total = math.fsum(weights.values())
                ranked = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
                return {frame: weight / total for frame, weight in ranked}
        return {}

    def label(self, event: Event, mode: Mode = "hard", at_least: float = 0.0, confidence: float = 1.0) -> Event:
        """Return the event labelled by the lexicon; labels that it carries already are never overwritten.

        Args:
            event: The event.
            mode: "hard" sets `frame` to the most likely sense and `confidence` to its probability; "soft" sets
                `frames` to the distribution over senses, and keeps a reference `frame` beside it.
            at_least: With "hard", label only if the most likely sense has at least this probability.
            confidence: Confidence of the lexicon itself; a factor of the event's confidence.
        """
        if mode not in ("hard", "soft"):
            raise RevupError(f"mode: expected hard or soft, found '{mode}'")
        if event.frames is not None or (mode == "hard" and event.frame is not None):
            return event
        senses = self.senses(event.lemma or event.pred, _event_pos(event))
        if not senses:
            return event
        if mode == "soft":
            return replace(event, frames=senses, confidence=_unless(event.confidence, confidence))
        frame, share = next(iter(senses.items()))
        if share < at_least:
            return event
        return replace(event, frame=frame, confidence=_unless(event.confidence, confidence * share))

    def label_document(
        self, document: Document, mode: Mode = "hard", at_least: float = 0.0, confidence: float = 1.0
    ) -> Document:
        """Return the document with every event labelled.

        Args:
            document: The document.
            mode, at_least, confidence: As for `label`.
        """
        labelled = [self.label(event, mode, at_least, confidence) for event in document.events]
        return replace(document, events=labelled)


def _unless(given: float | None, otherwise: float) -> float:
    return otherwise if given is None else given


def _event_pos(event: Event) -> str | None:
    pos = (event.extra or {}).get("pos")
    return _POS.get(pos.lower(), pos.lower()) if isinstance(pos, str) else None


def _key(predicate: str) -> str:
    """Return one spelling for "carry out", "carry_out" and "carry-out"."""
    return "-".join(re.split(r"[\s_-]+", predicate.strip().lower()))


@lru_cache(maxsize=65536)
def _candidates(predicate: str) -> tuple[str, ...]:
    """Return the forms under which a predicate may be listed: as it stands, then its possible lemmas.

    Of several words, the first is inflected in a verb with a particle (carried-out), the last in a compound noun
    (hunger-strikes).
    """
    key = _key(predicate)
    first, *rest = key.split("-")
    forms = [key, *("-".join([lemma, *rest]) for lemma in _lemmas(first))]
    if rest:
        forms += ["-".join([first, *rest[:-1], lemma]) for lemma in _lemmas(rest[-1])]
    return tuple(dict.fromkeys(forms))


def _lemmas(word: str) -> list[str]:
    """Return possible lemmas: the lemmatiser's, then those that irregular and regular verb endings allow.

    The lemmatiser does not know that a word is a verb, and leaves "left" and "living" as they are.
    """
    if not word:
        return []
    try:
        import simplemma
    except ImportError:
        raise missing_extra("text", "looking predicates up in a lexicon") from None
    found = [str(simplemma.lemmatize(word, lang="en")).lower()]
    found += [_PASTS[word]] if word in _PASTS else []
    for ending in ("ing", "ed", "es", "s"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 1:
            found += [stem, stem + "e"]
            found += [stem[:-1]] if stem[-1] == stem[-2] else []
            found += [stem[:-1] + "y"] if stem[-1] == "i" else []
    return found


# ---- CSV tables ------------------------------------------------------------------------------------------


def _from_csv(path: str | Path) -> Iterator[tuple[str, str, str, float]]:
    name = display_name(path)
    rows = csv.reader(_readable_lines(path))
    columns: list[str] = []
    try:
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if not columns:
                columns = _header(row, name, rows.line_num)
                continue
            if len(row) != len(columns):
                raise InputError(f"expected {len(columns)} columns, found {len(row)}", name, rows.line_num)
            yield _sense(dict(zip(columns, (cell.strip() for cell in row), strict=True)), name, rows.line_num)
    except csv.Error as error:
        raise InputError(f"not CSV: {error}", name, rows.line_num) from None
    if not columns:
        raise InputError(f"the file is empty: {_LAYOUTS}", name)


def _readable_lines(path: str | Path) -> Iterator[str]:
    for _, text in lines(path):
        if isinstance(text, InputError):
            raise text
        yield text


def _header(row: list[str], path: str, line: int) -> list[str]:
    columns = [cell.strip().lower() for cell in row]
    missing = [name for name in _REQUIRED if name not in columns]
    if missing:
        found = ", ".join(cell[:40] for cell in columns[:8])
        raise InputError(f"expected the columns {' and '.join(_REQUIRED)} in the header, found {found}", path, line)
    doubled = next((name for name in columns if name and columns.count(name) > 1), None)
    if doubled is not None:
        raise InputError(f"the column {doubled} stands there more than once", path, line)
    return columns


def _sense(cells: Mapping[str, str], path: str, line: int) -> tuple[str, str, str, float]:
    for name in _REQUIRED:
        if not cells[name]:
            raise InputError("expected text, found nothing", path, line, name)
    given = cells.get("weight") or "1"
    try:
        weight = float(given)
    except ValueError:
        weight = math.nan
    if not 0 <= weight < math.inf:
        raise InputError(f"expected a number of 0 or more, found {given[:40]!r}", path, line, "weight")
    return cells["predicate"], cells["frame"], cells.get("pos", ""), weight


# ---- FrameNet, VerbNet, PropBank -------------------------------------------------------------------------


def _is_bulk(name: str) -> bool:
    """Return whether a file holds FrameNet's annotated sentences, which are large and not needed here."""
    return re.search(r"(^|/)(lu|fulltext)/", name) is not None


def _from_xml(folder: Path, name: str) -> Iterator[tuple[str, str, str, float]]:
    """Yield the senses of every frame, class or frameset file of a directory, distinguished by their root elements."""
    root, files = _frame_files(folder)
    if not files:
        raise InputError(f"{_LAYOUTS}, found no such files", name)
    known = 0
    for file, element in _parsed(root, files, name):
        reader = _READERS.get(_tag(element))
        if reader is not None:
            known += 1
            yield from reader(element, file)
    if not known:
        raise InputError(f"{_LAYOUTS}, found other XML", name)


def _frame_files(folder: Path) -> tuple[Path, list[str]]:
    """Find the topmost directory that has one of the layouts, and its files."""
    places = [folder, *sorted(place for place in folder.glob("*") if place.is_dir())]
    for place in [*places, *sorted(place for place in folder.glob("*/*") if place.is_dir())]:
        for pattern in ("frame/*.xml", "frames/*.xml", "*.xml"):
            files = sorted(file.relative_to(place).as_posix() for file in place.glob(pattern))
            if files and not (pattern == "*.xml" and place.name in ("frame", "frames")):
                return place, files
    return folder, []


def _parsed(root: Path, files: list[str], name: str) -> Iterator[tuple[str, Element]]:
    """Parse each file by NLTK's reader, which refuses XML whose entities expand without limit."""
    try:
        from nltk.corpus.reader import XMLCorpusReader
    except ImportError:
        raise missing_extra("text", "reading FrameNet, VerbNet or PropBank") from None
    with _authorised(root):
        corpus = XMLCorpusReader(str(root.resolve()), files)
        for file in files:
            where = f"{name}: {file}"
            try:
                yield where, corpus.xml(file)
            except ParseError as error:
                raise InputError(f"broken XML: {error}", where, error.position[0]) from None
            except (OSError, ValueError, LookupError) as error:
                raise InputError(f"can't be read: {str(error)[:300]}", where) from None


@contextmanager
def _authorised(root: Path) -> Iterator[None]:
    """Add the directory to those that NLTK may read, while the block runs."""
    import nltk.data

    place = str(root.resolve())
    nltk.data.path.append(place)
    try:
        yield
    finally:
        nltk.data.path.remove(place)


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def _named(element: Element, attribute: str, file: str) -> str:
    value = (element.get(attribute) or "").strip()
    if not value:
        raise InputError(f"expected <{_tag(element)}> with the attribute {attribute}, found none", file)
    return value


def _framenet(frame: Element, file: str) -> Iterator[tuple[str, str, str, float]]:
    for unit in frame:
        if _tag(unit) == "lexUnit" and unit.get("status") != "Problem":  # as NLTK does
            lemma, _, pos = _named(unit, "name", file).rpartition(".")
            counts = [child.get("annotated", "") for child in unit if _tag(child) == "sentenceCount"]
            annotated = int(counts[0]) if counts and re.fullmatch(r"[0-9]{1,9}", counts[0]) else 0
            yield lemma or pos, _named(frame, "name", file), pos if lemma else "", annotated + 1.0


def _verbnet(top: Element, file: str) -> Iterator[tuple[str, str, str, float]]:
    """Yield each verb with the class or subclass that lists it."""
    for element in top.iter():
        if element.tag in ("VNCLASS", "VNSUBCLASS"):
            for member in element.iterfind("MEMBERS/MEMBER"):
                yield _named(member, "name", file), _named(element, "ID", file), "v", 1.0


def _propbank(frameset: Element, file: str) -> Iterator[tuple[str, str, str, float]]:
    """Yield each roleset with its predicate or, in later releases, its aliases."""
    for predicate in frameset.iterfind("predicate"):
        for roleset in predicate.iterfind("roleset"):
            identity = _named(roleset, "id", file)
            words = {(_named(predicate, "lemma", file), "v")}
            aliases = [(alias.text or "", alias.get("pos") or "v") for alias in roleset.iterfind("aliases/alias")]
            words = {(word.strip(), pos) for word, pos in aliases if word.strip()} or words
            for word, pos in sorted(words):
                yield word, identity, pos, 1.0


_READERS: dict[str, Any] = {"frame": _framenet, "VNCLASS": _verbnet, "frameset": _propbank}
