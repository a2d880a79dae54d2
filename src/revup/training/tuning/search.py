"""Searching for settings: trials, several at a time, then a comparison of the best one with `default` over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from revup.data.cluster import check_engine
from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.io.folders import lock
from revup.models import CLASSES
from revup.ops.device import choose_device
from revup.reporting.progress import SweepProgress
from revup.settings import Overrides
from revup.training.deadline import Deadline, resumed_by
from revup.training.tuning.comparison import Comparison
from revup.training.tuning.crew import Crew, Job
from revup.training.tuning.outcome import outcome, write_outcome
from revup.training.tuning.plan import Plan
from revup.training.tuning.study import RUNGS, Study

TRIALS = 30  # if neither a number nor a time is given
FOR_COMPARISON = 0.25  # share of the time limit that is kept for the comparison with `default`


def tune(
    corpus: Corpus | str | Path,
    out: str | Path,
    *,
    trials: int | None = None,
    minutes: float = 0.0,
    measure: str | None = None,
    model: str = "revup",
    epsilon: float = Observation.epsilon,
    eta: float = Observation.eta,
    seed: int = Observation.seed,
    seeds: int = 3,
    search: str | None = None,
    sampler: str = "tpe",
    prune: bool = True,
    jobs: int | None = None,
    device: str | None = None,
    engine: str = "local",
    overrides: Overrides | None = None,
    command: str = "",
    progress: Callable[[SweepProgress], None] | None = None,
) -> dict[str, Any]:
    """Search for settings that do better than `default` on the validation split.

    The same call continues where an earlier one was stopped: by its time limit, a signal, a kill or a loss of power.
    Trial 0 is `default`. At the end the best trial and `default` are trained again with seeds that the search has not
    used, and compared seed by seed.

    Args:
        corpus: The dataset, or its directory.
        out: The directory of the search, which a later call continues.
        trials: How many trials there should be in all; by default 30, or as many as fit into `minutes`.
        minutes: Time limit of this call in minutes, a quarter of it for the comparison; 0: no limit.
        measure: What to optimise on the validation split: `label_nll` (−log p of the observed labels) or `accuracy`
            against them, or `perplexity`, which needs no label. By default `label_nll` where labels are observed.
        model: The model.
        epsilon: Observation probability ε of the labels, as in `revup.train`.
        eta: Noise rate η of the observed labels.
        seed: Seed of all trials, and of the choice of their settings.
        seeds: Further seeds of the comparison with `default`; 0: no comparison.
        search: Settings to search, such as `training.learning-rate=0.001..0.01,network.dropout`; by default the usual
            ones, without those in `overrides`.
        sampler: `tpe`, which learns from the trials before, or `random`.
        prune: Stop trials that fall behind the median of others.
        jobs: Trials at a time, each in a process of its own; by default one for each core, at most 8.
        device: `cpu` or `cuda`; by default a GPU if there is one.
        engine: `local`, or `ray` for the cluster that RAY_ADDRESS names, whose nodes must share dataset and `out`; then
            `jobs` is by default one for each of its processors.
        overrides: Settings that all trials have, by section and name.
        command: The command that continues the search, for the message after a signal.
        progress: Called whenever a trial starts or ends.

    Returns:
        `best` and `default`: trial, value and settings; `importance` of each setting; `comparison`: values by seed,
        their mean difference with its 90% interval, and whether the best trial is `better`; `command`: the
        `revup train` command to use; `complete`: whether everything that was asked for is done; `counts` of trials.

    Raises:
        RevupError: A request that makes no sense, or `default` itself can't be trained.
        InputError: `out` is the directory of another search.
        Interrupted: A signal came; trials that were being trained have written a checkpoint.
    """
    for name, number, least in (("trials", trials, 1), ("seeds", seeds, 0), ("jobs", jobs, 1)):
        if number is not None and (not isinstance(number, int) or number < least):
            raise RevupError(f"{name}: expected a whole number of {least} or more, found {number!r}")
    if search is not None and not isinstance(search, str):
        raise RevupError(f"search: expected text such as 'training.learning-rate=0.001..0.01', found {search!r}")
    if model not in CLASSES:
        raise RevupError(f"unknown model '{model}': one of {', '.join(CLASSES)}")
    corpus = corpus if isinstance(corpus, Corpus) else Corpus.load(corpus)
    most = trials if trials is not None else None if minutes else TRIALS
    observation = Observation(epsilon, eta, seed)
    plan = Plan.make(corpus, model, measure, observation, overrides or {}, search, sampler, prune)
    check_engine(engine)
    target, where = Path(out), device if device and engine == "ray" else str(choose_device(device))
    whole = Deadline.after(minutes)
    until = Deadline.after(minutes * (1 - FOR_COMPARISON)) if minutes and seeds else whole
    with resumed_by(command or "the same call"), lock(target):
        plan.keep(target)
        study = Study(target, plan, plan.defaults(corpus))
        crew = Crew(corpus, target / "work", where, jobs, engine)
        status = SweepProgress(most or 0)
        _search(crew, study, most, until, status, progress)
        compared = Comparison(target, plan, study, seeds)
        crew.work(compared.next, lambda report: False, compared.done, whole, len(compared.todo()))
        found = outcome(corpus, study, compared.result(), most, device)
        write_outcome(target, found, study, command)
    return found


def _search(
    crew: Crew,
    study: Study,
    most: int | None,
    until: Deadline,
    status: SweepProgress,
    progress: Callable[[SweepProgress], None] | None,
) -> None:
    """Train trials until there are enough, or the time is up."""

    def shown(number: int) -> str:
        values = study.values(number)
        settings = " ".join(f"{name}={value}" for name, value in values.items()) or "default"
        return f"trial {number}: {settings}"

    def tell() -> None:
        ended = study.finished()
        status.done, status.total = len(ended), most or len(ended) + len(status.running)
        status.failed = sum(trial.state.name == "FAIL" for trial in ended)
        if progress is not None:
            progress(status)

    def take() -> Job | None:
        number = study.next(most)
        if number is None:
            return None
        status.running.append(shown(number))
        tell()
        config = study.plan.trial(study.values(number))
        name = f"trial-{number:05d}"
        return {"name": name, "number": number, "config": config.to_json(), "measure": study.plan.measure}

    def hear(report: Mapping[str, Any]) -> bool:
        number, rung = int(report["name"].removeprefix("trial-")), int(report["share"] * RUNGS + 1e-6)
        return study.report(number, rung, report["value"]) if rung else False

    def done(job: Job, answer: Mapping[str, Any]) -> bool:
        number = job["number"]
        status.running.remove(shown(number))
        if "problem" in answer:
            if number == 0:
                raise RevupError(f"the default settings can't be trained: {answer['problem']}")
            if answer.get("diverged"):
                study.stop(number, answer["seconds"], answer["problem"])
            else:
                study.fail(number, answer["problem"])
        elif "value" in answer:
            study.finish(number, answer["value"], answer["seconds"])
        elif "seconds" in answer:
            study.stop(number, answer["seconds"])
        tell()
        return bool(answer)

    tell()
    crew.work(take, hear, done, until, None if most is None else max(0, most - len(study.finished())))
