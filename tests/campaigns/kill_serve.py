"""Kill `revup serve` under load: answers stay whole and right, a polite stop cuts none off, nothing is left behind.

    export PYTHONPATH=tests
    python tests/campaigns/kill_serve.py [--kills 40] [--seed 0] [--out result.json]

Clients ask as fast as they are answered; the server is stopped by SIGKILL, SIGTERM or SIGINT, also while it loads its
model, and the next one takes the same port. Every answer must be the first server's, byte by byte, or 503; after
SIGTERM and SIGINT no request may be cut off. The run directory must stay as it was. The exit status is 1 where
anything failed.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import revup
from campaigns.kill import is_start
from campaigns.kill_review import SIGNALS, Tally, finish, start
from revup.data.events import document_to_json
from revup.io.digests import content_digest
from revup.io.files import commit, write_json
from revup.world.world import World

CLIENTS = 6


class Client(threading.Thread):
    """Asks on one connection after the other until the server is gone.

    Attributes:
        answers: Answers with status 200.
        refused: Answers with status 503.
        cut: Requests that were sent and not answered.
        wrong: Answers that are not what they should be, in words.
    """

    def __init__(self, port: int, expected: dict[str, bytes]) -> None:
        super().__init__(daemon=True)
        self.port, self.expected = port, expected
        self.answers = self.refused = self.cut = 0
        self.wrong = list[str]()

    def run(self) -> None:
        while True:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.connect()
            except OSError:
                return  # nothing was sent
            with_next = True
            while with_next:
                try:
                    with_next = self._ask(connection)
                except (OSError, HTTPException):
                    self.cut += 1
                    return
            connection.close()

    def _ask(self, connection: HTTPConnection) -> bool:
        """One request; whether the connection stays open."""
        body = random.choice(list(self.expected))
        connection.request("POST", "/predict", body.encode())
        answer = connection.getresponse()
        found = answer.read()
        if answer.status == 200:
            self.answers += 1
            if found != self.expected[body]:
                self.wrong.append(f"another answer: {found[:200]!r}")
        elif answer.status == 503:
            self.refused += 1
        else:
            self.wrong.append(f"status {answer.status}: {found[:200]!r}")
        return answer.getheader("connection") != "close"


def kill_serve(folder: Path, kills: int, seed: int) -> Tally:
    """Stop a server again and again."""
    tally, chance = Tally(), random.Random(f"serve {seed}")
    run, bodies = _make_run(folder)
    before = {path.name: content_digest(path) for path in run.iterdir()}
    process, port = _listening(run, 0)
    expected = {body: _answer(port, body) for body in bodies}
    process.send_signal(signal.SIGTERM)
    tally.check(finish(process)[0] == 0, "an idle server does not end with 0")
    for number in range(kills):
        how, early = chance.choice(SIGNALS), chance.random() < 0.2
        process, port = _listening(run, port)
        tally.kills += 1
        clients = [Client(port, expected) for _ in range(CLIENTS)]
        if not early:
            _answer(port, bodies[0])
            for client in clients:
                client.start()
        time.sleep(chance.uniform(0, 2.0))
        process.send_signal(how)
        status, errors = finish(process, 120)
        for client in clients if not early else ():
            client.join(60)
            tally.check(not client.is_alive(), f"kill {number}: a client still waits")
            tally.failures += [f"kill {number}: {what}" for what in client.wrong]
            tally.check(how == signal.SIGKILL or not client.cut, f"kill {number}: {how.name} cut {client.cut} requests")
        tally.acknowledged += sum(client.answers for client in clients)
        tally.midway += any(client.answers for client in clients)
        wanted = {signal.SIGKILL: -9, signal.SIGTERM: 0, signal.SIGINT: 130}[how]
        tally.check(status == wanted or (early and is_start(errors)), f"kill {number}: {how.name} {status}: {errors}")
        tally.check("Traceback" not in errors or is_start(errors), f"kill {number}: {errors}")
        after = {path.name: content_digest(path) for path in run.iterdir()}
        tally.check(after == before, f"kill {number}: the run directory has changed")
        tally.check({path.name for path in folder.iterdir()} == {"run"}, f"kill {number}: something is left")
        if len(tally.failures) >= 5:
            break
    return tally


def _make_run(folder: Path) -> tuple[Path, list[str]]:
    world = World(frames=6, seed=1, words=90, events=4)
    with tempfile.TemporaryDirectory() as place:
        corpus = revup.Corpus.build(world.sample(300), out=Path(place) / "data", events=4)
        network = {"hidden": 16, "embedding": 16, "latent": 8, "frame": 16}
        revup.train(corpus, network=network, training={"epochs": 1}, device="cpu", out=folder / "run")
    documents = [document_to_json(document) for document in world.sample(60)]
    return folder / "run", [json.dumps({"documents": documents[n : n + 1 + n % 5]}) for n in range(0, 50, 5)]


def _listening(run: Path, port: int) -> tuple[subprocess.Popen[str], int]:
    """A server that listens, and its port."""
    process = start("serve", str(run), "--port", str(port), "--device", "cpu")
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "listening on http://127.0.0.1:" in line, line + process.stderr.read()
    return process, int(line.rstrip().rpartition(":")[2])


def _answer(port: int, body: str) -> bytes:
    """The answer to a request, once the server is ready."""
    for _ in range(600):
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/predict", body.encode())
        answer = connection.getresponse()
        found = answer.read()
        connection.close()
        if answer.status == 200:
            return found
        time.sleep(0.1)
    raise RuntimeError(f"the server does not get ready: {found!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to keep the result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tally = kill_serve(Path(folder), options.kills, options.seed)
    print(f"{tally.kills} kills of serve, {tally.midway} under load, {tally.acknowledged} answers: ", end="")
    print(f"{len(tally.failures)} failures")
    for failure in tally.failures:
        print(f"  {failure}", file=sys.stderr)
    if options.out:
        about = {"seed": options.seed, "version": revup.__version__, "commit": commit()}
        write_json(options.out, {**about, "python": sys.version.split()[0], "serve": asdict(tally)})
    return int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())
