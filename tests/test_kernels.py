"""Our own kernels against the plain code they stand for: values and gradients, by Triton's interpreter, which needs no
GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def interpreted(code: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "equal", done.stderr


FUSED = """
import torch
from revup.models.kernels import softmax_gradient_fused
from tests.test_vocabulary import _expected, gradient_case
from revup.models.kernels import vocabulary
torch.manual_seed(0)
vocabulary.BLOCK = 64
for rows, words in ((5, 33), (3, 64), (4, 300), (2, 1)):  # less than a block, one, several, a single word
    for kind in (torch.float32, torch.bfloat16):
        logits, targets, scale = gradient_case(rows, words, kind)
        wide = torch.zeros(rows, words + 7, dtype=kind)  # rows need not lie side by side
        wide[:, :words] = logits
        gradient, nll = softmax_gradient_fused(wide[:, :words], targets, scale)
        expected = _expected(logits, targets, scale)
        near = dict(rtol=1e-2 if kind == torch.bfloat16 else 1e-5, atol=1e-5)
        torch.testing.assert_close(gradient.float(), expected[0], **near)
        torch.testing.assert_close(nll, expected[1], **near)
        assert not wide[:, words:].any()
print("equal")
"""

DIVERGENCES = """
import itertools, torch
from revup.models import kernels
from revup.models.terms import divergences

torch.manual_seed(0)
B, M, K = 3, 2, 7
for learned, rate, with_prior, strength in itertools.product(
    ("update", "classification"), (None, 0.0, 0.3), (True, False), (1.0, 2.5, float("inf"))
):
    logits = (3 * torch.randn(B, M, K)).requires_grad_()
    prior = (2 * torch.randn(B, M, K)).requires_grad_() if with_prior else None
    observed = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    empirical = torch.zeros(B, M, K).scatter_(-1, torch.randint(K, (B, M, 1)), 1.0)
    empirical[1, 0] = torch.softmax(torch.randn(K), 0)  # soft knowledge
    empirical *= observed.unsqueeze(-1)
    logits.data[2, 1, :3] = -60.0  # nearly ruled out
    noise = None if rate is None else torch.tensor(rate)
    strengths = torch.full((B, M), strength)
    plain = divergences(learned, logits, prior, empirical, observed, strengths, noise)
    fused = kernels.divergences_fused(learned, logits, prior, empirical, observed, strengths, noise)
    upstream = torch.rand(3, B, M)
    inputs = [logits] if prior is None else [logits, prior]
    a = [v for v in plain if v is not None]
    wanted = torch.autograd.grad(sum((v * u).sum() for v, u in zip(a, upstream)), inputs)
    found = torch.autograd.grad((fused * upstream)[: len(a)].sum(), inputs)
    for one, two in zip([*a, *wanted], [*fused[: len(a)], *found]):
        torch.testing.assert_close(two, one, rtol=2e-4, atol=2e-6, msg=lambda m: f"{learned} {rate} {strength}: {m}")
print("equal")
"""

PRIOR = """
import itertools, torch
from revup.bench import RandomCorpus, Size
from revup.knowledge import Observation
from revup.models import kernels
from revup.models.prior import PooledPrior

torch.manual_seed(0)
size = Size(words=40, frames=9, hidden=8, batch=4)
corpus = RandomCorpus(size, 30)
for kind, neighbours, leave_out in itertools.product(("pooled", "predicate"), (0, 3), (True, False)):
    prior = PooledPrior(size.words, size.frames, kind, neighbours)
    prior.fit(corpus, Observation(0.6, 0.2, 1), None)
    beyond = 5
    if neighbours:
        prior.near = torch.randint(len(prior.lemmas), (size.words + beyond, neighbours), dtype=torch.int32)
        prior.near_weights = torch.rand(size.words + beyond, neighbours)
    # words as they are, known by another form alone, and beyond the vocabulary
    read = torch.randint(3 * size.words if neighbours == 0 else 2 * size.words + beyond, (4, 5 * size.events))
    own = torch.zeros(4, size.events, size.frames)
    own.scatter_(-1, torch.randint(size.frames, (4, size.events, 1)), 1.0)
    own = own if leave_out else None
    plain = prior(read, own)
    fused = prior._fused(kernels, read.view(4, -1, 5), own)
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)
    if prior.slot_weights is not None:
        upstream = torch.randn_like(plain)
        wanted, found = (torch.autograd.grad((x * upstream).sum(), prior.slot_weights)[0] for x in (plain, fused))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        with torch.no_grad():
            torch.testing.assert_close(prior._fused(kernels, read.view(4, -1, 5), own), plain, rtol=1e-4, atol=1e-5)
print("equal")
"""


MODELS = """
import torch
from unittest import mock
from revup.bench import RandomCorpus, Size, batches
from revup.models import kernels
from revup.models.layers import Draws
from revup.config import Config, build_module

size = Size(words=40, frames=9, hidden=8, batch=4)
(batch,) = batches(size, torch.device("cpu"), 1)
batch.observed[0] = batch.weights[0] = 0.0
network = {"embedding": 5, "hidden": 8, "latent": 4, "frame": 6}
batch.mask[1, 2:] = False  # a shorter document
batch.events, batch.observed_events = torch.tensor(17.0), torch.tensor(12.0)  # tensors, as a captured step has them
cases = [(model, preset, {}) for model in ("revup", "ssdvae", "haqae") for preset in ("default", "paper")]
cases += [("tagger", "default", {}), ("revup", "released", {}), ("revup", "paper", {"straight_through": True})]
cases += [("revup", "default", {"noise": "none"}), ("revup", "default", {"samples": 2})]
cases += [("revup", "default", {"pooled_strength": 0.5, **noise}) for noise in ({}, {"noise": "none"})]
cases += [("revup", "default", {"straight_through": True}), ("ssdvae", "default", {"straight_through": True})]
for model, preset, objective in cases:
    config = Config.make(model, preset, overrides={"network": network, "objective": objective})
    module = build_module(config, size.sizes).train()
    module.prepare(RandomCorpus(size, 30), config.observation)

    def gradients():
        module.zero_grad(set_to_none=True)
        loss = module(batch, Draws.seeded(3, batch.documents, torch.device("cpu")))
        loss.total.backward()
        found = {name: part.grad for name, part in module.named_parameters() if part.grad is not None}
        return {**found, "loss": loss.total.detach(), **loss.terms}

    plain = gradients()
    where = ("drawing", "layers", "prior", "terms", "vocabulary")
    patches = [mock.patch(f"revup.models.{part}.kernels", lambda device: kernels) for part in where]
    patches.append(mock.patch("revup.models.once.chains", lambda weight: weight.requires_grad))
    for patch in patches:
        patch.start()
    fused = gradients()
    mock.patch.stopall()
    assert plain.keys() == fused.keys()
    for name in plain:
        torch.testing.assert_close(fused[name], plain[name], rtol=1e-3, atol=1e-6, msg=lambda m: f"{model} {name}: {m}")
print("equal")
"""


CHAIN = """
import itertools, torch
from unittest import mock
from revup.models import drawing, kernels, layers

torch.manual_seed(0)
B, T, K, D = 4, 5, 7, 6


def alike(compute, inputs, where):
    found = []
    for patched in (None, kernels):
        with mock.patch.object(where, "kernels", lambda device: patched):
            values = compute()
        torch.manual_seed(1)
        gradient = torch.autograd.grad(sum((v.float() * torch.randn(v.shape)).sum() for v in values), inputs)
        found.append([*values, *gradient])
    for one, two in zip(*found):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)


for places, count in itertools.product((0, T), (T, 8)):  # read side by side or not; also a memory that is not cut
    if places and count != T:
        continue
    attention = layers.Attention(3, D, 5, places)
    whole = torch.randn(B, 2, count, D, requires_grad=True)
    query = torch.randn(B, 1, 3, requires_grad=True)
    mask = torch.rand(B, count) < 0.6
    mask[0] = False  # nothing to look at
    inputs = [whole, query, *attention.parameters()]
    alike(lambda: attention(query, whole[:, 1], mask)[:1], inputs, layers)

parameters = (4 * torch.randn(B, 2 * D)).requires_grad_()
parameters.data[0, D], parameters.data[1, D] = -20.0, 9.0  # beyond the limits
noise = torch.randn(B, 3, D)
alike(lambda: drawing.gaussian_sample(parameters, noise[:, 1]), [parameters], drawing)

for hard, rate, told, with_prior in itertools.product((False, True), (None, 0.0, 0.3), (False, True), (False, True)):
    raw = (2 * torch.randn(B, K)).requires_grad_()
    prior = torch.randn(B, 3, K, requires_grad=True) if with_prior else None
    uniform = torch.rand(B, 3, K)
    uniform[0, 1, 0], uniform[0, 1, 1] = 0.0, 1.0 - 2.0**-24  # the ends of what can be drawn
    empirical = torch.zeros(B, 3, K).scatter_(-1, torch.randint(K, (B, 3, 1)), 1.0)
    empirical[1, 1] = torch.softmax(torch.randn(K), 0)
    kept = torch.tensor([True, False, False, True]).unsqueeze(1).expand(B, 3)
    noise_rate = None if rate is None else torch.tensor(rate)

    def draw():
        made = drawing.Drawing(uniform, 0.5, hard, (empirical, kept) if told else None, noise_rate)
        return made(raw, None if prior is None else prior[:, 1], 1)

    alike(draw, [raw] if prior is None else [raw, prior], drawing)
print("equal")
"""


def test_the_chain_s_attention_and_draws() -> None:
    interpreted(CHAIN)


def test_the_softmax_s_gradient_is_autograd_s() -> None:
    interpreted(FUSED)


def test_divergences_and_their_gradients() -> None:
    interpreted(DIVERGENCES)


def test_the_prior_of_counts_and_the_gradient_of_its_weights() -> None:
    interpreted(PRIOR)


def test_whole_models_and_every_gradient() -> None:
    interpreted(MODELS)
