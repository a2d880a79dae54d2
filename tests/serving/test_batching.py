"""Dynamic batching: what is computed together, in which order, and what happens when there is too much of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from revup.data.events import Document, Event
from revup.serving.batching import Batcher, Item
from revup.serving.limits import Limits
from revup.serving.metrics import Metrics
from revup.serving.requests import Refused, Request


def request(name: str, documents: int = 1, events: int = 1) -> Request:
    return Request([Document(f"{name}{n}", [Event("say")] * events) for n in range(documents)])


class Model:
    """Answers with the ids of documents, after a while, and remembers the batches."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.batches = seconds, list[list[str]]()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, key: Any, items: Sequence[Item]) -> list[Any]:
        self.batches.append([document.id for document, _ in items])
        self.gate.wait(10)
        time.sleep(self.seconds)
        if any(document.id.startswith("bad") for document, _ in items):
            raise ValueError("bad")
        return [f"{key}:{document.id}" for document, _ in items]


def run(work: Callable[[Batcher], Awaitable[Any]], model: Model, threads: int = 1, **limits: Any) -> Any:
    async def inside() -> Any:
        batcher = Batcher(model, threads, Limits(**limits), Metrics(), lambda: None)
        try:
            return await work(batcher)
        finally:
            model.gate.set()
            batcher.close()

    return asyncio.run(inside())


def test_requests_that_wait_are_computed_together() -> None:
    model = Model()

    async def work(batcher: Batcher) -> list[Any]:
        model.gate.clear()
        first = batcher.submit("k", request("a"))
        others = [batcher.submit("k", request(f"b{n}.", documents=2)) for n in range(20)]
        await asyncio.sleep(0.05)
        model.gate.set()
        return [await future for future in (first, *others)]

    answers = run(work, model)
    assert answers == [["k:a0"], *([f"k:b{n}.0", f"k:b{n}.1"] for n in range(20))]
    assert model.batches[0] == ["a0"]  # an idle server does not wait
    assert [len(batch) for batch in model.batches[1:]] == [32, 8]  # batches are filled up to a multiple of 16


def test_documents_wait_beside_a_batch_and_never_on_an_idle_server() -> None:
    model = Model(seconds=0.2)

    async def submit(batcher: Batcher, names: str) -> list[Any]:
        return [batcher.submit("k", request(name)) for name in names]

    async def work(batcher: Batcher) -> None:
        await asyncio.gather(*await submit(batcher, "abcd"))  # a alone, b alone, then c and d
        begun = time.monotonic()
        lone = await submit(batcher, "e")
        await asyncio.sleep(0.05)
        assert model.batches[-1] == ["e0"]  # nothing is being computed: at once
        two = await submit(batcher, "f")
        await asyncio.sleep(0.05)
        assert model.batches[-1] == ["e0"]  # half of the four of before are worth waiting for
        two += await submit(batcher, "g")
        await asyncio.sleep(0.05)
        assert model.batches[-1] == ["f0", "g0"]
        await asyncio.gather(*lone, *two)
        assert time.monotonic() - begun < 0.55
        lone = await submit(batcher, "h")
        late = (await submit(batcher, "i"))[0]
        begun = time.monotonic()
        await late
        assert model.batches[-1] == ["i0"]
        assert time.monotonic() - begun < 0.55  # no longer than a batch takes, then its own
        await asyncio.gather(*lone)

    run(work, model, threads=2, window=1000)


def test_requests_of_different_keys_are_computed_apart_oldest_first() -> None:
    model = Model()

    async def work(batcher: Batcher) -> None:
        model.gate.clear()
        futures = [batcher.submit(key, request(f"{key}{n}.")) for n, key in enumerate("xyyx")]
        model.gate.set()
        await asyncio.gather(*futures)

    run(work, model)
    assert model.batches == [["x0.0"], ["y1.0", "y2.0"], ["x3.0"]]


def test_without_batching_each_document_is_computed_alone() -> None:
    model = Model()

    async def work(batcher: Batcher) -> None:
        await asyncio.gather(*(batcher.submit("k", request(str(n), documents=3)) for n in range(4)))

    run(work, model, threads=2, max_batch=1)
    assert [len(batch) for batch in model.batches] == [1] * 12


def test_large_request_does_not_keep_small_ones_waiting() -> None:
    model = Model()
    order: list[str] = []

    async def work(batcher: Batcher) -> None:
        model.gate.clear()
        futures = {name: batcher.submit("k", request(name, size)) for name, size in (("large", 100), ("small", 1))}
        for name, future in futures.items():
            future.add_done_callback(lambda _, name=name: order.append(name))
        model.gate.set()
        answers = await asyncio.gather(*futures.values())
        assert answers[0] == [f"k:large{n}" for n in range(100)]

    run(work, model, max_batch=16)
    assert order == ["small", "large"]


def test_a_failure_is_that_of_its_request_alone() -> None:
    model = Model()

    async def work(batcher: Batcher) -> list[Any]:
        model.gate.clear()
        futures = [batcher.submit("k", request(name)) for name in ("first", "good", "bad", "fine")]
        model.gate.set()
        return await asyncio.gather(*futures, return_exceptions=True)

    first, good, bad, fine = run(work, model)
    assert (first, good, fine) == (["k:first0"], ["k:good0"], ["k:fine0"])
    assert isinstance(bad, ValueError)


def test_full_queue_refuses_and_recovers() -> None:
    model = Model()

    async def work(batcher: Batcher) -> None:
        model.gate.clear()
        large = batcher.submit("k", request("large", events=1000))  # accepted: nothing waits
        waiting = [batcher.submit("k", request(f"w{n}", events=25)) for n in range(4)]
        with pytest.raises(Refused, match="overloaded: 100 events wait already, try again later") as refused:
            batcher.submit("k", request("more"))
        assert (refused.value.status, refused.value.retry_after) == (429, 1)
        model.gate.set()
        await asyncio.gather(large, *waiting)
        assert await batcher.submit("k", request("more")) == ["k:more0"]
        assert (batcher.queued, batcher.queued_events, batcher.running) == (0, 0, 0)

    run(work, model, max_queue=100)


def test_request_that_waits_too_long_is_refused_and_not_computed() -> None:
    model = Model()

    async def work(batcher: Batcher) -> None:
        model.gate.clear()
        running, waiting = batcher.submit("k", request("running")), batcher.submit("k", request("waiting", 3))
        with pytest.raises(Refused, match=r"not answered within 0\.05 seconds") as refused:
            await waiting
        assert refused.value.status == 503
        with pytest.raises(Refused):
            await running
        model.gate.set()
        while batcher.running:
            await asyncio.sleep(0.01)
        assert (batcher.queued, batcher.queued_events) == (0, 0)

    run(work, model, timeout=0.05)
    assert model.batches == [["running0"]]


def test_under_load_batches_grow_and_no_answer_is_lost() -> None:
    model = Model(seconds=0.005)

    async def client(batcher: Batcher, number: int) -> None:
        for turn in range(10):
            name = f"{number}.{turn}."
            assert await batcher.submit("k", request(name)) == [f"k:{name}0"]

    async def work(batcher: Batcher) -> None:
        await asyncio.gather(*(client(batcher, number) for number in range(32)))

    run(work, model, threads=2)
    sizes = [len(batch) for batch in model.batches]
    assert sum(sizes) == 320
    assert sum(sizes) / len(sizes) > 8
