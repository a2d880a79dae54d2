"""Full, read-only, vanishing and slow disks, and one command twice: one clear error, and nothing half-written.

    export PYTHONPATH=tests
    python tests/campaigns/disk.py [--rounds 10] [--trial full ...] [--seed 0] [--out result.json]

`full`        every command writes to a disk that is full after a random number of bytes: a small tmpfs where this
              process may mount one, otherwise a limit on the size of files
`read-only`   the place of the output can't be written to (a read-only mount, or permissions where this is not root)
`vanishing`   an input is removed, or cut to a part of its length, while the command reads it
`lost`        the disk of the output goes away, or turns read-only, while the command works (a tmpfs; needs root)
`slow`        every write, flush and rename takes longer (by strace, where it is installed): the result is the same
`two`         the same command twice at the same time: the output is whole, and one of them may say that it is in use

A failure is a traceback, a status other than 0 or 2, an error that names no file, or an output that can't be used.
Not covered: file systems on which a rename is not atomic. `pairs.py` has different commands at the same time.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import revup
from campaigns.kill import PATIENCE, TINY, VARIES, contents, make_inputs, whole_json, whole_lines, whole_run
from revup.io.files import commit, write_json


@dataclass(frozen=True)
class Task:
    """A command: its arguments, with OUT for the output, and a check of an output that is there."""

    arguments: tuple[str, ...]
    out: str
    check: Callable[[Path], Any]
    reads: tuple[str, ...] = ()  # inputs that may vanish


def _dataset(path: Path) -> None:
    revup.Corpus.load(path, verify=True)


def _arrays(path: Path) -> None:
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        assert len(arrays["documents"])


def _page(path: Path) -> None:
    assert path.read_text("utf-8").rstrip().endswith("</html>")


_TRAIN = ("train", "data", "--out", "OUT", "--device", "cpu", *TINY, "--training.epochs", "2")
TASKS: dict[str, Task] = {
    "prepare": Task(("prepare", "docs.jsonl", "--out", "OUT"), "made", _dataset, ("docs.jsonl",)),
    "convert": Task(("convert", "docs.jsonl", "--out", "OUT"), "copy.jsonl", whole_lines, ("docs.jsonl",)),
    "convert to gz": Task(("convert", "docs.jsonl", "--out", "OUT"), "copy.jsonl.gz", lambda path: None),
    "train": Task((*_TRAIN, "--training.checkpoint-minutes", "0"), "run", whole_run, ("data",)),
    "predict": Task(
        ("predict", "trained", "docs.jsonl", "--out", "OUT"), "out.jsonl", whole_lines, ("docs.jsonl", "trained")
    ),
    "embed": Task(("embed", "trained", "docs.jsonl", "--out", "OUT"), "out.npz", _arrays, ("docs.jsonl", "trained")),
    "world": Task(("world", "--frames", "5", "--documents", "200", "--held-out", "20", "--out", "OUT"), "w", _dataset),
    "inspect": Task(("inspect", "trained", "data", "--page", "OUT"), "page.html", _page, ("trained", "data")),
    "experiment": Task(
        ("experiment", "reliance", "--out", "OUT", "--quick", "--seeds", "1", "--device", "cpu"), "exp", whole_json
    ),
}


@dataclass
class Tally:
    """Commands run, how many succeeded and were refused, how many a lost disk met, what must not happen in words."""

    runs: int = 0
    done: int = 0
    refused: int = 0
    met: int = 0
    failures: list[str] = field(default_factory=list)


def run(
    folder: Path, arguments: Sequence[str], out: Path, limit: int | None = None, under: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start a command, whose files may have at most `limit` bytes; `under` is a command that runs it."""

    def restrict() -> None:
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    source = str(Path(revup.__file__).parents[1])
    return subprocess.Popen(
        [*under, sys.executable, "-m", "revup", *(str(out) if word == "OUT" else word for word in arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=restrict,
    )


def judge(name: str, process: subprocess.Popen[str], out: Path, tally: Tally, place: Path, told: bool = True) -> None:
    """Wait for a command, and note what is wrong with its end; `told`: a success must have left its output."""
    _, errors = process.communicate(timeout=PATIENCE)
    lines = [line for line in errors.splitlines() if line.startswith("revup: error: ")]
    tally.runs += 1
    tally.done += process.returncode == 0
    tally.refused += process.returncode == 2
    if process.returncode not in (0, 2) or "Traceback" in errors:
        tally.failures.append(f"{name}: status {process.returncode}: {errors[-1500:]}")
    elif process.returncode == 2 and (len(lines) != 1 or not any(part in lines[0] for part in _named(place, out))):
        tally.failures.append(f"{name}: an error that names no file: {errors[-500:]}")
    if out.exists():
        try:
            TASKS[name].check(out)
        except Exception as error:
            if process.returncode == 0 or not _is_unfinished_run(name, out):
                tally.failures.append(f"{name}: {out.name} can't be used: {type(error).__name__}: {error}")
    elif told and process.returncode == 0:
        tally.failures.append(f"{name}: status 0 and no output")


def _is_unfinished_run(name: str, out: Path) -> bool:
    """A run whose training was stopped by a full disk is left for a resume."""
    return name == "train" and (out / "config.json").exists()


def _named(place: Path, out: Path) -> list[str]:
    return [str(place), out.name, "docs.jsonl", "data", "trained", "standard output"]


def full(name: str, folder: Path, chance: random.Random, tally: Tally) -> None:
    """Write to a disk that is full after a random number of bytes."""
    size = int(2 ** chance.uniform(9, 20))
    with _small_disk(size, folder / "disk") as (place, limited):
        out = place / TASKS[name].out
        judge(name, run(folder, TASKS[name].arguments, out, None if limited else size), out, tally, place)


@contextmanager
def _small_disk(size: int, place: Path) -> Iterator[tuple[Path, bool]]:
    """A file system of this size (in pages of 4 KiB), or a plain directory where none can be mounted."""
    place.mkdir()
    mounted = _mount("-t", "tmpfs", "-o", f"size={-(-size // 4096) * 4096}", "tmpfs", str(place))
    try:
        yield place, mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=True)
        shutil.rmtree(place, ignore_errors=True)


def _mount(*arguments: str) -> bool:
    try:
        return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0
    except OSError:
        return False


def read_only(name: str, folder: Path, chance: random.Random, tally: Tally) -> None:
    """The output lies where nothing can be written."""
    place = folder / "locked"
    place.mkdir()
    mounted = _mount("-t", "tmpfs", "-o", "size=64k,ro", "tmpfs", str(place))
    if not mounted:
        place.chmod(0o500)
        if os.geteuid() == 0:
            return  # nothing is read-only to root, and nothing can be mounted: no trial
    try:
        out = place / TASKS[name].out
        process = run(folder, TASKS[name].arguments, out)
        judge(name, process, out, tally, place)
        if process.returncode != 2:
            tally.failures.append(f"{name}: status {process.returncode} where nothing can be written")
    finally:
        if mounted:
            subprocess.run(["umount", str(place)], check=True)
        shutil.rmtree(place, ignore_errors=True)


def vanishing(name: str, folder: Path, chance: random.Random, tally: Tally) -> None:
    """An input is removed or cut while it is read."""
    task = TASKS[name]
    if not task.reads:
        return
    for given in ("docs.jsonl", "data", "trained"):
        source = folder / given
        copy = source.resolve()
        source.unlink()
        shutil.copytree(copy, source) if copy.is_dir() else shutil.copy(copy, source)
    out = folder / task.out
    process = run(folder, task.arguments, out)
    time.sleep(chance.uniform(0, 6))
    target = folder / chance.choice(task.reads)
    files = sorted(file for file in target.rglob("*") if file.is_file()) if target.is_dir() else [target]
    match chance.randrange(3):
        case 0:
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        case 1:
            chance.choice(files).unlink()
        case 2:  # not a memory-mapped array: reading beyond its end ends a process, whoever does it
            file = chance.choice([file for file in files if file.suffix != ".npy"])
            os.truncate(file, chance.randrange(file.stat().st_size + 1))
    judge(name, process, out, tally, folder)


def lost(name: str, folder: Path, chance: random.Random, tally: Tally) -> None:
    """The disk of the output goes away or turns read-only while a command works."""
    place = folder / "disk"
    place.mkdir()
    if not _mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)):
        return  # nothing can be mounted: no trial
    began = time.monotonic()
    run(folder, TASKS[name].arguments, folder / f"undisturbed-{TASKS[name].out}").communicate(timeout=PATIENCE)
    moment = chance.uniform(0.3, 1.0) * (time.monotonic() - began)
    out, gone = place / TASKS[name].out, chance.random() < 0.5
    process = run(folder, TASKS[name].arguments, out)
    time.sleep(moment)
    met = False
    while process.poll() is None and not met:
        if gone:
            subprocess.run(["umount", "-l", str(place)], check=True)
            place.rmdir()
            met = True
        else:
            met = _mount("-o", "remount,ro", str(place))  # refused while a file is open for writing
            time.sleep(0.01)
    judge(name, process, out, tally, place, told=not gone)
    tally.met += met
    if not (gone and met):
        subprocess.run(["umount", str(place)], check=True)
    shutil.rmtree(place, ignore_errors=True)


def slow(name: str, folder: Path, chance: random.Random, tally: Tally) -> None:
    """Every write, flush and rename takes longer."""
    if shutil.which("strace") is None:
        return
    delay = f"delay_enter={round(10 ** chance.uniform(3, 4.7))}"  # microseconds
    calls = "write,pwrite64,fsync,rename,mkdir,unlink"
    under = ["strace", "-f", "-qq", "-o", "/dev/null", "--seccomp-bpf", "-e", f"trace={calls}"]
    out = folder / TASKS[name].out
    found = []
    for how in ([], [*under, "-e", f"inject={calls}:{delay}"]):
        judge(name, run(folder, TASKS[name].arguments, out, under=how), out, tally, folder)
        found.append(contents(out, lambda file: not VARIES.search(file)))
        shutil.rmtree(out) if out.is_dir() else out.unlink()
    if found[0] != found[1]:
        tally.failures.append(f"{name}: differs on a slow disk ({delay})")


def two(name: str, folder: Path, chance: random.Random, tally: Tally) -> None:
    """The same command twice at the same time, to one output."""
    out = folder / TASKS[name].out
    arguments = TASKS[name].arguments + (("--force",) if chance.random() < 0.3 and name != "experiment" else ())
    processes = [run(folder, arguments, out)]
    time.sleep(chance.uniform(0, 1))
    processes.append(run(folder, arguments, out))
    for process in processes:
        process.wait(PATIENCE)
    for process in processes:
        judge(name, process, out, tally, folder)
    if all(process.returncode for process in processes):
        tally.failures.append(f"{name}: neither of two processes succeeded")


TRIALS: dict[str, Callable[[str, Path, random.Random, Tally], None]] = {
    "full": full,
    "read-only": read_only,
    "vanishing": vanishing,
    "lost": lost,
    "slow": slow,
    "two": two,
}


def campaign(trial: str, name: str, rounds: int, seed: int, inputs: Path) -> Tally:
    """Put one command through one trial so many times."""
    tally = Tally()
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="revup-disk-") as place:
            folder = Path(place)
            for given in ("docs.jsonl", "data", "trained"):
                (folder / given).symlink_to(inputs / given)
            TRIALS[trial](name, folder, random.Random(f"{seed} {trial} {name} {number}"), tally)
            partial = [path.name for path in folder.iterdir() if path.name.endswith(".partial")]
            if partial and not (trial in ("full", "vanishing", "lost") and name in ("prepare", "world", "train")):
                tally.failures.append(f"{name}: {partial} is left")
        if len(tally.failures) > 3:
            break
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="of each command in each trial")
    parser.add_argument("--trial", nargs="+", choices=sorted(TRIALS), default=list(TRIALS))
    parser.add_argument("--task", nargs="+", choices=sorted(TASKS), default=list(TASKS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    found: dict[str, dict[str, Tally]] = {}
    print(f"{'trial':<12}{'command':<16}{'runs':>6}{'met':>5}{'done':>6}{'refused':>9}{'failures':>10}")
    with tempfile.TemporaryDirectory(prefix="revup-disk-inputs-") as place:
        inputs = make_inputs(Path(place))
        for trial in options.trial:
            for name in options.task:
                tally = campaign(trial, name, options.rounds, options.seed, inputs)
                found.setdefault(trial, {})[name] = tally
                row = f"{tally.runs:>6}{tally.met:>5}{tally.done:>6}{tally.refused:>9}{len(tally.failures):>10}"
                print(f"{trial:<12}{name:<16}{row}", flush=True)
                for failure in tally.failures:
                    print(f"  {failure}", file=sys.stderr, flush=True)
    if options.out is not None:
        about = {"date": date.today().isoformat(), "commit": commit(), "seed": options.seed, "rounds": options.rounds}
        trials = {trial: {name: asdict(tally) for name, tally in own.items()} for trial, own in found.items()}
        write_json(options.out, {**about, "trials": trials})
    return int(any(tally.failures for own in found.values() for tally in own.values()))


if __name__ == "__main__":
    sys.exit(main())
