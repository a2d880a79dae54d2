"""All conditions that are measured, and how one is."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Run = dict[str, Any]
CORPORA = ("world", "framenet15", "maven", "propbank_ewt")
NOISES, RATES, SEEDS = ("uniform", "confusable"), (0.05, 0.1, 0.2, 0.5), (1, 2, 3)
PARTS = ("planted", "users", "folds", "coverage", "forecast", "crowd", "wiki")
KNOWN = ("one source", "two sources", "reviewed")
PREPARED = ("planted", "users", "folds", "forecast", "wiki")  # parts that read prepared datasets


def plan(part: str, seeds: Iterable[int], corpora: Iterable[str], numbers: Iterable[int], scored: str) -> list[Run]:
    """The conditions of a part, all of a seed or a simulated corpus before the next."""
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
        return [{"part": part, "corpus": c, "scored": scored, "seed": n} for n in numbers for c in corpora]
    rates = RATES if part != "folds" else (0.1,)
    each = [{"corpus": c, "noise": n, "rate": rate} for c in corpora for n in NOISES for rate in rates]
    return [{"part": part, **spec, "seed": seed} for seed in seeds for spec in each]


def measure(spec: Run, work: Path, corpora: Path) -> Run:
    """Measure one condition."""
    import torch  # all of these here, so that tables are made without them
    from forecasts import forecast
    from planted import folds, planted, users
    from real_errors import crowd, wiki
    from simulated import coverage

    import revup
    from revup.io.files import commit

    torch.set_num_threads(1)
    start, part = time.time(), spec["part"]
    if part == "planted":
        out = planted(spec, work)
    elif part == "users":
        out = users(spec, work)
    elif part == "folds":
        out = folds(spec, work)
    elif part == "coverage":
        out = coverage(spec, corpora)
    elif part == "forecast":
        out = forecast(spec, work)
    else:
        out = crowd(spec, corpora) if part == "crowd" else wiki(work, corpora)
    about = {"version": revup.__version__, "commit": commit(), "wall": round(time.time() - start, 1)}
    return {**spec, **out, **about}
