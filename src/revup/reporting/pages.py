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

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from revup.io.files import open_output
from revup.reporting.figures import WIDTH, _svg, require_extra

Row = Mapping[str, Any]


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
