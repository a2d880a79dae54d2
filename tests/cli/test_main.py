"""The command as a whole: help, usage, exit statuses, one line for every error."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from failing import fails
from revup import cli
from revup.errors import Interrupted


def revup(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "revup", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120, check=False, **options)


def test_version_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("revup ")
    cli.run([])
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in cli.VERBS)


@pytest.mark.parametrize("verb", sorted(cli.VERBS))
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.run([verb, "--help"])
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    assert "example" in shown
    assert f"revup {verb}" in shown


def test_help_of_a_verb_names_every_choice(capsys: pytest.CaptureFixture[str]) -> None:
    from revup.experiments import NAMES
    from revup.inference.cloze import LATENTS, SCORES
    from revup.inference.decoding import METHODS

    for verb, choices in (("generate", METHODS), ("cloze", (*SCORES, *LATENTS)), ("experiment", NAMES)):
        with pytest.raises(SystemExit):
            cli.run([verb, "--help"])
        shown = capsys.readouterr().out
        assert [choice for choice in choices if choice not in shown] == [], verb


def test_help_starts_without_torch_and_numpy() -> None:
    program = "import sys; from revup import cli; cli.run(['--help']); print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")


def test_wrong_usage_names_what_is_wrong(
    data: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "never")
    cases = {
        "unknown verb": ["dance"],
        "--out": ["train", str(data)],
        "epsilon": ["train", str(data), "--out", out, "--epsilon", "1.5"],
        "eta": ["train", str(data), "--out", out, "--eta", "nan"],
        "exists already": ["train", str(data), "--out", str(trained)],
        "corpus.json is missing": ["train", str(tmp_path), "--out", out],
        "config.json is missing": ["evaluate", str(tmp_path)],
        "no preset": ["train", str(data), "--out", out, "--preset", "magic"],
        "network.size": ["train", str(data), "--out", out, "--network.size", "huge"],
        "--top": ["predict", str(trained), "x.jsonl", "--top", "0"],
        "no such file": ["predict", str(trained), str(tmp_path / "absent.jsonl")],
        "a directory": ["predict", str(trained), str(tmp_path)],
        "expected three": ["prepare", "x.jsonl", "--out", out, "--split", "1,2"],
        "(--resume continues it, --force replaces it)": ["train", str(data), "--out", str(trained)],
        "(--force replaces it)": ["world", "--out", str(data)],
        "did you mean train?": ["trian"],
        "unknown option --objective.alpah; did you mean --objective.alpha?": [
            *("train", str(data), "--out", out, "--objective.alpah=1")
        ],
        "unknown option --tap; did you mean --top?": ["predict", str(trained), "x.jsonl", "--tap", "3"],
        "unexpected argument 'more'": ["evaluate", str(trained), str(data), "more"],
        "events: expected a whole number from 1 to 1000": ["prepare", "x.jsonl", "--out", out, "--events", "100000"],
        "classes: expected a whole number from 2 to 100000": [
            *("prepare", "x.jsonl", "--out", out, "--classes", "1000000000")
        ],
    }
    for expected, arguments in cases.items():
        assert expected in fails(arguments, capsys), arguments
    assert not Path(out).exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "-1"], "seed: expected a whole number from 0 to 9223372036854775807, found -1"),
        (["--seed", "9" * 20], "seed: expected a whole number from 0 to 9223372036854775807"),
        (["--epsilon", "much"], "epsilon: expected a number from 0 to 1, found 'much'"),
        (["--objective.alpha", "inf"], "objective.alpha: expected a number of 0 or more, found inf"),
        (["--network.hidden", "1.5"], "network.hidden: expected a whole number from 1 to 65536, found '1.5'"),
        (["--objective.induce", "maybe"], "objective.induce: expected true or false, found 'maybe'"),
    ],
)
def test_wrong_setting_names_the_allowed_values(
    options: list[str], message: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in fails(["train", str(data), "--out", str(tmp_path / "never"), *options], capsys)
    assert not (tmp_path / "never").exists()


def test_full_disk_is_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "revup", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "revup: error: standard output: No space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="closes a file descriptor in a shell")
@pytest.mark.parametrize(
    ("closed", "message"), [(">&-", "standard output is closed"), ("<&-", "standard input is closed")]
)
def test_closed_stream_is_one_line(closed: str, message: str, trained: Path) -> None:
    command = f"{sys.executable} -m revup predict {trained} - {closed}"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == f"revup: error: {message}\n"


PRINTING: dict[str, list[str]] = {
    "usage": ["--help"],
    "evaluate": ["evaluate", "RUN"],
    "evaluate as JSON": ["evaluate", "RUN", "--json"],
    "predict": ["predict", "RUN", "DOCUMENTS"],
    "generate": ["generate", "RUN", "-n", "2"],
    "inspect": ["inspect", "RUN"],
    "world": ["world", "--frames", "3", "--documents", "9", "--held-out", "3", "--out", "OUT"],
    "prepare": ["prepare", "DOCUMENTS", "--out", "OUT", "--split", "1,0,0"],
    "train": ["train", "DATA", "--out", "OUT", "--model", "lookup"],
}


@pytest.mark.parametrize("what", PRINTING)
def test_closed_pipe_is_no_error_message(
    what: str, data: Path, trained: Path, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `revup … | head`."""
    places = {"RUN": trained, "DATA": data, "DOCUMENTS": documents, "OUT": tmp_path / "out"}
    reading, writing = os.pipe()
    os.close(reading)
    errors = io.StringIO()
    with open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        monkeypatch.setattr(sys, "stderr", errors)
        with pytest.raises(SystemExit) as left:
            cli.main([str(places.get(word, word)) for word in PRINTING[what]])
    assert left.value.code == 1
    assert all(line.startswith("revup: note: ") for line in errors.getvalue().splitlines())


def test_choice_that_does_not_exist_names_the_one_meant(capsys: pytest.CaptureFixture[str]) -> None:
    message = fails(["train", "data", "--out", "run", "--model", "count"], capsys)
    assert "--model: expected one of revup, " in message
    assert message.endswith("found 'count'; did you mean counts?\n")


def test_signal_whose_exception_python_drops_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, cli._interrupt)
    monkeypatch.setattr(sys, "unraisablehook", cli._signal_again)
    try:
        with pytest.raises(Interrupted, match="SIGTERM"):  # noqa: PT012
            Odd()
            threading.Event().wait(60)
    finally:
        signal.signal(signal.SIGTERM, before)
