"""The README: what its example prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from paths import ROOT


def test_readme_example_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example, *_) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert len(example.splitlines()) <= 24
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[:2]] == ["lookup", "revup"]
    assert len(printed) == 7
    assert names["vectors"].shape[0] == 300
