"""Deferred gradients for weights reused within a step, and one joint cast of weights to half precision.

A step uses the same weights several times: the chain's linear layers at each event, the word embedding in encoder and
decoder. On a GPU, kernel launches dominate the time of a small step, and the gradient of an embedding table is as large
as the table. Within `defer_gradients(module)` each use only records its input and its output gradient; the gradient of
the weights is then one product (or one sorted sum of rows) over all uses, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from revup.ops import operations
from revup.ops.dispatch import Operation, all_plain, fusable
from revup.ops.precision import compute_dtype, exact_product, sum_of_rows
from revup.ops.streams import aside, joined

CAST_TOGETHER = 2**24  # elements; larger weights are not cast jointly
SORT_AFTER = 2  # number of lookups after which their words are sorted on the low-priority stream
Uses = dict[int, tuple[Tensor, Tensor]]  # number of a use → its input and output gradient


class _Step:
    """The weights used so far in one step."""

    def __init__(self, module: nn.Module) -> None:
        self.casts = _cast_together(module)
        self.weights: dict[Tensor, _DeferredWeights] = {}
        self.tables: dict[Tensor, _DeferredTable] = {}


_step: ContextVar[_Step | None] = ContextVar("step", default=None)


@contextmanager
def defer_gradients(module: nn.Module) -> Iterator[None]:
    """Defer the gradients of reused weights on a GPU within this block.

    Args:
        module: The module whose loss the block computes.
    """
    token = _step.set(_Step(module))
    try:
        yield
    finally:
        _step.reset(token)


def _defers(weight: Tensor) -> bool:
    return _step.get() is not None and weight.requires_grad and torch.is_grad_enabled() and fusable(weight)


# ---- joint casts ---------------------------------------------------------------------------------------------------


def _cast_together(module: nn.Module) -> dict[Tensor, Tensor]:
    """Copies of the weights of a module's linear layers in half precision, made by one launch."""
    parts = [part for part in module.modules() if part is module or isinstance(part, nn.Linear)]
    chosen = [p for part in parts for p in part.parameters(recurse=False) if p.numel() <= CAST_TOGETHER]
    if not chosen or all_plain() or not fusable(chosen[0]) or compute_dtype(chosen[0]) == torch.float32:
        return {}
    copies = [torch.empty_like(p, dtype=compute_dtype(p)) for p in chosen]
    torch._foreach_copy_(copies, [p.detach() for p in chosen])
    return dict(zip(chosen, copies, strict=True))


def cast(parameter: Tensor, kind: torch.dtype) -> Tensor:
    """The parameter in this dtype as a new tensor: a view of this step's joint copy, if there is one."""
    if parameter.dtype == kind:
        return parameter.view_as(parameter)
    step = _step.get()
    copy = None if step is None else step.casts.get(parameter)
    return parameter.to(kind) if copy is None else copy.view_as(copy)


# ---- linear layers -------------------------------------------------------------------------------------------------


def _gathered(uses: Uses) -> list[Tensor]:
    """The concatenated inputs and gradients of all uses, in order; clears `uses`."""
    inputs, gradients = zip(*(uses[number] for number in sorted(uses)), strict=True)
    uses.clear()
    return [_together(inputs), _together(gradients)]


def _together(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


@Operation
def product(a: Tensor, b: Tensor, bias: Tensor | None = None, tanh: bool = False) -> Tensor:
    """a [m, k] · b [k, n] + bias [n], or its tanh."""
    y = a @ b if bias is None else torch.addmm(bias, a, b)
    return y.tanh_() if tanh else y


@Operation
def product_gradient(d: Tensor, y: Tensor | None, b: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of a · bᵀ, d·(1 − y²), and of a, from the gradient d of y = tanh(a · bᵀ); y = None: without tanh."""
    d = d if y is None else torch.ops.aten.tanh_backward(d, y)
    return d, d @ b


class _Weights(torch.autograd.Function):
    """Weights and bias cast for products; their gradient is computed once from all uses, in float32."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, across: bool, uses: Uses, kind: torch.dtype) -> Any:
        ctx.across, ctx.uses, ctx.biased = across, uses, bias is not None
        ctx.set_materialize_grads(False)  # none comes
        return cast(weight, kind), None if bias is None else cast(bias, kind)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if not ctx.uses:
            return None, None, None, None, None
        xs, ds = _gathered(ctx.uses)
        weight = exact_product(xs.t(), ds) if ctx.across else exact_product(ds.t(), xs)
        return weight, sum_of_rows(ds) if ctx.biased else None, None, None, None


class _Product(torch.autograd.Function):
    """x Wᵀ + b (across: x W), or its tanh; records x and the output gradient for the gradient of the weights."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, across: bool, tanh: bool, uses: Uses, number: int
    ) -> Tensor:
        ctx.across, ctx.uses, ctx.number = across, uses, number
        y = product(x, weight if across else weight.t(), bias, tanh)
        ctx.save_for_backward(x, weight, y if tanh else None)
        return y

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        d, d_x = product_gradient(upstream[0], y, weight.t() if ctx.across else weight)
        ctx.uses[ctx.number] = x.detach(), d  # detached: its history would keep the graph alive
        return d_x, None, None, None, None, None, None


class _DeferredWeights:
    """A linear map whose weights are used several times in a step: x Wᵀ + b, or across, x W."""

    def __init__(self, weight: Tensor, bias: Tensor | None, across: bool) -> None:
        self.across, self.count = across, 0
        self.uses: Uses = {}
        given = weight, bias, across, self.uses, compute_dtype(weight)
        self.weight, self.bias = _Weights.apply(*given)  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor, tanh: bool = False) -> Tensor:
        rows = x.to(self.weight.dtype).flatten(0, -2)
        given = rows, self.weight, self.bias, self.across, tanh, self.uses, self.count
        y: Tensor = _Product.apply(*given)  # type: ignore[no-untyped-call]
        self.count += 1
        return y.view(*x.shape[:-1], -1)


def _deferred(weight: Tensor, bias: Tensor | None, across: bool) -> _DeferredWeights:
    step = _step.get()
    weights = step.weights if step is not None else {}
    if weight not in weights:
        weights[weight] = _DeferredWeights(weight, bias, across)
    return weights[weight]


@operations.linear.register(lambda layer, x, tanh=False: _defers(layer.weight))
def _linear(layer: nn.Linear, x: Tensor, tanh: bool = False) -> Tensor:
    return _deferred(layer.weight, layer.bias, across=False)(x, tanh)


@operations.mix.register(lambda weights, table: _defers(table))
def _mix(weights: Tensor, table: Tensor) -> Tensor:
    return _deferred(table, None, across=True)(weights)


# ---- embeddings ----------------------------------------------------------------------------------------------------


class _Table(torch.autograd.Function):
    """An unchanged table whose gradient is computed once from all lookups."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, padding: int, uses: Uses, order: dict[int, Tensor]) -> Tensor:
        """order: number of lookups → sort order of their words, if computed before the backward pass."""
        ctx.padding, ctx.uses, ctx.order, ctx.rows = padding, uses, order, len(weight)
        ctx.set_materialize_grads(False)  # none comes
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if not ctx.uses:
            return None, None, None, None
        lookups = len(ctx.uses) if max(ctx.uses) == len(ctx.uses) else 0  # 0: some lookups have no gradient
        which, d = _gathered(ctx.uses)
        if ctx.order:  # a stream that nothing ran on can't be joined in a captured step
            joined(d.device)
        order = ctx.order.pop(lookups, None)
        return table_gradient(d, which, order, ctx.rows, ctx.padding), None, None, None


@Operation
def table_gradient(d: Tensor, which: Tensor, order: Tensor | None, rows: int, padding: int) -> Tensor:
    """The gradient [rows, d] of a table from the gradients d [N, d] of its rows `which` [N]; zero for the padding row.

    order [N]: the indices that sort `which`, if already computed.
    """
    gradient: Tensor = torch.ops.aten.embedding_dense_backward(d, which, rows, padding, False)
    return gradient


def sorted_places(which: Tensor) -> Tensor:
    """The indices that sort the words, stably."""
    return which.to(torch.int32).sort(stable=True).indices


class _Lookup(torch.autograd.Function):
    """Rows of a table; records words and output gradients for the gradient of the table."""

    @staticmethod
    def forward(ctx: Any, which: Tensor, table: Tensor, uses: Uses, number: int) -> Tensor:
        ctx.uses, ctx.number = uses, number
        ctx.save_for_backward(which)
        return F.embedding(which, table)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[None, None, None, None]:
        (which,) = ctx.saved_tensors
        ctx.uses[ctx.number] = which.flatten(), upstream[0].flatten(0, 1)
        return None, None, None, None


class _DeferredTable:
    """An embedding with several lookups in a step; their words are sorted on the low-priority stream."""

    def __init__(self, table: nn.Embedding) -> None:
        self.uses: Uses = {}
        self.looked_up: list[Tensor] = []
        self.order: dict[int, Tensor] = {}
        padding = -1 if table.padding_idx is None else table.padding_idx
        self.table: Tensor = _Table.apply(table.weight, padding, self.uses, self.order)  # type: ignore[no-untyped-call]

    def __call__(self, which: Tensor) -> Tensor:
        self.looked_up.append(which.flatten())
        if len(self.looked_up) == SORT_AFTER:
            with aside(which.device):
                self.order[SORT_AFTER] = sorted_places(_together(self.looked_up))
        rows: Tensor = _Lookup.apply(which, self.table, self.uses, len(self.looked_up))  # type: ignore[no-untyped-call]
        return rows


@operations.embed.register(lambda table, tokens: _defers(table.weight))
def _embed(table: nn.Embedding, tokens: Tensor) -> Tensor:
    step = _step.get()
    tables = step.tables if step is not None else {}
    if table.weight not in tables:
        tables[table.weight] = _DeferredTable(table)
    return tables[table.weight](tokens)
