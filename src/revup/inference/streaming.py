"""Answering a stream of documents by threads: in full batches, or live, each document as soon as it is there.

On a CPU as many batches as torch has threads are computed at a time, each on one of them: with networks this small that
keeps all cores busier than threads inside each operation.

Live, a thread reads documents into a queue. A worker takes a lone document at once, and of others what is there when
the oldest has waited for `PATIENCE` seconds, or a full batch: when idle answers come at once, and under load documents
are computed in full batches. Answers keep the order of the documents, and at most `most` documents are held.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Generic, TypeVar

import torch

PATIENCE = 0.01  # seconds that a document waits for others, unless none came for as long before it

D = TypeVar("D")
A = TypeVar("A")
Answer = Callable[[Sequence[D]], Sequence[A]]


@contextmanager
def computing_threads(workers: int, alone: bool) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads to compute in; with `alone`, torch runs each operation on one thread."""
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1 if alone else threads,)) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)


def answered(
    documents: Iterable[D], answer: Answer[D, A], device: torch.device, most: int, size: int, live: bool = False
) -> Iterator[tuple[D, A]]:
    """Yield documents with their answers, in order.

    Args:
        documents: The documents.
        answer: Answers a batch of documents; it is called by several threads.
        device: Where it computes.
        most: How many documents are held at a time.
        size: How many documents a batch has at most.
        live: Answer a document as soon as it is there, rather than waiting until a batch is full.
    """
    on_cpu = device.type == "cpu"
    workers = torch.get_num_threads() if on_cpu else 1
    size = max(1, min(size, most // (workers + 1)))
    with computing_threads(workers, on_cpu) as pool:
        if live:
            yield from _Live(documents, answer, most, size).run(pool, workers)
        else:
            yield from _in_batches(documents, answer, size, pool, workers)


def _in_batches(
    documents: Iterable[D], answer: Answer[D, A], size: int, pool: ThreadPoolExecutor, workers: int
) -> Iterator[tuple[D, A]]:
    waiting: deque[tuple[list[D], Future[Sequence[A]]]] = deque()
    failure: list[Exception] = []
    for part in _batches(documents, size, failure):
        waiting.append((part, pool.submit(answer, part)))
        if len(waiting) > workers:
            done, found = waiting.popleft()
            yield from zip(done, found.result(), strict=True)
    for done, found in waiting:
        yield from zip(done, found.result(), strict=True)
    if failure:
        raise failure[0]


def _batches(documents: Iterable[D], size: int, failure: list[Exception]) -> Iterator[list[D]]:
    """Cut documents into batches; an error of theirs is noted, so that those before it are answered."""
    part: list[D] = []
    try:
        for document in documents:
            part.append(document)
            if len(part) == size:
                yield part
                part = []
    except Exception as error:
        failure.append(error)
    if part:
        yield part


class _Live(Generic[D, A]):
    """A reader, workers, and the queue between them."""

    def __init__(self, documents: Iterable[D], answer: Answer[D, A], most: int, size: int) -> None:
        self.documents, self.answer, self.most, self.size = documents, answer, most, size
        self.changed = threading.Condition()
        self.waiting: deque[tuple[float, D]] = deque()  # with the time at which it should be taken
        self.held = 0  # documents that were read and are not yet answered
        self.ended = self.stopped = False
        self.failure: BaseException | None = None
        # parts in the order in which they were taken from the queue; None where a worker ended
        self.taken: SimpleQueue[tuple[list[D], Future[Sequence[A]]] | None] = SimpleQueue()

    def run(self, pool: ThreadPoolExecutor, workers: int) -> Iterator[tuple[D, A]]:
        # a daemon: it may wait for its next document for ever
        threading.Thread(target=self._read, name="revup-reader", daemon=True).start()
        for _ in range(workers):
            pool.submit(self._work)
        try:
            while workers:
                item = self.taken.get()
                if item is None:
                    workers -= 1
                    continue
                part, found = item
                for pair in zip(part, found.result(), strict=True):
                    yield pair
                    with self.changed:
                        self.held -= 1
                        if self.held == self.most - 1:
                            self.changed.notify_all()
            if self.failure is not None:
                raise self.failure
        finally:
            with self.changed:
                self.stopped = True
                self.changed.notify_all()

    def _read(self) -> None:
        before = 0.0
        try:
            for document in self.documents:
                with self.changed:
                    self.changed.wait_for(lambda: self.held < self.most or self.stopped)
                    if self.stopped:
                        return
                    now = time.monotonic()
                    self.held += 1
                    self.waiting.append((now if now - before > PATIENCE else now + PATIENCE, document))
                    before = now
                    if len(self.waiting) in (1, self.size):
                        self.changed.notify_all()
        except BaseException as error:  # raised again by whoever reads the answers, after those that came before it
            self.failure = error
        finally:
            with self.changed:
                self.ended = True
                self.changed.notify_all()

    def _work(self) -> None:
        while True:
            with self.changed:
                part = self._take()
                if not part:
                    self.taken.put(None)
                    return
                found: Future[Sequence[A]] = Future()
                self.taken.put((part, found))
            try:
                found.set_result(self.answer(part))
            except BaseException as error:
                found.set_exception(error)

    def _take(self) -> list[D]:
        """Wait for documents; none at the end."""
        while not self.stopped:
            if not self.waiting:
                if self.ended:
                    break
                self.changed.wait()
                continue
            patience = self.waiting[0][0] - time.monotonic()
            if len(self.waiting) >= self.size or self.ended or patience <= 0:
                count = min(self.size, len(self.waiting))
                return [self.waiting.popleft()[1] for _ in range(count)]
            self.changed.wait(patience)
        return []
