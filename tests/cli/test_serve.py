"""`revup serve`: what its options become, and what is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failing import fails
from revup import cli
from revup.serving import server


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments that the server is started with."""
    found: dict[str, Any] = {}

    def serve(models: dict[str, str], host: str, port: int, **options: Any) -> int:
        found.update(models=models, host=host, port=port, **options)
        return 0

    monkeypatch.setattr(server, "serve", serve)
    return found


def test_options_reach_the_server(called: dict[str, Any]) -> None:
    cli.run(["serve", "runs/news", "--model", "legal=l", "--port", "0", "--cors", "https://a", "--max-queue", "20001"])
    assert list(called["models"].items()) == [("news", "runs/news"), ("legal", "l")]
    assert (called["host"], called["port"], called["cors"], called["max_queue"]) == (
        "127.0.0.1",
        0,
        ["https://a"],
        20001,
    )
    assert (called["token"], called["log_requests"], called["log_bodies"]) == (None, False, False)
    cli.run(["serve", "--model", "a=b", "--log", "bodies"])
    assert (called["models"], called["log_requests"], called["log_bodies"]) == ({"a": "b"}, True, True)


def test_token_comes_from_a_file_or_the_environment(
    called: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REVUP_TOKEN", "from-environment")
    cli.run(["serve", "run"])
    assert called["token"] == "from-environment"
    (tmp_path / "token").write_text("from-file\n")
    cli.run(["serve", "run", "--token-file", str(tmp_path / "token")])
    assert called["token"] == "from-file"
    (tmp_path / "token").write_text("two words")
    message = fails(["serve", "run", "--token-file", str(tmp_path / "token")], capsys)
    assert "expected a token of ASCII letters without blanks" in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected RUN or --model NAME=RUN"),
        (["--model", "a"], "--model: expected NAME=RUN, found 'a'"),
        (["runs/news", "--model", "news=other"], "model: the name news is given twice"),
        (["run", "--max-queue", "5"], "max-queue: expected at least max-events (10000), found 5"),
        (["run", "--window", "-1"], "window: expected a number from 0 to 1000, found -1.0"),
        (["run", "--host", "999.1.1.1"], "host: '999.1.1.1' is no address of this machine"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in fails(["serve", *arguments], capsys)
