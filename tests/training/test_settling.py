"""Settling: after early stopping by labels the frames are frozen at their best and the decoder is trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.reporting.progress import Progress
from training.runs import TINY, lines


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """Validation scores that a test writes down beforehand."""
    script: list[dict[str, float]] = []
    told = iter(script)
    monkeypatch.setattr("revup.training.session.validate", lambda *_, **__: next(told))
    return script


def validations(corpus: Corpus, **settings: Any) -> list[Progress]:
    """Train; the report of each validation."""
    told: list[Progress] = []
    revup.train(corpus, network=TINY, progress=told.append, **settings)
    return [report for report in told if report.scores is not None]


@pytest.mark.parametrize("files", [False, True], ids=["memory", "files"])
def test_frames_settle_and_the_decoder_continues(
    tiny_corpus: Corpus, scripted: list[dict[str, float]], tmp_path: Path, files: bool
) -> None:
    """Frames best at the second validation, settled at the fourth; of what follows the second has the best text."""
    accuracies, perplexities = (0.3, 0.5, 0.4, 0.5, 0.9, 0.9, 0.9, 0.9), (9.0, 8.0, 7.0, 1.0, 6.0, 5.0, 5.5, 5.6)
    scripted += [{"accuracy": a, "perplexity": p} for a, p in zip(accuracies, perplexities, strict=True)]
    training = {"epochs": 12, "batch_size": 100, "patience": 2, "settle": 0.5, "learning_rate": 0.01}
    words: list[torch.Tensor] = []
    vocabulary: list[torch.Tensor] = []

    def note(report: Progress) -> None:
        if report.scores is not None:
            words.append(report.module.words.weight.detach().clone())
            vocabulary.append(report.module.vocabulary.weight.detach().clone())

    out = tmp_path / "run" if files else None
    trained = revup.train(tiny_corpus, network=TINY, progress=note, training=training, out=out)
    assert len(words) == 8  # out of patience once more, now with the text
    assert all(torch.equal(later, words[1]) for later in words[3:])
    assert not torch.equal(words[2], words[1])
    assert not torch.equal(vocabulary[4], vocabulary[3])
    for found in (trained, *([revup.load(tmp_path / "run")] if files else [])):
        assert torch.equal(found.module.words.weight, words[1])
        assert torch.equal(found.module.vocabulary.weight, vocabulary[5])
    assert all(parameter.requires_grad for parameter in trained.module.parameters())
    if files:
        assert [line["settled"] for line in lines(tmp_path / "run")] == [False] * 3 + [True] * 5
        best = [True, True, False, False, True, True, False, False]
        assert [line["best"] for line in lines(tmp_path / "run")] == best


@pytest.mark.parametrize("stopped", [False, True])
def test_overfitted_decoder_returns_to_its_best(
    tiny_corpus: Corpus, scripted: list[dict[str, float]], tmp_path: Path, stopped: bool
) -> None:
    """Frames best at the third validation, text at the second: each continues from there, a resumed run too."""
    scores = [{"accuracy": a, "perplexity": p} for a, p in zip((0.3, 0.4, 0.5, 0.4, 0.3), (9, 5, 6, 7, 8), strict=True)]
    scripted += [*scores, {"perplexity": 4.0}]
    training = {"epochs": 5, "batch_size": 100, "patience": 9, "settle": 0.2, "learning_rate": 0.01}
    kept: list[dict[str, torch.Tensor]] = []
    interrupted: list[bool] = []

    def note(report: Progress) -> None:
        if report.scores is not None:
            kept.append({name: tensor.clone() for name, tensor in report.module.state_dict().items()})
        if stopped and len(kept) == 4 and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    def train() -> None:
        settings: Any = {"network": TINY, "training": training, "progress": note}
        revup.train(tiny_corpus, out=tmp_path / "run", resume=True, **settings)

    if stopped:
        with pytest.raises(KeyboardInterrupt):
            train()
    train()
    assert len(kept) == 6
    for name, tensor in kept[4].items():  # settled, before the decoder's first step
        assert torch.equal(tensor, kept[1 if name.partition(".")[0] in ("decoder", "vocabulary") else 2][name]), name


def test_frames_settle_at_the_last_epoch_at_the_latest(tiny_corpus: Corpus, tiny_documents: list[Document]) -> None:
    """Three epochs, and half as many more for the decoder; where there is none, or none are wanted, three."""
    training = {"epochs": 3, "batch_size": 100, "patience": 99, "settle": 0.5}
    bare = [replace(d, events=[replace(event, frame=None) for event in d.events]) for d in tiny_documents]
    unlabelled = Corpus.build(bare, events=4, split=(0.7, 0.15, 0.15))
    told = validations(tiny_corpus, training=training)
    assert [(report.epoch, report.settled) for report in told] == [
        *((1, False), (2, False), (3, True), (4, True), (5, True))
    ]
    for epochs, settings in (
        (3, {"training": {**training, "settle": 0.0}}),
        (3, {"training": training, "model": "tagger"}),
        (5, {"training": training, "model": "rnnlm"}),  # text alone: as many epochs as the others' text has
        (5, {"training": training, "epsilon": 0.0}),
        (5, {"training": training, "corpus": unlabelled}),
    ):
        told = validations(**{"corpus": tiny_corpus, **settings})
        assert [(report.epoch, report.settled) for report in told] == [(n + 1, False) for n in range(epochs)]


def test_settling_in_the_middle_of_an_epoch_starts_the_next(
    tiny_corpus: Corpus, scripted: list[dict[str, float]]
) -> None:
    """8 steps an epoch, of which 2 are skipped."""
    scripted += [{"accuracy": 0.5, "perplexity": 9.0 - n} for n in range(8)]
    training = {"epochs": 4, "batch_size": 24, "patience": 1, "validate_steps": 3, "settle": 0.25}
    told = validations(tiny_corpus, training=training)
    assert [(report.step, report.settled) for report in told] == [
        *((3, False), (6, True), (9, True), (12, True), (14, True))
    ]
    assert [report.epoch for report in told] == [0, 0, 1, 1, 2]
