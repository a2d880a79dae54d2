"""The training loop: a generator whose steps follow from the seed and the settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import revup
from revup.data.corpus import Corpus
from revup.errors import RevupError
from revup.models.network import Sizes
from revup.models.randomness import step_seed
from revup.reporting.progress import Progress
from revup.settings import Config, Course, Training, build_module
from revup.training.checkpoint import TrainingState
from revup.training.loop import LOG_EVERY, fit, plan, training_batches
from revup.training.optimiser import PlainAdam, make_optimiser
from training.runs import TINY

CPU = torch.device("cpu")


def loop(corpus: Corpus, state: TrainingState | None = None, **training: Any) -> tuple[Any, Iterator[Progress]]:
    """A model and the loop that trains it, without validation scores."""
    config = Config.make(overrides={"network": TINY, "training": training})
    module = build_module(config, Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events))
    module.prepare(corpus, config.observation)
    optimiser = make_optimiser(module, config.training, CPU)
    batches = training_batches(module, corpus, config.training, config.observation)
    course = plan(module, corpus, config.training, config.observation, len(batches))
    state = state or TrainingState()
    return module, fit(module, optimiser, batches, course, config.training, config.seed, state, dict)


def test_loop_is_a_generator_that_waits(tiny_corpus: Corpus) -> None:
    state = TrainingState()
    _, reports = loop(tiny_corpus, state, epochs=2, batch_size=8)
    assert state.step == 0
    first = next(reports)
    assert (first.step, state.step, first.documents) == (LOG_EVERY, LOG_EVERY, 8 * LOG_EVERY)
    assert first.scores is None
    assert {"loss", "reconstruction", "update", "z", "uniform"} <= first.terms.keys()
    # 22 steps an epoch: a last batch too small to share joins the one before it
    assert [report.step for report in reports if report.scores is not None] == [22, 44]
    assert (state.epoch, state.batch, state.step) == (2, 0, 44)


def test_training_lowers_the_loss(tiny_corpus: Corpus) -> None:
    _, reports = loop(tiny_corpus, epochs=9, batch_size=30, learning_rate=0.02)
    losses = [report.terms["loss"] for report in reports if report.scores is not None]
    assert losses[-1] < 0.8 * losses[0]


def test_clipping_bounds_the_gradient(tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient that Adam gets has at most the norm that was asked for; with 0 it is left alone."""
    norms: dict[float, list[float]] = {}
    for clip in (0.0, 0.01):
        norms[clip] = []
        module, reports = loop(tiny_corpus, epochs=1, batch_size=60, clip=clip)
        step = PlainAdam.step

        def noted(self: Any, *args: Any, clip: float = clip, module: Any = module, step: Any = step) -> Any:
            norms[clip].append(math.sqrt(sum(float(p.grad.square().sum()) for p in module.parameters())))
            return step(self, *args)

        monkeypatch.setattr(PlainAdam, "step", noted)
        list(reports)
        monkeypatch.setattr(PlainAdam, "step", step)
    assert max(norms[0.01]) == pytest.approx(0.01, rel=1e-3)
    assert min(norms[0.0]) > 0.02


def test_linear_schedule_lowers_the_learning_rate(tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the given rate, in equal steps, towards 0 at the end of the last epoch."""
    rates: list[float] = []
    step = PlainAdam.step

    def noted(self: Any, *args: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args)

    monkeypatch.setattr(PlainAdam, "step", noted)
    list(loop(tiny_corpus, epochs=2, batch_size=60, learning_rate=0.01, schedule="linear")[1])
    assert rates == pytest.approx([0.01 * (1 - i / len(rates)) for i in range(len(rates))])
    assert len(rates) == 6
    rates.clear()
    list(loop(tiny_corpus, epochs=1, batch_size=60, learning_rate=0.01, schedule="constant")[1])
    assert rates == [0.01] * 3


def test_divergence_is_one_clear_error(tiny_corpus: Corpus, tmp_path: Path) -> None:
    training = {"epochs": 3, "batch_size": 8, "learning_rate": 1e30, "clip": 0.0}
    with pytest.raises(RevupError, match=r"training diverged at step \d+: .*smaller learning rate") as caught:
        revup.train(tiny_corpus, network=TINY, training=training, out=tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_score_that_is_not_finite_is_divergence(tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revup.training.session.validate", lambda *_, **__: {"perplexity": float("nan")})
    with pytest.raises(RevupError, match="training diverged"):
        revup.train(tiny_corpus, epsilon=0.0, network=TINY, training={"epochs": 1, "batch_size": 100})


def test_bf16_stays_near_float32(tiny_corpus: Corpus) -> None:
    losses = {}
    for precision in ("float32", "bf16"):
        module, reports = loop(tiny_corpus, epochs=2, batch_size=60, precision=precision)
        losses[precision] = [report.terms["loss"] for report in reports]
        assert all(p.dtype == torch.float32 for p in module.parameters())
    assert losses["bf16"] == pytest.approx(losses["float32"], rel=0.02)
    assert losses["bf16"] != losses["float32"]


def test_shards_train_on_every_document_once_an_epoch(tiny_corpus: Corpus) -> None:
    told: list[Progress] = []
    training = {"epochs": 2, "batch_size": 30, "shard_rows": 70, "settle": 0.0}
    revup.train(tiny_corpus, network=TINY, training=training, progress=told.append)
    assert [report.documents for report in told if report.terms] == [len(tiny_corpus.split("train"))] * 2


def test_step_seeds_differ() -> None:
    seeds = {step_seed(s, n, p) for s in range(3) for n in range(50) for p in ("train", "validate")}
    assert len(seeds) == 300
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_course_by_size_of_the_corpus() -> None:
    """A small corpus is trained for more epochs, a large one for fewer, unless their number is given."""
    training = Training(epochs=12, least_steps=2000, patience=4, settle=0.5)
    assert training.course(178) == Course(epochs=12, every=1, patience=4, settled_epochs=6)
    assert training.course(48) == Course(epochs=42, every=1, patience=14, settled_epochs=21)
    assert training.course(6) == Course(epochs=334, every=7, patience=16, settled_epochs=167)
    assert training.course(1600) == Course(epochs=12, every=1, patience=4, settled_epochs=6)
    assert replace(training, most_steps=10_000).course(1600) == Course(7, every=1, patience=3, settled_epochs=4)
    assert Config.make().training.course(1600).epochs == 6
    assert Config.make().training.course(3000).epochs == 4
    assert Config.make(preset="paper").training.course(1600).epochs == 30  # as published, however large the corpus
    assert training.course(178, settles=False) == Course(epochs=18, every=1, patience=4, settled_epochs=0)
    assert Training(epochs=0, least_steps=2000).course(6).epochs == 0
    assert Config.make(overrides={"training": {"epochs": 3}}).training.course(1).epochs == 3
    assert Config.make(overrides={"training": {"epochs": 3}}).training.course(9999).epochs == 3
    assert Config.make(overrides={"training": {"epochs": 3, "most_steps": 10}}).training.course(9).epochs == 2
    usual = Config.make().training
    assert usual.course(10).epochs * 10 == usual.least_steps  # a small corpus is repeated
    assert usual.course(1).epochs == usual.most_epochs  # but no more often than this
