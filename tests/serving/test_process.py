"""The server as a process: it listens before it is ready, and finishes what it accepted when it is told to stop."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from asking import ask

BODY = json.dumps({"documents": [{"events": [{"pred": "say"}] * 20}] * 5}).encode()


@contextmanager
def serving(run: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`revup serve` as a process that listens, and its address."""
    command = [sys.executable, "-m", "revup", "serve", str(run), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("revup: listening on http://127.0.0.1:"), line
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def wait_until_ready(address: str) -> set[int]:
    """The statuses of /health until it is 200."""
    seen = set[int]()
    end = time.monotonic() + 60
    while 200 not in seen:
        assert time.monotonic() < end
        seen.add(ask(address, "/health").status)
    return seen


class Client(threading.Thread):
    """Sends requests on one connection until it is told to go elsewhere."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address, self.statuses, self.cut = address.removeprefix("http://"), list[int](), 0

    def run(self) -> None:
        connection = http.client.HTTPConnection(self.address, timeout=30)
        while 503 not in self.statuses:
            try:
                connection.connect()
            except OSError:
                return  # nothing was sent
            closed = False
            while not closed:
                try:
                    connection.request("POST", "/predict", BODY)
                    answer = connection.getresponse()
                    answer.read()
                except (OSError, http.client.HTTPException):
                    self.cut += 1
                    return
                self.statuses.append(answer.status)
                closed = answer.getheader("connection") == "close"
            connection.close()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signal_under_load_fails_no_request(run_path: Path, number: signal.Signals, status: int) -> None:
    with serving(run_path) as (process, address):
        assert 503 in wait_until_ready(address)  # it listens before it is ready
        clients = [Client(address) for _ in range(12)]
        for client in clients:
            client.start()
        time.sleep(0.5)
        process.send_signal(number)
        for client in clients:
            client.join()
        assert process.wait(timeout=30) == status
    assert sum(client.cut for client in clients) == 0
    statuses = [status for client in clients for status in client.statuses]
    assert set(statuses) == {200, 503}  # new requests are refused while it shuts down
    assert statuses.count(200) > 12
