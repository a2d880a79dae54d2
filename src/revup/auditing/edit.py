"""Change the frames of events in a line of JSON and leave every other character as it is.

The line is not written anew: the place of each value is found in the text, and only that place is replaced. Python's
JSON decoder finds where a value ends, so that this agrees with what readers of the line see. Where a key stands twice
in an object, the last one counts, as everywhere in Python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_value = json.JSONDecoder().raw_decode
_space = re.compile(r"[ \t\n\r]*").match


class Member(NamedTuple):
    """Where a member of an object stands in the text: its key's end, its value's start and end."""

    key: str
    colon: int
    start: int
    end: int


def set_frames(line: str, frames: Mapping[int, str | None]) -> str:
    """Return a document's line with the `frame` of some events replaced.

    Args:
        line: The document as one valid JSON object; what surrounds it (blanks, a line end) stays.
        frames: The index of an event → its new frame; None becomes null. Where an event has no `frame`, the key is
            added behind its other keys, spaced as they are.

    Raises:
        IndexError: There is no such event.
    """
    events = _last(_members(line, _skip(line, 0)), "events")
    objects = list(_items(line, events.start)) if events else []
    changes: list[tuple[int, int, str]] = []
    for index, frame in frames.items():
        start = objects[index]
        members = list(_members(line, start))
        known, value = _last(iter(members), "frame"), _json(frame, line)
        if known is not None:
            changes.append((known.start, known.end, value))
        else:
            end = members[-1].end
            changes.append(
                (end, end, f",{_after_comma(line, members)}{_json('frame', line)}{_colon(line, members)}{value}")
            )
    for start, end, text in sorted(changes, reverse=True):
        line = line[:start] + text + line[end:]
    return line


def _members(text: str, start: int) -> Iterator[Member]:
    """Yield the members of the object that begins at `start`."""
    at = _skip(text, start + 1)
    while text[at] != "}":
        if text[at] == ",":
            at = _skip(text, at + 1)
        key, colon = _value(text, at)
        first = _skip(text, _skip(text, colon) + 1)
        _, end = _value(text, first)
        yield Member(key, colon, first, end)
        at = _skip(text, end)


def _items(text: str, start: int) -> Iterator[int]:
    """Yield where each item of the list that begins at `start` begins."""
    at = _skip(text, start + 1)
    while text[at] != "]":
        if text[at] == ",":
            at = _skip(text, at + 1)
        yield at
        at = _skip(text, _value(text, at)[1])


def _skip(text: str, at: int) -> int:
    found = _space(text, at)
    return found.end() if found else at


def _last(members: Iterator[Member], key: str) -> Member | None:
    found = None
    for member in members:
        if member.key == key:
            found = member
    return found


def _json(value: str | None, line: str) -> str:
    """A value as JSON, in the line's own way of writing letters outside ASCII."""
    return json.dumps(value, ensure_ascii="\\u" in line and line.isascii())


def _colon(text: str, members: list[Member]) -> str:
    return text[members[-1].colon : members[-1].start]


def _after_comma(text: str, members: list[Member]) -> str:
    """The blanks between a comma and the next key; those after the colon where there is only one key."""
    if len(members) < 2:
        return " " if _colon(text, members).endswith(" ") else ""
    at = text.index(",", members[-2].end) + 1
    return text[at : _skip(text, at)]
