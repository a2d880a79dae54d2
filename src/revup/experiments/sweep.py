"""A sweep: many runs on one corpus, several at a time, in as many sittings as it takes.

Runs that have a result are not computed again; those that were stopped continue from their checkpoints. Stopped by a
signal, a sweep stops its workers, which write checkpoints, and leaves all finished runs.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from revup.data.corpus import Corpus
from revup.experiments.compute import Deadline, attempt
from revup.experiments.results import Result, Run, read_result
from revup.experiments.worker import Worker
from revup.reporting.progress import SweepProgress

_Event = tuple[bool, Run, str | None]  # whether it ended (or started), which run, what went wrong


@dataclass
class Outcome:
    """What a sweep computed.

    Attributes:
        results: Results of the finished runs, those of earlier sittings included.
        failed: What went wrong with the others that were tried.
        left: How many runs are left.
        seconds_left: Estimated time for those; None as long as no run has finished.
    """

    results: dict[Run, Result]
    failed: dict[Run, str]
    left: int
    seconds_left: float | None


class Sweep:
    """Computes runs on a corpus into an output directory.

    Args:
        corpus: The data.
        out: The output directory.
        device: Where to train; by default a GPU if there is one.
        jobs: Runs at a time; more than one are computed in processes of their own.
        deadline: When to stop.
        progress: Called whenever a run starts or ends.
    """

    def __init__(
        self,
        corpus: Corpus,
        out: Path,
        device: str | None = None,
        jobs: int = 1,
        deadline: Deadline | None = None,
        progress: Callable[[SweepProgress], None] | None = None,
    ) -> None:
        self.corpus, self.out, self.device, self.jobs = corpus, out, device, max(jobs, 1)
        self.deadline, self.progress = deadline or Deadline(), progress

    def complete(self, runs: Iterable[Run]) -> Outcome:
        """Compute the runs that have no result, seed by seed: a sweep that is stopped has all systems early.

        Args:
            runs: The runs that should have results.

        Returns:
            All results, and what is missing.
        """
        names = {run: self._name(run) for run in sorted(runs, key=lambda run: run.seed)}
        known = {name: read_result(self.out, name) for name in names.values()}
        todo: dict[str, Run] = {}
        for run, name in names.items():
            if known[name] is None:
                todo.setdefault(name, run)
        status, failed = SweepProgress(len(known), len(known) - len(todo)), dict[str, str]()
        jobs = min(self.jobs, len(todo))
        for ended, run, problem in (
            self._in_workers([*todo.values()], jobs) if jobs > 1 else self._here([*todo.values()])
        ):
            name = names[run]
            if not ended:
                status.running.append(str(run))
            else:
                status.running.remove(str(run))
                known[name] = read_result(self.out, name)
                if problem is not None:
                    failed[name] = problem
                if problem is not None or known[name] is not None:
                    del todo[name]
            status.failed, status.done = len(failed), len(known) - len(failed) - len(todo)
            status.seconds_left = seconds_left(known.values(), todo.values(), self.jobs)
            if self.progress is not None:
                self.progress(status)
        return Outcome(
            {run: found for run, name in names.items() if (found := known[name]) is not None},
            {run: failed[name] for run, name in names.items() if name in failed},
            len(todo),
            seconds_left(known.values(), todo.values(), self.jobs),
        )

    def _name(self, run: Run) -> str:
        return run.name(self.corpus.fingerprint)

    def _here(self, todo: Iterable[Run]) -> Iterator[_Event]:
        for run in todo:
            if self.deadline.near:
                return
            yield False, run, None
            yield True, run, attempt(run, self.corpus, self.out, self.device, self.deadline)[1]

    def _in_workers(self, todo: Iterable[Run], jobs: int) -> Iterator[_Event]:
        """Each worker has a thread here that hands it runs and takes its answers."""
        pending: queue.SimpleQueue[Run] = queue.SimpleQueue()
        for run in todo:
            pending.put(run)
        events: queue.Queue[_Event | None] = queue.Queue()
        setup = {
            "data": str(self.corpus.path.absolute()),
            "out": str(self.out.absolute()),
            "device": self.device,
            "deadline": [self.deadline.soft, self.deadline.hard],
            "threads": max(1, cores() // jobs),
        }
        workers = [Worker(setup, self.out / "work" / f"worker-{number}.log") for number in range(jobs)]

        def serve(worker: Worker) -> None:
            while not worker.stopping and not self.deadline.near:
                try:
                    run = pending.get_nowait()
                except queue.Empty:
                    break
                events.put((False, run, None))
                events.put((True, run, worker.ask(run)))
            worker.stop()
            events.put(None)

        threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        at_work = len(threads)
        try:
            while at_work and time.time() < self.deadline.hard:
                try:
                    event = events.get(timeout=0.2)
                except queue.Empty:
                    continue
                if event is None:
                    at_work -= 1
                else:
                    yield event
        finally:
            for worker in workers:
                worker.stop()
            for worker in workers:
                worker.wait()


def seconds_left(known: Iterable[Result | None], waiting: Collection[Run], jobs: int) -> float | None:
    """How long runs will take, from what finished runs of the same model and preset took.

    Args:
        known: Results of finished runs.
        waiting: The runs to estimate.
        jobs: Runs at a time.

    Returns:
        Seconds; a model without finished runs counts with the mean of all. None without any.
    """
    took: dict[tuple[str, str], list[float]] = {}
    for result in known:
        if result is not None:
            took.setdefault((result["config"]["model"], result["config"]["preset"]), []).append(result["seconds"])
    every = [seconds for found in took.values() for seconds in found]
    if not every:
        return None
    means = {key: sum(found) / len(found) for key, found in took.items()}
    return sum(means.get((run.model, run.preset), sum(every) / len(every)) for run in waiting) / jobs


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
