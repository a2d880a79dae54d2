"""All conditions that are measured, and how one is."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

Run = dict[str, Any]
CORPORA = ("propbank_ewt", "maven", "framenet15", "world")  # what takes longest first
NOISES, RATES, SEEDS = ("uniform", "confusable"), (0.05, 0.1, 0.2, 0.5), (1, 2, 3)
PARTS = ("planted", "users", "folds", "coverage", "forecast", "crowd", "wiki")
CLASSIFIERS = ("tagger", "tagger plain", "linear")  # of users of cleanlab
KNOWN = ("one source", "two sources", "reviewed")
PREPARED = ("planted", "users", "folds", "forecast", "wiki")  # parts that read prepared datasets


def plan(part: str, given: argparse.Namespace) -> list[Run]:
    """The conditions of a part, all of a seed or a simulated corpus before the next."""
    seeds, corpora = [int(seed) for seed in given.seeds.split(",")], given.corpora_used.split(",")
    numbers = range(given.first, given.first + given.simulated)
    if part == "wiki":
        return [{"part": "wiki", "corpus": "wiki", "seed": 1}] + [
            {"part": "planted", "corpus": "wiki", "noise": noise, "rate": 0.1, "seed": 1} for noise in NOISES
        ]
    if part == "crowd":
        return [{"part": part, "corpus": "crowdtruth", "seed": seed} for seed in seeds]
    if part == "coverage":
        each = [{"corpus": c, "known": k, "noise": n} for c in corpora for k in KNOWN for n in NOISES]
        return [{"part": part, **spec, "seed": number} for number in numbers for spec in each]
    if part == "forecast":
        return [{"part": part, "corpus": c, "scored": given.scored, "seed": n} for n in numbers for c in corpora]
    rates = RATES if part != "folds" else (0.1,)
    each = [{"corpus": c, "noise": n, "rate": rate} for c in corpora for n in NOISES for rate in rates]
    if part == "users":
        brief = {"epochs": given.epochs} if given.epochs else {}
        each = [{**spec, "classifier": name, **brief} for name in given.classifiers.split(",") for spec in each]
    return [{"part": part, **spec, "seed": seed} for seed in seeds for spec in each]


def measure(spec: Run, work: Path, corpora: Path, device: str | None = None) -> Run:
    """Measure one condition.

    Args:
        spec: The condition.
        work: Where prepared datasets are.
        corpora: Where the corpora are.
        device: Where users' taggers are trained; everything else is computed on the CPU.
    """
    import torch  # all of these here, so that tables are made without them
    from forecasts import forecast
    from planted import folds, planted
    from real_errors import crowd, wiki
    from simulated import coverage
    from users import users

    import revup
    from revup.io.files import commit

    torch.set_num_threads(1)
    start, used, part = time.time(), time.process_time(), spec["part"]
    if part == "planted":
        out = planted(spec, work)
    elif part == "users":
        out = users(spec, work, device)
    elif part == "folds":
        out = folds(spec, work)
    elif part == "coverage":
        out = coverage(spec, corpora)
    elif part == "forecast":
        out = forecast(spec, work)
    else:
        out = crowd(spec, corpora) if part == "crowd" else wiki(work, corpora)
    took = {"wall": round(time.time() - start, 1), "cpu": round(time.process_time() - used, 1)}
    about = {"version": revup.__version__, "commit": commit(), **took}
    return {**spec, **out, **about}
