"""When training stops, and which weights it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.inference.trained import Trained
from revup.reporting.progress import Progress
from revup.settings import build_module
from revup.training.loop import LOG_EVERY
from training.runs import TINY, lines


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """Validation scores that a test writes down beforehand."""
    script: list[dict[str, float]] = []
    told = iter(script)
    monkeypatch.setattr("revup.training.session.validate", lambda *_, **__: next(told))
    return script


def validations(corpus: Corpus, **settings: Any) -> tuple[Trained, list[tuple[Progress, torch.Tensor]]]:
    """Train; the model, and the report of each validation with a copy of some weights."""
    told = []

    def note(report: Progress) -> None:
        if report.scores is not None:
            told.append((report, report.module.words.weight.detach().clone()))

    return revup.train(corpus, network=TINY, progress=note, **settings), told


@pytest.mark.parametrize("files", [False, True], ids=["memory", "files"])
def test_patience_keeps_the_best_weights(
    tiny_corpus: Corpus, scripted: list[dict[str, float]], tmp_path: Path, files: bool
) -> None:
    """Best at the second validation; three without improvement (a tie is none) and it stops."""
    scripted += [{"accuracy": a, "perplexity": 9.0 - i} for i, a in enumerate((0.3, 0.5, 0.5, 0.4, 0.1, 0.9))]
    training = {"epochs": 9, "batch_size": 100, "patience": 3, "settle": 0.0}
    trained, told = validations(tiny_corpus, training=training, out=tmp_path / "run" if files else None)
    assert [report.is_best for report, _ in told] == [True, True, False, False, False]
    assert [report.finished for report, _ in told] == [False] * 4 + [True]
    assert torch.equal(trained.module.words.weight, told[1][1])
    assert not torch.equal(trained.module.words.weight, told[-1][1])
    if files:
        assert torch.equal(revup.load(tmp_path / "run").module.words.weight, told[1][1])
        assert [line["best"] for line in lines(tmp_path / "run")] == [True, True, False, False, False]


@pytest.mark.parametrize(("measure", "best"), [("accuracy", 2), ("label_nll", 1), ("perplexity", 0)])
def test_chosen_measure_decides(tiny_corpus: Corpus, scripted: list[dict[str, float]], measure: str, best: int) -> None:
    scripted += [
        {"accuracy": 0.1, "label_nll": 2.0, "perplexity": 5.0},
        {"accuracy": 0.2, "label_nll": 1.0, "perplexity": 6.0},
        {"accuracy": 0.3, "label_nll": 1.5, "perplexity": 7.0},
    ]
    training = {"epochs": 3, "batch_size": 100, "measure": measure, "settle": 0.0}
    trained, told = validations(tiny_corpus, training=training)
    assert told[-1][0].best_step == told[best][0].step
    assert torch.equal(trained.module.words.weight, told[best][1])


def test_perplexity_decides_without_observed_labels(tiny_corpus: Corpus) -> None:
    _, told = validations(tiny_corpus, epsilon=0.0, training={"epochs": 2, "batch_size": 100})
    scores = {report.step: report.scores or {} for report, _ in told}
    assert all(list(found) == ["perplexity"] for found in scores.values())
    assert told[-1][0].best_step == min(scores, key=lambda step: scores[step]["perplexity"])


def test_last_weights_are_kept_without_a_validation_split(tiny_documents: list[Document], tmp_path: Path) -> None:
    corpus, out = Corpus.build(train=tiny_documents[:60], events=4), tmp_path / "run"
    trained, told = validations(corpus, training={"epochs": 5, "batch_size": 30, "patience": 1}, out=out)
    assert len(told) == 5
    assert torch.equal(trained.module.words.weight, told[-1][1])
    assert torch.equal(revup.load(out).module.words.weight, told[-1][1])


def test_validation_in_the_middle_of_an_epoch(tiny_corpus: Corpus) -> None:
    """184 documents, 8 batches an epoch (the last one of 24): after every third step, and at the end of each epoch."""
    training = {"epochs": 2, "batch_size": 24, "patience": 99, "validate_steps": 3, "settle": 0.0}
    _, told = validations(tiny_corpus, training=training)
    assert [report.step for report, _ in told] == [3, 6, 8, 9, 12, 15, 16]
    assert [report.share for report, _ in told][:3] == [3 / 8, 6 / 8, 0]


def test_several_epochs_between_validations_on_a_small_corpus(tiny_corpus: Corpus) -> None:
    """2 steps an epoch; 30 are asked for: 15 epochs, validated every other one and after the last."""
    training = {"epochs": 2, "batch_size": 100, "patience": 99, "least_steps": 30, "settle": 0.0}
    _, told = validations(tiny_corpus, training=training)
    assert [report.step for report, _ in told] == [4, 8, 12, 16, 20, 24, 28, 30]


@pytest.mark.parametrize("files", [False, True], ids=["memory", "files"])
def test_time_limit_before_the_first_validation_keeps_the_last_weights(
    tiny_corpus: Corpus, tmp_path: Path, files: bool
) -> None:
    told: list[Progress] = []
    out = tmp_path / "run" if files else None
    training = {"epochs": 50, "batch_size": 4, "minutes": 1e-9}
    trained = revup.train(tiny_corpus, network=TINY, training=training, progress=told.append, out=out)
    assert [report.step for report in told if report.terms] == [LOG_EVERY]
    initial = revup.train(tiny_corpus, network=TINY, training={"epochs": 0})
    assert not torch.equal(trained.module.words.weight, initial.module.words.weight)
    if files:
        assert torch.equal(revup.load(tmp_path / "run").module.words.weight, trained.module.words.weight)


def test_zero_epochs_keep_the_initial_weights_and_are_finished(tiny_corpus: Corpus, tmp_path: Path) -> None:
    trained = revup.train(tiny_corpus, network=TINY, training={"epochs": 0}, out=tmp_path / "run")
    expected = build_module(trained.config, trained.module.sizes).words.weight
    assert torch.equal(trained.module.words.weight, expected)
    assert torch.equal(revup.load(tmp_path / "run").module.words.weight, expected)


@pytest.mark.parametrize("settle", [0.0, 0.5])
def test_reported_epochs_and_steps_stay_within_the_plan(tiny_corpus: Corpus, settle: float) -> None:
    told: list[Progress] = []
    training = {"epochs": 3, "batch_size": 24, "patience": 2, "settle": settle, "validate_steps": 3}
    revup.train(tiny_corpus, network=TINY, training=training, progress=told.append)
    for report in told:
        assert report.epoch + report.share <= report.epochs <= 3 + (2 if settle else 0)
        assert report.step <= report.steps
        assert report.seconds_left is not None
        assert report.seconds_left >= 0
    assert told[-1].finished or told[-1].epoch == told[-1].epochs
