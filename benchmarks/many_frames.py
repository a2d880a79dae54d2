"""Memory, time and file sizes where frames are many: prepare, train two epochs, evaluate, inspect.

    python benchmarks/many_frames.py --frames 20000 --documents 4000

Documents of five events, whose frames follow each other and share predicates, are written to a JSONL file; every verb
runs as a process of its own with `default` settings. Prints a table and writes
benchmarks/results/many-frames-DATE.json. Ends with an error where a process took more than `--most-gib` of memory or a
run's files are larger than `--most-mib`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from revup.benchmark import surroundings
from revup.data.events import Document, Event, write
from revup.ops.device import choose_device

HERE = Path(__file__).parent
EVENTS = 5
NEAR = 40  # frames that may follow a frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--documents", type=int, default=4_000)
    parser.add_argument("--models", nargs="+", default=["counts", "revup"])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="where to train, evaluate and inspect")
    parser.add_argument("--most-gib", type=float, default=4.0, help="memory that a process may take")
    parser.add_argument("--most-mib", type=float, default=300.0, help="size of a run's largest file")
    parser.add_argument("--out", type=Path, help="where to write the result (a file)")
    given = parser.parse_args()
    around = surroundings(choose_device(given.device))
    with tempfile.TemporaryDirectory() as folder:
        rows, sizes = measure(Path(folder), given)
    result = {"benchmark": "many frames", **around, "config": vars(given) | {"out": None}, "runs": rows, "files": sizes}
    target = given.out or HERE / "results" / f"many-frames-{around['date']}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(f"written to {target}")
    worst = max(row["peak_gib"] for row in rows)
    largest = max(size for files in sizes.values() for size in files.values())
    if worst > given.most_gib or largest > given.most_mib:
        raise SystemExit(f"{worst:.1f} GiB of memory, {largest:.0f} MiB in a file: more than allowed")


def measure(folder: Path, given: argparse.Namespace) -> tuple[list[dict[str, Any]], dict[str, dict[str, float]]]:
    """Run all verbs; return their figures, and the sizes of the files of each run in MiB."""
    source, data = folder / "documents.jsonl", folder / "data"
    write(documents(given.frames, given.documents), source)
    rows = [run("prepare", "prepare", str(source), "--out", str(data), "--json")]
    sizes: dict[str, dict[str, float]] = {}
    for model in given.models:
        out = str(folder / model)
        epochs = [] if model == "counts" else ["--training.epochs", str(given.epochs)]
        where = ["--device", given.device, "--json"]
        rows.append(run(f"{model}: train", "train", str(data), "--out", out, "--model", model, *epochs, *where))
        rows.append(run(f"{model}: evaluate", "evaluate", out, *where))
        rows.append(run(f"{model}: inspect", "inspect", out, *where))
        files = (path for path in Path(out).iterdir() if path.suffix == ".safetensors")
        sizes[model] = {path.name: round(path.stat().st_size / 2**20, 1) for path in files}
        print(model, sizes[model], flush=True)
    return rows, sizes


def documents(frames: int, count: int) -> list[Document]:
    """Documents in which every frame occurs, if they have as many events: frame k has the predicates k and k + 1."""
    rng = np.random.default_rng(1)
    found = []
    for number in range(count):
        events = []
        for place in range(EVENTS):
            frame = (number * EVENTS + place) % frames
            if rng.random() < 0.2:  # not the next one, but one near it
                frame = int(frame + rng.integers(1, NEAR)) % frames
            pred = (frame + int(rng.random() < 0.3)) % frames
            subj, obj = rng.zipf(1.3, 2) % 20_000
            events.append(
                Event(f"verb{pred}", f"noun{subj}", f"noun{obj}", f"prep{frame % 30}", frame=f"Frame_{frame:05d}")
            )
        found.append(Document(f"d{number}", events))
    return found


def run(name: str, *arguments: str) -> dict[str, Any]:
    """Run a verb in a process of its own; return its time and its peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "revup", *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{name} ended with {os.waitstatus_to_exitcode(status)}")
    row: dict[str, Any] = {
        "name": name,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gib": round(usage.ru_maxrss / 2**20, 2),
    }
    if "evaluate" in name:
        row["accuracy"] = json.loads(printed)["accuracy"]
    shown = f"{row['seconds']:>10} s ({row['cpu_seconds']} of CPU){row['peak_gib']:>8} GiB"
    print(f"{name:<20}{shown}", row.get("accuracy", ""), flush=True)
    return row


if __name__ == "__main__":
    main()
