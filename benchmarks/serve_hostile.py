"""Clients that misbehave, for benchmarks/serve.py: slow, half-closed, gone, huge, binary, nested, wrong.

    python benchmarks/serve_hostile.py '{"port": 8000, "seconds": 60, "seed": 1}'

Each kind has one client, which does its worst over and over. What the server should answer to it is beside it here;
prints one JSON object: for each kind how often which status came (`closed`: the connection, without an answer), and
all that was not expected. Needs nothing but Python.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

MIB = 2**20
GOOD = json.dumps({"documents": [{"events": [{"pred": "word7", "subj": "word9"}]}]}).encode()

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Act = Callable[[Reader, Writer, random.Random], Awaitable[str]]


def post(body: bytes, length: int | None = None) -> bytes:
    """A request with a body; `length`: what it announces, if that is not true."""
    head = f"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body) if length is None else length}\r\n\r\n"
    return head.encode() + body


async def status(reader: Reader) -> str:
    """The status of an answer; `closed` where none came."""
    line = await reader.readline()
    return line.split()[1].decode() if line.startswith(b"HTTP/1.1 ") else "closed"


async def slow_headers(reader: Reader, writer: Writer, rng: random.Random) -> str:
    for letter in b"POST /predict HTTP/1.1\r\nx-header: " + b"a" * 10_000:
        writer.write(bytes([letter]))
        await writer.drain()
        if reader._buffer or reader.at_eof():  # type: ignore[attr-defined]
            break
        await asyncio.sleep(0.5)
    return await status(reader)


async def slow_body(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(post(GOOD[:10], len(GOOD)))
    return await status(reader)


async def half_closed(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(post(GOOD))
    writer.write_eof()
    return await status(reader)


async def half_body(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(post(GOOD[:20], len(GOOD)))
    writer.write_eof()
    return await status(reader)


async def gone(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(post(GOOD))
    await writer.drain()
    # the connection is reset, not closed
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    return "closed"


async def never_reads(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(50):
        writer.write(post(GOOD))
    await asyncio.sleep(2)
    return "closed"


async def announces_huge(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(post(b"{", 2**40))
    return await status(reader)


async def sends_huge(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(b"POST /predict HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    part = rng.randbytes(MIB)
    for _ in range(12):
        writer.write(b"%x\r\n" % len(part) + part + b"\r\n")
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    return await status(reader)


async def huge_headers(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(b"GET / HTTP/1.1\r\nx-header: " + b"a" * 200_000 + b"\r\n\r\n")
    return await status(reader)


async def binary(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(b"\x16\x03\x01" + rng.randbytes(500) + b"\r\n\r\n")  # as TLS begins
    return await status(reader)


async def binary_body(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(post(b"\xff" + rng.randbytes(rng.randrange(5000))))
    return await status(reader)


async def nested(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(post(b'{"documents": ' + b"[" * rng.randrange(2_000, 200_000)))
    return await status(reader)


async def wrong(reader: Reader, writer: Writer, rng: random.Random) -> str:
    values = [None, 5, "x", [], {}, [1], {"events": 1}, [{"events": [{"pred": 5}]}], [{"events": []}]]
    writer.write(post(json.dumps({"documents": rng.choice(values), "top": 5}).encode()))
    return await status(reader)


async def many_events(reader: Reader, writer: Writer, rng: random.Random) -> str:
    writer.write(post(json.dumps({"documents": [{"events": [{"pred": "word7"}] * 10_001}]}).encode()))
    return await status(reader)


# what each may be answered; 429 where the server is busy
EXPECTED: dict[Act, set[str]] = {
    slow_headers: {"408"},
    slow_body: {"408"},
    half_closed: {"200"},
    half_body: {"400"},
    gone: {"closed"},
    never_reads: {"closed"},
    announces_huge: {"413"},
    sends_huge: {"413"},
    huge_headers: {"431"},
    binary: {"400"},
    binary_body: {"422"},
    nested: {"422"},
    wrong: {"422"},
    many_events: {"413"},
}


async def misbehave(act: Act, port: int, end: float, pause: float, found: Counter[str], rng: random.Random) -> None:
    """Do the same over and over, with a pause between."""
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                found[await asyncio.wait_for(act(reader, writer, rng), 120)] += 1
            finally:
                writer.close()
        except OSError:
            found["closed"] += 1
        except TimeoutError:
            found["no answer"] += 1
        await asyncio.sleep(rng.uniform(0, 2 * pause))


async def run(plan: dict[str, Any]) -> dict[str, Any]:
    end = time.monotonic() + plan["seconds"]
    kinds: dict[str, Counter[str]] = {act.__name__: Counter() for act in EXPECTED}
    tasks = [
        misbehave(act, plan["port"], end, plan.get("pause", 0.5), kinds[act.__name__], random.Random(plan["seed"]))
        for act in EXPECTED
    ]
    await asyncio.gather(*tasks)
    unexpected = {
        act.__name__: other
        for act, allowed in EXPECTED.items()
        if (other := {name: count for name, count in kinds[act.__name__].items() if name not in {*allowed, "429"}})
    }
    return {
        "requests": sum(map(Counter.total, kinds.values())),
        "kinds": {name: dict(sorted(counts.items())) for name, counts in kinds.items()},
        "unexpected": unexpected,
    }


def main() -> None:
    print(json.dumps(asyncio.run(run(json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
