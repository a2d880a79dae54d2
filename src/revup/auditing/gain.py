"""What a label is worth: the number of events that a model is expected to get right because of it.

Events of one lemma l without a label share an unknown distribution θ over frames, whose mean is the model's prediction
and whose concentration is the number of labels that it counted for the lemma, and a of the count model:

    θ ~ Dirichlet((N_l + a)·mean prediction),    v_l(j) = E max_t E[θ(t) | j labels]

v_l(j) is the expected accuracy after j further labels. With M_l events of the lemma, j labels are worth
M_l·(v_l(j) − v_l(0)). Labels of a frequent predicate are worth little once it is known, and the first label often
changes nothing while three do: so each further label counts by the slope of the least concave curve above v_l. Slopes
of all lemmas in one order are the best choice for any number of labels, and a batch is diverse by itself.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from revup.auditing.left_out import Floats, Ints

STEPS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32])  # j at which v is computed
MOST = int(STEPS[-1])  # labels of one lemma in one list
DRAWS = 64  # of θ
CELLS = 2**21  # numbers held at once
OTHERS = 8  # frames that the remainder of a prediction is spread over


def accuracies(mean: Floats, strength: Floats, seed: int = 0) -> Floats:
    """Return v [lemmas, MOST + 1], the expected accuracy after 0, 1, … further labels.

    Args:
        mean: The most probable frames of each lemma's mean prediction [lemmas, T]; what is missing from 1 is spread.
        strength: N_l + a [lemmas].
        seed: Of the draws.
    """
    draw = np.random.default_rng(seed)
    rest = np.maximum(1 - mean.sum(1, keepdims=True), 0.0) / OTHERS
    whole = np.concatenate([mean, np.repeat(rest, OTHERS, 1)], 1)
    out = np.empty((len(mean), len(STEPS)))
    size = max(1, CELLS // (DRAWS * whole.shape[1]))
    for begin in range(0, len(mean), size):
        part = slice(begin, begin + size)
        out[part] = _accuracies(np.maximum(strength[part, None] * whole[part], 1e-3), draw)
    out = np.maximum.accumulate(out, 1)
    return (
        np.stack([np.interp(np.arange(MOST + 1), STEPS, row) for row in out]) if len(out) else np.zeros((0, MOST + 1))
    )


def _accuracies(alpha: Floats, draw: np.random.Generator) -> Floats:
    theta = draw.gamma(np.repeat(alpha[:, None], DRAWS, 1))
    theta /= np.maximum(theta.sum(-1, keepdims=True), 1e-300)
    edges = theta.cumsum(-1)
    counts = np.zeros_like(theta)
    out, before = np.empty((len(alpha), len(STEPS))), 0
    for column, step in enumerate(STEPS):
        for _ in range(step - before):
            chosen = (draw.random(theta.shape[:2])[..., None] > edges).sum(-1, keepdims=True)
            chosen = np.minimum(chosen, theta.shape[-1] - 1)
            np.put_along_axis(counts, chosen, np.take_along_axis(counts, chosen, -1) + 1, -1)
        before = step
        after = alpha[:, None] + counts
        out[:, column] = (after.max(-1) / after.sum(-1)).mean(1)
    return out


def slopes(curves: Floats) -> Floats:
    """Return the slopes of the least concave curves above some curves, falling from left to right [lemmas, MOST]."""
    out = np.zeros((len(curves), curves.shape[1] - 1))
    for row, curve in enumerate(curves.tolist()):
        corners = [0]
        for j in range(1, len(curve)):
            while len(corners) > 1 and _turns_up(curve, corners[-2], corners[-1], j):
                corners.pop()
            corners.append(j)
        for left, right in pairwise(corners):
            out[row, left:right] = (curve[right] - curve[left]) / (right - left)
    return np.maximum(out, 0.0)


def _turns_up(curve: list[float], first: int, middle: int, last: int) -> bool:
    left = (curve[middle] - curve[first]) * (last - middle)
    return (curve[last] - curve[middle]) * (middle - first) >= left


def mean_predictions(group: Ints, groups: int, frames: Ints, shares: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the mean prediction of each group by its most probable frames [groups, T], and the number of its events.

    Args:
        group: The group of each event [n].
        groups: Their number.
        frames, shares: The most probable frames of each event, and their probabilities [n, T].
    """
    width, number = frames.shape[1], np.bincount(group, minlength=groups)
    out = np.zeros((groups, width))
    if len(group):
        classes = int(frames.max()) + 1
        key, place = np.unique((group[:, None] * classes + frames).ravel(), return_inverse=True)
        value = np.bincount(place.ravel(), shares.ravel()) / number[key // classes]
        order = np.lexsort((-value, key // classes))
        owner = (key // classes)[order]
        rank = np.arange(len(order)) - np.searchsorted(owner, owner)
        keep = rank < width
        out[owner[keep], rank[keep]] = value[order][keep]
    return out, number.astype(np.int64)
