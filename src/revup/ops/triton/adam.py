"""A step of Adam for one large tensor."""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

AT_ONCE = 1024  # elements per program


def adam(
    parameter: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, Tensor],
    step: Tensor,
    rate: Tensor,
    scale: Tensor,
    overflow: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """One step, as in `torch.optim.Adam`.

    step: number of previous steps. Gradients are divided by the scale; if `overflow` ≠ 0, nothing is changed.
    """
    count, more = parameter.numel(), [1 - beta for beta in betas]
    kernel: Any = _adam_kernel
    numbers = *more, *map(math.log, betas), eps, count
    given = parameter, gradient, *moments, step, rate, scale, overflow, *numbers
    kernel[(triton.cdiv(count, AT_ONCE),)](*given, BLOCK=AT_ONCE)


@triton.jit  # type: ignore[untyped-decorator]
def _adam_kernel(  # type: ignore[no-untyped-def]
    parameter,
    gradient,
    first,
    second,
    step,
    rate,
    scale,
    found_inf,
    more1,
    more2,
    log1,
    log2,
    eps,
    count,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < tl.where(tl.load(found_inf) == 0.0, count, 0)
    t = (tl.load(step) + 1.0).to(tl.float64)
    g = tl.load(gradient + at, mask=there, other=0.0) / tl.load(scale)
    m = tl.load(first + at, mask=there, other=0.0)
    v = tl.load(second + at, mask=there, other=0.0)
    p = tl.load(parameter + at, mask=there, other=0.0)
    m += more1 * (g - m)
    v += more2 * (g * g - v)
    size = tl.load(rate) / (1.0 - tl.exp(t * log1)).to(tl.float32)
    spread = tl.sqrt(v) / tl.sqrt((1.0 - tl.exp(t * log2)).to(tl.float32)) + eps
    tl.store(first + at, m, mask=there)
    tl.store(second + at, v, mask=there)
    tl.store(parameter + at, p - size * m / spread, mask=there)
