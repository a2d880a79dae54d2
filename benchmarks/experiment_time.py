"""How long `revup experiment all` takes on a dataset, from a sample of its runs that are computed as it would.

    python benchmarks/experiment_time.py wiki --out DIR --device cuda --jobs 11 --precision bf16

Runs of one system in one table take about as long as each other, so from each such group as many as `--each` says are
drawn at random. They are computed by the engine of `revup experiment`. What they take, times the size of their group,
is the work of all runs; work by wall time is what the machine does at once (the concurrency). Runs of a sample share
fewer fitted counts than all runs do, so the estimate is rather too high. `--each 0` computes every run: a measurement.
Runs that DIR contains are not computed again; with `--took` none is, and those it contains are said to have taken that
long together (a call that was stopped). Prints a table and writes `experiment-time-DATE.json`.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

from revup.experiments.catalogue import EXPERIMENTS
from revup.experiments.datasets import Corpora, describe
from revup.experiments.plan import Plan
from revup.experiments.runs import FILE, Run, RunFile
from revup.experiments.sweep import Outcome, Sweep, merged
from revup.io.files import commit, write_json
from revup.training.deadline import Deadline

Group = tuple[str, str]  # table, system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a dataset directory")
    parser.add_argument("--test", type=Path, action="append", default=[], help="as in `revup experiment`")
    parser.add_argument("--out", required=True, type=Path, help="where runs are kept")
    parser.add_argument("--each", type=int, default=1, help="runs of each group; 0: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop before; the next call continues")
    parser.add_argument("--took", type=float, metavar="SECONDS", help="estimate from the runs of an earlier call")
    parser.add_argument("--few", action="store_true", help="few conditions of each experiment, to try it out")
    parser.add_argument("--epochs", type=int, help="of training, to try it out")
    given = parser.parse_args()

    given.out.mkdir(parents=True, exist_ok=True)
    name = given.data.name
    corpora = Corpora({name: given.data} | {test.name: test for test in given.test}, given.out / "labels")
    file = RunFile(given.out / FILE)
    groups = planned(corpora, name, file, given)
    sample = drawn(groups, given.each, random.Random(given.seed))
    print(
        f"{sum(map(len, groups.values()))} runs in {len(groups)} groups, {len(sample)} of them are computed", flush=True
    )
    earlier = set() if given.took else set(file.results)
    started = time.perf_counter()
    deadline = Deadline.after(given.minutes)
    sweep = Sweep(corpora, given.out, file, given.device, given.jobs, deadline)
    if given.took is None:
        outcome, wall = sweep.complete(sample), time.perf_counter() - started
    else:
        known = {run: run.name(corpora[name].fingerprint) for run in sample}
        results = {run: file.results[key] for run, key in known.items() if key in file.results}
        outcome, wall = Outcome(results, {}, len(sample) - len(results), None), given.took
    took = {run: line["seconds"] for run, line in outcome.results.items()}
    rows = {group: row for group, runs in groups.items() if (row := summary(runs, took))}
    lines = outcome.results.values()
    work = sum(line["seconds"] for line in lines if line["name"] not in earlier)  # of the wall time's runs alone
    whole = sum(row["estimated work"] for row in rows.values())
    concurrency = work / wall or float("nan")
    missing = {", ".join(group): len(runs) for group, runs in groups.items() if group not in rows}
    found: dict[str, Any] = {
        "date": date.today().isoformat(),
        "commit": commit(),
        "machine": None if given.took else {"processor": platform.machine(), "cores": os.cpu_count()},
        "device": sorted({f"{line['device']}, torch {line['torch']}" for line in outcome.results.values()}),
        "settings": {"jobs": given.jobs, "precision": given.precision, "seeds": given.seeds, "seed": given.seed},
        "data": {"name": name, "fingerprint": corpora[name].fingerprint},
        "runs": sum(map(len, groups.values())),
        "computed": len(took),
        "groups without any": missing,
        "failed": [f"{run}: {problem}" for run, problem in outcome.failed.items()],
        "wall seconds": round(wall, 1),
        "work seconds": round(work, 1),
        "concurrency": round(concurrency, 2),
        "estimated minutes": round(whole / concurrency / 60, 1),
        "groups": {f"{table}, {system}": row for (table, system), row in sorted(rows.items())},
        "each": {str(run): round(seconds, 1) for run, seconds in took.items()},
    }
    write_json(given.out / f"experiment-time-{date.today().isoformat()}.json", found)
    for key, row in found["groups"].items():
        print(f"{key:<40} {row['runs']:>4} runs  {row['computed']:>3} computed  {row['mean']:>7.1f} s")
    keys = ("wall seconds", "work seconds", "concurrency", "estimated minutes", "groups without any", "failed")
    print({key: found[key] for key in keys})


def planned(corpora: Corpora, name: str, file: RunFile, given: argparse.Namespace) -> dict[Group, list[Run]]:
    """The runs of `all`, each in the first table that shows it, by table and system."""
    training: dict[str, Any] = {"precision": given.precision}
    if given.epochs:
        training["epochs"] = given.epochs
    plan = Plan([*EXPERIMENTS], None, tuple(range(given.seeds)), {"training": training}, given.few)
    line = describe(name, corpora[name], {test.name: corpora[test.name] for test in given.test})
    file.add_dataset(line)
    plan.add(line, corpora.labels)
    groups: dict[Group, list[Run]] = defaultdict(list)
    seen: set[str] = set()
    tables = plan.runs()
    tested = {run: run for run in merged(run for runs in tables.values() for run in runs)}
    for experiment, runs in tables.items():
        for run in map(tested.__getitem__, merged(runs)):
            key = run.name(corpora[name].fingerprint)
            if key not in seen:
                seen.add(key)
                kind = f"{experiment} ({run.condition.noise})" if run.condition.eta else experiment
                groups[kind, run.system.name].append(run)
    return groups


def drawn(groups: dict[Group, list[Run]], each: int, rng: random.Random) -> list[Run]:
    """Some runs of each group, at random; all where `each` is 0."""
    return [run for runs in groups.values() for run in (rng.sample(runs, min(each, len(runs))) if each else runs)]


def summary(runs: list[Run], took: dict[Run, float]) -> dict[str, Any]:
    """What the computed runs of a group took; empty if there are none."""
    known = [took[run] for run in runs if run in took]
    if not known:
        return {}
    mean = statistics.fmean(known)
    return {"runs": len(runs), "computed": len(known), "mean": round(mean, 1), "estimated work": mean * len(runs)}


if __name__ == "__main__":
    main()
