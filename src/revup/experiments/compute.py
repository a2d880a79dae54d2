"""Computing one run of a sweep: train, score, keep the result; stopped before its end, it is resumed by the next call.

`work/NAME/` in the output directory holds the checkpoint of a run that is not finished, and is removed afterwards.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT
from typing import Any

import torch

from revup.data.corpus import Corpus
from revup.errors import Interrupted, RevupError
from revup.experiments.predicates import unlabelled_scores
from revup.experiments.results import Result, Run, write_result
from revup.inference.evaluate import evaluate
from revup.inference.run_directory import read_config, read_metrics
from revup.models import model_class
from revup.reporting.progress import Progress
from revup.training.run import train_config


class TimeUp(Exception):
    """The time limit is reached; what was begun is resumed by the next call."""


@dataclass(frozen=True)
class Deadline:
    """When to stop, as wall-clock times: `soft` at the next good moment, `hard` at once. The rest is for writing."""

    soft: float = float("inf")
    hard: float = float("inf")

    @classmethod
    def after(cls, minutes: float) -> Deadline:
        """So many minutes from now, less the time that stopping and writing take; 0: never."""
        if not minutes:
            return cls()
        margin = min(45.0, 0.15 * minutes * 60)
        end = time.time() + minutes * 60
        return cls(end - margin, end - margin / 3)

    @property
    def near(self) -> bool:
        return time.time() > self.soft

    def check(self, progress: Progress | None = None) -> None:
        """Raise TimeUp if the time is up; training that calls this with its progress is saved first."""
        if self.near and not (progress and progress.finished):
            raise TimeUp


@contextmanager
def resumed_by(command: str) -> Iterator[None]:
    """Say after an interruption how to continue the whole, not the run that was being trained."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(stop.signal if isinstance(stop, Interrupted) else SIGINT, command) from None


def compute(run: Run, corpus: Corpus, out: Path, device: str | None = None, deadline: Deadline | None = None) -> Result:
    """Train a run (from its checkpoint if there is one), score it and write its result.

    Args:
        run: The run.
        corpus: The data.
        out: Output directory of the sweep.
        device: Where to train; by default a GPU if there is one.
        deadline: When to stop.

    Returns:
        The result that was written.

    Raises:
        TimeUp: The deadline came first.
    """
    deadline = deadline or Deadline()
    deadline.check()
    name, config = run.name(corpus.fingerprint), run.config()
    work = out / "work" / name if model_class(run.model).learns else None
    trained = train_config(corpus, config, work, device=device, resume=True, transient=True, progress=deadline.check)
    started = time.monotonic()
    scores: dict[str, Any] = {}
    for split in ("test", "valid"):
        if len(corpus.split(split)):
            apart = unlabelled_scores(trained, corpus, config.observation, split) if corpus.has_frames else None
            scores[split] = {**evaluate(trained, corpus, split), "unlabelled": apart}
    lines = read_metrics(work) if work is not None else []
    last = lines[-1] if lines else {"seconds": 0.0, "epoch": 0}
    result = write_result(
        out,
        name,
        {
            "run": str(run),
            "config": trained.config.to_json(),
            "data": corpus.fingerprint,
            "commit": read_config(work)[1].get("commit") if work is not None else None,
            "device": str(trained.device),
            "seconds": round(last["seconds"] + time.monotonic() - started, 2),
            "epochs": last["epoch"],
            "best_epoch": next((line["epoch"] for line in reversed(lines) if line["best"]), 0),
            "figures": trained.figures,
            "validations": [{"step": line["step"], **line["valid"]} for line in lines],
            **scores,
        },
    )
    if work is not None:
        shutil.rmtree(work, ignore_errors=True)
    return result


def attempt(
    run: Run, corpus: Corpus, out: Path, device: str | None, deadline: Deadline
) -> tuple[Result | None, str | None]:
    """`compute` that does not raise: the result, or what went wrong, or neither if the time was up."""
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
