"""Work on a Ray cluster of two nodes: order, killed workers, records that end their worker."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from revup.data.cluster import MOST_POISON, connected, on_cluster
from revup.data.readers import Record
from revup.errors import InputError, RevupError

pytest.importorskip("ray", reason="the extra 'cluster' is not installed")


@dataclass(frozen=True)
class Numbers:
    records: list[Record]


def tasks(count: int, size: int = 4) -> list[Numbers]:
    every = [Record("numbers.txt", place, place) for place in range(count)]
    return [Numbers(every[start : start + size]) for start in range(0, count, size)]


@pytest.fixture
def ray(ray_cluster: Any) -> Iterator[Any]:
    with connected() as ray:
        yield ray


def worker(body: Callable[[int], int]) -> Callable[[Any, Numbers], list[int]]:
    """A function that workers get by value: they can't import a test module."""

    def work(shared: Any, task: Any) -> list[int]:
        return [body(record.data) for record in task.records]

    return work


def test_results_come_in_order_from_several_nodes(ray: Any, tmp_path: Path) -> None:
    mark = str(tmp_path / "another task is done")

    def slow_at_first(shared: Any, task: Any) -> tuple[str, list[int]]:
        import ray

        end = time.monotonic() + 60
        if task.records[0].data:
            open(mark, "w").close()
        while not os.path.exists(mark) and time.monotonic() < end:  # so that the other node has to compute the next one
            time.sleep(0.01)
        return ray.get_runtime_context().get_node_id(), [shared * record.data for record in task.records]

    found = list(on_cluster(slow_at_first, 3, tasks(40), None))
    assert [number for (_, part), _ in found for number in part] == [3 * number for number in range(40)]
    assert len({node for (node, _), _ in found}) == 2
    assert not any(aside for _, aside in found)


def test_killed_worker_loses_and_repeats_no_result(ray: Any, tmp_path: Path) -> None:
    mark = str(tmp_path / "killed")

    def dies_once(number: int) -> int:
        if number == 9 and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    found = list(on_cluster(worker(dies_once), None, tasks(24), None))
    assert [number for part, _ in found for number in part] == list(range(24))
    assert os.path.exists(mark)
    assert not any(aside for _, aside in found)


def test_record_that_ends_its_worker_is_set_aside(ray: Any) -> None:
    def poisoned(number: int) -> int:
        if number == 6:
            os._exit(1)
        if number == 17:
            raise ZeroDivisionError("by\nnothing")
        return number

    found = list(on_cluster(worker(poisoned), None, tasks(24), None))
    assert [number for part, _ in found for number in part] == [n for n in range(24) if n not in (6, 17)]
    aside = [each for _, part in found for each in part]
    assert [(each.record.data, each.reason) for each in aside] == [
        (6, "WorkerCrashedError"),
        (17, "ZeroDivisionError: by nothing"),
    ]


def test_input_error_is_raised_in_its_place(ray: Any) -> None:
    def refuse(number: int) -> int:
        if number == 13:
            raise InputError("not a number", "numbers.txt", number)
        return number

    results = on_cluster(worker(refuse), None, tasks(40), None)
    assert [next(results)[0] for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(InputError, match=r"numbers\.txt: line 13: not a number"):
        next(results)


def test_broken_work_is_an_error_and_not_a_thousand_set_aside(ray: Any) -> None:
    def broken(number: int) -> int:
        raise AttributeError("no such thing")

    with pytest.raises(RevupError, match=f"more than {MOST_POISON} of 40 records end their worker: AttributeError"):
        list(on_cluster(worker(broken), None, tasks(40, 40), None))


def test_connection_is_closed_unless_it_was_there(ray: Any) -> None:
    with connected():
        pass
    assert ray.is_initialized()
    ray.shutdown()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with connected():
        assert ray.cluster_resources()["CPU"] == 2
    assert not ray.is_initialized()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_absent_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    with pytest.raises(RevupError, match="ray: no cluster at nonsense: "), connected():
        pass


def test_address_where_nothing_listens_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("Ray was asked to connect, which it tries for minutes"))
    monkeypatch.setenv("RAY_ADDRESS", address)
    with (
        pytest.raises(RevupError, match=f"ray: no cluster at {address}, which RAY_ADDRESS names: .*refused"),
        connected(),
    ):
        pass


def test_no_worker_at_all_is_an_error_and_not_a_wait() -> None:
    with pytest.raises(RevupError, match="workers: expected 1 or more, found 0"), connected(0):
        pass
