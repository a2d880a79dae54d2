"""Training one trial of a search, here or in a process of its own; stopped before its end, it is taken up again."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from revup.data.corpus import Corpus
from revup.errors import InputError, RevupError
from revup.inference.run_directory import read_metrics
from revup.io.folders import lock
from revup.models.shared_counts import sharing_counts
from revup.reporting.progress import Progress
from revup.settings import MEASURES, Config
from revup.training.deadline import Deadline, TimeUp
from revup.training.run import train_config
from revup.training.workers import ORPHAN, Pipe, serve

Hear = Callable[[Mapping[str, Any]], bool]


class Pruned(Exception):
    """The trial fell behind others."""


def train_trial(
    job: Mapping[str, Any], corpus: Corpus, work: Path, device: str | None, deadline: Deadline, hear: Hear
) -> dict[str, Any]:
    """Train a trial, from its checkpoint if there is one.

    Args:
        job: `name`, under which its checkpoint is kept; `config`, its settings; `measure`, what is measured.
        corpus: The data.
        work: The directory of checkpoints.
        device: Where to train.
        deadline: When to stop.
        hear: Told after each validation the `share` of the training that is done and the best `value` so far;
            returns whether to stop.

    Returns:
        `value` and `seconds` of a trial that has ended; `seconds` alone of one that was stopped; `problem`, and whether
        it `diverged`, of one that could not be trained; nothing if the time was up.
    """
    folder, config, measure = work / job["name"], Config.from_json(job["config"]), job["measure"]

    def watch(progress: Progress) -> None:
        if progress.scores is not None and not progress.finished:
            share = progress.step / max(progress.steps, 1)
            if hear({"name": job["name"], "share": share, "value": best_value(folder, measure)}):
                raise Pruned
        deadline.check(progress)

    try:
        deadline.check()
        if folder.exists():
            with lock(folder, patience=ORPHAN):  # a process whose parent was killed is still writing its checkpoint
                pass
        try:
            train_config(corpus, config, folder, device=device, resume=True, transient=True, progress=watch)
        except InputError:  # what is there is damaged, or of another version: the trial starts again
            shutil.rmtree(folder, ignore_errors=True)
            train_config(corpus, config, folder, device=device, resume=True, transient=True, progress=watch)
        return {"value": best_value(folder, measure), "seconds": _seconds(folder)}
    except Pruned:
        return {"seconds": _seconds(folder)}
    except TimeUp:
        return {}
    except RevupError as error:
        return {"problem": str(error), "diverged": "diverged" in str(error), "seconds": _seconds(folder)}
    except Exception as error:  # one bad trial must not end the search
        return {"problem": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}", "diverged": False}
    finally:
        if torch.cuda.is_available():
            gc.collect()  # a captured step holds its memory until it is collected
            torch.cuda.empty_cache()


def best_value(folder: Path, measure: str) -> float:
    """The best validation of a run so far.

    Args:
        folder: Its directory.
        measure: One of `revup.settings.MEASURES`.
    """
    sign = MEASURES[measure]
    return sign * max(sign * float(line["valid"][measure]) for line in read_metrics(folder))


def _seconds(folder: Path) -> float:
    """Training time of a run so far, as of its last validation."""
    return float(max((line["seconds"] for line in read_metrics(folder)), default=0.0))


def answer(pipe: Pipe) -> None:
    """The end of the pipe in a process that trains trials."""
    setup = pipe.receive()
    torch.set_num_threads(setup["threads"])
    corpus, work, deadline = Corpus.load(setup["data"]), Path(setup["work"]), Deadline(*setup["deadline"])
    with sharing_counts():
        for job in pipe:
            pipe.send(train_trial(job, corpus, work, setup["device"], deadline, pipe.report))


if __name__ == "__main__":
    serve(answer)
