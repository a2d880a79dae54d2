"""One run of a sweep: what it computes and leaves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.data.knowledge import Observation
from revup.experiments.compute import SCORES, compute
from revup.experiments.datasets import Corpora
from revup.experiments.runs import Condition, Run, RunFile, System
from revup.experiments.sweep import Sweep
from revup.models.lookup import Lookup
from revup.training.deadline import Deadline, TimeUp

Settings = dict[str, dict[str, Any]]


def test_result_equals_training_and_evaluating(tmp_path: Path, corpora: Corpora, tiny: Settings) -> None:
    run = Run.of("revup", Condition(0.5, 0.2, text=True), 3, tiny)
    found = compute(run, corpora, tmp_path)
    corpus = corpora["data"]
    model = revup.train(corpus, "revup", 0.5, 0.2, 3, **tiny)
    for split in ("test", "valid"):
        expected = revup.evaluate(model, corpus, split)
        assert {key: found["scores"][split].get(key) for key in SCORES} == {key: expected[key] for key in SCORES}
    assert found["fingerprint"] == corpus.fingerprint
    assert found["config"] == model.config.to_json()
    assert (found["epochs"], found["best_epoch"]) == (2, 2)  # the second one is of the decoder alone
    assert found["seconds"] > 0


def test_sums_over_documents_are_those_of_the_scores(tmp_path: Path, corpora: Corpora, tiny: Settings) -> None:
    found = compute(Run.of("revup", Condition(0.5), 1, tiny), corpora, tmp_path)
    sums, scores = found["documents"], found["scores"]["test"]
    assert len(sums["events"]) == scores["documents"] == len(corpora["data"].split("test").ids)
    assert sum(sums["events"]) == scores["events_scored"]
    assert sum(sums["right"]) / sum(sums["events"]) == scores["accuracy"]
    assert sum(sums["nll"]) / 1e4 / sum(sums["events"]) == pytest.approx(scores["label_nll"], abs=1e-4)
    for name in ("perplexity", "perplexity_hard"):
        assert np.exp(sum(sums[name]) / 1e4 / sum(sums["tokens"])) == pytest.approx(scores[name], rel=1e-4)
    assert scores["verbatim"]["events"] + scores["fresh"]["events"] == scores["events_scored"]


def test_uninterrupted_run_writes_no_weights(
    tmp_path: Path, corpora: Corpora, monkeypatch: pytest.MonkeyPatch, tiny: Settings
) -> None:
    """With word vectors they are hundreds of megabytes, and nobody asks for them."""
    written: list[Path] = []
    monkeypatch.setattr("revup.inference.trained.save_tensors", lambda path, *rest: written.append(path))
    monkeypatch.setattr("revup.training.checkpoint.save_tensors", lambda path, *rest: written.append(path))
    compute(Run.of("revup", overrides=tiny), corpora, tmp_path)
    assert not written
    assert not list((tmp_path / "work").iterdir())


def test_no_run_starts_after_the_deadline(tmp_path: Path, corpora: Corpora) -> None:
    with pytest.raises(TimeUp):
        compute(Run.of("lookup"), corpora, tmp_path, deadline=Deadline(0, 0))
    file = RunFile(tmp_path / "runs.jsonl.gz")
    outcome = Sweep(corpora, tmp_path, file, deadline=Deadline(0, 0)).complete([Run.of("lookup")])
    assert (outcome.results, outcome.left) == ({}, 1)
    limit = Deadline.after(10)
    assert time.time() + 500 < limit.soft < limit.hard < time.time() + 600


def test_lookup_needs_no_work_directory(tmp_path: Path, corpora: Corpora, tiny_corpus: Corpus) -> None:
    found = compute(Run.of("lookup", Condition(0.5)), corpora, tmp_path)["scores"]["test"]
    assert not (tmp_path / "work").exists()
    table = Lookup().fit(tiny_corpus, Observation(0.5))
    test = tiny_corpus.split("test").arrays
    there = np.asarray(test["reference"]) >= 0
    guess = table.probabilities(np.asarray(test["tokens"])[..., 0]).argmax(-1)
    assert found["accuracy"] == (guess == test["reference"])[there].sum() / found["events_scored"]


def test_published_preset_on_a_dataset_with_a_dictionary(
    tmp_path: Path, tiny_documents: list[Document], tiny: Settings
) -> None:
    """It keeps to the training frames, the dataset has those of the dictionary too."""
    entries = [("new-verb", "v", f"Only_in_dictionary_{n}", 1.0) for n in range(3)]
    entries += [(str(tiny_documents[0].events[0].pred), "v", f"Rare_{n}", 1.0) for n in range(2)]
    table = tmp_path / "frames.csv"
    table.write_text("predicate,pos,frame,weight\n" + "".join(f"{','.join(map(str, row))}\n" for row in entries))
    corpus = Corpus.build(tiny_documents, out=tmp_path / "data", split=(0.8, 0.1, 0.1), lexicon=table)
    known = Corpora({"data": corpus.path}, tmp_path / "labels")
    found = compute(Run.of(System("revup", "paper"), Condition(0.5), 0, tiny), known, tmp_path)
    model = revup.train(corpus, "revup", 0.5, 0.0, 0, preset="paper", **tiny)
    assert len(model.frames) < len(corpus.frames)
    assert found["scores"]["test"]["accuracy"] == revup.evaluate(model, corpus, "test")["accuracy"]
    assert found["observed"]["label_nll"] > 0


@pytest.mark.parametrize("model", ["revup", "ssdvae", "tagger"])
def test_no_step_is_taken_where_frames_are_left_to_the_counts(
    tmp_path: Path, corpora: Corpora, tiny: Settings, model: str
) -> None:
    given = {**tiny, "objective": {"noise_rate": 0.6}}
    found = compute(Run.of(model, Condition(1.0, 0.6), 0, given), corpora, tmp_path)
    assert found["epochs"] == 0
    trained = revup.train(corpora["data"], model, 1.0, 0.6, 0, **given)
    expected = revup.evaluate(trained, corpora["data"], "test")
    for name in ("accuracy", "macro_f1", "label_nll", "calibration_error"):
        assert found["scores"]["test"][name] == expected[name]
    mild = {**tiny, "objective": {"noise_rate": 0.1}}
    assert compute(Run.of(model, Condition(1.0, 0.1), 0, mild), corpora, tmp_path)["epochs"] > 0
