"""The list of issues: what is written is read again, and what is no issue is refused by file, line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from auditing.lists import FRAMES, SENTENCE, documents, issues, lines, row, written
from revup.auditing.issues import (
    About,
    about_path,
    around,
    decisions_path,
    describe,
    read_issues,
    write_issues,
)
from revup.errors import InputError, OutputExistsError


def test_list_is_read_as_written(tmp_path: Path) -> None:
    file, path = written(tmp_path)
    found = read_issues(path)
    assert [found[n] for n in range(len(found))] == issues() == lines(path)
    assert found.about.file == str(file)
    assert found.about.summary == {"estimated_errors": 4.0}
    assert found.frames() == sorted(FRAMES)
    assert found.find("d3", 0) == 3
    assert found.find("d3", 1) is None
    assert found.columns["p_wrong"] == [issue["p_wrong"] for issue in issues()]


def test_list_without_description_names_its_own_frames(tmp_path: Path) -> None:
    write_issues(tmp_path / "i.jsonl.gz", [row(), row(event=1, proposed="Arrest")])
    found = read_issues(tmp_path / "i.jsonl.gz")
    assert found.about == About()
    assert found.frames() == ["Arrest", "Trial", "Verdict"]


def test_replaced_list_loses_the_description_of_the_former(tmp_path: Path) -> None:
    _, path = written(tmp_path)
    with pytest.raises(OutputExistsError):
        write_issues(path, [row()])
    assert about_path(path).exists()
    write_issues(path, [row()], force=True)
    assert not about_path(path).exists()


def test_refused_row_leaves_the_former_list(tmp_path: Path) -> None:
    _, path = written(tmp_path)
    before = path.read_bytes(), about_path(path).read_bytes()
    with pytest.raises(InputError, match="line 2: event"):
        write_issues(path, [row(), row(event=-1)], force=True)
    assert (path.read_bytes(), about_path(path).read_bytes()) == before


@pytest.mark.parametrize("name", ["i.jsonl", "i.jsonl.gz", "i.json", "i"])
def test_files_beside_the_list(name: str, tmp_path: Path) -> None:
    assert decisions_path(tmp_path / name) == tmp_path / "i.decisions.jsonl"
    assert about_path(tmp_path / name) == tmp_path / "i.about.json"


def test_event_is_described_with_the_events_around_it() -> None:
    (document,) = documents(1)
    found = describe(document, 0, size=1)
    assert found == {
        **{"subj": "jury", "obj": "man", "mod": "of", "text": SENTENCE, "span": [9, 18]},
        "context": [
            {"event": 1, "pred": "sentenced", "subj": "judge", "obj": "man", "mod": "to", "frame": "Sentencing"}
        ],
    }
    assert [event["event"] for event in around(document, 1)] == [0, 2]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": 3}, "id"),
        ({"event": 1.5}, "event"),
        ({"pred": None}, "pred"),
        ({"given": 3}, "given"),
        ({"p_wrong": 1.2}, "p_wrong"),
        ({"p_wrong": "high"}, "p_wrong"),
        ({"p_given": True}, "p_given"),
        ({"reasons": "because"}, "reasons"),
        ({"reasons": [3]}, "reasons"),
        ({"candidates": {"A": "much"}}, "candidates"),
        ({"posterior": ["A"]}, "posterior"),
        ({"posterior": {"A": 10**400}}, "posterior"),
        ({"span": [3]}, "span"),
        ({"span": [5, 3]}, "span"),
        ({"context": [{"pred": "x"}]}, "context"),
        ({"text": {"a": "b"}}, "text"),
    ],
)
def test_wrong_field_is_named(change: dict[str, Any], field: str, tmp_path: Path) -> None:
    path = tmp_path / "i.jsonl"
    path.write_text(json.dumps(row()) + "\n" + json.dumps(row() | {"event": 1} | change) + "\n")
    with pytest.raises(InputError) as refused:
        read_issues(path)
    assert (refused.value.path, refused.value.line, refused.value.field) == (str(path), 2, field)


def test_missing_key_and_doubled_event_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "i.jsonl"
    path.write_text(json.dumps({key: value for key, value in row().items() if key != "source"}) + "\n")
    with pytest.raises(InputError, match="line 1: source: expected who gave the label, found nothing"):
        read_issues(path)
    path.write_text((json.dumps(row()) + "\n") * 2)
    with pytest.raises(InputError, match="line 2: event: event 0 of document 'd0' is there twice"):
        read_issues(path)
    path.write_text("\n")
    with pytest.raises(InputError, match="no issues in it"):
        read_issues(path)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"version": 9}', '{"version": 1, "file": 3}', '{"version": 1, "frames": [3]}']
)
def test_damaged_description_is_refused(text: str, tmp_path: Path) -> None:
    _, path = written(tmp_path)
    about_path(path).write_text(text)
    with pytest.raises(InputError, match=r"issues\.about\.json"):
        read_issues(path)
