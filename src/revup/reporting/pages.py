"""Tables and figures as one HTML file that needs nothing beside itself: no scripts, no network.

page = Page("Results")
page.add_heading("Scores")
page.add_table([{"model": "lookup", "accuracy": 0.51}, {"model": "revup", "accuracy": 0.88}])
page.add_figure(training_curves(metrics), "Loss and validation scores over training.")
page.save("report.html")
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from revup.io.files import open_output
from revup.reporting.figures import WIDTH, image
from revup.reporting.tables import Table, html

STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fdfdfc; --quiet: #555; --line: #e3e3df; --shade: #f3f3f0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e4e0; --paper: #1b1b1a; --quiet: #a8a8a3; --line: #3a3a37; --shade: #272725; }
  figure img { background: #fdfdfc; border-radius: 4px; }
}
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--ink);
  background: var(--paper); max-width: 60rem; margin: 2.5rem auto 5rem; padding: 0 1.2rem; overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 -.6rem; }
p { margin: .6rem 0; }
figure { margin: 1.2rem 0 1.8rem; }
figure img { display: block; width: 100%; height: auto; }
figure img.wide { min-width: 42rem; }
figure img.narrow { max-width: 34rem; }
figcaption { color: var(--quiet); font-size: .92rem; margin-top: .5rem; }
table { border-collapse: collapse; font-size: .95rem; margin: .4rem 0; }
th, td { padding: .32rem .9rem .32rem 0; text-align: left; vertical-align: baseline; }
th:first-child, td:first-child { min-width: 8rem; }
th { font-weight: 600; border-bottom: 1.5px solid var(--quiet); }
td { border-bottom: 1px solid var(--line); }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.scroll { overflow-x: auto; }
code, pre { font: .88em/1.45 ui-monospace, "SF Mono", Menlo, Consolas, monospace; background: var(--shade); }
code { padding: .1em .25em; border-radius: 3px; overflow-wrap: anywhere; }
pre { padding: .9rem 1rem; overflow-x: auto; border-radius: 4px; }
summary { cursor: pointer; }
"""


class Page:
    """A page that is filled from top to bottom and saved as one HTML file, for light and dark screens of any width.

    In texts and captions `code` and **bold** are marked as in Markdown; everything else is shown as it is.

    Args:
        title: Title and main heading.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = []

    def add_heading(self, text: str) -> None:
        """Start a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def add_text(self, text: str) -> None:
        """Add paragraphs, which empty lines separate."""
        self._parts += [f"<p>{_inline(part.strip())}</p>" for part in re.split(r"\n\s*\n", text) if part.strip()]

    def add_table(self, table: Table | Sequence[Mapping[str, Any]], caption: str = "") -> None:
        """Add a table.

        Args:
            table: The table, or records with the same keys for `Table.of`.
            caption: The text below it; by default the table's own.
        """
        if not isinstance(table, Table):
            table = Table.of(table)
        if table.title:
            self._parts.append(f"<h3>{escape(table.title)}</h3>")
        self._add(html(table), caption or table.caption)

    def add_figure(self, figure: Any, caption: str) -> None:
        """Add a matplotlib figure.

        Args:
            figure: The figure.
            caption: What it shows; also the description of the image for those who do not see it.
        """
        width = "narrow" if figure.get_figwidth() < 0.7 * WIDTH else "wide"
        data = b64encode(image(figure)).decode("ascii")
        alt = escape(re.sub(r"[`*]", "", caption))
        self._add(f'<img class="{width}" alt="{alt}" src="data:image/svg+xml;base64,{data}">', caption)

    def add_details(self, summary: str, body: str) -> None:
        """Add preformatted text that is shown on demand."""
        self._parts.append(f"<details><summary>{escape(summary)}</summary><pre>{escape(body)}</pre></details>")

    def add_preformatted(self, text: str) -> None:
        """Add text whose spaces and line ends are kept."""
        self._parts.append(f"<pre>{escape(text)}</pre>")

    def _add(self, content: str, caption: str) -> None:
        shown = f"<figcaption>{_inline(caption)}</figcaption>\n" if caption else ""
        self._parts.append(f'<figure>\n<div class="scroll">{content}</div>\n{shown}</figure>')

    def html(self) -> str:
        """The whole page."""
        head = (
            '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>"
        )
        body = "\n".join([f"<h1>{escape(self.title)}</h1>", *self._parts])
        return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'

    def save(self, path: str | Path) -> None:
        """Write the page, whole or not at all."""
        with open_output(path) as out:
            out.write(self.html())


def _inline(text: str) -> str:
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked)
