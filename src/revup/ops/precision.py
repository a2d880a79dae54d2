"""Precision: the dtype of matrix products, and products that accumulate in float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

from revup.errors import RevupError

PRECISIONS = ("float32", "bf16")
ALIGNED = 8  # a GPU multiplies 16-bit matrices fastest where rows are a multiple of this


def check_precision(name: str, setting: str = "precision") -> None:
    if name not in PRECISIONS:
        raise RevupError(f"{setting}: expected {' or '.join(PRECISIONS)}, found '{name}'")


def precision(name: str, device: torch.device) -> AbstractContextManager[Any]:
    """bf16 arithmetic with float32 weights, or plain float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if name == "bf16" else nullcontext()


def compute_dtype(values: Tensor) -> torch.dtype:
    """The dtype of products with these values: autocast's dtype, or their own."""
    device = values.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else values.dtype


def exact_product(a: Tensor, b: Tensor) -> Tensor:
    """The product of matrices [m, k] and [k, n], or of batches of them, accumulated and returned in float32."""
    if a.dtype == torch.float32:
        return a @ b
    if not a.is_cuda:
        return a.float() @ b.float()
    return (torch.mm if a.dim() == 2 else torch.bmm)(a, b, out_dtype=torch.float32)


def sum_of_rows(rows: Tensor) -> Tensor:
    """rows [N, d] → [d], in float32; on a GPU a product with ones, four times as fast as a sum over rows."""
    if not rows.is_cuda:
        return rows.sum(0, dtype=torch.float32)
    return torch.mm(_ones(len(rows), rows.dtype, rows.device), rows, out_dtype=torch.float32).squeeze(0)


@cache
def _ones(count: int, kind: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(1, count, dtype=kind, device=device)
