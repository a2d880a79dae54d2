"""The number of errors where sources say how often they err."""

from __future__ import annotations

import numpy as np
import pytest

from revup.auditing.errors import errors
from revup.auditing.judge import Judged, compared
from revup.data.reliability import Reliability
from revup.data.sparse_table import Table

FRAMES, LABELS = 20, 3000


def judged_labels(rate: float, seed: int = 0) -> tuple[Judged, np.ndarray]:
    """Labels of one lemma with all frames; wrong ones are what predictions make probable, not any frame."""
    draw = np.random.default_rng(seed)
    r = draw.dirichlet(np.full(FRAMES, 0.1), LABELS)
    edges = r.cumsum(1)
    true, other = ((draw.random(LABELS)[:, None] > edges).sum(1).clip(max=FRAMES - 1) for _ in range(2))
    label = np.where(draw.random(LABELS) < rate, other, true)
    named = Table(np.zeros(FRAMES, np.int64), np.arange(FRAMES), np.ones(FRAMES), FRAMES)
    lemma, none = np.zeros(LABELS, np.int64), np.full(LABELS, -1, np.int64)
    c = compared(r, label, lemma, named)
    places = [(0, number) for number in range(LABELS)]
    who: list[str | None] = ["frame"] * LABELS
    told = (label, lemma, np.full(LABELS, 50.0), none, c.given, c.against, c.surest, c.frames, c.shares)
    return Judged([], places, list(range(LABELS)), who, c.mass, {}, *told), label != true


@pytest.mark.parametrize("confusable", [0.7, 1.0])
def test_number_follows_the_rate_of_a_source_whose_arbitrary_errors_are_not_seen(confusable: float) -> None:
    judged, wrong = judged_labels(0.9)
    rate = float(wrong.mean())
    source = Reliability(rate, confusable, True, LABELS, (0.2, rate + 0.05))
    found = errors(judged, FRAMES, {"frame": source})
    assert found.arbitrary < 0.1 * wrong.sum()
    assert found.expected == pytest.approx(wrong.sum(), rel=0.01)
    assert found.wrong.sum() == pytest.approx(wrong.sum(), rel=0.01)


def test_interval_reaches_to_the_upper_end_of_a_high_rate() -> None:
    judged, wrong = judged_labels(0.9)
    rate = float(wrong.mean())
    source = Reliability(rate - 0.05, 0.9, True, LABELS, (0.2, rate + 0.05))
    low, high = errors(judged, FRAMES, {"frame": source}).interval
    assert low < wrong.sum() < high < (rate + 0.1) * LABELS
