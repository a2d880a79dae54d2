"""The equations of the rivals' losses, each a pure function of logits and target distributions; losses are per event.

r = softmax(logits) [..., K]; target [..., K]: the label as it was stated, one-hot or a distribution.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-4  # 1 − ⟨r, target⟩ at least, as in the authors' code of early-learning regularisation


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−Σ_k target_k log r_k, [...]."""
    return -(target * torch.log_softmax(logits, dim=-1)).sum(-1)


def generalised_cross_entropy(logits: Tensor, target: Tensor, power: float) -> Tensor:
    """Σ_k target_k (1 − r_k^q)/q (Zhang and Sabuncu, 2018): cross-entropy as q → 0, absolute error at q = 1, [...].

    Args:
        logits: [..., K].
        target: [..., K].
        power: q, above 0 and at most 1.
    """
    return (target * -torch.expm1(power * torch.log_softmax(logits, dim=-1))).sum(-1) / power


def soft_bootstrap(logits: Tensor, target: Tensor, trust: float) -> Tensor:
    """−Σ_k (β target_k + (1−β) r_k) log r_k (Reed et al., 2015), with gradient through both r, [...].

    Args:
        logits: [..., K].
        target: [..., K].
        trust: β, the weight of the label against the model's own prediction.
    """
    log_r = torch.log_softmax(logits, dim=-1)
    return -((trust * target + (1 - trust) * log_r.exp()) * log_r).sum(-1)


def early_learning(logits: Tensor, target: Tensor, remembered: Tensor, weight: float | Tensor) -> Tensor:
    """Cross-entropy + λ log(1 − ⟨r, remembered⟩) (Liu et al., 2020), [...].

    The second term keeps the model at what it predicted early, before it fits wrong labels.

    Args:
        logits: [..., K].
        target: [..., K].
        remembered: Predictions of the past, a distribution without gradient [..., K].
        weight: λ.
    """
    agreement = (torch.softmax(logits, dim=-1) * remembered).sum(-1)
    return cross_entropy(logits, target) + weight * (1 - agreement).clamp_min(LEAST).log()


def forward_corrected(logits: Tensor, target: Tensor, confusion: Tensor) -> Tensor:
    """−Σ_y target_y log Σ_k r_k T_ky (Patrini et al., 2017), [...].

    Args:
        logits: [..., K].
        target: [..., K].
        confusion: T, the probability of the label y where the true frame is k, [K, K]; rows sum to 1.
    """
    stated = torch.softmax(logits, dim=-1) @ confusion
    return -(target * stated.clamp_min(1e-30).log()).sum(-1)


def small_losses(losses: Tensor, use: Tensor, share: Tensor) -> Tensor:
    """1 for this share of the events in use with the smallest losses, else 0 (Han et al., 2018).

    Args:
        losses: [...].
        use: 1 where an event has a label, else 0, [...].
        share: How many to keep, from 0 to 1; a tensor, so that a captured step can change it.
    """
    flat = torch.where(use.flatten() > 0, losses.detach().flatten(), float("inf"))
    rank = flat.argsort(stable=True).argsort(stable=True)
    kept = rank < torch.ceil(share * use.sum() - 1e-4)  # −1e-4: no further event by rounding
    return (kept.view_as(use) & (use > 0)).to(losses.dtype)


def pseudo_labels(logits: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """The most probable frame of each event, one-hot [..., K], and 1 where its probability reaches a threshold [...].

    Args:
        logits: [..., K].
        threshold: τ.
    """
    probability, frame = torch.softmax(logits.detach(), dim=-1).max(-1)
    onehot = torch.zeros_like(logits).scatter_(-1, frame.unsqueeze(-1), 1.0)
    return onehot, (probability >= threshold).to(logits.dtype)
