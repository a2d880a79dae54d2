"""The figure of ε̂ = 1 − ε·λ/(1+λ): the expected share of the proposal in the revised distribution."""

from __future__ import annotations

import math
from typing import Any

from revup.bottleneck import expected_reliance
from revup.experiments.sections import Section
from revup.reporting.figures import BLUE, canvas
from revup.reporting.tables import Row, Table

STRENGTHS = (0.1, 0.5, 1.0, 2.0, 5.0, math.inf)
EPSILONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


def section() -> Section:
    """ε̂ by ε and λ: a formula, so no runs."""
    table = Table(
        "reliance",
        "Expected reliance on the proposal, ε̂, by ε and λ",
        "ε",
        tuple(f"{epsilon:g}" for epsilon in EPSILONS),
        tuple(Row(_name(s), tuple((expected_reliance(epsilon, s),) for epsilon in EPSILONS)) for s in STRENGTHS),
        compete=False,
    )
    return Section(
        "reliance",
        "Reliance on the proposal",
        "With l ~ Bernoulli(ε), the revised distribution is on average ε̂·r + (1−ε̂)·p_D, with ε̂ = 1 − ε·λ/(1+λ). At "
        "λ = 1, the paper's choice, the proposal has a weight of one half even where every label is observed. This is "
        "exact: nothing is trained.",
        [table],
        [("reliance", _figure, "ε̂ against ε, a line for each λ.")],
    )


def _name(strength: float) -> str:
    return "λ = ∞" if math.isinf(strength) else f"λ = {strength:g}"


def _figure() -> Any:
    figure, ((ax,),) = canvas(5.2, 3.8)
    for number, strength in enumerate(STRENGTHS):
        shade = str(0.75 - 0.75 * number / (len(STRENGTHS) - 1)) if strength != 1 else BLUE
        ends = [expected_reliance(epsilon, strength) for epsilon in (0.0, 1.0)]
        ax.plot((0, 1), ends, color=shade, linewidth=2.2 if strength == 1 else 1.3)
        ax.annotate(_name(strength), (1, ends[1]), (4, 0), textcoords="offset points", fontsize=9, va="center")
    ax.set(xlabel="ε, share of labels observed", ylabel="ε̂, reliance on the proposal", xlim=(0, 1), ylim=(0, 1.02))
    return figure
