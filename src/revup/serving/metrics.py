"""Counters of a server in Prometheus' text format."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # upper edges of the bins
DOCUMENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Histogram:
    """Counts of values up to each edge.

    Args:
        edges: Upper edges, ascending.
    """

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges, self.bins, self.sum = edges, [0] * (len(edges) + 1), 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.bins[bisect_left(self.edges, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        """The lines of the text format, without their heading."""
        total = 0
        comma = "," if labels else ""
        for edge, count in zip((*self.edges, None), self.bins, strict=True):
            total += count
            shown = "+Inf" if edge is None else f"{edge:g}"
            yield f'{name}_bucket{{{labels}{comma}le="{shown}"}} {total}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self.sum:.6f}"
        yield f"{name}_count{braces} {total}"


class Metrics:
    """What a server has done since its start."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self.seconds: dict[str, Histogram] = {}  # by path
        self.documents: Counter[str] = Counter()  # by path
        self.events: Counter[str] = Counter()
        self.batches = Histogram(DOCUMENTS)
        self.in_progress = 0

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests[path, status] += 1
        if path not in self.seconds:
            self.seconds[path] = Histogram(SECONDS)
        self.seconds[path].add(seconds)

    def answered(self, path: str, documents: int, events: int) -> None:
        """Count the documents and events of an answered request."""
        self.documents[path] += documents
        self.events[path] += events

    def batch(self, documents: int) -> None:
        """Count a batch."""
        self.batches.add(documents)

    def text(self, **gauges: float) -> str:
        """Everything in the text format.

        Args:
            **gauges: What is measured when it is asked for, by name.
        """
        return "\n".join([*self._lines(gauges), ""])

    def _lines(self, gauges: dict[str, float]) -> Iterator[str]:
        yield from _heading("revup_requests_total", "counter", "Answered requests by path and status.")
        for (path, status), count in sorted(self.requests.items()):
            yield f'revup_requests_total{{path="{path}",status="{status}"}} {count}'
        yield from _heading("revup_request_seconds", "histogram", "Time from a request's headers to its answer.")
        for path, histogram in sorted(self.seconds.items()):
            yield from histogram.lines("revup_request_seconds", f'path="{path}"')
        for name, counts in (("documents", self.documents), ("events", self.events)):
            yield from _heading(f"revup_{name}_total", "counter", f"Answered {name} by path.")
            for path, count in sorted(counts.items()):
                yield f'revup_{name}_total{{path="{path}"}} {count}'
        yield from _heading("revup_batch_documents", "histogram", "Documents that were computed together.")
        yield from self.batches.lines("revup_batch_documents")
        every = {"requests_in_progress": self.in_progress, **gauges}
        for name, value in every.items():
            yield from _heading(f"revup_{name}", "gauge", _GAUGES[name])
            yield f"revup_{name} {value:g}"
        memory = resident_bytes()
        if memory is not None:
            yield from _heading("process_resident_memory_bytes", "gauge", "Resident memory of the process.")
            yield f"process_resident_memory_bytes {memory}"


_GAUGES = {
    "requests_in_progress": "Requests that are being answered.",
    "queued_documents": "Documents that wait.",
    "queued_events": "Events that wait.",
    "running_documents": "Documents that are being computed.",
    "connections": "Open connections.",
    "ready": "1 once the models are loaded.",
}


def _heading(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


def resident_bytes() -> int | None:
    """The memory that this process occupies; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
