"""Commands that must fail, and how every failure looks."""

from __future__ import annotations

import pytest

from revup import cli


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command; it must exit with 2 and one line on standard error."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    captured = capsys.readouterr()
    assert exit_.value.code == 2
    assert captured.err.startswith("revup: error: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    return captured.err
