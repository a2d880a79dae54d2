"""The fused losses over the vocabulary equal the plain one: values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ops.cases import expected_gradient, gradient_case
from revup import ops
from revup.ops.triton import narrow_loss, softmax_gradient


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "words"), [(5, 33), (3, 64), (4, 300), (2, 1)])
def test_softmax_gradient(rows: int, words: int, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than a block of words, one, several, a single word."""
    monkeypatch.setitem(softmax_gradient.NARROW, "BLOCK", 64)
    logits, targets, scale = gradient_case(rows, words, kind)
    wide = torch.zeros(rows, words + 7, dtype=kind)  # rows need not lie side by side
    wide[:, :words] = logits
    gradient, nll = softmax_gradient.softmax_gradient(wide[:, :words], targets, scale)
    expected = expected_gradient(logits, targets, scale)
    tolerance = {"rtol": 1e-2 if kind == torch.bfloat16 else 1e-5, "atol": 1e-5}
    torch.testing.assert_close(gradient.float(), expected[0], **tolerance)
    torch.testing.assert_close(nll, expected[1], **tolerance)
    assert not wide[:, words:].any()


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
@pytest.mark.parametrize("as_tensor", [True, False])
@pytest.mark.parametrize(
    ("rows", "words", "size", "parts"),
    [(23, 11, 5, 1), (130, 300, 100, 3), (64, 64, 128, 8), (2, 1, 3, 8), (70, 200, 16, 2)],
)
def test_narrow_loss(
    rows: int, words: int, size: int, parts: int, kind: torch.dtype, as_tensor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than a block of states and words, several, exactly one, a single word, more parts than words."""
    monkeypatch.setattr(narrow_loss, "RESIDENT", 100)
    monkeypatch.setattr(narrow_loss, "MOST_PARTS", parts)
    layer = nn.Linear(size, words)
    states, targets, mask = torch.randn(1, rows, size), torch.randint(words, (1, rows)), torch.rand(1, rows) < 0.7
    states[0, 0] *= 30  # logits far from 0
    count = torch.tensor(7.0) if as_tensor else 7.0
    found: list[list[Tensor]] = []
    for narrow in (True, False):
        layer.zero_grad()
        x = states.clone().requires_grad_()
        if narrow:
            total, nll = narrow_loss.vocabulary_loss(x.to(kind), layer, targets, mask, count)
        else:
            total, nll = ops.vocabulary_loss.plain(x, layer, targets, mask, count)
        (total * 1.7).backward()
        gradients = [part.grad for part in (x, layer.weight, layer.bias) if part.grad is not None]
        found.append([total.detach(), nll, *gradients])
    tolerance = 1e-5 if kind == torch.float32 else 2e-3
    for a, b in zip(*found, strict=True):
        assert a.dtype == b.dtype
        assert (a - b).norm() <= tolerance * b.norm() + 1e-6


@pytest.mark.parametrize(
    ("size", "kind", "narrow"), [(128, torch.float16, True), (129, torch.float16, False), (128, torch.float32, False)]
)
def test_narrow_loss_applies_to_narrow_half_precision_states(size: int, kind: torch.dtype, narrow: bool) -> None:
    states, layer = torch.randn(1, 4, size).to(kind).requires_grad_(), nn.Linear(size, 6)
    tokens, mask = torch.arange(8)[::2].fmod(6).unsqueeze(0), torch.zeros(1, 4, dtype=torch.bool)
    with ops.using("fused"):
        total, nll = ops.vocabulary_loss(states, layer, tokens, mask)
    assert ("_NarrowLoss" in type(total.grad_fn).__name__) == narrow
    total.backward()
    for part in (total, states.grad, layer.weight.grad):
        assert part is not None
        assert not part.any()  # no token is there
    plain = ops.vocabulary_loss.plain(states.float(), layer, tokens, mask)[1]
    torch.testing.assert_close(nll, plain, rtol=2e-2, atol=2e-2)
