"""The gradient of an embedding: the gradients of all lookups, summed per word."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from revup.ops.triton.frame_losses import warps

CHUNK = 64  # rows of a frequent word that one program sums
ROWS = 16  # loaded at once


def table_gradient(d: Tensor, which: Tensor, order: Tensor, words: int, left_out: int) -> Tensor:
    """The gradient [words, d] of a table from the gradients d [N, d] of its rows `which` [N]; zero for row `left_out`.

    order [N]: the indices that sort `which` stably, which makes the order of summation deterministic.
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
    """One program per position in the sort order; those at the start of a word or of a chunk sum rows.

    Each sums the word's rows up to the end of the chunk: into the word's gradient at the start of the word, else into
    a partial sum that `_join` adds.
    """
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
    """One program per chunk; the first chunk that continues a word adds its and the following chunks' partial sums."""
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
