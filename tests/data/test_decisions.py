"""Files of decisions: what they say, which decision holds, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from revup.data.decisions import Decision, decision_from_json, latest, read_decisions, trusted_labels
from revup.errors import InputError

LINE = {"id": "d", "event": 2, "given": "A", "decision": "accept", "frame": "B", "digest": "ab", "time": "2026-01-01"}


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps({**LINE, **row}) + "\n" for row in rows), "utf-8")
    return path


def test_decisions_are_read_as_written(tmp_path: Path) -> None:
    path = written(tmp_path / "d.jsonl", {}, {"event": 3, "decision": "keep", "frame": "A"})
    first, second = read_decisions(path)
    assert first == Decision("d", 2, "A", "accept", "B", "ab", "2026-01-01")
    assert second.to_json() == {**LINE, "event": 3, "decision": "keep", "frame": "A"}
    packed = tmp_path / "d.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_decisions(packed) == [first, second]


def test_last_decision_about_an_event_holds(tmp_path: Path) -> None:
    path = written(tmp_path / "d.jsonl", {}, {"event": 1}, {"decision": "other", "frame": "C"})
    held = latest(read_decisions(path))
    assert {key: each.frame for key, each in held.items()} == {("d", 2): "C", ("d", 1): "B"}


def test_trusted_labels_leave_out_what_was_not_decided(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"event": 0, "decision": "keep", "frame": "A"},
        {"event": 1, "decision": "skip", "frame": None},
        {"event": 2, "decision": "other", "frame": None},
        {"event": 3},
        {"event": 4},
        {"event": 4, "decision": "skip", "frame": None},
    ]
    assert trusted_labels(written(tmp_path / "d.jsonl", *rows)) == {("d", 0): "A", ("d", 3): "B"}


def test_keep_without_frame_keeps_the_given_one() -> None:
    data = {"id": 7, "event": 0, "decision": "keep", "given": "A"}
    assert decision_from_json(data) == Decision("7", 0, "A", "keep", "A")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": None}, "id"),
        ({"event": -1}, "event"),
        ({"event": True}, "event"),
        ({"event": "2"}, "event"),
        ({"decision": "maybe"}, "decision"),
        ({"decision": []}, "decision"),
        ({"frame": 3}, "frame"),
        ({"frame": None}, "frame"),
        ({"frame": " "}, "frame"),
        ({"decision": "keep", "frame": "B"}, "frame"),
        ({"decision": "skip", "frame": "B"}, "frame"),
        ({"digest": 3}, "digest"),
        ({"given": ["A"]}, "given"),
    ],
)
def test_wrong_field_is_named_with_file_and_line(change: dict[str, Any], field: str, tmp_path: Path) -> None:
    path = written(tmp_path / "d.jsonl", {}, change)
    with pytest.raises(InputError) as refused:
        read_decisions(path)
    assert (refused.value.path, refused.value.line, refused.value.field) == (str(path), 2, field)


def test_line_that_is_no_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text("[]\n")
    with pytest.raises(InputError, match="line 1: expected an object with"):
        read_decisions(tmp_path / "d.jsonl")
