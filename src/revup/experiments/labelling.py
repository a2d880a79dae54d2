"""Learning curves by simulation: which strategy for choosing labels needs the fewest of them.

Labels of training events are revealed in the order of a strategy; the model `counts` is fitted again after each batch
and predicts the test documents. Two tasks:

    label   all labels are right and trusted (`train --labels`); every strategy begins with the same random ones
    check   half of the events have labels, a fifth of which are wrong; an expert is asked about an event with or
            without a label, and is right
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import revup
from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.data.told import OWN
from revup.experiments.pool import Fit, Ints, Pool
from revup.experiments.runs import Line, RunFile, content_name, curve_maths
from revup.experiments.strategies import choose
from revup.io.files import commit
from revup.training.deadline import Deadline

KEY = "labelling"  # marks the lines of curves
MOST_EVENTS = 50_000  # in training: a matrix of events × frames is held
LABEL = ("suggest", "random", "margin", "entropy", "badge", "typiclust")
CHECK = ("suggest-checks", "suggest", "random-checks", "activelab")
SHARES = (0.02, 0.04, 0.07, 0.11, 0.16, 0.22, 0.3, 0.4, 0.55, 1.0)  # of the pool that is labelled
ASKED = (0.0, 0.05, 0.1, 0.2, 0.3)  # share of the pool that the expert was asked about
FEW_SHARES, FEW_ASKED = (0.05, 0.2, 1.0), (0.0, 0.1)
OBSERVED, WRONG, NOISE = 0.5, 0.2, "confusable"  # labels before the expert is asked: how many, how many wrong, how


@dataclass(frozen=True)
class Curve:
    """A learning curve to be simulated.

    Attributes:
        task: "label" or "check".
        strategy: Name of the strategy.
        seed: Of the labels at the beginning, and of the strategy.
        shares: How many labels are known at each point, as shares of the pool.
    """

    task: str
    strategy: str
    seed: int
    shares: tuple[float, ...]

    def name(self, fingerprint: str) -> str:
        """Its name on data with this fingerprint."""
        begin = [OBSERVED, WRONG, NOISE] if self.task == "check" else ["trusted"]
        return content_name({"labelling": asdict(self), "begin": begin, "data": fingerprint}, curve_maths(self.task))


def curves(seeds: Sequence[int], few: bool = False) -> list[Curve]:
    """Return all curves.

    Args:
        seeds: The seeds.
        few: Whether few points are enough.
    """
    shares = {"label": FEW_SHARES if few else SHARES, "check": FEW_ASKED if few else ASKED}
    tasks = [("label", name) for name in LABEL] + [("check", name) for name in CHECK]
    return [Curve(task, name, seed, shares[task]) for task, name in tasks for seed in seeds]


def lacks(dataset: Line) -> str:
    """Why a dataset is left out; empty where it is not."""
    if not dataset["scored"]:
        return "no test event has a frame"
    if dataset["events"]["train"] > MOST_EVENTS:
        return f"it has more than {MOST_EVENTS:,} training events"
    return ""


def complete(
    name: str, corpus: Corpus, seeds: Sequence[int], file: RunFile, deadline: Deadline, few: bool = False
) -> None:
    """Simulate what is missing, and append a line for each curve.

    Args:
        name: The dataset's name.
        corpus: The dataset.
        seeds: The seeds.
        file: The file of runs.
        deadline: When to stop.
        few: Whether few points are enough.

    Raises:
        TimeUp: The deadline came first.
    """
    left = [curve for curve in curves(seeds, few) if curve.name(corpus.fingerprint) not in file.examples]
    pool = Pool(corpus) if left else None
    for curve in left:
        deadline.check()
        assert pool is not None
        file.add(simulated(name, corpus, pool, curve))


def simulated(name: str, corpus: Corpus, pool: Pool, curve: Curve) -> Line:
    """Simulate a curve.

    Args:
        name: The dataset's name.
        corpus: The dataset.
        pool: Its training events.
        curve: The curve.

    Returns:
        A line of the file of runs.
    """
    started = time.process_time()
    points = label_curve(pool, curve) if curve.task == "label" else check_curve(pool, curve, corpus)
    return {
        "maths": curve_maths(curve.task),
        "name": curve.name(corpus.fingerprint),
        "labelling": {"task": curve.task, "strategy": curve.strategy, "seed": curve.seed},
        "data": name,
        "fingerprint": corpus.fingerprint,
        "seed": curve.seed,
        "settings": {
            "shares": list(curve.shares),
            **({"epsilon": OBSERVED, "eta": WRONG, "noise": NOISE} if curve.task == "check" else {}),
        },
        "pool": len(pool),
        "scored": len(pool.answers),
        "points": points,
        "seconds": round(time.process_time() - started, 1),
        "version": revup.__version__,
        "commit": commit(),
    }


def label_curve(pool: Pool, curve: Curve) -> list[dict[str, Any]]:
    """Return the points of a curve of labels that are all right."""
    begin, draw = np.random.default_rng([curve.seed, 0]), np.random.default_rng([curve.seed, 1])
    first, *rest = sizes(curve.shares, len(pool)).tolist()
    chosen = begin.permutation(len(pool))[:first]
    none = np.full(len(pool), -1, np.int64)
    label = none.copy()
    label[chosen] = pool.truth[chosen]
    fit = pool.shared(none, label, curve.seed)
    points: list[dict[str, Any]] = [{"labels": first, "accuracy": round(fit.accuracy(), 6)}]
    for size in rest:
        if size == len(pool):
            chosen = np.flatnonzero(label < 0)
        else:
            chosen = choose(curve.strategy, fit.state(), size - int((label >= 0).sum()), draw)
        label = label.copy()
        label[chosen] = pool.truth[chosen]
        fit = (pool.shared if size == len(pool) else pool.fit)(none, label, curve.seed)
        points.append({"labels": size, "accuracy": round(fit.accuracy(), 6)})
    return points


def check_curve(pool: Pool, curve: Curve, corpus: Corpus) -> list[dict[str, Any]]:
    """Return the points of a curve that begins with labels some of which are wrong."""
    label = np.full(len(pool), -1, np.int64)
    observed = corpus.split("train").told(Observation(OBSERVED, WRONG, curve.seed, NOISE))[OWN]
    place = np.full(len(pool.events), -1, np.int64)
    place[pool.item] = np.arange(len(pool))
    keep = place[observed.item] >= 0
    label[place[observed.item[keep]]] = observed.frame[keep]
    trusted, draw = np.full(len(pool), -1, np.int64), np.random.default_rng([curve.seed, 2])
    fit, points = pool.shared(label, trusted, curve.seed), []
    for size in sizes(curve.shares, len(pool)).tolist():
        more = size - int((trusted >= 0).sum())
        if more > 0:
            chosen = choose(curve.strategy, fit.state(), more, draw)
            trusted = trusted.copy()
            trusted[chosen] = pool.truth[chosen]
            fit = pool.fit(label, trusted, curve.seed)
        points.append(
            {
                "labels": size,
                "accuracy": round(fit.accuracy(), 6),
                "checked": int(((trusted >= 0) & (label >= 0)).sum()),
                "wrong": int(wrong_labels(fit).sum()),
            }
        )
    return points


def wrong_labels(fit: Fit) -> Any:
    """Which labels are wrong and were not corrected [pool]."""
    return (fit.label >= 0) & (fit.trusted < 0) & (fit.label != fit.pool.truth)


def sizes(shares: Iterable[float], pool: int) -> Ints:
    """Return numbers of labels."""
    return np.array([round(share * pool) for share in shares], np.int64)
