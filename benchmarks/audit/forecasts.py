"""Forecasts of `revup suggest`, and what came of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from corpora import event_documents

import revup
from revup.auditing.suggest import forecast_of
from revup.experiments.pool import Pool

Run = dict[str, Any]
STREAM = 5  # of random numbers


def forecast(spec: Run, work: Path) -> Run:
    """Forecasts of accuracy after further suggested labels, and what came of them.

    Some documents of a corpus (or of a world of its own) have labels to be revealed. The forecast is compared with the
    accuracy on test documents, or on other training documents (`scored`), on which constants may be chosen.
    """
    draw = np.random.default_rng([STREAM, spec["seed"]])
    with tempfile.TemporaryDirectory() as folder:
        if spec["corpus"] == "world":
            frames, documents = int(draw.choice((10, 20, 40))), int(draw.choice((200, 400, 800)))
            world = revup.World(frames=frames, seed=int(draw.integers(10**6)))
            train, test = world.sample(documents, seed=1), world.sample(300, seed=2)
            corpus = revup.Corpus.build(train=train, test=test, duplicates="keep", out=Path(folder) / "data")
        else:
            corpus = revup.Corpus.load(work / spec["corpus"])
        owner = event_documents(corpus.split("train"))
        names = draw.permutation(np.unique(owner))
        cut = round(len(names) * draw.uniform(0.4, 0.7))
        inside = np.isin(owner, names[:cut])
        rows, others = np.flatnonzero(inside), np.flatnonzero(~inside)
        pool = Pool(corpus, rows, others if spec["scored"] == "train" else None)
    none = np.full(len(pool), -1, np.int64)
    label = none.copy()
    first, size = draw.permutation(len(pool)), round(len(pool) * float(np.exp(draw.uniform(np.log(0.02), np.log(0.4)))))
    by_suggest = bool(draw.integers(2))  # how the labels were chosen that are known already
    begin = first[: max(round(0.02 * len(pool)), 5)] if by_suggest else first[: max(size, 5)]
    label[begin] = pool.truth[begin]
    fit = pool.fit(none, label, spec["seed"])
    if by_suggest and size > len(begin):
        more = [number for number, _ in fit.plan.order(size - len(begin), False)]
        label[more] = pool.truth[more]
        fit = pool.fit(none, label, spec["seed"])
    plan, before = fit.plan, fit.accuracy()
    whole = [number for number, _ in plan.order(len(pool), False)]
    outcomes = []
    for share in (0.02, 0.06, 0.2):
        chosen = whole[: max(round(share * len(pool)), 1)]
        label = fit.trusted.copy()
        label[chosen] = pool.truth[chosen]
        found = forecast_of(plan, chosen, np.unique(pool.test.document, return_counts=True)[1])
        now, then = plan.accuracy(chosen).tolist()
        (low, high), reached = found["accuracy_interval"], pool.fit(none, label, spec["seed"]).accuracy()
        outcomes.append(
            {
                "labels": len(chosen),
                "now": now,
                "expected": then,
                "interval": [low, high],
                "before": before,
                "reached": reached,
                "covered": bool(low <= reached <= high),
            }
        )
    about = {"pool": len(pool), "known": int((fit.trusted >= 0).sum()), "by_suggest": by_suggest}
    return {**about, "held_out": len(pool.answers), "outcomes": outcomes}
