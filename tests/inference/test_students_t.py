"""Student's t distribution against SciPy and its closed form."""

from __future__ import annotations

import math

import pytest

from revup.inference.students_t import t_p


def test_students_t_against_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 2, 3, 4, 5, 8, 9, 30):
        for value in (0.0, 0.3, 1.0, 4.303, 12.0, -2.0):
            assert t_p(value, freedom) == pytest.approx(2 * stats.t.sf(abs(value), freedom), abs=1e-12)


def test_two_degrees_of_freedom_in_closed_form() -> None:
    """p = 1 − t/√(2 + t²), and 4.303 is the critical value at 5%."""
    for value in (0.5, 2.0, 4.303):
        assert t_p(value, 2) == pytest.approx(1 - value / math.sqrt(2 + value**2))
    assert t_p(4.303, 2) == pytest.approx(0.05, abs=1e-4)
