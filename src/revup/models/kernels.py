"""Triton kernels: what torch does in many passes over the device's memory, done in as few as there must be."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096  # logits of a row taken at a time


def softmax_gradient_fused(logits: Tensor, targets: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """scale·(softmax(logits) − onehot(target)) in place of the logits [n, V], and −log p of each target [n]."""
    rows, words = logits.shape
    nll = torch.empty(rows, dtype=torch.float32, device=logits.device)
    block = min(BLOCK, triton.next_power_of_2(words))
    kernel: Any = _softmax_gradient
    kernel[(rows,)](logits, targets, scale, nll, logits.stride(0), WORDS=words, BLOCK=block, num_warps=8)
    return logits, nll


@triton.jit  # type: ignore[untyped-decorator]
def _softmax_gradient(logits, targets, scale, nll, stride, WORDS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A row a program: its maximum and its sum of exp in one reading, the gradient in a second."""
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * stride
    target = tl.load(targets + row)
    chosen = tl.load(start + target).to(tl.float32)  # before anything is written
    share = tl.load(scale + row).to(tl.float32)
    top = -float("inf")
    total = 0.0
    for first in range(0, WORDS, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(start + at, mask=at < WORDS, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), 0)
        top = higher
    norm = top + tl.log(total)
    tl.store(nll + row, norm - chosen)
    for first in range(0, WORDS, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(start + at, mask=at < WORDS, other=-float("inf")).to(tl.float32)
        gradient = share * tl.exp(x - norm)
        gradient = tl.where(at == target, gradient - share, gradient)
        tl.store(start + at, gradient.to(logits.dtype.element_ty), mask=at < WORDS)
