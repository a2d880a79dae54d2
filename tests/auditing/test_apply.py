"""Applying decisions: reviewed frames change, every other byte stays, and only the reviewed file is accepted."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import revup
from revup.auditing.apply import apply
from revup.errors import InputError, OutputExistsError

# odd on purpose: a byte order mark, a blank line, both line ends, doubled and unknown keys, escapes, no final line end
TEXT = (
    '\ufeff{"id": "a", "events": [{"pred":"convicted" , "frame":"Trial","x": 1.50},  {"pred": "won"}]}\r\n'
    "\n"
    '{"note": "\\u00e9", "events": [{"frame": "Win", "pred": "won", "frame": "Defeat"}], "id": 7}\n'
    '{"events": [{"pred": "é", "frame": null, "frames": {"A": 1e0}}]}'
)


def decided(path: Path, file: Path, *rows: tuple[str, int, str | None, str, str | None], **change: Any) -> Path:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    keys = ("id", "event", "given", "decision", "frame")
    lines = [json.dumps({**dict(zip(keys, row, strict=True)), "digest": digest, **change}) + "\n" for row in rows]
    path.write_text("".join(lines))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    path.write_bytes(TEXT.encode("utf-8"))
    return path


ROWS: list[tuple[str, int, str | None, str, str | None]] = [
    ("a", 0, "Trial", "accept", "Verdict"),
    ("a", 1, None, "other", "Win <i>"),
    ("7", 0, "Defeat", "keep", "Defeat"),
    ("docs.jsonl:4", 0, None, "accept", "Ä"),
]
EXPECTED = (
    TEXT.replace('"frame":"Trial"', '"frame":"Verdict"')
    .replace('{"pred": "won"}', '{"pred": "won", "frame": "Win <i>"}')
    .replace('"frame": null', '"frame": "Ä"')
).encode("utf-8")


def test_only_reviewed_frames_change(file: Path, tmp_path: Path) -> None:
    decisions = decided(tmp_path / "d.jsonl", file, *ROWS)
    figures = apply(file, decisions, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == EXPECTED
    assert figures == {"documents": 3, "decisions": 4, "changed": 3, "unchanged": 1, "skipped": 0, "bad_lines": 0}
    assert revup.apply is apply


def test_skips_and_later_decisions(file: Path, tmp_path: Path) -> None:
    rows = [ROWS[0], ("a", 0, "Trial", "other", None), ROWS[2], ("7", 0, "Defeat", "skip", None)]
    figures = apply(file, decided(tmp_path / "d.jsonl", file, *rows), tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == TEXT.replace('"frame":"Trial"', '"frame":null').encode("utf-8")
    assert (figures["changed"], figures["skipped"]) == (1, 1)


def test_compressed_files_are_compared_by_what_they_unpack_to(file: Path, tmp_path: Path) -> None:
    decisions = decided(tmp_path / "d.jsonl", file, *ROWS)
    packed = tmp_path / "docs.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    apply(packed, decisions, tmp_path / "out.jsonl.gz")
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()) == EXPECTED
    apply(packed, decided(tmp_path / "e.jsonl", packed, *ROWS), tmp_path / "out.jsonl")  # digest of the packed file
    assert (tmp_path / "out.jsonl").read_bytes() == EXPECTED


def test_standard_input_and_output(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    decisions = decided(tmp_path / "d.jsonl", file, *ROWS)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    apply("-", decisions, "-")
    assert capsysbinary.readouterr().out == EXPECTED
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes() + b"\n")))
    with pytest.raises(InputError, match="<stdin>: not the file that was reviewed"):
        apply("-", decisions, "-")
    assert capsysbinary.readouterr().out == b""


def test_other_file_is_refused(file: Path, tmp_path: Path) -> None:
    decisions = decided(tmp_path / "d.jsonl", file, *ROWS)
    file.write_bytes(file.read_bytes() + b"\n")
    with pytest.raises(InputError, match=r"docs\.jsonl: not the file that was reviewed: its SHA-256 is"):
        apply(file, decisions, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_file_that_changes_while_it_is_read_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = decided(tmp_path / "d.jsonl", file, *ROWS)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setattr("revup.auditing.apply.content_digest", lambda path: digest)
    file.write_bytes(file.read_bytes().replace(b"note", b"nota"))
    with pytest.raises(InputError, match="not the file that was reviewed"):
        apply(file, decisions, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_renamed_file_without_ids(file: Path, tmp_path: Path) -> None:
    decisions = decided(tmp_path / "d.jsonl", file, *ROWS)
    apply(file.rename(tmp_path / "renamed.jsonl"), decisions, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == EXPECTED


def test_file_can_replace_itself(file: Path, tmp_path: Path) -> None:
    decisions = decided(tmp_path / "d.jsonl", file, *ROWS)
    with pytest.raises(OutputExistsError):
        apply(file, decisions, file)
    apply(file, decisions, file, force=True)
    assert file.read_bytes() == EXPECTED


def test_bad_lines_are_refused_or_copied(tmp_path: Path) -> None:
    file = tmp_path / "docs.jsonl"
    odd = b'{"id": "a", "events": [{"pred": "x", "frame": "A"}]}\n\xff{\n[]\n{"events": 3}\n{"e": 1e999}\n'
    file.write_bytes(odd)
    decisions = decided(tmp_path / "d.jsonl", file, ("a", 0, "A", "accept", "B"))
    with pytest.raises(InputError, match="line 2: not UTF-8"):
        apply(file, decisions, tmp_path / "out.jsonl")
    figures = apply(file, decisions, tmp_path / "out.jsonl", skip_bad=True)
    assert (tmp_path / "out.jsonl").read_bytes() == odd.replace(b'"A"', b'"B"')
    assert figures["bad_lines"] == 4


def test_long_line_is_refused_or_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revup.auditing.apply.LONGEST_LINE", 100)
    file = tmp_path / "docs.jsonl"
    odd = b"x" * 250 + b"\n" + b'{"id": "a", "events": [{"pred": "x", "frame": "A"}]}\n' + b"y" * 150
    file.write_bytes(odd)
    decisions = decided(tmp_path / "d.jsonl", file, ("a", 0, "A", "accept", "B"))
    with pytest.raises(InputError, match="line 1: the line is longer"):
        apply(file, decisions, tmp_path / "out.jsonl")
    apply(file, decisions, tmp_path / "out.jsonl", skip_bad=True)
    assert (tmp_path / "out.jsonl").read_bytes() == odd.replace(b'"A"', b'"B"')


@pytest.mark.parametrize(
    ("rows", "change", "expected"),
    [
        ([("b", 0, None, "accept", "A")], {}, "d.jsonl: decides on the document 'b', which the file does not have"),
        ([("a", 9, None, "accept", "A")], {}, "line 1: a decision is about event 9, found 2 events"),
        (ROWS, {"digest": None}, "digest: doesn't say which file was reviewed"),
        (ROWS, {"digest": "0" * 64}, "not the file that was reviewed"),
    ],
)
def test_what_cannot_be_applied_is_named(
    rows: list[tuple[str, int, str | None, str, str | None]],
    change: dict[str, Any],
    expected: str,
    file: Path,
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match=expected):
        apply(file, decided(tmp_path / "d.jsonl", file, *rows, **change), tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


def test_doubled_id_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "docs.jsonl"
    file.write_text('{"id": "a", "events": [{"pred": "x"}]}\n' * 2)
    with pytest.raises(InputError, match="line 2: id: two documents have the id 'a', the first on line 1"):
        apply(file, decided(tmp_path / "d.jsonl", file, ("a", 0, None, "accept", "A")), tmp_path / "out.jsonl")


def test_no_decisions_copy_the_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text("")
    assert apply(file, tmp_path / "d.jsonl", tmp_path / "out.jsonl")["changed"] == 0
    assert (tmp_path / "out.jsonl").read_bytes() == file.read_bytes()
