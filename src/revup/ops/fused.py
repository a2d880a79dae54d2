"""Whether there are kernels of our own (`revup.ops.triton`) for what a model is about to compute, and what in; on
which streams it is launched; products that add up in float32."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor


def kernels(device: torch.device) -> ModuleType | None:
    """On an NVIDIA GPU, where Triton is there, and unless torch compiles: then it makes its own.

    A kernel runs on the device that is current, so another one's tensors take torch's own way.
    """
    if device.type != "cuda" or torch.version.hip is not None or torch.compiler.is_compiling():
        return None
    return _triton() if device.index is None or device.index == torch.cuda.current_device() else None


@cache
def _triton() -> ModuleType | None:
    try:
        from revup.ops import triton as found
    except ImportError:  # Triton comes with torch's builds for CUDA on Linux, not everywhere
        return None
    return found if _works(found) else None


def _works(found: ModuleType) -> bool:
    """Whether Triton can make and run a kernel here: it needs a C compiler, for one."""
    one = torch.ones(1, 8, device="cuda")
    try:
        found.softmax_gradient_fused(one, torch.zeros(1, dtype=torch.long, device="cuda"), one[:, 0])
    except Exception as error:  # whatever it is: torch's own way is slower, and there
        warnings.warn(f"Triton does not work here, steps take longer without it: {error}", stacklevel=2)
        return False
    return True


@cache
def captured_stream(device: torch.device) -> Any:
    """What steps that are captured are taken on, of all runs of a process: cuBLAS keeps memory for each stream."""
    return torch.cuda.Stream(device, priority=-1)


@cache
def _low_priority(device: torch.device) -> Any:
    return torch.cuda.Stream(device, priority=0)


def _steps(device: torch.device) -> bool:
    """Whether launches are those of a step to be captured."""
    return device.type == "cuda" and bool(torch.cuda.current_stream(device) == captured_stream(device))


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """What is launched within this, in a step to be captured, goes on beside what comes after it, until that
    is `joined`, or something else gave way."""
    if not _steps(device):
        yield
        return
    _low_priority(device).wait_stream(captured_stream(device))
    with torch.cuda.stream(_low_priority(device)):
        yield


def joined(device: torch.device) -> None:
    """What comes after this waits for what is aside."""
    if _steps(device):
        captured_stream(device).wait_stream(_low_priority(device))


@contextmanager
def giving_way(device: torch.device) -> Iterator[None]:
    """What is launched within this, in a step to be captured, lets other launches on the GPU go first.

    Where several runs share it, the short ones of one run are not kept waiting by the long ones of another.
    """
    with aside(device):
        yield
    joined(device)


def compute_dtype(states: Tensor) -> torch.dtype:
    """What products with these are computed in: autocast's, or their own."""
    device = states.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype


ALIGNED = 8  # numbers of a row are a multiple of that where a GPU multiplies 16-bit matrices as fast as it can


def exact_product(a: Tensor, b: Tensor) -> Tensor:
    """Of matrices [m, k] and [k, n], or of as many pairs of them: in float32, whatever the factors are."""
    if a.dtype == torch.float32:
        return a @ b
    if not a.is_cuda:
        return a.float() @ b.float()
    return (torch.mm if a.dim() == 2 else torch.bmm)(a, b, out_dtype=torch.float32)


def sum_of_rows(rows: Tensor) -> Tensor:
    """rows [N, d] → [d], in float32. On a GPU a product with ones: a sum down the columns takes four times as long."""
    if not rows.is_cuda:
        return rows.sum(0, dtype=torch.float32)
    return torch.mm(_ones(len(rows), rows.dtype, rows.device), rows, out_dtype=torch.float32).squeeze(0)


@cache
def _ones(count: int, kind: torch.dtype, device: torch.device) -> Tensor:
    return torch.ones(1, count, dtype=kind, device=device)
