"""A review server for tests: in a thread of this process, or as the command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from revup.auditing.review import ReviewServer, open_review


@contextmanager
def serving(issues: Path, file: Path | None = None) -> Iterator[ReviewServer]:
    """The server of a list, on a free port."""
    with open_review(issues, file, port=0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def command(issues: Path, port: int = 0) -> tuple[subprocess.Popen[str], str]:
    """`revup review` in a process of its own, and the address it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "revup", "review", str(issues), "--port", str(port)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "review at http://127.0.0.1:" in line, line + process.stderr.read()
    return process, line.split()[3]


def request(
    server: ReviewServer, method: str, path: str, body: Any = None, headers: dict[str, str | None] | None = None
) -> tuple[int, Any]:
    """Ask the server as its page does; `headers` are added, and left out where None."""
    port = int(server.server_address[1])
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    all_headers: dict[str, str | None] = {
        "Host": f"127.0.0.1:{port}",
        "X-Revup-Token": server.review.token,
        "Content-Type": "application/json",
        "Origin": f"http://127.0.0.1:{port}",
        "Sec-Fetch-Site": "same-origin",
        **(headers or {}),
    }
    sent = {name: value for name, value in all_headers.items() if value is not None}
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    connection.request(method, path, data, sent)
    answer = connection.getresponse()
    text = answer.read().decode("utf-8")
    connection.close()
    return answer.status, json.loads(text) if answer.headers.get_content_type() == "application/json" else text
