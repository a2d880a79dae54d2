"""`revup train`: settings as options, resuming, what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failing import fails
from revup import cli


def test_run_directory_contents(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert {"config.json", "model.safetensors", "counts.safetensors", "vocabulary.txt", "frames.txt"} <= names
    assert "metrics.jsonl" in names
    config = json.loads((trained / "config.json").read_text())
    assert config["observation"] == {"epsilon": 0.6, "eta": 0.1, "seed": 0, "noise": "uniform", "sources": ""}
    assert config["network"]["hidden"] == 12


def test_train_without_labels_says_frames_are_induced(
    data: Path, quick: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["train", str(data), "--out", str(tmp_path / "run"), "--epsilon", "0", *quick])
    assert "no label is observed: 10 clusters of predicates stand for frames" in capsys.readouterr().out


def test_setting_of_another_model_is_noted(
    data: Path, quick: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["train", str(data), "--out", str(tmp_path / "t"), "--model", "tagger", "--objective.alpha", "1", *quick])
    assert "objective.alpha is not used by tagger" in capsys.readouterr().err


def test_resume_starts_then_does_nothing(
    data: Path, quick: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", str(data), "--out", str(tmp_path / "r"), "--resume", *quick]
    cli.run(command)
    before = (tmp_path / "r" / "model.safetensors").read_bytes()
    assert capsys.readouterr().out.endswith(f"wrote {tmp_path / 'r'}\n")
    cli.run([*command, "--json"])
    assert (tmp_path / "r" / "model.safetensors").read_bytes() == before
    capsys.readouterr()
    cli.run(command)
    shown = capsys.readouterr().out
    assert f"{tmp_path / 'r'} has finished already" in shown
    assert "wrote" not in shown


def test_resume_takes_data_and_settings_from_the_run(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (trained / "model.safetensors").read_bytes()
    cli.run(["train", "--out", str(trained), "--resume", "--json"])
    assert json.loads(capsys.readouterr().out)["run"] == str(trained)
    assert (trained / "model.safetensors").read_bytes() == before
    assert "training.epochs is 1 in this run, not 7" in fails(
        ["train", "--out", str(trained), "--resume", "--training.epochs", "7"], capsys
    )
    assert "DATA" in fails(["train", "--out", str(tmp_path / "new")], capsys)
    assert "no run to resume" in fails(["train", "--out", str(tmp_path / "new"), "--resume"], capsys)


def test_help_shows_first_settings_and_help_all_every_one(capsys: pytest.CaptureFixture[str]) -> None:
    from revup.settings import every_setting

    with pytest.raises(SystemExit):
        cli.run(["train", "--help"])
    short = capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.run(["train", "--help-all"])
    full = capsys.readouterr().out
    names = [f"--{setting.name} " for setting in every_setting()]
    assert [name for name in names if name not in full] == []
    assert 5 < len([name for name in names if name in short]) < 15
    assert "(default: 0.002)" in short
    assert "(revup, ssdvae, tagger)" in " ".join(full.split())
