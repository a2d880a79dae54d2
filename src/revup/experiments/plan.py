"""Which runs some experiments need on some datasets: those of a search first, then those of the tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from revup.experiments import search
from revup.experiments.aggregate import lacking
from revup.experiments.catalogue import EXPERIMENTS, Cell
from revup.experiments.datasets import REVEALED
from revup.experiments.runs import Line, Run, Settings, System, existing
from revup.experiments.sweep import Outcome
from revup.settings import Overrides

NOTHING = ("none of the systems fits it", "it has too few frames in common with the datasets to test on")


@dataclass
class Plan:
    """The runs that some experiments need.

    Attributes:
        names: The experiments.
        systems: Systems, where others than each experiment's own are wanted.
        seeds: The seeds.
        overrides: Settings of all runs.
        few: Whether to use few conditions.
        columns: Columns of the tables, where not all are wanted.
        searching: Whether each row's settings are searched first.
        without: Systems that are left out.
        notes: What is left out, and why.
    """

    names: Sequence[str]
    systems: tuple[System, ...] | None
    seeds: tuple[int, ...]
    overrides: Overrides
    few: bool
    columns: Collection[str] = ()
    searching: bool = False
    without: Collection[System] = ()
    notes: list[str] = field(default_factory=list)
    _cells: list[tuple[str, str, list[Cell]]] = field(default_factory=list)  # experiment, dataset, cells

    def add(self, dataset: Line, labels: Path) -> None:
        """Add the runs on a dataset.

        Args:
            dataset: The dataset's line.
            labels: Where aggregated labels are kept.
        """
        for name in self.names:
            if name not in EXPERIMENTS:
                continue
            each = EXPERIMENTS[name]
            if why := each.lacks(dataset):
                self.notes.append(f"{name} leaves out {dataset['dataset']}: {why}")
                continue
            systems = self.systems if self.systems is not None else existing(each.systems)
            cells = each.cells(dataset, [system for system in systems if system not in self.without], self.few)
            if not cells:
                self.notes.append(f"{name} leaves out {dataset['dataset']}: {NOTHING[name == 'transfer']}")
            lacks = {
                cell: why for cell in cells if self._wanted(cell) and (why := self._lacking(cell, dataset, labels))
            }
            self.notes += dict.fromkeys(f"{name} leaves out {cell.row}: {why}" for cell, why in lacks.items())
            self._cells.append((name, dataset["dataset"], [cell for cell in cells if cell not in lacks]))

    def first(self) -> list[Run]:
        """The runs that depend on no other: those of the search, and of rows that have none."""
        found = []
        for name, data, cells in self._cells:
            tried = self._trials(name, cells)
            found += [self._run(cell, data, search.SEED) for row in tried.values() for cell in row]
            others = [cell for cell in cells if (cell.part, cell.row) not in tried]
            found += [self._run(cell, data, seed) for cell in others if self._wanted(cell) for seed in self.seeds]
        return found

    def runs(self, searched: Mapping[Run, Line] | None = None) -> dict[str, list[Run]]:
        """The runs of each experiment, some of them more than once.

        Args:
            searched: Lines of the runs that `first` named.
        """
        found: dict[str, list[Run]] = {}
        for name, data, cells in self._cells:
            for cell in search.chosen(cells, self._choices(name, data, cells, searched or {})):
                if self._wanted(cell):
                    found.setdefault(name, []).extend(self._run(cell, data, seed) for seed in self.seeds)
        return found

    def _choices(
        self, name: str, data: str, cells: Sequence[Cell], lines: Mapping[Run, Line]
    ) -> dict[search.Row, Settings]:
        def line(cell: Cell) -> Line | None:
            return lines.get(self._run(cell, data, search.SEED))

        return search.choices(EXPERIMENTS[name].measures[0], self._trials(name, cells), line)

    def _trials(self, name: str, cells: Sequence[Cell]) -> dict[search.Row, list[Cell]]:
        """The candidates of rows of which a column is wanted; of others nothing is shown."""
        if not self.searching:
            return {}
        shown = {(cell.part, cell.row) for cell in cells if self._wanted(cell)}
        found = search.trials(EXPERIMENTS[name], cells)
        return {row: tried for row, tried in found.items() if row in shown}

    def _wanted(self, cell: Cell) -> bool:
        return not self.columns or cell.column in self.columns

    def _run(self, cell: Cell, data: str, seed: int) -> Run:
        kind, _, which = cell.test.partition("/")
        tests = (which,) if kind == "transfer" else ()
        revealed = REVEALED if kind == "revealed" else ()
        return Run.of(cell.system, cell.condition, seed, self.overrides, data=data, tests=tests, revealed=revealed)

    def _lacking(self, cell: Cell, dataset: Line, labels: Path) -> str:
        variant = cell.condition.variant
        _, _, method = variant.partition("|")
        named = (f"{dataset['fingerprint']}/{variant}/{seed}" for seed in self.seeds)
        return next((why for name in named if (why := lacking(method, labels, name))), "") if method else ""


def unfinished(wanted: Mapping[str, Sequence[Run]], outcome: Outcome) -> list[str]:
    """The experiments that lack runs."""
    return [name for name, runs in wanted.items() if any(run not in outcome.results for run in runs)]


def variants(runs: Sequence[Run]) -> list[tuple[Any, ...]]:
    """Datasets, variants and seeds with labels that are aggregated before the sweep, once for all runs."""
    return sorted({(run.data, run.condition.variant, run.seed) for run in runs if "|" in run.condition.variant})
