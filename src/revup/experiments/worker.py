"""A process that computes runs of a sweep, and the sweep's end of the pipe to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from revup.experiments.compute import attempt
from revup.experiments.datasets import Corpora
from revup.experiments.runs import Line, Run
from revup.models.shared_counts import sharing_counts
from revup.training import workers
from revup.training.deadline import Deadline


class Worker(workers.Worker):
    """The sweep's end of the pipe.

    Args:
        setup: The first message to the process: data, labels, out, device, deadline, threads.
        log: File for what the process writes to standard error.
        start: As in `revup.training.workers.Worker`.
    """

    def __init__(self, setup: dict[str, Any], log: Path, start: workers.Start = workers.LocalProcess) -> None:
        super().__init__("revup.experiments.worker", setup, log, start)

    def compute(self, run: Run) -> tuple[Line | None, str | None]:
        """Have a run computed: its line, or what went wrong, or neither if it was stopped."""
        try:
            answer = self.ask(run.to_json())
        except workers.WorkerDied as error:
            return None, str(error)
        return (None, None) if answer is None else (answer["line"], answer["problem"])


def answer(pipe: workers.Pipe) -> None:
    """The process's end of the pipe."""
    setup = pipe.receive()
    torch.set_num_threads(setup["threads"])
    corpora, out = Corpora(setup["data"], Path(setup["labels"])), Path(setup["out"])
    deadline = Deadline(*setup["deadline"])
    with sharing_counts():
        for given in pipe:
            line, problem = attempt(Run.from_json(given), corpora, out, setup["device"], deadline)
            pipe.send({"line": line, "problem": problem})


if __name__ == "__main__":
    workers.serve(answer)
