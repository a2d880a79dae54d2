"""The files of an experiment: Markdown, CSV, LaTeX and figures of each section, one page and one JSON file of all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from revup.experiments.sections import Section
from revup.io.files import atomic_file, write_json, write_text
from revup.reporting.figures import has_matplotlib, image
from revup.reporting.pages import Page
from revup.reporting.tables import MARK_NOTE, as_json, csv_text, latex, markdown

Provenance = dict[str, Any]


def write_sections(target: Path, sections: Sequence[Section]) -> list[str]:
    """Write all files.

    Args:
        target: The output directory.
        sections: What was computed.

    Returns:
        Notes on what could not be made for want of a library.
    """
    page = Page("RevUp: experiments")
    if any(table.compete for section in sections for table in section.tables):
        page.add_text(MARK_NOTE)
    for section in sections:
        folder = target / section.folder
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"{section.name}.md", section_markdown(section))
        write_text(folder / f"{section.name}.csv", csv_text(section.tables))
        write_text(folder / f"{section.name}.tex", section_latex(section))
        page.add_heading(f"{section.folder}: {section.title}" if section.folder else section.title)
        page.add_text(section.text)
        for table in section.tables:
            page.add_table(table)
        for name, draw, caption in section.figures if has_matplotlib() else ():
            figure = draw()
            for kind in ("svg", "png"):
                with atomic_file(folder / f"{name}.{kind}") as out:
                    out.write(image(figure, kind))
            page.add_figure(figure, caption)
        if section.about:
            page.add_table([{" ": key, "  ": value} for key, value in _lines(section.about)])
    page.save(target / "report.html")
    tables = [
        {
            "name": section.name,
            "dataset": section.about.get("dataset"),
            "provenance": section.about,
            "tables": [as_json(table) for table in section.tables],
        }
        for section in sections
    ]
    write_json(target / "results.json", {"sections": tables})
    if any(section.figures for section in sections) and not has_matplotlib():
        return ["figures were not drawn: they need the extra 'report': pip install 'revup[report]'"]
    return []


def _lines(about: Provenance) -> list[tuple[str, str]]:
    return [
        (key.replace("_", " "), value if isinstance(value, str) else json.dumps(value))
        for key, value in about.items()
        if value not in (None, [], {})
    ]


def section_markdown(section: Section) -> str:
    """A section as one Markdown file, its provenance at the end."""
    parts = [f"## {section.title}", section.text]
    parts += [markdown(table).rstrip() for table in section.tables]
    if any(table.compete for table in section.tables):
        parts.append(MARK_NOTE.replace("*", "\\*"))
    parts += [f"![{caption}]({stem}.svg)" for stem, _, caption in section.figures if has_matplotlib()]
    if section.about:
        parts.append(
            "\n".join(["### Provenance", "", *(f"- {key}: `{value}`" for key, value in _lines(section.about))])
        )
    return "\n\n".join(part for part in parts if part) + "\n"


def section_latex(section: Section) -> str:
    """A section's tables as LaTeX, its provenance in comments."""
    comments = [f"% {key}: {value}" for key, value in _lines(section.about)] + [f"% {MARK_NOTE}"]
    return "\n".join([*comments, "", *(latex(table) for table in section.tables)])
