"""Stop commands at random moments: every promised file stays whole, a resume gives the same bytes, nothing is left.

    export PYTHONPATH=tests
    python tests/campaigns/kill.py [--kills 200] [--work NAME ...] [--seed 0] [--out result.json]

Each command of `WORKS` is run once undisturbed. Then it is started again and again, and stopped by SIGKILL, SIGTERM or
SIGINT after a random time, until it has ended by itself; what it leaves must be what the undisturbed one left, byte by
byte but for times. After each kill no process of the command may be left, and what it promised must be absent or
loadable. Prints a table; the exit status is 1 where anything failed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import revup
from revup.data.events import write
from revup.errors import RevupError
from revup.experiments.suite import MARK
from revup.inference.run_directory import is_sealed
from revup.io.digests import check_digest
from revup.io.files import commit, write_json
from revup.world.world import World

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PATIENCE = 600.0  # seconds that a command may take, also on a busy machine
TINY = ["--network.hidden", "16", "--network.embedding", "16", "--network.latent", "8", "--network.frame", "16"]
PARTIAL = re.compile(r"\..+\.\d+-\d+\.partial")  # a file that SIGKILL left half-written; the next run removes it
TIMES = re.compile(
    rb'"(\w*seconds|seconds_left|created|time|started|date|recovered)": ?"?[-\d.:T +]+"?|compute seconds: `?\d+'
)  # differ between equal runs, as does how many trials of `tune` a kill met


VARIES = re.compile(r"\.(html|png|svg|pdf|log|lock)$|^tensorboard/|^checkpoint\.")  # by fonts, times, machines


@dataclass(frozen=True)
class Work:
    """A command that can be stopped and given again.

    Attributes:
        command: Its arguments, in a folder that holds `docs.jsonl` and `data`.
        result: What it promises, relative to the folder.
        check: Raises if a result that is there can't be used.
        left: Names in the folder that it may leave besides its result.
        compare: Which files of the result must be equal, by name.
        needs: A verb that must exist.
    """

    command: list[str]
    result: str
    check: Callable[[Path], Any]
    left: tuple[str, ...] = ()
    compare: Callable[[str], bool] = lambda name: not VARIES.search(name)
    needs: str = ""


def whole_run(path: Path) -> None:
    """A run directory is sealed and unchanged, or can be told to be unfinished; its metrics are whole lines."""
    if is_sealed(path):
        check_digest(path)
    else:
        assert not _loads(path), "a run without a digest was loaded"


def _loads(path: Path) -> bool:
    try:
        revup.load(path, allow_unfinished=True)
    except RevupError:
        return False
    return True


def whole_json(path: Path) -> None:
    """Every JSON file under a directory can be read (the one that marks an experiment is empty at first)."""
    for file in path.rglob("*.json"):
        if file.name != MARK or file.stat().st_size:
            json.loads(file.read_bytes())


def whole_lines(path: Path) -> None:
    """Every line of a file is JSON, and the last one is complete."""
    data = path.read_bytes()
    assert data.endswith(b"\n"), "the last line is cut short"
    for line in data.splitlines():
        json.loads(line)


def _dataset(path: Path) -> None:
    revup.Corpus.load(path, verify=True)


_TRAIN = ["train", "data", "--out", "run", "--device", "cpu", *TINY, "--training.epochs", "8"]
_TRAIN += ["--training.batch-size", "16", "--training.checkpoint-minutes", "0.002", "--resume"]
_EXPERIMENT = ["experiment", "noise", "data", "--out", "results", "--quick", "--seeds", "1", "--device", "cpu", *TINY]
_EXPERIMENT += ["--training.epochs", "1", "--models", "lookup,revup"]
_TUNE = ["tune", "data", "--out", "tuned", "--trials", "3", "--seeds", "1", "--device", "cpu", "--jobs", "1", *TINY]
_TUNE += ["--training.epochs", "1", "--no-prune", "--sampler", "random", "--search", "training.learning-rate"]
WORKS: dict[str, Work] = {
    "prepare": Work(["prepare", "docs.jsonl", "--out", "made"], "made", _dataset, (".made.partial",)),
    "prepare with workers": Work(
        ["prepare", "docs.jsonl", "--out", "made", "--workers", "2"], "made", _dataset, (".made.partial",)
    ),
    "train": Work(_TRAIN, "run", whole_run, (".run.partial",)),
    "predict": Work(["predict", "trained", "docs.jsonl", "--out", "labelled.jsonl"], "labelled.jsonl", whole_lines),
    "convert": Work(["convert", "docs.jsonl", "--out", "table.jsonl"], "table.jsonl", whole_lines),
    "experiment": Work([*_EXPERIMENT, "--jobs", "1"], "results", whole_json),
    "experiment with workers": Work([*_EXPERIMENT, "--jobs", "2"], "results", whole_json),
    "tune": Work(
        _TUNE,
        "tuned",
        whole_json,
        compare=lambda name: not VARIES.search(name) and name != "trials.csv",  # it holds seconds
        needs="tune",
    ),
}


@dataclass
class Tally:
    """What happened to one command.

    Attributes:
        kills: Kills by signal.
        midway: Of these, those that found it at work, and not before its start or after its end.
        rounds: How often it was brought to its end, and compared.
        seconds: How long it takes undisturbed.
        failures: What must not happen, in words.
    """

    kills: Counter[str] = field(default_factory=Counter)
    midway: int = 0
    rounds: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def start(folder: Path, command: list[str]) -> subprocess.Popen[str]:
    """Start a command in a folder, in a process group of its own."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a job in the background: its children would ignore it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    (folder / "tmp").mkdir(exist_ok=True)
    source = str(Path(revup.__file__).parents[1])
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "revup", *command],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end of a command and of all its processes: its status, and what it wrote to standard error."""
    try:
        _, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return 1, f"{process.communicate()[1]}\nit did not end within {PATIENCE:g} s: a process was left behind"
    limit = time.monotonic() + PATIENCE
    while _group_lives(process.pid):
        if time.monotonic() > limit:
            os.killpg(process.pid, signal.SIGKILL)
            return process.returncode, f"{errors}\na process was left behind"
        time.sleep(0.05)
    return process.returncode, errors


def is_start(errors: str) -> bool:
    """Whether a traceback is of Python itself, which a signal met while it started: before `main`, without revup's."""
    return "Traceback" in errors and ", in main" not in errors and "Interrupted" not in errors


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def content(path: Path) -> bytes:
    """The bytes of a file, unpacked."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def contents(path: Path, compare: Callable[[str], bool]) -> dict[str, str]:
    """Digests of a result's files, without times."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    names = {file: file.relative_to(path).as_posix() if path.is_dir() else file.name for file in files}
    return {
        name: hashlib.sha256(TIMES.sub(b"", content(file))).hexdigest() for file, name in names.items() if compare(name)
    }


def kill_work(name: str, kills: int, seed: int, inputs: Path) -> Tally:
    """Stop one command so many times."""
    work, tally, chance = WORKS[name], Tally(), random.Random(f"kill {name} {seed}")
    with tempfile.TemporaryDirectory(prefix="revup-kill-") as place:
        reference = _folder(Path(place) / "reference", inputs)
        began = time.monotonic()
        status, errors = finish(start(reference, work.command))
        tally.seconds = time.monotonic() - began
        if status:
            tally.failures.append(f"undisturbed it ends with status {status}: {errors}")
            return tally
        expected = contents(reference / work.result, work.compare)
        names = _names(reference)
        number = 0
        while tally.kills.total() < kills:
            number += 1
            folder = _folder(Path(place) / f"round-{number}", inputs)
            last = _round(work, folder, kills, chance, tally)
            tally.rounds += 1
            if last == signal.SIGKILL and _is_complete(work, folder):  # between the result's rename and the end
                names |= set(work.left) & _names(folder)
            found = contents(folder / work.result, work.compare)
            different = [file for file in expected.keys() | found.keys() if expected.get(file) != found.get(file)]
            if different:
                tally.failures.append(f"round {number}: differs from the undisturbed one: {sorted(different)[:5]}")
            if _names(folder) != names:
                tally.failures.append(f"round {number}: left {_names(folder) ^ names}")
            names -= set(work.left)
            if len(tally.failures) > 5:
                break
    return tally


def _round(work: Work, folder: Path, kills: int, chance: random.Random, tally: Tally) -> signal.Signals | None:
    """Stop a command a few times, then let it end; the signal that came last is returned."""
    how: signal.Signals | None = None
    allowed = _names(folder) | {work.result, *work.left, "tmp"}
    for _ in range(chance.randrange(1, 5)):
        if tally.kills.total() >= kills:
            break
        process = start(folder, [*work.command, *_force(work, folder)])
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.0, 1.1) * tally.seconds)
        ended, how = process.poll() is not None, chance.choice(SIGNALS)
        if not ended:
            process.send_signal(how)
        status, errors = finish(process)
        tally.kills[how.name] += 1
        tally.midway += not ended
        wanted = {0} if ended else {0, -how, 128 + how}  # 0: it was about to end
        if not is_start(errors) and (status not in wanted or "Traceback" in errors or "left behind" in errors):
            tally.failures.append(f"after {how.name} status {status}: {errors[-2000:]}")
        if (folder / work.result).exists():
            try:
                work.check(folder / work.result)
            except Exception as error:
                tally.failures.append(f"after {how.name} {work.result} is broken: {type(error).__name__}: {error}")
        if how == signal.SIGKILL:
            allowed |= {name for name in _names(folder) if PARTIAL.fullmatch(name)}
        if _names(folder) - allowed:
            tally.failures.append(f"after {how.name} {_names(folder) - allowed} is left")
        if ended or _is_complete(work, folder):
            break
    if _is_complete(work, folder):
        return how
    status, errors = finish(start(folder, [*work.command, *_force(work, folder)]))
    if status:
        tally.failures.append(f"resumed, it ends with status {status}: {errors[-2000:]}")
    return how


def _is_complete(work: Work, folder: Path) -> bool:
    """Whether a directory that gets its name at the end has it: the command would refuse to replace it."""
    return (folder / work.result).exists() and "--resume" not in work.command and bool(work.left)


def _force(work: Work, folder: Path) -> list[str]:
    """A single file that is complete would not be replaced."""
    return ["--force"] if (folder / work.result).is_file() else []


def _folder(path: Path, inputs: Path) -> Path:
    path.mkdir()
    for name in ("docs.jsonl", "data", "trained"):
        (path / name).symlink_to(inputs / name)
    (path / "tmp").mkdir()
    return path


def _names(folder: Path) -> set[str]:
    """What lies in a folder, and in its directory for temporary files (but for what torch keeps there)."""
    left = (f"tmp/{path.name}" for path in (folder / "tmp").iterdir() if not path.name.startswith("torch"))
    return {path.name for path in folder.iterdir()} | set(left)


def make_inputs(folder: Path) -> Path:
    """Documents, a dataset and a trained run for the commands to work on."""
    world = World(frames=6, seed=1, words=90, events=4)
    documents = world.sample(700)
    write(documents * 8, folder / "docs.jsonl")
    corpus = revup.Corpus.build(documents, out=folder / "data", events=4, split=(0.7, 0.15, 0.15))
    network = {"hidden": 16, "embedding": 16, "latent": 8, "frame": 16}
    revup.train(corpus, network=network, training={"epochs": 1}, device="cpu", out=folder / "trained")
    return folder


def available() -> list[str]:
    """The commands that this version has."""
    from revup.cli import VERBS

    return [name for name, work in WORKS.items() if not work.needs or work.needs in VERBS]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="in all, shared by the commands")
    parser.add_argument("--work", nargs="+", choices=available(), default=available())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    tallies = {}
    print(f"{'command':<26}{'kills':>7}{'midway':>8}{'rounds':>8}{'failures':>10}{'seconds':>9}")
    with tempfile.TemporaryDirectory(prefix="revup-kill-inputs-") as place:
        inputs = make_inputs(Path(place))
        for number, name in enumerate(options.work):
            share = options.kills // len(options.work) + (number < options.kills % len(options.work))
            tallies[name] = tally = kill_work(name, share, options.seed, inputs)
            row = f"{tally.kills.total():>7}{tally.midway:>8}{tally.rounds:>8}{len(tally.failures):>10}"
            print(f"{name:<26}{row}{tally.seconds:>9.1f}", flush=True)
            for failure in tally.failures:
                print(f"  {failure}", file=sys.stderr, flush=True)
    if options.out is not None:
        about = {"date": date.today().isoformat(), "commit": commit(), "version": revup.__version__}
        works = {name: {**vars(tally), "kills": dict(tally.kills)} for name, tally in tallies.items()}
        write_json(options.out, {**about, "seed": options.seed, "works": works})
    return int(any(tally.failures for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
