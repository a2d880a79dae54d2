"""The file of decisions while a review runs: on disk at once, undone by cutting, repaired, never lost silently."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from auditing.lists import lines
from revup.auditing.decisions import now, open_decisions
from revup.data.decisions import Decision, read_decisions
from revup.errors import InputError, RevupError, UnfinishedError


def decision(event: int, frame: str = "B") -> Decision:
    return Decision("d", event, "A", "accept", frame, "0" * 64, now())


def test_decision_is_on_disk_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "i.decisions.jsonl"
    with open_decisions(path) as log:
        for event in range(3):
            log.append(decision(event, "Ärger <b>"))
            assert [line["event"] for line in lines(path)] == list(range(event + 1))
    assert read_decisions(path) == log.entries
    with open_decisions(path) as log:
        log.append(decision(3))
    assert [each.event for each in read_decisions(path)] == [0, 1, 2, 3]


def test_undo_gives_the_former_bytes(tmp_path: Path) -> None:
    path = tmp_path / "i.decisions.jsonl"
    states = []
    with open_decisions(path) as log:
        for event in (0, 1, 0):
            states.append(path.read_bytes())
            log.append(decision(event))
    with open_decisions(path) as log:  # across sessions
        for state in reversed(states):
            log.undo()
            assert path.read_bytes() == state
        with pytest.raises(RevupError, match="nothing to undo"):
            log.undo()


def test_review_without_decisions_leaves_no_file(tmp_path: Path) -> None:
    with open_decisions(tmp_path / "d.jsonl") as log:
        log.append(decision(0))
        log.undo()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("torn", [b'{"id": "d", "ev', b"\xc3", b"{}"])
def test_unfinished_last_line_is_removed(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    with open_decisions(path) as log:
        log.append(decision(0))
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with open_decisions(path) as log:
        assert len(log.entries) == 1
        assert path.read_bytes() == whole
        log.append(decision(1))
    assert len(read_decisions(path)) == 2


def test_last_line_without_line_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps(decision(0).to_json()))
    with open_decisions(path) as log:
        log.append(decision(1))
    assert [each.event for each in read_decisions(path)] == [0, 1]


def test_broken_line_inside_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text("{}\n" + json.dumps(decision(0).to_json()) + "\n")
    before = path.read_bytes()
    with pytest.raises(InputError, match="line 1: id"), open_decisions(path):
        pass
    assert path.read_bytes() == before


def test_two_reviews_of_one_list_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    code = "import sys; from revup.auditing.decisions import open_decisions\nwith open_decisions(sys.argv[1]): pass"
    with open_decisions(path) as log:
        log.append(decision(0))
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert "another process is reviewing it now" in done.stderr
    assert len(read_decisions(path)) == 1


@pytest.mark.parametrize("how", ["removed", "replaced", "edited"])
def test_file_changed_by_others_is_noticed(how: str, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    with open_decisions(path) as log:
        log.append(decision(0))
        if how == "edited":
            with open(path, "a") as out:
                out.write("x")
        else:
            path.unlink()
        if how == "replaced":
            path.write_text("")
        for change in (lambda: log.append(decision(1)), log.undo):
            with pytest.raises(RevupError, match="another program changed or removed it"):
                change()


def test_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.jsonl"
    write = os.write

    def half(handle: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(handle, data[:20])

    with open_decisions(path) as log:
        log.append(decision(0))
        before = path.read_bytes()
        monkeypatch.setattr("os.write", half)
        with pytest.raises(UnfinishedError, match=r"d\.jsonl: can't be written: No space left"):
            log.append(decision(1))
        monkeypatch.undo()
        assert path.read_bytes() == before
        log.append(decision(1))
    assert len(read_decisions(path)) == 2


def test_unwritable_place_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be written"), open_decisions(tmp_path / "none" / "d.jsonl"):
        pass
