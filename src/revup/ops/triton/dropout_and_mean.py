"""Dropout and masked means, each in one kernel."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from revup.ops.triton.frame_losses import warps

AT_ONCE = 1024  # elements per program


def dropout(x: Tensor, uniform: Tensor, rate: float) -> Tensor:
    """x [B, T, d] set to 0 where the uniform numbers [B, T, d] are below the rate, and scaled up elsewhere."""
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


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of values [B, N, d] over the positions where the mask [B, N] holds, [B, d]; 0 where it never does."""
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
    """1 / number of unmasked positions."""
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
