"""The review server: decisions are on disk when it answers, and only its own page is answered."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from auditing.lists import FRAMES, issues, lines, row, written
from auditing.servers import request, serving
from failing import fails
from revup.auditing.issues import About, about_path, decisions_path, write_issues
from revup.auditing.review import ReviewServer
from revup.data.decisions import read_decisions
from revup.errors import InputError


def decide(server: ReviewServer, after: int, number: int, decision: str, frame: str | None, **change: Any) -> Any:
    body = {"list": server.review.list, "after": after, "row": number, "decision": decision, "frame": frame, **change}
    return request(server, "POST", "/api/decide", body)


def undo(server: ReviewServer, after: int) -> Any:
    return request(server, "POST", "/api/undo", {"list": server.review.list, "after": after})


def test_decision_is_on_disk_when_it_is_answered(tmp_path: Path) -> None:
    file, listed = written(tmp_path)
    with serving(listed) as server:
        wanted = [(0, "accept", "Verdict"), (1, "keep", "Trial"), (2, "other", "Arrest"), (3, "skip", None)]
        for count, (number, decision, frame) in enumerate(wanted):
            status, answer = decide(server, count, number, decision, frame)
            assert (status, answer["count"], answer["entry"]["row"]) == (200, count + 1, number)
            found = lines(decisions_path(listed))[-1]
            assert (found["id"], found["event"], found["given"]) == (f"d{number}", 0, "Trial")
            assert (found["decision"], found["frame"]) == (decision, frame)
            assert found["digest"] == server.review.digest
            assert list(found) == ["id", "event", "given", "decision", "frame", "digest", "time"]
        assert undo(server, 4) == (200, {"count": 3})
        assert len(lines(decisions_path(listed))) == 3
    with serving(listed, file) as server:  # the next session goes on
        status, everything = request(server, "GET", "/api/list")
        assert [entry["decision"] for entry in everything["decisions"]] == ["accept", "keep", "other"]


def test_repeated_request_after_a_lost_answer_changes_nothing(tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        for _ in range(3):
            assert decide(server, 0, 2, "accept", "Verdict")[1]["count"] == 1
        for _ in range(3):
            assert undo(server, 1) == (200, {"count": 0})
        assert decide(server, 0, 2, "accept", "Verdict")[0] == 200
        assert len(read_decisions(decisions_path(listed))) == 1


def test_second_window_that_knows_less_is_refused(tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        assert decide(server, 0, 0, "accept", "Verdict")[0] == 200
        assert decide(server, 0, 1, "accept", "Verdict")[0] == 409
        assert decide(server, 0, 0, "keep", "Trial")[0] == 409
        assert undo(server, 0)[0] == 409
        assert decide(server, 1, 1, "accept", "Verdict", list="another")[0] == 409
        assert len(read_decisions(decisions_path(listed))) == 1


def test_decisions_at_the_same_time_are_all_or_nothing(tmp_path: Path) -> None:
    _, listed = written(tmp_path, count=40)
    with serving(listed) as server, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: decide(server, 0, number, "accept", "Verdict")[0], range(40)))
        assert sorted(answers) == [200] + [409] * 39
        assert len(read_decisions(decisions_path(listed))) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"row": 6},
        {"row": -1},
        {"row": "0"},
        {"row": True},
        {"decision": "maybe"},
        {"frame": "Trial"},
        {"frame": None},
        {"frame": 3},
        {"decision": "skip"},
        {"decision": "keep", "frame": "Verdict"},
        {"decision": "other", "frame": ""},
        {"decision": "other", "frame": "\ud800"},
    ],
)
def test_wrong_decision_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        body = {"list": server.review.list, "after": 0, "row": 0, "decision": "accept", "frame": "Verdict", **change}
        status, answer = request(server, "POST", "/api/decide", json.dumps(body).encode())
        assert status == 400
        assert answer["error"]
    assert not decisions_path(listed).exists()


FOREIGN: list[dict[str, str | None]] = [
    {"Host": "evil.example:8765"},  # DNS rebinding
    {"Host": "evil.example"},
    {"Host": ""},
    {"Host": "127.0.0.1.evil.example:80"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"X-Revup-Token": None},
    {"X-Revup-Token": "guess"},
    {"X-Revup-Token": "é"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_foreign_pages_can_neither_decide_nor_read(headers: dict[str, str | None], tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        body = {"list": server.review.list, "after": 0, "row": 0, "decision": "accept", "frame": "Verdict"}
        assert request(server, "POST", "/api/decide", body, headers)[0] == 403
        assert request(server, "POST", "/api/undo", body, headers)[0] == 403
        for path in ("/api/list", "/api/rows?rows=0"):
            assert request(server, "GET", path, headers=headers)[0] == 403
        assert not server.review.log.entries


def test_form_of_a_foreign_page_is_refused(tmp_path: Path) -> None:
    """A form needs no permission to be sent, and has neither the token nor the type."""
    _, listed = written(tmp_path)
    with serving(listed) as server:
        body = b'{"list": "%s", "after": 0, "row": 0, "decision": "keep", "x": "="}' % server.review.list.encode()
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            headers = {"Content-Type": kind, "X-Revup-Token": None, "Origin": None, "Sec-Fetch-Site": None}
            assert request(server, "POST", "/api/decide", body, headers)[0] == 403
            assert request(server, "POST", "/api/decide", body, {"Content-Type": kind})[0] == 415
        assert not server.review.log.entries


def test_page_is_not_given_to_other_names_or_frames(tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        assert request(server, "GET", "/", headers={"Host": "evil.example"})[0] == 403
        status, page = request(server, "GET", "/", headers={"X-Revup-Token": None, "Sec-Fetch-Site": "none"})
        assert status == 200
        assert server.review.token in page
        assert "http" not in page.replace("http-equiv", "").replace("xmlns='http://www.w3.org/2000/svg'", "")
        for host in ("localhost:9999", "[::1]:9999"):  # through a tunnel the port differs
            assert request(server, "GET", "/", headers={"Host": host})[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/nothing", None, {}, 404),
        ("GET", "/../../etc/passwd", None, {}, 404),
        ("POST", "/api/list", {}, {}, 404),
        ("GET", "/api/rows?rows=", None, {}, 400),
        ("GET", "/api/rows?rows=0,99", None, {}, 400),
        ("GET", "/api/rows?rows=-1", None, {}, 400),
        ("GET", "/api/rows?rows=" + ",".join(["0"] * 200), None, {}, 400),
        ("POST", "/api/decide", b"{", {}, 400),
        ("POST", "/api/decide", b"[]", {}, 400),
        ("POST", "/api/decide", b"[" * 60_000, {}, 400),
        ("POST", "/api/decide", b"x" * 100_000, {}, 413),
        ("POST", "/api/decide", None, {"Content-Length": "many"}, 411),
        ("POST", "/api/decide", None, {"Content-Length": "9" * 5000}, 413),
        ("PUT", "/api/decide", {}, {}, 501),
    ],
)
def test_odd_requests_are_refused(
    method: str, path: str, body: Any, headers: dict[str, str | None], status: int, tmp_path: Path
) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        assert request(server, method, path, body, headers)[0] == status
        assert request(server, "GET", "/api/session")[0] == 200


def test_rows_come_with_their_document(tmp_path: Path) -> None:
    _, listed = written(tmp_path)
    with serving(listed) as server:
        found = request(server, "GET", "/api/rows?rows=1,4")[1]["rows"]
        assert [found[key]["id"] for key in ("1", "4")] == ["d1", "d4"]
        events = found["4"]["document"]["events"]
        assert [event["pred"] for event in events] == ["convicted", "sentenced", "arrested"]
        assert events[2]["obj"] == "suspect 4"


def test_rows_keep_their_own_context_where_the_file_is_gone(tmp_path: Path) -> None:
    file, listed = written(tmp_path)
    file.unlink()
    with serving(listed) as server:
        found = request(server, "GET", "/api/rows?rows=4")[1]["rows"]["4"]
        assert "document" not in found
        assert [event["event"] for event in found["context"]] == [1, 2]


def test_list_has_columns_to_filter_by(tmp_path: Path) -> None:
    _, listed = written(tmp_path, rows=[*issues(), row(id="d1", event=1, given=None, p_wrong=None, source=None)])
    with serving(listed) as server:
        found = request(server, "GET", "/api/list")[1]
        names = found["names"]
        assert found["count"] == 7
        assert {names[index] for index in found["pred"]} == {"convicted"}
        assert found["given"][-1] == found["source"][-1] == -1
        assert found["frames"] == sorted(FRAMES)


def test_other_file_and_decisions_about_it_are_refused(tmp_path: Path) -> None:
    file, listed = written(tmp_path)
    with serving(listed) as server:
        decide(server, 0, 0, "accept", "Verdict")
    file.write_text(file.read_text() + "\n")
    with pytest.raises(InputError, match=r"docs\.jsonl: not the file that was audited"), serving(listed, file):
        pass
    about_path(listed).unlink()
    with pytest.raises(InputError, match=r"issues\.decisions\.jsonl: digest: decision 1 is about another file"):  # noqa: SIM117
        with serving(listed, file):
            pass
    assert len(read_decisions(decisions_path(listed))) == 1


def test_full_disk_is_answered_and_nothing_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, listed = written(tmp_path)

    def full(handle: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with serving(listed) as server:
        with monkeypatch.context() as patch:
            patch.setattr("revup.auditing.decisions.os.write", full)
            status, answer = decide(server, 0, 0, "accept", "Verdict")
        assert status == 507
        assert "No space left on device" in answer["error"]
        assert decide(server, 0, 0, "accept", "Verdict")[0] == 200


def test_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file" in fails(["review", str(tmp_path / "i.jsonl")], capsys)
    _, listed = written(tmp_path)
    with serving(listed) as server:
        assert "another process is reviewing it now" in fails(["review", str(listed), "--port", "0"], capsys)
        other = tmp_path / "other.jsonl"
        write_issues(other, [row()], About())
        port = str(server.server_address[1])
        assert f"port {port}: " in fails(["review", str(other), "--port", port], capsys)
    assert "--port: expected a whole number from 0 to 65535" in fails(["review", "i", "--port", "99999"], capsys)
