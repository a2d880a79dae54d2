"""Figures."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from revup.errors import missing_extra

Row = Mapping[str, Any]
BLUE, PALE, ORANGE, INK, GREY = "#2f6399", "#a9c3de", "#d9822b", "#222222", "#8a8a86"


def require_extra() -> None:
    """Say at once, not after hours of work, if what a report needs is not installed."""
    if find_spec("matplotlib") is None or find_spec("jinja2") is None:
        raise missing_extra("report", "a report")


WIDTH = 10.0  # inches of a figure that fills the page


def _canvas(width: float, height: float, rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Any, Any]:
    """An empty figure and its axes [rows, columns], in the house's style."""
    require_extra()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=9, length=3, colors=INK)
        ax.set_facecolor("none")
    return figure, axes


def _svg(figure: Any) -> str:
    """A figure as base64 SVG without a date, so that equal figures are equal bytes."""
    import matplotlib

    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "revup"}):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, facecolor="none")
    return base64.b64encode(stream.getvalue()).decode("ascii")


def reliability_figure(reliability: Sequence[Row]) -> Any:
    """Calibration: accuracy against confidence, bin by bin, and how many events each bin has.

    reliability: what `revup.evaluate` returns under that name. The vertical lines are 95% intervals (Wilson's): a bin
    of a few events may lie anywhere.
    """
    figure, ((above,), (below,)) = _canvas(5.2, 5.4, 2, 1, sharex=True, height_ratios=(4, 1))
    confidence = [row["confidence"] for row in reliability]
    events = [row["events"] for row in reliability]
    above.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    low, high = wilson([row["accuracy"] for row in reliability], events)
    above.vlines(confidence, low, high, color=PALE, linewidth=2)
    above.plot(confidence, [row["accuracy"] for row in reliability], "o-", color=BLUE, linewidth=1.2, markersize=5)
    above.set(xlim=(0, 1.01), ylim=(0, 1.01), ylabel="share of predictions that are right")
    below.bar(confidence, events, width=0.045, color=PALE)
    below.set(xlabel="probability of the predicted frame", ylabel="events")
    return figure


def wilson(shares: ArrayLike, counts: ArrayLike, z: float = 1.96) -> tuple[Any, Any]:
    """Wilson's interval for a share p of n: (p + z²/2n ± z√(p(1−p)/n + z²/4n²)) / (1 + z²/n)."""
    p, n = np.asarray(shares, np.float64), np.asarray(counts, np.float64)
    middle = p + z**2 / (2 * n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return (middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)


def curves_figure(metrics: Sequence[Row], levels: Mapping[str, Mapping[str, float]] | None = None) -> Any:
    """Loss terms (blue) and validation scores (orange) over steps, a panel each.

    metrics: the lines of metrics.jsonl; levels: for a validation score, named values to draw as horizontal lines.
    """
    first: Row = metrics[0] if metrics else {"train": {}, "valid": {}}
    names = [("train", name) for name in first["train"]] + [("valid", name) for name in first["valid"]]
    columns = min(4, max(len(names), 1))
    count = max(-(-len(names) // columns), 1)
    figure, axes = _canvas(WIDTH, 2.3 * count, count, columns)
    steps = [line["step"] for line in metrics]
    for ax, (group, name) in zip(axes.flat, names, strict=False):
        values = [line[group].get(name, np.nan) for line in metrics]
        ax.plot(steps, values, ".-" if len(steps) < 60 else "-", color=BLUE if group == "train" else ORANGE)
        ax.set_title(_panel_title(group, name), fontsize=10)
        ax.margins(y=0.25)  # room for the labels of levels
        for label, value in (levels or {}).get(name, {}).items() if group == "valid" else ():
            ax.axhline(value, color=GREY, linewidth=1, linestyle="--")
            ax.annotate(label, (1, value), (-2, 2), ("axes fraction", "data"), "offset points", **_SMALL)
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel("step", fontsize=9)
    return figure


_SMALL: dict[str, Any] = {"ha": "right", "va": "bottom", "fontsize": 8, "color": INK}


def _panel_title(group: str, name: str) -> str:
    kind = "valid: " if group == "valid" else "loss: " if name != "loss" else ""
    return kind + name.replace("_", " ")


def heatmap_pair(
    rows: Sequence[str], columns: Sequence[str], left: ArrayLike, right: ArrayLike, titles: tuple[str, str]
) -> Any:
    """Two tables of probabilities [rows, columns] side by side, on one scale."""
    figure, axes = _canvas(WIDTH, 1.6 + 0.27 * len(rows), 1, 2, sharey=True)
    for ax, values, title in zip(axes[0], (left, right), titles, strict=True):
        image = ax.pcolormesh(np.asarray(values), cmap="Blues", vmin=0, vmax=1, edgecolors="#eeeeea", linewidth=0.4)
        ax.set_title(title, fontsize=11)
        ax.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=50, ha="right", rotation_mode="anchor")
        ax.set_yticks(np.arange(len(rows)) + 0.5, rows)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    axes[0, 0].invert_yaxis()
    bar = figure.colorbar(image, ax=axes, shrink=0.5, aspect=18, pad=0.01)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, length=2)
    return figure


def bars_grid(
    labels: Sequence[str],
    panels: Sequence[Sequence[Mapping[str, ArrayLike]]],
    row_titles: Sequence[str],
    column_titles: Sequence[str],
    outlined: str = "truth",
) -> Any:
    """A grid of bar charts over the same labels; each panel maps names of series to values [labels].

    The series named by `outlined` is drawn as a dark line over the others' bars: what they should come to.
    """
    height = 0.9 + 1.75 * len(panels)
    figure, axes = _canvas(WIDTH, height, len(panels), len(panels[0]), sharex=True, sharey=True)
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
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=9
    )
    return figure
