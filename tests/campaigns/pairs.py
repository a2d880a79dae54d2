"""Two different commands at the same time, on one output, or one on what the other replaces.

    export PYTHONPATH=tests
    python tests/campaigns/pairs.py [--rounds 2] [--seed 0] [--out result.json]

Every pair of `PAIRS` is started within a second of each other, in either order. Each command must succeed, or end with
status 2 and one line that names a file; what is at the output afterwards is whole and is what one of them makes. A
reader sees the old or the new, or says that its input was changed. Prints a table, the pairs that were tried.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import revup
from campaigns.disk import run
from campaigns.kill import PATIENCE, TINY, make_inputs, whole_json, whole_lines, whole_run
from revup.io.files import commit, write_json

_TRAIN = [*TINY, "--device", "cpu", "--training.epochs", "2", "--training.checkpoint-minutes", "0"]
_SWEEP = ["--quick", "--seeds", "1", "--device", "cpu"]
COMMANDS: dict[str, list[str]] = {
    "prepare": ["prepare", "docs.jsonl", "--out", "OUT"],
    "world": ["world", "--frames", "5", "--documents", "200", "--held-out", "20", "--out", "OUT"],
    "convert": ["convert", "docs.jsonl", "--out", "OUT"],
    "predict": ["predict", "trained", "docs.jsonl", "--out", "OUT"],
    "audit": ["audit", "trained", "docs.jsonl", "--out", "OUT"],
    "suggest": ["suggest", "trained", "docs.jsonl", "-n", "5", "--out", "OUT"],
    "embed": ["embed", "trained", "docs.jsonl", "--out", "OUT"],
    "train": ["train", "data", "--out", "OUT", *_TRAIN],
    "train --resume": ["train", "data", "--out", "OUT", "--resume", *_TRAIN],
    "tune": ["tune", "data", "--out", "OUT", "--trials", "2", "--seeds", "1", "--jobs", "1", *_TRAIN[:-2]],
    "experiment": ["experiment", "reliance", "--out", "OUT", *_SWEEP],
    # readers of what another replaces
    "train on it": ["train", "OUT", "--out", "run-of-it", *_TRAIN],
    "evaluate on it": ["evaluate", "trained", "OUT", "--split", "valid", "--device", "cpu"],
    "audit of it": ["audit", "trained", "OUT", "--out", "issues.jsonl"],
    "prepare it": ["prepare", "OUT", "--out", "data-of-it"],
    "predict it": ["predict", "trained", "OUT", "--out", "labelled.jsonl"],
    "predict with it": ["predict", "OUT", "docs.jsonl", "--out", "labelled.jsonl"],
    "embed with it": ["embed", "OUT", "docs.jsonl", "--out", "vectors.npz"],
    "inspect it": ["inspect", "OUT", "--json", "--device", "cpu"],
    "evaluate it": ["evaluate", "OUT", "data", "--device", "cpu"],
}


def whole_dataset(path: Path) -> None:
    """A dataset directory can be opened, and every file of it has its digest."""
    revup.Corpus.load(path, verify=True)


def whole_directory(path: Path) -> None:
    """A directory is a whole dataset, a whole run, or one of readable JSON files."""
    if (path / "corpus.json").exists():
        whole_dataset(path)
    elif (path / "config.json").exists():
        whole_run(path)
    else:
        whole_json(path)


# what is there before, the two commands, what the output must be afterwards
Pair = tuple[str, str, str, Callable[[Path], Any]]
PAIRS: list[Pair] = [
    ("", "prepare", "world", whole_dataset),
    ("", "prepare", "train", whole_directory),
    ("", "world", "train", whole_directory),
    ("", "train", "experiment", whole_directory),
    ("", "train", "tune", whole_directory),
    ("", "experiment", "tune", whole_directory),
    ("", "tune", "tune", whole_directory),
    ("", "train", "train --resume", whole_run),
    ("", "convert", "predict", whole_lines),
    ("", "predict", "audit", whole_lines),
    ("", "audit", "suggest", whole_lines),
    ("", "predict", "embed", lambda path: path.read_bytes()),
    ("data", "prepare", "train on it", whole_dataset),
    ("data", "prepare", "evaluate on it", whole_dataset),
    ("data", "world", "audit of it", whole_dataset),
    ("docs.jsonl", "convert", "prepare it", whole_lines),
    ("docs.jsonl", "convert", "predict it", whole_lines),
    ("trained", "train", "predict with it", whole_run),
    ("trained", "train", "embed with it", whole_run),
    ("trained", "train", "inspect it", whole_run),
    ("trained", "train", "evaluate it", whole_run),
    ("trained", "train --resume", "predict with it", whole_run),
]


@dataclass
class Tally:
    """Rounds of a pair, how often each command succeeded and was refused, and what must not happen, in words."""

    rounds: int = 0
    done: list[int] = field(default_factory=lambda: [0, 0])
    refused: list[int] = field(default_factory=lambda: [0, 0])
    failures: list[str] = field(default_factory=list)


def meet(pair: Pair, folder: Path, chance: random.Random, tally: Tally) -> None:
    """Start both commands of a pair, and note what is wrong with their ends."""
    before, first, second, check = pair
    out = folder / {"data": "given-data", "trained": "given-run", "docs.jsonl": "given.jsonl", "": "out.jsonl"}[before]
    if before:
        source = (folder / before).resolve()
        shutil.copytree(source, out) if source.is_dir() else shutil.copy(source, out)
    commands = [_command(name, before) for name in (first, second)]
    order = [0, 1] if chance.random() < 0.5 else [1, 0]
    started: dict[int, Any] = {}
    for place in order:
        started[place] = run(folder, commands[place], out)
        time.sleep(chance.uniform(0, 1))
    tally.rounds += 1
    for place, name in enumerate((first, second)):
        _, errors = started[place].communicate(timeout=PATIENCE)
        status = started[place].returncode
        lines = [line for line in errors.splitlines() if line.startswith("revup: error: ")]
        tally.done[place] += status == 0
        tally.refused[place] += status == 2
        if status not in (0, 2) or "Traceback" in errors:
            tally.failures.append(f"{name}: status {status}: {errors[-1500:]}")
        elif status == 2 and not (len(lines) == 1 and out.name in lines[0]):
            tally.failures.append(f"{name}: an error that names no file: {errors[-500:]}")
    if all(process.returncode for process in started.values()):
        tally.failures.append("neither succeeded")
    try:
        check(out)
    except Exception as error:
        tally.failures.append(f"{out.name} can't be used: {type(error).__name__}: {error}")
    if left := [path.name for path in folder.iterdir() if path.name.endswith(".partial")]:
        tally.failures.append(f"{left} is left")


def _command(name: str, before: str) -> Sequence[str]:
    """A command; what replaces something that is there says so."""
    writes = COMMANDS[name][COMMANDS[name].index("OUT") - 1] == "--out"
    return [*COMMANDS[name], *(["--force"] if before and writes and "--resume" not in COMMANDS[name] else [])]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=2, help="of each pair")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    found: dict[str, Tally] = {}
    print(f"{'on':<12}{'first':<18}{'second':<18}{'rounds':>7}{'done':>9}{'refused':>9}{'failures':>10}")
    with tempfile.TemporaryDirectory(prefix="revup-pairs-inputs-") as place:
        inputs = make_inputs(Path(place))
        for pair in PAIRS:
            tally = found[" + ".join(filter(None, pair[:3]))] = Tally()
            for number in range(options.rounds):
                with tempfile.TemporaryDirectory(prefix="revup-pairs-") as room:
                    for given in ("docs.jsonl", "data", "trained"):
                        (Path(room) / given).symlink_to(inputs / given)
                    meet(pair, Path(room), random.Random(f"{options.seed} {pair[:3]} {number}"), tally)
            ends = ["+".join(map(str, each)) for each in (tally.done, tally.refused)]
            row = f"{tally.rounds:>7}{ends[0]:>9}{ends[1]:>9}{len(tally.failures):>10}"
            print(f"{pair[0] or 'new':<12}{pair[1]:<18}{pair[2]:<18}{row}", flush=True)
            for failure in tally.failures:
                print(f"  {failure}", file=sys.stderr, flush=True)
    if options.out is not None:
        about = {"date": date.today().isoformat(), "commit": commit(), "seed": options.seed}
        write_json(options.out, {**about, "pairs": {name: asdict(tally) for name, tally in found.items()}})
    return int(any(tally.failures for tally in found.values()))


if __name__ == "__main__":
    sys.exit(main())
