"""Editing frames in a line of JSON: the result says what json says, and nothing else of the text changes."""

from __future__ import annotations

import json
import os
import re
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from revup.auditing.edit import set_frames

OPEN, CLOSE = "\ue000", "\ue001"  # around the values that may be changed, while a line is made up
TEXT = st.text(st.characters(exclude_categories=("Cs", "Co")), max_size=6)
NAMES = st.one_of(TEXT, st.sampled_from(["A", "Verdict", "<b>", '"', "\\", "a,b]}", "é", "😀", "\u2028"]))
KEYS = st.one_of(TEXT, st.sampled_from(["pred", "frames", "events", "Frame", "{", '"frame"']))
BLANKS = st.sampled_from(["", " ", "  ", "\t", " \r "])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.lists(st.tuples(KEYS, inner), max_size=3)),
    max_leaves=6,
)
THOROUGH = settings(
    deadline=None, max_examples=int(os.environ.get("EXAMPLES", "200")), suppress_health_check=list(HealthCheck)
)


class Frame(NamedTuple):
    """The value of an event's effective `frame`."""

    value: Any


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> str:
    """A value as JSON, spelled in any of the allowed ways; an object is a list of pairs, so keys may stand twice."""

    def blank() -> str:
        return draw(BLANKS)

    if isinstance(value, Frame):
        return OPEN + draw(spelled(value.value)) + CLOSE
    if isinstance(value, list) and value and all(type(item) is tuple for item in value):
        members = [f"{blank()}{draw(spelled(k))}{blank()}:{blank()}{draw(spelled(v))}{blank()}" for k, v in value]
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(f"{blank()}{draw(spelled(item))}{blank()}" for item in value) + "]"
    if isinstance(value, str):
        escape = draw(st.booleans())
        return '"' + "".join(_letter(letter, escape) for letter in value) + '"'
    return json.dumps(value)


def _letter(letter: str, escape: bool) -> str:
    if escape and letter.isalpha() and ord(letter) < 2**16:
        return f"\\u{ord(letter):04X}"
    return json.dumps(letter, ensure_ascii=False)[1:-1]


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, list[bool], dict[int, str | None]]:
    """A line with marked frames, which events have one, and changes of some of them."""
    events, framed = [], []
    for _ in range(draw(st.integers(1, 4))):
        members: list[tuple[str, Any]] = [("pred", draw(NAMES)), *draw(st.lists(st.tuples(KEYS, VALUES), max_size=3))]
        members = draw(st.permutations(members))
        framed.append(draw(st.booleans()))
        if framed[-1]:
            members.insert(draw(st.integers(0, len(members))), ("frame", Frame(draw(VALUES))))
            if draw(st.booleans()):  # an earlier one, which does not count
                members.insert(0, ("frame", draw(VALUES)))
        events.append(members)
    others = draw(st.lists(st.tuples(KEYS, VALUES), max_size=2))
    after = [pair for pair in draw(st.lists(st.tuples(KEYS, VALUES), max_size=2)) if pair[0] != "events"]
    changes = draw(st.dictionaries(st.integers(0, len(events) - 1), st.one_of(st.none(), NAMES), max_size=3))
    line = draw(BLANKS) + draw(spelled([*others, ("events", events), *after]))
    return line + draw(st.sampled_from(["", "\n", "\r\n", "  \n"])), framed, changes


def plain(line: str) -> str:
    return line.replace(OPEN, "").replace(CLOSE, "")


@given(lines())
@THOROUGH
def test_edited_line_says_what_json_says(case: tuple[str, list[bool], dict[int, str | None]]) -> None:
    line, _, changes = case
    expected = json.loads(plain(line))
    for index, frame in changes.items():
        expected["events"][index]["frame"] = frame
    found = json.loads(set_frames(plain(line), changes))
    assert found == expected
    assert [list(event) for event in found["events"]] == [list(event) for event in expected["events"]]


@given(lines())
@THOROUGH
def test_every_other_character_stays(case: tuple[str, list[bool], dict[int, str | None]]) -> None:
    line, framed, changes = case
    changes = {index: frame for index, frame in changes.items() if framed[index]}
    events = iter([index for index, has in enumerate(framed) if has])

    def put(match: re.Match[str]) -> str:
        index = next(events)
        ascii_only = "\\u" in plain(line) and plain(line).isascii()
        return json.dumps(changes[index], ensure_ascii=ascii_only) if index in changes else match[1]

    assert set_frames(plain(line), changes) == re.sub(f"{OPEN}(.*?){CLOSE}", put, line, flags=re.S)


@given(lines())
@THOROUGH
def test_added_key_is_all_that_is_added(case: tuple[str, list[bool], dict[int, str | None]]) -> None:
    line, framed, changes = case
    for index, frame in changes.items():
        if not framed[index]:
            edited = set_frames(plain(line), {index: frame})
            before = next(at for at, (new, old) in enumerate(zip(edited, plain(line), strict=False)) if new != old)
            rest = plain(line)[before:]
            assert edited.endswith(rest)
            assert re.match(r',\s*"frame"\s*:\s*(null|".*")$', edited[before : len(edited) - len(rest)], re.S)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"events": [{"pred": "a", "frame": "A"}]}\n', '{"events": [{"pred": "a", "frame": "X"}]}\n'),
        ('{"events":[{"pred":"a","frame":null,"x":1.50}]}', '{"events":[{"pred":"a","frame":"X","x":1.50}]}'),
        ('{"events":[{"pred":"a"}]}', '{"events":[{"pred":"a","frame":"X"}]}'),
        ('{"events": [{"pred": "a"}]}', '{"events": [{"pred": "a", "frame": "X"}]}'),
        (
            '{"events": [{ "pred" : "a" ,  "subj" : "b" }]}',
            '{"events": [{ "pred" : "a" ,  "subj" : "b",  "frame" : "X" }]}',
        ),
        ('{"events": [{"frame": "A", "frame": "B"}]}', '{"events": [{"frame": "A", "frame": "X"}]}'),
        ('{"events": [], "events": [{"fr\\u0061me": "B"}]}', '{"events": [], "events": [{"fr\\u0061me": "X"}]}'),
        (
            '{"x": {"events": [{"frame": 1}]}, "events": [{"frame": {"frame": 2}}]}',
            '{"x": {"events": [{"frame": 1}]}, "events": [{"frame": "X"}]}',
        ),
    ],
)
def test_spacing_and_doubled_keys(line: str, expected: str) -> None:
    assert set_frames(line, {0: "X"}) == expected


def test_letters_are_written_as_in_the_line() -> None:
    assert set_frames('{"events": [{"frame": "\\u00e9"}]}', {0: "É"}) == '{"events": [{"frame": "\\u00c9"}]}'
    assert set_frames('{"events": [{"frame": "é"}]}', {0: "É"}) == '{"events": [{"frame": "É"}]}'
    assert set_frames('{"events": [{"frame": "E"}]}', {0: "É"}) == '{"events": [{"frame": "É"}]}'
