"""Cases that several tests of operations share."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def gradient_case(rows: int, words: int, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of all sizes (one row far from 0), targets and scales (one of them 0)."""
    logits = torch.randn(rows, words) * 5
    logits[0] += 300
    scale = torch.rand(rows)
    scale[-1] = 0
    return logits.to(kind), torch.randint(words, (rows,)), scale


def expected_gradient(logits: Tensor, targets: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """By autograd in float64: the gradient of Σ scale·nll in the logits, and the nll."""
    exact = logits.double().requires_grad_()
    nll = F.cross_entropy(exact, targets, reduction="none")
    (gradient,) = torch.autograd.grad((nll * scale.double()).sum(), exact)
    return gradient.float(), nll.detach().float()
