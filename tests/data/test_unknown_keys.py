"""Keys of events that were probably mistyped are said once a file, and never an error."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import pytest

import revup
from revup.data.prepare import prepare
from revup.data.readers import read
from revup.errors import RevupWarning


def _write(path: Path, *events: Mapping[str, object]) -> Path:
    path.write_text("".join(json.dumps({"id": f"d{n}", "events": [event]}) + "\n" for n, event in enumerate(events)))
    return path


def _said(path: Path, **options: object) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        list(read(path, **options))  # type: ignore[arg-type]
    assert all(issubclass(each.category, RevupWarning) for each in found)
    return [str(each.message) for each in found]


def test_mistyped_key_is_said_once_with_its_place(tmp_path: Path) -> None:
    good, bad = {"pred": "left", "frame": "Departing"}, {"pred": "left", "frmae": "Departing"}
    path = _write(tmp_path / "docs.jsonl", good, good, bad, bad)
    assert _said(path) == [f"{path}: line 3: events[0]: unknown key 'frmae'; did you mean 'frame'?"]


@pytest.mark.parametrize(
    ("key", "meant"), [("candidate", "candidates"), ("Frame", "frame"), ("object", "obj"), ("confidance", "confidence")]
)
def test_known_key_that_was_meant_is_named(tmp_path: Path, key: str, meant: str) -> None:
    (said,) = _said(_write(tmp_path / "docs.jsonl", {"pred": "left", key: "x"}))
    assert said.endswith(f"unknown key '{key}'; did you mean '{meant}'?")


def test_keys_of_ones_own_are_not_remarked_on(tmp_path: Path) -> None:
    own = {"tense": "past", "negated": True, "predicted": [], "known": True, "id": 3}
    assert not _said(_write(tmp_path / "a.jsonl", {"pred": "left", **own}))
    assert not _said(_write(tmp_path / "b.jsonl", {"pred": "left", "frame": "Departing", "frame_id": 7}))


def test_mistyped_column_of_a_table_is_said(tmp_path: Path) -> None:
    (tmp_path / "docs.csv").write_text("document,pred,frmae\na,left,Departing\na,came,Arriving\n")
    (said,) = _said(tmp_path / "docs.csv")
    assert "unknown key 'frmae'; did you mean 'frame'?" in said


@pytest.mark.parametrize("workers", [1, 2])
def test_prepare_says_it_once_a_file_however_many_chunks(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("revup.data.chunks.CHUNK_RECORDS", 2)
    event = {"pred": "left", "frame": "Departing", "lema": "leave"}
    files = [_write(tmp_path / name, *[{**event, "obj": str(n)} for n in range(7)]) for name in ("a.jsonl", "b.jsonl")]
    with pytest.warns(RevupWarning, match="lema") as found:
        prepare(files, tmp_path / "data", workers=workers)
    assert [str(each.message) for each in found] == [
        f"{file}: line 1: events[0]: unknown key 'lema'; did you mean 'lemma'?" for file in files
    ]


def test_python_callers_get_a_warning(tmp_path: Path) -> None:
    with pytest.warns(RevupWarning, match=r"document 2: events\[0\]: unknown key 'frmae'; did you mean 'frame'\?"):
        revup.write(
            [{"events": [{"pred": "left"}]}, {"events": [{"pred": "came", "frmae": "Arriving"}]}],
            tmp_path / "docs.jsonl",
        )
    assert json.loads((tmp_path / "docs.jsonl").read_text().splitlines()[1])["events"][0]["frmae"] == "Arriving"
