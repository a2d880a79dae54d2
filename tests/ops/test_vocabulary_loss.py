"""The chunked loss over the vocabulary equals the plain one: float32, half precision, with and without gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from ops.cases import expected_gradient, gradient_case
from revup import ops
from revup.ops import chunked_loss

Case = tuple[Tensor, nn.Linear, Tensor, Tensor, Tensor]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def vocabulary_case(rows: int, words: int, size: int = 5) -> Case:
    """States, a layer, tokens, a mask and a count."""
    tokens, mask = torch.randint(words, (1, rows)), torch.rand(1, rows) < 0.8
    return torch.randn(1, rows, size), nn.Linear(size, words), tokens, mask, torch.tensor(0.7)


def loss_and_gradients(mode: str, case: Case, factor: float = 1.0) -> list[Tensor]:
    """The loss, each −log p, and the gradients of states, weight and bias."""
    states, layer, *rest = case
    layer.zero_grad()
    x = states.detach().clone().requires_grad_()
    with ops.using(mode):
        total, nll = ops.vocabulary_loss(x, layer, *rest)
    (total * factor).backward()
    gradients = [part.grad for part in (x, layer.weight, layer.bias)]
    return [total.detach(), nll, *(g.clone() for g in gradients if g is not None)]


@pytest.mark.parametrize("numbers", [1, 40, 100, 10**9])
def test_chunked_loss_equals_plain(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one row at a time (fewer numbers than words) to all at once."""
    monkeypatch.setattr(chunked_loss, "CPU_CHUNK", 4 * numbers)
    case = vocabulary_case(23, 11)
    plain, chunked = (loss_and_gradients(mode, case, factor=1.7) for mode in ("plain", "auto"))
    for expected, found in zip(plain, chunked, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 30), words=st.integers(1, 20), numbers=st.integers(1, 300), scale=st.floats(0.01, 20))
def test_chunked_loss_equals_plain_for_any_shape(rows: int, words: int, numbers: int, scale: float) -> None:
    states, *rest = vocabulary_case(rows, words)
    case = (states * scale, *rest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked_loss, "CPU_CHUNK", 4 * numbers)
        plain, chunked = (loss_and_gradients(mode, case) for mode in ("plain", "auto"))
    for expected, found in zip(plain, chunked, strict=True):
        assert (found - expected).norm() <= 1e-5 * expected.norm() + 1e-5


def test_chunked_loss_without_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_loss, "CPU_CHUNK", 120)
    case = vocabulary_case(23, 11)
    with torch.no_grad():
        for expected, found in zip(ops.vocabulary_loss.plain(*case), ops.vocabulary_loss(*case), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_chunked_loss_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss within 1%, gradients in the weights' own dtype."""
    monkeypatch.setattr(chunked_loss, "CPU_CHUNK", 100)
    case = vocabulary_case(40, 11)
    exact = loss_and_gradients("plain", case)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close = loss_and_gradients("auto", case)
    assert all(part.dtype == torch.float32 for part in close)
    for expected, found in zip(exact, close, strict=True):
        assert (found - expected).norm() <= 0.02 * expected.norm()


def test_masked_tokens_have_no_gradient() -> None:
    case = vocabulary_case(6, 5)
    case[3][0, 2] = False
    assert loss_and_gradients("auto", case)[2][0, 2].abs().sum() == 0


def test_plain_loss_is_the_mean_of_log_probabilities() -> None:
    layer, tokens, states = nn.Linear(5, 9), torch.randint(9, (2, 4)), torch.randn(2, 4, 5)
    total, nll = ops.vocabulary_loss.plain(states, layer, tokens, torch.ones(2, 4, dtype=torch.bool), 2.0)
    expected = -F.log_softmax(layer(states), -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(nll, expected.detach())
    torch.testing.assert_close(total, 0.5 * expected.sum())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_softmax_gradient_equals_autograd(kind: torch.dtype) -> None:
    logits, targets, scale = gradient_case(9, 33, kind)
    expected = expected_gradient(logits, targets, scale)
    found = chunked_loss.softmax_gradient.plain(logits.clone(), targets, scale)
    assert found[0].dtype == kind
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=1e-2 if kind == torch.bfloat16 else 1e-5, atol=1e-6)
