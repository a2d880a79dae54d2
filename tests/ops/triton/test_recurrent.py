"""The fused GRU equals torch's: states and every gradient."""

from __future__ import annotations

import pytest
import torch

from revup.ops.triton import recurrent

SMALL = {"ROWS": 16, "UNITS": 16, "DEPTH": 16, "num_warps": 4, "num_stages": 1}


@pytest.mark.parametrize("walked", [128, 0], ids=["one kernel", "a kernel a step"])
@pytest.mark.parametrize(
    ("texts", "length", "inputs", "size", "layers", "both", "started"),
    [
        (5, 3, 7, 10, 2, True, False),
        (18, 4, 8, 16, 2, False, True),  # more texts than a program takes
        (3, 2, 5, 20, 1, True, True),  # more units
        (1, 1, 3, 4, 1, False, False),
    ],
)
def test_gru(
    texts: int,
    length: int,
    inputs: int,
    size: int,
    layers: int,
    both: bool,
    started: bool,
    walked: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recurrent, "WALKED", walked)
    for name in ("step_shape", "step_back_shape"):
        monkeypatch.setattr(recurrent, name, lambda texts: SMALL)
    gru = torch.nn.GRU(inputs, size, layers, bidirectional=both, batch_first=True)
    x = torch.randn(texts, length, inputs, requires_grad=True)
    start = torch.randn(layers * (1 + both), texts, size, requires_grad=True) if started else None
    upstream = torch.randn(texts, length, size * (1 + both))
    plain, fused = gru(x, start)[0], recurrent.gru(x, start, gru.all_weights, both, torch.float32)
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)
    learned = [x, *gru.parameters(), *([] if start is None else [start])]
    wanted, found = (torch.autograd.grad((y * upstream).sum(), learned) for y in (plain, fused))
    for one, two in zip(wanted, found, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
    half = recurrent.gru(x, start, gru.all_weights, both, torch.float16)
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), plain, rtol=1e-2, atol=1e-2)
