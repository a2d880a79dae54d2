"""Tables and the figure of learning curves, made from the lines of a file of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from revup.experiments.runs import FILE, Line
from revup.experiments.sections import Section
from revup.reporting.figures import score_curves
from revup.reporting.tables import Row, Table

TITLES = {
    "suggest": "revup suggest",
    "suggest-checks": "revup suggest",
    "random": "random",
    "random-checks": "random",
    "margin": "margin",
    "entropy": "entropy",
    "badge": "BADGE",
    "typiclust": "TypiClust",
    "activelab": "ActiveLab",
}
PART = 0.95  # of the accuracy with all labels

Curves = dict[str, dict[int, Line]]  # strategy → seed → line


def sections(lines: Iterable[Line]) -> list[Section]:
    """Return a section for each dataset."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if "labelling" in line:
            found.setdefault((line["data"], line["fingerprint"]), []).append(line)
    made = [_section(own) for _, own in sorted(found.items())]
    if len(made) > 1:
        for each, (name, _) in zip(made, sorted(found), strict=True):
            each.folder = name
    return made


def _section(lines: Sequence[Line]) -> Section:
    tasks: dict[str, Curves] = {}
    for line in lines:
        about = line["labelling"]
        tasks.setdefault(about["task"], {}).setdefault(about["strategy"], {})[about["seed"]] = line
    first, made = lines[0], Section("labelling", "Choosing labels", "", [])
    made.text = (
        f"Dataset {first['data']}: labels of {first['pool']:,} training events are revealed in a strategy's order, "
        "`counts` is fitted again after each batch, accuracy on "
        f"{first['scored']:,} test events. Every strategy of a seed begins with the same labels."
    )
    panels, titles = [], []
    for task, (title, text) in _TASKS.items():
        if task in tasks:
            table = _curves(task, title, text, tasks[task])
            made.tables.append(table)
            panels.append(table)
            titles.append(title)
            if task == "label":
                made.tables.append(_needed(tasks[task]))
            else:
                made.tables.append(_left(tasks[task]))
    own = {task: next(iter(next(iter(curves.values())).values())) for task, curves in tasks.items()}
    for task, panel, title in zip(tasks_in_order(tasks), panels, titles, strict=True):
        at = [point["labels"] for point in own[task]["points"]]
        caption = f"{title}, mean and one standard deviation over seeds."
        made.figures.append((f"labelling-{task}", partial(score_curves, [panel], at, _AXES[task]), caption))
    made.about = _provenance(lines)
    return made


_TASKS = {
    "label": (
        "Accuracy by number of labels",
        "All labels are right and trusted. The last column has all labels.",
    ),
    "check": (
        "Accuracy by number of events asked about",
        "Half of the events have labels, a fifth of them replaced by confusable ones. *No checks*: only events without "
        "a label are suggested.",
    ),
}
_AXES = {"label": "labels", "check": "events asked about"}


def tasks_in_order(tasks: Mapping[str, Any]) -> list[str]:
    """The tasks that there are, in the order of their tables."""
    return [task for task in _TASKS if task in tasks]


def _label(task: str, strategy: str) -> str:
    return "revup suggest, no checks" if task == "check" and strategy == "suggest" else TITLES[strategy]


def _ordered(curves: Curves) -> list[str]:
    return [name for name in TITLES if name in curves]


def _curves(task: str, title: str, text: str, curves: Curves) -> Table:
    columns = [point["labels"] for point in next(iter(next(iter(curves.values())).values()))["points"]]
    rows = []
    for strategy in _ordered(curves):
        lines = [curves[strategy][seed] for seed in sorted(curves[strategy])]
        cells = [tuple(line["points"][place]["accuracy"] for line in lines) for place in range(len(columns))]
        rows.append(Row(_label(task, strategy), tuple(cells)))
    return Table(f"labelling-{task}", title, "labels", tuple(f"{n:,}" for n in columns), tuple(rows), text)


def needed(line: Line, part: float = PART) -> float:
    """Return how many labels reach a part of the accuracy with all of them: where the curve first does so.

    Args:
        line: The line of a curve whose last point has all labels.
        part: The part.
    """
    labels = [point["labels"] for point in line["points"]]
    accuracy = [point["accuracy"] for point in line["points"]]
    goal = part * accuracy[-1]
    place = next(number for number, value in enumerate(accuracy) if value >= goal)
    if place == 0:
        return float(labels[0])
    rise = (goal - accuracy[place - 1]) / (accuracy[place] - accuracy[place - 1])
    return float(labels[place - 1] + rise * (labels[place] - labels[place - 1]))


def _needed(curves: Curves) -> Table:
    rows = []
    for strategy in _ordered(curves):
        seeds = [seed for seed in sorted(curves[strategy]) if seed in curves.get("random", {})]
        own = [needed(curves[strategy][seed]) for seed in seeds]
        base = [needed(curves["random"][seed]) for seed in seeds]
        shares = tuple(100 * a / b for a, b in zip(own, base, strict=True))
        gaps = [
            [
                a["accuracy"] - b["accuracy"]
                for a, b in zip(curves[strategy][s]["points"][1:-1], curves["random"][s]["points"][1:-1], strict=True)
            ]
            for s in seeds
        ]
        mean = np.mean(gaps, 0) if gaps and gaps[0] else np.zeros(1)
        lowest = (float(mean.min()),)
        rows.append(Row(TITLES[strategy], (tuple(own), shares, lowest, (float(mean.mean()),))))
    return Table(
        "labelling-needed",
        f"Labels needed for {PART:.0%} of the accuracy with all labels",
        "strategy",
        ("labels", "% of random's", "lowest difference to random", "mean difference"),
        tuple(rows),
        "Differences of accuracy: over the batches in between, of means over seeds.",
        (0, 0, 3, 3),
        compete=False,
    )


def _left(curves: Curves) -> Table:
    columns = [point["labels"] for point in next(iter(next(iter(curves.values())).values()))["points"]]
    rows = []
    for strategy in _ordered(curves):
        lines = [curves[strategy][seed] for seed in sorted(curves[strategy])]
        cells = [tuple(float(line["points"][place]["wrong"]) for line in lines) for place in range(len(columns))]
        rows.append(Row(_label("check", strategy), tuple(cells)))
    return Table(
        "labelling-wrong",
        "Wrong labels that are left",
        "labels",
        tuple(f"{n:,}" for n in columns),
        tuple(rows),
        digits=0,
        higher=False,
    )


def _provenance(lines: Sequence[Line]) -> dict[str, Any]:
    return {
        "command": f"revup experiment labelling --from-runs {FILE}",
        "dataset": lines[0]["data"],
        "fingerprint": lines[0]["fingerprint"],
        "seeds": sorted({line["seed"] for line in lines}),
        "runs": len(lines),
        "compute_seconds": round(math.fsum(line["seconds"] for line in lines)),
        "maths": sorted({line["maths"] for line in lines}),
        "versions": sorted({line["version"] for line in lines}),
        "commits": sorted({str(line["commit"]) for line in lines if line.get("commit")}),
    }
