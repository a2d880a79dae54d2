"""The experiment function and its verb, from data to files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import revup
from revup import cli
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.errors import RevupError
from revup.experiments import catalogue, experiment, suite
from revup.experiments.runs import read_lines
from revup.io import folders

Settings = dict[str, dict[str, Any]]


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "EPSILONS", (0.3, 1.0))


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revup.reporting.figures.find_spec", lambda name: None)


@pytest.mark.usefixtures("brief")
def test_verb_from_end_to_end(
    tmp_path: Path, tiny_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    out = tmp_path / "out"
    command = ["experiment", "incomplete", str(tiny_path), "--out", str(out), "--seeds", "2", "--jobs", "1", *options]
    cli.run([*command, "--models", "lookup,tagger"])
    assert "8 runs finished" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} >= {
        "incomplete.md",
        "incomplete.csv",
        "incomplete.tex",
        "incomplete.png",
        "incomplete.svg",
        "report.html",
        "results.json",
    }
    (section,) = json.loads((out / "results.json").read_text())["sections"]
    about = section["provenance"]
    assert about["fingerprint"] == Corpus.load(tiny_path).fingerprint
    assert about["seeds"] == [0, 1]
    assert about["versions"] == [revup.__version__]
    assert "network.hidden=8" in about["settings"]
    (lookup, tagger) = section["tables"][0]["rows"][:2]
    for seed in (0, 1):
        exact = revup.evaluate(revup.train(Corpus.load(tiny_path), "lookup", 0.3, seed=seed), Corpus.load(tiny_path))
        assert lookup["cells"][0]["values"][seed] == exact["accuracy"]
    assert tagger["system"] == "Tagger default"
    low, high = lookup["cells"][0]["interval"]
    assert low < lookup["cells"][0]["mean"] < high
    page = (out / "report.html").read_text()
    assert "<strong>" in page
    assert about["fingerprint"] in page
    assert "http" not in re.sub(r'src="data:[^"]*"', "", page)  # self-contained
    text = (out / "incomplete.md").read_text()
    assert "### Accuracy by ε: Tagger default minus each other row" in text
    assert "41 test documents (" in text
    assert "*RevUp, printed in the paper (its Wiki)* | 0.23 | 0.87 |" in text
    cli.run([*command, "--models", "lookup", "--json"])
    capsys.readouterr()
    again = tmp_path / "again"
    cli.run(["experiment", "all", "--from-runs", str(out / "runs.jsonl.gz"), "--out", str(again)])
    for name in ("incomplete.md", "incomplete.csv", "incomplete.tex"):
        assert (again / name).read_bytes() == (out / name).read_bytes()


@pytest.mark.usefixtures("brief", "no_figures")
def test_sweep_that_ran_out_of_time_says_what_is_left(tmp_path: Path, tiny_path: Path) -> None:
    settings: dict[str, Any] = {"seeds": 1, "systems": "lookup", "jobs": 1}
    found = experiment("incomplete", tiny_path, tmp_path / "out", **settings, minutes=1e-9)
    assert (found["complete"], found["left"], found["unfinished"]) == (False, 2, ["incomplete"])
    found = experiment("incomplete", tiny_path, tmp_path / "out", **settings)
    assert found["complete"]
    assert (tmp_path / "out" / "incomplete.md").exists()


@pytest.mark.usefixtures("brief", "no_figures")
def test_quick_uses_part_of_the_data(tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "QUICK_VIEW", {"documents": 30, "held_out": 10, "words": 50})
    found = experiment("incomplete", tiny_path, tmp_path, seeds=1, quick=True, systems="lookup,tagger", jobs=1)
    dataset, *runs = read_lines(tmp_path / "runs.jsonl.gz")[0]
    assert found["runs"] == len(runs) == 4
    assert dataset["documents"] == {"train": 30, "valid": 10, "test": 10}
    assert dataset["view"]["of"] == Corpus.load(tiny_path).fingerprint
    hidden = {line["system"]: line["config"]["network"]["hidden"] for line in runs}
    assert hidden["tagger:default"] == suite.QUICK["network"]["hidden"]


@pytest.mark.usefixtures("brief", "no_figures")
def test_tables_are_written_without_the_report_extra(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = experiment("incomplete", tiny_path, tmp_path, seeds=1, systems="lookup", jobs=1)
    assert "revup[report]" in found["notes"][0]
    assert (tmp_path / "incomplete.md").exists()
    assert "<table>" in (tmp_path / "report.html").read_text()
    assert ".svg" not in (tmp_path / "incomplete.md").read_text()
    assert not list(tmp_path.glob("*.png"))


@pytest.mark.usefixtures("brief", "no_figures")
def test_failed_runs_are_reported_after_the_rest_is_written(tmp_path: Path, tiny_path: Path, tiny: Settings) -> None:
    settings = {**tiny, "training": {**tiny["training"], "learning_rate": 1e30}}
    with pytest.raises(RevupError, match=r"2 runs failed.*tagger.*diverged"):
        experiment(
            "incomplete",
            tiny_path,
            tmp_path,
            seeds=1,
            jobs=1,
            systems="lookup,tagger",
            overrides=settings,
        )
    assert "| Lookup |" in (tmp_path / "incomplete.md").read_text()


def test_invalid_requests_are_refused(tmp_path: Path, tiny_path: Path, tiny_documents: list[Document]) -> None:
    with pytest.raises(RevupError, match="unknown experiment"):
        experiment("nonsense", tiny_path, tmp_path / "out")
    with pytest.raises(RevupError, match="--seeds"):
        experiment("incomplete", tiny_path, tmp_path / "out", seeds=0)
    with pytest.raises(RevupError, match="expected a dataset directory"):
        experiment("all", None, tmp_path / "out")
    bare = [Document(d.id, [replace(event, frame=None) for event in d.events]) for d in tiny_documents[:20]]
    Corpus.build(bare, out=tmp_path / "bare", events=4, split=(0.8, 0.1, 0.1))
    found = experiment("noise", tmp_path / "bare", tmp_path / "out")
    assert (found["runs"], found["notes"]) == (0, ["noise leaves out bare: no test event has a frame"])
    with pytest.raises(RevupError, match="expected a dataset directory, or a directory of them"):
        experiment("noise", tmp_path / "out", tmp_path / "other")
    with pytest.raises(RevupError, match="not a dataset directory"):
        experiment("noise", tmp_path / "nowhere", tmp_path / "fresh")
    assert not (tmp_path / "fresh").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with pytest.raises(RevupError, match="not the output directory of an experiment"):
        experiment("reliance", None, tmp_path / "full")
    (tmp_path / "copied").mkdir()
    (tmp_path / "copied" / suite.FILE).write_bytes(b"")  # somebody's runs, to continue from
    assert experiment("reliance", None, tmp_path / "copied")["complete"]
    assert experiment("reliance", None, tmp_path / "new")["complete"]
    asked = json.loads((tmp_path / "new" / suite.MARK).read_text("utf-8"))
    assert (asked["experiments"], asked["seeds"], asked["version"]) == (["reliance"], 3, revup.__version__)
    (tmp_path / "file").touch()
    with pytest.raises(RevupError, match="not a directory"):
        experiment("reliance", None, tmp_path / "file")


def test_only_one_experiment_at_a_time(tmp_path: Path) -> None:
    (tmp_path / suite.MARK).touch()
    with folders.lock(tmp_path / "work"), pytest.raises(RevupError, match="another process"):
        experiment("reliance", None, tmp_path)


def gone(group: int) -> bool:
    """Whether no process of a group is left; one that was killed may take a moment on a busy machine."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupted_sweep_leaves_results_and_checkpoints(
    tmp_path: Path, tiny_path: Path, options: list[str], number: signal.Signals, jobs: int
) -> None:
    """A signal to the command alone or, as from a terminal, to its whole group: no process is left, and it resumes."""
    out = tmp_path / "out"
    command = ["experiment", "perplexity", str(tiny_path), "--out", str(out), "--seeds", "2", "--device", "cpu"]
    command += ["--jobs", str(jobs), "--models", "rnnlm,haqae", *options, "--training.epochs=2000"]
    command += ["--training.checkpoint-minutes=0.01"]
    started = subprocess.Popen(
        [sys.executable, "-m", "revup", *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.time() + 60
        while not list(out.glob("work/*/checkpoint.safetensors")) and time.time() < deadline:
            time.sleep(0.1)
        if number == signal.SIGINT:
            os.killpg(started.pid, number)
        else:
            started.terminate()
        error = started.communicate(timeout=40)[1].decode()
    finally:
        started.kill()
    assert started.returncode == 128 + number, error
    assert "resume with: " in error
    assert "Traceback" not in error
    assert gone(started.pid)
    assert list(out.glob("work/*/checkpoint.safetensors"))
    with folders.lock(out / "work"):  # no process works there any more
        pass
