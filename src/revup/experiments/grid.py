"""What the tables share: which systems under which conditions, the rows made of their results, curves of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from revup.data.corpus import Corpus
from revup.errors import RevupError
from revup.experiments import paper
from revup.experiments.sweep import Deadline, Result, Run
from revup.models import CLASSES, model_class, model_module
from revup.reporting.tables import Row, Table, judge, quoted
from revup.settings import Overrides

PLAIN = {"lookup", "tagger", "rnnlm", "haqae"}  # compared in one form only, so without naming the preset
COLOURS = ("#8a8a86", "#c4912f", "#6b4c9a", "#a9c3de", "#b5482e", "#2f6399", "#4f8f5b", "#222222")


@dataclass(frozen=True)
class System:
    """A model with a preset: a row of a table."""

    model: str
    preset: str = "default"

    @property
    def label(self) -> str:
        name = CLASSES[self.model]
        return name if self.model in PLAIN and self.preset == "default" else f"{name} {self.preset}"

    @property
    def predicts_frames(self) -> bool:
        return model_class(self.model).predicts_frames

    @property
    def writes_text(self) -> bool:
        return model_class(self.model).writes_text


FRAMES = tuple(
    System(*name)
    for name in (
        ("lookup",),
        ("tagger",),
        ("ssdvae", "paper"),
        ("ssdvae",),
        ("revup", "paper"),
        ("revup",),
    )
)
TEXT = tuple(
    System(*name) for name in (("rnnlm",), ("haqae",), ("ssdvae", "paper"), ("ssdvae",), ("revup", "paper"), ("revup",))
)


def parse_systems(text: str) -> tuple[System, ...]:
    """`revup,revup:paper,tagger`: models, each with its preset unless it is the default."""
    found = []
    for part in text.split(","):
        model, _, preset = part.strip().partition(":")
        if model not in CLASSES:
            raise RevupError(f"--models: unknown model '{model}': one of {', '.join(CLASSES)}")
        if (preset or "default") not in model_module(model).PRESETS:
            raise RevupError(
                f"--models: {model} has no preset '{preset}': one of {', '.join(model_module(model).PRESETS)}"
            )
        found.append(System(model, preset or "default"))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Scope:
    """What was asked for: on which data, which systems, seeds and settings."""

    corpus: Corpus | None
    out: Path
    seeds: tuple[int, ...] = (0, 1, 2)
    systems: tuple[System, ...] | None = None
    overrides: Overrides = field(default_factory=dict)
    quick: bool = False
    device: str | None = None
    deadline: Deadline = field(default_factory=Deadline)

    def chosen(self, usual: Sequence[System], needs: Callable[[System], bool]) -> list[System]:
        return [system for system in (self.systems or usual) if needs(system)]

    def run(self, system: System, condition: Condition, seed: int, overrides: Overrides | None = None) -> Run:
        """A run of this scope; `overrides` come on top of the scope's own."""
        changes: Overrides = {} if condition.text else {"training": {"settle": 0.0}}
        layers = (changes, self.overrides, overrides or {})
        merged = {
            section: {name: value for layer in layers for name, value in layer.get(section, {}).items()}
            for section in {section for layer in layers for section in layer}
        }
        return Run.of(system.model, system.preset, condition.epsilon, condition.eta, seed, merged)


@dataclass(frozen=True)
class Condition:
    """A column: how much is seen, how much of it is wrong.

    Where no table shows perplexity (`text` is off) training ends when the frames have settled: what a decoder learns
    after that leaves them as they are, and takes a third of the time.
    """

    label: str
    epsilon: float = 1.0
    eta: float = 0.0
    text: bool = True


@dataclass
class Section:
    """A table or figure of the paper, as it is written out: text, tables, and figures with their captions."""

    name: str
    title: str
    text: str
    tables: list[Table] = field(default_factory=list)
    figures: list[tuple[str, Any, str]] = field(default_factory=list)  # file stem, matplotlib figure, caption
    partial: str = ""  # what is still missing


Results = Mapping[Run, Result]
Pick = Callable[[Result], float | None]


def score(measure: str, split: str = "test") -> Pick:
    """A measure of a run on a split."""

    def pick(result: Result) -> float | None:
        value = (result.get(split) or {}).get(measure)
        return None if value is None else float(value)

    return pick


def unlabelled(result: Result) -> float | None:
    """Accuracy on test events whose predicate never carried an observed frame in training."""
    found = (result.get("test") or {}).get("unlabelled") or {}
    return found.get("accuracy")


def unlabelled_events(result: Result) -> float | None:
    found = (result.get("test") or {}).get("unlabelled") or {}
    return found.get("events")


def plan(scope: Scope, systems: Iterable[System], conditions: Sequence[Condition]) -> list[Run]:
    return [scope.run(s, condition, seed) for s in systems for condition in conditions for seed in scope.seeds]


def rows(
    scope: Scope, results: Results, systems: Iterable[System], conditions: Sequence[Condition], pick: Pick
) -> list[Row]:
    """A row for each system, of what `pick` takes from each run."""
    return [
        Row(
            system.label,
            tuple(
                tuple(
                    None if (found := results.get(scope.run(system, condition, seed))) is None else pick(found)
                    for seed in scope.seeds
                )
                for condition in conditions
            ),
        )
        for system in systems
    ]


def paper_rows(
    table: Mapping[tuple[str, str], Mapping[float, Any]], at: Sequence[float], place: int | None
) -> list[Row]:
    """The paper's own numbers for these conditions; `place` of the measure where there are several."""
    found = []
    for (model, corpus), by_condition in table.items():
        values = [by_condition.get(value) for value in at]
        picked = [value if value is None or place is None else value[place] for value in values]
        found.append(quoted(f"{CLASSES[model]}, printed in the paper (its {corpus})", picked, 2))
    return found


def optimum_rows(scope: Scope, measure: str, columns: int) -> list[Row]:
    """The exact optimum, where the data is a world's."""
    found = ((scope.corpus.meta.get("optimum") if scope.corpus else None) or {}).get("test") or {}
    return [quoted("exact optimum", [found[measure]] * columns)] if found.get(measure) is not None else []


TITLES = {"accuracy": "Accuracy", "macro_f1": "Macro-F1", "macro_precision": "Macro-precision"}


def frame_tables(
    name: str,
    letter: str,
    scope: Scope,
    results: Results,
    conditions: Sequence[Condition],
    printed: Mapping[tuple[str, str], paper.Scores],
    full: Condition,
) -> list[Table]:
    """Accuracy, macro-F1 and macro-precision by condition; unlabelled predicates apart; what is kept of `full`."""
    systems = scope.chosen(FRAMES, lambda system: system.predicts_frames)
    labels = tuple(condition.label for condition in conditions)
    at = [getattr(condition, "epsilon" if letter == "ε" else "eta") for condition in conditions]
    made = [
        Table(
            f"{name}-{measure.replace('_', '-')}",
            f"{TITLES[measure]} by {letter}",
            letter,
            labels,
            (
                *rows(scope, results, systems, conditions, score(measure)),
                *optimum_rows(scope, measure, len(labels)),
                *paper_rows(printed, at, place),
            ),
        )
        for place, measure in enumerate(paper.MEASURES)
    ]
    apart = rows(scope, results, systems, conditions, unlabelled)
    counts = rows(scope, results, systems[:1], conditions, unlabelled_events)
    made.append(
        Table(
            f"{name}-unlabelled",
            f"Accuracy by {letter} on events whose predicate never carried an observed frame in training",
            letter,
            labels,
            (*apart, *(Row("number of such events", row.cells, True, 0) for row in counts)),
            "Here counting is helpless: a lookup table can only answer with the frame that is most frequent overall.",
        )
    )
    made.append(
        Table(
            f"{name}-kept",
            f"Share of its own accuracy at {full.label} that a system keeps",
            letter,
            labels,
            tuple(_kept(scope, results, system, conditions, full) for system in systems),
            compete=False,
        )
    )
    return made


def _kept(scope: Scope, results: Results, system: System, conditions: Sequence[Condition], full: Condition) -> Row:
    (whole,) = rows(scope, results, [system], [full], score("accuracy"))
    (parts,) = rows(scope, results, [system], conditions, score("accuracy"))
    cells = tuple(
        tuple(None if a is None or not b else a / b for a, b in zip(values, whole.cells[0], strict=True))
        for values in parts.cells
    )
    return Row(system.label, cells)


def has_matplotlib() -> bool:
    return find_spec("matplotlib") is not None


def canvas(width: float, height: float, columns: int, lines: int = 1, **settings: Any) -> tuple[Any, Any]:
    """An empty figure and its axes [lines, columns]."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, **settings)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9, length=3)
    return figure, axes


def curves(tables: Sequence[Table], at: Sequence[float], label: str) -> Any:
    """The tables' own rows as curves with a band of one standard deviation, a panel each."""
    figure, axes = canvas(3.4 * len(tables) + 1.6, 3.6, len(tables))
    for ax, table in zip(axes[0], tables, strict=True):
        own = [(row, cells) for row, cells in zip(table.rows, judge(table), strict=True) if not row.quoted]
        for (row, cells), colour in zip(own, COLOURS * 3, strict=False):
            points = [(x, c.mean, c.deviation or 0.0) for x, c in zip(at, cells, strict=True) if c.mean is not None]
            if points:
                x, mean, deviation = (list(values) for values in zip(*points, strict=True))
                width = 2.4 if row.label == "RevUp default" else 1.2
                ax.plot(x, mean, ".-", color=colour, linewidth=width, label=row.label)
                ax.fill_between(
                    x,
                    [m - d for m, d in zip(mean, deviation, strict=True)],
                    [m + d for m, d in zip(mean, deviation, strict=True)],
                    color=colour,
                    alpha=0.15,
                    linewidth=0,
                )
        ax.set_title(table.title if len(table.title) < 40 else "On unlabelled predicates", fontsize=10)
        ax.set_xlabel(label, fontsize=9)
    handles = axes[0, 0].get_legend_handles_labels()
    if handles[0]:
        figure.legend(*handles, loc="outside right center", frameon=False, fontsize=9)
    return figure
