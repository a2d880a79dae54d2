"""How fast `revup prepare` is, and how much memory it takes.

    python benchmarks/prepare.py --documents 1000000 --workers 1 2

Documents of ten events from the built-in world (600 frames), each with one rare word so that the number of distinct
words keeps growing as in real text, are written to a JSONL file and prepared by a process of its own; its memory and
its workers' is watched from outside. Prints a table and writes benchmarks/results/prepare-DATE.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import revup
from revup.data.events import document_to_json
from revup.world.world import World

HERE = Path(__file__).parent
WORLD = {"frames": 600, "seed": 1, "words": 50_000, "events": 10}
BLOCK = 10_000
PREPARE = """
import json, sys
from revup.data.prepare import prepare
if __name__ == "__main__":
    source, out, workers = sys.argv[1:]
    prepare([source], out, workers=int(workers))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, help="where to write the result (a file)")
    chosen = parser.parse_args()
    around = surroundings()  # as they are when the measuring starts
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "documents.jsonl", Path(folder) / "program.py"
        program.write_text(PREPARE)
        write_documents(source, chosen.documents)
        size = source.stat().st_size
        runs = [measure(program, source, Path(folder) / f"data-{n}", n, chosen.documents) for n in chosen.workers]
    today = datetime.date.today().isoformat()
    result = {
        "benchmark": "prepare",
        "date": today,
        **around,
        "config": {"documents": chosen.documents, "bytes": size, "world": WORLD},
        "runs": runs,
    }
    print(table(runs))
    target = chosen.out or HERE / "results" / f"prepare-{today}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {target}")


def write_documents(path: Path, count: int) -> None:
    """Stream documents to a file, a block at a time."""
    world, rng = World(**WORLD), np.random.default_rng(1)
    with open(path, "w", encoding="utf-8") as out:
        for start in range(0, count, BLOCK):
            documents = world.sample(min(BLOCK, count - start), start=start)
            for document, rare in zip(documents, rng.integers(0, 2**21, len(documents)).tolist(), strict=True):
                document.events[0].subj = f"name{rare}"
                out.write(json.dumps(document_to_json(document)) + "\n")


def measure(program: Path, source: Path, out: Path, workers: int, documents: int) -> dict[str, Any]:
    """Run prepare in a process of its own; watch the peak memory of it and of each of its workers."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    load = os.getloadavg()[0]  # what else runs here slows this down
    process = subprocess.Popen([sys.executable, str(program), str(source), str(out), str(workers)])
    peaks: dict[int, int] = {}
    together = 0
    while process.poll() is None:
        now = {pid: memory(pid) for pid in [process.pid, *descendants(process.pid)]}
        for pid, (_, peak) in now.items():
            peaks[pid] = max(peaks.get(pid, 0), peak)
        together = max(together, sum(current for current, _ in now.values()))
        time.sleep(0.1)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"prepare ended with {process.returncode}")
    meta = json.loads((out / "corpus.json").read_text())
    parent = peaks.pop(process.pid)
    return {
        "workers": workers,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "load_before": round(load, 2),
        "documents_per_second": round(documents / seconds),
        "peak_mib_parent": parent // 1024,
        "peak_mib_worker": max(peaks.values(), default=0) // 1024,
        "peak_mib_together": together // 1024,
        "words": meta["words"],
        "fingerprint": meta["fingerprint"],
    }


def memory(pid: int) -> tuple[int, int]:
    """Resident memory of a process now and at its peak, in KiB; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    fields = {key: value for key, _, value in (line.partition(":") for line in lines)}
    return tuple(int(fields.get(key, "0 kB").split()[0]) for key in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    except OSError:
        return found
    return found + [below for child in found for below in descendants(child)]


def surroundings() -> dict[str, Any]:
    """Commit, hardware and versions."""
    git = ["git", "-C", str(HERE), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    models = [line for line in _read("/proc/cpuinfo").splitlines() if line.startswith("model name")]
    total = [line.split()[1] for line in _read("/proc/meminfo").splitlines() if line.startswith("MemTotal")]
    return {
        "commit": commit or None,
        "hardware": {
            "processor": models[0].partition(":")[2].strip() if models else platform.processor(),
            "cores": os.cpu_count(),
            "memory_gib": round(int(total[0]) / 2**20, 1) if total else None,
        },
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "revup": revup.__version__},
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def table(runs: list[dict[str, Any]]) -> str:
    memory = ("peak_mib_parent", "peak_mib_worker", "peak_mib_together")
    columns = ("workers", "seconds", "cpu_seconds", "load_before", "documents_per_second", *memory)
    rows = [columns, *(tuple(str(run[column]) for column in columns) for run in runs)]
    return "\n".join("".join(f"{cell:>22}" for cell in row) for row in rows)


if __name__ == "__main__":
    main()
