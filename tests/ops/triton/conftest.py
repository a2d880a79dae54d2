"""Kernels run in Triton's interpreter, which needs no GPU (tests/conftest.py chooses it before Triton is imported)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from revup import ops

Compute = Callable[[], Sequence[Tensor]]

if find_spec("triton") is None:
    collect_ignore_glob = ["*"]


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("Triton was imported without its interpreter")
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def with_index(tensor: Any, scope: Any) -> None:  # the interpreter takes a loop's bounds by int(), numpy refuses
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(interpreter, "_patch_lang_tensor", with_index)
        yield


@pytest.fixture
def agree() -> Callable[..., None]:
    """Checks that an operation's fused version gives the values and gradients of its plain body."""

    def check(compute: Compute, inputs: Sequence[Tensor], rtol: float = 1e-4, atol: float = 1e-5) -> None:
        found: list[list[Tensor]] = []
        for mode in ("plain", "fused"):
            with ops.using(mode):
                values = [value for value in compute() if value is not None]
                generator = torch.Generator().manual_seed(1)
                weighted = [(v.float() * torch.randn(v.shape, generator=generator)).sum() for v in values]
                total = torch.stack([w for w in weighted if w.requires_grad]).sum()
                gradients = torch.autograd.grad(total, list(inputs), allow_unused=True)
            found.append([*values, *(torch.zeros(()) if g is None or not g.any() else g for g in gradients)])
        for plain, fused in zip(*found, strict=True):
            torch.testing.assert_close(fused, plain, rtol=rtol, atol=atol)

    return check
