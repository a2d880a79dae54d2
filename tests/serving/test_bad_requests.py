"""Bad requests: each gets its status and one sentence that names the field."""

from __future__ import annotations

import json
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asking import ask
from revup.inference.trained import Trained
from revup.serving.limits import LARGEST_HEAD, Limits
from revup.serving.requests import Refused, Request, parse_request
from revup.serving.server import running

NAMES = ["documents", "events", "pred", "subj", "frames", "frame", "confidence", "text", "top", "model"]
KEYS = st.sampled_from(NAMES) | st.text(max_size=3)
DOCUMENT = {"events": [{"pred": "say"}]}


def events(*items: Any) -> dict[str, Any]:
    return {"documents": [{"events": list(items)}]}


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (b"", 422, "body: not valid JSON: Expecting value at column 1"),
        (b"{", 422, "body: not valid JSON: Expecting property name enclosed in double quotes at column 2"),
        (b'{"documents":\n [1 2]}', 422, "body: not valid JSON: Expecting ',' delimiter at line 2, column 5"),
        (b"\x00\xff\xfe\x01", 422, "body: not UTF-8 text: invalid byte at position 1"),
        (b"[" * 100_000, 422, "body: not valid JSON: nested too deep"),
        (b'{"documents": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", 422, "body: not valid JSON: nested too deep"),
        (b'{"documents": NaN}', 422, "body: not valid JSON: NaN is not a JSON number"),
        (b'{"documents": "\\ud800"}', 422, "body: not valid JSON: half a surrogate pair is no character"),
        ([], 422, "body: expected an object with 'documents', found a list"),
        ({}, 422, "documents: expected a list of documents, found nothing"),
        ({"documents": {}}, 422, "documents: expected a list of documents, found an object"),
        ({"documents": []}, 422, "documents: expected at least one document, found none"),
        ({"documents": [DOCUMENT, 3]}, 422, "documents[1]: expected an object with 'events', found the number 3"),
        ({"documents": [{}]}, 422, "documents[0].events: expected a list of events, found nothing"),
        ({"documents": [{"events": []}]}, 422, "documents[0].events: a document needs at least one event"),
        ({"documents": [{"id": [], **DOCUMENT}]}, 422, "documents[0].id: expected text, found a list"),
        (events(None), 422, "documents[0].events[0]: expected an object with 'pred', found null"),
        (
            events({"pred": "a"}, {"pred": 5}),
            422,
            "documents[0].events[1].pred: expected the predicate as text, found the number 5",
        ),
        (events({"pred": "a", "subj": {}}), 422, "documents[0].events[0].subj: expected text or null, found an object"),
        (
            events({"pred": "a", "frames": {"A": -1}}),
            422,
            "documents[0].events[0].frames.A: expected a weight of 0 or more, found the number -1",
        ),
        (
            events({"pred": "a", "frames": {"A\n": -1}}),
            422,
            "documents[0].events[0].frames.A\\n: expected a weight of 0 or more, found the number -1",
        ),
        ({"documents": [DOCUMENT] * 51}, 413, "documents: expected at most 50 documents, found 51"),
        (events(*[{"pred": "a"}] * 201), 413, "documents[0]: expected at most 200 events in a request, found more"),
        ({"documents": [DOCUMENT], "top": 0}, 422, "top: expected a whole number of 1 or more, found the number 0"),
        ({"documents": [DOCUMENT], "top": True}, 422, "top: expected a whole number of 1 or more, found true"),
        ({"documents": [DOCUMENT], "top": 1.5}, 422, "top: expected a whole number of 1 or more, found the number 1.5"),
        ({"documents": [DOCUMENT], "revise": "no"}, 422, "revise: expected true or false, found the text 'no'"),
        (
            {"documents": [DOCUMENT], "at_least": 2},
            422,
            "at_least: expected a probability from 0 to 1, found the number 2",
        ),
        ({"documents": [DOCUMENT], "model": 1}, 422, "model: expected the name of a model, found the number 1"),
        ({"documents": [DOCUMENT], "model": "x"}, 422, "model: expected one of news, found 'x'"),
        ({"text": "He left."}, 422, "text: this server was started without a spaCy model and reads 'documents' only"),
        ({"text": "a", "documents": [DOCUMENT]}, 422, "text: expected either 'text' or 'documents', found both"),
        (b" " * (9 * 2**20), 413, f"body: expected at most {8 * 2**20} bytes, found {9 * 2**20} bytes"),
    ],
)
def test_one_sentence_names_the_field(server: str, body: Any, status: int, sentence: str) -> None:
    for path in ("/predict", "/embed"):
        answer = ask(server, path, body)
        assert (answer.status, answer.data["detail"]) == (status, sentence)
        assert answer.data["field"].replace("\n", "\\n") == sentence.split(": ")[0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(JSON)
def test_any_json_is_a_request_or_is_refused_with_one_sentence(value: Any) -> None:
    found: Request | Refused
    try:
        found = parse_request(json.dumps(value).encode(), Limits(), reads_text=True)
    except Refused as refused:
        found = refused
    if isinstance(found, Request):
        assert found.text or all(document.events for document in found.documents)
    else:
        assert found.status in (413, 422)
        assert found.field
        assert len(str(found).splitlines()) == 1


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_with_one_sentence(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        parse_request(body, Limits(), reads_text=False)
    assert refused.value.status == 422


def test_other_methods_and_encodings_are_refused(server: str) -> None:
    wrong = ask(server, "/predict")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    assert wrong.data["detail"] == "expected a POST request with JSON, found GET; see /docs"
    packed = ask(server, "/predict", b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert (packed.status, packed.data["detail"]) == (415, "expected an uncompressed body, found a Content-Encoding")


def raw(address: str, *parts: bytes, pause: float = 0.0, half_close: bool = False) -> tuple[int, dict[str, Any]]:
    """Send bytes as they are, and read the answer."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
            head, _, body = received.partition(b"\r\n\r\n")
            if b"content-length: %d\r\n" % len(body) in head.lower() + b"\r\n" and body:
                break
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def post(body: bytes, length: int | None = None) -> bytes:
    return b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (length or len(body)) + body


BODY = json.dumps({"documents": [DOCUMENT]}).encode()


def test_half_closed_connection_is_answered(server: str) -> None:
    status, data = raw(server, post(BODY), half_close=True)
    assert (status, len(data["documents"])) == (200, 1)


def test_body_that_ends_early_is_named(server: str) -> None:
    status, data = raw(server, post(BODY, len(BODY) + 10), half_close=True)
    sentence = f"body: the connection ended after {len(BODY)} bytes, before the body was complete"
    assert (status, data["detail"]) == (400, sentence)
    chunked = b'POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"doc'
    assert raw(server, chunked, half_close=True)[0] == 400
    assert raw(server, b"POST /pre", half_close=True)[1]["detail"] == "the request ended within its headers"


def test_what_is_no_http_is_refused(server: str) -> None:
    status, data = raw(server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300))
    assert (status, data["detail"]) == (400, "not a valid HTTP request")
    for rest in (b"x: y\r\n" * (LARGEST_HEAD // 5), b"x: " + b"y" * (LARGEST_HEAD + 9) + b"\r\nHost: x\r\n\r\n"):
        status, data = raw(server, b"GET / HTTP/1.1\r\n" + rest)
        assert (status, data["detail"]) == (431, f"expected at most {LARGEST_HEAD} bytes of headers, found more")


def test_chunked_body_is_limited(server: str) -> None:
    part = b"10000\r\n" + b" " * 65536 + b"\r\n"
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    status, data = raw(server, head, *[part] * 130, b"0\r\n\r\n")
    assert (status, data["detail"]) == (413, f"body: expected at most {8 * 2**20} bytes, found more")
    fine = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (BODY[:9], BODY[9:]))
    assert raw(server, head, fine + b"0\r\n\r\n")[0] == 200


def test_slow_clients_are_refused_and_others_answered_meanwhile(model: Trained) -> None:
    with running(model, timeout=0.4) as address:
        begun = time.monotonic()
        status, data = raw(address, post(BODY, len(BODY) + 10))
        assert (status, data["detail"]) == (408, "body: did not arrive within 0.4 seconds")
        status, data = raw(address, b"POST /predict HTTP/1.1\r\nHos")
        assert (status, data["detail"]) == (408, "the headers did not arrive within 0.4 seconds")
        assert time.monotonic() - begun < 10
        assert ask(address, "/predict", BODY).status == 200


def test_connections_beyond_the_limit_are_told_to_come_back(model: Trained) -> None:
    with running(model, max_connections=2) as address:
        host, port = address.removeprefix("http://").split(":")
        held = [socket.create_connection((host, int(port))) for _ in range(2)]
        time.sleep(0.1)
        refused = ask(address, "/predict", BODY)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert refused.data["detail"] == "overloaded: too many open connections, try again later"
        for connection in held:
            connection.close()
        time.sleep(0.1)
        assert ask(address, "/predict", BODY).status == 200


def test_overload_is_answered_429_and_soon_forgotten(model: Trained) -> None:
    events = json.dumps({"documents": [{"events": [{"pred": "say"}] * 100}] * 10}).encode()
    with running(model, max_queue=1000, max_events=1000) as address, ThreadPoolExecutor(24) as clients:
        answers = list(clients.map(lambda _: ask(address, "/predict", events), range(72)))
        assert {answer.status for answer in answers} == {200, 429}
        refused = next(answer for answer in answers if answer.status == 429)
        assert refused.data["detail"].startswith("overloaded: ")
        assert refused.headers["retry-after"] == "1"
        assert ask(address, "/predict", events).status == 200


def test_answers_that_would_be_huge_are_refused(server: str, model: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"documents": [{"events": [{"pred": "say"}] * 200}], "top": 10**9}  # the server's most events
    whole = ask(server, "/predict", body)
    assert {len(event["predicted"]) for event in whole.data["documents"][0]["events"]} == {len(model.frames)}
    monkeypatch.setattr("revup.serving.answers.FRAMES_LISTED", 5)
    monkeypatch.setattr("revup.serving.answers.NUMBERS_LISTED", 1)
    refused = ask(server, "/predict", body)
    sentence = "expected an answer with at most 1000 frames, found 6 for each of 200 events"
    assert (refused.status, refused.data["detail"]) == (413, sentence)
    assert ask(server, "/predict", {**body, "top": 5}).status == 200
    assert ask(server, "/embed", body).data["detail"].startswith("expected an answer with at most 200 numbers, found ")


def test_many_large_bodies_at_once_are_refused(model: Trained) -> None:
    with running(model, max_body=0.25) as address:
        host, port = address.removeprefix("http://").split(":")
        held = [socket.create_connection((host, int(port))) for _ in range(4)]
        for connection in held:  # their bodies never come
            connection.sendall(post(b"", 2**18))
        time.sleep(0.2)
        refused = ask(address, "/predict", BODY)
        assert (refused.status, refused.data["detail"][:30]) == (429, "overloaded: other large reques")
        for connection in held:
            connection.close()
        time.sleep(0.2)
        assert ask(address, "/predict", BODY).status == 200


def test_bodies_in_many_parts_are_read(server: str) -> None:
    parts = [post(BODY)[i : i + 7] for i in range(0, len(post(BODY)), 7)]
    assert raw(server, *parts, pause=0.002)[0] == 200


def test_client_that_goes_within_its_pipeline_is_no_internal_error(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = server.removeprefix("http://").split(":")
    linger = struct.pack("ii", 1, 0)  # the connection is reset, and not closed
    with caplog.at_level("INFO", "revup.serving"):
        for _ in range(5):
            with socket.create_connection((host, int(port))) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.sendall(post(BODY) * 20)
                time.sleep(0.02)
        while "revup_requests_in_progress 1\n" not in ask(server, "/metrics").data:  # this one
            time.sleep(0.02)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    assert ask(server, "/predict", BODY).status == 200
