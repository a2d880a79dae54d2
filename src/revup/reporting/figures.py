"""Figures in one style, drawn with matplotlib (extra `report`) and without pyplot: no window, no global state.

Each function returns a matplotlib figure, which can be saved alone: `reliability_figure(bins).savefig("bins.png")`.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from revup.errors import missing_extra
from revup.reporting.tables import Table, judge

Record = Mapping[str, Any]
BLUE, PALE, ORANGE, INK, GREY = "#2f6399", "#a9c3de", "#d9822b", "#222222", "#8a8a86"
SYSTEM_COLOURS = (GREY, "#c4912f", "#6b4c9a", PALE, "#b5482e", BLUE, "#4f8f5b", INK)
WIDTH = 10.0  # inches of a figure that fills a page


def has_matplotlib() -> bool:
    """Whether figures can be drawn here."""
    return find_spec("matplotlib") is not None


def require_extra(what: str = "a figure") -> None:
    """Say which extra is missing, before any work is done for a figure that cannot be drawn."""
    if not has_matplotlib():
        raise missing_extra("report", what)


def canvas(width: float, height: float, rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Any, Any]:
    """An empty figure in the common style.

    Args:
        width: Inches.
        height: Inches.
        rows: Rows of panels.
        columns: Panels in a row.
        settings: Passed to matplotlib's `Figure.subplots`.

    Returns:
        The figure, and its axes [rows, columns].
    """
    require_extra()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9, length=3, colors=INK)
        ax.set_facecolor("none")
    return figure, axes


def image(figure: Any, kind: str = "svg") -> bytes:
    """A figure as the bytes of an SVG or PNG file, without a date: equal figures are equal bytes."""
    import matplotlib

    stream = io.BytesIO()
    known = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[kind]
    with matplotlib.rc_context({"svg.hashsalt": "revup"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for a letter the font lacks
        figure.savefig(stream, format=kind, dpi=160, metadata=known, facecolor="none" if kind == "svg" else "white")
    return stream.getvalue()


# ---- kinds of figures --------------------------------------------------------------------------------------------


def reliability_figure(reliability: Sequence[Record]) -> Any:
    """Calibration: accuracy against confidence in bins, and the number of events of each bin.

    Args:
        reliability: The entry of that name in what `revup.evaluate` returns.

    Returns:
        The figure; its vertical lines are 95% Wilson intervals.
    """
    figure, ((above,), (below,)) = canvas(5.2, 5.4, 2, 1, sharex=True, height_ratios=(4, 1))
    confidence, accuracy, events = ([row[key] for row in reliability] for key in ("confidence", "accuracy", "events"))
    above.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    above.vlines(confidence, *wilson(accuracy, events), color=PALE, linewidth=2)
    above.plot(confidence, accuracy, "o-", color=BLUE, linewidth=1.2, markersize=5)
    above.set(xlim=(0, 1.01), ylim=(0, 1.01), ylabel="accuracy")
    below.bar(confidence, events, width=0.045, color=PALE)
    below.set(xlabel="predicted probability", ylabel="events")
    return figure


def wilson(shares: ArrayLike, counts: ArrayLike, z: float = 1.96) -> tuple[Any, Any]:
    """Wilson's interval for a share p of n: (p + z²/2n ± z√(p(1−p)/n + z²/4n²)) / (1 + z²/n)."""
    p, n = np.asarray(shares, np.float64), np.asarray(counts, np.float64)
    middle = p + z**2 / (2 * n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)


def training_curves(metrics: Sequence[Record], levels: Mapping[str, Mapping[str, float]] | None = None) -> Any:
    """Loss terms (blue) and validation scores (orange) over steps, a panel each.

    Args:
        metrics: The lines of a run's metrics.jsonl.
        levels: For a validation score, named values to draw as horizontal lines.

    Returns:
        The figure.
    """
    first: Record = metrics[0] if metrics else {"train": {}, "valid": {}}
    names = [(group, name) for group in ("train", "valid") for name in first[group]]
    columns = min(4, max(len(names), 1))
    count = max(-(-len(names) // columns), 1)
    figure, axes = canvas(WIDTH, 2.3 * count, count, columns)
    steps = [line["step"] for line in metrics]
    small: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 8, "color": INK}
    for ax, (group, name) in zip(axes.flat, names, strict=False):
        values = [line[group].get(name, np.nan) for line in metrics]
        ax.plot(steps, values, ".-" if len(steps) < 60 else "-", color=BLUE if group == "train" else ORANGE)
        kind = "validation: " if group == "valid" else "loss: " if name != "loss" else ""
        ax.set_title(kind + name.replace("_", " "), fontsize=10)
        ax.margins(y=0.25)  # room for the labels of levels
        for label, value in (levels or {}).get(name, {}).items() if group == "valid" else ():
            ax.axhline(value, color=GREY, linewidth=1, linestyle="--")
            ax.annotate(label, (1, value), (-2, 2), ("axes fraction", "data"), "offset points", **small)
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel("step", fontsize=9)
    return figure


def score_curves(tables: Sequence[Table], at: Sequence[float], label: str, titles: Sequence[str] = ()) -> Any:
    """The rows of tables as curves with a band of one standard deviation, a panel for each table.

    Args:
        tables: Tables with the same columns; rows that are quoted are left out.
        at: Where each column lies on the horizontal axis.
        label: Name of that axis.
        titles: Titles of the panels; those of the tables by default.

    Returns:
        The figure.
    """
    figure, axes = canvas(3.4 * len(tables) + 1.6, 3.6, 1, len(tables), sharex=True)
    for ax, table, title in zip(axes[0], tables, titles or [table.title for table in tables], strict=True):
        own = [(row, cells) for row, cells in zip(table.rows, judge(table), strict=True) if not row.quoted]
        for (row, cells), colour in zip(own, SYSTEM_COLOURS * 3, strict=False):
            points = [(x, c.mean, c.deviation or 0.0) for x, c in zip(at, cells, strict=True) if c.mean is not None]
            if points:
                x, mean, deviation = np.array(points).T
                width = 2.4 if row.label == "RevUp default" else 1.2
                ax.plot(x, mean, ".-", color=colour, linewidth=width, label=row.label)
                ax.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0)
        ax.set_title(textwrap.fill(title, 44), fontsize=10)
        ax.set_xlabel(label, fontsize=9)
    handles = axes[0, 0].get_legend_handles_labels()
    if handles[0]:
        figure.legend(*handles, loc="outside right center", frameon=False, fontsize=9)
    return figure


def heatmaps(
    rows: Sequence[str], columns: Sequence[str], panels: Mapping[str, ArrayLike], top: float | None = 1.0
) -> Any:
    """Tables of shares [rows, columns] side by side, on one scale.

    Args:
        rows: Labels of the rows.
        columns: Labels of the columns.
        panels: Title and values of each table.
        top: Upper end of the colour scale; None takes the largest value.

    Returns:
        The figure.
    """
    width = min(WIDTH, 1.5 + len(panels) * (1.5 + 0.28 * len(columns)))
    figure, axes = canvas(width, 1.6 + 0.25 * len(rows), 1, len(panels), sharey=True)
    highest = top if top is not None else max((np.max(values) for values in panels.values()), default=1.0)
    turned: dict[str, Any] = {"rotation": 50, "ha": "right", "rotation_mode": "anchor", "fontsize": 8}
    for ax, (title, values) in zip(axes[0], panels.items(), strict=True):
        shown = ax.pcolormesh(
            np.asarray(values), cmap="Blues", vmin=0, vmax=highest, edgecolors="#eeeeea", linewidth=0.4
        )
        ax.set_title(title, fontsize=10)
        ax.set_xticks(np.arange(len(columns)) + 0.5, columns, **turned)
        ax.set_yticks(np.arange(len(rows)) + 0.5, rows, fontsize=8)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    axes[0, 0].invert_yaxis()
    scale = figure.colorbar(shown, ax=axes, shrink=0.5, aspect=18, pad=0.01)
    scale.outline.set_visible(False)
    scale.ax.tick_params(labelsize=8, length=2)
    return figure


def bars_grid(
    labels: Sequence[str],
    panels: Sequence[Sequence[Mapping[str, ArrayLike]]],
    row_titles: Sequence[str],
    column_titles: Sequence[str],
    outlined: str = "true",
) -> Any:
    """A grid of bar charts over the same labels.

    Args:
        labels: What the bars stand for.
        panels: Row by row, for each panel the values [labels] of each series.
        row_titles: Titles of the rows of panels.
        column_titles: Titles of the columns of panels.
        outlined: The series that is drawn as dark lines over the bars of the others: what they should come to.

    Returns:
        The figure.
    """
    figure, axes = canvas(WIDTH, 0.9 + 1.75 * len(panels), len(panels), len(panels[0]), sharex=True, sharey=True)
    places = np.arange(len(labels))
    for row, line in zip(axes, panels, strict=True):
        for ax, series in zip(row, line, strict=True):
            bars = [name for name in series if name != outlined]
            width = 0.76 / max(len(bars), 1)
            for number, (name, colour) in enumerate(zip(bars, (PALE, BLUE, ORANGE), strict=False)):
                offset = (number - (len(bars) - 1) / 2) * width
                ax.bar(places + offset, np.asarray(series[name]), width, color=colour, label=name)
            if outlined in series:
                ax.hlines(series[outlined], places - 0.44, places + 0.44, color=INK, linewidth=1.8, label=outlined)
            ax.set_xticks(places, labels, rotation=40, ha="right", rotation_mode="anchor")
            ax.set_ylim(0, 1)
    for ax, title in zip(axes[0], column_titles, strict=True):
        ax.set_title(title, fontsize=10)
    for ax, title in zip(axes[:, 0], row_titles, strict=True):
        ax.set_ylabel(title, fontsize=9)
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return figure
