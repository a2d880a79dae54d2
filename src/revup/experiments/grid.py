"""Shared by the tables: systems, training conditions, and rows made from results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from revup.data.corpus import Corpus
from revup.errors import RevupError
from revup.experiments import paper
from revup.experiments.compute import Deadline
from revup.experiments.results import Result, Run
from revup.models import CLASSES, model_class, model_module
from revup.reporting.tables import Row, Table, Values, quoted
from revup.settings import Overrides

ONE_FORM = {"lookup", "tagger", "rnnlm", "haqae"}  # compared with one preset only, so without naming it

Results = Mapping[Run, Result]
Pick = Callable[[Result], float | None]


@dataclass(frozen=True)
class System:
    """A model with a preset: a row of a table."""

    model: str
    preset: str = "default"

    @property
    def label(self) -> str:
        name = CLASSES[self.model]
        return name if self.model in ONE_FORM and self.preset == "default" else f"{name} {self.preset}"


_LATENT = (System("ssdvae", "paper"), System("ssdvae"), System("revup", "paper"), System("revup"))
FRAME_SYSTEMS = (System("lookup"), System("tagger"), *_LATENT)
TEXT_SYSTEMS = (System("rnnlm"), System("haqae"), *_LATENT)


def parse_systems(text: str) -> tuple[System, ...]:
    """Systems from a list such as `revup,revup:paper,tagger`.

    Args:
        text: Models separated by commas, each with its preset unless it is the default.

    Returns:
        The systems, each once.

    Raises:
        RevupError: A model or preset is unknown.
    """
    found = []
    for part in text.split(","):
        model, _, preset = part.strip().partition(":")
        if model not in CLASSES:
            raise RevupError(f"--models: unknown model '{model}': expected one of {', '.join(CLASSES)}")
        presets = model_module(model).PRESETS
        if (preset or "default") not in presets:
            raise RevupError(f"--models: {model} has no preset '{preset}': expected one of {', '.join(presets)}")
        found.append(System(model, preset or "default"))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Condition:
    """A column of a table: observation probability ε and noise rate η of the training labels.

    Where no table shows perplexity (`text` is off) training ends when the frames have converged: the decoder phase
    leaves the frames as they are, and takes a third of the time.
    """

    label: str
    epsilon: float = 1.0
    eta: float = 0.0
    text: bool = True


@dataclass(frozen=True)
class Scope:
    """The scope of an experiment: data, systems, seeds and settings."""

    corpus: Corpus | None
    out: Path
    seeds: tuple[int, ...] = (0, 1, 2)
    systems: tuple[System, ...] | None = None
    overrides: Overrides = field(default_factory=dict)
    quick: bool = False
    device: str | None = None
    deadline: Deadline = field(default_factory=Deadline)

    @property
    def frame_systems(self) -> list[System]:
        """The requested systems that predict frames."""
        return [system for system in self.systems or FRAME_SYSTEMS if model_class(system.model).predicts_frames]

    @property
    def text_systems(self) -> list[System]:
        """The requested systems that write text."""
        return [system for system in self.systems or TEXT_SYSTEMS if model_class(system.model).writes_text]

    def run(self, system: System, condition: Condition, seed: int, overrides: Overrides | None = None) -> Run:
        """A run of this scope; `overrides` take precedence over the scope's own."""
        changes: Overrides = {} if condition.text else {"training": {"settle": 0.0}}
        layers = (changes, self.overrides, overrides or {})
        merged = {
            section: {name: value for layer in layers for name, value in layer.get(section, {}).items()}
            for section in {section for layer in layers for section in layer}
        }
        return Run.of(system.model, system.preset, condition.epsilon, condition.eta, seed, merged)

    def runs(
        self, systems: Iterable[System], conditions: Sequence[Condition], overrides: Overrides | None = None
    ) -> list[Run]:
        """The runs of systems under conditions, for every seed."""
        return [self.run(s, c, seed, overrides) for s in systems for c in conditions for seed in self.seeds]


@dataclass
class Section:
    """A table or figure of the paper: text, tables, and figures.

    Attributes:
        name: Its name on the command line and of its files.
        title: Its heading.
        text: What was done.
        tables: Its tables.
        figures: For each figure the file's name without ending, a function that draws it, and its caption.
        partial: What is still missing, if anything.
    """

    name: str
    title: str
    text: str
    tables: list[Table] = field(default_factory=list)
    figures: list[tuple[str, Callable[[], Any], str]] = field(default_factory=list)
    partial: str = ""


class Part(Protocol):
    """A module of this package that makes one section."""

    def plan(self, scope: Scope) -> list[Run]:
        """The runs that the section needs."""

    def show(self, scope: Scope, results: Results) -> Section:
        """The section, made from the available results."""


# ---- rows --------------------------------------------------------------------------------------------------------


def score(*path: str) -> Pick:
    """A function that extracts a test score from a result: `score("accuracy")`, `score("unlabelled", "accuracy")`."""

    def pick(result: Result) -> float | None:
        found: Any = result.get("test")
        for name in path:
            found = (found or {}).get(name)
        return None if found is None else float(found)

    return pick


def scores(
    scope: Scope,
    results: Results,
    system: System,
    conditions: Sequence[Condition],
    pick: Pick,
    overrides: Overrides | None = None,
) -> tuple[Values, ...]:
    """The values that `pick` extracts from the runs of a system, for each condition and each seed."""
    found = [[results.get(scope.run(system, c, seed, overrides)) for seed in scope.seeds] for c in conditions]
    return tuple(tuple(None if result is None else pick(result) for result in seeds) for seeds in found)


def rows(
    scope: Scope, results: Results, systems: Iterable[System], conditions: Sequence[Condition], pick: Pick
) -> list[Row]:
    """A row for each system."""
    return [Row(system.label, scores(scope, results, system, conditions, pick)) for system in systems]


def paper_rows(
    table: Mapping[tuple[str, str], Mapping[float, Any]], at: Sequence[float], place: int | None
) -> list[Row]:
    """The paper's published numbers for these conditions; `place`: index of the measure if there are several."""
    found = []
    for (model, corpus), by_condition in table.items():
        values = [by_condition.get(value) for value in at]
        picked = [value if value is None or place is None else value[place] for value in values]
        found.append(quoted(f"{CLASSES[model]}, printed in the paper (its {corpus})", picked, 2))
    return found


def optimum_rows(scope: Scope, measure: str, columns: int) -> list[Row]:
    """The exact optimum, if the data comes from a synthetic world."""
    found = ((scope.corpus.meta.get("optimum") if scope.corpus else None) or {}).get("test") or {}
    return [quoted("exact optimum", [found[measure]] * columns)] if found.get(measure) is not None else []


def frame_tables(
    name: str,
    letter: str,
    scope: Scope,
    results: Results,
    conditions: Sequence[Condition],
    printed: Mapping[tuple[str, str], paper.Scores],
    full: Condition,
) -> list[Table]:
    """Scores by condition, accuracy on predicates without a training label, and accuracy relative to `full`."""
    systems, labels = scope.frame_systems, tuple(condition.label for condition in conditions)
    at = [condition.epsilon if letter == "ε" else condition.eta for condition in conditions]
    made = [
        Table(
            f"{name}-{measure.replace('_', '-')}",
            f"{title} by {letter}",
            letter,
            labels,
            (
                *rows(scope, results, systems, conditions, score(measure)),
                *optimum_rows(scope, measure, len(labels)),
                *paper_rows(printed, at, place),
            ),
        )
        for place, (measure, title) in enumerate(paper.MEASURES.items())
    ]
    counts = rows(scope, results, systems[:1], conditions, score("unlabelled", "events"))
    made.append(
        Table(
            f"{name}-unlabelled",
            f"Accuracy by {letter} on events whose predicate has no observed label in training",
            letter,
            labels,
            (
                *rows(scope, results, systems, conditions, score("unlabelled", "accuracy")),
                *(Row("number of such events", found.cells, True, 0) for found in counts),
            ),
            "Counts do not help here: a lookup table can only answer with the most frequent frame.",
        )
    )
    kept = tuple(_relative(scope, results, system, conditions, full) for system in systems)
    title = f"Accuracy relative to the same system's accuracy at {full.label}"
    return [*made, Table(f"{name}-kept", title, letter, labels, kept, compete=False)]


def _relative(scope: Scope, results: Results, system: System, conditions: Sequence[Condition], full: Condition) -> Row:
    whole, *parts = scores(scope, results, system, [full, *conditions], score("accuracy"))
    cells = tuple(
        tuple(None if a is None or not b else a / b for a, b in zip(values, whole, strict=True)) for values in parts
    )
    return Row(system.label, cells)
