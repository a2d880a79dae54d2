"""Tables of experiments, made from the lines of a file of runs and from nothing else.

Under each table of scores stands one of paired differences: RevUp `default` (else `paper`, else the last row) minus
each other row, by a bootstrap over documents (`revup.experiments.bootstrap`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from revup.experiments import catalogue, paper, search
from revup.experiments.bootstrap import ENOUGH, Floats, Interval, Ratio, difference, excludes_zero, interval, jackknife
from revup.experiments.catalogue import DEFAULT, EXPERIMENTS, Cell, Experiment
from revup.experiments.runs import Condition, Line, Settings, System, existing
from revup.experiments.sections import Section
from revup.inference.event_scores import SMALLEST
from revup.models import CLASSES, model_module
from revup.reporting.figures import score_curves
from revup.reporting.tables import Row, Table, quoted

SAMPLED = "sampled"
DIFFERENCE_NOTE = (
    "Paired by seed and by test document: mean ± standard deviation over seeds [95% interval over documents]. * where "
    "the interval excludes 0; only then is it called a difference. (*) where the jackknife's interval, wider if "
    "documents are few, includes 0: such a difference is not certain."
)


@dataclass(frozen=True)
class Measure:
    """A score that tables show.

    Attributes:
        title: Its name.
        path: Where the scores of a line have it.
        ratio: The sums over documents that it is made of; None: no interval over documents.
        higher: Whether higher is better.
        digits: Digits after the decimal point.
        caption: What is to be said about it.
        counted: Where the number of events is that it is taken over, if that differs from run to run.
        apart: Whether only test documents count of which no event occurs word for word in training.
    """

    title: str
    path: tuple[str, ...]
    ratio: Ratio | None = None
    higher: bool = True
    digits: int = 3
    caption: str = ""
    counted: tuple[str, ...] = ()
    apart: bool = False


MEASURES = {
    "accuracy": Measure("Accuracy", ("accuracy",), Ratio("right", "events")),
    "macro_f1": Measure("Macro-F1", ("macro_f1",)),
    "label_nll": Measure(
        "−log p(reference frame)",
        ("label_nll",),
        Ratio("nll", "events", nats=True),
        False,
        caption="The mean over scored events, lower is better. A frame that training does not know, and any that has "
        f"less, counts as one of probability {SMALLEST:g}.",
    ),
    "unlabelled": Measure(
        "Accuracy on events whose predicate has no observed label in training",
        ("unlabelled", "accuracy"),
        caption="A table of counts by form can only answer with the most frequent frame here.",
        counted=("unlabelled", "events"),
    ),
    "fresh": Measure(
        "Accuracy on events that do not occur word for word in training",
        ("fresh", "accuracy"),
        counted=("fresh", "events"),
    ),
    "noise_rate": Measure(
        "Estimated share of wrong labels",
        ("noise_rate",),
        caption="As the model estimates it from contradictions among labels; missing where it can't tell. Of labels "
        "replaced at random a few come out right: the true share is a little below η, and below it where a lemma has "
        "no confusable frame.",
    ),
    "perplexity_hard": Measure(
        "Test perplexity, hard frames",
        ("perplexity_hard",),
        Ratio("perplexity_hard", "tokens", nats=True, exponential=True),
        False,
        2,
        "One-hot frames: a latent carries a frame and nothing else.",
    ),
    "perplexity": Measure(
        "Test perplexity, soft frames",
        ("perplexity",),
        Ratio("perplexity", "tokens", nats=True, exponential=True),
        False,
        2,
        "Gumbel-softmax samples of the frames, as in the paper; a soft sample carries more than a frame.",
    ),
    "soft_cross_entropy": Measure(
        "Cross-entropy to the distributions of the test events",
        ("soft_cross_entropy",),
        Ratio("cross_entropy", "soft_events", nats=True),
        False,
    ),
    "soft_apart": Measure(
        "Cross-entropy on documents of which no event occurs word for word in training",
        (),
        Ratio("cross_entropy", "soft_events", nats=True),
        False,
        apart=True,
    ),
    "soft_agreement": Measure(
        "Share of test events whose most probable frame is that of the distribution",
        ("soft_agreement",),
        Ratio("agreement", "soft_events"),
    ),
    "soft_calibration_error": Measure(
        "Calibration error against the distributions",
        ("soft_calibration_error",),
        None,
        False,
        3,
        "The mean difference between the probability of the predicted frame and what the distribution gives it, in 15 "
        "bins.",
    ),
}


@dataclass(frozen=True)
class Difference:
    """One system's score minus another's, paired by seed and by document.

    Attributes:
        values: For each seed that both have.
        within: The interval over documents, by bootstrap.
        wide: That of the jackknife.
    """

    values: list[float]
    within: Interval | None
    wide: Interval | None

    @property
    def called(self) -> bool:
        """Whether it is called a difference."""
        return excludes_zero(self.within)

    @property
    def unsure(self) -> bool:
        """Whether it is called one and is not certain."""
        return self.called and not excludes_zero(self.wide)


@dataclass(frozen=True)
class Samples:
    """A cell's score with other documents, by seed: as the bootstrap draws them, and without one of them."""

    drawn: dict[int, Floats]
    left_out: dict[int, Floats]

    def minus(self, other: Samples) -> Difference:
        """The difference to another cell."""
        return Difference(*difference(self.drawn, other.drawn), jackknife(self.left_out, other.left_out))


class Found:
    """The lines of one dataset's runs, found by what was run."""

    def __init__(self, dataset: Line, runs: Iterable[Line]) -> None:
        self.dataset = dataset
        self._lines: dict[tuple[System, Condition], dict[int, Line]] = {}
        self.seeds: list[int] = []
        for line in runs:
            key = System(*line["system"].split(":")), Condition.from_json(line["condition"])
            self._lines.setdefault(key, {})[line["seed"]] = line
        self.seeds = sorted({seed for found in self._lines.values() for seed in found})

    @property
    def name(self) -> str:
        """The dataset's name."""
        return str(self.dataset["dataset"])

    @property
    def systems(self) -> tuple[System, ...]:
        """All systems that have runs, in the order of tables."""
        there = {system for system, _ in self._lines if _exists(system)}
        listed = [system for system in existing(catalogue.ORDER) if system in there]
        return (*listed, *sorted(there - set(listed), key=lambda system: system.name))

    def lines(self, cell: Cell) -> dict[int, Line]:
        """The lines of a cell by seed."""
        return self._lines.get((cell.system, cell.condition.normal(cell.system)), {})

    def documents(self, cell: Cell) -> dict[int, Mapping[str, Sequence[int]]]:
        """The sums over each document of a cell, by seed."""
        found = {seed: _documents(line, cell.test) for seed, line in sorted(self.lines(cell).items())}
        return {seed: sums for seed, sums in found.items() if sums}

    def value(self, cell: Cell, seed: int, path: Sequence[str]) -> float | None:
        """A score of a cell under a seed."""
        line = self.lines(cell).get(seed)
        if line is None:
            return None
        if path == ("noise_rate",):
            estimating = line["config"]["objective"].get("noise") == "estimated"
            return line["figures"].get("noise_rate") if estimating else None
        found: Any = _scores(line, cell.test)
        for name in path:
            found = (found or {}).get(name)
        return None if found is None else float(found)

    def samples(self, cell: Cell, measure: Measure) -> Samples:
        """What intervals of a cell are made of; nothing where there are none."""
        ratio = measure.ratio
        if ratio is None or (measure.apart and "shared_documents" not in self.dataset):
            return Samples({}, {})
        there = {seed: sums for seed, sums in self.documents(cell).items() if ratio.there(sums)}
        if measure.apart:
            shared = {*self.dataset["shared_documents"]}
            kept = [place for place in range(len(self.dataset["ids"])) if place not in shared]
            there = {seed: {name: [sums[name][d] for d in kept] for name in sums} for seed, sums in there.items()}
        return Samples(
            {seed: ratio.samples(sums) for seed, sums in there.items()},
            {seed: ratio.left_out(sums) for seed, sums in there.items()},
        )


def _exists(system: System) -> bool:
    return system.model in CLASSES and system.preset in model_module(system.model).PRESETS


def _scores(line: Line, test: str) -> Any:
    kind, _, name = test.partition("/")
    if not test or test == SAMPLED:
        return line["scores"].get("test") if not test else line.get(SAMPLED)
    found = line.get(kind, {}).get(name)
    if kind == "revealed" and found:  # what is left out of a line is made from its documents
        events = sum(found["documents"].get("events", ()))
        nll = sum(found["documents"].get("nll", ())) / 1e4 / events if events else None
        return {**found, "label_nll": nll}
    return found


def _documents(line: Line, test: str) -> Any:
    if not test:
        return line["documents"]
    kind, _, name = test.partition("/")
    found = line.get(SAMPLED) if test == SAMPLED else line.get(kind, {}).get(name)
    return (found or {}).get("documents")


# ---- sections ------------------------------------------------------------------------------------------------------


def cells_with_runs(name: str, found: Found) -> tuple[list[Cell], dict[search.Row, Settings]]:
    """The cells of an experiment that have runs, with the settings that the small search chose for their rows.

    Args:
        name: The experiment.
        found: The dataset and the runs on it.

    Returns:
        The cells, and the settings of each row that was searched.
    """
    experiment = EXPERIMENTS[name]
    every = experiment.cells(found.dataset, found.systems, False)
    settings = search.choices(
        experiment.measures[0], search.trials(experiment, every), lambda cell: found.lines(cell).get(search.SEED)
    )
    return [cell for cell in search.chosen(every, settings) if found.lines(cell)], settings


def lines_behind(name: str, found: Found) -> list[Line]:
    """The lines that an experiment's tables are made from, those of the small search included.

    Args:
        name: The experiment.
        found: The dataset and the runs on it.
    """
    cells, settings = cells_with_runs(name, found)
    every = EXPERIMENTS[name].cells(found.dataset, found.systems, False)
    tried = [
        cell for row, cells in search.trials(EXPERIMENTS[name], every).items() if row in settings for cell in cells
    ]
    lines = [line for cell in cells for line in found.lines(cell).values()]
    lines += [line for cell in tried if (line := found.lines(cell).get(search.SEED)) is not None]
    return [*{line["name"]: line for line in lines}.values()]


def section(name: str, found: Found) -> Section | None:
    """An experiment's section on a dataset; None where it has no runs.

    Args:
        name: The experiment.
        found: The dataset and the runs on it.
    """
    experiment = EXPERIMENTS[name]
    if experiment.lacks(found.dataset):
        return None
    every = experiment.cells(found.dataset, found.systems, False)
    cells, settings = cells_with_runs(name, found)
    parts = dict.fromkeys(cell.part for cell in cells)
    about = search.described(experiment, settings, ((cell.part, cell.row) for cell in cells))
    text = [experiment.text, about_dataset(found.dataset), *([about] if about else [])]
    made = Section(name, experiment.title, "\n\n".join(text))
    for part in parts:
        shown = [cell for cell in cells if cell.part == part]
        there = {cell.column for cell in shown}
        columns = [c for c in dict.fromkeys(cell.column for cell in every if cell.part == part) if c in there]
        tables = {m: _tables(name, experiment, found, shown, columns, part, m) for m in experiment.measures}
        made.tables += [table for listed in tables.values() for table in listed]
        panels = [listed[0] for listed in tables.values() if listed][:3]
        if experiment.axis and len(columns) > 1 and panels:
            stem = "-".join([name, *part.split()[:1]])
            at = [float(column) for column in columns]
            caption = "Test scores; bands: one standard deviation over seeds."
            made.figures.append((stem, partial(score_curves, panels, at, experiment.axis), caption))
    return made if made.tables else None


def about_dataset(line: Line) -> str:
    """A dataset in a sentence or two."""
    d, w = line["documents"], line["windows"]
    text = (
        f"Dataset {line['dataset']}: {d['train']:,} training, {d['valid']:,} validation and {d['test']:,} test "
        f"documents ({w['train']:,}, {w['valid']:,} and {w['test']:,} windows); {line['frames']:,} frames. Test: "
        f"{line['events']['test']:,} events, {line['scored']:,} with a reference frame"
    )
    text += f", {line['soft']:,} with a distribution" if line["soft"] else ""
    return text + (
        f"; {line['verbatim_events']:,} occur word for word in training, and {line['repeated_windows']:,} of the "
        "windows do as a whole."
    )


def _tables(
    name: str,
    experiment: Experiment,
    found: Found,
    cells: Sequence[Cell],
    columns: Sequence[str],
    part: str,
    measure: str,
) -> list[Table]:
    """The table of a measure and that of its differences; none where nothing has the measure."""
    m = MEASURES[measure]
    grid = {row: {c.column: c for c in cells if c.row == row} for row in dict.fromkeys(cell.row for cell in cells)}

    def values(by_column: Mapping[str, Cell], path: Sequence[str]) -> tuple[tuple[float | None, ...], ...]:
        return tuple(
            tuple(found.value(by_column[c], seed, path) if c in by_column else None for seed in found.seeds)
            for c in columns
        )

    samples = {
        row: [found.samples(by_column[c], m) if c in by_column else Samples({}, {}) for c in columns]
        for row, by_column in grid.items()
    }
    scores = {row: values(by_column, m.path) for row, by_column in grid.items() if not m.apart}
    if m.apart:
        scores = {
            row: tuple(tuple(float(at.drawn[s][-1]) if s in at.drawn else None for s in found.seeds) for at in each)
            for row, each in samples.items()
        }
    kept = [row for row, cells in scores.items() if any(value is not None for cell in cells for value in cell)]
    if not kept:
        return []
    marked, unsure = _marks(m, kept, scores, samples)
    rows = []
    for row in kept:
        within = tuple(interval([*each.drawn.values()]) for each in samples[row])
        rows.append(Row(row, scores[row], intervals=within, marked=tuple(marked[row]), unsure=tuple(unsure[row])))
    if m.counted:
        counts = {c: grid[row][c] for row in reversed(kept) for c in grid[row]}  # the same in every row
        rows.append(Row("number of such events", values(counts, m.counted), True, 0))
    rows += _optimum(found.dataset, measure, name, columns)
    if experiment.printed and measure in experiment.printed and part in ("", "uniform errors"):
        rows += _printed(experiment.printed[measure], columns)
    stem = "-".join([name, *part.split(",")[0].lower().split()[:2], measure.replace("_", "-")])
    title = f"{m.title}: {part}" if part else m.title
    if experiment.corner in ("ε", "η"):
        title = f"{m.title} by {experiment.corner}" + (f": {part}" if part else "")
    documents = {len(each) - 1 for by_column in samples.values() for at in by_column for each in at.left_out.values()}
    least = min(documents, default=ENOUGH)
    few = f"{least} test documents: intervals of so few are too narrow." if least < ENOUGH else ""
    caption = " ".join(filter(None, (m.caption, few)))
    made = [Table(stem, title, experiment.corner, tuple(columns), tuple(rows), caption, m.digits, m.higher)]
    if m.ratio and len(kept) > 1:
        own = [row for row in kept if any(cell.test != SAMPLED for cell in grid[row].values())] or kept
        base = next((system.label for system in (DEFAULT, System("revup", "paper")) if system.label in own), own[-1])
        differences = _differences(base, kept, samples, m)
        if differences:
            heading = f"{title}: {base} minus each other row"
            better = "above" if m.higher else "below"
            caption = " ".join(filter(None, (f"{base} is better {better} 0.", DIFFERENCE_NOTE, few)))
            made.append(
                Table(
                    f"{stem}-differences", heading, experiment.corner, tuple(columns), tuple(differences), caption,
                    m.digits, m.higher, compete=False, signed=True,
                )
            )  # fmt: skip
    return made


def _differences(base: str, rows: Sequence[str], samples: Mapping[str, list[Samples]], m: Measure) -> list[Row]:
    made = []
    for row in rows:
        if row == base:
            continue
        found = [a.minus(b) for a, b in zip(samples[base], samples[row], strict=True)]
        if any(each.values for each in found):
            cells = tuple(tuple(each.values) or (None,) for each in found)
            within, marked = tuple(each.within for each in found), tuple(each.called for each in found)
            unsure = tuple(each.unsure for each in found)
            made.append(Row(f"− {row}", cells, intervals=within, marked=marked, unsure=unsure))
    return made


def _marks(
    m: Measure, rows: Sequence[str], scores: Mapping[str, Any], samples: Mapping[str, list[Samples]]
) -> tuple[dict[str, list[bool]], dict[str, list[bool]]]:
    """Which cells are the best of their column by a difference to the runner-up, and which of these are not certain."""
    marked, unsure = ({row: [False] * len(samples[row]) for row in rows} for _ in range(2))
    for column in range(len(samples[rows[0]])):
        known = {row: [value for value in scores[row][column] if value is not None] for row in rows}
        most = max(len(values) for values in known.values())
        means = {row: math.fsum(values) / most for row, values in known.items() if values and len(values) == most}
        ranked = sorted(means, key=lambda row: -means[row] if m.higher else means[row])
        if len(ranked) > 1:
            best, second = ranked[:2]
            gap = samples[best][column].minus(samples[second][column])
            marked[best][column], unsure[best][column] = gap.called, gap.unsure
    return marked, unsure


def _optimum(dataset: Line, measure: str, name: str, columns: Sequence[str]) -> list[Row]:
    """The exact optimum, where the dataset is of a world."""
    if name == "revealed":
        key = {"accuracy": "accuracy", "label_nll": "nll"}[measure]
        return [quoted("exact optimum", [(dataset["revealed"].get(column) or {}).get(key) for column in columns])]
    key = {"accuracy": "accuracy", "perplexity": "perplexity", "perplexity_hard": "perplexity"}.get(measure, "")
    best = (dataset.get("optimum") or {}).get(key)
    return [quoted("exact optimum", [best] * len(columns))] if best is not None and name != "transfer" else []


def _printed(printed: paper.Printed, columns: Sequence[str]) -> list[Row]:
    """The paper's published numbers for these conditions."""
    table, place = printed
    found = []
    for (model, corpus), by_condition in table.items():
        values = [by_condition.get(float(column)) for column in columns]
        picked = [value if value is None or place is None else value[place] for value in values]
        found.append(quoted(f"{CLASSES[model]}, printed in the paper (its {corpus})", picked, 2))
    return found
