"""Feed what `revup review`, `apply` and `serve` read with random mutations: each gives a result or one line of error.

    export PYTHONPATH=tests
    python tests/campaigns/mutate_review.py [--count 100000] [--target NAME ...] [--seed 0] [--save DIR]

Targets: lists of issues, their descriptions, decisions, answers of other tools, documents and decisions of `apply`,
requests to both servers. An edited file must say what json says it says, and a server must go on after any request.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from auditing.lists import documents, issues, row, written
from campaigns.limits import BeyondLimits, watching
from campaigns.mutate_readers import _folder, mutate
from campaigns.mutate_server import served_bodies, served_requests
from revup.auditing.apply import apply
from revup.auditing.decisions import open_decisions
from revup.auditing.exports import export_issues, import_decisions
from revup.auditing.issues import about_path, decisions_path, read_issues
from revup.auditing.page import listing, page_html
from revup.auditing.review import open_review
from revup.data.decisions import latest, read_decisions
from revup.data.events import document_to_json
from revup.errors import RevupError
from revup.io.digests import content_digest

Check = Callable[[bytes], None]


@dataclass
class Tally:
    inputs: int = 0
    refused: int = 0
    failures: list[tuple[int, bytes, str]] = field(default_factory=list)  # number, input, traceback
    seconds: float = 0.0


@contextmanager
def lists(folder: Path) -> Iterator[tuple[bytes, Check]]:
    """A list of issues is read, and shown."""
    _, listed = written(folder)
    data = listed.read_bytes() + (json.dumps(row(id="é", posterior={"A": 0.5}, given=None)) + "\n").encode()

    def check(text: bytes) -> None:
        listed.write_bytes(text)
        found = read_issues(listed)
        rows = [found[number] for number in range(len(found))]
        page_html({**listing(found, None), "rows": rows}, connect=False).encode("utf-8")

    yield data, check


@contextmanager
def descriptions(folder: Path) -> Iterator[tuple[bytes, Check]]:
    """What a list was made from is read."""
    _, listed = written(folder)

    def check(text: bytes) -> None:
        about_path(listed).write_bytes(text)
        read_issues(listed).frames()

    yield about_path(listed).read_bytes(), check


def _decided(count: int, digest: str) -> bytes:
    rows = [{**issue, "decision": "accept", "frame": "Verdict", "digest": digest} for issue in issues(count)]
    rows[1] |= {"decision": "keep", "frame": "Trial"}
    rows[2] |= {"decision": "skip", "frame": None}
    keys = ("id", "event", "given", "decision", "frame", "digest")
    return "".join(json.dumps({key: issue[key] for key in keys}) + "\n" for issue in rows).encode()


@contextmanager
def decisions(folder: Path) -> Iterator[tuple[bytes, Check]]:
    """Decisions are read, and a review goes on from them."""
    folder.mkdir(exist_ok=True)
    path = folder / "d.jsonl"

    def check(text: bytes) -> None:
        path.write_bytes(text)
        with open_decisions(path) as log:
            count = len(log.entries)
        assert len(read_decisions(path)) == count if path.exists() else count == 0

    yield _decided(4, "0" * 64), check


@contextmanager
def _answers(folder: Path, tool: str) -> Iterator[tuple[bytes, Check]]:
    _, listed = written(folder)
    tasks = folder / "tasks"
    export_issues(listed, tasks, tool)
    if tool == "prodigy":
        done = [
            {**json.loads(line), "answer": "accept", "accept": ["Trial"]} for line in tasks.read_text().splitlines()
        ]
        data = "".join(json.dumps(task) + "\n" for task in done).encode()
    else:
        value = {"from_name": "frame", "value": {"choices": ["Trial"]}}
        done = [{**task, "annotations": [{"result": [value]}]} for task in json.loads(tasks.read_text())]
        data = json.dumps(done).encode()

    def check(text: bytes) -> None:
        tasks.write_bytes(text)
        decisions_path(listed).unlink(missing_ok=True)
        imported = import_decisions(listed, tasks)["imported"]
        assert imported == (len(read_decisions(decisions_path(listed))) if decisions_path(listed).exists() else 0)

    yield data, check


@contextmanager
def label_studio(folder: Path) -> Iterator[tuple[bytes, Check]]:
    """Label Studio's answers become decisions."""
    with _answers(folder, "label-studio") as target:
        yield target


@contextmanager
def prodigy(folder: Path) -> Iterator[tuple[bytes, Check]]:
    """Prodigy's answers become decisions."""
    with _answers(folder, "prodigy") as target:
        yield target


@contextmanager
def applied(folder: Path) -> Iterator[tuple[bytes, Check]]:
    """Documents are corrected, and say what json says that they should."""
    folder.mkdir(exist_ok=True)
    file, chosen, out = folder / "docs.jsonl", folder / "d.jsonl", folder / "out.jsonl"
    whole = [document_to_json(document) for document in documents(4)]
    data = "".join(json.dumps({**each, "x": {"events": [{"frame": 1}]}}) + "\r\n" for each in whole).encode()

    def check(text: bytes) -> None:
        file.write_bytes(text)
        chosen.write_bytes(_decided(4, content_digest(file)))
        apply(file, chosen, out, force=True)
        held = latest(read_decisions(chosen))
        for before, after in zip(text.split(b"\n"), out.read_bytes().split(b"\n"), strict=True):
            if before.strip(b" \t\r\x0b\x0c\xef\xbb\xbf"):
                expected = json.loads(before.decode("utf-8-sig"))
                for index, event in enumerate(expected["events"]):
                    decision = held.get((str(expected.get("id")), index))
                    if decision and decision.decision != "skip" and decision.frame != event.get("frame"):
                        event["frame"] = decision.frame
                assert json.loads(after.decode("utf-8-sig")) == expected

    yield data, check


@contextmanager
def requests(folder: Path) -> Iterator[tuple[bytes, Check]]:
    """Requests to the server are answered or cut off; the server goes on, and its file stays whole."""
    _, listed = written(folder)
    with open_review(listed, port=0) as server, ExitStack() as stack:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        stack.callback(server.shutdown)
        address = ("127.0.0.1", int(server.server_address[1]))
        body: dict[str, Any] = {"list": server.review.list, "after": 0, "row": 1, "decision": "keep", "frame": "Trial"}
        text = json.dumps(body).encode()
        head = f"POST /api/decide HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\nX-Revup-Token: {server.review.token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"

        def ask(data: bytes) -> bytes:
            with socket.create_connection(address, timeout=10) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                parts = []
                while part := connection.recv(65536):
                    parts.append(part)
            return b"".join(parts)

        def check(data: bytes) -> None:
            try:
                answer = ask(data)
            except ConnectionError:
                answer = b""  # cut off in the middle of a body that is too large
            assert answer[:5] in (b"", b"HTTP/") or b"<!DOCTYPE HTML>" in answer, answer[:200]
            assert len(server.review.log.entries) == len(read_decisions(decisions_path(listed)))
            while server.review.log.entries:
                server.review.log.undo()
            assert b" 200 OK" in ask(f"GET / HTTP/1.0\r\nHost: 127.0.0.1:{address[1]}\r\n\r\n".encode())[:20]

        yield head.encode() + text, check


TARGETS: dict[str, Callable[[Path], Any]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        *(lists, descriptions, decisions, label_studio, prodigy, applied, requests),
        *(served_requests, served_bodies),
    )
}


def campaign(name: str, count: int, seed: int = 0, stop_after: int = 5, first: int = 0) -> Tally:
    """Try `count` mutations on one target, from the one with the number `first` on."""
    tally, started = Tally(), time.perf_counter()
    with _folder() as folder, TARGETS[name](folder / "here") as (data, check), watching() as watch:
        for number in range(first, first + count):
            text = mutate(data, random.Random(f"{seed} {name} {number}"))
            tally.inputs += 1
            try:
                with watch.one_input():
                    check(text)
            except RevupError as error:
                tally.refused += 1
                if not (str(error).isprintable() and len(str(error)) < 1100):
                    tally.failures.append((number, text, f"not one line to print: {error!r}"))
            except (Exception, BeyondLimits):  # whatever it is, it is the finding
                tally.failures.append((number, text, traceback.format_exc()))
            if len(tally.failures) == stop_after:
                break
    tally.seconds = time.perf_counter() - started
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=100_000, help="mutations per target")
    parser.add_argument("--target", nargs="+", choices=sorted(TARGETS), default=list(TARGETS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, default=Path(), help="where to put an offending input")
    options = parser.parse_args()
    failed = False
    print(f"{'target':<18}{'inputs':>10}{'refused':>10}{'failures':>10}{'per second':>12}")
    for name in options.target:
        tally = campaign(name, options.count, options.seed)
        rate = tally.inputs / max(tally.seconds, 1e-9)
        print(f"{name:<18}{tally.inputs:>10}{tally.refused:>10}{len(tally.failures):>10}{rate:>12.0f}", flush=True)
        for number, data, trace in tally.failures:
            failed = True
            saved = options.save / f"fuzz-{name}-{options.seed}-{number}"
            saved.write_bytes(data)
            print(f"\n{trace}the input is in {saved}\n", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
