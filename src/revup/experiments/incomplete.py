"""The paper's table of incomplete knowledge: scores when each label is observed with probability ε."""

from __future__ import annotations

from revup.experiments import paper, perplexity
from revup.experiments.grid import Condition, Results, Scope, Section, frame_tables
from revup.experiments.results import Run
from revup.reporting.figures import score_curves

EPSILONS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
QUICK = (0.1, 1.0)
PANELS = ("Accuracy", "Macro-F1", "Accuracy, unlabelled predicates")


def columns(scope: Scope) -> list[Condition]:
    """The values of ε."""
    return [
        Condition(f"{epsilon:g}", epsilon, text=epsilon in perplexity.EPSILONS)
        for epsilon in (QUICK if scope.quick else EPSILONS)
    ]


def plan(scope: Scope) -> list[Run]:
    """Every system at every ε."""
    return scope.runs(scope.frame_systems, columns(scope))


def show(scope: Scope, results: Results) -> Section:
    """Scores by ε."""
    conditions = columns(scope)
    tables = frame_tables("incomplete", "ε", scope, results, conditions, paper.INCOMPLETE, Condition("ε = 1"))
    at = [condition.epsilon for condition in conditions]
    shown = [tables[0], tables[1], tables[3]]
    return Section(
        "incomplete",
        "Incomplete labels",
        "In training each event's label is observed with probability ε, and observed labels are correct. At test no "
        "label is given.",
        tables,
        [
            (
                "incomplete",
                lambda: score_curves(shown, at, "ε, share of labels observed in training", PANELS),
                "Test scores by the share of labels observed in training; bands: one standard deviation over seeds.",
            )
        ],
    )
