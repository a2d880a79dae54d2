"""The loss over the vocabulary: chunked, fused and in half precision, each against all logits at once in float32."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from revup.ops import fused
from revup.ops import vocabulary_loss as vocabulary
from revup.ops.vocabulary_loss import _Sums, _TogetherSums, softmax_gradient_in_steps, token_loss, vocabulary_loss


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def loss_and_gradients(kind: str, *given: Tensor, factor: float = 1.0) -> list[Tensor]:
    """The loss, its tokens' −log p, and the gradients of states, weight and bias."""
    states, weight, bias = (part.detach().clone().requires_grad_() for part in given[:3])
    total, nll = vocabulary_loss(states, weight, bias, *given[3:], implementation=kind)
    (total * factor).backward()
    assert states.grad is not None
    assert weight.grad is not None
    assert bias.grad is not None
    return [total.detach(), nll, states.grad, weight.grad, bias.grad]


def vocabulary_case(rows: int, words: int, size: int = 5) -> tuple[Tensor, ...]:
    """Of so many states and words, some of which are not there; and a count."""
    targets, there = torch.randint(words, (rows,)), torch.rand(rows) < 0.8
    return torch.randn(rows, size), torch.randn(words, size), torch.randn(words), targets, there, torch.tensor(0.7)


@pytest.mark.parametrize("numbers", [1, 40, 100, 10**9])
def test_chunked_loss_equals_plain(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one row at a time (fewer numbers than words) to all at once."""
    monkeypatch.setattr(vocabulary, "CPU_CHUNK", 4 * numbers)
    case = vocabulary_case(23, 11)
    plain, chunked = (loss_and_gradients(kind, *case, factor=1.7) for kind in ("plain", "chunked"))
    for expected, found in zip(plain, chunked, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_words_that_fill_a_row_up_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "FILLED_UP", {"cpu": 8})
    monkeypatch.setattr(vocabulary, "CPU_CHUNK", 4 * 16 * 5)
    for words in (7, 8, 9):
        case = vocabulary_case(23, words)
        plain, padded = (loss_and_gradients(kind, *case, factor=1.7) for kind in ("plain", "chunked"))
        for expected, found in zip(plain, padded, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 30), words=st.integers(1, 20), numbers=st.integers(1, 300), scale=st.floats(0.01, 20))
def test_chunked_loss_equals_plain_whatever_the_shape(rows: int, words: int, numbers: int, scale: float) -> None:
    states, *rest = vocabulary_case(rows, words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "CPU_CHUNK", 4 * numbers)
        plain, chunked = (loss_and_gradients(kind, states * scale, *rest) for kind in ("plain", "chunked"))
    for expected, found in zip(plain, chunked, strict=True):
        assert (found - expected).norm() <= 1e-5 * expected.norm() + 1e-5


def test_chunked_loss_without_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "CPU_CHUNK", 120)
    case = vocabulary_case(23, 11)
    with torch.no_grad():
        for expected, found in zip(vocabulary_loss(*case, implementation="plain"), vocabulary_loss(*case), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_chunked_loss_under_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half precision halves nothing but the digits: loss within 1%, gradients of the weights' own type."""
    monkeypatch.setattr(vocabulary, "CPU_CHUNK", 100)
    case = vocabulary_case(40, 11)
    exact = loss_and_gradients("plain", *case)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close = loss_and_gradients("chunked", *case)
    assert all(part.dtype == torch.float32 for part in close)
    for expected, found in zip(exact, close, strict=True):
        assert (found - expected).norm() <= 0.02 * expected.norm()


def test_a_token_that_counts_nothing_gives_no_gradient() -> None:
    case = vocabulary_case(6, 5)
    case[4][2] = False
    assert loss_and_gradients("chunked", *case)[2][2].abs().sum() == 0


def test_token_loss_is_of_each_token() -> None:
    linear, tokens, states = nn.Linear(5, 9), torch.randint(9, (2, 4)), torch.randn(2, 4, 5)
    total, nll = token_loss(states, linear, tokens, torch.ones(2, 4, dtype=torch.bool), 2.0)
    expected = -F.log_softmax(linear(states), -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(nll, expected)
    torch.testing.assert_close(total, 0.5 * expected.sum())


# ---- the pass over the logits --------------------------------------------------------------------------------


def gradient_case(rows: int, words: int, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of all sizes, one row far from 0, one that counts nothing."""
    logits = torch.randn(rows, words) * 5
    logits[0] += 300
    scale = torch.rand(rows)
    scale[-1] = 0
    return logits.to(kind), torch.randint(words, (rows,)), scale


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_gradient_in_steps_is_autograd_s(kind: torch.dtype) -> None:
    logits, targets, scale = gradient_case(9, 33, kind)
    expected = _expected(logits, targets, scale)
    found = softmax_gradient_in_steps(logits.clone(), targets, scale)
    assert found[0].dtype == kind
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=1e-2 if kind == torch.bfloat16 else 1e-5, atol=1e-6)


def _expected(logits: Tensor, targets: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    exact = logits.double().requires_grad_()
    nll = F.cross_entropy(exact, targets, reduction="none")
    (gradient,) = torch.autograd.grad((nll * scale.double()).sum(), exact)
    return gradient.float(), nll.detach().float()


def test_without_triton_or_a_gpu_the_gradient_is_taken_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert vocabulary.softmax_gradient(torch.device("cpu")) is softmax_gradient_in_steps
    monkeypatch.setattr("revup.ops.fused._triton", lambda: None)
    assert vocabulary.softmax_gradient(torch.device("cuda")) is softmax_gradient_in_steps


def test_where_triton_does_not_work_it_says_so_once_and_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*_: Tensor) -> None:
        raise RuntimeError("Failed to find C compiler")

    on_cpu = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *shape, device: on_cpu(*shape))
    monkeypatch.setattr(torch, "zeros", lambda *shape, dtype, device: on_cpu(*shape, dtype=dtype))
    with pytest.warns(UserWarning, match="Triton does not work here.*C compiler"):
        assert not fused._works(SimpleNamespace(softmax_gradient_fused=no_compiler))  # type: ignore[arg-type]
    assert fused._works(SimpleNamespace(softmax_gradient_fused=lambda *_: None))  # type: ignore[arg-type]


def test_gradients_of_weights_and_bias_in_one_product_are_those_of_two() -> None:
    """As on a GPU: a column of ones beside the states, chunk after chunk."""
    generator = torch.Generator().manual_seed(5)
    states, weight = torch.randn(30, 6, generator=generator), torch.randn(11, 6, generator=generator)
    d_logits = torch.randn(30, 11, generator=generator)
    apart, together = _Sums(weight, states), _TogetherSums(weight, states)
    for part in (slice(0, 13), slice(13, 26), slice(26, 39)):
        apart.add(d_logits[part], part)
        together.add(d_logits[part], part)
    torch.testing.assert_close(together.weight, apart.weight)
    torch.testing.assert_close(together.bias, apart.bias)
    torch.testing.assert_close(apart.weight, d_logits.t() @ states)
    torch.testing.assert_close(apart.bias, d_logits.sum(0))
