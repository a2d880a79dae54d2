"""Our own kernels against the plain code they stand for: values and gradients, by Triton's interpreter, which needs no
GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def says_equal(code: str, measured: bool = False, **environment: str) -> None:
    """In a process of its own; measured: for coverage, which takes four times as long."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    if not measured:
        environment.pop("COVERAGE_PROCESS_CONFIG", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "equal", done.stdout + done.stderr[-3000:]


def interpreted(code: str, measured: bool = True) -> None:
    says_equal(code, measured, TRITON_INTERPRET="1")


FUSED = """
import torch
from revup.ops.triton import softmax_gradient_fused
from ops.test_vocabulary_loss import _expected, gradient_case
from revup.ops.triton import vocabulary
torch.manual_seed(0)
vocabulary.NARROW["BLOCK"] = 64
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

NARROW = """
import torch
from unittest import mock
from triton.runtime import interpreter
from revup.ops import triton as kernels
from revup.ops.triton import projection
from revup.ops.vocabulary_loss import _NarrowLoss, vocabulary_loss

patch = interpreter._patch_lang_tensor


def patched(tensor, scope):  # it takes the bounds of a loop by int(), which numpy refuses to do for arrays
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = patched
torch.manual_seed(0)
# less than a block of states and of words, several, exactly one, a single word, and more parts than there are words for
for rows, words, size, parts in ((23, 11, 5, 1), (130, 300, 100, 3), (64, 64, 128, 8), (2, 1, 3, 8), (70, 200, 16, 2)):
    projection.RESIDENT, projection.MOST_PARTS = 100, parts
    for kind in (torch.float32, torch.float16):
        states, weight, bias = torch.randn(rows, size), 0.3 * torch.randn(words, size), torch.randn(words)
        states[0] *= 30  # logits far from 0
        targets, there = torch.randint(words, (rows,)), torch.rand(rows) < 0.7
        for count in (7.0, torch.tensor(7.0)):
            found = []
            for narrow in (True, False):
                inputs = [part.clone().requires_grad_() for part in (states, weight, bias)]
                given = inputs[0].to(kind) if narrow else inputs[0], *inputs[1:], targets, there, count
                total, nll = _NarrowLoss.apply(*given, kernels) if narrow else vocabulary_loss(*given, "plain")
                (total * 1.7).backward()
                found.append([total.detach(), nll, *(part.grad for part in inputs)])
            near = 1e-5 if kind == torch.float32 else 2e-3
            for a, b in zip(*found):
                assert a.dtype == b.dtype
                assert (a - b).norm() <= near * b.norm() + 1e-6, (rows, words, kind, a, b)

with mock.patch("revup.ops.vocabulary_loss.kernels", lambda device: kernels):
    for size, kind, narrow in ((128, torch.float16, True), (129, torch.float16, False), (128, torch.float32, False)):
        states, weight = torch.randn(4, size).to(kind).requires_grad_(), torch.randn(6, size, requires_grad=True)
        given = states, weight, torch.zeros(6), torch.arange(8)[::2].fmod(6), torch.zeros(4, dtype=torch.bool)
        total, nll = vocabulary_loss(*given)
        assert ("_NarrowLoss" in type(total.grad_fn).__name__) == narrow
        total.backward()
        for part in (total, states.grad, weight.grad):  # no token is there
            assert not part.any(), (size, kind, part)
        plain = vocabulary_loss(states.float(), *given[1:], implementation="plain")[1]
        torch.testing.assert_close(nll, plain, rtol=2e-2, atol=2e-2)
print("equal")
"""

DIVERGENCES = """
import itertools, torch
from unittest import mock
from revup.ops import triton as kernels
from revup.ops.terms import divergences, weighted

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
    wanted, found = (
        torch.autograd.grad(sum((v * u).sum() for v, u in zip(values, upstream[: len(a)])), inputs, retain_graph=True)
        for values in (a, fused)
    )
    for one, two in zip(a, fused):  # none of the others has a gradient
        alone = (torch.autograd.grad(v.sum(), inputs, retain_graph=True, allow_unused=True) for v in (one, two))
        for of_one, of_two in zip(*alone):
            assert (of_one is None and not of_two.any()) or torch.allclose(of_two, of_one, rtol=2e-4, atol=2e-6)
    for one, two in zip([*a, *wanted], [*fused[: len(a)], *found]):
        torch.testing.assert_close(two, one, rtol=2e-4, atol=2e-6, msg=lambda m: f"{learned} {rate} {strength}: {m}")

for count in (1, 2, 3, 4):
    values = [torch.randn(5, 300, requires_grad=True) for _ in range(count)]  # more events than are taken at once
    parts = {str(number): (0.5 + number, value) for number, value in enumerate(values)}
    there, before = torch.rand(5, 300), torch.randn(())
    plain = weighted(before, parts, there)
    with mock.patch("revup.ops.terms.kernels", lambda device: kernels):
        fused = weighted(before, parts, there)
    wanted, found = (torch.autograd.grad(3 * total, values) for total, _ in (plain, fused))
    for one, two in zip([plain[0], *plain[1].values(), *wanted], [fused[0], *fused[1].values(), *found]):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-4)
print("equal")
"""

PRIOR = """
import itertools, torch
from revup.bench import RandomCorpus, Size
from revup.data.knowledge import Observation
from revup.ops import triton as kernels
from revup.models.counts import PooledPrior

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
from revup.ops import triton as kernels
from revup.models.layers import Draws
from revup.settings import Config, build_module

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
    where = ("drawing", "layers", "once", "prior", "terms", "vocabulary")
    patches = [mock.patch(f"revup.models.{part}.kernels", lambda device: kernels) for part in where]
    patches.append(mock.patch("revup.ops.deferred_gradients.chains", lambda weight: weight.requires_grad))
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

for count, queries, biased in ((5, 9, True), (3, 8, False), (8, 1, True), (9, 2, False)):
    # more queries than a program takes, as many, one; more places than one takes for their gradient
    attention = layers.Attention(3, D, 5)
    memory = torch.randn(B, 2, count, D, requires_grad=True)
    query = torch.randn(queries, B, 3, requires_grad=True)
    mask = torch.rand(B, count) < 0.6
    mask[0] = False
    bias = torch.randn(queries, count, requires_grad=True) if biased else None
    inputs = [memory, query, *attention.parameters(), *([bias] if biased else [])]
    alike(lambda: attention(query.transpose(0, 1), memory[:, 1], mask, bias)[:1], inputs, layers)

mean, log_variance = (torch.randn(B, 3, D, requires_grad=True) for _ in range(2))
alike(lambda: [drawing.gaussian_kl(mean, log_variance)], [mean, log_variance], drawing)
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
    observed = torch.tensor([1.0, 1.0, 1.0, 0.0]).unsqueeze(1).expand(B, 3)
    strength = torch.tensor([1.0, 1.0, float("inf"), float("inf")]).unsqueeze(1).expand(B, 3)
    chance = torch.tensor([0.4, 0.6, 0.1, 0.9]).unsqueeze(1).expand(B, 3)  # kept, not, not, kept
    known = drawing.Knowledge(empirical, observed, strength, chance)
    noise_rate = None if rate is None else torch.tensor(rate)

    def draw():
        made = drawing.Drawing(uniform, 0.5, hard, known if told else None, noise_rate)
        return made(raw, None if prior is None else prior[:, 1], 1)

    alike(draw, [raw] if prior is None else [raw, prior], drawing)
print("equal")
"""


GRU = """
import torch
from revup.ops.triton import gru_fused, recurrent

torch.manual_seed(0)
small = {"ROWS": 16, "UNITS": 16, "DEPTH": 16, "num_warps": 4, "num_stages": 1}
for walked in (128, 0):  # all steps in one kernel, or a kernel each
    recurrent.WALKED = walked
    recurrent.step_shape = recurrent.step_back_shape = lambda texts: small
    for texts, length, inputs, size, layers, both, started in (
        (5, 3, 7, 10, 2, True, False),
        (18, 4, 8, 16, 2, False, True),  # more texts than a program takes
        (3, 2, 5, 20, 1, True, True),  # more units
        (1, 1, 3, 4, 1, False, False),
    ):
        gru = torch.nn.GRU(inputs, size, layers, bidirectional=both, batch_first=True)
        x = torch.randn(texts, length, inputs, requires_grad=True)
        start = torch.randn(layers * (1 + both), texts, size, requires_grad=True) if started else None
        upstream = torch.randn(texts, length, size * (1 + both))
        plain, fused = gru(x, start)[0], gru_fused(x, start, gru.all_weights, both, torch.float32)
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)
        learned = [x, *gru.parameters(), *([start] if started else [])]
        wanted, found = (torch.autograd.grad((y * upstream).sum(), learned) for y in (plain, fused))
        for one, two in zip(wanted, found):
            torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
        half = gru_fused(x, start, gru.all_weights, both, torch.float16)
        assert half.dtype == torch.float16
        torch.testing.assert_close(half.float(), plain, rtol=1e-2, atol=1e-2)
print("equal")
"""

WORDS = """
import torch
from types import SimpleNamespace
from unittest import mock
from revup.models import kernels, layers, once
from revup.ops.triton import words

torch.manual_seed(0)
words.CHUNK, words.ROWS = 8, 2
for count in (1, 7, 90):  # one row, several blocks
    for often in (0, 1, 5, 8):  # what comes often, the first and the last word among them
        which, d = torch.randint(9, (count,)), torch.randn(count, 5)
        which[: count // 2] = often
        found = kernels.table_gradient_fused(d, which, which.sort(stable=True).indices, 9, 0)
        wanted = torch.ops.aten.embedding_dense_backward(d, which, 9, 0, False)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)

table = torch.nn.Embedding(9, 5, padding_idx=0)
used, patched = [torch.randint(9, (3, 4)) for _ in range(3)], lambda device: kernels
for numbers, learned in (((0,), (0,)), ((0, 1), (0, 1)), ((0, 1, 2), (0, 1, 2)), ((0, 1, 2), (0, 2)), ((0, 1), (1,))):
    # as often as it is made for, more often, less often; and of some uses there is no gradient
    wanted = torch.autograd.grad(sum((table(used[n]) ** 3).sum() for n in learned), table.weight)[0]
    with mock.patch.object(once, "kernels", patched), mock.patch.object(once, "chains", lambda weight: True):
        looked_up = once.Words(table)
        found = [looked_up(used[n]) for n in numbers]
        found = torch.autograd.grad(sum((found[n] ** 3).sum() for n in learned), table.weight)[0]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)

whole = torch.randn(3, 4, 7, requires_grad=True)
x = whole.transpose(0, 1)  # rows need not lie one after another
mask = torch.rand(4, 3) < 0.5
mask[0] = False
for compute in (
    lambda: layers.Draws.seeded(1, 4, torch.device("cpu")).dropout(x, 0.4),
    lambda: layers.mean_where(x, mask),
):
    plain = compute()
    with mock.patch.object(layers, "kernels", lambda device: kernels):
        fused = compute()
    torch.testing.assert_close(fused, plain)
    upstream = torch.randn_like(plain)
    wanted, found = (torch.autograd.grad((y * upstream).sum(), whole)[0] for y in (plain, fused))
    torch.testing.assert_close(found, wanted)

reader = layers.Reader(layers.Network(word_dropout=0.4).resolve(9))
mask = torch.rand(40, 3) < 0.7
tokens = torch.randint(30, (40, 15))  # 10 words, 10 forms known by another one, 10 known by their vectors alone
batch = SimpleNamespace(words=lambda beyond: tokens, mask=mask, token_mask=mask.repeat_interleave(5, dim=1))
for vectors in (0, 20):
    reader.given, reader.has = torch.randn(vectors, 100), torch.rand(vectors) < 0.5
    for seed in (None, 1, 2):
        draws = [None if seed is None else layers.Draws.seeded(seed, 40, torch.device("cpu")) for _ in range(2)]
        plain = reader._known(10, batch, draws[0])
        with mock.patch.object(layers, "kernels", lambda device: kernels):
            fused = reader._known(10, batch, draws[1])
        for one, two in zip(plain, fused):
            assert (one is None and two is None) or torch.equal(one, two)
print("equal")
"""

PRODUCTS = """
import torch
from unittest import mock
from revup.models import kernels, once

torch.manual_seed(0)
for rows, depth, columns in ((5, 7, 9), (3, 8, 16), (40, 300, 33), (200, 20, 330), (300, 24, 300)):
    for kind, near in ((torch.float32, 1e-5), (torch.float16, 2e-3)):
        apart = torch.randn(depth, 2 * columns)[:, ::2]
        for w in (torch.randn(depth, columns), torch.randn(columns, depth).t(), apart):
            a, w, bias = torch.randn(rows, depth).to(kind), (w / depth**0.5).to(kind), torch.randn(columns).to(kind)
            y = torch.randn(rows, depth).tanh().to(kind)
            exact = a.float() @ w.float() + bias.float()
            d = a.float() * (1 - y.float() ** 2)
            found = kernels.product_fused(a, w, bias, False), kernels.product_fused(a, w, bias, True)
            found += kernels.product_back_fused(a, y, w)
            for one, two in zip((exact, exact.tanh(), d, d @ w.float()), found):
                torch.testing.assert_close(two.float(), one, rtol=near, atol=near)
            wide = torch.zeros(rows, depth + 3, dtype=kind)  # rows need not lie side by side
            wide[:, :depth] = a
            found = [kernels.product_fused(given, w, None, False) for given in (a, wide[:, :depth])]
            assert torch.equal(*found)

x = torch.randn(6, 4, requires_grad=True)
for across, bias, tanh in ((False, torch.randn(5), True), (False, None, False), (True, None, True)):
    weight = torch.randn((4, 5) if across else (5, 4))
    inputs = [x, weight.requires_grad_()] + ([] if bias is None else [bias.requires_grad_()])
    with mock.patch.object(once, "chains", lambda weight: False):
        part = once.Chained(weight, bias, across)
        plain = part(x, tanh) + 2 * part(x * x, tanh)
    with mock.patch.object(once, "chains", lambda weight: True), mock.patch.object(
        once, "_products", lambda x, w: kernels
    ):
        part = once.Chained(weight, bias, across)
        fused = part(x, tanh) + 2 * part(x * x, tanh)
        upstream = torch.randn_like(plain)
        wanted, found = (torch.autograd.grad((y * upstream).sum(), inputs) for y in (plain, fused))
    for one, two in zip((plain, *wanted), (fused, *found)):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
print("equal")
"""

OPTIMISER = """
import torch
from unittest import mock
from revup import training
from revup.ops import triton as kernels

torch.manual_seed(0)
plain, fused = ([torch.nn.Parameter(torch.zeros(size) + 0.1) for size in (3000, 5)] for _ in range(2))
reference = torch.optim.Adam(plain, lr=2e-3)
adam = training.Adam(fused, lr=torch.tensor(2e-3), foreach=False)
adam.LARGE = 100
scale, inf = torch.tensor(256.0), torch.tensor(0.0)
names = "step", "exp_avg", "exp_avg_sq"
for number in range(6):
    for one, two in zip(plain, fused):
        one.grad = torch.randn_like(one)
        two.grad = one.grad.clone()
    inf.fill_(number == 3)
    if number != 3:
        reference.step()
    with mock.patch.object(training, "kernels", lambda device: kernels if number else None):
        if number:  # the first step makes the moments
            adam.grad_scale, adam.found_inf = scale, inf
            fused[0].grad *= scale
            with mock.patch.object(torch.optim.Adam, "step", lambda self, closure=None: None):
                adam.step()
            assert fused[0].grad is not None
        else:
            adam.step()
    torch.testing.assert_close(fused[0], plain[0])
    for name in names:
        torch.testing.assert_close(adam.state[fused[0]][name], reference.state[plain[0]][name])
print("equal")
"""

BATCHES = """
import torch
from revup.bench import RandomCorpus, Size
from revup.data.corpus import Batches
from revup.data.knowledge import Observation
from revup.ops import triton as kernels

split = RandomCorpus(Size(words=40, frames=9, hidden=8, batch=4), 30).split("train")
given = split, Observation(0.5, 0.2, 1), 4, "cpu"
for plain, gathered in zip(Batches(*given).epoch(3, 7), Batches(*given, gather=kernels.gather_fused).epoch(3, 7)):
    assert isinstance(gathered.events, torch.Tensor) == (gathered.documents == 4)  # the last one is not a full one
    for (name, one), two in zip(plain.parts().items(), gathered.parts().values()):
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, two.to(one.dtype)), name
        else:
            assert one == two, name
print("equal")
"""


COMPILED = """
import torch, triton
from unittest import mock
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction
from revup.bench import RandomCorpus, Size, batches
from revup.settings import Config, build_module
from revup.ops import triton as kernels
from revup.ops.triton import recurrent
from revup.models.layers import Draws

KINDS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int64: "*i64"}
KINDS |= {torch.int32: "*i32", torch.bool: "*i1"}
made = set()


def compile_only(self, *args, grid, warmup, **named):
    given = dict(zip(self.arg_names, args)) | {n: v for n, v in named.items() if n in self.arg_names}
    options = {n: v for n, v in named.items() if n not in self.arg_names}
    signature, constants, attributes = {}, {}, {}
    if "known" in given:
        given["known"].zero_()  # words that will be looked up
    for place, (name, parameter) in enumerate(zip(self.arg_names, self.params)):
        value = given[name]
        if parameter.is_constexpr or value is None:
            signature[name], constants[(place,)] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = KINDS[value.dtype]
            attributes[(place,)] = [["tt.divisibility", 16]]
        else:
            signature[name] = "i32" if isinstance(value, int) else "fp32"
    if (key := (self.__name__, str(signature), str(constants))) not in made:
        made.add(key)
        triton.compile(ASTSource(self, signature, constants, attributes), GPUTarget("cuda", 90, 32), options)


cpu = torch.device("cpu")
size = Size(words=40, frames=9, hidden=8, batch=4)
(batch,) = batches(size, cpu, 1)
where = ("drawing", "layers", "once", "prior", "terms", "vocabulary")
with mock.patch.object(JITFunction, "run", compile_only):
    for part in where:
        mock.patch(f"revup.models.{part}.kernels", lambda device: kernels).start()
    mock.patch("revup.ops.deferred_gradients.chains", lambda weight: weight.requires_grad).start()
    for model in ("revup", "ssdvae"):
        config = Config.make(model, overrides={"network": {"embedding": 5, "hidden": 8, "latent": 4, "frame": 6}})
        module = build_module(config, size.sizes).train()
        module.prepare(RandomCorpus(size, 30), config.observation)
        module(batch, Draws.seeded(3, batch.documents, cpu)).total.backward()
    for recurrent.WALKED in (128, 0):
        gru = torch.nn.GRU(6, 128, bidirectional=True, batch_first=True)
        gru_fused = kernels.gru_fused(torch.randn(3, 2, 6), None, gru.all_weights, True, torch.float16)
        gru_fused.sum().backward()
    for rows, depth, columns in ((200, 561, 128), (200, 128, 600), (5000, 256, 128)):
        a, w = torch.zeros(rows, depth, dtype=torch.bfloat16), torch.zeros(depth, columns, dtype=torch.bfloat16)
        kernels.product_fused(a, w, w[0], True)
        kernels.product_back_fused(a, a, w)
    one = torch.ones(())
    kernels.adam_fused(one, one, (one, one), one, one, one, one, (0.9, 0.999), 1e-8)
    fields = [torch.zeros(3, 2, dtype=kind) for kind in (torch.int64, torch.bool, *[torch.float32] * 6)]
    kernels.gather_fused(torch.zeros(2, dtype=torch.int64), fields, fields, one, [one, one])
    many, few = torch.zeros(5000, 128, dtype=torch.bfloat16), torch.zeros(20, 128, dtype=torch.bfloat16)
    zeros = torch.zeros(5000, dtype=torch.int64)
    kernels.losses_fused(many, few, few[:, 0].float(), zeros, zeros > 0, one)
    kernels.weight_gradients_fused(many, few, few[:, 0].float(), one, zeros, one)
    kernels.softmax_gradient_fused(torch.zeros(1, 70000), torch.zeros(1, dtype=torch.long), torch.ones(1))
missing = {
    name
    for part in (
        *("attention", "batches", "chain", "frames", "optimiser"),
        *("products", "projection", "recurrent", "vocabulary", "words"),
    )
    for name, kernel in vars(getattr(kernels, part)).items()
    if isinstance(kernel, JITFunction) and "program_id" in kernel.src and name not in {key[0] for key in made}
}
print("equal" if not missing else missing)
"""


def test_every_kernel_compiles_for_a_gpu_that_is_not_here() -> None:
    """What the interpreter runs, a GPU's compiler may still refuse."""
    says_equal(COMPILED)


def test_the_recurrent_network_and_every_gradient() -> None:
    interpreted(GRU)


def test_what_is_looked_up_left_out_and_averaged() -> None:
    interpreted(WORDS)


def test_small_products_and_what_comes_after_them() -> None:
    interpreted(PRODUCTS)


def test_a_step_of_adam_is_torch_s() -> None:
    interpreted(OPTIMISER)


def test_a_batch_is_gathered_as_it_is_indexed() -> None:
    interpreted(BATCHES)


def test_the_chain_s_attention_and_draws() -> None:
    interpreted(CHAIN)


def test_the_softmax_s_gradient_is_autograd_s() -> None:
    interpreted(FUSED)


def test_the_loss_of_narrow_states_without_logits() -> None:
    interpreted(NARROW)


def test_divergences_and_their_gradients() -> None:
    interpreted(DIVERGENCES)


def test_the_prior_of_counts_and_the_gradient_of_its_weights() -> None:
    interpreted(PRIOR)


def test_whole_models_and_every_gradient() -> None:
    interpreted(MODELS, measured=False)
