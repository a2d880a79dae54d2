"""Processes that train: the parent asks, each process answers, in lines of JSON over a pipe.

A process loads revup and the data once. One that dies is replaced, and asked again; what it was training continues
from its last checkpoint. When the parent dies, the pipe ends, and the process writes a checkpoint and leaves.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import revup
from revup.errors import Interrupted

GRACE = 15.0  # seconds for a checkpoint when a process is stopped
ORPHAN = 60.0  # seconds within which a process whose parent was killed has written its checkpoint
TRIES = 3  # how often a message is sent to a new process, if the one before died over it

Message = dict[str, Any]
Hear = Callable[[Any], Any]
Start = Callable[[str, int, Path], "Process"]


class WorkerDied(Exception):
    """A process died over a message, and so did those that replaced it."""


class Process(Protocol):
    """A process at the other end of a pipe, here or on another machine."""

    def send(self, line: str) -> None:
        """Write a line; OSError if the process has ended."""

    def receive(self) -> str:
        """Read a line; an empty text if the process has ended."""

    def ended(self) -> bool:
        """Whether the process has ended."""

    def terminate(self) -> None:
        """Tell the process to end; training writes a checkpoint first."""

    def bury(self) -> str:
        """Wait until the process has ended, by force if that takes too long; returns how it ended."""


class LocalProcess:
    """A process of this machine.

    Args:
        module: The module that it runs.
        threads: How many threads it computes with.
        log: File for what it writes to standard error.
    """

    def __init__(self, module: str, threads: int, log: Path) -> None:
        here = str(Path(revup.__file__).parents[1])
        paths = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        with open(log, "w", encoding="utf-8") as errors:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(threads)},
            )

    def send(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line)
        self.popen.stdin.flush()

    def receive(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline()

    def ended(self) -> bool:
        return self.popen.poll() is not None

    def terminate(self) -> None:
        self.popen.terminate()

    def bury(self) -> str:
        try:
            self.popen.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        for stream in (self.popen.stdin, self.popen.stdout):
            with suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()
        return f"its process died with status {self.popen.returncode}: {_tail(self.log)}"


class Worker:
    """The parent's end of the pipe to a process, and to the one that replaces it if it dies.

    Args:
        module: The module that the process runs; it uses `Pipe`.
        setup: The first message to the process. `threads`: how many threads it computes with.
        log: File for what the process writes to standard error.
        start: Starts a process elsewhere than here, given module, threads and log.

    Attributes:
        process: The process, once it was started.
        stopping: Whether it was told to end.
    """

    def __init__(self, module: str, setup: Message, log: Path, start: Start = LocalProcess) -> None:
        self.module, self.setup, self.log, self._start = module, setup, log, start
        self.process: Process | None = None
        self.stopping = False
        self._starting = threading.Lock()  # a process started while all are being stopped would be left behind

    def ask(self, message: Message, hear: Hear | None = None) -> Message | None:
        """Send a message and wait for its answer.

        Args:
            message: The message.
            hear: Called with each report before the answer; what it returns is sent back.

        Returns:
            The answer; None if the process was told to end.

        Raises:
            WorkerDied: It died, as did its successors; or none could be started.
        """
        how = ""
        for _ in range(TRIES):
            process = self._running()
            if process is None:
                return None
            try:
                return self._converse(process, message, hear)
            except (OSError, EOFError, ValueError):  # ValueError: its pipe was closed by `wait`
                if self.stopping:
                    return None
                how = process.bury()
                self.process = None
        raise WorkerDied(how)

    def _running(self) -> Process | None:
        """The process, started if there is none; None if it was told to end."""
        with self._starting:
            if self.stopping:
                return None
            if self.process is None or self.process.ended():
                try:
                    self.process = self._start(self.module, self.setup["threads"], self.log)
                    self.process.send(json.dumps(self.setup) + "\n")
                except (OSError, EOFError) as error:
                    if self.process is None:
                        raise WorkerDied(f"no process could be started: {error}") from None
            return self.process

    def _converse(self, process: Process, message: Message, hear: Hear | None) -> Message:
        process.send(json.dumps(message) + "\n")
        while True:
            line = process.receive()
            if not line.endswith("\n"):  # it died, perhaps in the middle of a line
                raise EOFError
            answer: Message = json.loads(line)
            if "report" not in answer:
                return answer
            process.send(json.dumps(hear(answer["report"]) if hear is not None else None) + "\n")

    def stop(self) -> None:
        """Tell the process to end; training writes a checkpoint first."""
        with self._starting:
            self.stopping = True
        if self.process is not None:
            self.process.terminate()

    def wait(self) -> None:
        """Wait until the stopped process has ended, and end it by force if that takes too long."""
        if self.process is not None:
            self.process.bury()


def _tail(path: Path) -> str:
    try:
        lines = path.read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:300] if lines else "it left no message"


class ParentGone(Exception):
    """The parent has died; raised where training reports, so that a checkpoint is written."""


class Pipe:
    """The process's end of the pipe. There is one, and it takes over the standard streams."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent stops its processes
        self._answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints must not look like an answer
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ended = object()
        self._waiting = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._messages.put(json.loads(line))
        self._messages.put(self._ended)
        if not self._waiting:
            os.kill(os.getpid(), signal.SIGTERM)  # the parent has died: training writes a checkpoint

    def receive(self) -> Any:
        """The next message.

        Raises:
            ParentGone: There will be none.
        """
        self._waiting = True
        message = self._messages.get()
        if message is self._ended:
            raise ParentGone
        self._waiting = False
        return message

    def send(self, message: Message) -> None:
        """Send an answer."""
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()

    def report(self, report: Any) -> Any:
        """Send a report while working on an answer; returns what the parent says to it."""
        self.send({"report": report})
        return self.receive()

    def __iter__(self) -> Iterator[Any]:
        """The messages to come."""
        while True:
            yield self.receive()


def serve(answer: Callable[[Pipe], None]) -> None:
    """What a module that is run as a process does: answer messages until the parent ends, or a signal comes.

    Args:
        answer: Reads messages and sends answers.
    """
    try:
        answer(Pipe())
    except (ParentGone, BrokenPipeError):
        pass
    except Interrupted as stop:
        raise SystemExit(stop.status) from None
