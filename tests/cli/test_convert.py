"""`revup convert`: between JSON Lines and tables, exactly; other formats; what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import revup
from failing import fails
from revup import cli

DOCUMENTS = [
    {"id": "a", "events": [{"pred": "said", "subj": "null", "note": [1]}, {"pred": "left", "text": "He\nleft."}]},
    {"id": "b", "events": [{"pred": "ran", "frames": {"A": 0.1, "B": 0.2}, "confidence": 0.3}], "source": {"x": None}},
]


@pytest.fixture
def jsonl(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    return path


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "parquet"])
def test_there_and_back_gives_the_same_bytes(jsonl: Path, tmp_path: Path, suffix: str) -> None:
    table, back, again = tmp_path / f"t.{suffix}", tmp_path / "back.jsonl", tmp_path / "again.jsonl"
    cli.run(["convert", str(jsonl), "--out", str(again)])
    cli.run(["convert", str(again), "--out", str(table)])
    cli.run(["convert", str(table), "--format", "parquet" if suffix == "parquet" else "csv", "--out", str(back)])
    assert back.read_bytes() == again.read_bytes()
    assert list(revup.read(back)) == list(revup.read(jsonl))


def test_other_formats_become_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.txt").write_text("went he bar to <TUP> drank he beer _NULL_\n")
    cli.run(["convert", str(tmp_path / "t.txt"), "--format", "tuples", "--out", str(tmp_path / "t.csv")])
    header, *rows = (tmp_path / "t.csv").read_text().splitlines()
    assert header.startswith("document,pred,subj,obj,mod,frame,")
    assert [row.rstrip(",") for row in rows] == ["t.txt:1,went,he,bar,to", "t.txt:1,drank,he,beer"]


def test_documents_without_events_are_left_out_of_jsonl(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("document,pred\na,\nb,left\n")
    cli.run(["convert", str(tmp_path / "t.csv"), "--format", "csv", "--out", "-"])
    captured = capsys.readouterr()
    assert captured.out == '{"id": "b", "events": [{"pred": "left"}]}\n'
    assert captured.err == "revup: note: left out 1 documents without events\n"


def test_what_can_not_be_written_is_refused(jsonl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "t.xlsx"
    assert "t.xlsx: expected a name that ends in .jsonl" in fails(["convert", str(jsonl), "--out", str(out)], capsys)
    for suffix in ("jsonl", "csv", "parquet"):
        there = tmp_path / f"there.{suffix}"
        there.write_text("x")
        assert "exists already (--force replaces it)" in fails(["convert", str(jsonl), "--out", str(there)], capsys)
        assert there.read_text() == "x"
        cli.run(["convert", str(jsonl), "--out", str(there), "--force"])
        assert there.stat().st_size > 1
    wrong = ["convert", str(jsonl), "--format", "csv", "--columns", "verb", "--out", str(tmp_path / "u.csv")]
    assert "columns: expected KEY=COLUMN" in fails(wrong, capsys)
    assert not (tmp_path / "u.csv").exists()
