"""Run the three mutation campaigns until so many inputs are through; stopped, it goes on where it was.

    export PYTHONPATH=tests
    python tests/campaigns/mutate.py --state DIR [--total 1000000] [--seed 0]

Goes round all readers, directories and targets in slices of about ten seconds each, and writes the counters after each
slice. A directory takes a hundred times as long as a line of JSON: kinds have equal time, and none more than `MOST`
inputs. Failing inputs are kept beside the counters. The exit status is 1 where anything failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from campaigns import mutate_directories, mutate_readers, mutate_review
from campaigns.limits import memory_used
from revup.io.files import commit, write_json

MOST = 40_000  # inputs of one kind
STEP = 10.0  # seconds of one slice

Slice = Callable[[str, int, int, int, Path], tuple[int, int, list[str]]]  # → inputs, refused, failures


def read(name: str, count: int, seed: int, first: int, save: Path) -> tuple[int, int, list[str]]:
    """A slice of `mutate_readers`."""
    tally = mutate_readers.campaign(name, count, seed, first=first)
    return tally.inputs, tally.refused, [_kept(save, name, seed, n, data, why) for n, _, data, why in tally.failures]


def load(name: str, count: int, seed: int, first: int, save: Path) -> tuple[int, int, list[str]]:
    """A slice of `mutate_directories`."""
    tally = mutate_directories.campaign(name, count, seed, first=first)
    return tally.inputs, tally.refused, [f"{name} {seed} {number}: {why}" for number, why in tally.failures]


def review(name: str, count: int, seed: int, first: int, save: Path) -> tuple[int, int, list[str]]:
    """A slice of `mutate_review`."""
    tally = mutate_review.campaign(name, count, seed, first=first)
    return tally.inputs, tally.refused, [_kept(save, name, seed, n, data, why) for n, data, why in tally.failures]


def _kept(save: Path, name: str, seed: int, number: int, data: bytes, why: str) -> str:
    (save / f"fuzz-{name}-{seed}-{number}").write_bytes(data)
    return f"{name} {seed} {number}: {why}"


KINDS: dict[str, tuple[Slice, str]] = {
    **{f"reader: {name}": (read, name) for name in mutate_readers.SEEDS},
    **{name: (load, name) for name in mutate_directories.KINDS},
    **{f"review and serve: {name}": (review, name) for name in mutate_review.TARGETS},
}


def go_on(state: dict[str, Any], save: Path, total: int, seed: int, until: float = float("inf")) -> None:
    """Go round all kinds until the total is reached or the time has come; `state` is changed in place."""
    kinds = state.setdefault("kinds", {})
    for name in KINDS:
        kinds.setdefault(name, {"inputs": 0, "refused": 0, "seconds": 0.0, "failures": []})
    while (left := total - sum(own["inputs"] for own in kinds.values())) > 0:
        open_kinds = [name for name in KINDS if kinds[name]["inputs"] < MOST]
        if not open_kinds:
            break
        for name in open_kinds:
            own, (run, short) = kinds[name], KINDS[name]
            rate = own["inputs"] / own["seconds"] if own["seconds"] else 5.0
            count = max(10, min(int(rate * STEP), MOST - own["inputs"], left))
            began = time.monotonic()
            inputs, refused, failures = run(short, count, seed, own["inputs"], save)
            own["seconds"] += time.monotonic() - began
            own["inputs"] += (
                count if failures else inputs
            )  # a slice ends at its fifth failure; the next starts after it
            own["refused"] += refused
            own["failures"] += failures
            state.update(seed=seed, commit=commit(), largest_bytes=memory_used(), python=sys.version.split()[0])
            write_json(save / "counters.json", state)
            for failure in failures:
                print(failure, file=sys.stderr, flush=True)
            left -= inputs
            if left <= 0 or time.monotonic() > until:
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--state", type=Path, required=True, help="folder of the counters and of failing inputs")
    parser.add_argument("--total", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.state.mkdir(parents=True, exist_ok=True)
    counters = options.state / "counters.json"
    state = json.loads(counters.read_bytes()) if counters.exists() else {}
    if state.get("seed", options.seed) != options.seed:
        parser.error(f"{counters} is of seed {state['seed']}")
    go_on(state, options.state, options.total, options.seed, time.monotonic() + 60 * options.minutes)
    for name, own in state["kinds"].items():
        print(f"{name:<44}{own['inputs']:>9}{own['refused']:>9}{len(own['failures']):>5}{own['seconds']:>9.0f} s")
    print(f"{sum(own['inputs'] for own in state['kinds'].values())} inputs")
    return int(any(own["failures"] for own in state["kinds"].values()))


if __name__ == "__main__":
    sys.exit(main())
