"""Events from predicates and their labelled spans, for the readers of what other tools write.

A record is a line of JSON, or all lines of a file that is one document (`options.document`). `sentences` cuts it into
the JSON objects of its sentences; `Sentence` has the words of one and turns a predicate with its arguments into an
event: slots follow from roles that tell (ARG0, agent: subject; ARG1, patient: object), else from the preposition before
an argument, else from its place, where a passive turns subject and object around.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from revup.data.events import Document, default_document_id, document_from_json, json_from_line, json_kind
from revup.data.readers import Options, Record, line_records
from revup.data.readers.english import joined
from revup.data.readers.spans import TaggedWords
from revup.errors import InputError
from revup.io.files import LONGEST_LINE, display_name

_SUBJECT = frozenset(("arg0", "a0", "agent"))
_OBJECT = frozenset(("arg1", "a1", "patient"))
_TIMES = ("argm-tmp", "tmp", "time", "duration", "frequency")
_SKIPPED = re.compile(r"[rc]-|argm-(?:adj|adv|dis|mod|neg|prr|rec|lvb)$|v$|pred$")  # no participants of the event
# fmt: off
_BE = frozenset(("be", "am", "is", "are", "was", "were", "been", "being", "'s", "'re", "'m", "’s", "’re", "’m"))
_AUXILIARIES = frozenset((
    "have", "has", "had", "having", "do", "does", "did", "will", "would", "can", "could", "may", "might", "shall",
    "should", "must", "wo", "ca", "'ve", "'d", "'ll", "’ve", "’d", "’ll",
))
# fmt: on
LONGEST_SENTENCE = 1_000_000  # characters; where arguments are looked for in the text, it is a sentence indeed
LONGEST_SEARCHED = 20_000
_WORD = re.compile(r"\w+(?:[-.'’]\w+)*|[^\w\s]")


class Argument(NamedTuple):
    """A role and the words that fill it."""

    role: str
    words: Sequence[int]


class Place(NamedTuple):
    """Where a sentence stands: what errors name."""

    path: str
    line: int
    field: str = ""

    def at(self, field: str | int) -> Place:
        """Return the place of a member."""
        inner = f"[{field}]" if isinstance(field, int) else f".{field}" if self.field else field
        return self._replace(field=self.field + inner)

    def error(self, expected: str, found: object) -> InputError:
        """Return the error of a wrong value."""
        return InputError(f"expected {expected}, found {json_kind(found)}", self.path, self.line, self.field)

    def member(
        self, data: dict[str, Any], key: str, kind: type | tuple[type, ...], expected: str, optional: bool = False
    ) -> Any:
        """Return a member of an object, checked; None where it is absent and optional."""
        value = data.get(key)
        if (value is None and optional) or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        if key not in data:
            raise InputError(f"expected {expected}, found nothing", self.path, self.line, self.at(key).field)
        raise self.at(key).error(expected, value)

    def words(self, data: dict[str, Any], key: str) -> list[str]:
        """Return a member that is a list of words."""
        found: list[Any] = self.member(data, key, list, "a list of words")
        for number, word in enumerate(found):
            if not isinstance(word, str):
                raise self.at(key).at(number).error("a word", word)
        return found


# ---- records ---------------------------------------------------------------------------------------------


def json_records(path: str, options: Options) -> Iterator[Record]:
    """Yield a record a line, or one for the whole file: lists of lines with their numbers."""
    if options.document == "line":
        for record in line_records(path, options):
            wrong = isinstance(record.data, InputError)
            yield record if wrong else record._replace(data=[(record.line, record.data)])
        return
    name, size = display_name(path), 0
    kept: list[tuple[int, str]] = []
    for record in line_records(path, options):
        size += 0 if isinstance(record.data, InputError) else len(record.data)
        if size > LONGEST_LINE:
            message = f"the file is longer than {LONGEST_LINE // 2**20} MiB: too long for one document"
            record = record._replace(data=InputError(message, name, record.line))
        if isinstance(record.data, InputError):
            yield record
            return
        kept.append((record.line, record.data))
    if kept:
        yield Record(name, kept[0][0], kept)


def sentences(record: Record) -> Iterator[tuple[dict[str, Any], Place]]:
    """Yield the objects of a record: a line holds one, or a list of them."""
    for line, text in record.data:
        place = Place(record.path, line)
        data = json_from_line(text, record.path, line)
        for number, item in enumerate(data) if isinstance(data, list) else [(None, data)]:
            where = place if number is None else place.at(number)
            if not isinstance(item, dict):
                raise where.error("an object", item)
            yield item, where


def document(record: Record, found: Sequence[tuple[dict[str, Any], list[dict[str, Any]]]]) -> Document:
    """Make the document of a record.

    Args:
        record: The record.
        found: Its objects, of which the first may have an `id`, and their events in the JSON form.
    """
    identity = found[0][0].get("id") if found else None
    default = default_document_id(record.path, record.line)
    events = [event for _, events in found for event in events]
    if not isinstance(identity, (str, int)) or isinstance(identity, bool):
        identity = None
    return document_from_json({"id": identity, "events": events}, default, record.path, record.line)


# ---- sentences -------------------------------------------------------------------------------------------


class Sentence:
    """The words of a sentence, its text, and where each word begins in it.

    Args:
        words: The words.
        tags: Their parts of speech, if they are known.
        text: The text that the words stand in; by default they are joined by blanks.
        starts: Where they begin in it.
    """

    def __init__(
        self,
        words: Sequence[str],
        tags: Sequence[str] | None = None,
        text: str | None = None,
        starts: Sequence[int] | None = None,
    ) -> None:
        self.words = TaggedWords(words, tags)
        if text is None or starts is None:
            text, starts, at = " ".join(words), [], 0
            for word in words:
                starts.append(at)
                at += len(word) + 1
        self.text, self.starts = text, list(starts)

    @classmethod
    def of_text(cls, text: str, place: Place, longest: int = LONGEST_SENTENCE) -> Sentence:
        """Cut a text into words.

        Args:
            text: The text.
            place: What the error of a text names that is too long.
            longest: The largest number of characters.
        """
        if len(text) > longest:
            raise InputError(f"expected at most {longest} characters, found {len(text)}", *place)
        found = list(_WORD.finditer(text))
        return cls([match[0] for match in found], None, text, [match.start() for match in found])

    def within(self, start: int, end: int) -> list[int]:
        """Return the words that lie in a range of characters, at least in part."""
        first, last = bisect_right(self.starts, start) - 1, bisect_left(self.starts, end)
        if first < 0 or self.starts[first] + len(self.words.words[first]) <= start:
            first += 1
        return list(range(first, last))

    def find(self, text: str, near: int) -> list[int]:
        """Return the words of a text that stands in the sentence, of several the one nearest to a character."""
        places = [match.start() for match in re.finditer(re.escape(text), self.text)] if text else []
        if not places:
            return []
        start = min(places, key=lambda place: min(abs(place - near), abs(place + len(text) - near)))
        return self.within(start, start + len(text))

    def event(self, predicate: Sequence[int], arguments: Sequence[Argument], **keys: Any) -> dict[str, Any] | None:
        """Return the JSON form of an event; None for auxiliaries, forms of "be", and predicates without a letter.

        Args:
            predicate: The words of the predicate.
            arguments: Its arguments, in any order.
            **keys: Further keys of the event; None is left out.
        """
        words, inside = self.words, set(predicate)
        parts = [words.words[index] for index in predicate if any(map(str.isalnum, words.words[index]))]
        filled = [each for each in arguments if each.words and not inside.issuperset(each.words)]
        told = [each for each in filled if not _SKIPPED.match(each.role.lower())]
        only = parts[0].lower() if len(parts) == 1 else ""
        if not parts or only in _BE or (only in _AUXILIARIES and not told):
            return None
        event: dict[str, Any] = {"pred": joined(parts), **self._slots(predicate, told)}
        if any(each.role.lower() in ("argm-neg", "neg") for each in filled):
            event["negated"] = True
        start, last = self.starts[predicate[0]], predicate[-1]
        event |= {"text": self.text, "span": [start, self.starts[last] + len(words.words[last])]}
        return event | {key: value for key, value in keys.items() if value is not None}

    def _slots(self, predicate: Sequence[int], arguments: Sequence[Argument]) -> dict[str, str]:
        slots: dict[str, str] = {}
        passive = self.words.is_passive(predicate[-1])
        behind: list[tuple[bool, int, str, str]] = []  # prepositional: is a time, where, preposition, noun
        for role, span in sorted(arguments, key=lambda argument: argument.words[0]):
            head = self.words.head(span)
            if head is None:
                continue
            name, word = role.lower(), joined([self.words.words[head]])
            first = self.words.words[span[0]].lower()
            prepositional = len(span) > 1 and self.words.is_preposition(span[0])
            if name in _SUBJECT or (passive and prepositional and first == "by" and name not in _OBJECT):
                slots.setdefault("subj", word)
            elif name in _OBJECT:
                slots.setdefault("obj", word)
            elif prepositional:
                behind.append((name.startswith(_TIMES), span[0], first, word))
            elif not name.startswith(("argm-", *_TIMES)):
                slots.setdefault("subj" if (span[0] < predicate[0]) != passive else "obj", word)
        if behind:
            _, _, slots["mod"], noun = min(behind)
            slots.setdefault("obj", noun)
        return {slot: slots[slot] for slot in ("subj", "obj", "mod") if slot in slots}
