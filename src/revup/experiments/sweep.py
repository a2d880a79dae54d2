"""The engine: runs named by what decides them, computed once, several at a time, taken up where they were left.

A run's name is a digest of its full settings (those of its preset included, so a changed preset is another run), the
data's fingerprint and the format of runs. In the output directory

    runs/NAME/results.json     the scores of a finished run: never computed again
    work/NAME/                 a run directory of one that is not finished, with its checkpoint; gone afterwards

so `runs/` is small, can be copied, and carries all that tables are made of. Workers are processes that load revup and
the data once and take runs one after another, as lines of JSON; one that dies takes one run with it.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import torch

import revup
from revup.data.corpus import Corpus
from revup.errors import RevupError
from revup.experiments.scoring import unlabelled_scores
from revup.inference.evaluate import evaluate
from revup.inference.run_directory import FORMAT, read_config
from revup.io.files import write_text
from revup.models import model_class
from revup.reporting.progress import Progress, SweepProgress
from revup.settings import SECTIONS, Config, Overrides
from revup.training.run import train_config

RESULTS = 1  # format of results.json

Result = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One training run. Made by `Run.of`, so that what makes no difference is not in it and equal runs are equal."""

    model: str
    preset: str
    epsilon: float
    eta: float
    seed: int
    settings: tuple[tuple[str, str, Any], ...]  # section, name, value

    @classmethod
    def of(
        cls,
        model: str,
        preset: str = "default",
        epsilon: float = 1.0,
        eta: float = 0.0,
        seed: int = 0,
        overrides: Overrides | None = None,
    ) -> Run:
        kind, given = model_class(model), overrides or {}
        config = Config.make(model, preset, overrides=given)
        epsilon = float(epsilon) if kind.predicts_frames else 0.0
        eta = float(eta) if epsilon > 0 else 0.0
        sections = SECTIONS if kind.learns else ("objective",)  # counts have neither size nor course
        settings = sorted(
            (section, name, value)
            for section in sections
            for name, value in given.get(section, {}).items()
            if hasattr(getattr(config, section), name)
        )
        return cls(model, preset, epsilon, eta, seed, tuple(settings))

    @property
    def overrides(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for section, name, value in self.settings:
            found.setdefault(section, {})[name] = value
        return found

    def config(self) -> Config:
        return Config.make(self.model, self.preset, self.epsilon, self.eta, self.seed, self.overrides)

    def name(self, fingerprint: str) -> str:
        """Of this run on data with this fingerprint."""
        return content_name({"config": self.config().to_json(), "data": fingerprint})

    def __str__(self) -> str:
        extra = "".join(f" {section}.{name}={value}" for section, name, value in self.settings)
        return f"{self.model} {self.preset} ε={self.epsilon:g} η={self.eta:g} seed {self.seed}{extra}"


def content_name(content: Mapping[str, Any]) -> str:
    """The name of something that is computed from this content alone."""
    canonical = json.dumps({"format": FORMAT, "results": RESULTS, **content}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:20]


def read_result(out: Path, name: str) -> Result | None:
    """The results of a finished run, or None; a damaged file is as good as none."""
    try:
        found = json.loads((out / "runs" / name / "results.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("results") == RESULTS else None


def write_result(out: Path, name: str, result: Result) -> Result:
    """Keep results, whole or not at all."""
    folder = out / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"results": RESULTS, "name": name, "version": revup.__version__, **result}
    write_text(folder / "results.json", json.dumps(whole, indent=1) + "\n")
    return whole


# ---- time --------------------------------------------------------------------------------------------------------


class TimeUp(Exception):
    """The time for this call is over; what was begun goes on in the next."""


@dataclass(frozen=True)
class Deadline:
    """When to stop, as wall-clock times: `soft` at the next good moment, `hard` at once. The rest is for writing."""

    soft: float = float("inf")
    hard: float = float("inf")

    @classmethod
    def after(cls, minutes: float) -> Deadline:
        """So many minutes from now, less what stopping and the tables take; 0: never."""
        if not minutes:
            return cls()
        margin = min(45.0, 0.15 * minutes * 60)
        end = time.time() + minutes * 60
        return cls(end - margin, end - margin / 3)

    @property
    def near(self) -> bool:
        return time.time() > self.soft

    def check(self) -> None:
        if self.near:
            raise TimeUp


def _stopper(deadline: Deadline) -> Callable[[Progress], None]:
    """Stops training when the time is up; it is saved then, wherever it is."""
    return lambda progress: None if progress.finished else deadline.check()


# ---- one run ---------------------------------------------------------------------------------------------------------


def compute(run: Run, corpus: Corpus, out: Path, device: str | None = None, deadline: Deadline | None = None) -> Result:
    """Train (going on from a checkpoint if there is one), score, keep the results, clean up. TimeUp if it must stop."""
    deadline = deadline or Deadline()
    deadline.check()
    name, config = run.name(corpus.fingerprint), run.config()
    work = None if not model_class(run.model).learns else out / "work" / name
    trained = train_config(
        corpus, config, work, device=device, resume=True, transient=True, progress=_stopper(deadline)
    )
    started = time.monotonic()
    scores: dict[str, Any] = {}
    for split in ("test", "valid"):
        if len(corpus.split(split)):
            apart = unlabelled_scores(trained, corpus, config.observation, split) if corpus.has_frames else None
            scores[split] = {**evaluate(trained, corpus, split), "unlabelled": apart}
    lines = _metrics(work)
    best = next((line for line in reversed(lines) if line["best"]), None)
    result = write_result(
        out,
        name,
        {
            "run": str(run),
            "config": trained.config.to_json(),
            "data": corpus.fingerprint,
            "commit": read_config(work)[1].get("commit") if work is not None else None,
            "device": str(trained.device),
            "seconds": round((lines[-1]["seconds"] if lines else 0.0) + time.monotonic() - started, 2),
            "epochs": lines[-1]["epoch"] if lines else 0,
            "best_epoch": best["epoch"] if best else 0,
            "figures": trained.figures,
            "validations": [{"step": line["step"], **line["valid"]} for line in lines],
            **scores,
        },
    )
    if work is not None:
        shutil.rmtree(work, ignore_errors=True)
    return result


def _metrics(work: Path | None) -> list[dict[str, Any]]:
    path = None if work is None else work / "metrics.jsonl"
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def attempt(
    run: Run, corpus: Corpus, out: Path, device: str | None, deadline: Deadline
) -> tuple[Result | None, str | None]:
    """Compute a run: its results, or what went wrong; neither if the time was up."""
    try:
        return compute(run, corpus, out, device, deadline), None
    except TimeUp:
        return None, None
    except RevupError as error:
        return None, str(error)
    except Exception as error:  # one bad run must not end the others
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    finally:
        if torch.cuda.is_available():
            gc.collect()  # a captured step holds its memory until it is collected
            torch.cuda.empty_cache()


# ---- many runs ---------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What came of a sweep: results of the finished runs, what went wrong with others, how many are left."""

    results: dict[Run, Result]
    failed: dict[Run, str]
    left: int
    seconds_left: float | None


class Sweep:
    """Computes runs on a corpus into an output directory."""

    def __init__(
        self,
        corpus: Corpus,
        out: Path,
        device: str | None = None,
        jobs: int = 1,
        deadline: Deadline | None = None,
        tell: Callable[[SweepProgress], None] | None = None,
    ) -> None:
        self.corpus, self.out, self.device, self.jobs = corpus, out, device, max(jobs, 1)
        self.deadline, self.tell = deadline or Deadline(), tell
        self._names: dict[Run, str] = {}

    def complete(self, runs: Iterable[Run]) -> Outcome:
        """Compute what is not there yet, seed by seed, so that a sweep that is stopped has a whole picture early."""
        ordered = sorted(dict.fromkeys(runs), key=lambda run: run.seed)
        self._names = {run: run.name(self.corpus.fingerprint) for run in ordered}
        known = {name: read_result(self.out, name) for name in dict.fromkeys(self._names.values())}
        missing = {name: run for run, name in reversed(self._names.items()) if known[name] is None}
        todo = [run for run in ordered if missing.get(self._names[run]) == run]
        status = SweepProgress(len(known), len(known) - len(todo))
        timer = _Timer(known.values(), self.jobs)
        failed: dict[str, str] = {}
        work = self._inline(todo) if self.jobs == 1 or len(todo) < 2 else self._in_workers(todo)
        waiting = list(todo)
        for kind, run, result, problem in work:
            name = self._names[run]
            if kind == "start":
                status.running.append(str(run))
            else:
                status.running.remove(str(run))
            if result is not None:
                known[name] = result
                timer.add(run, result)
                waiting.remove(run)
                status.done += 1
            elif problem is not None:
                failed[name] = problem
                waiting.remove(run)
                status.failed += 1
            status.seconds_left = timer.left(waiting)
            if self.tell is not None:
                self.tell(status)
        return Outcome(
            {run: found for run, name in self._names.items() if (found := known[name]) is not None},
            {run: failed[name] for run, name in self._names.items() if name in failed},
            len(waiting),
            timer.left(waiting),
        )

    def _inline(self, todo: Sequence[Run]) -> Iterator[_Event]:
        for run in todo:
            if self.deadline.near:
                return
            yield "start", run, None, None
            yield "end", run, *attempt(run, self.corpus, self.out, self.device, self.deadline)

    def _in_workers(self, todo: Sequence[Run]) -> Iterator[_Event]:
        """Each worker has a thread here that hands it runs and takes its answers."""
        pending: queue.SimpleQueue[Run] = queue.SimpleQueue()
        for run in todo:
            pending.put(run)
        events: queue.Queue[_Event | None] = queue.Queue()
        crew = [_Worker(self, number, min(self.jobs, len(todo))) for number in range(min(self.jobs, len(todo)))]
        threads = [threading.Thread(target=worker.serve, args=(pending, events), daemon=True) for worker in crew]
        for thread in threads:
            thread.start()
        at_work = len(threads)
        try:
            while at_work:
                try:
                    event = events.get(timeout=0.2)
                except queue.Empty:
                    if time.time() > self.deadline.hard:
                        break
                    continue
                if event is None:
                    at_work -= 1
                else:
                    yield event
        finally:
            for worker in crew:
                worker.stop()
            for thread in threads:
                thread.join(timeout=10)


_Event = tuple[str, Run, Result | None, str | None]  # start or end, of which run, results or what went wrong


class _Timer:
    """How long what is left will take, from what runs of the same model took."""

    def __init__(self, known: Iterable[Result | None], jobs: int) -> None:
        self.jobs = jobs
        self.seconds: dict[str, list[float]] = {}
        for result in known:
            if result is not None:
                self._add(result["config"], result)

    def add(self, run: Run, result: Result) -> None:
        self._add({"model": run.model, "preset": run.preset}, result)

    def _add(self, config: Mapping[str, Any], result: Result) -> None:
        self.seconds.setdefault(f"{config['model']} {config['preset']}", []).append(float(result["seconds"]))

    def left(self, waiting: Sequence[Run]) -> float | None:
        everything = [seconds for found in self.seconds.values() for seconds in found]
        if not everything:
            return None
        total = 0.0
        for run in waiting:
            found = self.seconds.get(f"{run.model} {run.preset}", everything)
            total += sum(found) / len(found)
        return total / self.jobs


class _Worker:
    """A process that computes runs, and the conversation with it: a line of JSON there, a line of JSON back."""

    def __init__(self, sweep: Sweep, number: int, crew: int) -> None:
        self.sweep, self.number, self.crew = sweep, number, crew
        self.process: subprocess.Popen[str] | None = None
        self.stopping = False
        self.starting = threading.Lock()  # a process that is started while all are being ended would be left behind

    @property
    def log(self) -> Path:
        return self.sweep.out / "work" / f"worker-{self.number}.log"

    def serve(self, pending: queue.SimpleQueue[Run], events: queue.Queue[_Event | None]) -> None:
        try:
            while not self.stopping and not self.sweep.deadline.near:
                try:
                    run = pending.get_nowait()
                except queue.Empty:
                    break
                events.put(("start", run, None, None))
                events.put(("end", run, *self._ask(run)))
        finally:
            self.stop()
            events.put(None)

    def _ask(self, run: Run) -> tuple[Result | None, str | None]:
        try:
            with self.starting:
                if self.stopping:
                    return None, None
                if self.process is None or self.process.poll() is not None:
                    self.process = self._start()
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.write(json.dumps(asdict(run)) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except (OSError, ValueError) as error:  # ValueError: `stop` has closed the pipe
            answer = ""
            if self.process is None:
                return None, f"no process could be started: {error}"
        if not answer:
            if self.stopping:
                return None, None
            return None, f"its process died with status {self.process.wait()}: {_tail(self.log)}"
        problem = json.loads(answer)["problem"]
        done = None if problem else read_result(self.sweep.out, run.name(self.sweep.corpus.fingerprint))
        return done, problem

    def _start(self) -> subprocess.Popen[str]:
        sweep = self.sweep
        threads = max(1, cores() // self.crew)
        about = {
            "data": str(sweep.corpus.path.absolute()),
            "out": str(sweep.out.absolute()),
            "device": sweep.device,
            "deadline": [sweep.deadline.soft, sweep.deadline.hard],
            "threads": threads,
        }
        here = str(Path(revup.__file__).parents[1])
        paths = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "revup.experiments.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(threads)},
            )
        assert process.stdin is not None
        process.stdin.write(json.dumps(about) + "\n")
        return process

    def stop(self) -> None:
        """End the process at once; an unfinished run has its checkpoint."""
        with self.starting:
            self.stopping, process = True, self.process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout) if process is not None else ():
            with suppress(OSError, ValueError):
                _close(stream)


def _close(stream: IO[str] | None) -> None:
    if stream is not None:
        stream.close()


def _tail(path: Path) -> str:
    try:
        lines = path.read_text("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1][:300] if lines else "it left no message"


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
