"""The interface of all models: what a model can do is declared, and what it cannot do is one clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from revup.data.batches import Batch
from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.models import CLASSES, model_class
from revup.models.base import Memory, Model
from revup.models.network import Sizes
from revup.models.randomness import Draws
from revup.settings import Config, build_module

OBSERVED = Observation(0.7, 0.1, 3)


@pytest.fixture(params=CLASSES)
def model(request: pytest.FixtureRequest, tiny_corpus: Corpus, tiny_network: dict[str, Any]) -> Model:
    objective = {"codes": 5} if request.param == "haqae" else {}
    config = Config.make(request.param, overrides={"network": tiny_network, "objective": objective})
    sizes = Sizes(len(tiny_corpus.vocabulary), len(tiny_corpus.frames), tiny_corpus.events)
    found = build_module(config, sizes)
    found.prepare(tiny_corpus, OBSERVED)
    return found.eval()


@pytest.fixture
def batch(model: Model, tiny_corpus: Corpus) -> Batch:
    return next(model.batches(tiny_corpus.split("train"), OBSERVED, 6, training=True).ordered())


def name_of(model: Model) -> str:
    return next(name for name in CLASSES if model_class(name) is type(model))


def refused(model: Model, ask: Callable[[], Any]) -> None:
    with pytest.raises(RevupError, match=f"the model {name_of(model)} does not "):
        ask()


def test_every_model_declares_what_it_can_do() -> None:
    for name in CLASSES:
        kind = model_class(name)
        assert issubclass(kind, Model)
        assert kind.predicts_frames or kind.writes_text
        assert kind.writes_text or not (kind.has_latents or kind.text_parts)
    assert [name for name in CLASSES if not model_class(name).learns] == ["lookup", "counts", "logistic", "propagation"]


@torch.no_grad()
def test_models_predict_frames_or_say_that_they_do_not(model: Model, batch: Batch) -> None:
    draws = Draws.seeded(1, batch.documents, model.device)
    if not model.predicts_frames:
        refused(model, lambda: model.frame_probabilities(batch))
        refused(model, lambda: model.sampled_frames(batch, draws))
        return
    probabilities = model.frame_probabilities(batch)
    assert probabilities.shape == (*batch.mask.shape, model.sizes.classes)
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(batch.mask.shape))
    assert model.sampled_frames(batch, draws).shape == batch.mask.shape


@torch.no_grad()
def test_models_write_text_or_say_that_they_do_not(model: Model, batch: Batch) -> None:
    draws = [Draws.seeded(seed, batch.documents, model.device) for seed in range(3)]
    generators = [np.random.default_rng(seed) for seed in range(4)]
    if not model.writes_text:
        refused(model, lambda: model.memory(batch))
        refused(model, lambda: model.token_nll(batch))
        refused(model, lambda: model.start(Memory.empty(2, model.device)))
        refused(model, lambda: model.sample_memory(generators))
        refused(model, lambda: model.sample_latents(batch, draws))
        return
    memory, numbers = model.sample_memory(generators)
    assert len(memory) == len(numbers) == 4
    assert (memory.latents.shape[1] > 0) == model.has_latents
    log_p, state = model.step(torch.zeros(4, dtype=torch.long), model.start(memory))
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(4))
    assert len(state.select(torch.tensor([3, 0])).memory) == 2
    samples = list(model.sample_latents(batch, draws))
    assert len(samples) == (3 if model.predicts_frames else 1)
    for drawn, ratio in samples:
        assert ratio.shape == (len(batch.tokens),)
        assert torch.isfinite(model.text_nll(batch.tokens, drawn)).all()
    if model.has_latents:
        attention = model.text_attention(batch.tokens, model.memory(batch))
        torch.testing.assert_close(attention.sum(-1), torch.ones(batch.tokens.shape))
    else:
        refused(model, lambda: model.text_attention(batch.tokens, model.memory(batch)))
    if model.predicts_frames:
        assert model.memory_of_frames(torch.tensor([[0, 1, 2]])).latents.shape[:2] == (1, 3)
    else:
        refused(model, lambda: model.memory_of_frames(torch.tensor([[0, 1, 2]])))


def test_models_learn_by_steps_or_say_that_they_do_not(model: Model, batch: Batch) -> None:
    draws = Draws.seeded(1, batch.documents, model.device)
    if not model.learns:
        refused(model, lambda: model(batch, draws))
        return
    model.train()
    model(batch, draws).total.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert set(model.text_parts) <= {name for name, _ in model.named_children()}


@torch.no_grad()
def test_every_model_embeds(model: Model, batch: Batch) -> None:
    documents, events = model.embed(batch)
    assert documents.shape == (len(batch.tokens), events.shape[-1])
    assert events.shape[:2] == batch.mask.shape


def test_moving_a_lookup_table_keeps_its_counts_in_main_memory(tiny_corpus: Corpus) -> None:
    sizes = Sizes(len(tiny_corpus.vocabulary), len(tiny_corpus.frames), tiny_corpus.events)
    table = build_module(Config.make("lookup"), sizes)
    table.prepare(tiny_corpus, OBSERVED)
    assert table.to("meta").device == torch.device("cpu")
    assert all(tensor.device.type == "cpu" for tensor in table.state_dict().values())
