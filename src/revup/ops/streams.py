"""The CUDA streams of a training step.

A step that may be captured runs on `step_stream`, one for all runs of a process, since cuBLAS allocates memory per
stream. Long kernels run on a second stream of low priority, so that they do not delay the short kernels of other runs
on the same GPU. Outside such a step these functions do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


@cache
def step_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream on which steps run and are captured."""
    return torch.cuda.Stream(device, priority=-1)


@cache
def _low_priority(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=0)


def _in_step(device: torch.device) -> bool:
    return device.type == "cuda" and bool(torch.cuda.current_stream(device) == step_stream(device))


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """Run the kernels of this block on a low-priority stream until `joined()`."""
    if not _in_step(device):
        yield
        return
    _low_priority(device).wait_stream(step_stream(device))
    with torch.cuda.stream(_low_priority(device)):
        yield


def joined(device: torch.device) -> None:
    """Make subsequent kernels wait for those of the low-priority stream."""
    if _in_step(device):
        step_stream(device).wait_stream(_low_priority(device))


@contextmanager
def low_priority(device: torch.device) -> Iterator[None]:
    """Run the kernels of this block on a low-priority stream, and wait for them at its end."""
    with aside(device):
        yield
    joined(device)
