"""Dynamic batching: documents of requests that arrive together are computed together.

A network this small spends most of a single document's time on overhead that a batch pays once. Documents wait in a
queue, and as many batches are computed at a time as there are threads:

    share    what a free thread takes: its part of all documents that are here, waiting or being computed, at most
             `max_batch`; a multiple of EVEN, to which batches are filled up anyway, where there are that many
    window   where nothing is being computed, a free thread takes documents at once. Beside a batch that is, a thread
             waits for its part of what was here lately: a small batch costs as much as one of EVEN documents. It waits
             until the first document has waited for as long as a batch takes (so that waiting at most doubles what
             starting at once would have cost), or for `window` milliseconds

So a document on an idle server is computed immediately, under half of the load batches follow one another rather than
compete for the cores, and under full load clients that were answered together come back together. A request with many
documents is served in parts, in turn with the others.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from revup.data.events import Document
from revup.inference.event_values import EVEN
from revup.serving.limits import Limits
from revup.serving.metrics import Metrics
from revup.serving.requests import Refused, Request

LATELY = 8  # batches in whose time the memory of how many documents were here falls by 1/e

Item = tuple[Document, Request]
Compute = Callable[[Any, Sequence[Item]], list[Any]]


@dataclass(slots=True, eq=False)
class Job:
    """The documents of one request on their way."""

    request: Request
    future: asyncio.Future[list[Any]]
    results: list[Any]
    arrived: float
    events: int
    taken: int = 0  # documents that are or were in a batch
    left: int = 0  # documents without a result
    timer: asyncio.TimerHandle | None = None


Parts = list[tuple[Job, int, int]]  # jobs with the first and the last + 1 of their documents in a batch


class Batcher:
    """Collects documents of requests into batches and computes them in threads; to be used from one event loop.

    Args:
        compute: Maps a key and (document, request) pairs to their results, in a thread. Only requests of the same
            key are computed together.
        threads: How many batches are computed at a time.
        limits: Queue, batch, window and timeout.
        metrics: Where batches are counted.
        start_thread: Called in each thread at its start.
    """

    def __init__(
        self, compute: Compute, threads: int, limits: Limits, metrics: Metrics, start_thread: Callable[[], object]
    ) -> None:
        self._compute, self._threads, self._limits, self._metrics = compute, threads, limits, metrics
        self._pool = ThreadPoolExecutor(threads, "revup-compute", initializer=start_thread)
        self._loop = asyncio.get_running_loop()
        self._groups: dict[Hashable, deque[Job]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._free = threads
        self.queued = self.queued_events = self.running = 0  # documents, events, documents
        self._lately, self._lately_at = 0.0, 0.0
        self._batch_seconds = 0.0

    @property
    def full(self) -> bool:
        """Whether no further request is accepted."""
        return self.queued_events >= self._limits.max_queue

    def submit(self, key: Hashable, request: Request) -> asyncio.Future[list[Any]]:
        """Accept a request.

        Args:
            key: Only requests of the same key are computed together.
            request: Documents with options.

        Returns:
            The results of its documents, in their order.

        Raises:
            Refused: 429 where too many events wait.
        """
        events, count = request.events, len(request.documents)
        if self.full or (self.queued_events and self.queued_events + events > self._limits.max_queue):
            raise self.overloaded()
        job = Job(request, self._loop.create_future(), [None] * count, time.monotonic(), events, left=count)
        job.timer = self._loop.call_later(self._limits.timeout, self._expire, job)
        self._groups.setdefault(key, deque()).append(job)
        self.queued += count
        self.queued_events += events
        self._consider()
        return job.future

    def overloaded(self) -> Refused:
        """The answer to a request that finds the queue full."""
        message = f"overloaded: {self.queued_events} events wait already, try again later"
        return Refused(429, message, retry_after=1)

    def close(self) -> None:
        """End the threads, after the batches that they compute."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ---- batches -----------------------------------------------------------------------------------------------

    def _consider(self) -> None:
        """Start every batch that should start now, and look again when the next one may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free and self._groups:
            now = time.monotonic()
            wanted = min(self._here_lately(now) / self._threads, self._limits.max_batch)
            key, jobs = min(self._groups.items(), key=lambda item: item[1][0].arrived)
            wait = jobs[0].arrived + self._window() - now
            if self.running and self.queued < wanted and wait > 0:
                self._timer = self._loop.call_later(wait, self._consider)
                return
            self._start(key, self._take(key, jobs))

    def _here_lately(self, now: float) -> float:
        """The largest number of documents waiting or computed at a time, forgotten exponentially."""
        faded = self._lately * math.exp((self._lately_at - now) / (LATELY * (self._batch_seconds or 1.0)))
        self._lately, self._lately_at = max(float(self.queued + self.running), faded), now
        return self._lately

    def _window(self) -> float:
        if self._limits.max_batch == 1:
            return 0.0
        return min(self._limits.window / 1000, self._batch_seconds)

    def _take(self, key: Hashable, jobs: deque[Job]) -> Parts:
        """Take the next batch from a group: parts of equal size of large jobs, in turn with the others."""
        share = math.ceil((self.queued + self.running) / self._threads / EVEN) * EVEN
        room = min(share, max(EVEN, self.queued // EVEN * EVEN), self._limits.max_batch)
        parts: Parts = []
        while jobs and room:
            job = jobs.popleft()
            first, last = job.taken, min(job.taken + min(room, EVEN if jobs else room), len(job.results))
            parts.append((job, first, last))
            job.taken = last
            room -= last - first
            if last < len(job.results):
                jobs.append(job)
            events = sum(len(document.events) for document in job.request.documents[first:last])
            self._count(first - last, -events)
        if not jobs:
            del self._groups[key]
        return parts

    def _count(self, documents: int, events: int) -> None:
        self.queued += documents
        self.queued_events += events

    def _start(self, key: Hashable, parts: Parts) -> None:
        items = [(doc, job.request) for job, first, last in parts for doc in job.request.documents[first:last]]
        self._free -= 1
        self.running += len(items)
        self._metrics.batch(len(items))
        begun = time.monotonic()

        def done(future: Future[list[Any]]) -> None:
            self._loop.call_soon_threadsafe(self._finish, parts, len(items), begun, future)

        self._pool.submit(self._run, key, items).add_done_callback(done)

    def _run(self, key: Hashable, items: list[Item]) -> list[Any]:
        """Compute a batch; where that fails, each document alone, so that a failure is that of one request."""
        try:
            return self._compute(key, items)
        except Exception as error:
            if len(items) == 1:
                return [error]
            return [result for item in items for result in self._run(key, [item])]

    def _finish(self, parts: Parts, count: int, begun: float, future: Future[list[Any]]) -> None:
        took = time.monotonic() - begun
        self._batch_seconds += 0.2 * (took - self._batch_seconds) if self._batch_seconds else took
        self._free += 1
        self.running -= count
        results = iter(future.result())
        for job, first, last in parts:
            job.results[first:last] = [next(results) for _ in range(first, last)]
            job.left -= last - first
            if job.left == 0:
                self._answer(job)
        self._consider()

    def _answer(self, job: Job) -> None:
        if job.timer is not None:
            job.timer.cancel()
        if job.future.done():
            return
        failed = next((result for result in job.results if isinstance(result, Exception)), None)
        if failed is not None:
            job.future.set_exception(failed)
        else:
            job.future.set_result(job.results)

    def _expire(self, job: Job) -> None:
        """Refuse a request that has waited too long; documents that no thread has taken yet are dropped."""
        for key, jobs in list(self._groups.items()):
            if job in jobs:
                jobs.remove(job)
                rest = job.request.documents[job.taken :]
                self._count(-len(rest), -sum(len(document.events) for document in rest))
                if not jobs:
                    del self._groups[key]
        if not job.future.done():
            message = f"not answered within {self._limits.timeout:g} seconds, try again later"
            job.future.set_exception(Refused(503, message, retry_after=1))
