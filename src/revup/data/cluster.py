"""Work on a Ray cluster: tasks in, results out in the same order.

A worker or node that dies is replaced and its tasks are computed again, by Ray. A record that ends its worker every
time is found by halving the task, and set aside. Only this machine writes files.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from revup.data.readers import Record
from revup.errors import RevupError, UnfinishedError, missing_extra

ENGINES = ("local", "ray")
RETRIES = 1  # how often a task is computed again whose worker died, before it is halved
ANSWER_SECONDS = 10.0  # a cluster that does not answer in that time is not there
MOST_POISON = 10  # records of a task that may be set aside; more are a broken model or machine

_Task = TypeVar("_Task")
_Ticket = TypeVar("_Ticket")
_Result = TypeVar("_Result")


def check_engine(engine: str) -> None:
    """Refuse an engine that does not exist."""
    if engine not in ENGINES:
        raise RevupError(f"engine: expected one of {', '.join(ENGINES)}, found '{engine}'")


class SetAside(NamedTuple):
    """A record that ended its worker, and how."""

    record: Record
    reason: str


class _Crash(NamedTuple):
    """What a task came to that ended its worker, or raised what no input should raise."""

    reason: str


@contextmanager
def connected(workers: int | None = None) -> Iterator[Any]:
    """Connect to the cluster that RAY_ADDRESS names, or start one here; this process's own is used if there is one.

    Args:
        workers: Processes of a cluster that is started here; None: one for each core.

    Yields:
        The module `ray`.

    Raises:
        RevupError: Ray is not installed, or there is no such cluster, or `workers` is below 1.
    """
    if workers is not None and workers < 1:
        raise RevupError(f"workers: expected 1 or more, found {workers}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise missing_extra("cluster", "the engine 'ray'") from None
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    here: dict[str, Any] = {"address": "local", "num_cpus": workers, "include_dashboard": False}
    address = os.environ.get("RAY_ADDRESS")
    if address:
        _check_answers(ray, address)
    with _signals_kept():
        try:
            ray.init(**quiet, **({} if address else here))
        except (ConnectionError, ValueError, RuntimeError) as error:
            found = str(error).strip().splitlines()[0][:200]
            raise RevupError(f"ray: no cluster at {address or 'this machine'}: {found}") from None
    try:
        yield ray
    finally:
        with _signals_kept():
            ray.shutdown()


def _check_answers(ray: Any, address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would try again for minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        return  # `auto`, `local` and wrong forms, which Ray answers at once
    hosts = [host.strip("[]")]
    if hosts[0] in ("localhost", "127.0.0.1", "::1"):
        hosts.append(ray.util.get_node_ip_address())  # where Ray looks for a cluster of this machine
    for host in hosts:
        try:
            socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
        except (OSError, OverflowError) as error:
            reason = str(error)
        else:
            return
    raise RevupError(f"ray: no cluster at {address}, which RAY_ADDRESS names: {reason}")


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes over SIGTERM; what verbs do after a signal must not depend on the engine."""
    numbers = [signal.SIGINT, signal.SIGTERM] if threading.current_thread() is threading.main_thread() else []
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def on_cluster(
    work: Callable[[Any, _Task], _Result], shared: Any, tasks: Iterable[_Task], workers: int | None, gpu: bool = False
) -> Generator[tuple[_Result, list[SetAside]], None, None]:
    """Compute tasks on a cluster and yield their results in order.

    Args:
        work: Computes one task, given `shared`; a function of a module, so that workers can import it.
        shared: What is the same for all tasks; sent once.
        tasks: Dataclasses with a field `records`.
        workers: As in `connected`.
        gpu: Each task needs a GPU.

    Yields:
        The result of each task, without the records that had to be set aside; and those.

    Raises:
        RevupError: What `work` raised, in the place of its task; or too many records had to be set aside.
        UnfinishedError: The cluster broke down; the same call resumes.
    """
    with connected(workers) as ray:
        there = ray.put(shared)
        resources: dict[str, Any] = {"num_cpus": 1, **({"num_gpus": 1, "max_calls": 0} if gpu else {})}
        remote = ray.remote(**resources, max_retries=RETRIES)(work)
        most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))

        def submit(task: Any) -> tuple[Any, Any]:
            return task, remote.remote(there, task)

        def result(ticket: tuple[Any, Any]) -> tuple[Any, list[SetAside]]:
            task, reference = ticket
            found = _fetch(ray, reference)
            if not isinstance(found, _Crash):
                return found, []

            def compute(records: list[Record], retries: int) -> Any:
                again = remote.options(max_retries=retries).remote(there, replace(task, records=records))
                return _fetch(ray, again)

            return _without_poison(compute, task.records, found.reason)

        yield from in_order(tasks, submit, result, most)


def in_order(
    tasks: Iterable[_Task], submit: Callable[[_Task], _Ticket], result: Callable[[_Ticket], _Result], most: int
) -> Iterator[_Result]:
    """Yield results in the order of the tasks, with at most `most` submitted: memory does not grow with the corpus."""
    submitted: deque[_Ticket] = deque()
    for task in tasks:
        submitted.append(submit(task))
        if len(submitted) >= most:
            yield result(submitted.popleft())
    while submitted:
        yield result(submitted.popleft())


def _fetch(ray: Any, reference: Any) -> Any:
    """The result of a task, or a `_Crash`."""
    errors = ray.exceptions
    try:
        return ray.get(reference)
    except errors.RayTaskError as error:
        if isinstance(error.cause, RevupError):
            raise error.cause from None
        return _Crash(f"{type(error.cause).__name__}: {' '.join(str(error.cause).split())[:200]}")
    except (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError) as error:
        return _Crash(type(error).__name__)
    except errors.RayError as error:
        found = str(error).strip().splitlines()[0][:200]
        raise UnfinishedError(f"ray: {found}; the same call resumes where it stopped") from None


def _without_poison(
    compute: Callable[[list[Record], int], Any], records: list[Record], reason: str
) -> tuple[Any, list[SetAside]]:
    """The result of a task without the records that end its worker; those are found by halving it.

    Args:
        compute: Computes some records, with so many retries.
        records: The records of the task.
        reason: How it ended.
    """
    found: list[SetAside] = []
    good: list[Record] = []
    middle = len(records) // 2
    parts = [records[:middle], records[middle:]] if middle else [records]  # all together it was tried already
    while parts:
        part = parts.pop()
        # of a single record the verdict is final, so a worker that died for another reason must not decide it
        result = compute(part, RETRIES if len(part) == 1 else 0)
        if not isinstance(result, _Crash):
            good = part + good
        elif len(part) > 1:
            middle = len(part) // 2
            parts += [part[:middle], part[middle:]]
        else:
            found.insert(0, SetAside(part[0], result.reason))
            if len(found) > MOST_POISON:
                raise RevupError(f"more than {MOST_POISON} of {len(records)} records end their worker: {reason}")
    result = compute(good, RETRIES)
    if isinstance(result, _Crash):
        raise UnfinishedError(f"ray: a worker ends again and again: {result.reason}; the same call resumes")
    return result, found
