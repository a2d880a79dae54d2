"""Fused draws of z and of frames equal the equations: values and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from revup import ops

B, K, D = 4, 7, 6


def test_gaussian_kl(agree: Callable[..., None]) -> None:
    mean, log_variance = (torch.randn(B, 3, D, requires_grad=True) for _ in range(2))
    agree(lambda: [ops.gaussian_kl(mean, log_variance)], [mean, log_variance])


def test_gaussian_sample(agree: Callable[..., None]) -> None:
    parameters = 4 * torch.randn(B, 2 * D)
    parameters[0, D], parameters[1, D] = -20.0, 9.0  # beyond what log σ² is clamped to
    noise = torch.randn(B, 3, D)
    agree(lambda: ops.gaussian_sample(parameters, noise[:, 1]), [parameters.requires_grad_()])


@pytest.mark.parametrize(
    ("hard", "mixed", "known", "with_prior"),
    list(itertools.product((False, True), (None, False, True), (False, True), (False, True))),
)
def test_draw_frame(agree: Callable[..., None], hard: bool, mixed: bool | None, known: bool, with_prior: bool) -> None:
    raw = (2 * torch.randn(B, K)).requires_grad_()
    prior = torch.randn(B, 3, K, requires_grad=True) if with_prior else None
    uniform = torch.rand(B, 3, K)
    uniform[0, 1, 0], uniform[0, 1, 1] = 0.0, 1.0 - 2.0**-24  # the ends of what can be drawn
    empirical = torch.zeros(B, 3, K).scatter_(-1, torch.randint(K, (B, 3, 1)), 1.0)
    empirical[1, 1] = torch.softmax(torch.randn(K), 0)
    observed = torch.tensor([1.0, 1.0, 1.0, 0.0]).unsqueeze(1).expand(B, 3)
    strength = torch.tensor([1.0, 1.0, float("inf"), float("inf")]).unsqueeze(1).expand(B, 3)
    keep = torch.tensor([0.4, 0.6, 0.1, 0.9]).unsqueeze(1).expand(B, 3)  # kept, not, not, kept
    belief = None
    if mixed is not None:  # likelihoods, everywhere or for some events
        belief = torch.tensor([0.0, 1.0, 0.0, 1.0]).unsqueeze(1).expand(B, 3) * float(mixed)
        empirical = torch.where(belief.unsqueeze(-1) > 0, empirical, 0.8 * empirical + 0.2 / K)
    knowledge = ops.Knowledge(empirical, observed, strength, belief).at(1) if known else None

    def draw() -> tuple[torch.Tensor, torch.Tensor]:
        log_prior = None if prior is None else prior[:, 1]
        return ops.draw_frame(raw, log_prior, uniform[:, 1], 0.5, hard, knowledge, keep[:, 1] if known else None)

    agree(draw, [raw] if prior is None else [raw, prior])
