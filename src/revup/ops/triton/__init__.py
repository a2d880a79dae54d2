"""Fused versions of the operations as Triton kernels, each registered with the condition under which it applies."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from revup.ops import chunked_loss, deferred_gradients, operations
from revup.ops.dispatch import fusable
from revup.ops.precision import compute_dtype
from revup.ops.triton import (
    adam,
    attention,
    dropout_and_mean,
    frame_losses,
    gather,
    latents,
    narrow_loss,
    products,
    recurrent,
    softmax_gradient,
    table_gradient,
)

SMALL_WEIGHTS = 300_000  # elements; up to this size of the weights, products use the Triton kernel


def _half(values: Tensor) -> bool:
    return compute_dtype(values).itemsize == 2


@operations.gru.register(
    lambda layer, x, state=None: fusable(x) and _half(x) and torch.is_grad_enabled()  # else cuDNN is faster
)
def _gru(layer: nn.GRU, x: Tensor, state: Tensor | None = None) -> Tensor:
    """In float16, as cuDNN does: states are bounded."""
    return recurrent.gru(x, state, layer.all_weights, layer.bidirectional, torch.float16)


@operations.attend.register(
    lambda score, out, query, memory, mask, bias=None, slots=False: fusable(memory) and not slots
)
def _attend(
    score: nn.Linear,
    out: nn.Linear,
    query: Tensor,
    memory: Tensor,
    mask: Tensor,
    bias: Tensor | None = None,
    slots: bool = False,
) -> tuple[Tensor, Tensor]:
    asked = operations.linear(score, query)
    read, weights = attention.attend(asked, memory, mask, query, bias, compute_dtype(memory))
    return operations.linear(out, read, tanh=True), weights


@operations.attend.register(
    lambda score, out, query, memory, mask, bias=None, slots=False: (
        fusable(memory) and query.shape[1] == 1 and bias is None
    )
)
def _attend_once(
    score: nn.Linear,
    out: nn.Linear,
    query: Tensor,
    memory: Tensor,
    mask: Tensor,
    bias: Tensor | None = None,
    slots: bool = False,
) -> tuple[Tensor, Tensor]:
    asked = operations.linear(score, query).squeeze(1)
    read, weights = attention.look(asked, memory, mask, query.squeeze(1), slots, compute_dtype(memory))
    return operations.linear(out, read, tanh=True).unsqueeze(1), weights.unsqueeze(1)


@operations.gaussian_sample.register(lambda parameters, noise: noise is not None and fusable(parameters))
def _gaussian_sample(parameters: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    if noise is None:
        return operations.gaussian_sample.plain(parameters, noise)
    return latents.gaussian_sample(parameters, noise, operations.LOG_VARIANCES, compute_dtype(parameters))


operations.dropout.register(lambda x, uniform, rate: fusable(x) and x.dim() == 3)(dropout_and_mean.dropout)
operations.masked_mean.register(lambda values, mask: fusable(values))(dropout_and_mean.masked_mean)
operations.gather_rows.register(lambda which, *_: fusable(which))(gather.gather_rows)
operations.adam.register(lambda parameter, *_: fusable(parameter))(adam.adam)
operations.gaussian_kl.register(lambda mean, log_variance: fusable(mean))(latents.gaussian_kl)
operations.draw_frame.register(lambda raw, *_, **__: fusable(raw))(latents.draw_frame)
operations.frame_losses.register(lambda kind, logits, *_: fusable(logits))(frame_losses.frame_losses)
operations.vocabulary_loss.register(
    lambda states, *_: (
        fusable(states) and _half(states) and states.shape[-1] <= narrow_loss.WIDEST and torch.is_grad_enabled()
    )
)(narrow_loss.vocabulary_loss)
chunked_loss.softmax_gradient.register(lambda logits, *_: fusable(logits))(softmax_gradient.softmax_gradient)


deferred_gradients.product.register(
    lambda a, b, bias=None, tanh=False: fusable(a) and a.dtype.itemsize == 2 and b.numel() <= SMALL_WEIGHTS
)(products.product)
deferred_gradients.product_gradient.register(
    lambda d, y, b: fusable(d) and d.dtype.itemsize == 2 and b.numel() <= SMALL_WEIGHTS
)(products.product_gradient)


@deferred_gradients.table_gradient.register(lambda d, *_: fusable(d))
def _table_gradient(d: Tensor, which: Tensor, order: Tensor | None, rows: int, padding: int) -> Tensor:
    order = deferred_gradients.sorted_places(which) if order is None else order
    return table_gradient.table_gradient(d, which, order, rows, padding)
