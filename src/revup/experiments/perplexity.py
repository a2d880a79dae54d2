"""The paper's table of perplexities: RNNLM, HAQAE, then SSDVAE and RevUp by ε; of soft frames, as there, and hard."""

from __future__ import annotations

from revup.experiments import paper
from revup.experiments.grid import (
    TEXT,
    Condition,
    Results,
    Scope,
    Section,
    curves,
    has_matplotlib,
    optimum_rows,
    paper_rows,
    rows,
    score,
)
from revup.experiments.grid import plan as grid_plan
from revup.experiments.sweep import Run
from revup.reporting.tables import Table

EPSILONS = (0.0, 0.1, 0.7, 1.0)
QUICK = (0.1, 1.0)


def columns(scope: Scope) -> list[Condition]:
    return [Condition(f"{epsilon:g}", epsilon) for epsilon in (QUICK if scope.quick else EPSILONS)]


def plan(scope: Scope) -> list[Run]:
    return grid_plan(scope, scope.chosen(TEXT, lambda system: system.writes_text), columns(scope))


def show(scope: Scope, results: Results) -> Section:
    conditions = columns(scope)
    systems = scope.chosen(TEXT, lambda system: system.writes_text)
    at = [condition.epsilon for condition in conditions]
    optimum = optimum_rows(scope, "perplexity", len(at))
    tables = [
        Table(
            f"perplexity-{kind}",
            f"Test perplexity by ε, {kind} frames",
            "ε",
            tuple(condition.label for condition in conditions),
            (*rows(scope, results, systems, conditions, score(measure)), *optimum, *printed),
            caption,
            digits=2,
            higher=False,
        )
        for kind, measure, printed, caption in (
            ("hard", "perplexity_hard", [], "One-hot frames: a latent carries a frame and nothing else."),
            (
                "soft",
                "perplexity",
                paper_rows(paper.PERPLEXITY, at, None),
                "Gumbel-softmax samples of the frames, as the paper has them; a soft sample carries more than a frame.",
            ),
        )
    ]
    section = Section(
        "perplexity",
        "Perplexity",
        "exp of the mean −log p over all five tokens of each event. For all but RNNLM it is that of a reconstruction "
        "from latents inferred from the same text, so it may lie below what any language model can reach. RNNLM and "
        "HAQAE know no frames: the same runs stand in every column.",
        tables,
    )
    if has_matplotlib():
        caption = "Test perplexity (lower is better) by the share of frames seen in training."
        section.figures.append(("perplexity", curves(tables, at, "ε, share of frames seen in training"), caption))
    return section
