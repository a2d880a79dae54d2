"""Training the jobs of a search: here, one after the other, or several at a time in processes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from revup.data.corpus import Corpus
from revup.models.shared_counts import sharing_counts
from revup.ops.device import cores
from revup.training.deadline import Deadline
from revup.training.remote import processes_on_cluster
from revup.training.tuning.trial import train_trial
from revup.training.workers import LocalProcess, Start, Worker, WorkerDied

Job = dict[str, Any]


class Crew:
    """Trains jobs: here, one after the other, or in several processes.

    Args:
        corpus: The data.
        work: The directory of checkpoints and logs.
        device: Where to train.
        jobs: Trials at a time; None: one for each core, at most 8, or each processor of the cluster.
        engine: Where processes run: "local", or "ray" for the cluster that RAY_ADDRESS names.
    """

    def __init__(self, corpus: Corpus, work: Path, device: str, jobs: int | None, engine: str = "local") -> None:
        self.corpus, self.folder, self.device, self.jobs, self.engine = corpus, work, device, jobs, engine

    def work(
        self,
        take: Callable[[], Job | None],
        hear: Callable[[Mapping[str, Any]], bool],
        done: Callable[[Job, Mapping[str, Any]], bool],
        deadline: Deadline,
        waiting: int | None,
    ) -> None:
        """Train what `take` gives until it gives nothing, or the time is up.

        Args:
            take: The next job; None if there is none.
            hear: Told of each validation; returns whether to stop the job. One call at a time, as with the others.
            done: Told what came of a job; returns whether it has ended, so that its checkpoint can go.
            deadline: When to stop.
            waiting: How many jobs there are; None: no limit.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        most = self.jobs or min(cores(), 8)
        if waiting is not None:
            most = min(most, waiting)
        if self.engine == "ray" and waiting != 0:
            with processes_on_cluster(self.folder, self.jobs, self.device) as (start, count):
                count = count if waiting is None else min(count, waiting)
                self._in_workers(take, hear, done, deadline, count, start, torch_threads=1)
            return
        if most > 1:
            self._in_workers(take, hear, done, deadline, most, LocalProcess, max(1, cores() // most))
            return
        with sharing_counts():
            while not deadline.near and (job := take()) is not None:
                answer = train_trial(job, self.corpus, self.folder, self.device, deadline, hear)
                self._ended(job, done(job, answer))

    def _ended(self, job: Job, ended: bool) -> None:
        if ended:  # and recorded: a kill before this line loses nothing
            shutil.rmtree(self.folder / job["name"], ignore_errors=True)

    def _in_workers(
        self,
        take: Callable[[], Job | None],
        hear: Callable[[Mapping[str, Any]], bool],
        done: Callable[[Job, Mapping[str, Any]], bool],
        deadline: Deadline,
        count: int,
        start: Start,
        torch_threads: int,
    ) -> None:
        """Each process has a thread here that hands it jobs and takes its answers; the journal has one writer."""
        setup = {
            "data": str(self.corpus.path.absolute()),
            "work": str(self.folder.absolute()),
            "device": self.device,
            "deadline": [deadline.soft, deadline.hard],
            "threads": torch_threads,
        }
        module = "revup.training.tuning.trial"
        workers = [Worker(module, setup, self.folder / f"worker-{number}.log", start) for number in range(count)]
        writing, problems = threading.Lock(), list[BaseException]()

        def heard(report: Mapping[str, Any]) -> bool:
            with writing:
                return hear(report)

        def serve(worker: Worker) -> None:
            try:
                while not (worker.stopping or problems or deadline.near):
                    with writing:
                        job = take()
                    if job is None:
                        break
                    try:
                        answer = worker.ask(job, heard) or {}
                    except WorkerDied as error:
                        answer = {"problem": str(error)}
                    with writing:
                        self._ended(job, done(job, answer))
            except BaseException as error:
                problems.append(error)
            worker.stop()

        threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads) and not problems and time.time() < deadline.hard:
                for thread in threads:
                    thread.join(0.1)
        finally:
            for worker in workers:
                worker.stop()
            for worker in workers:
                worker.wait()
            for thread in threads:
                thread.join(1.0)
        if problems:
            raise problems[0]
