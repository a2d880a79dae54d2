"""A process that computes runs of a sweep, and both ends of the pipe to it.

`python -m revup.experiments.worker` loads revup and the data once, then answers each run (a line of JSON) with a line.
A worker that dies loses one run, and the next run gets a new process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import revup
from revup.data.corpus import Corpus
from revup.experiments.compute import Deadline, attempt
from revup.experiments.results import Run

GRACE = 15.0  # seconds for a checkpoint when a worker is stopped


class Worker:
    """The sweep's end of the pipe.

    Args:
        setup: The first message to the process: data, out, device, deadline, threads.
        log: File for what the process writes to standard error.
    """

    def __init__(self, setup: dict[str, Any], log: Path) -> None:
        self.setup, self.log = setup, log
        self.process: subprocess.Popen[str] | None = None
        self.stopping = False
        self._starting = threading.Lock()  # a process started while all are being stopped would be left behind

    def ask(self, run: Run) -> str | None:
        """Have a run computed; None if it has a result now or was stopped, otherwise what went wrong."""
        try:
            with self._starting:
                if self.stopping:
                    return None
                if self.process is None or self.process.poll() is not None:
                    self.process = self._start()
            answer = self._say(asdict(run))
        except (OSError, ValueError) as error:  # ValueError: `stop` has closed the pipe
            answer = ""
            if self.process is None:
                return f"no process could be started: {error}"
        if answer:
            problem: str | None = json.loads(answer)["problem"]
            return problem
        return None if self.stopping else f"its process died with status {self.process.wait()}: {_tail(self.log)}"

    def _say(self, message: dict[str, Any]) -> str:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def _start(self) -> subprocess.Popen[str]:
        here = str(Path(revup.__file__).parents[1])
        paths = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "revup.experiments.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(self.setup["threads"])},
            )
        assert process.stdin is not None
        process.stdin.write(json.dumps(self.setup) + "\n")
        return process

    def stop(self) -> None:
        """Tell the process to end; training writes a checkpoint first."""
        with self._starting:
            self.stopping = True
        if self.process is not None:
            self.process.terminate()

    def wait(self) -> None:
        """Wait until the stopped process has ended, and end it by force if that takes too long."""
        process = self.process
        if process is None:
            return
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()


def _tail(path: Path) -> str:
    try:
        lines = path.read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:300] if lines else "it left no message"


def main() -> None:
    """The process's end of the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the sweep stops its workers
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints must not look like an answer
    setup = json.loads(sys.stdin.readline())
    torch.set_num_threads(setup["threads"])
    corpus, out, deadline = Corpus.load(setup["data"]), Path(setup["out"]), Deadline(*setup["deadline"])
    for line in sys.stdin:
        given = json.loads(line)
        run = Run(**{**given, "settings": tuple(tuple(setting) for setting in given["settings"])})
        problem = attempt(run, corpus, out, setup["device"], deadline)[1]
        answers.write(json.dumps({"problem": problem}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
