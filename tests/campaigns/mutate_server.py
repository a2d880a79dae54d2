"""Targets of `mutate_review.py`: requests to `revup serve`, as bytes on a connection and as bodies."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from campaigns.mutate_directories import originals
from revup.serving.server import running

Check = Callable[[bytes], None]

EVENT = {"pred": "arrested", "subj": "police", "obj": None, "mod": "of", "frame": "Arrest", "confidence": 0.5}
SOURCES = {"a": "Arrest", "b": ["Arrest", "Trial"], "c": {"kind": "label", "value": "Trial", "confidence": 1}}
BODY = {
    "documents": [
        {"id": "é", "events": [EVENT, {**EVENT, "frames": {"Trial": 1, "Arrest": 0.5}, "sources": SOURCES}]},
        {"events": [{"pred": "x", "candidates": ["Trial"], "text": "He x it.", "span": [3, 4]}] * 3},
    ],
    "top": 2,
    "revise": True,
    "at_least": 0.1,
    "explain": True,
}
STATUSES = {200, 400, 404, 405, 408, 411, 413, 414, 415, 422, 429, 431}  # 500 is a failure


@contextmanager
def _server(folder: Path) -> Iterator[tuple[str, int]]:
    run = shutil.copytree(originals() / "runs" / "counts", folder)
    with running(run, window=0.0, timeout=5.0, device="cpu") as address:
        host, port = address.removeprefix("http://").split(":")
        yield host, int(port)


@contextmanager
def served_requests(folder: Path) -> Iterator[tuple[bytes, Check]]:
    """Whole requests are answered or cut off, and the server goes on."""
    with _server(folder) as (host, port):
        text = json.dumps(BODY).encode()
        head = f"POST /predict HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(text)}\r\n\r\n"

        def check(data: bytes) -> None:
            with socket.create_connection((host, port), timeout=10) as connection:
                try:
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                    parts = []
                    while part := connection.recv(65536):
                        parts.append(part)
                except ConnectionError:
                    return  # refused before it was sent to its end
            answer = b"".join(parts)
            if answer:  # several requests may have come of one
                status = int(answer.split(b" ", 2)[1])
                assert answer.startswith(b"HTTP/1."), answer[:200]
                assert status in STATUSES, answer[:500]
            assert b" 500 " not in answer, answer[:500]

        yield head.encode() + text, check


@contextmanager
def served_bodies(folder: Path) -> Iterator[tuple[bytes, Check]]:
    """Bodies are answered, by predictions, vectors, or a sentence that says what is wrong."""
    with _server(folder) as (host, port):
        connection = HTTPConnection(host, port, timeout=10)

        def check(data: bytes) -> None:
            try:
                connection.request("POST", "/embed" if len(data) % 3 == 0 else "/predict", data)
                answer = connection.getresponse()
                found = json.loads(answer.read())
            except HTTPException:
                connection.close()
                raise
            assert answer.status in STATUSES, (answer.status, found)
            if answer.status != 200:
                assert isinstance(found["detail"], str), found
                assert found["detail"].isprintable(), found
                assert len(found["detail"]) < 1300, found

        yield json.dumps(BODY).encode(), check
        connection.close()
