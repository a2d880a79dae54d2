"""Words on their way in: the gradient of what was looked up, numbers left out at random, means over places."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from revup.ops.triton.frames import warps

AT_ONCE = 1024  # numbers of a program

# ---- what is read --------------------------------------------------------------------------------------------------


def read_fused(
    tokens: Tensor,
    mask: Tensor,
    words: int,
    specials: tuple[int, int],
    lost: Tensor | None,
    rate: float,
    bare: Tensor | None,
    has: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """`revup.models.layers.Reader` up to its lookups: tokens [B, T], mask [B, M] → which words are read, [B, T]; and
    with `has`, which vectors, and whether they are read in place of a word.

    specials: <unk>, and how many words are never lost; lost, bare: U[0,1) numbers [B, T].
    """
    tokens = tokens.contiguous()
    known, row, as_given = torch.empty_like(tokens), None, None
    if has is not None:
        row, as_given = torch.empty_like(tokens), torch.empty_like(tokens, dtype=torch.bool)
    kernel: Any = _read
    count, (unknown, special) = tokens.numel(), specials
    kernel[(triton.cdiv(count, AT_ONCE),)](
        *(tokens, mask.contiguous(), lost, bare, has, known, row, as_given, count, rate),
        **{"WORDS": words, "UNKNOWN": unknown, "SPECIAL": special, "TOKENS": tokens.shape[1] // mask.shape[1]},
        BLOCK=AT_ONCE,
    )
    return known, row, as_given


@triton.jit  # type: ignore[untyped-decorator]
def _read(  # type: ignore[no-untyped-def]
    tokens,
    mask,
    lost,
    bare,
    has,
    known,
    row,
    as_given,
    count,
    rate,
    WORDS: tl.constexpr,
    UNKNOWN: tl.constexpr,
    SPECIAL: tl.constexpr,
    TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    exists = tl.load(mask + at // TOKENS, mask=there, other=0).to(tl.int1)
    token = tl.where(exists, tl.load(tokens + at, mask=there, other=0), 0)
    further = token >= 2 * WORDS
    word = tl.where(further, UNKNOWN, token % WORDS)
    drops = token < 0  # never
    if lost is not None:
        drops = (tl.load(lost + at, mask=there, other=1.0) < rate) & (token >= SPECIAL)
    if has is not None:
        vector = tl.where(further, token - WORDS, word)
        keeps = token < 0
        if bare is not None:
            keeps = drops & (tl.load(bare + at, mask=there, other=1.0) < 0.5)
            keeps = keeps & tl.load(has + vector, mask=there, other=0).to(tl.int1)
        tl.store(row + at, vector, mask=there)
        tl.store(as_given + at, (further & (drops == 0)) | keeps, mask=there)
        drops = drops & (keeps == 0)
    tl.store(known + at, tl.where(drops, UNKNOWN, word), mask=there)


# ---- the gradient of a table ---------------------------------------------------------------------------------------

CHUNK = 64  # rows of a frequent word that are added up by one program
ROWS = 16  # at a time


def table_gradient_fused(d: Tensor, which: Tensor, order: Tensor, words: int, left_out: int) -> Tensor:
    """d [N, d] of rows `which` [N] of a table → its gradient [words, d]; the row left out has none.

    order [N]: where equal words stand side by side, in the order they came in: so the same rows give the same sum.
    """
    d, count = d.contiguous(), len(which)
    gradient = torch.zeros(words, d.shape[1], dtype=torch.float32, device=d.device)
    chunks, block = triton.cdiv(count, CHUNK), triton.next_power_of_2(d.shape[1])
    parts = torch.empty(chunks, d.shape[1], dtype=torch.float32, device=d.device)
    shape = {"SIZE": d.shape[1], "LEFT_OUT": left_out, "CHUNK": CHUNK, "ROWS": ROWS, "BLOCK": block}
    shape["num_warps"] = warps(block * ROWS // 4)
    kernel: Any = _add_up
    kernel[(count,)](d, which, order, gradient, parts, count, **shape)
    kernel = _join
    kernel[(chunks,)](which, order, gradient, parts, count, **shape)
    return gradient


@triton.jit
def _word(which, order, place):  # type: ignore[no-untyped-def]
    return tl.load(which + tl.load(order + tl.maximum(place, 0)))


@triton.jit  # type: ignore[untyped-decorator]
def _add_up(  # type: ignore[no-untyped-def]
    d,
    which,
    order,
    gradient,
    parts,
    count,
    SIZE: tl.constexpr,
    LEFT_OUT: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A place in that order a program. The first of a word or of a chunk adds up the word's rows to the chunk's end:
    the gradient of the word so far, or a part of it that is still to be joined."""
    place = tl.program_id(0)
    word, chunk = _word(which, order, place), place // CHUNK
    first = (place == 0) | (_word(which, order, place - 1) != word)
    works = (word != LEFT_OUT) & (first | (place % CHUNK == 0))
    end = tl.where(works, tl.minimum((chunk + 1) * CHUNK, count), place)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    while place < end:
        near = place + tl.arange(0, ROWS)
        row = tl.load(order + near, mask=near < end, other=0)
        mine = (near < end) & (tl.load(which + row) == word)
        part = tl.load(d + row[:, None] * SIZE + at[None, :], mask=mine[:, None] & (at[None, :] < SIZE), other=0.0)
        total += tl.sum(part.to(tl.float32), 0)
        place += ROWS
        end = tl.where(tl.sum(mine.to(tl.int32), 0) == ROWS, end, place)
    target = tl.where(first, gradient + word * SIZE, parts + chunk.to(tl.int64) * SIZE)
    tl.store(target + at, total, mask=works & (at < SIZE))


@triton.jit  # type: ignore[untyped-decorator]
def _join(  # type: ignore[no-untyped-def]
    which,
    order,
    gradient,
    parts,
    count,
    SIZE: tl.constexpr,
    LEFT_OUT: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A chunk a program. Where it is the first that goes on with a word, its part and those after it are added."""
    chunk = tl.program_id(0)
    place = chunk * CHUNK
    word = _word(which, order, place)
    goes_on = (chunk > 0) & (_word(which, order, place - 1) == word) & (word != LEFT_OUT)
    went_on = (chunk > 1) & (_word(which, order, place - CHUNK - 1) == word)
    works = goes_on & (not went_on)
    end = tl.where(works, count, place)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    while place < end:
        near = place + CHUNK * tl.arange(0, ROWS)
        row = tl.load(order + near, mask=near < count, other=0)
        mine = (near < count) & (tl.load(which + row) == word)
        part = parts + (near // CHUNK).to(tl.int64)[:, None] * SIZE + at[None, :]
        total += tl.sum(tl.load(part, mask=mine[:, None] & (at[None, :] < SIZE), other=0.0), 0)
        place += CHUNK * ROWS
        end = tl.where(tl.sum(mine.to(tl.int32), 0) == ROWS, end, place)
    target = gradient + word * SIZE + at
    total += tl.load(target, mask=works & (at < SIZE), other=0.0)
    tl.store(target, total, mask=works & (at < SIZE))


# ---- numbers left out ----------------------------------------------------------------------------------------------


def dropout_fused(x: Tensor, uniform: Tensor, rate: float) -> Tensor:
    """x [B, T, d], 0 where the uniform numbers [B, T, d] are below the rate, and the rest scaled up."""
    dropped: Tensor = _Dropout.apply(x, uniform.contiguous(), rate)  # type: ignore[no-untyped-call]
    return dropped


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, uniform: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(uniform)
        ctx.rate = rate
        return _dropped(x, uniform, rate)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (uniform,) = ctx.saved_tensors
        return _dropped(upstream[0], uniform, ctx.rate), None, None


def _dropped(x: Tensor, uniform: Tensor, rate: float) -> Tensor:
    _, places, size = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    kernel: Any = _drop
    kernel[(triton.cdiv(x.numel(), AT_ONCE),)](
        *(x, uniform, out, *x.stride(), rate, 1 / (1 - rate), x.numel()),
        **{"PLACES": places, "SIZE": size, "BLOCK": AT_ONCE},
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _drop(  # type: ignore[no-untyped-def]
    x,
    uniform,
    out,
    row_stride,
    place_stride,
    stride,
    rate,
    scale,
    total,
    PLACES: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < total
    row, place, column = at // (PLACES * SIZE), at // SIZE % PLACES, at % SIZE
    value = tl.load(x + row * row_stride + place * place_stride + column * stride, mask=there, other=0.0)
    kept = tl.load(uniform + at, mask=there, other=0.0) >= rate
    tl.store(out + at, tl.where(kept, value.to(tl.float32) * scale, 0.0).to(out.dtype.element_ty), mask=there)


# ---- means ---------------------------------------------------------------------------------------------------------


def mean_fused(values: Tensor, mask: Tensor) -> Tensor:
    """values [B, N, d] → their mean over the places that exist, mask [B, N] → [B, d]; 0 where none does."""
    mean: Tensor = _Mean.apply(values, mask.contiguous())  # type: ignore[no-untyped-call]
    return mean


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, mask: Tensor) -> Tensor:
        count, places, size = values.shape
        mean = torch.empty(count, size, dtype=values.dtype, device=values.device)
        kernel: Any = _mean
        kernel[(count,)](values, mask, mean, *values.stride(), **_mean_shape(places, size))
        ctx.save_for_backward(mask)
        return mean

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        d = upstream[0].contiguous()
        (count, size), places = d.shape, mask.shape[1]
        d_values = torch.empty(count, places, size, dtype=d.dtype, device=d.device)
        kernel: Any = _mean_gradient
        kernel[(count,)](d, mask, d_values, **_mean_shape(places, size))
        return d_values, None


def _mean_shape(places: int, size: int) -> dict[str, int]:
    block = triton.next_power_of_2(size)
    return {"PLACES": places, "SIZE": size, "BLOCK": block, "num_warps": warps(block)}


@triton.jit  # type: ignore[untyped-decorator]
def _share(mask, row, PLACES: tl.constexpr):  # type: ignore[no-untyped-def]
    """One of how many places."""
    found = 0.0
    for place in range(PLACES):
        found += tl.load(mask + row * PLACES + place).to(tl.float32)
    return 1.0 / tl.maximum(found, 1.0)


@triton.jit  # type: ignore[untyped-decorator]
def _mean(  # type: ignore[no-untyped-def]
    values, mask, mean, row_stride, place_stride, stride, PLACES: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for place in range(PLACES):
        there = (at < SIZE) & tl.load(mask + row * PLACES + place).to(tl.int1)
        value = tl.load(values + row * row_stride + place * place_stride + at * stride, mask=there, other=0.0)
        total += value.to(tl.float32)
    total = total * _share(mask, row, PLACES)
    tl.store(mean + row * SIZE + at, total.to(mean.dtype.element_ty), mask=at < SIZE)


@triton.jit  # type: ignore[untyped-decorator]
def _mean_gradient(d, mask, d_values, PLACES: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    g = tl.load(d + row * SIZE + at, mask=at < SIZE, other=0.0).to(tl.float32) * _share(mask, row, PLACES)
    for place in range(PLACES):
        there = tl.load(mask + row * PLACES + place).to(tl.float32)
        tl.store(
            d_values + (row * PLACES + place) * SIZE + at, (g * there).to(d_values.dtype.element_ty), mask=at < SIZE
        )
