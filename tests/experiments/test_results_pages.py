"""The tables of docs/results that have raw runs are what `--from-runs` makes of them, byte for byte."""

from __future__ import annotations

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
