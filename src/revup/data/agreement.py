"""How far sources agree with each other, and with the lexicon, on the training documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.sparse_table import Table
from revup.data.told import LEXICON, OWN

Array = NDArray[Any]


class Agreement:
    """Counts, for each pair of sources, the events that both speak of, and those on which they agree.

    Two sources agree if the frame to which one gives the most weight is among those that the other names.

    Args:
        names: The names of the sources that the array `source_name` numbers.
        dictionary: The weights of the lexicon's entries [entries, K], if there is one.
    """

    NEEDS = (
        "lengths",
        "knowledge_frames",
        "knowledge_weights",
        "entry",
        "source_name",
        "source_frame",
        "source_weight",
    )

    def __init__(self, names: Sequence[str], dictionary: Table | None) -> None:
        self._names, self._dictionary = list(names), dictionary
        self._both: Counter[tuple[str, str]] = Counter()
        self._agree: Counter[tuple[str, str]] = Counter()
        self._speaks: Counter[str] = Counter()
        self._listed = np.zeros(0, bool)
        if dictionary is not None:
            rows = int(dictionary.row.max(initial=-1)) + 1
            self._listed = np.bincount(dictionary.row, minlength=rows) > 0

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Add some windows of the training split."""
        there = np.arange(arrays["entry"].shape[1]) < arrays["lengths"][:, None]
        told = {OWN: (arrays["knowledge_frames"][there], arrays["knowledge_weights"][there])}
        for number, name in enumerate(self._names):
            mine = arrays["source_weight"] * (arrays["source_name"] == number)
            told[name] = arrays["source_frame"][there], mine[there]
        speaks = {name: weights.sum(-1) > 0 for name, (_, weights) in told.items()}
        for name, says in speaks.items():
            self._speaks[name] += int(says.sum())
        for one, other in combinations(told, 2):
            both = speaks[one] & speaks[other]
            self._count(one, other, both, _names_best(told[one], told[other], both))
        entry = arrays["entry"][there]
        if self._dictionary is None:
            return
        listed = (entry >= 0) & np.append(self._listed, False)[np.minimum(entry, len(self._listed))]
        self._speaks[LEXICON] += int(listed.sum())
        for name, (frames, weights) in told.items():
            both = speaks[name] & listed
            best = np.take_along_axis(frames, weights.argmax(-1)[:, None], 1)[both, 0] if both.any() else frames[:0, 0]
            self._count(name, LEXICON, both, self._dictionary(entry[both], best) > 0)

    def _count(self, one: str, other: str, both: Array, agree: Array) -> None:
        self._both[one, other] += int(both.sum())
        self._agree[one, other] += int(agree.sum())

    def report(self) -> dict[str, Any]:
        """Return the number of events that each source speaks of, and how far each pair agrees."""
        pairs = [
            {"sources": list(pair), "events": both, "agree": round(self._agree[pair] / both, 4)}
            for pair, both in self._both.items()
            if both
        ]
        return {"events": {name: count for name, count in self._speaks.items() if count}, "pairs": pairs}


def _names_best(one: tuple[Array, Array], other: tuple[Array, Array], both: Array) -> Array:
    """Return whether one source's heaviest frame is among the other's frames, for the events that both speak of."""
    if not both.any():
        return np.zeros(0, bool)
    (frames, weights), (named, given) = one, other
    best = np.take_along_axis(frames, weights.argmax(-1)[:, None], 1)[both]
    found: Array = ((named[both] == best) & (given[both] > 0)).any(-1)
    return found
