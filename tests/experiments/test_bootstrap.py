"""Intervals over documents."""

from __future__ import annotations

import numpy as np
import pytest

from revup.experiments.bootstrap import SAMPLES, Ratio, difference, draws, excludes_zero, interval, jackknife

ACCURACY = Ratio("right", "events")


def test_draws_are_of_documents_with_replacement() -> None:
    weights = draws(40)
    assert weights.shape == (SAMPLES, 40)
    assert (weights.sum(1) == 40).all()
    assert np.abs(weights.mean(0) - 1).max() < 0.15
    assert weights.var() == pytest.approx(1 - 1 / 40, abs=0.05)  # binomial
    assert (draws(40) == weights).all()


def test_interval_covers_as_the_normal_approximation_does() -> None:
    """Many documents of one event: the standard error is √(p(1−p)/n)."""
    right = [1] * 300 + [0] * 100
    low, high = interval([ACCURACY.samples({"right": right, "events": [1] * 400})]) or (0, 0)
    error = (0.75 * 0.25 / 400) ** 0.5
    assert (low, high) == pytest.approx((0.75 - 1.96 * error, 0.75 + 1.96 * error), abs=0.004)


def test_events_of_a_document_are_not_independent() -> None:
    """Ten events of a document that are all right or all wrong carry no more than one: √10 times as wide."""
    together = {"right": [10] * 30 + [0] * 10, "events": [10] * 40}
    apart = {"right": [1] * 300 + [0] * 100, "events": [1] * 400}
    widths = [high - low for low, high in (interval([ACCURACY.samples(x)]) or (0, 0) for x in (together, apart))]
    assert widths[0] / widths[1] == pytest.approx(10**0.5, rel=0.1)


def test_paired_difference_is_narrower_than_the_scores() -> None:
    """A system that is right where the other is, and once more in most documents."""
    rng = np.random.default_rng(0)
    right = rng.integers(0, 9, 50)
    first = {s: ACCURACY.samples({"right": (right + 1).tolist(), "events": [10] * 50}) for s in (0, 1)}
    second = {s: ACCURACY.samples({"right": right.tolist(), "events": [10] * 50}) for s in (0, 1, 2)}
    values, within = difference(first, second)
    assert values == pytest.approx([0.1, 0.1])  # of the seeds that both have
    assert within == pytest.approx((0.1, 0.1))
    assert excludes_zero(within)
    low, high = interval([*first.values()]) or (0, 0)
    assert high - low > 0.1
    assert not excludes_zero(difference(first, first)[1])
    assert difference(first, {5: second[0]}) == ([], None)


def test_jackknife_of_a_mean_is_the_t_interval() -> None:
    """Documents of one size: the jackknife's error is s/√n, and t with 7 degrees of freedom is 2.3646."""
    gains = np.array([4, 0, 1, -1, 2, 0, 3, 1])
    first = {0: ACCURACY.left_out({"right": (5 + gains).tolist(), "events": [10] * 8})}
    second = {0: ACCURACY.left_out({"right": [5] * 8, "events": [10] * 8})}
    width = 2.3646 * gains.std(ddof=1) / 10 / 8**0.5
    mean = gains.mean() / 10
    assert jackknife(first, second) == pytest.approx((mean - width, mean + width), rel=1e-4)
    assert jackknife(first, {1: second[0]}) is None
    alone = {0: ACCURACY.left_out({"right": [1], "events": [1]})}
    assert jackknife(alone, alone) is None


def test_jackknife_is_wider_than_the_bootstrap_where_documents_are_few() -> None:
    sums = [{"right": right, "events": [40] * 8} for right in ([20, 20, 26, 20, 21, 21, 22, 21], [20] * 8)]
    samples, left_out = ([{0: of(each)} for each in sums] for of in (ACCURACY.samples, ACCURACY.left_out))
    assert excludes_zero(difference(*samples)[1])
    assert not excludes_zero(jackknife(*left_out))


def test_logarithms_and_perplexities() -> None:
    sums = {"nll": [20_000, 40_000], "tokens": [2, 2]}
    assert Ratio("nll", "tokens", nats=True).samples(sums)[-1] == 1.5
    assert Ratio("nll", "tokens", nats=True, exponential=True).samples(sums)[-1] == pytest.approx(np.exp(1.5))
    assert not ACCURACY.there(sums)
    assert not ACCURACY.there({"right": [0], "events": [0]})
