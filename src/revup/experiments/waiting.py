"""Runs that wait for a worker: those that stand on the same counts go to the same worker, one after another.

A worker keeps the counts that it fitted last (`revup.models.shared_counts`), so it is given the runs that share them.
When none is left it begins counts that the fewest workers have begun, those with the longest run first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable

from revup.experiments.runs import Run
from revup.models.count_prior import CountSettings
from revup.models.shared_counts import counts_key


def counts_of(run: Run) -> Hashable:
    """What the counts of a run depend on; the run itself where it fits none."""
    config = run.config()
    if not (isinstance(config.objective, CountSettings) and config.objective.needs_counts):
        return run
    return run.data, run.condition.variant, counts_key(config.observation, config.objective)


class Waiting:
    """Hands runs to workers.

    Args:
        runs: The runs.
        cost: How long a run takes, roughly.
    """

    def __init__(self, runs: Iterable[Run], cost: Callable[[Run], float]) -> None:
        self._groups: dict[Hashable, list[tuple[float, Run]]] = {}
        for run in runs:
            self._groups.setdefault(counts_of(run), []).append((cost(run), run))
        for group in self._groups.values():
            group.sort(key=lambda each: each[0])
        self._begun = dict.fromkeys(self._groups, 0)
        self._lock = threading.Lock()

    def next(self, last: Run | None = None) -> Run | None:
        """The next run of a worker; None when there is none.

        Args:
            last: The run that the worker computed last.
        """
        with self._lock:
            if not self._groups:
                return None
            key = None if last is None else counts_of(last)
            if key is None or key not in self._groups:
                key = max(self._groups, key=self._urgency)
                self._begun[key] += 1
            group = self._groups[key]
            _, run = group.pop()
            if not group:
                del self._groups[key]
            return run

    def _urgency(self, key: Hashable) -> tuple[int, float, float]:
        costs = [cost for cost, _ in self._groups[key]]
        return -self._begun[key], costs[-1], sum(costs)
