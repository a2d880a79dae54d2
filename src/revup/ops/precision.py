"""Precision: the dtype of matrix products, and products that accumulate in float32."""

from __future__ import annotations

import platform
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

from revup.errors import RevupError, RevupWarning

PRECISIONS = ("float32", "bf16")
ALIGNED = 8  # a GPU multiplies 16-bit matrices fastest where rows are a multiple of this


def check_precision(name: str, setting: str = "precision") -> None:
    if name not in PRECISIONS:
        raise RevupError(f"{setting}: expected {' or '.join(PRECISIONS)}, found '{name}'")


def warn_if_slow(name: str, device: torch.device) -> None:
    """Warn where bf16 was asked for on a processor that only emulates it."""
    if name == "bf16" and device.type == "cpu" and not _has_native_bf16():
        message = "this processor emulates bf16 and is several times slower with it: float32 is the better choice here"
        warnings.warn(message, RevupWarning, stacklevel=3)


def _has_native_bf16() -> bool:
    """Whether the processor multiplies bf16 matrices itself; true where torch can't tell."""
    asked = [getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")]
    known = [ask for ask in asked if ask is not None]
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return not x86 or not known or any(ask() for ask in known)


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
