"""The paper's table of perplexities by ε, with soft frames as in the paper and with hard frames."""

from __future__ import annotations

from revup.experiments import paper
from revup.experiments.grid import Condition, Results, Scope, Section, optimum_rows, paper_rows, rows, score
from revup.experiments.results import Run
from revup.reporting.figures import score_curves
from revup.reporting.tables import Table

EPSILONS = (0.0, 0.1, 0.7, 1.0)
QUICK = (0.1, 1.0)


def columns(scope: Scope) -> list[Condition]:
    """The values of ε."""
    return [Condition(f"{epsilon:g}", epsilon) for epsilon in (QUICK if scope.quick else EPSILONS)]


def plan(scope: Scope) -> list[Run]:
    """Every system that writes text at every ε."""
    return scope.runs(scope.text_systems, columns(scope))


def show(scope: Scope, results: Results) -> Section:
    """Perplexities by ε."""
    conditions = columns(scope)
    at = [condition.epsilon for condition in conditions]
    optimum = optimum_rows(scope, "perplexity", len(at))
    tables = [
        Table(
            f"perplexity-{kind}",
            f"Test perplexity by ε, {kind} frames",
            "ε",
            tuple(condition.label for condition in conditions),
            (*rows(scope, results, scope.text_systems, conditions, score(measure)), *optimum, *printed),
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
                "Gumbel-softmax samples of the frames, as in the paper; a soft sample carries more than a frame.",
            ),
        )
    ]
    return Section(
        "perplexity",
        "Perplexity",
        "exp of the mean −log p over all five tokens of each event. For all systems but RNNLM this is the perplexity "
        "of a reconstruction from latents inferred from the same text, so it can be lower than that of any language "
        "model. RNNLM and HAQAE have no frames: the same runs are shown in every column.",
        tables,
        [
            (
                "perplexity",
                lambda: score_curves(tables, at, "ε, share of labels observed in training"),
                "Test perplexity (lower is better) by the share of labels observed in training.",
            )
        ],
    )
