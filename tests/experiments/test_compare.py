"""The comparison of all systems: its table against the runs themselves, and resuming it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

import revup
from revup.cli import run as run_verb
from revup.data.corpus import Corpus
from revup.errors import RevupError
from revup.experiments import compare as module
from revup.experiments.compare import MEASURES, compare
from revup.models import CLASSES


@pytest.fixture
def settings(tiny_network: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"network": tiny_network, "training": {"epochs": 1}, "objective": {"codes": 8}}


def test_table_holds_the_scores_of_the_runs(tiny_corpus: Corpus, settings: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = compare(out, tiny_corpus, seeds=2, bound=2, overrides=settings, device="cpu")
    assert json.loads((out / "compare.json").read_text("utf-8")) == result
    assert set(result["systems"]) == set(CLASSES)
    for model in CLASSES:
        scores = [revup.evaluate(revup.load(out / "runs" / f"{model}-{seed}"), tiny_corpus, bound=2) for seed in (0, 1)]
        for name in MEASURES:
            values = [score[name] for score in scores]
            cell = result["systems"][model][name]
            if values[0] is None:
                assert cell == {"mean": None, "deviation": None}
            else:
                assert cell["mean"] == pytest.approx(statistics.fmean(values))
                assert cell["deviation"] == pytest.approx(statistics.stdev(values))
    lines = (out / "compare.md").read_text("utf-8").splitlines()
    assert [line.split("|")[1].strip() for line in lines[2 : 3 + len(CLASSES)]] == [
        *CLASSES.values(),
        "*exact optimum*",
    ]
    assert lines[2].count("±") == 5
    assert lines[6].count("–") == 3  # a tagger writes no text


def test_finished_runs_are_not_computed_again(
    tiny_corpus: Corpus, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = compare(tmp_path / "out", tiny_corpus, seeds=1, bound=1, overrides=settings, device="cpu")
    evaluated, stepped = [], []
    real = module.evaluate
    monkeypatch.setattr(module, "evaluate", lambda *a, **k: evaluated.append(a[0].config.model) or real(*a, **k))
    (tmp_path / "out" / "runs" / "ssdvae-0" / "scores.json").unlink()
    again = compare(
        tmp_path / "out",
        tiny_corpus,
        seeds=1,
        bound=1,
        overrides=settings,
        device="cpu",
        progress=lambda now: stepped.append(now.step),
    )
    assert again == before
    assert evaluated == ["ssdvae"]
    assert not stepped
    with pytest.raises(RevupError, match="can't resume"):
        compare(tmp_path / "out", tiny_corpus, seeds=1, eta=0.5, bound=1, overrides=settings, device="cpu")
    (tmp_path / "out" / "runs" / "revup-0" / "scores.json").write_text("{", "utf-8")
    with pytest.raises(RevupError, match="remove it to evaluate"):
        compare(tmp_path / "out", tiny_corpus, seeds=1, bound=1, overrides=settings, device="cpu")


def test_verb_uses_the_built_in_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "DOCUMENTS", {"train": 40, "valid": 10, "test": 10})
    tiny = ["--training.epochs", "1", "--network.hidden", "8", "--objective.codes", "4", "--device", "cpu"]
    arguments = ["compare", "--out", str(tmp_path / "out"), "--seeds", "1", "--bound", "1", *tiny]
    run_verb(arguments)
    shown = capsys.readouterr().out
    assert shown.rstrip() == (tmp_path / "out" / "compare.md").read_text("utf-8").rstrip()
    assert "one seed" in shown
    assert "±" not in shown
    run_verb([*arguments, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["optimum"]["accuracy"] > 0
    assert Corpus.load(tmp_path / "out" / "corpus").fingerprint == told["data"]["fingerprint"]
    with pytest.raises(RevupError, match="seeds: expected a whole number of 1 or more"):
        run_verb(["compare", "--out", str(tmp_path / "x"), "--seeds", "0"])
