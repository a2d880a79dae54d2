"""Tables: means, intervals, and their renderings."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from dataclasses import replace

import numpy as np
import pytest

from revup.reporting import tables as t
from revup.reporting.tables import Row, Table, judge, text_table

TABLE = Table(
    "test-table",
    "A title",
    "ε",
    ("0.1", "1"),
    (
        Row("A & B", ((0.50, 0.52, 0.54), (0.9, 0.8, 0.7))),
        Row(
            "RevUp",
            ((0.70, 0.72, 0.741), (0.91, 0.79, 0.73)),
            intervals=((0.6, 0.8004), None),
            marked=(True, False),
        ),
        Row("Lookup", ((None, None, None), (0.5, None, 0.7))),
        t.quoted("printed", [0.99, None], 2),
    ),
    "A caption, 100% true.",
)


def test_mean_deviation_and_best() -> None:
    cells = judge(TABLE)
    assert cells[0][0].mean == pytest.approx(0.52)
    assert cells[0][0].deviation == pytest.approx(0.02)
    assert [row[0].best for row in cells] == [False, True, False, False]  # what is quoted never competes
    assert [row[1].best for row in cells] == [False, True, False, False]
    assert [(cell.marked, cell.interval) for cell in cells[1]] == [(True, (0.6, 0.8004)), (False, None)]
    assert (cells[2][0].mean, cells[2][1].seeds) == (None, 2)
    assert cells[2][1].deviation == pytest.approx(statistics.stdev([0.5, 0.7]))


def test_differences_have_their_sign() -> None:
    rows = (Row("a", ((0.1, 0.3),), intervals=((-0.1, 0.5),)),)
    shown = t.markdown(Table("", "", "", ("x",), rows, compete=False, signed=True))
    assert "| a | +0.200 ± 0.141 [-0.100, +0.500] |" in shown


def test_lower_is_better_ties_and_no_competition() -> None:
    lower = judge(replace(TABLE, higher=False))
    assert [row[0].best for row in lower] == [True, False, False, False]
    tie = judge(replace(TABLE, rows=(TABLE.rows[0], TABLE.rows[0])))
    assert all(cell.best and not cell.marked for row in tie for cell in row)
    assert not any(cell.best for row in judge(replace(TABLE, compete=False)) for cell in row)
    assert not any(cell.best for row in judge(replace(TABLE, rows=TABLE.rows[:1])) for cell in row)


def test_cells_that_lack_seeds_of_others_are_not_bold() -> None:
    rows = (Row("one seed", ((None, 0.9),)), Row("both", ((0.5, 0.7),)), Row("too", ((0.4, 0.5),)))
    table = Table("", "", "", ("x",), rows)
    assert [row[0].best for row in judge(table)] == [False, True, False]
    assert [line for line in t.markdown(table).split("\n") if "one seed" in line] == ["| one seed | 0.900 (1 of 2) |"]


def test_marks_that_are_not_certain_are_in_brackets() -> None:
    rows = (Row("a", ((0.25,), (0.5,)), marked=(True, True), unsure=(True, False)), Row("b", ((0.0,), (0.0,))))
    shown = t.markdown(Table("", "", "", ("x", "y"), rows))
    assert r"| a | **0.250** (\*) | **0.500**\* |" in shown


def test_markdown() -> None:
    lines = t.markdown(TABLE).split("\n")
    assert lines[0] == "### A title"
    assert lines[2] == "| ε | 0.1 | 1 |"
    assert lines[4] == "| A & B | 0.520 ± 0.020 | 0.800 ± 0.100 |"
    assert lines[5] == r"| RevUp | **0.720** ± 0.021 [0.600, 0.800]\* | **0.810** ± 0.092 |"
    assert lines[6] == "| Lookup | – | 0.600 ± 0.141 (2 of 3) |"
    assert lines[7] == "| *printed* | 0.99 | – |"
    assert {line.count("|") for line in lines[2:8]} == {4}


def test_latex_is_well_formed() -> None:
    text = t.latex(TABLE)
    assert r"A \& B & 0.520{\scriptsize$\,\pm\,$0.020}" in text
    assert r"RevUp & \textbf{0.720}{\scriptsize$\,\pm\,$0.021} [0.600, 0.800]$^{*}$" in text
    assert r"\textit{printed} & 0.99 & -- \\" in text
    assert r"100\% true" in text
    assert r"$\epsilon$ & 0.1 & 1 \\" in text
    assert text.isascii()
    assert re.findall(r"\\(begin|end)\{(\w+)\}", text) == [
        ("begin", "table"),
        ("begin", "tabular"),
        ("end", "tabular"),
        ("end", "table"),
    ]
    plain = re.sub(r"\\[\\{}$&%]", "", text)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert {line.replace(r"\&", "").count("&") for line in text.split("\n") if line.endswith(r"\\")} == {2}


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(t.csv_text([TABLE]))))
    assert len(rows) == 8
    found = next(row for row in rows if row["system"] == "RevUp" and row["condition"] == "0.1")
    assert float(found["mean"]) == pytest.approx(0.720333, abs=1e-6)
    assert [float(value) for value in found["values"].split()] == [0.70, 0.72, 0.741]
    assert (found["best"], found["seeds"], found["source"]) == ("1", "3", "ours")
    assert (found["low"], found["high"], found["marked"]) == ("0.6", "0.8004", "1")
    assert rows[-1]["source"] == "quoted"
    assert json.loads(json.dumps(t.as_json(TABLE)))["rows"][1]["cells"][0]["best"]


def test_html_escapes_and_marks() -> None:
    shown = t.html(TABLE)
    assert "<tr><td>A &amp; B</td>" in shown
    assert '<td class="number"><strong>0.720</strong> ± 0.021 [0.600, 0.800]*</td>' in shown
    assert "<td><em>printed</em></td>" in shown


def test_text_table_is_aligned() -> None:
    rows = [{"": "lookup", "accuracy": 0.5, "n": 3}, {"": "revup, ours", "accuracy": None, "n": 12000}]
    lines = text_table(rows).splitlines()
    assert lines == [
        "             accuracy       n",
        "───────────  ────────  ──────",
        "lookup          0.500       3",
        "revup, ours         –  12,000",
    ]
    assert text_table([]) == "\n"


def test_fractions_of_a_column_have_the_same_digits() -> None:
    rows = [
        {"model": "a", "perplexity": 9.81, "right": True},
        {"model": "b", "perplexity": np.float64(10.8), "right": False},
    ]
    assert [line.split() for line in text_table(rows).splitlines()[2:]] == [["a", "9.8", "yes"], ["b", "10.8", "no"]]
