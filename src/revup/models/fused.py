"""Whether there are kernels of our own (`revup.models.kernels`) for what a model is about to compute, and what in."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch
from torch import Tensor


def kernels(device: torch.device) -> ModuleType | None:
    """On a GPU, where Triton is there, and unless torch compiles: then it makes its own.

    A kernel runs on the device that is current, so another one's tensors take torch's own way.
    """
    if device.type != "cuda" or torch.compiler.is_compiling():
        return None
    return _triton() if device.index is None or device.index == torch.cuda.current_device() else None


@cache
def _triton() -> ModuleType | None:
    try:
        from revup.models import kernels as found
    except ImportError:  # Triton comes with torch's builds for CUDA on Linux, not everywhere
        return None
    return found


def compute_dtype(states: Tensor, otherwise: torch.dtype | None = None) -> torch.dtype:
    """What products with these are computed in: autocast's, or their own (or another that is told)."""
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else otherwise or states.dtype
