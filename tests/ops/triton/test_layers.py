"""Fused dropout, means, products and Adam equal the equations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from revup import ops
from revup.ops import deferred_gradients
from revup.ops.triton import products
from revup.training import optimiser


@pytest.fixture
def x() -> torch.Tensor:
    """Rows need not lie one after another."""
    return torch.randn(3, 4, 7, requires_grad=True).transpose(0, 1)


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
def test_adam_is_torchs(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a step overflows, which changes nothing."""
    monkeypatch.setattr(optimiser, "LARGE", 100)
    plain, ours = ([nn.Parameter(torch.zeros(size) + 0.1) for size in (3000, 5)] for _ in range(2))
    reference = torch.optim.Adam(plain, lr=2e-3)
    adam = optimiser.Adam(ours, lr=torch.tensor(2e-3), foreach=False)
    for number in range(6):
        for one, two in zip(plain, ours, strict=True):
            one.grad = torch.randn_like(one)
            two.grad = one.grad.clone()
        overflows = number == 3
        if not overflows:
            reference.step()
        if number:  # the first step makes the moments
            adam.grad_scale, adam.found_inf = torch.tensor(256.0), torch.tensor(float(overflows))
            ours[0].grad *= 256.0
            ours[1].grad = None  # torch's own takes a scale on a GPU alone
        with ops.using(mode):
            adam.step()
        torch.testing.assert_close(ours[0], plain[0])
        for name in ("step", "exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(adam.state[ours[0]][name], reference.state[plain[0]][name])
