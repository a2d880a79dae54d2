"""Tables: one type for scores over seeds and for plain records, rendered as text, Markdown, LaTeX, HTML, CSV and JSON.

A cell over seeds shows mean ± standard deviation and, where a row has them, an interval over documents; the best of a
column is bold. A row may mark cells: tables of experiments mark a best score whose difference to the runner-up is one.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

MARK_NOTE = (
    "Mean over seeds ± standard deviation over seeds [95% interval of the mean over test documents: a bootstrap that "
    "draws documents]; the best of a column in bold; * where the paired interval of its difference to the runner-up "
    "excludes 0, (*) where the jackknife's interval, wider if documents are few, includes it: not certain. Columns are "
    "not corrected for their number. Rows from the paper are on another corpus and are not compared."
)

Interval = tuple[float, float]
Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        label: Its name, in the first column.
        cells: For each column the values under each seed (None: not computed, or no such measure), or a text.
        quoted: Whether the values come from elsewhere: shown in italics, never the best of a column.
        digits: Digits after the decimal point, where other than the table's.
        intervals: For each column an interval that is shown behind the mean; none where empty.
        marked: For each column whether the cell has a mark; none where empty.
        unsure: For each column whether a mark is in brackets; none where empty.
    """

    label: str
    cells: tuple[Values | str, ...]
    quoted: bool = False
    digits: int | None = None
    intervals: tuple[Interval | None, ...] = ()
    marked: tuple[bool, ...] = ()
    unsure: tuple[bool, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows of systems and columns of conditions or measures.

    Attributes:
        name: Identifies the table in CSV, JSON and LaTeX labels.
        title: The heading above it.
        corner: Heading of the first column: what the columns are values of.
        columns: Headings of the other columns.
        rows: The rows.
        caption: The text below it.
        digits: Digits after the decimal point, one number for all columns or one for each.
        higher: Whether higher values are better.
        compete: Whether the best of each column is bold.
        signed: Whether numbers are differences, shown with their sign.
    """

    name: str
    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    digits: int | tuple[int, ...] = 3
    higher: bool = True
    compete: bool = True
    signed: bool = False

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]], caption: str = "") -> Table:
        """A table of records that have the same keys.

        Args:
            records: A record for each row; the first key holds the row's label.
            caption: The text below the table.

        Returns:
            The table; fractions of a column all have three digits, or one where any is 10 or more.
        """
        corner, *columns = list(records[0]) if records else [""]
        numbers = {name: [r[name] for r in records if isinstance(r[name], (float, np.floating))] for name in columns}
        digits = tuple(
            (1 if any(abs(n) >= 10 for n in numbers[name]) else 3) if numbers[name] else 0 for name in columns
        )
        rows = tuple(Row(str(r[corner]), tuple(_entry(r[name]) for name in columns)) for r in records)
        return cls("", "", corner, tuple(columns), rows, caption, digits, compete=False)

    def digits_of(self, row: Row, column: int) -> int:
        """Digits after the decimal point of a cell."""
        if row.digits is not None:
            return row.digits
        return self.digits if isinstance(self.digits, int) else self.digits[column]


def quoted(label: str, values: Sequence[float | None], digits: int | None = None) -> Row:
    """A row of numbers from elsewhere, one for each column."""
    return Row(label, tuple((value,) for value in values), True, digits)


def _entry(value: Any) -> Values | str:
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    return value if isinstance(value, str) else (value,)


# ---- means, and which is the best --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A cell as it is shown: a mean over seeds, or a text."""

    mean: float | None
    deviation: float | None  # None with fewer than two seeds
    seeds: int
    asked: int  # for how many seeds
    best: bool = False
    marked: bool = False
    unsure: bool = False
    interval: Interval | None = None
    text: str | None = None


def judge(table: Table) -> list[list[Cell]]:
    """The cells [rows][columns], with the best of each column found."""
    columns = [_judge_column(table, number) for number in range(len(table.columns))]
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in table.rows]


def _judge_column(table: Table, number: int) -> list[Cell]:
    cells = [
        replace(
            summary(row.cells[number]),
            interval=row.intervals[number] if row.intervals else None,
            marked=bool(row.marked) and row.marked[number],
            unsure=bool(row.unsure) and row.unsure[number],
        )
        for row in table.rows
    ]
    ours = [i for i, row in enumerate(table.rows) if not row.quoted and cells[i].mean is not None]
    most = max((cells[i].seeds for i in ours), default=0)
    ranked = sorted(
        (i for i in ours if cells[i].seeds == most),  # a mean over fewer seeds than others have is not compared
        key=lambda i: (cells[i].mean or 0.0) * (-1 if table.higher else 1),
    )
    if not table.compete or len(ranked) < 2:
        return cells
    shown = [f"{cells[i].mean:.{table.digits_of(table.rows[i], number)}f}" for i in ranked]
    for i in (i for i, text in zip(ranked, shown, strict=True) if text == shown[0]):
        cells[i] = replace(cells[i], best=True)
    return cells


def summary(values: Values | str) -> Cell:
    """Mean and standard deviation over the seeds that have a value."""
    if isinstance(values, str):
        return Cell(None, None, 0, 0, text=values)
    known = [value for value in values if value is not None]
    if not known:
        return Cell(None, None, 0, len(values))
    spread = statistics.stdev(known) if len(known) > 1 else None
    return Cell(statistics.fmean(known), spread, len(known), len(values))


# ---- rendering -------------------------------------------------------------------------------------------------

_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "ε": r"$\epsilon$",
    "η": r"$\eta$",
    "λ": r"$\lambda$",
    "β": r"$\beta$",
    "̂": "",  # a combining hat: the letter before it says enough in a caption
    "`": "",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "*": r"$^{*}$",
}


def latex_text(text: str) -> str:
    """Text with the characters that have a meaning in LaTeX escaped."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


@dataclass(frozen=True)
class _Style:
    """How one format writes a cell."""

    bold: str
    italic: str
    deviation: str
    mark: str
    escape: Callable[[str], str]


_TEXT = _Style("{}", "{}", " ± {}", "*", str)
_MARKDOWN = _Style("**{}**", "*{}*", " ± {}", "\\*", lambda text: text.replace("|", "\\|"))
_HTML = _Style("<strong>{}</strong>", "<em>{}</em>", " ± {}", "*", escape)
_LATEX_STYLE = _Style(r"\textbf{{{}}}", r"\textit{{{}}}", r"{{\scriptsize$\,\pm\,${}}}", "$^{*}$", latex_text)


def _shown(table: Table, style: _Style) -> list[list[str]]:
    """The cells as a format writes them, the header and the rows' labels included."""
    lines = [[style.escape(text) for text in (table.corner, *table.columns)]]
    for row, cells in zip(table.rows, judge(table), strict=True):
        label = style.escape(row.label)
        shown = [
            _cell_text(cell, table.digits_of(row, column), style, "+" if table.signed else "")
            for column, cell in enumerate(cells)
        ]
        lines.append([style.italic.format(label) if row.quoted else label, *shown])
    return lines


def _cell_text(cell: Cell, digits: int, style: _Style, sign: str = "") -> str:
    if cell.mean is None:
        return style.escape("–" if cell.text is None else cell.text)
    mean = f"{cell.mean:{sign},.{digits}f}"
    spread = "" if cell.deviation is None else style.deviation.format(f"{cell.deviation:,.{digits}f}")
    lacking = f" ({cell.seeds} of {cell.asked})" if cell.seeds < cell.asked else ""
    found = cell.interval
    within = "" if found is None else f" [{found[0]:{sign},.{digits}f}, {found[1]:{sign},.{digits}f}]"
    mark = f" ({style.mark})" if cell.unsure else style.mark
    return f"{style.bold.format(mean) if cell.best else mean}{spread}{within}{lacking}{mark if cell.marked else ''}"


def _numeric(table: Table) -> list[bool]:
    """Which columns, that of the labels included, are aligned to the right."""
    columns = range(len(table.columns))
    return [False, *(not any(isinstance(row.cells[column], str) for row in table.rows) for column in columns)]


def text(table: Table) -> str:
    """A table for a terminal: columns aligned, numbers to the right, without title and caption."""
    lines, right = _shown(table, _TEXT), _numeric(table)
    widths = [max(len(line[i]) for line in lines) for i in range(len(right))]
    lines.insert(1, ["─" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def text_table(records: Sequence[Mapping[str, Any]]) -> str:
    """Records with the same keys as a table for a terminal."""
    return text(Table.of(records))


def markdown(table: Table) -> str:
    """A pipe table with its title above and its caption below."""
    head, *lines = (f"| {' | '.join(line)} |" for line in _shown(table, _MARKDOWN))
    rule = "|" + "|".join("---:" if number else "---" for number in _numeric(table)) + "|"
    parts = [f"### {table.title}" if table.title else "", "\n".join([head, rule, *lines]), table.caption]
    return "\n\n".join(part for part in parts if part) + "\n"


def html(table: Table) -> str:
    """A `table` element without title and caption; it has no header where all headings are blank."""
    kinds = [' class="number"' if number else "" for number in _numeric(table)]
    head, *lines = _shown(table, _HTML)

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{k}>{cell}</{tag}>" for k, cell in zip(kinds, cells, strict=True)) + "</tr>"

    header = f"<thead>{line(head, 'th')}</thead>\n" if any(name.strip() for name in head) else ""
    return f"<table>\n{header}<tbody>\n" + "\n".join(line(cells, "td") for cells in lines) + "\n</tbody>\n</table>"


def latex(table: Table) -> str:
    """A table environment that needs no package."""
    head, *lines = (" & ".join(line) + r" \\" for line in _shown(table, _LATEX_STYLE))
    align = "".join("r" if number else "l" for number in _numeric(table))
    caption = latex_text(" ".join([f"{table.title}.", table.caption]).strip())
    begin = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{align}}}", r"\hline", head, r"\hline"]
    end = [r"\hline", r"\end{tabular}", rf"\caption{{{caption}}}", rf"\label{{tab:{table.name}}}", r"\end{table}", ""]
    return "\n".join([*begin, *lines, *end])


CSV_COLUMNS = (
    *("table", "system", "source", "corner", "condition", "mean", "deviation", "seeds", "low", "high"),
    *("best", "marked", "unsure", "values"),
)


def csv_text(tables: Iterable[Table]) -> str:
    """All tables as one CSV, a line for each cell; `values` are those of the seeds, separated by spaces."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for table in tables:
        for row, cells in zip(table.rows, judge(table), strict=True):
            source = "quoted" if row.quoted else "ours"
            for column, cell, values in zip(table.columns, cells, row.cells, strict=True):
                spread = [_number(value) for value in (cell.mean, cell.deviation)]
                within = [_number(value) for value in cell.interval or (None, None)]
                figures = (*spread, cell.seeds, *within, *map(int, (cell.best, cell.marked, cell.unsure)))
                listed = values if isinstance(values, str) else " ".join(_number(value) or "-" for value in values)
                place = (table.name, row.label, source, table.corner, column)
                writer.writerow([*place, *figures, listed])
    return out.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def as_json(table: Table) -> dict[str, Any]:
    """A table with all its cells, for results.json."""
    return {
        "name": table.name,
        "title": table.title,
        "columns": list(table.columns),
        "higher_is_better": table.higher,
        "rows": [
            {
                "system": row.label,
                "quoted": row.quoted,
                "cells": [
                    {
                        "mean": cell.mean,
                        "deviation": cell.deviation,
                        "interval": cell.interval,
                        "best": cell.best,
                        "marked": cell.marked,
                        "unsure": cell.unsure,
                        "values": values,
                    }
                    for cell, values in zip(cells, row.cells, strict=True)
                ],
            }
            for row, cells in zip(table.rows, judge(table), strict=True)
        ],
    }
