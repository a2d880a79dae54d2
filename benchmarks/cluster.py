"""How well `predict` and `embed` scale on a Ray cluster of one machine.

    python benchmarks/cluster.py --documents 40000 --cores 1 2

Each number of cores gets a cluster of its own with as many workers; all its processes may run on those cores only, the
driver and Ray's own included. Workers load the model on a first file; then a second one is timed, as a user would wait
for it: reading, sending, computing, writing chunks and the output. Efficiency is the time on one core, divided by the
number of cores times theirs. The load of the machine before each run is recorded: with other work on it seconds say
nothing, and the processor seconds of workers, driver and Ray remain. Writes benchmarks/results/cluster-DATE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import psutil
import torch

import revup
from revup.data.chunks import CHUNK_RECORDS
from revup.data.cluster import connected
from revup.io.files import commit, write_json

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from campaigns.ray_predict import prepare

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Parse the command line, measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=40_000)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", type=int, default=128, help="units of the network")
    parser.add_argument("--out", type=Path, help="where to write (default: benchmarks/results)")
    given = parser.parse_args()
    os.environ.setdefault("RAY_worker_niceness", "0")
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        prepare(here / "run", here / "docs.jsonl", given.documents, given.size)
        with open(here / "docs.jsonl", encoding="utf-8") as lines, open(here / "first.jsonl", "w") as first:
            first.writelines(line for line, _ in zip(lines, range(2 * CHUNK_RECORDS), strict=False))
        for _ in range(given.repeats):  # alternating, so that a change of the load meets all
            for count in given.cores:
                runs += measure(here, count)
                print(runs[-2:], flush=True)
    summary: dict[str, Any] = {}
    for verb in ("predict", "embed"):
        medians = {
            count: statistics.median(run["seconds"] for run in runs if (run["verb"], run["cores"]) == (verb, count))
            for count in given.cores
        }
        one = medians[given.cores[0]] * given.cores[0]
        summary[verb] = {
            str(count): {
                "seconds": seconds,
                "documents_per_second": round(given.documents / seconds),
                "efficiency": round(one / (count * seconds), 3),
            }
            for count, seconds in medians.items()
        }
    about = {
        "date": date.today().isoformat(),
        "commit": commit(),
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "torch": torch.__version__,
        "documents": given.documents,
        "size": given.size,
    }
    path = given.out or RESULTS / f"cluster-{date.today().isoformat()}.json"
    write_json(path, {**about, "summary": summary, "runs": runs})
    print(json.dumps(summary, indent=1))


def measure(folder: Path, cores: int) -> list[dict[str, Any]]:
    """Time both verbs on so many cores."""
    found = []
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(all_cores)[:cores]))
    try:
        with connected(cores):
            for verb, function in (("predict", revup.predict_on_cluster), ("embed", revup.embed_on_cluster)):
                out = folder / f"out-{verb}"
                function(folder / "run", folder / "first.jsonl", out, force=True)
                load, before, started = os.getloadavg()[0], processor_seconds(), time.perf_counter()
                function(folder / "run", folder / "docs.jsonl", out, force=True)
                seconds = round(time.perf_counter() - started, 2)
                used = {name: round(value - before.get(name, 0.0), 2) for name, value in processor_seconds().items()}
                about = {"verb": verb, "cores": cores, "seconds": seconds, "processor_seconds": used}
                found.append({**about, "load_before": load})
    finally:
        os.sched_setaffinity(0, all_cores)
    return found


def processor_seconds() -> dict[str, float]:
    """Seconds of processor time so far: of this process, of the workers, and of Ray's other processes."""
    found = {"driver": time.process_time(), "workers": 0.0, "ray": 0.0}
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            times = process.cpu_times()
            is_worker = " ".join(process.cmdline()).startswith("ray::")
            found["workers" if is_worker else "ray"] += times.user + times.system
    return found


if __name__ == "__main__":
    main()
