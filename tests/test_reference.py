"""The step-by-step reference computes what RevUp computes: loss, every term, every gradient, and a few steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.models.network import Sizes
from revup.models.randomness import Draws
from revup.reference import Reference, reference_optimiser, reference_step
from revup.settings import Config, build_module
from revup.training.optimiser import make_optimiser
from revup.training.processes import Processes
from revup.training.step import Step

CPU = torch.device("cpu")


@pytest.fixture
def pair(tiny_corpus: Corpus, tiny_network: dict[str, Any]) -> tuple[Any, Reference, Config]:
    """RevUp with the preset `released` and the reference, with the same weights."""
    config = Config.make("revup", "released", seed=3, overrides={"network": tiny_network})
    sizes = Sizes(len(tiny_corpus.vocabulary), len(tiny_corpus.frames), tiny_corpus.events)
    ours = build_module(config, sizes)
    reference = Reference(sizes, config.network.resolve(sizes.classes))
    apart = (".reader.", "residual.")  # word vectors and counts, of which the published model has none
    weights = {name: w for name, w in ours.state_dict().items() if not any(part in name for part in apart)}
    reference.load_state_dict(weights)
    return ours, reference, config


def batch_of(corpus: Corpus, epsilon: float, eta: float = 0.2) -> Batch:
    """Documents of different lengths, some frames seen, at different confidences, some of them soft."""
    batch = next(iter(Batches(corpus.split("train"), Observation(epsilon, eta, 1), 40).ordered()))
    torch.manual_seed(0)
    batch.confidence = batch.confidence * torch.rand_like(batch.confidence) * 3
    other = (batch.frames + 1) % len(corpus.frames)
    batch.frames = torch.cat([batch.frames, other], dim=-1)
    batch.weights = torch.cat([batch.weights * 0.75, batch.weights * 0.25], dim=-1)
    return batch


def draws(batch: Batch, seed: int = 7) -> Draws:
    return Draws.seeded(seed, batch.documents, CPU)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.8, 1.0])
def test_loss_and_gradients_are_those_of_revup(pair: Any, tiny_corpus: Corpus, epsilon: float) -> None:
    ours, reference, _ = pair
    batch = batch_of(tiny_corpus, epsilon)
    assert not batch.mask.all()  # documents of fewer events are among them
    expected, found = ours(batch, draws(batch)), reference(batch, draws(batch))
    torch.testing.assert_close(found.total, expected.total, rtol=1e-5, atol=1e-6)
    for name, term in found.terms.items():
        torch.testing.assert_close(term, expected.terms[name], rtol=1e-5, atol=1e-6, msg=name)
    expected.total.backward()
    found.total.backward()
    theirs = dict(reference.named_parameters())
    assert theirs.keys() == dict(ours.named_parameters()).keys()
    for name, parameter in ours.named_parameters():
        gradient = theirs[name].grad
        assert gradient is not None, name
        assert parameter.grad is not None, name
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_a_few_steps_of_training_are_those_of_revup(pair: Any, tiny_corpus: Corpus) -> None:
    ours, reference, config = pair
    step = Step(ours, make_optimiser(ours, config.training, CPU), config.training, Processes(), seed=0)
    plain = reference_optimiser(reference, config.training.learning_rate)
    for number, batch in enumerate(Batches(tiny_corpus.split("train"), Observation(0.6), 50).ordered()):
        expected = step(batch, number)["loss"]  # seeds its own generator, which the reference then reads again
        same = torch.Generator().manual_seed(step.generator.initial_seed())
        found = reference_step(reference, plain, batch, Draws(same, batch.documents))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    theirs = dict(reference.named_parameters())
    for name, weight in ours.named_parameters():
        torch.testing.assert_close(theirs[name], weight, rtol=0, atol=5e-4, msg=name)
