"""The CUDA streams of a training step.

A step that may be captured runs on `step_stream`, one for all runs of a process: cuBLAS keeps memory for each stream.
Long launches go to a second one of low priority, so that where several runs share a GPU the short launches of one are
not kept waiting by the long ones of another. Outside such a step all of this does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


@cache
def step_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream that steps are taken and captured on."""
    return torch.cuda.Stream(device, priority=-1)


@cache
def _low_priority(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=0)


def _in_step(device: torch.device) -> bool:
    return device.type == "cuda" and bool(torch.cuda.current_stream(device) == step_stream(device))


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """What is launched within this block runs on a low-priority stream until `joined()`."""
    if not _in_step(device):
        yield
        return
    _low_priority(device).wait_stream(step_stream(device))
    with torch.cuda.stream(_low_priority(device)):
        yield


def joined(device: torch.device) -> None:
    """What is launched after this waits for what runs aside."""
    if _in_step(device):
        step_stream(device).wait_stream(_low_priority(device))


@contextmanager
def low_priority(device: torch.device) -> Iterator[None]:
    """What is launched within this block lets other runs' launches go first, and is waited for."""
    with aside(device):
        yield
    joined(device)
