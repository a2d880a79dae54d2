"""Correcting labels that err arbitrarily: how many equal labels are right, and what noise does to the scalars."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from counting import corpus, dense, inputs, labels
from revup.data.sparse_table import Table
from revup.models.count_correction import corrected, share_of_right
from revup.models.count_model import CountModel

FRAMES = 20


@pytest.mark.parametrize(("number", "prior", "odds"), [(1, 0.2, 3.0), (4, 0.02, 0.5), (6, 1.5, 0.1), (5, 0.3, 40.0)])
def test_share_of_right_labels_is_that_of_all_cases(number: int, prior: float, odds: float) -> None:
    """Labels one by one: a right one has the probability that an urn gives it, times its odds."""
    total = expected = 0.0
    for right in product((0, 1), repeat=number):
        weight, drawn = 1.0, 0
        for each in right:
            weight *= (prior + drawn) * odds if each else 1.0
            drawn += each
        total += weight
        expected += weight * drawn / number
    found = share_of_right(np.array([number]), np.array([prior]), np.array([odds]))
    assert found == pytest.approx(expected / total)


def test_share_of_right_labels_of_many_and_of_none() -> None:
    assert len(share_of_right(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))) == 0
    one_by_one = [share_of_right(np.array([n]), np.array([0.1]), np.array([2.0]))[0] for n in (1, 2, 5)]
    assert share_of_right(np.array([1, 2, 5]), np.full(3, 0.1), np.full(3, 2.0)) == pytest.approx(one_by_one)
    assert one_by_one == sorted(one_by_one)
    assert share_of_right(np.array([100_000]), np.array([1e-4]), np.array([5.0]))[0] == pytest.approx(1.0, abs=1e-3)


def test_labels_that_repeat_by_chance_are_not_taken_for_senses() -> None:
    """Half of a predicate's labels are arbitrary: a frame that comes up twice is no more expected than one."""
    given = np.concatenate([np.zeros(60, np.int64), np.repeat(np.arange(1, FRAMES), 3), [19]])
    prior = Table(np.zeros(FRAMES, np.int64), np.arange(FRAMES), np.full(FRAMES, 1 / FRAMES), FRAMES)
    found = corrected(np.zeros(len(given), np.int64), [given], [(0.5, 0.0)], prior, np.ones(1), together=True)
    kept = np.bincount(found.frame, found.weight, minlength=FRAMES)
    assert kept[0] > 57
    assert kept[1:].max() < 0.2


def test_fit_is_nearly_that_without_noise() -> None:
    """Labels of which half are any frame lead to nearly the same scalars and predictions as right ones."""
    data, frame = corpus(6000, 40, FRAMES)
    random = np.random.default_rng(3)
    noisy = np.where(random.random(len(frame)) < 0.5, random.integers(FRAMES, size=len(frame)), frame)
    rates = {"a": (0.5 * (1 - 1 / FRAMES), 0.0)}
    clean = CountModel.fit(data, {"a": labels(frame)}, inputs(40, FRAMES))
    model = CountModel.fit(data, {"a": labels(noisy)}, inputs(40, FRAMES), known_rates=rates)
    for name in ("a", "a_form"):  # logarithms
        assert abs(model.scalars[name] - clean.scalars[name]) < 0.3
    log_p = []
    for fitted in (clean, model):
        assert fitted._training is not None
        predicted = dense(fitted, fitted.predict(fitted._training.events, "document"))
        log_p.append(np.log(predicted[np.arange(len(frame)), frame]).mean())
    assert log_p[1] > log_p[0] - 0.06
