"""What is claimed of RevUp, each claim with its verdict, from the runs of the other tables; nothing is trained for it.

Differences are taken seed by seed, RevUp's score less the other system's under the same condition. "By more than one
standard deviation" is by more than the larger of the two systems' own deviations over seeds (0 with a single seed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from revup.experiments import incomplete, noise, perplexity
from revup.experiments.grid import FRAMES, TEXT, Condition, Pick, Results, Scope, Section, System, rows, unlabelled
from revup.experiments.grid import score as score_of
from revup.experiments.sweep import Run
from revup.reporting.tables import Row, Table, summary

DEFAULT, PAPER = System("revup"), System("revup", "paper")
RIVAL, PAPER_RIVAL = System("ssdvae"), System("ssdvae", "paper")
LOOKUP, TAGGER, HAQAE = System("lookup"), System("tagger"), System("haqae")


def plan(scope: Scope) -> list[Run]:
    return [*incomplete.plan(scope), *noise.plan(scope), *perplexity.plan(scope)]


@dataclass(frozen=True)
class Compared:
    """One system's score against another's under a condition."""

    where: str
    difference: float  # larger is better for the first
    deviation: float
    digits: int = 3

    @property
    def behind(self) -> bool:
        return self.difference < -self.deviation

    def __str__(self) -> str:
        return f"{self.where} ({self.difference:+.{self.digits}f}, deviation {self.deviation:.{self.digits}f})"


@dataclass(frozen=True)
class Measure:
    """What is compared, and under which conditions."""

    name: str
    title: str
    pick: Pick
    conditions: Sequence[Condition]
    sign: int = 1  # −1: smaller is better
    digits: int = 3

    def compare(self, scope: Scope, results: Results, first: System, second: System) -> list[Compared]:
        """Under every condition, over the seeds for which both have a score."""
        found = []
        for condition, seeds in zip(self.conditions, self._pairs(scope, results, first, second), strict=True):
            both = [pair for pair in seeds if None not in pair]
            if both:
                ours, others = (summary(values) for values in zip(*both, strict=True))
                assert ours.mean is not None
                assert others.mean is not None
                where = f"{self.title} at {condition.label} against {second.label}"
                deviation = max(ours.deviation or 0.0, others.deviation or 0.0)
                found.append(Compared(where, self.sign * (ours.mean - others.mean), deviation, self.digits))
        return found

    def table(self, scope: Scope, results: Results, pairs: Sequence[tuple[System, System]]) -> Table:
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
        caption = f"{better} 0 the first system is better."
        return Table(f"claims-{self.name}", title, "", columns, tuple(made), caption, self.digits, compete=False)

    def _pairs(self, scope: Scope, results: Results, *systems: System) -> list[list[tuple[float | None, float | None]]]:
        """Condition by condition, seed by seed: what the two systems have."""
        first, second = rows(scope, results, systems, self.conditions, self.pick)
        return [list(zip(*cells, strict=True)) for cells in zip(first.cells, second.cells, strict=True)]


def show(scope: Scope, results: Results) -> Section:
    known = _labelled("ε", incomplete.columns(scope)) + _labelled("η", noise.columns(scope))
    written = _labelled("ε", perplexity.columns(scope))
    accuracy = Measure("accuracy", "accuracy", score_of("accuracy"), known)
    f1 = Measure("macro-f1", "macro-F1", score_of("macro_f1"), known)
    apart = Measure("unlabelled", "accuracy on unlabelled predicates", unlabelled, known)
    hard = Measure("perplexity", "perplexity, hard frames", score_of("perplexity_hard"), written, -1, 2)

    frames = scope.chosen(FRAMES, lambda system: system.predicts_frames)
    text = scope.chosen(TEXT, lambda system: system.writes_text)
    others = [system for system in frames if system != DEFAULT]

    def compare(first: System, seconds: Sequence[System], *measures: Measure) -> list[Compared]:
        there = [second for second in seconds if second in (*frames, *text)]
        return [c for m in measures for second in there for c in m.compare(scope, results, first, second)]

    verdicts = [
        _verdict(
            "(a) RevUp `paper` against SSDVAE `paper`: ahead in accuracy and macro-F1, as in the paper",
            compare(PAPER, [PAPER_RIVAL], accuracy, f1),
            lambda found: found.difference > 0,
        ),
        _verdict(
            "(b) RevUp `default` is not below any other system by more than one standard deviation",
            compare(DEFAULT, others, accuracy, f1),
            lambda found: not found.behind,
        ),
        _verdict(
            "(b) RevUp `default` is ahead of the lookup table and of SSDVAE `paper`",
            compare(DEFAULT, [LOOKUP, PAPER_RIVAL], accuracy, f1),
            lambda found: found.difference > 0,
        ),
        _verdict(
            "(b) On predicates that never carried a frame, RevUp `default` is ahead of every other system",
            compare(DEFAULT, others, apart),
            lambda found: found.difference > 0,
        ),
        _verdict(
            "(c) RevUp `default` has a lower perplexity (hard frames) than SSDVAE and HAQAE",
            compare(DEFAULT, [RIVAL, PAPER_RIVAL, HAQAE], hard),
            lambda found: found.difference > 0,
        ),
        _verdict(
            "(d) Revise and update add something over SSDVAE with the same alignment, by more than one deviation",
            compare(DEFAULT, [RIVAL], accuracy, f1),
            lambda found: found.difference > found.deviation,
        ),
        _verdict(
            "(d) and over the tagger",
            compare(DEFAULT, [TAGGER], accuracy, f1),
            lambda found: found.difference > found.deviation,
        ),
    ]
    pairs = [(DEFAULT, other) for other in others]
    pairs += [(PAPER, PAPER_RIVAL)] if {PAPER, PAPER_RIVAL} <= set(frames) else []
    readers = [(DEFAULT, other) for other in text if other not in (DEFAULT, System("rnnlm"))]
    return Section(
        "claims",
        "Claims and verdicts",
        "\n\n".join(verdicts),
        [
            *(m.table(scope, results, pairs) for m in (accuracy, f1, apart)),
            hard.table(scope, results, readers),
        ],
    )


def _labelled(letter: str, conditions: Sequence[Condition]) -> list[Condition]:
    return [Condition(f"{letter}={c.label}", c.epsilon, c.eta, c.text) for c in conditions]


def _verdict(claim: str, found: Sequence[Compared], holds: Callable[[Compared], bool]) -> str:
    """A claim with how often it holds, and where it fails most."""
    if not found:
        return f"{claim}: **not measured**."
    failing = sorted((f for f in found if not holds(f)), key=lambda f: f.difference)
    if not failing:
        least = min(found, key=lambda f: f.difference)
        return f"{claim}: **holds** in all {len(found)} comparisons; closest: {least}."
    kept = len(found) - len(failing)
    named = "; ".join(str(f) for f in failing[:3])
    how = "does not hold" if not kept else f"holds in {kept} of {len(found)} comparisons"
    return f"{claim}: **{how}**; farthest off: {named}."
