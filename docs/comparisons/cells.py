"""Cells of tables: scores and differences as these pages show them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from comparisons.places import NAMES, RIVALS, Place
from revup.experiments.bootstrap import Interval, interval
from revup.experiments.tabulate import MEASURES, Difference, Samples

NONE, SAME = "–", "same"


def number(value: float, digits: int = 3, signed: bool = False) -> str:
    """A number without a leading zero, with a true minus."""
    text = f"{abs(value):.{digits}f}"
    text = text[1:] if text.startswith("0.") else text
    return f"{'−' if value < 0 else '+' if signed else ''}{text}"


def between(ends: Interval, digits: int = 3, signed: bool = True) -> str:
    """An interval."""
    return f"[{number(ends[0], digits, signed)}, {number(ends[1], digits, signed)}]"


def named(row: str) -> str:
    """What a row is called."""
    return NAMES.get(row, row)


def mean(samples: Samples) -> float:
    """The mean over seeds."""
    return statistics.fmean(float(each[-1]) for each in samples.drawn.values())


def score(place: Place, row: str, measure: str = "", within: bool = False) -> str:
    """A row's score, with its interval if wanted."""
    digits = MEASURES[measure or place.measure].digits
    samples = place.samples(row, measure)
    if not samples.drawn:
        return NONE
    shown = number(mean(samples), digits) + of_seeds(place, len(samples.drawn))
    around = interval([*samples.drawn.values()])
    return f"{shown} {between(around, digits, False)}" if within and around else shown


def of_seeds(place: Place, seeds: int) -> str:
    """How many seeds something rests on, where some are missing."""
    return f" ({seeds} of {place.seeds} seeds)" if seeds < place.seeds else ""


def opposed(found: Difference) -> bool:
    """Whether a difference is one although seeds differ in sign."""
    return found.called and min(found.values) < 0 < max(found.values)


def difference(place: Place, first: str, second: str, measure: str = "", other: Place | None = None) -> str:
    """A row minus another, of another place if one is named, with its mark."""
    if other is None and place.same(first, second):
        return SAME
    digits = MEASURES[measure or place.measure].digits
    found = place.minus(first, second, measure, other)
    if found.within is None:
        return NONE
    shown = f"{number(statistics.fmean(found.values), digits, True)} {between(found.within, digits)}"
    shown += of_seeds(place, len(found.values))
    if not found.called:
        return shown
    mark = " (\\*)" if found.unsure else "\\*"
    return f"**{shown}**{mark}{'†' if opposed(found) else ''}"


def best_rivals(place: Place) -> list[str]:
    """The rivals with the best test score, several if they are equal; none where none was run with all seeds."""
    means = {
        row: mean(samples)
        for row in place.rows
        if row in RIVALS and len((samples := place.samples(row)).drawn) == place.seeds
    }
    if not means:
        return []
    best = (max if MEASURES[place.measure].higher else min)(means.values())
    return [row for row, value in means.items() if value == best]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))
