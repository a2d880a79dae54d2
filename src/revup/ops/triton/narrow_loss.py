"""The vocabulary loss for states of few dimensions, and its gradients, without storing logits.

For states of few dimensions, reading and writing logits takes longer than computing them. A program therefore computes
a block of logits and uses it immediately, as in fused attention over the words. The forward pass also computes the mean
of the words' weights under the softmax; minus the target's weights it is the gradient of a state. The gradient of the
weights recomputes the logits, with the roles of words and states exchanged.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from revup.ops.deferred_gradients import cast
from revup.ops.precision import compute_dtype
from revup.ops.streams import low_priority
from revup.ops.triton.softmax_gradient import multiprocessors

WIDEST = 128  # dimensions of a state up to which this is faster
READ = {"ROWS": 64, "WORDS": 64, "num_warps": 4, "num_stages": 2}  # ROWS: states per program; WORDS: words per block
LEARN = {"ROWS": 64, "WORDS": 64, "num_warps": 4, "num_stages": 2}  # ROWS: states per block; WORDS: words per program
RESIDENT = 3  # programs that fit on a multiprocessor,
REGISTERS = 168  # given this limit per thread, which the second kernel sets explicitly
MOST_PARTS = 8  # of the vocabulary, to occupy all multiprocessors when there are few states
JOINED = 16  # states per program of the kernel that combines the parts
LOG2E = tl.constexpr(1.4426950408889634)


def vocabulary_loss(
    states: Tensor, layer: nn.Linear, tokens: Tensor, mask: Tensor, count: float | Tensor = 1.0
) -> tuple[Tensor, Tensor]:
    """`ops.vocabulary_loss` for states of few dimensions, without storing logits."""
    given = states.flatten(0, 1), layer.weight, layer.bias, tokens.flatten(), mask.flatten(), count
    total, nll = _NarrowLoss.apply(*given)  # type: ignore[no-untyped-call]
    return total, nll.view_as(tokens)


class _NarrowLoss(torch.autograd.Function):
    """The loss and the states' gradient; those of weights and bias are computed in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        there: Tensor,
        count: float | Tensor,
    ) -> tuple[Tensor, Tensor]:
        kind, device = compute_dtype(states), states.device
        s, w, b = states.to(kind).contiguous(), cast(weight, kind).contiguous(), bias.contiguous()
        share = 1 / (count if isinstance(count, Tensor) else torch.full((), float(count), device=device))
        with low_priority(device):
            nll, d_states, marks = losses(s, w, b, targets.contiguous(), there.bool().contiguous(), share)
        ctx.save_for_backward(s, w, b, share, marks, d_states)
        ctx.kinds = states.dtype, weight.dtype, bias.dtype
        ctx.mark_non_differentiable(nll)
        ctx.set_materialize_grads(False)  # avoids a zero gradient tensor for nll
        return (nll * there).sum() * share, nll

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        s, w, b, share, marks, d_states = ctx.saved_tensors
        states, weight, bias = ctx.kinds
        g = upstream[0]
        with low_priority(g.device):
            d_weight, d_bias = weight_gradients(s, w, b, share, marks, g)
        return (d_states * g).to(states), d_weight.to(weight), d_bias.to(bias), *(None,) * 3


def losses(
    states: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, there: Tensor, share: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses and the gradients of the states.

    Returns:
        −log softmax(W s + b)[target] of states [N, h] and weight [V, h]; its gradient for the states times `share`,
        0 where not `there`, in the states' dtype; and the marks that `weight_gradients` takes.
    """
    (rows, size), words = states.shape, len(weight)
    blocks, steps = triton.cdiv(rows, READ["ROWS"]), triton.cdiv(words, READ["WORDS"])
    parts = min(max(1, RESIDENT * multiprocessors(states.device) // blocks), MOST_PARTS, steps)
    room: dict[str, Any] = {"dtype": torch.float32, "device": states.device}
    tops, sums = torch.empty(2, parts, rows, **room)
    means = torch.empty(parts, rows, size, **room)
    kernel: Any = _over_words
    fixed = _fixed(size)
    kernel[(blocks, parts)](
        states, weight, bias, tops, sums, means, rows, words, triton.cdiv(steps, parts), **fixed, **READ
    )
    whole = triton.cdiv(rows, LEARN["ROWS"]) * LEARN["ROWS"]
    nll, d_states = torch.empty(rows, **room), torch.empty_like(states)
    marks = torch.empty(whole, dtype=torch.int64, device=states.device)
    kernel = _joined
    given = states, weight, bias, targets, there, share, tops, sums, means, nll, d_states, marks, rows, whole
    kernel[(triton.cdiv(whole, JOINED),)](*given, **fixed, PARTS=parts, ROWS=JOINED)
    return nll, d_states, marks


def weight_gradients(
    states: Tensor, weight: Tensor, bias: Tensor, share: Tensor, marks: Tensor, g: Tensor
) -> tuple[Tensor, Tensor]:
    """g·share times the gradients of all unmasked losses for weight and bias, in float32."""
    (rows, size), words = states.shape, len(weight)
    d_weight = torch.empty(words, size, dtype=torch.float32, device=weight.device)
    d_bias = torch.empty(words, dtype=torch.float32, device=weight.device)
    kernel: Any = _over_states
    given = states, weight, bias, marks, share, g, d_weight, d_bias, rows, words
    kernel[(triton.cdiv(words, LEARN["WORDS"]),)](*given, **_fixed(size), **LEARN, maxnreg=REGISTERS)
    return d_weight, d_bias


def _fixed(size: int) -> dict[str, int]:
    return {"SIZE": size, "BLOCK": max(16, triton.next_power_of_2(size))}  # minimum size of tl.dot


@triton.jit  # type: ignore[untyped-decorator]
def _over_words(  # type: ignore[no-untyped-def]
    states,
    weight,
    bias,
    tops,
    sums,
    means,
    rows,
    words,
    steps,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """One program per block of states and part of the words.

    Computes the largest logit (in base 2), the sum of exponentials relative to it, and the weighted sum of the words'
    weights.
    """
    row, k = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64), tl.arange(0, BLOCK)
    known = (row[:, None] < rows) & (k[None, :] < SIZE)
    s = tl.load(states + row[:, None] * SIZE + k[None, :], mask=known, other=0.0)
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mean = tl.zeros((ROWS, BLOCK), tl.float32)
    first = tl.program_id(1) * steps * WORDS
    for start in range(first, tl.minimum(first + steps * WORDS, words), WORDS):
        word = start + tl.arange(0, WORDS)
        within = (word[:, None] < words) & (k[None, :] < SIZE)
        w = tl.load(weight + word.to(tl.int64)[:, None] * SIZE + k[None, :], mask=within, other=0.0)
        b = tl.load(bias + word, mask=word < words, other=-float("inf")).to(tl.float32)
        x = tl.dot(s, tl.trans(w)) * LOG2E + (b * LOG2E)[None, :]
        higher = tl.maximum(top, tl.max(x, 1))
        p = tl.exp2(x - higher[:, None])
        less = tl.exp2(top - higher)
        total = total * less + tl.sum(p, 1)
        mean = tl.dot(p.to(w.dtype), w, mean * less[:, None])
        top = higher
    part = tl.program_id(1).to(tl.int64) * rows
    tl.store(tops + part + row, top, mask=row < rows)
    tl.store(sums + part + row, total, mask=row < rows)
    tl.store(means + (part + row[:, None]) * SIZE + k[None, :], mean, mask=known)


@triton.jit  # type: ignore[untyped-decorator]
def _joined(  # type: ignore[no-untyped-def]
    states,
    weight,
    bias,
    targets,
    there,
    share,
    tops,
    sums,
    means,
    nll,
    d_states,
    marks,
    rows,
    whole,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One program per block of states: combines the results of the parts of the vocabulary.

    A mark has log2 Σ exp(logit), as a float, in its upper and the target in its lower 32 bits; ∞ and −1 where masked.
    """
    row, k = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64), tl.arange(0, BLOCK)
    known, within = row < rows, (row[:, None] < rows) & (k[None, :] < SIZE)
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    for part in range(PARTS):
        top = tl.maximum(top, tl.load(tops + part * rows + row, mask=known, other=0.0))
    total = tl.zeros((ROWS,), tl.float32)
    mean = tl.zeros((ROWS, BLOCK), tl.float32)
    for part in range(PARTS):
        less = tl.exp2(tl.load(tops + part * rows + row, mask=known, other=0.0) - top)
        total += less * tl.load(sums + part * rows + row, mask=known, other=1.0)
        place = (part * rows + row[:, None]) * SIZE + k[None, :]
        mean += less[:, None] * tl.load(means + place, mask=within, other=0.0)
    target = tl.load(targets + row, mask=known, other=0)
    w = tl.load(weight + target[:, None] * SIZE + k[None, :], mask=within, other=0.0).to(tl.float32)
    s = tl.load(states + row[:, None] * SIZE + k[None, :], mask=within, other=0.0).to(tl.float32)
    chosen = tl.sum(s * w, 1) + tl.load(bias + target, mask=known, other=0.0).to(tl.float32)
    norm = top + tl.log2(total)
    tl.store(nll + row, norm / LOG2E - chosen, mask=known)
    counts = tl.load(there + row, mask=known, other=0).to(tl.int1)
    norm = tl.where(counts, norm, float("inf")).to(tl.int32, bitcast=True).to(tl.int64)
    tl.store(marks + row, (norm << 32) | tl.where(counts, target, 0xFFFFFFFF), mask=row < whole)
    d = tl.where(counts, tl.load(share), 0.0)[:, None] * (mean / total[:, None] - w)
    tl.store(d_states + row[:, None] * SIZE + k[None, :], d.to(d_states.dtype.element_ty), mask=within)


@triton.jit  # type: ignore[untyped-decorator]
def _over_states(  # type: ignore[no-untyped-def]
    states,
    weight,
    bias,
    marks,
    share,
    upstream,
    d_weight,
    d_bias,
    rows,
    words,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WORDS: tl.constexpr,
):
    """One program per block of words, which loops over all states."""
    word, k = tl.program_id(0) * WORDS + tl.arange(0, WORDS), tl.arange(0, BLOCK)
    within = (word[:, None] < words) & (k[None, :] < SIZE)
    place = word.to(tl.int64)[:, None] * SIZE + k[None, :]
    w = tl.load(weight + place, mask=within, other=0.0)
    b = tl.load(bias + word, mask=word < words, other=0.0).to(tl.float32) * LOG2E
    of_bias = tl.zeros((WORDS,), tl.float32)
    of_weight = tl.zeros((WORDS, BLOCK), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        there = (row[:, None] < rows) & (k[None, :] < SIZE)
        s = tl.load(states + row.to(tl.int64)[:, None] * SIZE + k[None, :], mask=there, other=0.0)
        mark = tl.load(marks + row)
        norm = (mark >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        d = tl.exp2(tl.dot(w, tl.trans(s)) * LOG2E + (b[:, None] - norm[None, :]))
        d = tl.where(word[:, None] == mark.to(tl.int32)[None, :], d - 1.0, d)
        of_bias += tl.sum(d, 1)
        of_weight = tl.dot(d.to(s.dtype), s, of_weight)
    g = tl.load(upstream) * tl.load(share)
    tl.store(d_weight + place, of_weight * g, mask=within)
    tl.store(d_bias + word, of_bias * g, mask=word < words)
