"""The paper's table of noisy knowledge: every label is observed, but each is replaced at random with probability η."""

from __future__ import annotations

from revup.experiments import paper
from revup.experiments.grid import Condition, Results, Scope, Section, frame_tables, scores
from revup.experiments.incomplete import PANELS
from revup.experiments.results import Result, Run
from revup.reporting.figures import score_curves
from revup.reporting.tables import Row, Table, quoted

ETAS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
QUICK = (0.5,)
CLEAN = Condition("η = 0")


def columns(scope: Scope) -> list[Condition]:
    """The values of η."""
    return [Condition(f"{eta:g}", 1.0, eta, text=False) for eta in (QUICK if scope.quick else ETAS)]


def plan(scope: Scope) -> list[Run]:
    """Every system at every η, and without noise: accuracies are also shown relative to that."""
    return scope.runs(scope.frame_systems, [*columns(scope), CLEAN])


def show(scope: Scope, results: Results) -> Section:
    """Scores by η, and the noise rate that models estimate."""
    conditions = columns(scope)
    etas = [condition.eta for condition in conditions]
    tables = frame_tables("noise", "η", scope, results, conditions, paper.NOISE, CLEAN)
    shown = [tables[0], tables[1], tables[3]]
    section = Section(
        "noise",
        "Noisy labels",
        "In training every label is observed, but with probability η it is replaced by a frame drawn uniformly from "
        "all frames. No system is given η.",
        [*tables, _estimates(scope, results, conditions)],
    )
    if len(etas) > 1:
        section.figures.append(
            (
                "noise",
                lambda: score_curves(shown, etas, "η, share of labels replaced at random", PANELS),
                "Test scores by the share of labels replaced in training; bands: one standard deviation over seeds.",
            )
        )
    return section


def _estimates(scope: Scope, results: Results, conditions: list[Condition]) -> Table:
    """The noise rate that models estimate from the labels they are given."""

    def pick(result: Result) -> float | None:
        estimating = result["config"]["objective"].get("noise") == "estimated"
        return result["figures"].get("noise_rate") if estimating else None

    found = {s.label: scores(scope, results, s, conditions, pick) for s in scope.frame_systems}
    estimating = [
        Row(label, cells)
        for label, cells in found.items()
        if any(value is not None for seeds in cells for value in seeds)
    ]
    return Table(
        "noise-estimates",
        "Estimated noise rate",
        "η",
        tuple(condition.label for condition in conditions),
        (*estimating, quoted("true", [condition.eta for condition in conditions])),
        "Estimated from contradictions among the labels of events with the same predicate.",
        compete=False,
    )
