"""The bound on log p(x), against the exact log p(x) by summing over all latents."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from revup.data.batches import Batch
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.inference.bound import bound_split, log_bound
from revup.inference.evaluate import evaluate
from revup.inference.measures import draws_for, evaluate_split
from revup.inference.trained import Trained
from revup.models import model_class, model_module
from revup.models.base import Memory
from revup.models.network import Network, Sizes
from revup.training.run import train
from revup.world.world import World

SIZES = {"embedding": 8, "hidden": 12, "latent": 4, "frame": 8}
EVENTS = 3


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Few frames and few events, so that all frames of a document can be summed over; some documents are shorter."""
    world = World(frames=5, seed=3, words=80, events=EVENTS)
    documents = [Document(d.id, d.events[: 1 + n % EVENTS]) for n, d in enumerate(world.sample(60))]
    return Corpus.build(documents, events=EVENTS, split=(0.5, 0.0, 0.5))


def build(name: str, corpus: Corpus, seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    network = Network(**{**SIZES, **options.pop("network", {})}).resolve(len(corpus.frames))
    objective = model_module(name).Objective(**options)
    module = model_class(name)(Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events), network, objective)
    module.prepare(corpus, Observation(0.8, 0.1, 1))
    module.eval()
    with torch.no_grad():  # frames must matter to the text, or every bound is tight
        for parameter in module.parameters():
            parameter.mul_(1.7)
    return module


def batch_of(module: Any, corpus: Corpus) -> Batch:
    batch: Batch = next(module.batches(corpus.split("test"), Observation(0.0), 100).ordered())
    return batch


def exact(module: Any, batch: Batch, tables: Tensor, log_prior: Tensor) -> Tensor:
    """log Σ_t p(t) p(x|t) over all t_1..t_M; tables [M, K, d]: what each frame or code is to the decoder."""
    terms = []
    with torch.no_grad():
        for chosen in itertools.product(range(tables.shape[1]), repeat=EVENTS):
            latents = torch.stack([tables[m, k] for m, k in enumerate(chosen)])
            memory = Memory(latents.expand(len(batch.tokens), -1, -1), batch.mask)
            text = -(module.text_nll(batch.tokens, memory) * batch.token_mask).double().sum(1)
            # an event that is not there has a frame too, which changes nothing
            terms.append(text + sum(log_prior[m, k].double() for m, k in enumerate(chosen)))
    return torch.logsumexp(torch.stack(terms), dim=0)


def bounds(module: Any, batch: Batch, samples: int, repeats: int) -> Tensor:
    """Independent values of the bound, [repeats, B]."""
    device = batch.tokens.device
    values = []
    for repeat in range(repeats):
        draws = [draws_for(batch, repeat * samples + s, 5, device, "test") for s in range(samples)]
        values.append(log_bound(module, batch, draws))
    return torch.stack(values)


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ssdvae": ("ssdvae", {}),
    "ssdvae-full": ("ssdvae", {"prior": "none", "network": {"attention": "full", "shared": False}}),
    "revup": ("revup", {}),
    "revup-full": ("revup", {"prior": "none", "noise": "none", "network": {"attention": "full", "shared": False}}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_bound_is_below_the_exact_value_and_tightens_with_samples(corpus: Corpus, variant: str) -> None:
    name, options = VARIANTS[variant]
    module = build(name, corpus, **options)
    batch = batch_of(module, corpus)
    frames = module.frames.detach().expand(EVENTS, -1, -1)
    truth = exact(module, batch, frames, module.frame_prior().log())
    few, some, many = (bounds(module, batch, samples, repeats) for samples, repeats in ((1, 60), (8, 30), (256, 1)))
    gaps = [float((truth - values.mean(0)).mean()) for values in (few, some, many)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[0] > 0.05  # a bound that is exact with one sample would show nothing
    spread = float(few.mean(1).std()) / math.sqrt(len(few))
    assert gaps[0] > -3 * spread
    assert abs(gaps[2]) < 0.1 * gaps[0] + 0.02


def test_importance_weights_average_to_the_exact_probability(corpus: Corpus) -> None:
    """The estimate of p(x) itself, of which the bound is the logarithm, is unbiased.

    Of a mild proposal: the large weights of a sharp one are too rare for so few samples.
    """
    module = build("revup", corpus)
    batch = batch_of(module, corpus)
    module.latents[0].propose.weight.data *= 0.3
    truth = exact(module, batch, module.frames.detach().expand(EVENTS, -1, -1), module.frame_prior().log())
    ratios = (bounds(module, batch, 1, 600) - truth).exp()
    error = ratios.std(0) / math.sqrt(len(ratios))
    assert ((ratios.mean(0) - 1).abs() < 5 * error + 0.02).all()


def test_haqae_bound_subtracts_log_codes_for_each_event(corpus: Corpus) -> None:
    module = build("haqae", corpus, codes=4, network={"attention": "confined"})
    batch = batch_of(module, corpus)
    uniform = torch.full((EVENTS, 4), -math.log(4))
    truth = exact(module, batch, module.codebooks.detach(), uniform)
    found = bounds(module, batch, 1, 1)[0]
    assert (found <= truth + 1e-9).all()
    reconstructed = module.token_nll(batch, hard=True).double().sum(1)
    torch.testing.assert_close(found, -reconstructed - batch.mask.sum(1) * math.log(4))


def test_haqae_bound_counts_all_codes_with_full_attention(corpus: Corpus) -> None:
    module = build("haqae", corpus, codes=4, network={"attention": "full", "shared": False})
    batch = batch_of(module, corpus)
    reconstructed = module.token_nll(batch, hard=True).double().sum(1)
    torch.testing.assert_close(bounds(module, batch, 1, 1)[0], -reconstructed - EVENTS * math.log(4))


def test_bound_of_a_language_model_is_its_likelihood(corpus: Corpus) -> None:
    module = build("rnnlm", corpus)
    split = corpus.split("test")
    found = bound_split(module, split, 1)
    assert found["perplexity_bound"] == pytest.approx(evaluate_split(module, split)["perplexity"], rel=1e-6)
    tokens = split.events * 5
    assert found["bound"] == pytest.approx(-math.log(found["perplexity_bound"] or 0) * tokens / len(split))


def test_prior_over_frames_integrates_z_out(corpus: Corpus) -> None:
    module = build("revup", corpus, network={"shared": False}, prior="none", noise="none")
    prior = module.frame_prior()
    torch.testing.assert_close(prior.sum(1), torch.ones(EVENTS))
    z = torch.randn(20_000, 4, generator=torch.Generator().manual_seed(9))
    for m, weights in enumerate(module.latents):
        drawn = torch.softmax(weights.propose(z), -1).mean(0)
        torch.testing.assert_close(prior[m], drawn, atol=0.03, rtol=0)
    torch.testing.assert_close(build("ssdvae", corpus).frame_prior(), torch.full((EVENTS, len(corpus.frames)), 0.2))


def test_prior_over_frames_is_based_on_the_counts(corpus: Corpus) -> None:
    """With a proposal that says nothing, p(t) is the base distribution of the counts: that of all labels."""
    module = build("revup", corpus)
    with torch.no_grad():
        for parameter in module.latents[0].propose.parameters():
            parameter.zero_()
    assert module.counts is not None
    expected = torch.from_numpy(module.counts.model.base).float()
    assert (expected.max() - expected.min()) > 0.05
    torch.testing.assert_close(module.frame_prior(), expected.expand(EVENTS, -1))
    seen = corpus.split("train").seen(Observation(0.8, 0.1, 1))
    shares = np.bincount(seen.frames[..., 0][seen.observed], minlength=len(corpus.frames)) / seen.observed.sum()
    np.testing.assert_allclose(expected.numpy(), shares, atol=0.1)


def test_models_without_text_have_no_bound(corpus: Corpus) -> None:
    for name in ("tagger", "lookup"):
        module = model_class(name)(
            Sizes(len(corpus.vocabulary), len(corpus.frames), EVENTS),
            Network(**SIZES).resolve(len(corpus.frames)),
            model_module(name).Objective(),
        )
        assert bound_split(module, corpus.split("test"), 2) == {"bound": None, "perplexity_bound": None}
    with pytest.raises(RevupError, match="1 sample or more"):
        bound_split(build("rnnlm", corpus), corpus.split("test"), 0)


@pytest.fixture(scope="module")
def trained(tiny_corpus: Corpus, tiny_network: dict[str, Any]) -> Trained:
    return train(tiny_corpus, device="cpu", network=tiny_network, training={"epochs": 1})


def test_evaluate_reports_the_bound_on_request(trained: Trained, tiny_corpus: Corpus) -> None:
    scores = evaluate(trained, tiny_corpus, bound=3)
    assert scores["perplexity_bound"] > scores["perplexity_hard"]
    assert "bound" not in evaluate(trained, tiny_corpus)
    assert scores["perplexity_bound"] == evaluate(trained, tiny_corpus, bound=3)["perplexity_bound"]
