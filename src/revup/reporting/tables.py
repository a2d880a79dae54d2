"""Tables over seeds: mean ± standard deviation, the best in bold, a mark where it is significantly best; rendered as
Markdown, LaTeX and CSV without any library.

The mark is from a paired t-test over seeds between the best row of a column and its runner-up:

    t = d̄ / (s_d/√n),   ν = n − 1,   two-sided p < 0.05,   d: differences seed by seed

With three seeds ν = 2, so t must pass 4.30: small but real differences go unmarked, normality can't be checked, and
nothing is corrected for the number of columns. The mark says "not by luck of the seed", not more.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

LEVEL = 0.05
MARK_NOTE = (
    "Mean ± standard deviation over seeds; the best of a column in bold; * where a paired t-test over seeds against "
    "the runner-up gives p < 0.05 (with three seeds a weak test: it has two degrees of freedom, and columns are not "
    "corrected for their number). Rows from the paper are on another corpus and never compete."
)

Values = tuple[float | None, ...]


@dataclass(frozen=True)
class Row:
    """A system, and for each column its value under each seed (None: not computed, or no such measure).

    A row that is `quoted` comes from elsewhere: one value a column, without a deviation, out of the competition.
    """

    label: str
    cells: tuple[Values, ...]
    quoted: bool = False
    digits: int | None = None  # where other than the table's


@dataclass(frozen=True)
class Table:
    """Rows of systems, columns of conditions, one measure."""

    name: str
    title: str
    corner: str  # what the columns are values of
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    digits: int = 3
    higher: bool = True  # is better
    compete: bool = True


@dataclass(frozen=True)
class Cell:
    """A cell as it is shown."""

    mean: float | None
    deviation: float | None  # None with fewer than two seeds
    seeds: int
    asked: int  # for how many seeds
    best: bool = False
    p: float | None = None  # of the best against its runner-up

    @property
    def significant(self) -> bool:
        return self.best and self.p is not None and self.p < LEVEL


def judge(table: Table) -> list[list[Cell]]:
    """The cells [rows][columns], with the best of each column found and tested against its runner-up."""
    columns = [_judge_column(table, number) for number in range(len(table.columns))]
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in table.rows]


def _judge_column(table: Table, number: int) -> list[Cell]:
    cells = [summary(row.cells[number]) for row in table.rows]
    sign = 1 if table.higher else -1
    ranked = sorted(
        (i for i, row in enumerate(table.rows) if not row.quoted and cells[i].mean is not None),
        key=lambda i: -sign * (cells[i].mean or 0.0),
    )
    if not table.compete or len(ranked) < 2:
        return cells
    shown = f"{cells[ranked[0]].mean:.{table.digits}f}"
    equal = [i for i in ranked if f"{cells[i].mean:.{table.digits}f}" == shown]
    p = None
    if len(equal) == 1:
        p = paired_p(table.rows[ranked[0]].cells[number], table.rows[ranked[1]].cells[number])
    for i in equal:
        cells[i] = replace(cells[i], best=True, p=p)
    return cells


def summary(values: Values) -> Cell:
    """Mean and deviation of the seeds that are there."""
    known = [value for value in values if value is not None]
    if not known:
        return Cell(None, None, 0, len(values))
    spread = statistics.stdev(known) if len(known) > 1 else None
    return Cell(statistics.fmean(known), spread, len(known), len(values))


def paired_p(first: Values, second: Values) -> float | None:
    """The two-sided p of a paired t-test over the seeds that both have; None with fewer than two."""
    differences = [a - b for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if len(differences) < 2:
        return None
    mean, spread = statistics.fmean(differences), statistics.stdev(differences)
    if spread < 1e-12 * max(1.0, abs(mean)):
        return 0.0 if abs(mean) > 1e-12 else 1.0
    return t_p(mean / (spread / math.sqrt(len(differences))), len(differences) - 1)


def t_p(t: float, freedom: int) -> float:
    """P(|T| > |t|) of Student's t with a whole number ν of degrees of freedom: a finite series in θ = atan(t/√ν).

    ν even: 1 − sin θ (1 + ½cos²θ + 1·3/(2·4) cos⁴θ + …);  ν odd: 1 − 2/π (θ + sin θ (cos θ + 2/3 cos³θ + …)).
    """
    angle = math.atan2(abs(t), math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return min(max(1.0 - inside, 0.0), 1.0)


# ---- rendering -------------------------------------------------------------------------------------------------


def cell_text(
    cell: Cell, digits: int, bold: tuple[str, str] = ("", ""), plus_minus: str = " ± ", mark: str = "*"
) -> str:
    """One cell, the mean wrapped in `bold` where it is best."""
    if cell.mean is None:
        return "–"
    before, after = bold if cell.best else ("", "")
    spread = "" if cell.deviation is None else f"{plus_minus}{cell.deviation:.{digits}f}"
    lacking = f" ({cell.seeds} of {cell.asked})" if cell.seeds < cell.asked else ""
    return f"{before}{cell.mean:.{digits}f}{after}{spread}{lacking}{mark if cell.significant else ''}"


def row_digits(row: Row, table: Table) -> int:
    return table.digits if row.digits is None else row.digits


def markdown(table: Table) -> str:
    """A pipe table with its title above and its caption below."""
    lines = [
        f"| {table.corner} | " + " | ".join(table.columns) + " |",
        "|---" + "|---:" * len(table.columns) + "|",
    ]
    for row, cells in zip(table.rows, judge(table), strict=True):
        label = f"*{row.label}*" if row.quoted else row.label
        shown = [cell_text(cell, row_digits(row, table), ("**", "**"), mark="\\*") for cell in cells]
        lines.append(f"| {label} | " + " | ".join(shown) + " |")
    parts = [f"### {table.title}", "\n".join(lines), table.caption]
    return "\n\n".join(part for part in parts if part) + "\n"


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
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "*": r"$^{*}$",
}


def latex_text(text: str) -> str:
    """Text with what LaTeX would read as commands written out."""
    return "".join(_LATEX.get(letter, letter) for letter in text.replace("`", ""))


def latex(table: Table) -> str:
    """A table environment that needs no package."""
    head = " & ".join(latex_text(text) for text in (table.corner, *table.columns))
    lines = []
    for row, cells in zip(table.rows, judge(table), strict=True):
        label = rf"\textit{{{latex_text(row.label)}}}" if row.quoted else latex_text(row.label)
        shown = [
            cell_text(cell, row_digits(row, table), (r"\textbf{", "}"), r"{\scriptsize$\,\pm\,$", "").replace("–", "--")
            + ("}" if cell.deviation is not None else "")
            + ("$^{*}$" if cell.significant else "")
            for cell in cells
        ]
        lines.append(" & ".join([label, *shown]) + r" \\")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"\hline",
            head + r" \\",
            r"\hline",
            *lines,
            r"\hline",
            r"\end{tabular}",
            rf"\caption{{{latex_text(' '.join([table.title + '.', table.caption]).strip())}}}",
            rf"\label{{tab:{table.name}}}",
            r"\end{table}",
            "",
        ]
    )


CSV_COLUMNS = ("table", "system", "source", "corner", "condition", "mean", "deviation", "seeds", "best", "p", "values")


def csv_text(tables: Iterable[Table]) -> str:
    """All tables as one, a line a cell; `values` are those of the seeds, parted by blanks."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for table in tables:
        for row, cells in zip(table.rows, judge(table), strict=True):
            for column, cell, values in zip(table.columns, cells, row.cells, strict=True):
                writer.writerow(
                    [
                        table.name,
                        row.label,
                        "quoted" if row.quoted else "ours",
                        table.corner,
                        column,
                        *(_number(value) for value in (cell.mean, cell.deviation)),
                        cell.seeds,
                        int(cell.best),
                        _number(cell.p),
                        " ".join(_number(value) or "-" for value in values),
                    ]
                )
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
                    {"mean": cell.mean, "deviation": cell.deviation, "best": cell.best, "p": cell.p, "values": values}
                    for cell, values in zip(cells, row.cells, strict=True)
                ],
            }
            for row, cells in zip(table.rows, judge(table), strict=True)
        ],
    }


def quoted(label: str, values: Sequence[float | None], digits: int | None = None) -> Row:
    """A row of numbers from elsewhere."""
    return Row(label, tuple((value,) for value in values), True, digits)
