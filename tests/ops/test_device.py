"""The choice of a device."""

from __future__ import annotations

import pytest
import torch

from revup.errors import RevupError
from revup.ops.device import choose_device


def test_device_names() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(RevupError, match="device: expected cpu or cuda, found 'toaster'"):
        choose_device("toaster")
    if not torch.cuda.is_available():
        assert choose_device() == torch.device("cpu")
        with pytest.raises(RevupError, match="torch sees no CUDA device"):
            choose_device("cuda")


def test_warning_for_a_part_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    before = torch.get_float32_matmul_precision()
    try:
        assert choose_device("cuda").type == "cuda"  # no warning: one is an error here
        monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "30")
        with pytest.warns(UserWarning, match="wrong products"):
            choose_device("cuda")
    finally:
        torch.set_float32_matmul_precision(before)
