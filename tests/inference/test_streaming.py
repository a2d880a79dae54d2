"""Answers to streams: in order, complete, live, with errors in their place and a bound on what is held."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from queue import Queue

import pytest
import torch

from revup.inference.streaming import answered

CPU = torch.device("cpu")


def doubled(part: Sequence[int]) -> list[int]:
    return [2 * number for number in part]


@pytest.fixture(params=[1, 3])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    assert torch.get_num_threads() == request.param
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_every_document_is_answered_in_order(count: int, live: bool) -> None:
    found = list(answered(range(count), doubled, CPU, 40, 10, live))
    assert found == [(number, 2 * number) for number in range(count)]


@pytest.mark.usefixtures("_threads")
def test_live_answers_come_before_the_next_document() -> None:
    asked: Queue[int | None] = Queue()
    stream = answered(iter(asked.get, None), doubled, CPU, 2000, 500, live=True)
    for number in range(5):
        asked.put(number)
        assert next(stream) == (number, 2 * number)
    asked.put(None)
    assert list(stream) == []


@pytest.mark.usefixtures("_threads")
def test_live_batches_are_full_under_load() -> None:
    sizes = []

    def slow(part: Sequence[int]) -> list[int]:
        sizes.append(len(part))
        time.sleep(0.005)
        return doubled(part)

    assert len(list(answered(range(4000), slow, CPU, 2000, 100, live=True))) == 4000
    assert max(sizes) == 100
    assert sum(sizes) / len(sizes) > 60


@pytest.mark.parametrize("live", [False, True])
def test_no_more_documents_are_held_than_allowed(live: bool) -> None:
    read = 0

    def counted() -> Iterator[int]:
        nonlocal read
        while read < 10_000:
            read += 1
            yield read

    stream = answered(counted(), doubled, CPU, 40, 10, live)
    for taken in range(1, 200):
        next(stream)
        assert read <= taken + 41
    time.sleep(0.05)
    assert read <= 200 + 41
    stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("live", [False, True])
def test_reader_error_comes_after_the_answers_before_it(live: bool) -> None:
    def broken() -> Iterator[int]:
        yield from range(25)
        raise ValueError("line 26")

    stream = answered(broken(), doubled, CPU, 40, 5, live)
    assert [next(stream)[0] for _ in range(25)] == list(range(25))
    with pytest.raises(ValueError, match="line 26"):
        next(stream)


@pytest.mark.parametrize("live", [False, True])
def test_error_of_an_answer_is_raised(live: bool) -> None:
    def fails(part: Sequence[int]) -> list[int]:
        raise RuntimeError(f"no answer to {part[0]}")

    with pytest.raises(RuntimeError, match="no answer to 0"):
        list(answered(range(9), fails, CPU, 40, 3, live))


def test_closing_a_live_stream_ends_its_threads() -> None:
    before = threading.active_count()
    stream = answered(range(10_000), doubled, CPU, 40, 10, live=True)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before
