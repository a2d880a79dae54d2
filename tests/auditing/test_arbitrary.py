"""Arbitrary errors: their number and p(wrong) are right where labels are drawn from a known mixture."""

from __future__ import annotations

import numpy as np
import pytest

from revup.auditing.arbitrary import Arbitrary, arbitrary_errors, mass_by_level

FRAMES, LABELS = 40, 6000


def drawn(rate: float, unforeseen: float = 0.0, seed: int = 0) -> tuple[Arbitrary, np.ndarray]:
    """Labels drawn from predictions, some replaced by any frame; `unforeseen` of right ones where it is unsure."""
    draw = np.random.default_rng(seed)
    sharp = draw.random(LABELS) < 0.7
    r = np.where(sharp[:, None], draw.dirichlet(np.full(FRAMES, 0.01), LABELS), draw.dirichlet(np.ones(FRAMES), LABELS))
    edges = r.cumsum(1)
    label = np.minimum((draw.random(LABELS)[:, None] > edges).sum(1), FRAMES - 1)
    surprising = ~sharp & (draw.random(LABELS) < unforeseen)
    wrong = draw.random(LABELS) < rate
    label = np.where(surprising | wrong, draw.integers(FRAMES, size=LABELS), label)
    found = arbitrary_errors(r[np.arange(LABELS), label], r.max(1), mass_by_level(r), FRAMES)
    return found, wrong


@pytest.mark.parametrize("rate", [0.03, 0.1, 0.5])
def test_number_and_probabilities_are_those_of_the_mixture(rate: float) -> None:
    found, wrong = drawn(rate)
    assert found.number == pytest.approx(wrong.sum(), rel=0.1)
    for low, high in ((0.0, 0.2), (0.2, 0.8), (0.8, 1.01)):
        inside = (found.wrong >= low) & (found.wrong < high)
        if inside.sum() > 100:
            assert wrong[inside].mean() == pytest.approx(found.wrong[inside].mean(), abs=0.1)


def test_clean_labels_have_nearly_no_errors() -> None:
    found, _ = drawn(0.0)
    assert found.number < 0.005 * LABELS


def test_unforeseen_labels_of_unsure_events_are_no_errors() -> None:
    found, wrong = drawn(0.05, unforeseen=0.3)  # 540 or so, beside 320 errors
    assert 0.7 * wrong.sum() < found.number < 1.1 * wrong.sum()
