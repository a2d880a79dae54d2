"""Gather a batch from rows in device memory, in one launch."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor


def gather_rows(
    which: Tensor, sources: list[Tensor], places: list[Tensor], counts: Tensor, numbers: list[Tensor]
) -> None:
    """`ops.gather_rows` of any number of sources and counts."""
    used = [(source, place) for source, place in zip(sources, places, strict=True) if source[0].numel()]
    sizes = tuple(source[0].numel() for source, _ in used)
    kernel: Any = _gather_kernel
    kernel[(len(which),)](
        *(which, tuple(source for source, _ in used), tuple(place for _, place in used), counts, tuple(numbers), sizes),
        BLOCK=triton.next_power_of_2(max(sizes)),
        num_warps=1,
    )


@triton.jit  # type: ignore[untyped-decorator]
def _gather_kernel(which, sources, places, counts, numbers, sizes, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program per document."""
    new = tl.program_id(0).to(tl.int64)
    old = tl.load(which + new)
    at = tl.arange(0, BLOCK)
    for part in tl.static_range(len(sources)):
        size = sizes[part]
        there = at < size
        row = tl.load(sources[part] + old * size + at, mask=there, other=0)
        tl.store(places[part] + new * size + at, row, mask=there)
    if new == 0:
        for count in tl.static_range(len(numbers)):
            tl.store(numbers[count], tl.load(counts + count))
