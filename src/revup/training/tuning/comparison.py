"""The comparison of the best trial with `default`, over seeds that the search has not used."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from revup.errors import RevupError
from revup.inference.students_t import t_quantile
from revup.io.files import read_json, write_json
from revup.settings import Config
from revup.training.tuning.crew import Job
from revup.training.tuning.plan import Plan
from revup.training.tuning.study import Study

COMPARISON = "comparison.json"
LEVEL = 0.9  # of the interval of the difference


class Comparison:
    """Runs of the best trial and of `default` with further seeds; finished ones are kept in a file.

    Args:
        folder: The directory of the search.
        plan: What is searched.
        study: Its trials.
        seeds: How many seeds.
    """

    def __init__(self, folder: Path, plan: Plan, study: Study, seeds: int) -> None:
        self.path, self.plan = folder / COMPARISON, plan
        self.known: dict[str, Any] = read_json(folder, COMPARISON, "search") if self.path.exists() else {}
        self.seeds = list(range(plan.seed + 1, plan.seed + 1 + seeds))
        best, default = study.best(), study.default()
        self.jobs: dict[tuple[str, int], Job] = {}
        if best is not None and default is not None and best.number != default.number:
            for seed in self.seeds:
                for name, values in (("best", study.values(best.number)), ("default", {})):
                    self.jobs[name, seed] = self._job(plan.trial(values, seed))
        self._begun: set[str] = set()

    def _job(self, config: Config) -> Job:
        plain = {"config": config.to_json(), "data": self.plan.data, "measure": self.plan.measure}
        digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
        return {"name": f"seed-{config.seed}-{digest}", "config": plain["config"], "measure": self.plan.measure}

    def todo(self) -> list[Job]:
        """Runs without a result."""
        return [job for job in self.jobs.values() if job["name"] not in self.known]

    def next(self) -> Job | None:
        """The next run to train."""
        job = next((job for job in self.todo() if job["name"] not in self._begun), None)
        if job is not None:
            self._begun.add(job["name"])
        return job

    def done(self, job: Job, answer: Mapping[str, Any]) -> bool:
        """Keep a result."""
        if "problem" in answer:
            raise RevupError(f"the comparison with default failed with seed {job['name']}: {answer['problem']}")
        if "value" in answer:
            self.known[job["name"]] = answer["value"]
            write_json(self.path, self.known)
        return bool(answer)

    def result(self) -> dict[str, Any]:
        """Values by seed and what follows from them; {} where `default` is the best trial, or no seeds are asked for.

        `missing`: how many runs there are still to be trained; only without any there is a verdict.
        """
        if not self.jobs:
            return {}
        values: dict[str, list[Any]] = {
            name: [self.known.get(self.jobs[name, seed]["name"]) for seed in self.seeds] for name in ("best", "default")
        }
        found = {"seeds": self.seeds, **values, "missing": len(self.todo())}
        return found if found["missing"] else found | compare(values["best"], values["default"], self.plan.sign)


def compare(best: Sequence[float], default: Sequence[float], sign: int) -> dict[str, Any]:
    """Compare values seed by seed.

    Args:
        best: Values of the best trial.
        default: Values of `default` with the same seeds.
        sign: 1 if larger is better, else -1.

    Returns:
        `gain`: the mean difference, positive if the best trial is better; `interval`: its 90% interval by Student's t
        (None with one seed); `better`: whether the interval lies above 0.
    """
    gains = [sign * (a - b) for a, b in zip(best, default, strict=True)]
    mean = statistics.fmean(gains)
    if len(gains) < 2:
        return {"gain": mean, "interval": None, "better": False}
    reach = t_quantile(LEVEL, len(gains) - 1) * statistics.stdev(gains) / math.sqrt(len(gains))
    return {"gain": mean, "interval": [mean - reach, mean + reach], "better": mean - reach > 0}
