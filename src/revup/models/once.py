"""Weights that a step uses more than once, their gradient taken once: a chain's linear maps, the word embedding.

On a GPU a small step is bound by its launches, and the gradient of a table is as large as the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from revup.encoding import PAD
from revup.models.fused import compute_dtype, exact_product, kernels, sum_of_rows

Linear = Callable[[Tensor], Tensor]
Left = dict[int, tuple[Tensor, Tensor]]  # what a use of weights left behind for their gradient, by its number


def _gathered(left: Left) -> list[Tensor]:
    """What all uses left, one after another, and nothing of it left."""
    parts = [each[0] if len(each) == 1 else torch.cat(each) for each in zip(*left.values(), strict=True)]
    left.clear()
    return parts


class _Weights(torch.autograd.Function):
    """Weights and a bias in what products are computed in; their gradient is taken of all that products with them left
    behind, at once and in their own precision."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, left: Left, kind: torch.dtype) -> Any:
        ctx.left, ctx.biased = left, bias is not None
        ctx.set_materialize_grads(False)  # none comes
        return _as(weight, kind), None if bias is None else _as(bias, kind)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if not ctx.left:
            return None, None, None, None
        xs, ds = _gathered(ctx.left)
        return exact_product(ds.t(), xs), sum_of_rows(ds) if ctx.biased else None, None, None


def _as(tensor: Tensor, kind: torch.dtype) -> Tensor:
    return tensor.view_as(tensor) if tensor.dtype == kind else tensor.to(kind)


class _Product(torch.autograd.Function):
    """x Wᵀ + b, which leaves x and its own gradient behind for that of the weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, left: Left, number: int) -> Tensor:
        ctx.left, ctx.number = left, number
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (d,) = ctx.saved_tensors, upstream
        ctx.left[ctx.number] = x.detach(), d  # with its history it would keep alive the graph that it is part of
        return d @ weight if ctx.needs_input_grad[0] else None, None, None, None, None


def chains(weight: Tensor) -> bool:
    """Whether the gradient of weights that are used many times is better taken once: where launching is what costs."""
    return weight.is_cuda and weight.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling()


class Chained:
    """A linear map, with the same weights at every step of a chain.

    On a GPU the gradient of the weights is one product over all steps, in place of a product, a sum and two additions
    for each; and it comes in the precision that they are kept in.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self.left: Left | None = None
        self.steps = 0
        if chains(weight):
            self.left = {}
            given = weight, bias, self.left, compute_dtype(weight)
            self.weight, self.bias = _Weights.apply(*given)  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., d]."""
        if self.left is None:
            return F.linear(x, self.weight, self.bias)
        rows = x.to(self.weight.dtype).flatten(0, -2)
        given = rows, self.weight, self.bias, self.left, self.steps
        product: Tensor = _Product.apply(*given)  # type: ignore[no-untyped-call]
        self.steps += 1
        return product.view(*x.shape[:-1], -1)


def linear(part: nn.Linear) -> Chained:
    """A layer as such a map."""
    return Chained(part.weight, part.bias)


class _Table(torch.autograd.Function):
    """A table as it is; its gradient is taken of all that was looked up in it, at once."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, left: Left) -> Tensor:
        ctx.left, ctx.rows = left, len(weight)
        ctx.set_materialize_grads(False)  # none comes
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if not ctx.left:
            return None, None
        which, d = _gathered(ctx.left)
        if (found := kernels(d.device)) is not None:
            return found.table_gradient_fused(d, which, ctx.rows, PAD), None
        return torch.ops.aten.embedding_dense_backward(d, which, ctx.rows, PAD, False), None


class _Lookup(torch.autograd.Function):
    """Rows of a table, which leave behind what its gradient needs."""

    @staticmethod
    def forward(ctx: Any, which: Tensor, table: Tensor, left: Left, number: int) -> Tensor:
        ctx.left, ctx.number = left, number
        ctx.save_for_backward(which)
        return F.embedding(which, table)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[None, None, None, None]:
        (which,) = ctx.saved_tensors
        ctx.left[ctx.number] = which.flatten(), upstream[0].flatten(0, 1)
        return None, None, None, None


class Words:
    """A word embedding that encoder and decoder both look words up in.

    On a GPU its gradient is taken once: it takes a sort of the words, and is as large as the vocabulary.
    """

    def __init__(self, words: nn.Embedding) -> None:
        self.words, self.num_embeddings, self.uses = words, words.num_embeddings, 0
        self.left: Left | None = {} if chains(words.weight) else None
        self.table: Tensor = words.weight
        if self.left is not None:
            self.table = _Table.apply(words.weight, self.left)  # type: ignore[no-untyped-call]

    def __call__(self, which: Tensor) -> Tensor:
        """which [B, T] → [B, T, d]."""
        if self.left is None:
            return self.words(which)  # type: ignore[no-any-return]
        self.uses += 1
        return _Lookup.apply(which, self.table, self.left, self.uses)  # type: ignore[no-untyped-call, no-any-return]
