"""Gather a batch from rows in device memory, in one launch."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

SOURCES = 8


def gather_rows(
    which: Tensor, sources: list[Tensor], places: list[Tensor], counts: Tensor, numbers: list[Tensor]
) -> None:
    """`ops.gather_rows` of eight sources and two counts."""
    sizes = [source[0].numel() for source in sources]
    kernel: Any = _gather_kernel
    kernel[(len(which),)](
        *(which, *sources, *places, counts, *numbers, *sizes), BLOCK=triton.next_power_of_2(max(sizes)), num_warps=1
    )


@triton.jit  # type: ignore[untyped-decorator]
def _row(source, place, old, new, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    there = at < size
    tl.store(place + new * size + at, tl.load(source + old * size + at, mask=there, other=0), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _gather_kernel(  # type: ignore[no-untyped-def]
    which,
    a,
    b,
    c,
    d,
    e,
    f,
    g,
    h,
    to_a,
    to_b,
    to_c,
    to_d,
    to_e,
    to_f,
    to_g,
    to_h,
    counts,
    events,
    observed_events,
    a_size,
    b_size,
    c_size,
    d_size,
    e_size,
    f_size,
    g_size,
    h_size,
    BLOCK: tl.constexpr,
):
    """One program per document."""
    new = tl.program_id(0).to(tl.int64)
    old = tl.load(which + new)
    _row(a, to_a, old, new, a_size, BLOCK)
    _row(b, to_b, old, new, b_size, BLOCK)
    _row(c, to_c, old, new, c_size, BLOCK)
    _row(d, to_d, old, new, d_size, BLOCK)
    _row(e, to_e, old, new, e_size, BLOCK)
    _row(f, to_f, old, new, f_size, BLOCK)
    _row(g, to_g, old, new, g_size, BLOCK)
    _row(h, to_h, old, new, h_size, BLOCK)
    if new == 0:
        tl.store(events, tl.load(counts))
        tl.store(observed_events, tl.load(counts + 1))
