"""The vocabulary loss and its gradient, computed in chunks without storing all logits at once.

dlogits = scale·(softmax(logits) − onehot(target)) depends on the logits only, so loss and gradient are computed
together per chunk of rows: one product for the logits, one pass over them, two products for the gradients.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from revup.ops import operations
from revup.ops.deferred_gradients import cast
from revup.ops.dispatch import Operation
from revup.ops.precision import ALIGNED, compute_dtype
from revup.ops.streams import low_priority

CPU_CHUNK = 2**26  # bytes of logits per chunk on a CPU: larger means fewer passes over the weights' gradient
CPU_CHUNK_HALF = 2**24  # for 16-bit logits, which each pass copies: small enough to stay in the cache
GPU_SHARE = 64  # on a GPU, a chunk takes 1/64 of the memory
GPU_SHARE_READING = 512  # without a gradient: runs may share a GPU, and torch caches what it allocates
NEVER = -1e30  # a logit whose exp is 0


@operations.vocabulary_loss.register(lambda states, layer, tokens, mask, count=1.0: True)
def _vocabulary_loss(
    states: Tensor, layer: nn.Linear, tokens: Tensor, mask: Tensor, count: float | Tensor = 1.0
) -> tuple[Tensor, Tensor]:
    given = states.flatten(0, 1), layer.weight, layer.bias, tokens.flatten(), mask.flatten() / count
    chunked = _ChunkedLoss.apply if torch.is_grad_enabled() else _without_gradient
    total, nll = chunked(*given)
    return total, nll.view_as(tokens)


def _rows_at_once(rows: int, words: int, kind: torch.dtype, device: torch.device, share: int = GPU_SHARE) -> int:
    """Rows of a chunk, all chunks of about the same size."""
    on_cpu = CPU_CHUNK if kind.itemsize >= 4 else CPU_CHUNK_HALF
    held = _gpu_memory(device) // share if device.type == "cuda" else on_cpu
    most = max(1, held // (words * kind.itemsize))
    chunks = -(-rows // most)
    return max(1, -(-rows // max(chunks, 1)))


@cache
def _gpu_memory(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)


def _padded(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """On a GPU, pad with words of probability 0, so that rows of logits are aligned."""
    more = -len(weight) % ALIGNED if weight.is_cuda else 0
    return (F.pad(weight, (0, 0, 0, more)), F.pad(bias, (0, more), value=NEVER)) if more else (weight, bias)


def _without_gradient(
    states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    weight, bias = _padded(weight, bias)
    rows = _rows_at_once(len(states), len(weight), torch.float32, states.device, GPU_SHARE_READING)
    parts = [
        F.cross_entropy(F.linear(s, weight, bias).float(), t, reduction="none")
        for s, t in zip(states.split(rows), targets.split(rows), strict=True)
    ]
    nll = torch.cat(parts)
    return (nll * scale).sum(), nll


class _ChunkedLoss(torch.autograd.Function):
    """Cross-entropy whose gradient is computed in the forward pass, in chunks."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        kind, device = compute_dtype(states), states.device
        with torch.autocast(device.type, enabled=False):
            s, w, b = states.to(kind), cast(weight, kind), cast(bias, kind)
            w, b = _padded(w, b)
            d_states, each = torch.empty_like(s), []
            sums = (_JointSums if device.type == "cuda" else _Sums)(w, s)
            rows = _rows_at_once(len(s), len(w), kind, device)
            held = torch.empty(min(rows, len(s)), len(w), dtype=kind, device=device)  # reused by every chunk
            for start in range(0, len(s), rows):
                part = slice(start, start + rows)
                with low_priority(device):
                    logits = torch.addmm(b, s[part], w.t(), out=held[: len(s[part])])
                    d_logits, nll = softmax_gradient(logits, targets[part], scale[part])
                    torch.mm(d_logits, w, out=d_states[part])
                    sums.add(d_logits, part)
                each.append(nll)
            nll = each[0] if len(each) == 1 else torch.cat(each)
        ctx.save_for_backward(d_states, sums.weight[: len(weight)], sums.bias[: len(weight)])
        ctx.kinds = states.dtype, weight.dtype, bias.dtype
        ctx.mark_non_differentiable(nll)
        ctx.set_materialize_grads(False)  # avoids a zero gradient tensor for nll
        return (nll * scale).sum(), nll

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        d_states, d_weight, d_bias = ctx.saved_tensors
        states, weight, bias = ctx.kinds
        g = upstream[0]
        return (d_states * g).to(states), (d_weight * g).to(weight), (d_bias * g).to(bias), None, None


class _Sums:
    """The gradients of weights and bias, accumulated over chunks in float32 for any input dtype."""

    def __init__(self, weight: Tensor, states: Tensor) -> None:
        self.states = states
        self.weight = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        self.bias = torch.zeros(len(weight), dtype=torch.float32, device=weight.device)

    def add(self, d_logits: Tensor, part: slice) -> None:
        if d_logits.dtype == torch.float32:
            self.bias.addmv_(d_logits.t(), d_logits.new_ones(len(d_logits)))  # 1.5 times as fast as a sum
            self.weight.addmm_(d_logits.t(), self.states[part])
        else:
            self.bias += d_logits.sum(0, dtype=torch.float32)
            self.weight += d_logits.t() @ self.states[part]


class _JointSums:
    """The same in one product on a GPU: a column of ones appended to the states gives the gradient of the bias."""

    def __init__(self, weight: Tensor, states: Tensor) -> None:
        self.states = F.pad(states, (0, ALIGNED), value=1.0)  # only one column is needed; the others align the rows
        both = torch.empty(len(weight), self.states.shape[1], dtype=torch.float32, device=weight.device)
        self.both, self.weight, self.bias = both, both[:, :-ALIGNED], both[:, -1]
        self.before = 0  # beta: the uninitialised buffer is overwritten by the first chunk

    def add(self, d_logits: Tensor, part: slice) -> None:
        left, right = d_logits.t(), self.states[part]
        if left.dtype == torch.float32:
            self.both.addmm_(left, right, beta=self.before)
        else:
            torch.addmm(self.both, left, right, beta=self.before, out_dtype=torch.float32, out=self.both)
        self.before = 1


@Operation
def softmax_gradient(logits: Tensor, targets: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """scale·(softmax − onehot(target)) of logits [n, V], which may be overwritten; and −log p of the targets [n].

    Computed in float32; log Σ exp follows from the largest logit and the largest probability.
    """
    exact, target, share = logits.float(), targets.unsqueeze(1), scale.unsqueeze(1)
    chosen, top = exact.gather(1, target), exact.amax(-1, keepdim=True)
    gradient = torch.softmax(exact, -1, out=exact)
    nll = top - gradient.amax(-1, keepdim=True).log() - chosen
    gradient.mul_(share).scatter_add_(1, target, -share)
    return gradient.to(logits.dtype), nll.squeeze(1)
