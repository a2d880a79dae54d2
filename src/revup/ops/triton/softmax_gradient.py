"""The gradient of the softmax over the vocabulary in two passes over the logits."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# BLOCK: logits of a row loaded at once; resident: rows per multiprocessor at a time, few enough that the second pass
# over a row hits the cache (narrow rows need no limit)
NARROW = {"BLOCK": 4096, "num_warps": 16}
WIDE = {"BLOCK": 32768, "num_warps": 32, "resident": 1}
WIDE_FROM = 2**16  # words
TOGETHER = 8  # logits that share a running maximum in the first pass


def softmax_gradient(logits: Tensor, targets: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """scale·(softmax(logits) − onehot(target)) in place of the logits [n, V], and −log p of each target [n]."""
    rows, words = logits.shape
    nll = torch.empty(rows, dtype=torch.float32, device=logits.device)
    shape = dict(NARROW if words < WIDE_FROM else WIDE)
    shape["BLOCK"] = min(shape["BLOCK"], triton.next_power_of_2(words))
    programs = min(rows, shape.pop("resident", rows) * multiprocessors(logits.device))
    given = logits, targets, scale, nll, logits.stride(0), rows, programs
    kernel: Any = _softmax_gradient_kernel
    kernel[(programs,)](*given, WORDS=words, TOGETHER=min(TOGETHER, shape["BLOCK"]), **shape)
    return logits, nll


@cache
def multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


@triton.jit  # type: ignore[untyped-decorator]
def _softmax_gradient_kernel(  # type: ignore[no-untyped-def]
    logits,
    targets,
    scale,
    nll,
    stride,
    rows,
    programs,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """For each row: maximum and sum of exponentials in a first pass, the gradient in a second."""
    row = tl.program_id(0).to(tl.int64)
    while row < rows:
        start = logits + row * stride
        target = tl.load(targets + row)
        chosen = tl.load(start + target).to(tl.float32)  # load before the logits are overwritten
        share = tl.load(scale + row).to(tl.float32)
        tops = tl.full((BLOCK // TOGETHER,), -1e30, tl.float32)  # not −∞, which gives NaN in fully masked lanes
        sums = tl.zeros((BLOCK // TOGETHER,), tl.float32)
        for first in range(0, WORDS, BLOCK):
            at = first + tl.arange(0, BLOCK // TOGETHER)[:, None] * TOGETHER + tl.arange(0, TOGETHER)[None, :]
            x = tl.load(start + at, mask=at < WORDS, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(tops, tl.max(x, 1))
            sums = sums * tl.exp(tops - higher) + tl.sum(tl.exp(x - higher[:, None]), 1)
            tops = higher
        top = tl.max(tops, 0)
        norm = top + tl.log(tl.sum(sums * tl.exp(tops - top), 0))
        tl.store(nll + row, norm - chosen)
        for first in range(0, WORDS, BLOCK):
            at = first + tl.arange(0, BLOCK)
            x = tl.load(start + at, mask=at < WORDS, other=-float("inf")).to(tl.float32)
            gradient = share * tl.exp(x - norm)
            gradient = tl.where(at == target, gradient - share, gradient)
            tl.store(start + at, gradient.to(logits.dtype.element_ty), mask=at < WORDS)
        row += programs
