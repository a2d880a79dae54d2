"""How much longer training will take: by its plan at most, by early stopping most likely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StepsLeft:
    """Steps that are left.

    Attributes:
        most: To the last planned step.
        likely: To the end that early stopping most likely leads to; None before the first validation.
    """

    most: int
    likely: int | None


def steps_left(
    planned: int, after: int, interval: int, improved: Sequence[bool], stale: int, patience: int
) -> StepsLeft:
    """The steps that training will still take.

    Args:
        planned: Steps left in the plan, those of `after` included.
        after: Steps of the phase that follows the present one, whose early stopping is not known yet.
        interval: Steps between validations.
        improved: Whether each validation so far was better than all before it.
        stale: Validations since the best one.
        patience: Validations without improvement after which training stops.
    """
    most = max(planned, 0)
    if not improved:
        return StepsLeft(most, None)
    recent = improved[-max(patience, 1) :]
    chance = (sum(recent) + 0.5) / (len(recent) + 1)
    here = min(expected_validations(chance, stale, patience) * interval, max(most - after, 0))
    return StepsLeft(most, round(here) + min(after, most))


def expected_validations(chance: float, stale: int, patience: int) -> float:
    """The expected number of validations until `patience` of them in a row have not improved.

    With the chance p of an improvement and q = 1 − p, E_s = 1 + q E_{s+1} + p E_0 and E_patience = 0 give

        E_s = (q^−patience − q^−s) / p

    Args:
        chance: The probability p that a validation improves, between 0 and 1.
        stale: The number s of validations in a row that have not improved.
        patience: The number of them that ends training.
    """
    log_failure = math.log1p(-chance)
    ways = (math.exp(min(-count * log_failure, 700.0)) for count in (patience, min(stale, patience)))
    return (next(ways) - next(ways)) / chance
