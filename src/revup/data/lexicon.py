"""Lexicons: FrameNet, VerbNet, PropBank or a table of the user's lists the frames that a predicate may evoke.

An entry is one fact about a predicate: the true frame is probably among its frames. Models use it as pseudo-counts, in
training and at prediction.

    p(frame | predicate) = weight(predicate, frame) / Σ_f weight(predicate, f)

The weight of a sense is that of the table; in FrameNet the number of its annotated sentences plus one (a sense without
annotation is rare, not impossible); and 1 in VerbNet and PropBank, which have no weights.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError

import numpy as np

from revup.data.inflection import lemmas
from revup.data.sparse_table import Table
from revup.errors import InputError, missing_extra
from revup.io.archives import is_archive, unpacked
from revup.io.files import atomic_file, display_name, lines

LONGEST_CELL = 131_072  # characters
_LAYOUTS = (
    "expected a CSV table with a header, or a directory or archive of FrameNet (frame/*.xml), PropBank (frames/*.xml) "
    "or VerbNet (*.xml)"
)
_POS = {"verb": "v", "noun": "n", "adj": "a", "adjective": "a", "j": "a", "adverb": "adv", "l": "v"}
_REQUIRED = ("predicate", "frame")
_VERBNET = re.compile(r"([a-z_]+-[0-9]+(?:\.[0-9]+)*)(?:-[0-9]+)*")


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
        """The names of all frames that some predicate may have, sorted."""
        return sorted({frame for senses in self.entries.values() for (frame, _), weight in senses.items() if weight})

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

    # ---- as a table of entries ---------------------------------------------------------------------------------

    @cached_property
    def keys(self) -> list[tuple[str, str]]:
        """The entries, sorted: (predicate, "") for all its senses, and (predicate, part of speech) for those of one."""
        found = {(predicate, "") for predicate in self.entries}
        found |= {(predicate, pos) for predicate, senses in self.entries.items() for _, pos in senses if pos}
        return sorted(found)

    @cached_property
    def _numbers(self) -> dict[tuple[str, str], int]:
        return {key: number for number, key in enumerate(self.keys)}

    def entry(self, predicate: str, pos: str | None = None) -> int:
        """Return the number of a predicate's entry in `keys`, or -1 without one.

        Args:
            predicate: The predicate; looked up as it stands, then by its lemma.
            pos: Its part of speech ("v", "n", …). An entry without senses of it is ignored.
        """
        part = None if pos is None else _POS.get(pos.lower(), pos.lower())
        for key in _candidates(predicate):
            if part is not None and any(sense_pos == "" for _, sense_pos in self.entries.get(key, ())):
                part = None  # senses without a part of speech fit any
            found = self._numbers.get((key, part or ""))
            if found is not None:
                return found
        return -1

    def table(self, frames: Sequence[str]) -> Table:
        """Return the weights of frames by entry, [entries, K]; those of an entry sum to 1, or to 0 if none is listed.

        Args:
            frames: The frame list; senses that are not in it are left out.
        """
        number = {frame: place for place, frame in enumerate(frames)}
        rows: list[int] = []
        columns: list[int] = []
        weights: list[float] = []
        for row, (predicate, part) in enumerate(self.keys):
            for (frame, pos), weight in self.entries[predicate].items():
                if weight and frame in number and part in ("", pos):
                    rows.append(row)
                    columns.append(number[frame])
                    weights.append(weight)
        table = Table(np.array(rows, np.int64), np.array(columns, np.int64), np.array(weights), len(frames))
        table.value /= table.sums(len(self.keys))[table.row]
        return table

    def renamed(self, frames: Mapping[str, str | None]) -> Lexicon:
        """Return the lexicon with frames renamed, merged or left out (None); entries keep their numbers.

        Args:
            frames: Old name → new name; frames that are not in it stay as they are.
        """
        entries: dict[str, dict[tuple[str, str], float]] = {}
        for predicate, senses in self.entries.items():
            merged = entries.setdefault(predicate, {})
            for (frame, pos), weight in senses.items():
                new = frames.get(frame, frame)
                sense = (frame if new is None else new, pos)
                merged[sense] = merged.get(sense, 0.0) + (0.0 if new is None else weight)
        return Lexicon(entries)

    def as_named_by(self, frames: Iterable[str]) -> Lexicon:
        """Return the lexicon with VerbNet's subclasses counted for their class, where a corpus names classes.

        Args:
            frames: The frames that the corpus names.
        """
        named = set(frames)
        if any(_class_of(frame) != frame for frame in named):
            return self
        subclasses = {frame: _class_of(frame) for frame in self.frames if _class_of(frame) != frame}
        return self.renamed(subclasses) if named.intersection(subclasses.values()) else self

    def write(self, path: Path) -> None:
        """Write the lexicon as CSV, every entry included."""
        with atomic_file(path, "w") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(("predicate", "pos", "frame", "weight"))
            for predicate in sorted(self.entries):
                for (frame, pos), weight in sorted(self.entries[predicate].items()):
                    writer.writerow((predicate, pos, frame, repr(weight)))


def _class_of(frame: str) -> str:
    """Return the VerbNet class of a subclass: run-51.3.2-1-1 → run-51.3.2; any other name as it is."""
    match = _VERBNET.fullmatch(frame)
    return match[1] if match else frame


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
    forms = [key, *("-".join([lemma, *rest]) for lemma in lemmas(first))]
    if rest:
        forms += ["-".join([first, *rest[:-1], lemma]) for lemma in lemmas(rest[-1])]
    return tuple(dict.fromkeys(forms))


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
            if max(map(len, row)) > LONGEST_CELL:  # whatever limit other readers have set for the module csv
                raise InputError(f"not CSV: field larger than field limit ({LONGEST_CELL})", name, rows.line_num)
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
