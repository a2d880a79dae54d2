"""Fused losses on distributions over frames equal the equations: values and gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from revup import ops

B, M, K = 3, 2, 7


@pytest.mark.parametrize(
    ("kind", "mixed", "with_prior", "strength"),
    list(itertools.product(("update", "classification"), (None, False, True), (True, False), (1.0, 2.5, float("inf")))),
)
def test_frame_losses(
    agree: Callable[..., None], kind: str, mixed: bool | None, with_prior: bool, strength: float
) -> None:
    logits = 3 * torch.randn(B, M, K)
    logits[2, 1, :3] = -60.0  # nearly ruled out
    prior = (2 * torch.randn(B, M, K)).requires_grad_() if with_prior else None
    observed = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    empirical = torch.zeros(B, M, K).scatter_(-1, torch.randint(K, (B, M, 1)), 1.0)
    empirical[1, 0] = torch.softmax(torch.randn(K), 0)
    empirical *= observed.unsqueeze(-1)
    belief = None if mixed is None else torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]) * float(mixed)
    if belief is not None:  # likelihoods: a label that is wrong at a rate, and candidates
        likely = 0.8 * empirical + 0.2 / K
        likely[1, 1] = torch.tensor([1.0, 0.0, 0.0, 0.5, 0.0, 0.0, 0.0])
        empirical = torch.where(belief.unsqueeze(-1) > 0, empirical, likely) * observed.unsqueeze(-1)
    knowledge = ops.Knowledge(empirical, observed, torch.full((B, M), strength), belief)
    logits.requires_grad_()
    inputs = [logits] if prior is None else [logits, prior]

    def losses() -> ops.FrameLosses:
        return ops.frame_losses(kind, logits, prior, knowledge)

    agree(losses, inputs, rtol=2e-4, atol=2e-6)
    for number in range(3 if with_prior else 2):  # each alone: the others have no gradient
        agree(lambda n=number: [losses()[n]], inputs, rtol=2e-4, atol=2e-6)
