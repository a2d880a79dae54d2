"""How well and how fast `revup tune` searches.

    python benchmarks/tune.py samplers --minutes 2 --repeats 5     # TPE and random search at equal device time
    python benchmarks/tune.py samplers --task tagger …             # a network without counts, which has more to tune
    python benchmarks/tune.py jobs --device cuda --jobs 1 8        # trials per minute, by the number of processes

`samplers` searches the built-in world with each sampler and several seeds, on one thread, until the same processor time
is spent on each; it is measured as CPU time (or, on a GPU, as wall time), so that other work on the machine does not
count. Labels are part of the dataset, as a user's are: seeds change the training and not what is known. What each
search found is trained again with seeds that it has not used. `jobs` lets 16 random trials run without early stopping.
Writes a JSON file with date, commit, machine and settings to benchmarks/results.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import math
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import torch

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.inference.students_t import t_quantile
from revup.io.files import commit, write_json
from revup.models.shared_counts import sharing_counts
from revup.reporting.progress import SweepProgress
from revup.training.run import train_config
from revup.training.tuning.comparison import LEVEL
from revup.training.tuning.plan import Plan

RESULTS = Path(__file__).parent / "results"
OBSERVED = {"epsilon": 0.3, "eta": 0.2}  # share of labels that are in the dataset, and of wrong ones among them
AS_THEY_ARE = {"epsilon": 1.0, "eta": 0.0}  # how trials see the labels of the dataset
SMALL: dict[str, dict[str, Any]] = {
    "network": {"embedding": 32, "latent": 32, "frame": 32, "layers": 1},
    "training": {"epochs": 3},
}
TASKS: dict[str, dict[str, dict[str, Any]]] = {  # model → settings of all trials
    "revup": SMALL,
    "tagger": {
        "network": {"embedding": 32, "layers": 1},
        "training": {"epochs": 3},
        "objective": {"prior": "none", "noise": "none"},
    },
}
ARMS: dict[str, dict[str, Any]] = {
    "tpe": {"sampler": "tpe"},
    "random": {"sampler": "random"},
    "random, no early stopping": {"sampler": "random", "prune": False},
}
FURTHER_SEEDS = (101, 102, 103)


def main() -> None:
    """Parse the command line and run one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("samplers", "jobs"))
    parser.add_argument("--minutes", type=float, default=2.0, help="device time of a search")
    parser.add_argument("--repeats", type=int, default=5, help="searches with each sampler")
    parser.add_argument("--task", default="revup", choices=list(TASKS), help="the model that is tuned")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--frames", type=int, default=10)
    parser.add_argument("--documents", type=int, default=600)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="where to write (default: benchmarks/results)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = world(Path(folder) / "data", given.frames, given.documents)
        if given.what == "samplers":
            torch.set_num_threads(1)
            found = samplers(corpus, Path(folder), given)
        else:
            found = jobs(corpus, Path(folder), given)
    about = {
        "date": date.today().isoformat(),
        "commit": commit(),
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "load": os.getloadavg(),
        "gpu": torch.cuda.get_device_name() if given.device == "cuda" else None,
        "torch": torch.__version__,
        "settings": {
            **OBSERVED,
            "model": given.task,
            **TASKS[given.task],
            "frames": given.frames,
            "documents": given.documents,
        },
    }
    path = given.out or RESULTS / f"tune-{given.what}-{date.today().isoformat()}.json"
    write_json(path, {**about, **found})
    print(json.dumps(found["summary"], indent=1))


def world(out: Path, frames: int, documents: int) -> Corpus:
    """A dataset of the built-in world."""
    made = revup.World(frames=frames, seed=1)
    train, valid, test = (
        observed(made.sample(count, seed=1 + k), seed=1 + k) for k, count in enumerate((documents, 300, 300))
    )
    return Corpus.build(out=out, train=train, valid=valid, test=test, world=made, duplicates="keep")


def observed(documents: Sequence[Document], seed: int) -> list[Document]:
    """Documents that keep some of their labels, some of these replaced by another frame."""
    rng, frames = (
        random.Random(seed),
        sorted({event.frame for each in documents for event in each.events if event.frame}),
    )

    def label(frame: str | None) -> str | None:
        kept, wrong = rng.random() < OBSERVED["epsilon"], rng.random() < OBSERVED["eta"]
        other = rng.choice([each for each in frames if each != frame])
        return (other if wrong else frame) if kept else None

    return [
        replace(each, events=[replace(event, frame=label(event.frame)) for event in each.events]) for each in documents
    ]


# ---- samplers ------------------------------------------------------------------------------------------------------


def samplers(corpus: Corpus, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Search with each sampler until the same device time is spent."""
    searches = []
    for seed in range(given.repeats):
        for arm in given.arms:
            out = folder / f"{arm.replace(' ', '-')}-{seed}"
            searches.append({"arm": arm, "seed": seed, **search(corpus, out, arm, seed, given)})
            print({name: searches[-1][name] for name in ("arm", "seed", "trials", "valid", "again")}, flush=True)
    by_arm = {arm: [each for each in searches if each["arm"] == arm] for arm in given.arms}
    default = again(corpus, {}, given)
    summary: dict[str, Any] = {"default": {"again": round(statistics.fmean(default), 5)}}
    for arm, found in by_arm.items():
        summary[arm] = {
            "trials": statistics.fmean(each["trials"] for each in found),
            "valid": [round(each["valid"], 5) for each in found],
            "again": [round(each["again"], 5) for each in found],
            "mean": round(statistics.fmean(each["again"] for each in found), 5),
        }
        if arm != "tpe" and "tpe" in by_arm:
            for name in ("valid", "again"):
                gains = [mine[name] - tpe[name] for mine, tpe in zip(found, by_arm["tpe"], strict=True)]
                summary[arm][f"tpe is better by, {name}"] = difference(gains)
    return {"minutes": given.minutes, "summary": summary, "searches": searches, "default": default}


def difference(gains: Sequence[float]) -> dict[str, Any]:
    """Mean of paired differences, its standard error and its 90% interval by Student's t."""
    if len(gains) < 2:
        return {"mean": round(statistics.fmean(gains), 5)}
    mean, error = statistics.fmean(gains), statistics.stdev(gains) / math.sqrt(len(gains))
    reach = t_quantile(LEVEL, len(gains) - 1) * error
    return {
        "mean": round(mean, 5),
        "standard error": round(error, 5),
        "interval": [round(mean - reach, 5), round(mean + reach, 5)],
    }


class Spent(Exception):
    """The device time of a search is over."""


def search(corpus: Corpus, out: Path, arm: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """One search: it ends with the first trial that ends after the time is spent."""
    clock = time.perf_counter if given.device == "cuda" else time.process_time
    started, ended = clock(), 0

    def watch(status: SweepProgress) -> None:
        nonlocal ended
        ended = status.done
        if not status.running and clock() - started > given.minutes * 60:
            raise Spent

    def tune(trials: int, progress: Any = None) -> dict[str, Any]:
        return revup.tune(
            corpus, out, trials=trials, seeds=0, jobs=1, seed=seed, device=given.device, model=given.task,
            overrides=TASKS[given.task], progress=progress, **AS_THEY_ARE, **ARMS[arm],
        )  # fmt: skip

    with contextlib.suppress(Spent):
        tune(10_000, watch)
    seconds = clock() - started
    found = tune(ended)
    with open(out / "trials.csv", encoding="utf-8", newline="") as table:
        trials = [[row["end"], float(row["label_nll"]), float(row["seconds"])] for row in csv.DictReader(table)]
    return {
        "trials": ended,
        "seconds": round(seconds, 1),
        "counts": found["counts"],
        "valid": found["best"]["value"],
        "again": statistics.fmean(again(corpus, found["best"]["settings"], given)),
        "settings": found["best"]["settings"],
        "each": trials,
    }


def again(corpus: Corpus, settings: dict[str, Any], given: argparse.Namespace) -> list[float]:
    """Validation label_nll of settings with seeds that no search used."""
    observation = revup.data.knowledge.Observation(**AS_THEY_ARE)
    plan = Plan.make(corpus, given.task, None, observation, TASKS[given.task], None, "tpe", True)
    found = []
    for seed in FURTHER_SEEDS:
        scores: list[float] = []
        with sharing_counts():
            train_config(
                corpus,
                plan.trial(settings, seed),
                device=given.device,
                progress=lambda report, to=scores: to.append(report.scores["label_nll"]) if report.scores else None,
            )
        found.append(min(scores))
    return found


# ---- jobs ----------------------------------------------------------------------------------------------------------


def jobs(corpus: Corpus, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The time that the same random trials take, by the number of processes; starting them included."""

    def tune(name: str, trials: int, count: int) -> dict[str, Any]:
        return revup.tune(
            corpus, folder / name, trials=trials, seeds=0, jobs=count, sampler="random", prune=False,
            search="training.learning-rate,network.dropout,objective.alpha", device=given.device, overrides=SMALL,
            **AS_THEY_ARE,
        )  # fmt: skip

    tune("warm-up", 2, 1)  # compiles kernels
    found: dict[str, Any] = {}
    for count in given.jobs:
        started = time.perf_counter()
        result = tune(f"jobs-{count}", given.trials, count)
        seconds = time.perf_counter() - started
        found[str(count)] = {"seconds": round(seconds, 1), "trials_per_minute": round(given.trials / seconds * 60, 2)}
        print(count, found[str(count)], result["counts"], flush=True)
    first = found[str(given.jobs[0])]["seconds"]
    summary = {count: {**each, "speedup": round(first / each["seconds"], 2)} for count, each in found.items()}
    return {"trials": given.trials, "summary": summary}


if __name__ == "__main__":
    main()
