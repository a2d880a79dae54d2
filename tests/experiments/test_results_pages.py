"""The tables of docs/results and the README are what is made of the raw runs, byte for byte."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from paths import ROOT
from revup.experiments import experiment
from revup.experiments.runs import read_lines

RESULTS = ROOT / "docs" / "results"
FILES = [path for path in sorted((RESULTS / "runs").glob("*.jsonl.gz")) if "maths" in read_lines(path)[0][-1]]


@pytest.mark.parametrize("runs", FILES, ids=lambda path: path.name.partition(".")[0])
def test_tables_are_made_from_raw_runs_byte_for_byte(runs: Path, tmp_path: Path) -> None:
    pages = RESULTS / runs.name.partition(".")[0]
    shown = [path.relative_to(pages) for path in sorted(pages.rglob("*.md"))]
    assert shown
    names = sorted({path.stem for path in shown} - {"README"})
    experiment(names, None, tmp_path / "made", from_runs=runs)
    for path in shown:
        if path.stem != "README":
            assert (tmp_path / "made" / path).read_bytes() == (pages / path).read_bytes(), path


def test_tables_across_experiments_are_made_from_raw_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    program = import_module("make_results")
    made = [found[1] for page in program.PAGES for found in program.TABLE.findall(page.read_text("utf-8"))]
    assert sorted(made) == sorted(program.TABLES)  # each in one place
    for page in program.PAGES:
        text = page.read_text("utf-8")
        assert program.written(text) == text, f"{page.name}: run: python docs/make_results.py"
