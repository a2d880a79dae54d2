"""The paper's table of incomplete knowledge: accuracy, macro-F1 and macro-precision when a share ε is seen."""

from __future__ import annotations

from revup.experiments import paper, perplexity
from revup.experiments.grid import FRAMES, Condition, Results, Scope, Section, curves, frame_tables, has_matplotlib
from revup.experiments.grid import plan as grid_plan
from revup.experiments.sweep import Run

EPSILONS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
QUICK = (0.1, 1.0)


def columns(scope: Scope) -> list[Condition]:
    return [
        Condition(f"{epsilon:g}", epsilon, text=epsilon in perplexity.EPSILONS)
        for epsilon in (QUICK if scope.quick else EPSILONS)
    ]


def plan(scope: Scope) -> list[Run]:
    return grid_plan(scope, scope.chosen(FRAMES, lambda system: system.predicts_frames), columns(scope))


def show(scope: Scope, results: Results) -> Section:
    conditions = columns(scope)
    full = Condition("ε = 1", 1.0)
    tables = frame_tables("incomplete", "ε", scope, results, conditions, paper.INCOMPLETE, full)
    section = Section(
        "incomplete",
        "Incomplete knowledge",
        "In training each event's frame is seen with probability ε; what is seen is right. At test no frame is given.",
        tables,
    )
    if has_matplotlib():
        at = [condition.epsilon for condition in conditions]
        figure = curves([tables[0], tables[1], tables[3]], at, "ε, share of frames seen in training")
        caption = (
            "Scores on test events by the share of frames seen in training; bands: one standard deviation over seeds."
        )
        section.figures.append(("incomplete", figure, caption))
    return section
