"""Which events to label next: the rules that `revup experiment labelling` compares.

    suggest     `revup suggest`: the expected gain (`revup.auditing.gain`)
    random      any event
    margin      the smallest distance between the two most probable frames
    entropy     the prediction with the largest entropy
    badge       BADGE (Ash et al. 2020): k-means++ on gradients (p − onehot(argmax p)) ⊗ x
    typiclust   TypiClust (Hacohen et al. 2022), by scikit-activeml: typical events of clusters without a label
    activelab   ActiveLab (Goh and Mueller 2023), by cleanlab: labelling and labelling again in one ranking

x are word vectors of the event. The gradients are never held: their products are those of the two factors.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LIBRARIES = {"typiclust": ("skactiveml", "scikit-activeml"), "activelab": ("cleanlab", "cleanlab")}
REASSIGN = 0.0  # share of clusters that MiniBatchKMeans moves: with thousands of them it would move for ever


@dataclass(frozen=True)
class State:
    """What a strategy knows of the pool.

    Attributes:
        p: Predictions without each event's own label [n, K].
        label: Labels, −1 without one [n].
        trusted: Labels that were asked for, −1 where none was [n].
        x: Word vectors of the events [n, d].
        suggested: The events that `revup suggest` names, and whether labels may be checked, too.
    """

    p: Floats
    label: Ints
    trusted: Ints
    x: Floats
    suggested: Callable[[int, bool], Ints]

    @property
    def open(self) -> Ints:
        """Events without any label."""
        return np.flatnonzero((self.label < 0) & (self.trusted < 0))


def lacking_library(names: tuple[str, ...]) -> str:
    """Return which library some strategies need that is not installed; empty where none is missing."""
    for name in names:
        module, package = LIBRARIES.get(name, ("", ""))
        if module and find_spec(module) is None:
            return f"{name} needs {package}, which is not installed: pip install {package}"
    return ""


def choose(name: str, state: State, n: int, draw: np.random.Generator) -> Ints:
    """Return the events to label next [n], fewer where there are fewer.

    Args:
        name: The strategy.
        state: What is known of the pool.
        n: How many.
        draw: Of random choices and ties.
    """
    return _STRATEGIES[name](state, n, draw)


def _random(state: State, n: int, draw: np.random.Generator) -> Ints:
    return draw.permutation(state.open)[:n]


def _random_again(state: State, n: int, draw: np.random.Generator) -> Ints:
    return draw.permutation(np.flatnonzero(state.trusted < 0))[:n]


def _margin(state: State, n: int, draw: np.random.Generator) -> Ints:
    events = draw.permutation(state.open)
    top = -np.partition(-state.p[events], 1, axis=1)[:, :2]
    return events[np.argsort(top[:, 0] - top[:, 1], kind="stable")[:n]]


def _entropy(state: State, n: int, draw: np.random.Generator) -> Ints:
    events = draw.permutation(state.open)
    p = state.p[events]
    return events[np.argsort((p * np.log(p + 1e-12)).sum(1), kind="stable")[:n]]


def _suggest(state: State, n: int, draw: np.random.Generator) -> Ints:
    return state.suggested(n, False)


def _suggest_checks(state: State, n: int, draw: np.random.Generator) -> Ints:
    return state.suggested(n, True)


def _badge(state: State, n: int, draw: np.random.Generator) -> Ints:
    events = state.open
    return events[badge(state.p[events], state.x[events], n, draw)]


def badge(p: Floats, x: Floats, n: int, draw: Any) -> Ints:
    """Return what BADGE chooses of some events: the largest gradient, then by k-means++.

    Args:
        p: Predictions [m, K].
        x: Their vectors [m, d].
        n: How many.
        draw: A generator or RandomState: `choice` is called once for each event after the first.
    """
    rows = np.arange(len(p))
    error = p.astype(np.float32)
    error[rows, p.argmax(1)] -= 1.0
    vector = x.astype(np.float32)
    norm = (error.astype(np.float64) ** 2).sum(1) * (x.astype(np.float64) ** 2).sum(1)
    nearest, chosen = norm.copy(), [int(norm.argmax())]
    while len(chosen) < min(n, len(p)):
        last = chosen[-1]
        product = (error @ error[last]).astype(np.float64) * (vector @ vector[last])
        distance = np.maximum(norm + norm[last] - 2 * product, 0.0)
        nearest = distance if len(chosen) == 1 else np.minimum(nearest, distance)
        nearest[chosen] = 0.0
        if nearest.sum() <= 0:  # all that is left equals something chosen
            left = np.setdiff1d(rows, chosen)
            chosen += draw.choice(left, min(n, len(p)) - len(chosen), replace=False).tolist()
            break
        chosen.append(int(draw.choice(len(p), 1, replace=False, p=nearest / nearest.sum())[0]))
    return np.array(chosen, np.int64)


def _typiclust(state: State, n: int, draw: np.random.Generator) -> Ints:
    from skactiveml.pool import TypiClust
    from sklearn.cluster import MiniBatchKMeans

    n = min(n, len(state.open))
    known = np.where(state.trusted >= 0, state.trusted, state.label)
    y = np.where(known >= 0, known, np.nan).astype(float)
    settings = {"init": "random", "n_init": 1, "max_iter": 10, "batch_size": 2048, "reassignment_ratio": REASSIGN}
    rule = TypiClust(random_state=int(draw.integers(2**31)), cluster_algo=MiniBatchKMeans, cluster_algo_dict=settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of empty clusters
        found = np.unique(rule.query(state.x, y, batch_size=n))
    rest = np.setdiff1d(state.open, found)  # it names events twice once all clusters have a label
    return np.concatenate([found, draw.permutation(rest)[: n - len(found)]]).astype(np.int64)


def _activelab(state: State, n: int, draw: np.random.Generator) -> Ints:
    from cleanlab.multiannotator import get_active_learning_scores

    has = (state.label >= 0) | (state.trusted >= 0)
    named, free = np.flatnonzero(has), np.flatnonzero(~has)
    votes = np.stack([state.label[named], state.trusted[named]], 1).astype(float)
    votes[votes < 0] = np.nan
    votes = votes[:, ~np.isnan(votes).all(0)]
    p = np.maximum(state.p, 1e-9)
    p /= p.sum(1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of frames that no label names
        scores = get_active_learning_scores(votes, p[named], p[free] if len(free) else None)
    events = np.concatenate([named, free])
    score = np.concatenate([scores[0], scores[1] if len(free) else np.zeros(0)])
    score[state.trusted[events] >= 0] = np.inf  # an expert is asked once
    order = np.lexsort((draw.random(len(events)), score))
    return events[order][: min(n, int((state.trusted < 0).sum()))]


_STRATEGIES: dict[str, Callable[[State, int, np.random.Generator], Ints]] = {
    "suggest": _suggest,
    "suggest-checks": _suggest_checks,
    "random": _random,
    "random-checks": _random_again,
    "margin": _margin,
    "entropy": _entropy,
    "badge": _badge,
    "typiclust": _typiclust,
    "activelab": _activelab,
}
