"""Frame knowledge from a lexicon: FrameNet, VerbNet, PropBank or a user's own table says which frames a predicate
may evoke, and events are labelled with one of them (hard) or with all of them by weight (soft).

    p(frame | predicate) = weight(predicate, frame) / Σ_f weight(predicate, f)

The weight of a sense is what a table gives, in FrameNet the number of its annotated sentences plus one (a sense
that nobody annotated is rare, not impossible), and 1 in VerbNet and PropBank, which give none.
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
# pasts that are words of their own, or that the lemmatiser gets wrong
_PASTS = {"bore": "bear", "born": "bear", "bent": "bend", "bound": "bind", "bit": "bite", "broke": "break"}
_PASTS |= {"drunk": "drink", "felt": "feel", "gone": "go", "ground": "grind", "left": "leave", "rung": "ring"}
_PASTS |= {"rose": "rise", "shook": "shake", "shot": "shoot", "swore": "swear", "thought": "think", "won": "win"}
_PASTS |= {"wound": "wind"}
_REQUIRED = ("predicate", "frame")


@dataclass(frozen=True)
class Lexicon:
    """Predicates, their parts of speech and their senses."""

    entries: Mapping[str, Mapping[tuple[str, str], float]]  # predicate → (frame, part of speech or "") → weight

    @classmethod
    def load(cls, path: str | Path) -> Lexicon:
        """Read a user's copy: a CSV file `predicate,frame[,pos][,weight]`, or a FrameNet, VerbNet or PropBank."""
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
        return sorted({frame for senses in self.entries.values() for frame, _ in senses})

    def senses(self, predicate: str, pos: str | None = None) -> dict[str, float]:
        """p(frame | predicate), most likely first; empty where the lexicon does not know the predicate.

        An inflected predicate is looked up as it stands, then by its lemma. `pos` ("v", "n", …) leaves out senses of
        another part of speech.
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
        """The event with what the lexicon knows of it; what it carries already is never overwritten.

        hard: `frame` becomes the likeliest sense where there is none, if its share is `at_least` so much (1: only
        predicates with a single sense), and `confidence` that share. soft: `frames` becomes the distribution over
        senses where there is none; a reference `frame` stays beside it. `confidence` says how far the lexicon itself
        is to be trusted, and multiplies.
        """
        if mode not in ("hard", "soft"):
            raise RevupError(f"unknown way to label '{mode}': hard or soft")
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
        labelled = [self.label(event, mode, at_least, confidence) for event in document.events]
        return replace(document, events=labelled)


def _unless(given: float | None, otherwise: float) -> float:
    return otherwise if given is None else given


def _event_pos(event: Event) -> str | None:
    pos = (event.extra or {}).get("pos")
    return _POS.get(pos.lower(), pos.lower()) if isinstance(pos, str) else None


def _key(predicate: str) -> str:
    """One spelling for "carry out", "carry_out" and "carry-out"."""
    return "-".join(re.split(r"[\s_-]+", predicate.strip().lower()))


@lru_cache(maxsize=65536)
def _candidates(predicate: str) -> tuple[str, ...]:
    """The forms under which a predicate may be listed: as it stands, then its possible lemmas.

    Of joined words the first is inflected in a verb with its particle (carried-out), the last in a compound noun
    (hunger-strikes).
    """
    key = _key(predicate)
    first, *rest = key.split("-")
    forms = [key, *("-".join([lemma, *rest]) for lemma in _lemmas(first))]
    if rest:
        forms += ["-".join([first, *rest[:-1], lemma]) for lemma in _lemmas(rest[-1])]
    return tuple(dict.fromkeys(forms))


def _lemmas(word: str) -> list[str]:
    """The lemmatiser's answer, then what irregular pasts and regular endings allow: it does not know whether a word is
    a verb, and leaves "left" and "living" as they are."""
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


# ---- a user's table --------------------------------------------------------------------------------------


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
        raise InputError(f"the column {doubled} is there more than once", path, line)
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
    """FrameNet's annotated sentences: a thousand times its frames, and not needed here."""
    return re.search(r"(^|/)(lu|fulltext)/", name) is not None


def _from_xml(folder: Path, name: str) -> Iterator[tuple[str, str, str, float]]:
    """The senses in every frame file, class file or frameset of a directory, told apart by their root elements."""
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
    """The directory nearest to the top that holds one of the layouts, and its files."""
    places = [folder, *sorted(place for place in folder.glob("*") if place.is_dir())]
    for place in [*places, *sorted(place for place in folder.glob("*/*") if place.is_dir())]:
        for pattern in ("frame/*.xml", "frames/*.xml", "*.xml"):
            files = sorted(file.relative_to(place).as_posix() for file in place.glob(pattern))
            if files and not (pattern == "*.xml" and place.name in ("frame", "frames")):
                return place, files
    return folder, []


def _parsed(root: Path, files: list[str], name: str) -> Iterator[tuple[str, Element]]:
    """Each file through NLTK's reader, which refuses XML that could grow without end."""
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
    """NLTK reads only below the directories it was told of; the user named this one."""
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
        if _tag(unit) == "lexUnit" and unit.get("status") != "Problem":  # NLTK leaves these out as well
            lemma, _, pos = _named(unit, "name", file).rpartition(".")
            counts = [child.get("annotated", "") for child in unit if _tag(child) == "sentenceCount"]
            annotated = int(counts[0]) if counts and re.fullmatch(r"[0-9]{1,9}", counts[0]) else 0
            yield lemma or pos, _named(frame, "name", file), pos if lemma else "", annotated + 1.0


def _verbnet(top: Element, file: str) -> Iterator[tuple[str, str, str, float]]:
    """A verb belongs to the class or subclass that lists it."""
    for element in top.iter():
        if element.tag in ("VNCLASS", "VNSUBCLASS"):
            for member in element.iterfind("MEMBERS/MEMBER"):
                yield _named(member, "name", file), _named(element, "ID", file), "v", 1.0


def _propbank(frameset: Element, file: str) -> Iterator[tuple[str, str, str, float]]:
    """A roleset belongs to the predicate around it and, in later releases, to its aliases."""
    for predicate in frameset.iterfind("predicate"):
        for roleset in predicate.iterfind("roleset"):
            identity = _named(roleset, "id", file)
            words = {(_named(predicate, "lemma", file), "v")}
            aliases = [(alias.text or "", alias.get("pos") or "v") for alias in roleset.iterfind("aliases/alias")]
            words = {(word.strip(), pos) for word, pos in aliases if word.strip()} or words
            for word, pos in sorted(words):
                yield word, identity, pos, 1.0


_READERS: dict[str, Any] = {"frame": _framenet, "VNCLASS": _verbnet, "frameset": _propbank}
