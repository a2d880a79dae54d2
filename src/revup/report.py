"""Tables and figures → one HTML file that needs nothing beside itself: no scripts, no network (extra `report`).

    page = Page("What was learned")
    page.add_heading("Scores")
    page.add_table([{"model": "lookup", "accuracy": 0.51}, {"model": "revup", "accuracy": 0.88}])
    page.add_figure(curves_figure(metrics), "Loss and validation scores over training.")
    page.save("report.html")

Rows of a table are records with the same keys, which name the columns; `text_table` shows the same rows on a terminal.
Figures are matplotlib's, made without pyplot: nothing here opens a window or keeps state. A figure function can be used
alone: `reliability_figure(rows).savefig("calibration.png")`.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from revup.errors import missing_extra
from revup.events import open_output

Row = Mapping[str, Any]

BLUE, PALE, ORANGE, INK, GREY = "#2f6399", "#a9c3de", "#d9822b", "#222222", "#8a8a86"
WIDTH = 10.0  # inches of a figure that fills the page

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: #222; background: #fdfdfc;
  max-width: 60rem; margin: 2.5rem auto 5rem; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; padding-top: .9rem; border-top: 1px solid #e3e3df; }
p { margin: .6rem 0; }
figure { margin: 1.2rem 0 1.8rem; }
figure img { display: block; width: 100%; height: auto; }
figure img.narrow { max-width: 34rem; }
figcaption { color: #555; font-size: .92rem; margin-top: .5rem; }
table { border-collapse: collapse; font-size: .95rem; margin: .4rem 0; }
th, td { padding: .32rem .9rem .32rem 0; text-align: left; vertical-align: baseline; }
th { font-weight: 600; border-bottom: 1.5px solid #999; }
td { border-bottom: 1px solid #e8e8e4; }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
code, pre { font: .88em/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace; background: #f3f3f0; }
code { padding: .1em .25em; border-radius: 3px; overflow-wrap: anywhere; }
pre { padding: .9rem 1rem; overflow-x: auto; border-radius: 4px; }
summary { cursor: pointer; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
{% for part in parts %}
{% if part.kind == "heading" %}<h2>{{ part.text }}</h2>
{% elif part.kind == "text" %}<p>{{ part.text | inline }}</p>
{% elif part.kind == "figure" %}<figure>
<img{% if part.narrow %} class="narrow"{% endif %} alt="{{ part.caption }}" src="data:image/svg+xml;base64,{{ part.data }}">
<figcaption>{{ part.caption | inline }}</figcaption>
</figure>
{% elif part.kind == "table" %}<figure>
<div class="scroll"><table>
{% if part.headed %}<thead><tr>{% for c in part.columns %}<th{% if c.number %} class="number"{% endif %}>{{ c.name }}</th>{% endfor %}</tr></thead>
{% endif %}<tbody>
{% for row in part.rows %}<tr>{% for c in part.columns %}<td{% if c.number %} class="number"{% endif %}>{{ row[loop.index0] }}</td>{% endfor %}</tr>
{% endfor %}</tbody>
</table></div>
{% if part.caption %}<figcaption>{{ part.caption | inline }}</figcaption>
{% endif %}</figure>
{% elif part.kind == "details" %}<details><summary>{{ part.text }}</summary><pre>{{ part.body }}</pre></details>
{% endif %}{% endfor %}
</body>
</html>
"""  # noqa: E501


class Page:
    """A page that is added to from top to bottom, and saved as one HTML file.

    In texts and captions `code` and **bold** are marked as in Markdown; everything else is shown as it is.
    """

    def __init__(self, title: str) -> None:
        require_extra()
        self.title = title
        self.parts: list[dict[str, Any]] = []

    def add_heading(self, text: str) -> None:
        self.parts.append({"kind": "heading", "text": text})

    def add_text(self, text: str) -> None:
        """Paragraphs, parted by empty lines."""
        self.parts += [{"kind": "text", "text": part.strip()} for part in re.split(r"\n\s*\n", text) if part.strip()]

    def add_table(self, rows: Sequence[Row], caption: str = "") -> None:
        """Records with the same keys; where all keys are blank the table has no head."""
        names, cells, numeric = _cells(rows)
        columns = [{"name": name, "number": number} for name, number in zip(names, numeric, strict=True)]
        headed = any(name.strip() for name in names)
        self.parts.append({"kind": "table", "columns": columns, "rows": cells, "caption": caption, "headed": headed})

    def add_figure(self, figure: Any, caption: str) -> None:
        """A matplotlib figure; the caption should say what there is to see, it also stands for the image."""
        narrow = figure.get_figwidth() < 0.7 * WIDTH
        self.parts.append({"kind": "figure", "data": _svg(figure), "caption": caption, "narrow": narrow})

    def add_details(self, summary: str, body: str) -> None:
        """Text that is shown on demand, its blanks kept."""
        self.parts.append({"kind": "details", "text": summary, "body": body})

    def html(self) -> str:
        import jinja2

        environment = jinja2.Environment(autoescape=True, trim_blocks=False)
        environment.filters["inline"] = _inline
        return environment.from_string(_PAGE).render(title=self.title, parts=self.parts)

    def save(self, path: str | Path) -> None:
        """Write the page, whole or not at all."""
        with open_output(path) as out:
            out.write(self.html())


def require_extra() -> None:
    """Say at once, not after hours of work, if what a report needs is not installed."""
    if find_spec("matplotlib") is None or find_spec("jinja2") is None:
        raise missing_extra("report", "a report")


def shown(value: Any, digits: int = 3) -> str:
    """A value as tables show it, a fraction with so many digits."""
    if value is None:
        return "–"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:,.{digits}f}"
    return str(value)


def text_table(rows: Sequence[Row]) -> str:
    """The same rows for a terminal: columns aligned, numbers to the right."""
    names, cells, right = _cells(rows)
    table = [names, *cells]
    widths = [max(len(line[i]) for line in table) for i in range(len(names))]
    lines = [
        "  ".join(
            cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in table
    ]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def _cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]], list[bool]]:
    """The columns' names, the cells as text, and which columns hold numbers (all with the same number of digits)."""
    names = list(rows[0]) if rows else []
    columns, numeric = [], []
    for name in names:
        values = [row[name] for row in rows]
        numbers = [value for value in values if _is_number(value)]
        numeric.append(bool(numbers) and all(value is None or _is_number(value) for value in values))
        digits = 3 if all(abs(value) < 10 for value in numbers) else 1
        columns.append([shown(value, digits) for value in values])
    return names, [list(row) for row in zip(*columns, strict=True)], numeric


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _inline(text: str) -> Any:
    from markupsafe import Markup

    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked))


# ---- figures ---------------------------------------------------------------------------------------------------


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
