"""Whether there are kernels of our own (`revup.models.kernels`) for what a model is about to compute."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch


def kernels(device: torch.device) -> ModuleType | None:
    """On a GPU, where Triton is there, and unless torch compiles: then it makes its own."""
    return _triton() if device.type == "cuda" and not torch.compiler.is_compiling() else None


@cache
def _triton() -> ModuleType | None:
    try:
        from revup.models import kernels as found
    except ImportError:  # Triton comes with torch's builds for CUDA on Linux, not everywhere
        return None
    return found
