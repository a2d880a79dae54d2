"""The client of benchmarks/serve.py: keeps connections busy, or sends at a given rate, and reports what came back.

    python benchmarks/serve_client.py '{"port": 8000, "file": "requests.jsonl", "clients": 64, "seconds": 10}'

Every line of the file is the body of a POST request. With `rate`, requests are sent at that many a second in all, each
at its time whether or not earlier ones were answered on other connections, and latency counts from that time. Prints
one JSON object. Needs nothing but Python; uvloop is used where it is installed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any


class Load:
    """What all connections share: the bodies, the schedule, and the results."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        path, token = plan.get("path", "/predict"), plan.get("token")
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        head += f"authorization: Bearer {token}\r\n" if token else ""
        bodies = [line.encode() for line in Path(plan["file"]).read_text("utf-8").splitlines()]
        self.requests = [f"{head}content-length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
        self.next = 0
        self.statuses: Counter[int] = Counter()
        self.latencies: list[float] = []
        self.cut = self.refused = self.reopened = 0  # lost after a request was sent; not connected; closed when idle
        self.late = 0  # lost on a connection that was opened although the server had said that it shuts down
        self.idle: deque[Connection] = deque()
        self.waiting: deque[float] = deque()
        self.stopping = False

    def request(self) -> bytes:
        """The next request."""
        self.next += 1
        return self.requests[self.next % len(self.requests)]


class Connection(asyncio.Protocol):
    """One client: sends a request, waits for the whole answer, sends the next."""

    def __init__(self, load: Load, paced: bool) -> None:
        self.load, self.paced, self.buffer = load, paced, b""
        self.sent = 0.0
        self.busy = self.closes = False
        self.told = load.statuses[503] > 0
        self.gone = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.free()

    def free(self) -> None:
        """Send the next request, or wait until it is due."""
        load = self.load
        if load.stopping:
            self.transport.close()
        elif not self.paced:
            self.send(time.perf_counter())
        elif load.waiting:
            self.send(load.waiting.popleft())
        else:
            load.idle.append(self)

    def send(self, due: float) -> None:
        self.sent, self.busy = due, True
        self.transport.write(self.load.request())

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.buffer[:end].lower()
        at = head.index(b"content-length: ") + 16
        length = int(head[at:].split(b"\r\n", 1)[0])
        if len(self.buffer) < end + 4 + length:
            return
        load, status = self.load, int(head[9:12])
        load.statuses[status] += 1
        if status == 200:
            load.latencies.append(time.perf_counter() - self.sent)
        self.buffer, self.busy = b"", False
        if b"connection: close" in head:
            self.closes = True
            self.transport.close()
        elif status in (429, 503) and not self.paced:
            asyncio.get_running_loop().call_later(load.plan.get("pause", 0.0), self.free)
        else:
            self.free()

    def connection_lost(self, error: Exception | None) -> None:
        if self.told:
            self.load.late += self.busy
        else:
            self.load.cut += self.busy
        if not self.gone.done():
            self.gone.set_result(None)


async def client(load: Load, paced: bool) -> None:
    """Keep one connection, opening it again where the server closed it."""
    loop = asyncio.get_running_loop()
    while not load.stopping:
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(load, paced), "127.0.0.1", load.plan["port"]
            )
        except OSError:
            load.refused += 1
            if load.plan.get("until_refused"):
                return
            await asyncio.sleep(0.05)
            continue
        await connection.gone
        load.reopened += 1


async def pace(load: Load, rate: float, end: float) -> None:
    """Make requests due at a constant rate."""
    begun, number = time.perf_counter(), 0
    while (now := time.perf_counter()) < end:
        while begun + number / rate <= now:
            due = begun + number / rate
            number += 1
            if load.idle:
                load.idle.popleft().send(due)
            else:
                load.waiting.append(due)
        await asyncio.sleep(max(0.0005, begun + number / rate - time.perf_counter()))


async def run(plan: dict[str, Any]) -> dict[str, Any]:
    """Send for the planned time; requests on their way at its end are waited for."""
    load, rate = Load(plan), plan.get("rate")
    clients = [asyncio.create_task(client(load, rate is not None)) for _ in range(plan["clients"])]
    warm = plan.get("warm_up", 0.0)
    begun = time.perf_counter()
    cpu = time.process_time()
    skipped: Counter[int] = Counter()

    async def measure() -> None:
        nonlocal begun, cpu, skipped
        await asyncio.sleep(warm)
        begun, cpu, skipped = time.perf_counter(), time.process_time(), Counter(load.statuses)
        load.latencies.clear()

    end = begun + warm + plan["seconds"]
    measuring = asyncio.create_task(measure())
    if rate is None:
        every = asyncio.gather(*clients)
        await asyncio.wait([every], timeout=warm + plan["seconds"])
    else:
        await pace(load, rate, end)
    await measuring
    took, spent = time.perf_counter() - begun, time.process_time() - cpu
    statuses = dict(sorted((load.statuses - skipped).items()))
    times = sorted(load.latencies)
    load.stopping = True
    for connection in list(load.idle):
        connection.transport.close()
    await asyncio.wait(clients, timeout=plan.get("patience", 60))

    def quantile(share: float) -> float | None:
        return round(1000 * times[min(len(times) - 1, int(share * len(times)))], 2) if times else None

    return {
        "seconds": round(took, 3),
        "answers": len(times),
        "per_second": round(len(times) / took, 1),
        "statuses": statuses,
        "milliseconds": {"p50": quantile(0.5), "p90": quantile(0.9), "p99": quantile(0.99), "max": quantile(1.0)},
        "cut": load.cut,
        "late": load.late,
        "refused": load.refused,
        "unanswered": len(load.waiting),
        "client_cpu_ms": round(1000 * spent / max(1, sum(statuses.values())), 4),
    }


def main() -> None:
    plan = json.loads(sys.argv[1])
    try:
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    except ImportError:
        runner = asyncio.Runner()
    with runner:
        print(json.dumps(runner.run(run(plan))))


if __name__ == "__main__":
    main()
