"""The device that revup computes on."""

from __future__ import annotations

import os
import warnings

import torch

from revup.errors import RevupError, RevupWarning
from revup.ops.dispatch import all_plain

PART_OF_A_GPU = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def choose_device(name: str | None = None) -> torch.device:
    """The requested device, or the best available one; each of several processes gets its own GPU.

    On a GPU float32 products use tensor cores (TF32), unless operations are plain.
    """
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RevupError(f"device: expected cpu or cuda, found '{name}'") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RevupError("device: cuda was asked for, but torch sees no CUDA device here")
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", device.index or 0)))
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("highest" if all_plain() else "high")
        if os.environ.get(PART_OF_A_GPU, "100") != "100":
            what = "with a part of a GPU's multiprocessors cuBLAS has given wrong products; better leave it out"
            warnings.warn(f"{PART_OF_A_GPU} is set: {what} (docs/benchmarks.md)", RevupWarning, stacklevel=2)
    return device


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
