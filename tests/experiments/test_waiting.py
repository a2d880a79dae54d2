"""Runs that wait: each is handed out once, and runs on the same counts to the same worker."""

from __future__ import annotations

import itertools

from revup.experiments.runs import Condition, Run
from revup.experiments.waiting import Waiting


def _cost(run: Run) -> float:
    return {"counts": 0.1, "tagger": 1.0, "revup": 3.0, "haqae": 3.0}[run.system.model]


RUNS = [
    *(Run.of(system, Condition(epsilon), seed) for epsilon in (0.1, 1.0) for seed in (0, 1) for system in
      ("counts", "tagger", "tagger:gce", "revup")),
    Run.of("tagger:plain"),
    Run.of("haqae"),
]  # fmt: skip


def _handed_out(workers: int) -> list[list[Run]]:
    """Which runs each of some workers gets that take the same time for every run."""
    waiting = Waiting(RUNS, _cost)
    found: list[list[Run]] = [[] for _ in range(workers)]
    at_work = True
    while at_work:
        at_work = False
        for own in found:
            if (run := waiting.next(own[-1] if own else None)) is not None:
                own.append(run)
                at_work = True
    return found


def test_every_run_is_handed_out_once() -> None:
    for workers in (1, 3, 30):
        handed = [run for own in _handed_out(workers) for run in own]
        assert sorted(map(str, handed)) == sorted(map(str, RUNS))


def test_runs_on_the_same_counts_follow_each_other() -> None:
    for own in _handed_out(3):
        conditions = [
            (r.condition.epsilon, r.seed) for r in own if r.system.name not in ("tagger:plain", "haqae:default")
        ]
        changes = sum(a != b for a, b in itertools.pairwise(conditions))
        assert changes <= 2  # 16 runs on four counts, three workers
        assert own[0].system.model in ("revup", "haqae")


def test_many_workers_begin_different_counts() -> None:
    first = [own[0] for own in _handed_out(6)]
    assert len({(run.condition.epsilon, run.seed) for run in first if run.system.model == "revup"}) == 4
