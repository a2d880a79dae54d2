"""Products of matrices with few rows, fused with bias and tanh.

cuBLAS kernels of this size wait until several multiprocessors are free at the same time, which takes long on a GPU
shared with other runs. The programs of these kernels are scheduled independently.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


def product(a: Tensor, b: Tensor, bias: Tensor | None = None, tanh: bool = False) -> Tensor:
    """a [m, k] · b [k, n] + bias [n], or its tanh, in their dtype."""
    out = torch.empty(len(a), b.shape[1], dtype=a.dtype, device=a.device)
    _launch(a, b, out, bias=bias, tanh=tanh)
    return out


def product_gradient(d: Tensor, y: Tensor | None, b: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of a · bᵀ, d·(1 − y²), and of a, from the gradient d of y = tanh(a · bᵀ); y = None: without tanh."""
    if y is None:
        return d, product(d, b)
    d_s, d_a = torch.empty_like(y), torch.empty(len(d), b.shape[1], dtype=y.dtype, device=d.device)
    _launch(d, b, d_a, y=y, d_x=d_s)
    return d_s, d_a


def _launch(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    bias: Tensor | None = None,
    tanh: bool = False,
    y: Tensor | None = None,
    d_x: Tensor | None = None,
) -> None:
    rows, depth = a.shape
    columns = b.shape[1]
    if a.stride(1) != 1:
        a = a.contiguous()
    if 1 not in b.stride():
        b = b.contiguous()
    across = b.stride(1) == 1  # rows of b are contiguous; otherwise its columns are
    b_stride = b.stride(0) if across else b.stride(1)
    aligned, b_aligned = _aligned(a.stride(0), depth), _aligned(b_stride, columns if across else depth)
    shape = _shape(rows, columns)
    kernel: Any = _product_kernel
    kernel[(triton.cdiv(rows, shape["ROWS"]), triton.cdiv(columns, shape["COLUMNS"]))](
        *(a, b, bias, out, y, d_x, rows, columns // (b_aligned if across else 1), depth // aligned),
        *(a.stride(0) // aligned, b_stride // b_aligned),
        **{"ACROSS": across, "ALIGNED": aligned, "B_ALIGNED": b_aligned, "BIAS": bias is not None, "TANH": tanh},
        **{"BACK": y is not None, **shape, "BLOCKS": triton.cdiv(depth, shape["DEPTH"])},
        **{"num_warps": 4, "num_stages": 3},
    )


def _shape(rows: int, columns: int) -> dict[str, int]:
    """The smallest block size whose number of blocks is within its limit."""
    for block, depth, most in ((16, 256, 132), (32, 128, 264)):
        if triton.cdiv(rows, block) * triton.cdiv(columns, block) <= most:
            return {"ROWS": block, "COLUMNS": block, "DEPTH": depth}
    return {"ROWS": 64, "COLUMNS": 64, "DEPTH": 64}


def _aligned(*numbers: int) -> int:
    """The largest power of two up to 16 that divides them all."""
    return next(power for power in (16, 8, 4, 2, 1) if all(number % power == 0 for number in numbers))


@triton.jit  # type: ignore[untyped-decorator]
def _product_kernel(  # type: ignore[no-untyped-def]
    a,
    b,
    bias,
    out,
    y,
    d_x,
    rows,
    columns,
    depth,
    a_stride,
    b_stride,
    ACROSS: tl.constexpr,
    ALIGNED: tl.constexpr,
    B_ALIGNED: tl.constexpr,
    BIAS: tl.constexpr,
    TANH: tl.constexpr,
    BACK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """One program per block of the product. Sizes are passed divided by their alignment, known at compile time."""
    depth, a_stride, b_stride = depth * ALIGNED, a_stride * ALIGNED, b_stride * B_ALIGNED
    columns = columns * B_ALIGNED if ACROSS else columns
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for block in range(BLOCKS):
        k = block * DEPTH + tl.arange(0, DEPTH)
        there = (row < rows) & (k[None, :] < depth)
        x = tl.load(a + row * a_stride + k[None, :], mask=there, other=0.0)
        if BACK:
            of_y = tl.load(y + row * depth + k[None, :], mask=there, other=0.0).to(tl.float32)
            x = (x.to(tl.float32) * (1.0 - of_y * of_y)).to(d_x.dtype.element_ty)
            tl.store(d_x + row * depth + k[None, :], x, mask=there & (tl.program_id(1) == 0))
        place = k[:, None] * b_stride + column if ACROSS else k[:, None] + column * b_stride
        w = tl.load(b + place, mask=(k[:, None] < depth) & (column < columns), other=0.0)
        total = tl.dot(x, w, total)
    if BIAS:
        total += tl.load(bias + column, mask=column < columns, other=0.0).to(tl.float32)
    if TANH:
        total = 2.0 * tl.sigmoid(2.0 * total) - 1.0
    tl.store(out + row * columns + column, total.to(out.dtype.element_ty), mask=(row < rows) & (column < columns))
