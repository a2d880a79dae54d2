"""The small search: each row of a table has the settings that its own observed validation labels choose.

A row is searched at one column of its table (`Experiment.searched`), with the first seed: the candidates of its system
(`revup.models.rivals.search`), the preset first, are trained there. The one that the *observed* labels of the
validation split favour is used in all columns and with all seeds. Reference frames choose nothing. The choice is made
from the lines of the candidates' runs, so that tables can be made from a file of runs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from revup.experiments.catalogue import Cell, Experiment
from revup.experiments.runs import Line, Settings
from revup.models.rivals.search import candidates

SEED = 0  # of the candidates

Row = tuple[str, str]  # part, row


def trials(experiment: Experiment, cells: Sequence[Cell]) -> dict[Row, list[Cell]]:
    """The cells to train for the search of each row that is searched, one for each candidate, the preset first.

    Args:
        experiment: The experiment.
        cells: Its cells, of all columns.
    """
    at = {(cell.part, cell.row): cell for cell in cells if cell.column in experiment.searched}
    return {
        row: [with_settings(cell, settings) for settings in found]
        for row, cell in at.items()
        if len(found := _candidates(cell)) > 1
    }


def choices(
    measure: str, searched: Mapping[Row, Sequence[Cell]], line: Callable[[Cell], Line | None]
) -> dict[Row, Settings]:
    """The settings of each row whose candidates have all been trained.

    Args:
        measure: The measure that the experiment's first table shows: accuracy decides by the share of observed labels
            that are predicted, then by their −log p; any other measure by the latter alone.
        searched: What `trials` returned.
        line: Returns the line of a candidate's run, None where there is none.
    """
    found = {}
    for row, cells in searched.items():
        lines = [line(cell) for cell in cells]
        scores = [each["observed"] for each in lines if each is not None and each.get("observed")]
        if len(scores) == len(cells):
            ranks = [(s["accuracy"] if measure == "accuracy" else 0.0, -s["label_nll"]) for s in scores]
            found[row] = cells[ranks.index(max(ranks))].condition.changed
    return found


def chosen(cells: Iterable[Cell], settings: Mapping[Row, Settings]) -> list[Cell]:
    """The same cells with the settings that were chosen for their rows."""
    return [with_settings(cell, settings.get((cell.part, cell.row), ())) for cell in cells]


def with_settings(cell: Cell, settings: Settings) -> Cell:
    """A cell with further settings."""
    return replace(cell, condition=replace(cell.condition, changed=(*cell.condition.changed, *settings)))


def described(experiment: Experiment, settings: Mapping[Row, Settings], rows: Iterable[Row]) -> str:
    """What was chosen, as a paragraph of text; empty where nothing was searched."""
    listed = [row for row in dict.fromkeys(rows) if row in settings]
    if not listed:
        return ""
    parts = {part: [row for p, row in listed if p == part] for part, _ in listed}
    told = []
    for part, names in parts.items():
        other = [f"{row} {_shown(settings[part, row])}" for row in names if settings[part, row]]
        told.append((f"{part}: " if part else "") + ("; ".join(other) or "the preset of every row"))
    where = f"{experiment.corner} = {' or '.join(experiment.searched)}" if experiment.corner else "one column"
    return (
        f"Small search: {len(set(listed))} rows had four candidates each for settings of their own, trained at {where} "
        f"with seed {SEED} and chosen by the observed labels of the validation split. Chosen in place of the preset: "
        f"{'. '.join(told)}."
    )


def _candidates(cell: Cell) -> list[Settings]:
    return [
        tuple(sorted((section, name, value) for section, values in each.items() for name, value in values.items()))
        for each in candidates(cell.system.model, cell.system.preset)
    ]


def _shown(settings: Settings) -> str:
    return ", ".join(f"{section}.{name.replace('_', '-')} = {value}" for section, name, value in settings)
