"""Dispatch of operations to their plain body or to a faster version.

An `Operation` is called like the function it was made from, whose body is the equation. Faster versions register with a
predicate over the same arguments; the latest whose predicate holds runs instead. `using("plain")` is the only switch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

Given = ParamSpec("Given")
Result = TypeVar("Result")

OPERATIONS: dict[str, Operation[..., Any]] = {}
MODES = ("auto", "plain", "fused")
_mode: tuple[str, frozenset[str]] = ("auto", frozenset())  # global: torch runs backward passes in its own threads


class Operation(Generic[Given, Result]):
    """A function with registered faster versions."""

    def __init__(self, plain: Callable[Given, Result]) -> None:
        self.plain, self.name = plain, plain.__name__
        self.versions: list[tuple[Callable[Given, bool], Callable[Given, Result]]] = []
        update_wrapper(self, plain)
        OPERATIONS[self.name] = self

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        mode, names = _mode
        if mode != "plain" or (names and self.name not in names):
            load_fused()
            for applies, version in self.versions:
                if applies(*args, **kwargs):
                    return version(*args, **kwargs)
        return self.plain(*args, **kwargs)

    def register(self, applies: Callable[Given, bool]) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
        """Decorator that registers a version for arguments where `applies` holds; the latest is tried first."""

        def add(version: Callable[Given, Result]) -> Callable[Given, Result]:
            self.versions.insert(0, (applies, version))
            return version

        return add


@contextmanager
def using(mode: str, *names: str) -> Iterator[None]:
    """Choose implementations within a block.

    Args:
        mode: "plain": every operation runs its plain body; "auto": faster versions where they apply (the default);
            "fused": the same on a CPU too, where Triton's interpreter runs the kernels (for tests).
        names: with "plain", only these operations run their plain body.
    """
    global _mode
    if mode not in MODES or not set(names) <= OPERATIONS.keys():
        raise ValueError(f"expected one of {', '.join(MODES)} and names of operations, found {(mode, *names)}")
    before, _mode = _mode, (mode, frozenset(names))
    try:
        yield
    finally:
        _mode = before


def all_plain() -> bool:
    """Whether every operation runs its plain body now."""
    return _mode == ("plain", frozenset())


def fusable(values: Tensor) -> bool:
    """Whether Triton kernels can process these tensors: on the current NVIDIA GPU, or in Triton's interpreter."""
    if not values.is_cuda:
        return _mode[0] == "fused"
    return torch.version.hip is None and values.device.index == torch.cuda.current_device() and _triton_works()


def load_fused() -> None:
    """Register the Triton versions on first use, since importing Triton takes a second."""
    if torch.cuda.is_initialized() or _mode[0] == "fused":
        _register_fused()


@cache
def _register_fused() -> None:
    try:
        import revup.ops.triton  # noqa: F401
    except ImportError:  # Triton comes with torch's CUDA builds for Linux, not everywhere
        _triton_works.cache_clear()


@cache
def _triton_works() -> bool:
    """Whether Triton can compile and run a kernel on this machine; it needs a C compiler, for example."""
    try:
        from revup.ops.triton.softmax_gradient import softmax_gradient

        one = torch.ones(1, 8, device="cuda")
        softmax_gradient(one, torch.zeros(1, dtype=torch.long, device="cuda"), one[:, 0])
    except Exception as error:  # fall back to torch's own operations on any error
        warnings.warn(f"Triton does not work here, steps take longer without it: {error}", stacklevel=2)
        return False
    return True
