"""Attention over a short memory, for one query (optionally with the concatenated memory in the output) or for many.

The memory has too few positions for a matrix product to be worth its launch.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from revup.ops.triton.frame_losses import warps


def in_rows(part: Tensor) -> Tensor:
    """The tensor with contiguous rows."""
    return part if part.stride(-1) == 1 else part.contiguous()


# ---- attention of one query ----------------------------------------------------------------------------------------


def look(
    asked: Tensor, memory: Tensor, mask: Tensor, query: Tensor, places: bool, kind: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Attention of one query, as input of the output layer.

    asked [B, d], memory [B, T, d], mask [B, T], query [B, q] → [context; query], or with `places`
    [context; memory; query], of dtype `kind`; and the weights [B, T], which have no gradient.
    """
    memory = in_rows(memory)
    found: tuple[Tensor, Tensor] = _Look.apply(  # type: ignore[no-untyped-call]
        asked.contiguous(), memory, mask.contiguous(), query.contiguous(), places, kind
    )
    return found


class _Look(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, asked: Tensor, memory: Tensor, mask: Tensor, query: Tensor, places: bool, kind: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        rows, count, size = memory.shape
        width = size * (1 + count * places) + query.shape[1]
        read = torch.empty(rows, width, dtype=kind, device=memory.device)
        weights = torch.empty(rows, count, dtype=torch.float32, device=memory.device)
        kernel: Any = _look_kernel
        kernel[(rows,)](
            asked, memory, mask, query, read, weights, *_strides(memory), **_look_shape(memory, query, places)
        )
        ctx.save_for_backward(asked, memory, mask, query, weights)
        ctx.places = places
        ctx.mark_non_differentiable(weights)
        ctx.set_materialize_grads(False)  # no zeros for the weights'
        return read, weights

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        asked, memory, mask, query, weights = ctx.saved_tensors
        d_asked, d_query = torch.empty_like(asked), torch.empty_like(query)
        d_memory = torch.empty(memory.shape, dtype=memory.dtype, device=memory.device)
        kernel: Any = _look_gradient
        kernel[(len(memory),)](
            *(asked, memory, mask, weights, upstream[0].contiguous(), d_asked, d_memory, d_query),
            *_strides(memory),
            **_look_shape(memory, query, ctx.places),
        )
        return d_asked, d_memory, None, d_query, None, None


def _strides(memory: Tensor) -> tuple[int, int, float]:
    return memory.stride(0), memory.stride(1), memory.shape[-1] ** -0.5


def _look_shape(memory: Tensor, query: Tensor, places: bool) -> dict[str, int]:
    _, count, size = memory.shape
    block = triton.next_power_of_2(size)
    return {
        **{"SIZE": size, "COUNT": count, "QUERY": query.shape[1], "PLACES": places, "BLOCK": block},
        **{"COUNT_BLOCK": triton.next_power_of_2(count), "QUERY_BLOCK": triton.next_power_of_2(query.shape[1])},
        "num_warps": warps(block),
    }


@triton.jit  # type: ignore[untyped-decorator]
def _look_kernel(  # type: ignore[no-untyped-def]
    asked,
    memory,
    mask,
    query,
    read,
    weights,
    row_stride,
    place_stride,
    scale,
    SIZE: tl.constexpr,
    COUNT: tl.constexpr,
    QUERY: tl.constexpr,
    PLACES: tl.constexpr,
    BLOCK: tl.constexpr,
    COUNT_BLOCK: tl.constexpr,
    QUERY_BLOCK: tl.constexpr,
):
    """One program per document: scores and their softmax in a first pass over the memory, the context in a second."""
    row = tl.program_id(0).to(tl.int64)
    at, place, q = tl.arange(0, BLOCK), tl.arange(0, COUNT_BLOCK), tl.arange(0, QUERY_BLOCK)
    there = at < SIZE
    start = memory + row * row_stride
    a = tl.load(asked + row * SIZE + at, mask=there, other=0.0).to(tl.float32)
    scores = tl.full((COUNT_BLOCK,), -float("inf"), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride + at, mask=there, other=0.0).to(tl.float32)
        score = tl.where(tl.load(mask + row * COUNT + t), tl.sum(a * h, 0) * scale, -1e9)
        scores = tl.where(place == t, score, scores)
    e = tl.exp(scores - tl.max(scores, 0))
    w = e / tl.sum(e, 0)
    tl.store(weights + row * COUNT + place, w, mask=place < COUNT)
    out = read + row * (SIZE * (1 + COUNT * PLACES) + QUERY)
    context = tl.zeros((BLOCK,), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride + at, mask=there, other=0.0)
        context += tl.sum(tl.where(place == t, w, 0.0), 0) * h.to(tl.float32)
        if PLACES:
            tl.store(out + (1 + t) * SIZE + at, h.to(read.dtype.element_ty), mask=there)
    tl.store(out + at, context.to(read.dtype.element_ty), mask=there)
    asking = tl.load(query + row * QUERY + q, mask=q < QUERY, other=0.0)
    tl.store(out + SIZE * (1 + COUNT * PLACES) + q, asking.to(read.dtype.element_ty), mask=q < QUERY)


@triton.jit  # type: ignore[untyped-decorator]
def _look_gradient(  # type: ignore[no-untyped-def]
    asked,
    memory,
    mask,
    weights,
    upstream,
    d_asked,
    d_memory,
    d_query,
    row_stride,
    place_stride,
    scale,
    SIZE: tl.constexpr,
    COUNT: tl.constexpr,
    QUERY: tl.constexpr,
    PLACES: tl.constexpr,
    BLOCK: tl.constexpr,
    COUNT_BLOCK: tl.constexpr,
    QUERY_BLOCK: tl.constexpr,
):
    """With g the context's gradient: dw_t = g·h_t, ds = w(dw − w·dw), da = Σ ds_t h_t, dh_t = ds_t a + w_t g."""
    row = tl.program_id(0).to(tl.int64)
    at, place, q = tl.arange(0, BLOCK), tl.arange(0, COUNT_BLOCK), tl.arange(0, QUERY_BLOCK)
    there = at < SIZE
    start = memory + row * row_stride
    given = upstream + row * (SIZE * (1 + COUNT * PLACES) + QUERY)
    g = tl.load(given + at, mask=there, other=0.0).to(tl.float32)
    w = tl.load(weights + row * COUNT + place, mask=place < COUNT, other=0.0)
    seen = tl.load(mask + row * COUNT + place, mask=place < COUNT, other=0)
    dw = tl.zeros((COUNT_BLOCK,), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride + at, mask=there, other=0.0).to(tl.float32)
        dw = tl.where(place == t, tl.sum(g * h, 0), dw)
    ds = tl.where(seen, w * (dw - tl.sum(w * dw, 0)) * scale, 0.0)
    a = tl.load(asked + row * SIZE + at, mask=there, other=0.0).to(tl.float32)
    da = tl.zeros((BLOCK,), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride + at, mask=there, other=0.0).to(tl.float32)
        ds_t = tl.sum(tl.where(place == t, ds, 0.0), 0)
        da += ds_t * h
        dh = ds_t * a + tl.sum(tl.where(place == t, w, 0.0), 0) * g
        if PLACES:
            dh += tl.load(given + (1 + t) * SIZE + at, mask=there, other=0.0).to(tl.float32)
        tl.store(d_memory + (row * COUNT + t) * SIZE + at, dh.to(d_memory.dtype.element_ty), mask=there)
    tl.store(d_asked + row * SIZE + at, da.to(d_asked.dtype.element_ty), mask=there)
    asking = tl.load(given + SIZE * (1 + COUNT * PLACES) + q, mask=q < QUERY, other=0.0)
    tl.store(d_query + row * QUERY + q, asking.to(d_query.dtype.element_ty), mask=q < QUERY)


# ---- attention of many queries -------------------------------------------------------------------------------------

QUERIES = 8  # per program, at most
NUMBERS = 8192  # elements of queries per program
PLACES = 8  # per program, for the gradient of the memory


def attend(
    asked: Tensor, memory: Tensor, mask: Tensor, query: Tensor, bias: Tensor | None, kind: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Attention of many queries, as input of the output layer.

    asked [B, Q, d], memory [B, T, d], mask [B, T], query [B, Q, q], bias [Q, T] of the scores → [context; query] of
    dtype `kind`; and the weights [B, Q, T], which have no gradient.
    """
    bias = None if bias is None else bias.float().contiguous()
    given = asked.contiguous(), in_rows(memory), mask.contiguous(), query.contiguous(), bias, kind
    found: tuple[Tensor, Tensor] = _Attend.apply(*given)  # type: ignore[no-untyped-call]
    return found


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        asked: Tensor,
        memory: Tensor,
        mask: Tensor,
        query: Tensor,
        bias: Tensor | None,
        kind: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        rows, queries, size = asked.shape
        width, count = query.shape[-1], memory.shape[1]
        read = torch.empty(rows, queries, size + width, dtype=kind, device=memory.device)
        weights = torch.empty(rows, queries, count, dtype=torch.float32, device=memory.device)
        kernel: Any = _attend_kernel
        shape = _attend_shape(asked, memory, query)
        kernel[(rows, triton.cdiv(queries, shape["ROWS"]))](
            *(asked, memory, mask, query, bias, read, weights, *_strides(memory)), **shape, BIAS=bias is not None
        )
        ctx.save_for_backward(asked, memory, mask, query, weights)
        ctx.biased = bias is not None
        ctx.mark_non_differentiable(weights)
        ctx.set_materialize_grads(False)  # no zeros for the weights'
        return read, weights

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        asked, memory, mask, query, weights = ctx.saved_tensors
        rows, queries, _ = asked.shape
        d_asked, d_query, d_scores = torch.empty_like(asked), torch.empty_like(query), torch.empty_like(weights)
        d_memory = torch.empty(memory.shape, dtype=memory.dtype, device=memory.device)
        d_read, shape = upstream[0].contiguous(), _attend_shape(asked, memory, query)
        kernel: Any = _attend_gradient
        kernel[(rows, triton.cdiv(queries, shape["ROWS"]))](
            *(memory, mask, weights, d_read, d_asked, d_query, d_scores, *_strides(memory)), **shape
        )
        kernel = _memory_gradient
        kernel[(rows, triton.cdiv(memory.shape[1], PLACES))](
            *(asked, weights, d_scores, d_read, d_memory, memory.shape[-1] ** -0.5), **shape, PLACES=PLACES
        )
        return d_asked, d_memory, None, d_query, d_scores.sum(0) if ctx.biased else None, None


def _attend_shape(asked: Tensor, memory: Tensor, query: Tensor) -> dict[str, int]:
    _, queries, size = asked.shape
    count, width = memory.shape[1], query.shape[-1]
    block = triton.next_power_of_2(size)
    rows = max(1, min(QUERIES, NUMBERS // block))
    return {
        **{"SIZE": size, "COUNT": count, "QUERIES": queries, "QUERY": width, "BLOCK": block, "ROWS": rows},
        **{"COUNT_BLOCK": triton.next_power_of_2(count), "QUERY_BLOCK": triton.next_power_of_2(width)},
        "num_warps": warps(block * rows // 4),
    }


@triton.jit  # type: ignore[untyped-decorator]
def _attend_kernel(  # type: ignore[no-untyped-def]
    asked,
    memory,
    mask,
    query,
    bias,
    read,
    weights,
    row_stride,
    place_stride,
    scale,
    SIZE: tl.constexpr,
    COUNT: tl.constexpr,
    QUERIES: tl.constexpr,
    QUERY: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COUNT_BLOCK: tl.constexpr,
    QUERY_BLOCK: tl.constexpr,
    BIAS: tl.constexpr,
):
    """One program per block of queries: scores and softmax in a first pass over the memory, the context in a second."""
    row, number = tl.program_id(0).to(tl.int64), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    at, place, q = tl.arange(0, BLOCK), tl.arange(0, COUNT_BLOCK), tl.arange(0, QUERY_BLOCK)
    there = (number[:, None] < QUERIES) & (at[None, :] < SIZE)
    own = row * QUERIES + number[:, None]
    a = tl.load(asked + own * SIZE + at[None, :], mask=there, other=0.0).to(tl.float32)
    start = memory + row * row_stride + at
    scores = tl.full((ROWS, COUNT_BLOCK), -float("inf"), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride, mask=at < SIZE, other=0.0).to(tl.float32)
        score = tl.sum(a * h[None, :], 1) * scale
        if BIAS:
            score += tl.load(bias + number * COUNT + t, mask=number < QUERIES, other=0.0)
        score = tl.where(tl.load(mask + row * COUNT + t), score, -1e9)
        scores = tl.where(place[None, :] == t, score[:, None], scores)
    e = tl.exp(scores - tl.max(scores, 1)[:, None])
    w = e / tl.sum(e, 1)[:, None]
    seen = (number[:, None] < QUERIES) & (place[None, :] < COUNT)
    tl.store(weights + own * COUNT + place[None, :], w, mask=seen)
    context = tl.zeros((ROWS, BLOCK), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride, mask=at < SIZE, other=0.0).to(tl.float32)
        context += tl.sum(tl.where(place[None, :] == t, w, 0.0), 1)[:, None] * h[None, :]
    out = read + own * (SIZE + QUERY)
    tl.store(out + at[None, :], context.to(read.dtype.element_ty), mask=there)
    there = (number[:, None] < QUERIES) & (q[None, :] < QUERY)
    asking = tl.load(query + own * QUERY + q[None, :], mask=there, other=0.0)
    tl.store(out + SIZE + q[None, :], asking.to(read.dtype.element_ty), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _attend_gradient(  # type: ignore[no-untyped-def]
    memory,
    mask,
    weights,
    upstream,
    d_asked,
    d_query,
    d_scores,
    row_stride,
    place_stride,
    scale,
    SIZE: tl.constexpr,
    COUNT: tl.constexpr,
    QUERIES: tl.constexpr,
    QUERY: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COUNT_BLOCK: tl.constexpr,
    QUERY_BLOCK: tl.constexpr,
):
    """With g the context's gradient: dw_t = g·h_t, ds = w(dw − w·dw), da = Σ ds_t h_t."""
    row, number = tl.program_id(0).to(tl.int64), tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    at, place, q = tl.arange(0, BLOCK), tl.arange(0, COUNT_BLOCK), tl.arange(0, QUERY_BLOCK)
    there = (number[:, None] < QUERIES) & (at[None, :] < SIZE)
    own = row * QUERIES + number[:, None]
    given = upstream + own * (SIZE + QUERY)
    g = tl.load(given + at[None, :], mask=there, other=0.0).to(tl.float32)
    start = memory + row * row_stride + at
    seen = (number[:, None] < QUERIES) & (place[None, :] < COUNT)
    w = tl.load(weights + own * COUNT + place[None, :], mask=seen, other=0.0)
    dw = tl.zeros((ROWS, COUNT_BLOCK), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride, mask=at < SIZE, other=0.0).to(tl.float32)
        dw = tl.where(place[None, :] == t, tl.sum(g * h[None, :], 1)[:, None], dw)
    exists = tl.load(mask + row * COUNT + place, mask=place < COUNT, other=0).to(tl.int1)
    ds = tl.where(exists[None, :], w * (dw - tl.sum(w * dw, 1)[:, None]), 0.0)
    tl.store(d_scores + own * COUNT + place[None, :], ds, mask=seen)
    da = tl.zeros((ROWS, BLOCK), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride, mask=at < SIZE, other=0.0).to(tl.float32)
        da += tl.sum(tl.where(place[None, :] == t, ds, 0.0), 1)[:, None] * h[None, :]
    tl.store(d_asked + own * SIZE + at[None, :], (da * scale).to(d_asked.dtype.element_ty), mask=there)
    there = (number[:, None] < QUERIES) & (q[None, :] < QUERY)
    asking = tl.load(given + SIZE + q[None, :], mask=there, other=0.0)
    tl.store(d_query + own * QUERY + q[None, :], asking.to(d_query.dtype.element_ty), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _memory_gradient(  # type: ignore[no-untyped-def]
    asked,
    weights,
    d_scores,
    upstream,
    d_memory,
    scale,
    SIZE: tl.constexpr,
    COUNT: tl.constexpr,
    QUERIES: tl.constexpr,
    QUERY: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COUNT_BLOCK: tl.constexpr,
    QUERY_BLOCK: tl.constexpr,
    PLACES: tl.constexpr,
):
    """One program per block of a document's positions: dh = Σ_q ds_q a_q + w_q g_q."""
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    place = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    total = tl.zeros((PLACES, BLOCK), tl.float32)
    for first in range(0, QUERIES, ROWS):
        for more in tl.static_range(ROWS):  # load all rows before the first is used
            own = row * QUERIES + first + more
            known = (place < COUNT) & (first + more < QUERIES)
            there = (at < SIZE) & (first + more < QUERIES)
            w = tl.load(weights + own * COUNT + place, mask=known, other=0.0)
            ds = tl.load(d_scores + own * COUNT + place, mask=known, other=0.0) * scale
            a = tl.load(asked + own * SIZE + at, mask=there, other=0.0).to(tl.float32)
            g = tl.load(upstream + own * (SIZE + QUERY) + at, mask=there, other=0.0).to(tl.float32)
            total += ds[:, None] * a[None, :] + w[:, None] * g[None, :]
    target = d_memory + (row * COUNT + place[:, None]) * SIZE + at[None, :]
    there = (place[:, None] < COUNT) & (at[None, :] < SIZE)
    tl.store(target, total.to(d_memory.dtype.element_ty), mask=there)
