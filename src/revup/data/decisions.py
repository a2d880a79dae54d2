"""Decisions of a reviewer about labels, one JSON object a line, as `revup review` writes them.

    {"id": "nyt-17", "event": 3, "given": "Trial", "decision": "accept", "frame": "Verdict", "digest": …, "time": …}

`decision` is `accept` (the proposed frame is right), `keep` (the given one is), `other` (`frame` says which; null where
no frame fits) or `skip` (not decided). A later line about the same event replaces an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from revup.data.events import json_from_line, json_kind
from revup.errors import InputError
from revup.io.files import display_name, lines

DECISIONS = ("accept", "keep", "other", "skip")


@dataclass(frozen=True, slots=True)
class Decision:
    """What a reviewer decided about the label of one event.

    Attributes:
        id: The document's id.
        event: The event's index in the document, from 0 on.
        given: The label that was reviewed; None where the event had none.
        decision: One of `DECISIONS`.
        frame: The right frame according to the reviewer; None where skipped, or where no frame fits.
        digest: SHA-256 of the contents of the reviewed file; None where it is not known.
        time: When it was decided, in ISO 8601.
    """

    id: str
    event: int
    given: str | None
    decision: str
    frame: str | None
    digest: str | None = None
    time: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        """What identifies the event: the document's id and the index in it."""
        return self.id, self.event

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


def decision_from_json(data: object, path: str = "", line: int = 0) -> Decision:
    """Make a decision of a parsed JSON value; keys that it does not know are ignored.

    Args:
        data: The value.
        path, line: The place that errors name.

    Raises:
        InputError: A field is missing or wrong.
    """
    if not isinstance(data, dict):
        raise InputError(f"expected an object with 'id', 'event' and 'decision', found {json_kind(data)}", path, line)

    def fail(key: str, expected: str) -> InputError:
        found = json_kind(data[key]) if key in data else "nothing"
        return InputError(f"expected {expected}, found {found}", path, line, key)

    identity, event, decision = data.get("id"), data.get("event"), data.get("decision")
    if isinstance(identity, int) and not isinstance(identity, bool):
        identity = str(identity)
    if not isinstance(identity, str):
        raise fail("id", "the document's id as text")
    if not isinstance(event, int) or isinstance(event, bool) or not 0 <= event < 2**31:
        raise fail("event", "the event's index, a whole number of 0 or more")
    if decision not in DECISIONS:
        raise fail("decision", f"one of {', '.join(DECISIONS)}")
    for key in ("given", "frame", "digest", "time"):
        if not isinstance(data.get(key), str | None):
            raise fail(key, "text or null")
        if data.get(key) == "" or (key == "frame" and isinstance(data.get(key), str) and not data[key].strip()):
            raise fail(key, "text or null")
    given, frame = data.get("given"), data.get("frame")
    if decision == "keep":
        if "frame" in data and frame != given:
            raise fail("frame", f"the frame that is kept, {json_kind(given)}")
        frame = given
    elif decision == "accept" and frame is None:
        raise fail("frame", "the accepted frame")
    elif decision == "other" and "frame" not in data:
        raise fail("frame", "the right frame, or null where none fits")
    elif decision == "skip" and frame is not None:
        raise fail("frame", "null, since nothing was decided")
    return Decision(identity, event, given, decision, frame, data.get("digest"), data.get("time"))


def read_decisions(path: str | Path) -> list[Decision]:
    """Read a file of decisions, every line of it in order; see `latest` for those that hold.

    Args:
        path: The file; ".gz" is decompressed, "-" is standard input.

    Raises:
        InputError: A line is no decision; file, line and field are named.
    """
    return list(_decisions(path))


def _decisions(path: str | Path) -> Iterator[Decision]:
    name = display_name(path)
    for number, text in lines(path):
        if isinstance(text, InputError):
            raise text
        if text.strip():
            yield decision_from_json(json_from_line(text, name, number), name, number)


def latest(decisions: Iterable[Decision]) -> dict[tuple[str, int], Decision]:
    """Return the decision that holds for each event, which is the last one.

    Args:
        decisions: The decisions in the order in which they were made.
    """
    return {decision.key: decision for decision in decisions}


def trusted_labels(path: str | Path) -> dict[tuple[str, int], str]:
    """Return the labels that a reviewer decided on: (document id, event index) → frame.

    Skipped events and events that no frame fits are left out.

    Args:
        path: The file of decisions.
    """
    held = latest(read_decisions(path))
    return {key: each.frame for key, each in held.items() if each.decision != "skip" and each.frame is not None}
