"""What the tests of training share: quick settings, and processes that train until they are stopped."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import torch

import revup
from revup.data.corpus import Corpus
from revup.errors import Interrupted

TINY: dict[str, Any] = {"embedding": 16, "hidden": 16, "latent": 8, "frame": 16}

STOPPABLE: dict[str, Any] = {
    "epsilon": 0.7,
    "eta": 0.1,
    "seed": 4,
    "network": {**TINY, "dropout": 0.2},
    "training": {
        "epochs": 4,
        "batch_size": 4,
        "patience": 2,  # so that the frames settle on the way
        "validate_steps": 25,
        "schedule": "linear",
    },
}
"""A run of two seconds with everything in it that a resume has to restore."""

OFTEN: dict[str, Any] = {**STOPPABLE, "training": {**STOPPABLE["training"], "checkpoint_minutes": 0.0}}
"""The same with a checkpoint at every report."""


def lines(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the times."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in found]


def files(run: Path) -> set[str]:
    return {path.name for path in run.iterdir()}


def contents(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.iterdir()}


def weights(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def state(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "state.json").read_text("utf-8"))
    return found


def train_or_resume(data: Path, out: Path, settings: dict[str, Any]) -> None:
    """Train in a process of its own; leave with the status that the command line gives an interrupted run."""
    torch.set_num_threads(1)
    try:
        revup.train(Corpus.load(data), out=out, device="cpu", resume=True, **settings)
    except Interrupted as stop:
        sys.exit(stop.status)


def search_on_cluster(data: Path, out: Path, settings: dict[str, Any]) -> None:
    """Search for settings on the cluster that RAY_ADDRESS names."""
    revup.tune(data, out, engine="ray", **settings)


def train_until_write(data: Path, out: Path, settings: dict[str, Any], writes: int) -> None:
    """Train, and die like a killed process right before a file gets its name for the so-many-th time."""
    replace, left = os.replace, [writes]

    def counted(*arguments: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            os._exit(9)
        replace(*arguments)

    os.replace = counted  # type: ignore[assignment]
    train_or_resume(data, out, settings)


def start(target: Any, *arguments: Any) -> ForkServerProcess:
    """Start a process, forked from one that has everything imported: a new interpreter would take seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["revup.training.run", __name__])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def wait_for_checkpoints(process: ForkServerProcess, out: Path, count: int) -> None:
    """Wait until so many checkpoints were written, or the process has ended."""
    last, seen = None, -1
    while process.is_alive() and seen < count:
        try:
            now = (out / "checkpoint.safetensors").stat().st_mtime_ns
        except FileNotFoundError:
            now = 0
        seen, last = seen + (now != last), now
        time.sleep(0.002)


def wait_for_validations(process: ForkServerProcess, out: Path, count: int) -> None:
    """Wait until metrics.jsonl has so many lines, or the process has ended."""
    while process.is_alive():
        path = out / "metrics.jsonl"
        if (out / "config.json").exists() and (path.read_bytes().count(b"\n") if path.exists() else 0) >= count:
            return
        time.sleep(0.002)
