"""The list of issues that `revup audit` writes and `revup review` shows: labels, most suspicious first.

`ISSUES.jsonl` has one JSON object a line, with the keys of `REQUIRED` and, where they are known, those of `OPTIONAL`.
`ISSUES.about.json` beside it says what the list was made from: the file and the SHA-256 of its contents, all frames,
and the figures of the audit. `ISSUES.decisions.jsonl` holds what a reviewer decided (revup.data.decisions).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from revup.data.events import SLOTS, Document, Event, json_from_line, json_kind
from revup.errors import InputError
from revup.io.files import LARGEST_JSON, display_name, json_problem, lines, open_output, require_file, write_json

VERSION = 1  # of the description beside a list
CONTEXT = 2  # events of the document on either side of an issue's own

REQUIRED = {
    "id": "the document's id",
    "event": "the event's index in the document, from 0 on",
    "pred": "the predicate",
    "given": "the label in question; null where the event has none",
    "p_given": "probability that the given frame is the true one, without its own label",
    "p_wrong": "probability that the label is wrong",
    "proposed": "the frame proposed instead",
    "p_proposed": "its probability",
    "source": "who gave the label",
    "reasons": "why, as a list of sentences",
}
OPTIONAL = {
    "lemma": "the predicate's lemma",
    "subj": "subject",
    "obj": "object",
    "mod": "modifier",
    "text": "the clause or sentence",
    "span": "the predicate's character offsets [start, end) in it",
    "candidates": "the dictionary's entry: frame → weight, or a list of frames",
    "posterior": "the most probable frames: frame → probability",
    "context": "the events around it: event (index), pred, subj, obj, mod, frame, text, span",
}
_TEXTS = ("given", "proposed", "source", "lemma", "subj", "obj", "mod", "text")
_TEXT = (str, type(None))
_PROBABILITIES = ("p_given", "p_wrong", "p_proposed")


@dataclass(frozen=True)
class About:
    """What a list of issues was made from.

    Attributes:
        file: The audited file, as it was named.
        digest: SHA-256 of its contents (`revup.io.digests.content_digest`).
        frames: All frames a reviewer may choose from.
        summary: The figures of the audit, such as `estimated_errors`.
        reading: How the file is read: `format` and the reader's options, as for `revup.read`.
    """

    file: str | None = None
    digest: str | None = None
    frames: Sequence[str] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)
    reading: Mapping[str, Any] = field(default_factory=dict)


class IssueList:
    """A list of issues that was read from a file; its rows are parsed when they are asked for.

    Attributes:
        path: The file.
        about: What it was made from.
        columns: The fields that a reviewer filters and sorts by: name → one value a row.
    """

    COLUMNS = ("id", "event", "pred", "given", "proposed", "p_wrong", "source")

    def __init__(self, path: str, about: About) -> None:
        self.path, self.about = path, about
        self.columns: dict[str, list[Any]] = {name: [] for name in self.COLUMNS}
        self._lines: list[bytes] = []
        self._rows: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, row: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._lines[row])
        return found

    def find(self, identity: str, event: int) -> int | None:
        """Return the row about an event, or None.

        Args:
            identity: The document's id.
            event: The event's index.
        """
        return self._rows.get((identity, event))

    def frames(self) -> list[str]:
        """Return the frames a reviewer may choose from, sorted: those of the audit and those that the rows name."""
        named = (name for key in ("given", "proposed") for name in self.columns[key] if name is not None)
        return sorted({*self.about.frames, *named})

    def add(self, row: Mapping[str, Any], text: str, line: int) -> None:
        """Add a row at the end.

        Args:
            row: The row.
            text: Its JSON.
            line: Its line in the file, which errors name.

        Raises:
            InputError: A field is missing or wrong, or the event is in the list already.
        """
        check_row(row, self.path, line)
        key = (row["id"], row["event"])
        if key in self._rows:
            raise InputError(f"event {key[1]} of document {key[0]!r} is there twice", self.path, line, "event")
        self._rows[key] = len(self._lines)
        self._lines.append(text.encode("utf-8"))
        for name, values in self.columns.items():
            values.append(row[name])


# ---- files -----------------------------------------------------------------------------------------------


def write_issues(
    path: str | Path, rows: Iterable[Mapping[str, Any]], about: About | None = None, force: bool = False
) -> int:
    """Write a list of issues, and beside it what it was made from.

    Args:
        path: The list, usually `NAME.jsonl`; ".gz" is compressed, "-" is standard output (without the file beside it).
        rows: The issues, most suspicious first, with the keys of `REQUIRED`, those of `OPTIONAL`, and any others.
            `describe` makes the optional ones of an event.
        about: What the list was made from.
        force: Replace a list that exists.

    Returns:
        How many issues were written.

    Raises:
        InputError: A row has a missing or wrong field.
        OutputExistsError: The list exists and `force` is false.
    """
    name, count = display_name(path), 0
    with open_output(path, force) as out:
        for row in rows:
            count += 1
            check_row(row, name, count)
            out.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        if str(path) != "-":
            about_path(path).unlink(missing_ok=True)  # a kill now leaves no description of another list
    if about is not None and str(path) != "-":
        write_json(about_path(path), {"version": VERSION, **asdict(about)})
    return count


def read_issues(path: str | Path) -> IssueList:
    """Read a list of issues with what it was made from.

    Args:
        path: The list; ".gz" is decompressed.

    Raises:
        InputError: A line is no issue, or two are about the same event.
    """
    name = display_name(path)
    found = IssueList(name, read_about(path))
    for number, text in lines(path):
        if isinstance(text, InputError):
            raise text
        if text.strip():
            row = json_from_line(text, name, number)
            if not isinstance(row, dict):
                raise InputError(f"expected an issue, found {json_kind(row)}", name, number)
            found.add(row, text.strip(), number)
    if not len(found):
        raise InputError("no issues in it", name)
    return found


def read_about(path: str | Path) -> About:
    """Read what a list of issues was made from; nothing is known where the file beside it is missing.

    Args:
        path: The list of issues.

    Raises:
        InputError: The file beside it is damaged.
    """
    beside = about_path(path)
    try:
        require_file(beside, LARGEST_JSON)
        data = json.loads(beside.read_bytes())
    except FileNotFoundError:
        return About()
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", str(beside)) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {json_problem(error)}", str(beside)) from None
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise InputError(f"expected a description of issues of version {VERSION}", str(beside))
    file, digest, frames = (data.get(key) for key in ("file", "digest", "frames"))
    for key, value in (("file", file), ("digest", digest)):
        if not isinstance(value, _TEXT):
            raise InputError(f"expected text or null, found {json_kind(value)}", str(beside), field=key)
    if not isinstance(frames, list) or not all(isinstance(frame, str) for frame in frames):
        raise InputError("expected a list of frames", str(beside), field="frames")
    for key in ("summary", "reading"):
        if not isinstance(data.get(key), dict):
            raise InputError(f"expected an object, found {json_kind(data.get(key))}", str(beside), field=key)
    return About(file, digest, frames, data["summary"], data["reading"])


def about_path(path: str | Path) -> Path:
    """Return the file that says what a list of issues was made from: `ISSUES.about.json`."""
    return _beside(path, ".about.json")


def decisions_path(path: str | Path) -> Path:
    """Return the file of decisions about a list of issues: `ISSUES.decisions.jsonl`."""
    return _beside(path, ".decisions.jsonl")


def _beside(path: str | Path, ending: str) -> Path:
    name = Path(path).name.removesuffix(".gz")
    return Path(path).with_name(name.removesuffix(".json").removesuffix(".jsonl") + ending)


# ---- rows ------------------------------------------------------------------------------------------------


def check_row(row: Mapping[str, Any], path: str = "", line: int = 0) -> None:
    """Refuse a row that is no issue.

    Args:
        row: The row.
        path, line: The place that errors name.

    Raises:
        InputError: A field is missing or wrong.
    """

    def fail(key: str, expected: str) -> InputError:
        found = json_kind(row[key]) if key in row else "nothing"
        return InputError(f"expected {expected}, found {found}", path, line, key)

    for key in REQUIRED:
        if key not in row:
            raise fail(key, REQUIRED[key])
    for key in ("id", "pred"):
        if not isinstance(row[key], str):
            raise fail(key, "text")
    if not _is_whole(row["event"]):
        raise fail("event", "a whole number of 0 or more")
    for key in _TEXTS:
        if not isinstance(row.get(key), _TEXT):
            raise fail(key, "text or null")
    for key in _PROBABILITIES:
        if row[key] is not None and not (_is_number(row[key]) and 0 <= row[key] <= 1):
            raise fail(key, "a probability or null")
    reasons = row["reasons"]
    if not isinstance(reasons, list) or not all(isinstance(reason, str) for reason in reasons):
        raise fail("reasons", "a list of sentences")
    for key in ("candidates", "posterior"):
        if row.get(key) is not None and not _is_weights(row[key], names=key == "candidates"):
            raise fail(key, REQUIRED.get(key) or OPTIONAL[key])
    if row.get("span") is not None and not _is_span(row["span"]):
        raise fail("span", "two character offsets [start, end)")
    context = row.get("context")
    if context is not None and not (isinstance(context, list) and all(_is_event(event) for event in context)):
        raise fail("context", "a list of events")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_weights(value: object, names: bool) -> bool:
    if names and isinstance(value, list):
        return all(isinstance(name, str) for name in value)
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and _is_number(weight) for name, weight in value.items()
    )


def _is_span(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_whole, value)) and value[0] <= value[1]


def _is_event(value: object) -> bool:
    texts = (*SLOTS, "frame", "text")
    return (
        isinstance(value, Mapping)
        and _is_whole(value.get("event"))
        and isinstance(value.get("pred"), str)
        and all(isinstance(value.get(key), _TEXT) for key in texts)
        and (value.get("span") is None or _is_span(value["span"]))
    )


def event_view(event: Event, index: int) -> dict[str, Any]:
    """Return what a reviewer sees of an event: its slots, frame, text and span, where it has them.

    Args:
        event: The event.
        index: Its index in the document.
    """
    shown: dict[str, Any] = {"event": index}
    for key in (*SLOTS, "frame", "text"):
        if (value := getattr(event, key)) is not None:
            shown[key] = value
    span = getattr(event, "span", None) or (event.extra or {}).get("span")
    if span is not None and event.text is not None and _is_span(span):
        shown["span"] = list(span)
    return shown


def around(document: Document, index: int, size: int = CONTEXT) -> list[dict[str, Any]]:
    """Return the events around one of a document, without the event itself, for a row's `context`.

    Args:
        document: The document.
        index: The event.
        size: How many events on either side.
    """
    near = range(max(0, index - size), min(len(document.events), index + size + 1))
    return [event_view(document.events[other], other) for other in near if other != index]


def describe(document: Document, index: int, size: int = CONTEXT) -> dict[str, Any]:
    """Return the optional fields of a row that come from the event itself: slots, lemma, text, span, context.

    Args:
        document: The document.
        index: The event in question.
        size: How many events of context on either side.
    """
    event = document.events[index]
    shown = {key: value for key, value in event_view(event, index).items() if key not in ("event", "pred", "frame")}
    if event.lemma is not None:
        shown["lemma"] = event.lemma
    return {**shown, "context": around(document, index, size)}
