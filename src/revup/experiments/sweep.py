"""A sweep: many runs on some datasets, several at a time, in as many sittings as it takes.

Runs that are in the file of runs are not computed again; those that were stopped continue from their checkpoints. A
finished run is appended to the file at once, so a kill loses none. Those that take longest come first, and those that
stand on the same counts follow each other (`revup.experiments.waiting`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from revup.experiments.compute import attempt
from revup.experiments.datasets import Corpora
from revup.experiments.runs import Line, Run, RunFile
from revup.experiments.waiting import Waiting
from revup.experiments.worker import Worker
from revup.models import model_class
from revup.models.shared_counts import sharing_counts
from revup.ops.device import cores
from revup.reporting.progress import SweepProgress
from revup.training.deadline import Deadline
from revup.training.remote import processes_on_cluster
from revup.training.workers import LocalProcess, Start

_Event = tuple[bool, Run, Line | None, str | None]  # whether it ended (or started), which run, its line, its problem


@dataclass
class Outcome:
    """What a sweep computed.

    Attributes:
        results: Lines of the finished runs, those of earlier sittings included.
        failed: What went wrong with the others that were tried.
        left: How many runs are left.
        seconds_left: Estimated time for those; None as long as no run has finished.
    """

    results: dict[Run, Line]
    failed: dict[Run, str]
    left: int
    seconds_left: float | None


class Sweep:
    """Computes runs into the file of runs of an output directory.

    Args:
        corpora: The datasets.
        out: The output directory.
        file: Its file of runs.
        device: Where to train; by default a GPU if there is one.
        jobs: Runs at a time; more than one are computed in processes of their own. None: one for each core, at most 8.
        deadline: When to stop.
        progress: Called whenever a run starts or ends.
        engine: Where processes run: "local", or "ray" for the cluster that RAY_ADDRESS names.
    """

    def __init__(
        self,
        corpora: Corpora,
        out: Path,
        file: RunFile,
        device: str | None = None,
        jobs: int | None = 1,
        deadline: Deadline | None = None,
        progress: Callable[[SweepProgress], None] | None = None,
        engine: str = "local",
    ) -> None:
        self.corpora, self.out, self.file, self.device, self.engine = corpora, out, file, device, engine
        self.asked, self.jobs = jobs, jobs or min(cores(), 8)
        self.deadline, self.progress = deadline or Deadline(), progress

    def complete(self, runs: Iterable[Run]) -> Outcome:
        """Compute the runs that have no result, those that take longest first.

        Args:
            runs: The runs that should have results; of equal ones all tests are made.

        Returns:
            All results, and what is missing.
        """
        wanted = merged(runs)
        names = {run: run.name(self.corpora[run.data].fingerprint) for run in wanted}
        todo = {names[run]: run for run in wanted if not self._known(run, names)}
        status = SweepProgress(len(set(names.values())), len(set(names.values())) - len(todo))
        failed: dict[str, str] = {}
        for ended, run, line, problem in self._events([*todo.values()]):
            name = names[run]
            if not ended:
                status.running.append(str(run))
            else:
                status.running.remove(str(run))
                if line is not None:
                    self.file.add(line)
                    status.done += 1
                if problem is not None:
                    failed[name] = problem
                if line is not None or problem is not None:
                    del todo[name]
            status.failed = len(failed)
            status.seconds_left = seconds_left(self.file.results.values(), todo.values(), self.jobs)
            if self.progress is not None:
                self.progress(status)
        return Outcome(
            {run: self.file.results[name] for run, name in names.items() if name in self.file.results},
            {run: failed[name] for run, name in names.items() if name in failed},
            len(todo),
            seconds_left(self.file.results.values(), todo.values(), self.jobs),
        )

    def _known(self, run: Run, names: dict[Run, str]) -> bool:
        """Whether a run has a result, with every test that is wanted."""
        line = self.file.results.get(names[run])
        if line is None:
            return False
        revealed = {f"{share:g}" for share in run.revealed}
        return set(run.tests) <= set(line.get("transfer", ())) and revealed <= set(line.get("revealed", ()))

    def _cost(self, run: Run) -> float:
        """How long a run takes, roughly: to order runs."""
        kind = model_class(run.system.model)
        weight = 0.1 if not kind.learns else 3.0 if kind.writes_text else 1.0
        return weight * (1.5 if run.condition.text else 1.0) * max(len(self.corpora[run.data].split("train")), 10_000)

    def _events(self, todo: Sequence[Run]) -> Iterator[_Event]:
        if self.engine == "ray" and todo:
            with processes_on_cluster(self.out / "work", self.asked, self.device or "cpu") as (start, count):
                self.jobs = count
                yield from self._in_workers(todo, min(count, len(todo)), start, torch_threads=1)
        elif min(self.jobs, len(todo)) > 1:
            jobs = min(self.jobs, len(todo))
            yield from self._in_workers(todo, jobs, LocalProcess, max(1, cores() // jobs))
        else:
            yield from self._here(todo)

    def _here(self, todo: Iterable[Run]) -> Iterator[_Event]:
        waiting, run = Waiting(todo, self._cost), None
        with sharing_counts():
            while not self.deadline.near and (run := waiting.next(run)) is not None:
                yield False, run, None, None
                yield True, run, *attempt(run, self.corpora, self.out, self.device, self.deadline)

    def _in_workers(self, todo: Iterable[Run], jobs: int, start: Start, torch_threads: int) -> Iterator[_Event]:
        """Each worker has a thread here that hands it runs and takes its answers."""
        waiting = Waiting(todo, self._cost)
        events: queue.Queue[_Event | None] = queue.Queue()
        setup = {
            "data": {name: str(path.absolute()) for name, path in self.corpora.paths.items()},
            "labels": str(self.corpora.labels.absolute()),
            "out": str(self.out.absolute()),
            "device": self.device,
            "deadline": [self.deadline.soft, self.deadline.hard],
            "threads": torch_threads,
        }
        workers = [Worker(setup, self.out / "work" / f"worker-{number}.log", start) for number in range(jobs)]

        def serve(worker: Worker) -> None:
            run = None
            while not worker.stopping and not self.deadline.near and (run := waiting.next(run)) is not None:
                events.put((False, run, None, None))
                events.put((True, run, *worker.compute(run)))
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
            while not events.empty():  # what was finished when the time was up
                if (event := events.get()) is not None:
                    yield event
        finally:
            for worker in workers:
                worker.stop()
            for worker in workers:
                worker.wait()


def merged(runs: Iterable[Run]) -> list[Run]:
    """Each run once, with the tests of all that equal it."""
    found: dict[Run, Run] = {}
    for run in runs:
        known = found.get(run, run)
        tests = tuple(sorted({*known.tests, *run.tests}))
        found[run] = replace(run, tests=tests, revealed=tuple(sorted({*known.revealed, *run.revealed})))
    return list(found.values())


def seconds_left(known: Iterable[Line], waiting: Collection[Run], jobs: int) -> float | None:
    """How long runs will take, from what finished runs of the same system and dataset took.

    Args:
        known: Lines of finished runs.
        waiting: The runs to estimate.
        jobs: Runs at a time.

    Returns:
        Seconds; a system without finished runs counts with the mean of all. None without any.
    """
    took: dict[tuple[str, str], list[float]] = {}
    for line in known:
        took.setdefault((line["data"], line["system"]), []).append(line["seconds"])
    every = [seconds for found in took.values() for seconds in found]
    if not every:
        return None
    means = {key: sum(found) / len(found) for key, found in took.items()}
    return sum(means.get((run.data, run.system.name), sum(every) / len(every)) for run in waiting) / jobs
