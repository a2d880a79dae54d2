"""Student's t distribution, for intervals of means of few values: exact for whole degrees of freedom."""

from __future__ import annotations

import math


def t_quantile(level: float, freedom: int) -> float:
    """The t that |T| of Student's distribution stays below with this probability, by bisection."""
    low, high = 0.0, 1e6
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_p(middle, freedom) > 1 - level else (low, middle)
    return (low + high) / 2


def t_p(t: float, freedom: int) -> float:
    """P(|T| > |t|) of Student's t with a whole number ν of degrees of freedom: a finite series in θ = atan(t/√ν).

    ν even: 1 − sin θ (1 + ½cos²θ + 1·3/(2·4) cos⁴θ + …);  ν odd: 1 − 2/π (θ + sin θ (cos θ + 2/3 cos³θ + …)).
    """
    angle = math.atan2(abs(t), math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return min(max(1.0 - inside, 0.0), 1.0)
