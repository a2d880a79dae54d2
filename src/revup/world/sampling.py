"""Drawing many numbers at once from tables of probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def choose(rng: np.random.Generator, probs: Floats, shape: int | tuple[int, ...]) -> Ints:
    """Draw indices of one distribution, of the given shape."""
    cumulative = np.cumsum(probs)
    found = np.searchsorted(cumulative, rng.random(shape) * cumulative[-1], side="right")
    return np.asarray(np.minimum(found, len(probs) - 1))


def choose_rows(rng: np.random.Generator, probs: Floats) -> Ints:
    """Draw one column for each row of probs [n, few]."""
    cumulative = np.cumsum(probs, axis=1)
    found = (rng.random((len(probs), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1)
    return np.asarray(np.minimum(found, probs.shape[1] - 1))


def choose_given(rng: np.random.Generator, probs: Floats, frame: Ints) -> Ints:
    """Draw a column of probs [K, …] for each frame, by inverting all rows' cumulative sums at once."""
    cumulative = np.cumsum(probs, axis=1)
    cumulative /= cumulative[:, -1:]
    # shifting row t to the interval [t, t + 1) makes one sorted list of all rows
    steps = (cumulative + np.arange(len(probs))[:, None]).ravel()
    wanted = np.minimum(
        frame + rng.random(frame.shape), np.nextafter(frame + 1.0, 0.0)
    )  # rounding must not leave the row
    return np.asarray(np.searchsorted(steps, wanted, side="right") - frame * probs.shape[1])
