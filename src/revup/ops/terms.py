"""The divergences between distributions of frames that losses are made of, all of an event's together.

    update           KL(revised ‖ r)                         what RevUp's proposal learns from what was seen
    classification   −E_{y~p_D} log Σ_k r_k·p(y|k)           what SSDVAE's learns from it
    uniform          KL(r ‖ uniform)
    anchor           KL(r ‖ prior)                           staying near the counts

with r = softmax(logits). `revup.bottleneck` has them one by one; on a GPU one kernel takes all of them, and another one
their gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from revup import bottleneck
from revup.ops.fused import kernels


class Divergences(NamedTuple):
    """Per event, [B, M]."""

    learned: Tensor  # the update, or the classification
    uniform: Tensor
    anchor: Tensor | None  # None without a prior


def divergences(
    learned: str,
    logits: Tensor,
    log_prior: Tensor | None,
    empirical: Tensor,
    observed: Tensor,
    strength: Tensor,
    noise_rate: Tensor | None,
) -> Divergences:
    """logits, log_prior and p_D [B, M, K]; l and λ [B, M]; noise_rate: at which what is seen is wrong (None: never).

    learned: "update", of a revision by what is believed of p_D, or "classification", which knows no λ.
    """
    if (found := kernels(logits.device)) is not None:
        given = learned, logits, log_prior, empirical, observed, strength, noise_rate
        first, uniform, anchor = found.divergences_fused(*given)
        return Divergences(first, uniform, anchor if log_prior is not None else None)
    if learned == "classification":
        rate = 0.0 if noise_rate is None else noise_rate
        first = bottleneck.noisy_label_loss(logits, empirical, observed, rate)
    else:
        first = bottleneck.update_loss(logits, believed(logits, empirical, noise_rate), observed, strength)
    anchor = None if log_prior is None else bottleneck.categorical_kl(logits, log_prior)
    return Divergences(first, bottleneck.uniform_kl(logits), anchor)


def believed(logits: Tensor, empirical: Tensor, noise_rate: Tensor | None) -> Tensor:
    """p_D as it is believed, given what is proposed."""
    if noise_rate is None:
        return empirical
    return bottleneck.believed(torch.softmax(logits.detach(), dim=-1), empirical, noise_rate)


Part = tuple[float | Tensor, Tensor]  # what a term weighs, and its values [B, M]


def weighted(total: Tensor, parts: dict[str, Part], there: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """total + Σ weight·(Σ values·there) over parts, and each inner sum (detached), there [B, M]."""
    weights, values = [weight for weight, _ in parts.values()], [value for _, value in parts.values()]
    found = kernels(there.device)
    if found is not None and all(isinstance(weight, float) for weight in weights):
        together, sums = found.weighted_fused(values, weights, there)
        return total + together, dict(zip(parts, sums.unbind(0), strict=True))
    terms = {name: (value * there).sum() for name, (_, value) in parts.items()}
    for weight, term in zip(weights, terms.values(), strict=True):
        total = total + weight * term
    return total, {name: term.detach() for name, term in terms.items()}
