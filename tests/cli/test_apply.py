"""`revup apply` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auditing.lists import written
from failing import fails
from revup import cli
from revup.auditing.issues import decisions_path, read_issues


def test_apply_writes_the_file_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, listed = written(tmp_path)
    row = {"id": "d1", "event": 0, "given": "Trial", "decision": "accept", "frame": "Verdict"}
    decisions = decisions_path(listed)
    decisions.write_text(json.dumps({**row, "digest": read_issues(listed).about.digest}) + "\n")
    arguments = ["apply", str(file), str(decisions), "--out", str(tmp_path / "out.jsonl")]
    cli.run(arguments)
    assert capsys.readouterr().err == "revup: 1 of 1 reviewed labels changed, 0 unchanged, 0 skipped\n"
    before, after = file.read_text(), (tmp_path / "out.jsonl").read_text()
    assert [a == b for a, b in zip(before.splitlines(), after.splitlines(), strict=True)] == [True, False] + [True] * 4
    assert "exists already (--force replaces it)" in fails(arguments, capsys)
    cli.run([*arguments, "--force", "--json"])
    assert json.loads(capsys.readouterr().out)["changed"] == 1
    assert "--json: standard output is taken" in fails([*arguments[:-1], "-", "--json"], capsys)
