"""Format "released": documents known by hand, wrong fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from revup.data.events import Event
from revup.data.readers import read
from samples import (
    SEMAFOR,
    complaint,
    release,
    released,
)


def test_released_documents(tmp_path: Path) -> None:
    abstract = [released(), released("go", candid=False, frame=None, arg1="home", mod="to"), released(frame="Motion")]
    path = release(
        tmp_path / "r.jsonl", {"abstract": abstract, "headline": [released("win", frame=None)]}, {"abstract": []}
    )
    first, second = read(path, format="released")
    assert first.id == "r.jsonl:1"
    assert first.events == [
        Event("say", "he", None, None, "Statement"),
        Event("go", "he", "home", "to"),
        Event("say", "he", None, None, "Motion"),
    ]
    assert first.extra == {"headline": [{"pred": "win", "subj": "he"}]}
    assert (second.id, second.events, second.extra) == ("r.jsonl:2", [], None)


def test_released_frames_by_named_tool(tmp_path: Path) -> None:
    item = released(semantic_parses={SEMAFOR: {"frame": "a/Statement"}, "SLING": {"frame": "b/Telling"}}, frame=None)
    only = released(semantic_parses={"SLING": {"frame": "b/Telling"}}, frame=None)
    two = released(semantic_parses={"SLING": {"frame": "b/A"}, "DAISY": {"frame": "b/B"}}, frame=None)
    path = release(tmp_path / "r.jsonl", {"id": "mine", "abstract": [item, only, two]})
    (document,) = read(path, format="released")
    assert document.id == "mine"
    assert [event.frame for event in document.events] == ["Statement", "Telling", None]
    (document,) = read(path, format="released", tool="SLING")
    assert [event.frame for event in document.events] == ["Telling", "Telling", "A"]
    found = complaint(path, "released", tool="sling")
    assert found == f"r.jsonl: line 1: no semantic parse by 'sling'; there is 'DAISY', 'SLING', '{SEMAFOR}'"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "expected an object with 'abstract', found a list"),
        ({}, "abstract: expected a list of events, found nothing"),
        ({"abstract": {}}, "abstract: expected a list of events, found an object"),
        ({"abstract": [], "headline": 3}, "headline: expected a list of events, found the number 3"),
        ({"abstract": [3]}, "abstract[0].event_tuple: expected an object with 'pred', found null"),
        ({"abstract": [released(), {"candid": {}}]}, "abstract[1].event_tuple: expected an object with 'pred'"),
        ({"abstract": [released("")]}, "abstract[0].pred: expected the predicate as text, found none"),
        ({"abstract": [released(arg0=["a"])]}, "abstract[0].arg0: expected text or null, found a list"),
        ({"abstract": [released(frame=3)]}, "abstract[0].semantic_parses: expected a frame's path by 'Semafor"),
        (
            {"abstract": [released(semantic_parses=[], frame=None)]},
            "abstract[0].semantic_parses: expected an object of tool: parse, found a list",
        ),
    ],
)
def test_wrong_released_field_is_named(tmp_path: Path, document: Any, expected: str) -> None:
    path = release(tmp_path / "r.jsonl", {"abstract": []}, document)
    assert complaint(path, "released").startswith(f"r.jsonl: line 2: {expected}")
