"""Fused dropout, means, products, batches and Adam equal the equations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from revup import ops
from revup.benchmark import RandomCorpus, Size
from revup.data.batches import Batches
from revup.data.knowledge import Observation
from revup.ops import deferred_gradients
from revup.ops.triton import products


def test_dropout(agree: Callable[..., None]) -> None:
    whole, uniform = torch.randn(3, 4, 7, requires_grad=True), torch.rand(4, 3, 7)
    agree(lambda: [ops.dropout(whole.transpose(0, 1), uniform, 0.4)], [whole])


def test_masked_mean(agree: Callable[..., None]) -> None:
    whole, mask = torch.randn(3, 4, 7, requires_grad=True), torch.rand(4, 3) < 0.5
    mask[0] = False
    agree(lambda: [ops.masked_mean(whole.transpose(0, 1), mask)], [whole])


@pytest.mark.parametrize(("kind", "near"), [(torch.float32, 1e-5), (torch.float16, 2e-3)])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(5, 7, 9), (3, 8, 16), (40, 300, 33), (200, 20, 330)])
@pytest.mark.parametrize("layout", ["rows", "columns", "apart"])
def test_small_products(rows: int, depth: int, columns: int, kind: torch.dtype, near: float, layout: str) -> None:
    weights = {
        "rows": torch.randn(depth, columns),
        "columns": torch.randn(columns, depth).t(),
        "apart": torch.randn(depth, 2 * columns)[:, ::2],
    }[layout]
    wide = torch.zeros(rows, depth + 3, dtype=kind)
    wide[:, :depth] = torch.randn(rows, depth)
    a, w, bias = wide[:, :depth], (weights / depth**0.5).to(kind), torch.randn(columns).to(kind)
    y = torch.randn(rows, depth).tanh().to(kind)
    exact = a.float() @ w.float() + bias.float()
    d = a.float() * (1 - y.float() ** 2)
    found = products.product(a, w, bias), products.product(a, w, bias, True), *products.product_gradient(a, y, w)
    for one, two in zip((exact, exact.tanh(), d, d @ w.float()), found, strict=True):
        torch.testing.assert_close(two.float(), one, rtol=near, atol=near)
    torch.testing.assert_close(
        products.product_gradient(a, None, w)[1].float(), a.float() @ w.float(), rtol=near, atol=near
    )


def test_product_and_its_gradient_are_those_of_autograd() -> None:
    a, b, bias = (torch.randn(*shape, requires_grad=True) for shape in ((6, 4), (4, 5), (5,)))
    y = torch.tanh(a @ b + bias)
    upstream = torch.randn_like(y)
    d, d_a = deferred_gradients.product_gradient.plain(upstream, y.detach(), b.detach().t())
    wanted = torch.autograd.grad((y * upstream).sum(), (a, bias))
    torch.testing.assert_close(d_a, wanted[0])
    torch.testing.assert_close(d.sum(0), wanted[1])


@pytest.mark.parametrize("mode", ["plain", "fused"])
def test_adam_is_torchs(mode: str) -> None:
    """Also where a step overflows, which changes nothing."""
    parameter = nn.Parameter(torch.zeros(3000) + 0.1)
    reference = torch.optim.Adam([parameter], lr=2e-3)
    mine, moments, steps = parameter.detach().clone(), (torch.zeros(3000), torch.zeros(3000)), torch.tensor(0.0)
    for number in range(6):
        parameter.grad = torch.randn(3000)
        given = mine, 256.0 * parameter.grad, moments, steps, torch.tensor(2e-3), torch.tensor(256.0)
        overflows = number == 3
        with ops.using(mode):
            ops.adam(*given, torch.tensor(float(overflows)), (0.9, 0.999), 1e-8)
        if not overflows:
            reference.step()
            steps += 1
        state = reference.state[parameter]
        torch.testing.assert_close(mine, parameter.detach())
        torch.testing.assert_close(moments, (state["exp_avg"], state["exp_avg_sq"]))


@pytest.mark.parametrize("mode", ["plain", "fused"])
def test_gathered_batches_equal_indexed_ones(mode: str) -> None:
    split = RandomCorpus(Size(words=40, frames=9, hidden=8, batch=4), 30).split("train")
    given = split, Observation(0.5, 0.2, 1), 4, "cpu"
    with ops.using(mode):
        gathered = Batches(*given, gather=ops.gather_rows).epoch(3, 7)
        for indexed, batch in zip(Batches(*given).epoch(3, 7), gathered, strict=True):
            full = batch.documents == 4  # the last one is smaller, and indexed
            assert isinstance(batch.events, torch.Tensor) == full
            for name, value in indexed.parts().items():
                found = batch.parts()[name]
                if isinstance(value, torch.Tensor):
                    assert torch.equal(value, found.to(value.dtype)), name
                else:
                    assert value == found, name
