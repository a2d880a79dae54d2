"""Sparse tables of numbers and ragged rows in plain numpy, for counts over many frames."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Table:
    """A sparse table of numbers [rows, width], looked up at many places at once.

    Attributes:
        key: row·width + column of each stored number, ascending.
        row, column, value: The stored numbers.
        width: The number of columns.
    """

    def __init__(self, row: NDArray[Any], column: NDArray[Any], value: NDArray[Any], width: int) -> None:
        """Store numbers; those given for the same place are added up."""
        place = row.astype(np.int64) * width + column
        order = np.argsort(place, kind="stable")
        place = place[order]
        first = np.flatnonzero(np.r_[True, place[1:] != place[:-1]]) if len(place) else np.zeros(0, np.int64)
        self.key: Ints = place[first]
        self.value: Floats = np.add.reduceat(np.asarray(value, np.float64)[order], first) if len(first) else np.zeros(0)
        self.row, self.column, self.width = self.key // width, self.key % width, width

    def __call__(self, row: NDArray[Any], column: NDArray[Any]) -> Floats:
        """Return the numbers at these places, 0 where none is stored."""
        if not len(self.key):
            return np.zeros(np.broadcast(row, column).shape)
        key = np.asarray(row, np.int64) * self.width + column
        place = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        return np.where(self.key[place] == key, self.value[place], 0.0)

    def starts(self, rows: int) -> Ints:
        """Return where each row's numbers begin, [rows + 1]."""
        return np.searchsorted(self.key, np.arange(rows + 1, dtype=np.int64) * self.width)

    def sums(self, rows: int) -> Floats:
        """Return the sum of each row, [rows]."""
        return np.bincount(self.row, self.value, minlength=rows).astype(np.float64)


def matches(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Return all pairs (i, j) with left[i] = right[j]."""
    order = np.argsort(right, kind="stable")
    begin, end = (np.searchsorted(right[order], left, side) for side in ("left", "right"))
    size = end - begin
    i = np.repeat(np.arange(len(left)), size)
    return i, order[np.arange(len(i)) - (np.cumsum(size) - size)[i] + begin[i]]


def entries(start: Ints, rows: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
    """Return all entries of the given rows of a ragged table.

    Args:
        start: Where each row of the table begins, with the end of the last one.
        rows: The rows wanted.

    Returns:
        The entries, the position in `rows` that each belongs to, and where each position's entries begin.
    """
    size = start[rows + 1] - start[rows]
    first = np.cumsum(size) - size
    position = np.repeat(np.arange(len(rows)), size)
    return np.arange(len(position)) + (start[rows] - first)[position], position, first


def shared_predicates(predicate: Ints, frame: Ints, frames: int) -> Table:
    """Return which frames are confusable: c(y|t), the probability of frame y given the true frame t.

    A predicate of t is taken at random and another of its frames drawn: frames that share predicates are confusable.

    Args:
        predicate, frame: Which predicates have which frames [rows]; repetitions count once.
        frames: The number of frames K.

    Returns:
        A table [K, K] whose rows t sum to 1, or to 0 where no predicate of t has another frame.
    """
    key = np.unique(predicate * frames + frame)
    predicate, frame = key // frames, key % frames
    i, j = matches(predicate, predicate)
    i, j = i[i != j], j[i != j]
    shared = Table(frame[i], frame[j], np.ones(len(i)), frames)
    shared.value /= np.maximum(np.bincount(shared.row, shared.value, minlength=frames), 1e-300)[shared.row]
    return shared
