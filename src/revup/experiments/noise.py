"""The paper's table of noisy knowledge: everything is seen, but a share η of it was replaced by random frames."""

from __future__ import annotations

from revup.experiments import paper
from revup.experiments.grid import (
    FRAMES,
    Condition,
    Results,
    Scope,
    Section,
    curves,
    frame_tables,
    has_matplotlib,
    rows,
)
from revup.experiments.grid import plan as grid_plan
from revup.experiments.sweep import Result, Run
from revup.reporting.tables import Table, quoted

ETAS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
QUICK = (0.5,)
CLEAN = Condition("η = 0")


def columns(scope: Scope) -> list[Condition]:
    return [Condition(f"{eta:g}", 1.0, eta, text=False) for eta in (QUICK if scope.quick else ETAS)]


def plan(scope: Scope) -> list[Run]:
    """The clean runs too, which are those of the other table at ε = 1: what is kept is a share of their accuracy."""
    return grid_plan(scope, scope.chosen(FRAMES, lambda system: system.predicts_frames), [*columns(scope), CLEAN])


def show(scope: Scope, results: Results) -> Section:
    conditions = columns(scope)
    etas = [condition.eta for condition in conditions]
    tables = frame_tables("noise", "η", scope, results, conditions, paper.NOISE, CLEAN)
    section = Section(
        "noise",
        "Noisy knowledge",
        "In training every frame is seen, but with probability η it was replaced by one drawn uniformly from all. No "
        "system is told η.",
        [*tables, _estimates(scope, results, conditions)],
    )
    if has_matplotlib() and len(etas) > 1:
        figure = curves([tables[0], tables[1], tables[3]], etas, "η, share of frames replaced at random")
        caption = "Scores on test events by the share of wrong frames; bands: one standard deviation over seeds."
        section.figures.append(("noise", figure, caption))
    return section


def _estimates(scope: Scope, results: Results, conditions: list[Condition]) -> Table:
    """The error rate that models estimate from what they are given."""

    def pick(result: Result) -> float | None:
        estimating = result["config"]["objective"].get("noise") == "estimated"
        return result["figures"].get("noise_rate") if estimating else None

    systems = scope.chosen(FRAMES, lambda system: system.predicts_frames)
    found = rows(scope, results, systems, conditions, pick)
    estimating = [row for row in found if any(value is not None for cell in row.cells for value in cell)]
    return Table(
        "noise-estimates",
        "Error rates estimated from the frames given",
        "η",
        tuple(condition.label for condition in conditions),
        (*estimating, quoted("true", [condition.eta for condition in conditions])),
        "Estimated from contradictions among events of the same predicate; reported to the user.",
        compete=False,
    )
