"""How long training will take: estimates against simulated early stopping, and in reports of real training."""

from __future__ import annotations

import random
import statistics

import pytest

import revup
from revup.data.corpus import Corpus
from revup.reporting.progress import Progress
from revup.training.estimate import StepsLeft, expected_validations, steps_left
from training.runs import TINY


@pytest.mark.parametrize(("chance", "stale", "patience"), [(0.3, 0, 3), (0.3, 2, 3), (0.6, 1, 4), (0.05, 0, 12)])
def test_expected_validations_agree_with_simulation(chance: float, stale: int, patience: int) -> None:
    draw = random.Random(1)

    def simulated() -> int:
        count, left = 0, stale
        while left < patience:
            count, left = count + 1, 0 if draw.random() < chance else left + 1
        return count

    found = statistics.mean(simulated() for _ in range(20_000))
    assert expected_validations(chance, stale, patience) == pytest.approx(found, rel=0.04)


def test_nothing_is_expected_once_patience_is_over() -> None:
    assert expected_validations(0.5, 3, 3) == 0
    assert expected_validations(0.99, 0, 1000) > 1e100  # no overflow


def test_likely_end_is_within_the_plan() -> None:
    assert steps_left(500, 100, 10, [], 0, 3) == StepsLeft(500, None)
    assert steps_left(500, 100, 10, [True] * 9, 0, 9) == StepsLeft(500, 500)  # it still improves: the whole plan
    stopping = steps_left(500, 100, 10, [True, False, False], 2, 3)
    assert stopping.likely is not None
    assert 110 <= stopping.likely <= 150  # a validation or a few more, then the phase that follows
    assert steps_left(0, 0, 10, [True], 0, 3) == StepsLeft(0, 0)
    assert steps_left(-5, 0, 10, [False], 3, 3) == StepsLeft(0, 0)


def test_training_reports_the_likely_end_and_the_time_limit(tiny_corpus: Corpus) -> None:
    told: list[Progress] = []
    training = {"epochs": 4, "batch_size": 60, "patience": 2, "settle": 0.5, "minutes": 0.5}
    revup.train(tiny_corpus, network=TINY, training=training, progress=told.append)
    assert all(report.seconds_left is not None and report.seconds_left <= 30 for report in told)
    validated = [report for report in told if report.best_step is not None]
    assert validated
    for report in validated:
        assert report.seconds_likely is not None
        assert 0 <= report.seconds_likely <= (report.seconds_left or 0)


def test_slow_steps_are_reported_before_a_loss_is_looked_at(
    tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first estimate comes after the first steps, without loss terms, and changes nothing of what follows."""
    settings = {"network": TINY, "training": {"epochs": 1, "batch_size": 30, "settle": 0.0}}
    plain: list[Progress] = []
    revup.train(tiny_corpus, progress=plain.append, **settings)
    monkeypatch.setattr("revup.training.session.FIRST_REPORT", 0.0)
    monkeypatch.setattr("revup.training.session.REPORT_EVERY", 0.0)
    told: list[Progress] = []
    revup.train(tiny_corpus, progress=told.append, **settings)
    assert [report.step for report in told] == list(range(1, 7))
    assert all(not report.terms and report.seconds_left is not None for report in told[:-1])
    assert (told[-1].terms, told[-1].scores) == (plain[-1].terms, plain[-1].scores)
