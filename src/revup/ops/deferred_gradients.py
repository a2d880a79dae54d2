"""Weights that a step uses more than once, their gradient taken once: a chain's linear maps, the word embedding.

On a GPU a small step is bound by its launches, and the gradient of a table is as large as the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from revup.data.encode import PAD
from revup.ops.fused import aside, compute_dtype, exact_product, joined, kernels, sum_of_rows

SMALL = 2**30  # multiplications of a product up to which it has a kernel of ours
CAST_TOGETHER = 2**24  # numbers of the largest weights that are cast with others
Left = dict[int, tuple[Tensor, Tensor]]  # what a use of weights left behind for their gradient, by its number


def _gathered(left: Left) -> list[Tensor]:
    """What all uses left, one after another, and nothing of it left."""
    inputs, gradients = zip(*(left[number] for number in sorted(left)), strict=True)
    left.clear()
    return [_together(inputs), _together(gradients)]


def _together(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


class _Weights(torch.autograd.Function):
    """Weights and a bias in what products are computed in; their gradient is taken of all that products with them left
    behind, at once and in their own precision."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, across: bool, left: Left, kind: torch.dtype) -> Any:
        ctx.across, ctx.left, ctx.biased = across, left, bias is not None
        ctx.set_materialize_grads(False)  # none comes
        return in_kind(weight, kind), None if bias is None else in_kind(bias, kind)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if not ctx.left:
            return None, None, None, None, None
        xs, ds = _gathered(ctx.left)
        weight = exact_product(xs.t(), ds) if ctx.across else exact_product(ds.t(), xs)
        return weight, sum_of_rows(ds) if ctx.biased else None, None, None, None


_made: dict[int, Tensor] = {}  # copies of parameters of this step, by where these lie
Step = TypeVar("Step", bound=Callable[..., Any])


def in_kind(parameter: Tensor, kind: torch.dtype) -> Tensor:
    """The parameter as that kind of numbers, a tensor of its own."""
    if parameter.dtype == kind:
        return parameter.view_as(parameter)
    made = _made.get(parameter.data_ptr())
    return parameter.to(kind) if made is None else made.view_as(made)


def cast_together(forward: Step) -> Step:
    """A module's `forward`, before which the weights of its linear maps are cast by one launch, not by one each."""

    @wraps(forward)
    def step(self: nn.Module, *given: Any) -> Any:
        parts = [part for part in self.modules() if part is self or isinstance(part, nn.Linear)]
        parameters = [p for part in parts for p in part.parameters(recurse=False)]
        parameters = [p for p in parameters if chains(p) and p.numel() <= CAST_TOGETHER]
        kind = compute_dtype(parameters[0]) if parameters else torch.float32
        if kind != torch.float32:  # there are some, and autocast is on
            copies = [torch.empty_like(p, dtype=kind) for p in parameters]
            torch._foreach_copy_(copies, [p.detach() for p in parameters])
            _made.update((p.data_ptr(), copy) for p, copy in zip(parameters, copies, strict=True))
        try:
            return forward(self, *given)
        finally:
            _made.clear()

    return cast(Step, step)


class _Product(torch.autograd.Function):
    """x Wᵀ + b, or its tanh, which leaves x and the sum's gradient behind for that of the weights; across, x W."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, across: bool, tanh: bool, left: Left, number: int
    ) -> Tensor:
        ctx.across, ctx.left, ctx.number = across, left, number
        w = weight if across else weight.t()
        if (found := _products(x, w)) is not None:
            y: Tensor = found.product_fused(x, w, bias, tanh)
        else:
            y = x @ w if bias is None else torch.addmm(bias, x, w)
            y = y.tanh_() if tanh else y
        ctx.save_for_backward(x, weight, y if tanh else None)
        return y

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight, y), (d,), d_x = ctx.saved_tensors, upstream, None
        w = weight.t() if ctx.across else weight
        found = _products(d, w) if ctx.needs_input_grad[0] else None
        if found is not None:
            d, d_x = found.product_back_fused(d, y, w)
        else:
            d = d if y is None else torch.ops.aten.tanh_backward(d, y)
            d_x = d @ w if ctx.needs_input_grad[0] else None
        ctx.left[ctx.number] = x.detach(), d  # with its history it would keep alive the graph that it is part of
        return d_x, None, None, None, None, None, None


def _products(x: Tensor, w: Tensor) -> ModuleType | None:
    """Kernels for the product of these, where it is a small one."""
    small = x.dtype.itemsize == 2 and x.numel() * w.shape[1] <= SMALL
    return kernels(x.device) if small else None


def chains(weight: Tensor) -> bool:
    """Whether the gradient of weights that are used many times is better taken once: where launching is what costs."""
    return weight.is_cuda and weight.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling()


class Chained:
    """A linear map, with the same weights at every step of a chain: x Wᵀ + b, or across, x W.

    On a GPU the gradient of the weights is one product over all steps, in place of a product, a sum and two additions
    for each; and it comes in the precision that they are kept in.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, across: bool = False) -> None:
        self.weight, self.bias, self.across = weight, bias, across
        self.left: Left | None = None
        self.steps = 0
        if chains(weight):
            self.left = {}
            given = weight, bias, across, self.left, compute_dtype(weight)
            self.weight, self.bias = _Weights.apply(*given)  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor, tanh: bool = False) -> Tensor:
        """Of x [..., d], or the tanh of that."""
        if self.left is None:
            product = F.linear(x, self.weight.t() if self.across else self.weight, self.bias)
            return torch.tanh(product) if tanh else product
        rows = x.to(self.weight.dtype).flatten(0, -2)
        given = rows, self.weight, self.bias, self.across, tanh, self.left, self.steps
        y: Tensor = _Product.apply(*given)  # type: ignore[no-untyped-call]
        self.steps += 1
        return y.view(*x.shape[:-1], -1)


def linear(part: nn.Linear) -> Chained:
    """A layer as such a map."""
    return Chained(part.weight, part.bias)


class _Table(torch.autograd.Function):
    """A table as it is; its gradient is taken of all that was looked up in it, at once."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, left: Left, order: dict[int, Tensor]) -> Tensor:
        """order: of all that the first so many uses look up, where it is known by the time of the backward pass."""
        ctx.left, ctx.order, ctx.rows = left, order, len(weight)
        ctx.set_materialize_grads(False)  # none comes
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if not ctx.left:
            return None, None, None
        uses = len(ctx.left) if max(ctx.left) == len(ctx.left) else 0  # 0: not of each of them there is a gradient
        which, d = _gathered(ctx.left)
        if (found := kernels(d.device)) is None:
            return torch.ops.aten.embedding_dense_backward(d, which, ctx.rows, PAD, False), None, None
        joined(d.device)
        order = ctx.order.pop(uses, None)
        if order is None:
            order = _order(which)
        return found.table_gradient_fused(d, which, order, ctx.rows, PAD), None, None


def _order(which: Tensor) -> Tensor:
    """Where words stand that are sorted, equal ones in the order they came in."""
    return which.to(torch.int32).sort(stable=True).indices


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

    On a GPU its gradient is taken once: it takes a sort of the words, which needs nothing but them and is done beside
    the decoder, and is as large as the vocabulary.
    """

    USES = 2  # of a step, after which words are sorted

    def __init__(self, words: nn.Embedding) -> None:
        self.words, self.num_embeddings = words, words.num_embeddings
        self.left: Left | None = {} if chains(words.weight) else None
        self.looked_up: list[Tensor] = []
        self.order: dict[int, Tensor] = {}
        self.table: Tensor = words.weight
        if self.left is not None:
            self.table = _Table.apply(words.weight, self.left, self.order)  # type: ignore[no-untyped-call]

    def __call__(self, which: Tensor) -> Tensor:
        """which [B, T] → [B, T, d]."""
        if self.left is None:
            return self.words(which)  # type: ignore[no-any-return]
        self.looked_up.append(which.flatten())
        if len(self.looked_up) == self.USES and kernels(which.device) is not None:
            with aside(which.device):
                self.order[self.USES] = _order(_together(self.looked_up))
        return _Lookup.apply(which, self.table, self.left, len(self.looked_up))  # type: ignore[no-untyped-call, no-any-return]
