"""Kill `revup review` and `revup apply` at random moments: no decision is lost, every file is whole, nothing is left.

    export PYTHONPATH=tests
    python tests/campaigns/kill_review.py [--kills 200] [--seed 0] [--out result.json]

A client decides and undoes as fast as the server answers, and remembers what was acknowledged; the server is stopped
by SIGKILL, SIGTERM or SIGINT, also while it starts. What is on disk then must be what was acknowledged, with the one
request that was under way done or not done, and the next server goes on from there. `revup apply` is stopped while it
writes: its output must be absent, as before, or complete. Prints a table; the exit status is 1 where anything failed.
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
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import revup
from auditing.lists import FRAMES, documents, issues, written
from campaigns.kill import is_start
from revup.auditing.apply import apply
from revup.auditing.issues import decisions_path
from revup.data.events import write
from revup.io.digests import content_digest
from revup.io.files import commit, write_json

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
KEYS = ("id", "event", "given", "decision", "frame", "digest", "time")

State = list[tuple[str, int, str, str | None]]  # document, event, decision, frame


@dataclass
class Tally:
    """What happened.

    Attributes:
        kills: Processes that were stopped.
        midway: Of these, those that were stopped while there was work: a request under way, or a file half written.
        acknowledged: Decisions and undone decisions that the server acknowledged.
        failures: What must not happen, in words.
    """

    kills: int = 0
    midway: int = 0
    acknowledged: int = 0
    failures: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            self.failures.append(what)


def start(*arguments: str) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a job in the background, whose processes ignore it, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-X", "faulthandler", "-m", "revup", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], seconds: float = 300.0) -> tuple[int, str]:
    """The status and the errors of a process that was stopped; one that goes on is made to say where it is."""
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        _, errors = process.communicate(timeout=seconds)
        return 1, f"it went on for {seconds:.0f} seconds:\n{errors}"
    return process.returncode, errors


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# ---- review ------------------------------------------------------------------------------------------------


class Client:
    """Decides and undoes, and remembers what was acknowledged and what is under way."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self.chance, self.state, self.acknowledged = chance, State(), 0
        self.possible: State | None = None  # the state after the request that is under way
        self.connection = HTTPConnection("127.0.0.1", port, timeout=300)
        self.headers: dict[str, str] = {}
        session = self.ask("GET", "/api/session")
        self.headers = {"X-Revup-Token": session["token"], "Content-Type": "application/json"}
        self.list: dict[str, Any] = self.ask("GET", "/api/list")
        self.rows = self.ask("GET", "/api/rows?rows=" + ",".join(map(str, range(50))))["rows"]

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        self.connection.request(method, path, None if body is None else json.dumps(body), self.headers)
        answer = self.connection.getresponse()
        data = json.loads(answer.read())
        if answer.status == 503:  # it was asked to stop, and refuses what it would not write
            raise ConnectionError(data["error"])
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {data}")
        return data

    def step(self) -> None:
        """One decision or one undo."""
        body = {"list": self.list["list"], "after": len(self.state)}
        if self.state and self.chance.random() < 0.25:
            self.possible = self.state[:-1]
            done = self.ask("POST", "/api/undo", body)
        else:
            row = self.chance.randrange(50)
            frame = self.chance.choice(FRAMES)
            decision = "keep" if frame == "Trial" else "accept" if frame == "Verdict" else "other"
            self.possible = [*self.state, (self.rows[str(row)]["id"], 0, decision, frame)]
            done = self.ask("POST", "/api/decide", {**body, "row": row, "decision": decision, "frame": frame})
        self.state, self.possible = self.possible, None
        self.acknowledged += 1
        if done["count"] != len(self.state):
            raise RuntimeError(f"the server counts {done['count']} decisions, expected {len(self.state)}")


def on_disk(path: Path) -> State:
    """The decisions in the file, every line of which must be whole."""
    if not path.exists():
        return []
    found = State()
    for line in path.read_bytes().splitlines(keepends=True):
        data = json.loads(line)
        assert line.endswith(b"\n")
        assert tuple(data) == KEYS
        found.append((data["id"], data["event"], data["decision"], data["frame"]))
    return found


def kill_review(folder: Path, kills: int, seed: int) -> Tally:
    """Stop a review again and again."""
    tally, chance = Tally(), random.Random(f"review {seed}")
    _, listed = written(folder, count=50)
    decisions, state = decisions_path(listed), State()
    allowed = names(folder) | {decisions.name}
    for number in range(kills):
        how, early = chance.choice(SIGNALS), chance.random() < 0.15
        before = tally.failures[:]
        process = start("review", str(listed), "--port", "0")
        assert process.stderr is not None
        tally.kills += 1
        if early:
            time.sleep(chance.uniform(0.0, 0.5))
            process.send_signal(how)
            possible: State | None = None
        else:
            line = process.stderr.readline()
            if "review at http" not in line:
                tally.failures.append(f"kill {number}: did not start: {line}{process.stderr.read()}")
                break
            client = Client(int(line.split("127.0.0.1:")[1].split("/")[0]), chance)
            shown: State = [
                (client.rows[str(entry["row"])]["id"], 0, entry["decision"], entry["frame"])
                for entry in client.list["decisions"]
            ]
            tally.check(shown == state, f"kill {number}: the next server shows {len(shown)}, on disk {len(state)}")
            client.state = state
            timer = threading.Timer(chance.uniform(0.0, 0.3), process.send_signal, [how])
            timer.start()
            try:
                while True:
                    client.step()
            except (OSError, HTTPException):
                pass  # it was stopped
            timer.join()
            state, possible = client.state, client.possible
            tally.midway += possible is not None
            tally.acknowledged += client.acknowledged
        if early and how != signal.SIGKILL:  # Python itself may drop a signal while it starts: ask again
            while process.poll() is None:
                time.sleep(0.5)
                process.send_signal(how)
        status, errors = finish(process)
        expected = {-9} if how == signal.SIGKILL else {128 + how, -how, *([1] if early else [])}
        tally.check(status in expected, f"kill {number}: status {status} after {how.name}: {errors}")
        try:
            found = on_disk(decisions)
        except (ValueError, AssertionError) as error:
            tally.failures.append(f"kill {number}: a broken line: {error!r}")
            break
        tally.check(found in (state, possible), f"kill {number}: {len(found)} decisions on disk, {len(state)} expected")
        tally.check(names(folder) <= allowed, f"kill {number}: left behind: {names(folder) - allowed}")
        state = found
        if tally.failures != before and len(tally.failures) >= 5:
            break
    return tally


# ---- apply -------------------------------------------------------------------------------------------------


def kill_apply(folder: Path, kills: int, seed: int, count: int = 20_000) -> Tally:
    """Stop `revup apply` again and again, and let it finish after every kill."""
    tally, chance = Tally(), random.Random(f"apply {seed}")
    folder.mkdir(exist_ok=True)
    file, decisions, out = folder / "docs.jsonl.gz", folder / "d.jsonl", folder / "out.jsonl"
    write(documents(count), file)
    digest = content_digest(file)
    chosen = ({**issue, "decision": "accept", "frame": "Verdict", "digest": digest} for issue in issues(count))
    decisions.write_text("".join(json.dumps({key: row.get(key) for key in KEYS}) + "\n" for row in chosen))
    apply(file, decisions, out)
    whole, given = out.read_bytes(), file.read_bytes()
    command = ("apply", str(file), str(decisions), "--out", str(out), "--force")
    began = time.perf_counter()
    tally.check(start(*command).wait(120) == 0, "it does not finish undisturbed")
    duration = time.perf_counter() - began
    for number in range(kills):
        how, exists = chance.choice(SIGNALS), chance.random() < 0.5
        former = b"what was there before\n"
        out.write_bytes(former) if exists else out.unlink(missing_ok=True)
        process = start(*command)
        time.sleep(chance.uniform(0.1, 1.1) * duration)
        process.send_signal(how)
        status, errors = finish(process)
        tally.kills += 1
        tally.midway += status != 0
        found = out.read_bytes() if out.exists() else None
        complete = status == 0 and found == whole
        untouched = found == (former if exists else None)
        tally.check(complete or untouched or found == whole, f"kill {number}: neither whole nor as before")
        starting = is_start(errors)
        tally.check("Traceback" not in errors or starting, f"kill {number}: {errors}")
        tally.check(status in (0, -how, 128 + how) or starting, f"kill {number}: status {status}: {errors}")
        left = names(folder) - {file.name, decisions.name, out.name}
        tally.check(not left or how == signal.SIGKILL, f"kill {number}: {how.name} left {left}")
        if number % 4 == 0 or left:  # what a SIGKILL leaves is removed by the next run
            again = start(*command)
            tally.check(again.wait(120) == 0, f"kill {number}: the next run fails")
            tally.check(out.read_bytes() == whole, f"kill {number}: the next run writes something else")
            left = names(folder) - {file.name, decisions.name, out.name}
            tally.check(not left, f"kill {number}: left behind: {left}")
        tally.check(file.read_bytes() == given, f"kill {number}: the input changed")
        if len(tally.failures) >= 5:
            break
    return tally


CAMPAIGNS = {"review": kill_review, "apply": kill_apply}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="kills of each verb")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to keep the result")
    options = parser.parse_args()
    tallies: dict[str, Tally] = {}
    print(f"{'verb':<10}{'kills':>8}{'midway':>8}{'acknowledged':>14}{'failures':>10}{'seconds':>9}")
    for verb, campaign in CAMPAIGNS.items():
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            tally = tallies[verb] = campaign(Path(folder) / verb, options.kills, options.seed)
        seconds = time.perf_counter() - began
        counts = f"{tally.kills:>8}{tally.midway:>8}{tally.acknowledged:>14}{len(tally.failures):>10}"
        print(f"{verb:<10}{counts}{seconds:>9.0f}", flush=True)
        for failure in tally.failures:
            print(f"  {failure}", file=sys.stderr)
    if options.out:
        about = {
            "seed": options.seed,
            "version": revup.__version__,
            "commit": commit(),
            "python": sys.version.split()[0],
        }
        write_json(options.out, {**about, **{verb: asdict(tally) for verb, tally in tallies.items()}})
    return int(any(tally.failures for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
