"""Claims about RevUp, each with its verdict, from the runs of the other tables; nothing more is trained.

Differences are taken seed by seed: RevUp's score minus the other system's under the same condition. "More than one
standard deviation" is more than the larger of the two systems' own deviations over seeds (0 with a single seed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from revup.experiments import incomplete, noise, perplexity
from revup.experiments.grid import Condition, Pick, Results, Scope, Section, System, score, scores
from revup.experiments.results import Run
from revup.reporting.tables import Row, Table, summary

DEFAULT, PAPER = System("revup"), System("revup", "paper")
RIVAL, PAPER_RIVAL = System("ssdvae"), System("ssdvae", "paper")
LOOKUP, TAGGER, HAQAE = System("lookup"), System("tagger"), System("haqae")


def plan(scope: Scope) -> list[Run]:
    """The runs of the three tables."""
    return [*incomplete.plan(scope), *noise.plan(scope), *perplexity.plan(scope)]


@dataclass(frozen=True)
class Difference:
    """One system's score minus another's under a condition."""

    where: str
    value: float  # positive: the first system is better
    deviation: float
    digits: int = 3

    def __str__(self) -> str:
        return f"{self.where} ({self.value:+.{self.digits}f}, deviation {self.deviation:.{self.digits}f})"


@dataclass(frozen=True)
class Measure:
    """A score that is compared, and under which conditions."""

    name: str
    title: str
    pick: Pick
    conditions: Sequence[Condition]
    sign: int = 1  # −1: smaller is better
    digits: int = 3

    def compare(self, scope: Scope, results: Results, first: System, second: System) -> list[Difference]:
        """The difference under every condition, over the seeds for which both have a score."""
        found = []
        for condition, seeds in zip(self.conditions, self._pairs(scope, results, first, second), strict=True):
            both = [pair for pair in seeds if None not in pair]
            if both:
                ours, others = (summary(values) for values in zip(*both, strict=True))
                assert ours.mean is not None
                assert others.mean is not None
                where = f"{self.title} at {condition.label} against {second.label}"
                deviation = max(ours.deviation or 0.0, others.deviation or 0.0)
                found.append(Difference(where, self.sign * (ours.mean - others.mean), deviation, self.digits))
        return found

    def table(self, scope: Scope, results: Results, pairs: Sequence[tuple[System, System]]) -> Table:
        """All differences, seed by seed."""
        made = [
            Row(
                f"{first.label} − {second.label}",
                tuple(
                    tuple(None if a is None or b is None else a - b for a, b in seeds)
                    for seeds in self._pairs(scope, results, first, second)
                ),
            )
            for first, second in pairs
        ]
        columns = tuple(condition.label for condition in self.conditions)
        title = f"{self.title[0].upper()}{self.title[1:]}: differences, seed by seed"
        better = "Above" if self.sign > 0 else "Below"
        caption = f"{better} 0, the first system is better."
        return Table(f"claims-{self.name}", title, "", columns, tuple(made), caption, self.digits, compete=False)

    def _pairs(self, scope: Scope, results: Results, *systems: System) -> list[list[tuple[float | None, float | None]]]:
        """Condition by condition, seed by seed: the scores of the two systems."""
        first, second = (scores(scope, results, system, self.conditions, self.pick) for system in systems)
        return [list(zip(*seeds, strict=True)) for seeds in zip(first, second, strict=True)]


def show(scope: Scope, results: Results) -> Section:
    """The verdicts, and the differences they are made of."""
    known = _named("ε", incomplete.columns(scope)) + _named("η", noise.columns(scope))
    written = _named("ε", perplexity.columns(scope))
    accuracy = Measure("accuracy", "accuracy", score("accuracy"), known)
    f1 = Measure("macro-f1", "macro-F1", score("macro_f1"), known)
    apart = Measure("unlabelled", "accuracy on unlabelled predicates", score("unlabelled", "accuracy"), known)
    hard = Measure("perplexity", "perplexity, hard frames", score("perplexity_hard"), written, -1, 2)

    frames, text = scope.frame_systems, scope.text_systems
    others = [system for system in frames if system != DEFAULT]

    def compare(first: System, seconds: Sequence[System], *measures: Measure) -> list[Difference]:
        there = [second for second in seconds if second in (*frames, *text)]
        return [c for m in measures for second in there for c in m.compare(scope, results, first, second)]

    claims: list[tuple[str, list[Difference], int]] = [  # the last: by how many standard deviations it must be better
        (
            "(a) RevUp `paper` has higher accuracy and macro-F1 than SSDVAE `paper`, as in the paper",
            compare(PAPER, [PAPER_RIVAL], accuracy, f1),
            0,
        ),
        (
            "(b) RevUp `default` is not below any other system by more than one standard deviation",
            compare(DEFAULT, others, accuracy, f1),
            -1,
        ),
        (
            "(b) RevUp `default` is better than the lookup table and SSDVAE `paper`",
            compare(DEFAULT, [LOOKUP, PAPER_RIVAL], accuracy, f1),
            0,
        ),
        (
            "(b) On predicates without a training label, RevUp `default` is better than every other system",
            compare(DEFAULT, others, apart),
            0,
        ),
        (
            "(c) RevUp `default` has a lower perplexity (hard frames) than SSDVAE and HAQAE",
            compare(DEFAULT, [RIVAL, PAPER_RIVAL, HAQAE], hard),
            0,
        ),
        (
            "(d) Revise and update improve on SSDVAE with the same alignment by more than one standard deviation",
            compare(DEFAULT, [RIVAL], accuracy, f1),
            1,
        ),
        ("(d) and on the tagger", compare(DEFAULT, [TAGGER], accuracy, f1), 1),
    ]
    pairs = [(DEFAULT, other) for other in others]
    pairs += [(PAPER, PAPER_RIVAL)] if {PAPER, PAPER_RIVAL} <= set(frames) else []
    readers = [(DEFAULT, other) for other in text if other not in (DEFAULT, System("rnnlm"))]
    return Section(
        "claims",
        "Claims and verdicts",
        "\n\n".join(_verdict(*claim) for claim in claims),
        [
            *(m.table(scope, results, pairs) for m in (accuracy, f1, apart)),
            hard.table(scope, results, readers),
        ],
    )


def _named(letter: str, conditions: Sequence[Condition]) -> list[Condition]:
    return [Condition(f"{letter}={c.label}", c.epsilon, c.eta, c.text) for c in conditions]


def _verdict(claim: str, found: Sequence[Difference], margin: int) -> str:
    """A claim with the number of comparisons in which it holds, and where it fails most.

    Args:
        claim: What is claimed.
        found: All comparisons.
        margin: Standard deviations by which the first system must be better; −1: it may be worse by one.
    """
    if not found:
        return f"{claim}: **not measured**."
    ordered = sorted(found, key=lambda f: f.value)
    failing = [f for f in ordered if (f.value < -f.deviation if margin < 0 else f.value <= margin * f.deviation)]
    if not failing:
        return f"{claim}: **holds** in all {len(found)} comparisons; closest: {ordered[0]}."
    kept = len(found) - len(failing)
    how = "does not hold" if not kept else f"holds in {kept} of {len(found)} comparisons"
    return f"{claim}: **{how}**; worst cases: {'; '.join(str(f) for f in failing[:3])}."
