"""Deferred gradients are those of autograd, and leave nothing behind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from revup import ops

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def _fused() -> Iterator[None]:
    with ops.using("fused"):
        yield


@pytest.mark.parametrize("unused", [None, 0, 2])
def test_gradients_of_reused_weights_equal_autograd(unused: int | None) -> None:
    """Also where the output of one use is not part of the loss."""
    parts = nn.ModuleDict({"step": nn.Linear(4, 4), "out": nn.Linear(4, 3, bias=False)})
    table, x = nn.Parameter(torch.randn(3, 4)), torch.randn(5, 1, 4, requires_grad=True)

    def gradients() -> list[Tensor]:
        state, total = x, torch.zeros(())
        for number in range(3):
            state = ops.linear(parts["step"], state, tanh=True)
            said = ops.linear(parts["out"], state)
            state = state + ops.mix(said, table)
            if number != unused:
                total = total + (said * (number + 1)).square().sum()
        return list(torch.autograd.grad(total, [x, *parts.parameters(), table]))

    with ops.using("plain"):
        plain = gradients()
    with ops.defer_gradients(parts):
        deferred = gradients()
    for expected, found in zip(plain, deferred, strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backward", [True, False])
def test_the_graph_is_freed_without_the_garbage_collector(backward: bool) -> None:
    """A capture must not meet nodes of earlier steps."""
    layer, x = nn.Linear(4, 4), torch.randn(5, 4, requires_grad=True)
    gc.disable()
    try:
        with ops.defer_gradients(layer):
            middle = ops.linear(layer, x, tanh=True)
            alive = weakref.ref(middle)
            total = ops.linear(layer, middle).sum()
        if backward:
            total.backward()
        del middle, total
        assert alive() is None
    finally:
        gc.enable()


def test_outside_a_step_nothing_is_deferred() -> None:
    layer = nn.Linear(4, 4)
    assert "_Product" not in type(ops.linear(layer, torch.randn(2, 4)).grad_fn).__name__
