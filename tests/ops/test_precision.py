"""bf16 is not recommended where the processor only emulates it."""

from __future__ import annotations

import warnings

import pytest
import torch

from revup.errors import RevupWarning
from revup.ops import precision
from revup.ops.precision import warn_if_slow

CPU = torch.device("cpu")


def test_emulated_bf16_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "_has_native_bf16", lambda: False)
    with pytest.warns(RevupWarning, match="emulates bf16"):
        warn_if_slow("bf16", CPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_slow("float32", CPU)
        warn_if_slow("bf16", torch.device("cuda"))
        monkeypatch.setattr(precision, "_has_native_bf16", lambda: True)
        warn_if_slow("bf16", CPU)


def test_support_of_bf16_can_be_asked() -> None:
    assert isinstance(precision._has_native_bf16(), bool)
