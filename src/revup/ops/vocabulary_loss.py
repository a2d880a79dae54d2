"""The loss over the vocabulary, where most of the arithmetic is, and its gradient, without ever holding all logits.

dlogits = scale·(softmax(logits) − onehot(target)) needs nothing but the logits, so the loss and its gradient are taken
together, some rows at a time: one product for the logits, one pass over them, two products for the gradients. Narrow
states on a GPU have kernels that never write a logit down (`revup.ops.triton.projection`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from revup.ops.deferred_gradients import in_kind
from revup.ops.fused import ALIGNED, compute_dtype, giving_way, kernels

CPU_CHUNK = 2**26  # bytes of logits held at once on a CPU: the more, the fewer passes over the gradient of the weights
CPU_CHUNK_HALF = 2**24  # in 16 bits, where each pass over them makes a copy: few enough to stay in its cache
GPU_SHARE = 64  # on a GPU: this part of its memory; the fewer chunks, the fewer passes over the gradient of the weights
GPU_SHARE_READING = 512  # without a gradient: several runs share a GPU, and what one has held once it keeps
FILLED_UP = {"cuda": ALIGNED}  # logits of a row are a multiple of that
NEVER = -1e30  # a logit whose exp is 0


def vocabulary_loss(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    there: Tensor,
    count: float | Tensor = 1.0,
    implementation: str = "chunked",
) -> tuple[Tensor, Tensor]:
    """Σ_i there_i · −log softmax(W s_i + b)[target_i] / count, and the −log p of each token (detached).

    states [N, h], weight [V, h], targets [N], and which of them are there [N], true or false. `plain` holds all logits
    at once; `chunked` never does, and of narrow states on a GPU none at all.
    """
    if implementation == "plain":
        nll = F.cross_entropy(F.linear(states, weight, bias).float(), targets, reduction="none")
        return (nll * (there / count)).sum(), nll.detach()
    if not torch.is_grad_enabled():
        return _no_gradient(states, weight, bias, targets, there / count)
    found = kernels(states.device) if compute_dtype(states).itemsize == 2 else None
    if found is not None and states.shape[1] <= found.WIDEST:
        return _NarrowLoss.apply(states, weight, bias, targets, there, count, found)  # type: ignore[no-untyped-call, no-any-return]
    return _ChunkedLoss.apply(states, weight, bias, targets, there / count)  # type: ignore[no-untyped-call, no-any-return]


def token_loss(
    states: Tensor, vocabulary: nn.Linear, tokens: Tensor, there: Tensor, count: float | Tensor = 1.0
) -> tuple[Tensor, Tensor]:
    """Σ −log p over the tokens [B, T] that are there, given states [B, T, h], divided by a count; and the −log p of
    each [B, T] (detached)."""
    given = states.flatten(0, 1), vocabulary.weight, vocabulary.bias, tokens.flatten(), there.flatten()
    total, nll = vocabulary_loss(*given, count)
    return total, nll.view_as(tokens)


def _rows_at_once(rows: int, words: int, kind: torch.dtype, device: torch.device, share: int = GPU_SHARE) -> int:
    """Rows of a chunk, all chunks of about the same size."""
    on_cpu = CPU_CHUNK if kind.itemsize >= 4 else CPU_CHUNK_HALF
    held = _gpu_memory(device) // share if device.type == "cuda" else on_cpu
    most = max(1, held // (words * kind.itemsize))
    chunks = -(-rows // most)
    return max(1, -(-rows // max(chunks, 1)))


def _filled_up(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """With words that are never written, so that logits of a row are as many as the device likes."""
    more = -len(weight) % FILLED_UP.get(weight.device.type, 1)
    return (F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=NEVER)) if more else (weight, bias)


@cache
def _gpu_memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)


def _no_gradient(states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    weight, bias = _filled_up(weight, bias)
    rows = _rows_at_once(len(states), len(weight), torch.float32, states.device, GPU_SHARE_READING)
    parts = [
        F.cross_entropy(F.linear(s, weight, bias).float(), t, reduction="none")
        for s, t in zip(states.split(rows), targets.split(rows), strict=True)
    ]
    nll = torch.cat(parts)
    return (nll * scale).sum(), nll


class _ChunkedLoss(torch.autograd.Function):
    """Cross-entropy whose gradient is taken with the loss, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        kind, device = compute_dtype(states), states.device
        take_gradient = softmax_gradient(device)
        with torch.autocast(device.type, enabled=False):
            s, w, b = states.to(kind), in_kind(weight, kind), in_kind(bias, kind)
            w, b = _filled_up(w, b)
            d_states, each = torch.empty_like(s), []
            sums = (_TogetherSums if device.type == "cuda" else _Sums)(w, s)
            rows = _rows_at_once(len(s), len(w), kind, device)
            held = torch.empty(min(rows, len(s)), len(w), dtype=kind, device=device)  # used again by every chunk
            for start in range(0, len(s), rows):
                part = slice(start, start + rows)
                with giving_way(device):
                    logits = torch.addmm(b, s[part], w.t(), out=held[: len(s[part])])
                    d_logits, nll = take_gradient(logits, targets[part], scale[part])
                    torch.mm(d_logits, w, out=d_states[part])
                    sums.add(d_logits, part)
                each.append(nll)
            nll = each[0] if len(each) == 1 else torch.cat(each)
        ctx.save_for_backward(d_states, sums.weight[: len(weight)], sums.bias[: len(weight)])
        ctx.kinds = states.dtype, weight.dtype, bias.dtype
        ctx.mark_non_differentiable(nll)
        ctx.set_materialize_grads(False)  # no zeros for nll's
        return (nll * scale).sum(), nll

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        d_states, d_weight, d_bias = ctx.saved_tensors
        states, weight, bias = ctx.kinds
        g = upstream[0]
        return (d_states * g).to(states), (d_weight * g).to(weight), (d_bias * g).to(bias), None, None


class _NarrowLoss(torch.autograd.Function):
    """The same of narrow states, by kernels that hold no logits at all; the gradients of weights and bias wait for the
    backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        there: Tensor,
        count: float | Tensor,
        found: Any,
    ) -> tuple[Tensor, Tensor]:
        kind, device = compute_dtype(states), states.device
        s, w, b = states.to(kind).contiguous(), in_kind(weight, kind).contiguous(), bias.contiguous()
        share = 1 / (count if isinstance(count, Tensor) else torch.full((), float(count), device=device))
        with giving_way(device):
            nll, d_states, marks = found.losses_fused(s, w, b, targets.contiguous(), there.bool().contiguous(), share)
        ctx.save_for_backward(s, w, b, share, marks, d_states)
        ctx.kinds, ctx.found = (states.dtype, weight.dtype, bias.dtype), found
        ctx.mark_non_differentiable(nll)
        ctx.set_materialize_grads(False)  # no zeros for nll's
        return (nll * there).sum() * share, nll

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        *given, d_states = ctx.saved_tensors
        states, weight, bias = ctx.kinds
        g = upstream[0]
        with giving_way(g.device):
            d_weight, d_bias = ctx.found.weight_gradients_fused(*given, g)
        return (d_states * g).to(states), d_weight.to(weight), d_bias.to(bias), *(None,) * 4


class _Sums:
    """The gradients of the weights and of the bias, added up over chunks in float32 whatever the factors are."""

    def __init__(self, weight: Tensor, states: Tensor) -> None:
        self.states = states
        self.weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        self.bias = torch.zeros(len(weight), dtype=torch.float32, device=weight.device)

    def add(self, d_logits: Tensor, part: slice) -> None:
        if d_logits.dtype == torch.float32:
            self.bias.addmv_(d_logits.t(), d_logits.new_ones(len(d_logits)))  # a sum takes half as long again
            self.weight.addmm_(d_logits.t(), self.states[part])
        else:
            self.bias += d_logits.sum(0, dtype=torch.float32)
            self.weight += d_logits.t() @ self.states[part]


class _TogetherSums:
    """The same in one product on a GPU: the states have a column of ones, whose product is the gradient of the bias,
    and the product adds to what is there, so that neither the logits nor the sums are read once more."""

    def __init__(self, weight: Tensor, states: Tensor) -> None:
        self.states = F.pad(states, (0, ALIGNED), value=1.0)  # of all these ones one counts: rows stay aligned
        both = torch.empty(len(weight), self.states.shape[1], dtype=torch.float32, device=weight.device)
        self.both, self.weight, self.bias = both, both[:, :-ALIGNED], both[:, -1]
        self.before = 0  # what is there counts from the second chunk on

    def add(self, d_logits: Tensor, part: slice) -> None:
        left, right = d_logits.t(), self.states[part]
        if left.dtype == torch.float32:
            self.both.addmm_(left, right, beta=self.before)
        else:
            torch.addmm(self.both, left, right, beta=self.before, out_dtype=torch.float32, out=self.both)
        self.before = 1


# ---- one pass over the logits ------------------------------------------------------------------------------------


def softmax_gradient(device: torch.device) -> Any:
    """(logits [n, V], targets [n], scale [n]) → (scale·(softmax − onehot) in the logits' place, −log p of targets)."""
    found = kernels(device)
    return softmax_gradient_in_steps if found is None else found.softmax_gradient_fused


def softmax_gradient_in_steps(logits: Tensor, targets: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient by torch's own operations, of which the softmax is one; in float32 inside.

    The largest logit and the largest probability tell log Σ exp, whatever the sizes of the others.
    """
    exact, target, share = logits.float(), targets.unsqueeze(1), scale.unsqueeze(1)
    chosen, top = exact.gather(1, target), exact.amax(-1, keepdim=True)
    gradient = torch.softmax(exact, -1, out=exact)
    nll = top - gradient.amax(-1, keepdim=True).log() - chosen
    gradient.mul_(share).scatter_add_(1, target, -share)
    return gradient.to(logits.dtype), nll.squeeze(1)
