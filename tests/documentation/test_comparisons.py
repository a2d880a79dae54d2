"""The tables of the results that compare systems across experiments: made-up runs with known answers."""

from __future__ import annotations

import itertools
from importlib import import_module
from typing import Any

import pytest

from experiments.test_tabulate import dataset, run_line
from paths import ROOT
from revup.experiments.aggregate import METHODS
from revup.experiments.catalogue import EXPERIMENTS, ORDER
from revup.experiments.runs import Condition, Line, System, existing
from revup.experiments.tabulate import Found

NUMBERS = itertools.count()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a place of `incomplete` out of lines."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    places, tables = import_module("comparisons.places"), import_module("comparisons.tables")

    def make(lines: list[Line]) -> Any:
        file = f"file-{next(NUMBERS)}"  # the modules remember what they read
        monkeypatch.setattr(places, "found", lambda file, data: Found(dataset(), lines))
        place = places.Place("corpus", "labels", file, "d", "incomplete")
        monkeypatch.setattr(tables, "PLACES", [place])
        monkeypatch.setattr(tables, "WORLD", [])
        return place

    return make


def line(system: str, right: list[int], nll: list[int], seed: int = 0) -> Line:
    made = run_line(system, Condition(), seed, right)
    return {**made, "documents": {"events": [4, 4], "right": right, "nll": nll}}


def module(name: str) -> Any:
    return import_module(f"comparisons.{name}")


def test_who_is_ahead_has_the_right_sign_in_both_measures(made: Any) -> None:
    made(
        [
            line("revup", [2, 2], [9000, 9000]),
            line("counts", [3, 3], [8000, 8000]),
            line("tagger", [1, 1], [9900, 9900]),
        ]
    )
    (row,) = [each for each in module("tables").behind().splitlines() if each.startswith("| corpus | ")]
    assert row == "| corpus | labels | counts | .250 [.250, .250] | .025 [.025, .025] |"


def test_systems_are_the_same_only_if_probabilities_are(made: Any) -> None:
    place = made(
        [
            line("revup", [2, 3], [9000, 9000]),
            line("counts", [2, 3], [9000, 9000]),
            line("tagger", [2, 3], [9000, 9001]),
        ]
    )
    cells = module("cells")
    assert cells.difference(place, "RevUp default", "Counts") == cells.SAME
    assert cells.difference(place, "RevUp default", "Tagger default") == "+.000 [+.000, +.000]"


def test_missing_seeds_are_said_and_never_the_best(made: Any) -> None:
    lines = [
        line(system, [1, 1], [9000, 9000], seed)
        for system in ("revup", "logistic", "tagger:selftrain")
        for seed in (0, 1)
    ]
    place = made([*lines, line("tagger:consistency", [3, 3], [8000, 8000], 1)])
    cells = module("cells")
    assert cells.score(place, "Tagger consistency") == ".750 (1 of 2 seeds)"
    assert cells.difference(place, "RevUp default", "Tagger consistency").endswith("(1 of 2 seeds)**\\*")
    assert cells.best_rivals(place) == ["Logistic", "Tagger selftrain"]  # both, as they are equal


def test_seeds_that_differ_in_sign_are_marked(made: Any) -> None:
    place = made(
        [line("revup", right, [9000, 9000], seed) for seed, right in enumerate(([4, 4], [1, 1]))]
        + [line("counts", [2, 2], [9000, 9000], seed) for seed in (0, 1)]
    )
    assert module("cells").difference(place, "RevUp default", "Counts") == "**+.125 [+.125, +.125]**\\*†"


def test_numbers_have_no_leading_zero_and_a_true_minus(made: Any) -> None:
    number = module("cells").number
    assert [number(0.5), number(-0.0004), number(0.002, 3, True), number(2.59, 2)] == [".500", "−.000", "+.002", "2.59"]


def test_names_are_of_rows_that_experiments_have(made: Any) -> None:
    rows = {system.label for system in existing(ORDER)}
    sources = EXPERIMENTS["sources"].cells(dataset(), [System("tagger")], False)
    rows |= {cell.row for cell in sources}
    assert {*module("places").NAMES} <= rows
    assert len(METHODS) == sum(" + " in name for name in module("places").RIVALS)


def test_a_table_without_its_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    program = import_module("make_results")
    text = f"{program.START}scores -->\nprose\n\n{program.START}marks -->\n<!-- end -->\n"
    with pytest.raises(ValueError, match="lacks its"):
        program.written(text)
