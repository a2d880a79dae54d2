"""Arbitrary errors: labels that name any frame, however little it has to do with the event.

With rate ρ a label y is such an error; r is the prediction without the label, K the number of frames:

    p(y) = (1 − ρ)·[(1 − d·v)·g(y) + d·v/K] + ρ/K,    v = (1 − max_t r(t))²,    g(y) ∝ r(y)·min(1, r(y)/τ)^γ

Errors fall on events whatever the model says of them. A right label that nothing foretells is the likelier the less
sure the model is: d·v. Small probabilities of smoothed counts are too high: g lowers them by a power of their size. ρ
and d are found by EM, γ by the likelihood; g is normalised over all labelled events together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from revup.auditing.left_out import Floats

LEVELS = np.append(0.0, np.logspace(-7, 0, 57))  # of probabilities, which `mass_by_level` counts
SAMPLED = 400  # events at a time that it is counted from
RELIABLE = 0.2  # τ
POWERS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5)  # γ
SMALLEST = 1e-8  # probability
LABELS = 30_000  # that ρ, d and γ are found from
ITERATIONS = 300
UNFORESEEN = (1.0, 100.0)  # Beta prior of d: unforeseen labels seen beforehand, and others
PRIOR = 10.0  # labels that the run's own error rate is worth


@dataclass(frozen=True)
class Arbitrary:
    """Arbitrary errors among some labels.

    Attributes:
        number: Their expected number.
        wrong: p(arbitrary error) of each label [n].
        log_odds: Its log odds at ρ = 1/2 [n].
    """

    number: float
    wrong: Floats
    log_odds: Floats


def mass_by_level(r: Floats) -> Floats:
    """Return how much probability has each level of `LEVELS`, from a sample of the events.

    Args:
        r: Predictions [n, K].
    """
    step = max(1, len(r) // SAMPLED)
    values = r[::step].ravel()
    place = np.clip(np.searchsorted(LEVELS, values, side="right") - 1, 0, len(LEVELS) - 2)
    part = np.bincount(place, values, minlength=len(LEVELS) - 1)
    return np.asarray(part * len(r) / max(len(r[::step]), 1), np.float64)


def arbitrary_errors(given: Floats, surest: Floats, mass: Floats, frames: int, rate: float = 0.0) -> Arbitrary:
    """Estimate the number of arbitrary errors.

    Args:
        given: r(y) [n].
        surest: max_t r(t) [n].
        mass: `mass_by_level` of all labelled events.
        frames: K.
        rate: The rate of such errors that is expected beforehand.
    """
    n = len(given)
    step = max(1, n // LABELS)
    doubt = (1 - np.clip(surest, 0, 1)) ** 2
    rho, d, best, power = 0.1, 0.01, -np.inf, POWERS[0]
    found = rho, d
    for trial in POWERS:
        seen = _foretold(given[::step], mass, trial)
        rho, d, likelihood = _mixture(seen, doubt[::step], frames, rho, d, rate)
        if likelihood < best:  # it rises, then falls
            break
        best, power, found = likelihood, trial, (rho, d)
    rho, d = found
    unforeseen = d * doubt
    right = (1 - unforeseen) * _foretold(given, mass, power) + unforeseen / frames
    log_odds = -np.log(np.maximum(right * frames, 1e-300))
    wrong = rho / frames / np.maximum((1 - rho) * right + rho / frames, 1e-300)
    return Arbitrary(rho * n, wrong, log_odds)


def _foretold(given: Floats, mass: Floats, power: float) -> Floats:
    """g(y)."""
    middle = np.sqrt(np.maximum(LEVELS[:-1], SMALLEST) * LEVELS[1:])
    total = float((_lowered(middle, power) / middle * mass).sum())
    return _lowered(given, power) * (float(mass.sum()) / max(total, SMALLEST))


def _lowered(probability: Floats, power: float) -> Floats:
    r = np.maximum(probability, SMALLEST)
    return np.asarray(r * np.minimum(1.0, r / RELIABLE) ** power, np.float64)


def _mixture(seen: Floats, doubt: Floats, frames: int, rho: float, d: float, rate: float) -> tuple[float, float, float]:
    """Return ρ, d and the mean log likelihood, by EM."""
    for _ in range(ITERATIONS):
        unforeseen = (1 - rho) * d * doubt / frames
        whole = (1 - rho) * (1 - d * doubt) * seen + unforeseen + rho / frames
        wrong = rho / frames / whole
        before, rho = rho, (float(wrong.sum()) + PRIOR * rate) / (len(seen) + PRIOR)
        asked = float((doubt * (1 - wrong)).sum()) + UNFORESEEN[1]
        d = min((float((unforeseen / whole).sum()) + UNFORESEEN[0]) / asked, 0.5)
        if abs(rho - before) < 1e-6:
            break
    return rho, d, float(np.log(whole).mean())
