"""Outputs: refused before anything is computed where they exist; never in place of an input or of a part of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from revup import cli
from revup.data.corpus import Corpus
from revup.data.events import Document, write
from revup.errors import InputError, OutputExistsError, RevupError
from revup.training.run import train


@pytest.fixture(scope="module")
def place(tiny_corpus: Corpus, tiny_documents: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    train(tiny_corpus, model="counts", out=folder / "run")
    write(tiny_documents[:20], folder / "docs.jsonl")
    (folder / "d.jsonl").touch()
    return folder


COMMANDS = [
    ["audit", "run", "docs.jsonl", "--out"],
    ["audit", "run", "docs.jsonl", "--out", "new.jsonl", "--page"],
    ["suggest", "run", "docs.jsonl", "--out"],
    ["predict", "run", "docs.jsonl", "--out"],
    ["predict", "run", "docs.jsonl", "--table"],
    ["embed", "run", "docs.jsonl", "--out"],
    ["apply", "docs.jsonl", "d.jsonl", "--out"],
    ["convert", "docs.jsonl", "--out"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command[0]} {command[-1]}")
def test_input_is_never_replaced(place: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr("revup.inference.loading.load", lambda *a, **k: pytest.fail("it was loaded before the look"))
    before = (place / "docs.jsonl").read_bytes()
    for name in ("docs.jsonl", str(place / "docs.jsonl"), "run/../docs.jsonl"):
        with pytest.raises(InputError, match=r"docs\.jsonl: can't be replaced: it is an input"):
            cli.run([*command, name, "--force"])
    assert (place / "docs.jsonl").read_bytes() == before


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command[0]} {command[-1]}")
def test_part_of_a_run_is_never_replaced(place: Path, command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    for name in ("run/config.json", "run/digest.json"):
        with pytest.raises(InputError, match=r"json: can't be replaced: it is a part of .*run"):
            cli.run([*command, name, "--force"])


def test_existing_output_is_refused_before_the_work(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr("revup.cli.listing.load", lambda given: pytest.fail("it was loaded before the look"))
    (place / "issues.jsonl").write_text("mine\n")
    with pytest.raises(OutputExistsError, match=r"issues\.jsonl: exists already"):
        cli.run(["audit", "run", "docs.jsonl", "--out", "issues.jsonl"])
    assert (place / "issues.jsonl").read_text() == "mine\n"


def test_two_outputs_in_one_file_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    with pytest.raises(RevupError, match="--out and --table: expected different files"):
        cli.run(["predict", "run", "docs.jsonl", "--out", "x.csv", "--table", "./x.csv"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a system without /dev/full")
def test_full_device_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    with pytest.raises(RevupError, match=r"/dev/full: can't be written: No space left"):
        cli.run(["predict", "run", "docs.jsonl", "--out", "/dev/full"])
