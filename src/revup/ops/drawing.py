"""The draws of a chain of latents, event by event: z of its Gaussian, t of what is proposed or known.

`revup.bottleneck` has the equations one by one; on a GPU each draw has a kernel, and so has its gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from revup import bottleneck
from revup.ops.fused import compute_dtype, kernels

LOG_VARIANCES = (-12.0, 6.0)  # what log σ² is kept within


def gaussian_sample(parameters: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """parameters [B, 2d], noise [B, d] → μ, log σ², z = μ + σ·noise (μ itself without noise)."""
    if noise is not None and (found := kernels(parameters.device)) is not None:
        kind = compute_dtype(parameters)
        return found.gaussian_sample_fused(parameters, noise, LOG_VARIANCES, kind)  # type: ignore[no-any-return]
    mean, log_variance = parameters.float().chunk(2, dim=-1)
    log_variance = log_variance.clamp(*LOG_VARIANCES)
    return mean, log_variance, mean if noise is None else mean + torch.exp(0.5 * log_variance) * noise


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ,σ²) ‖ N(0,I)) of [..., d] → [...]."""
    if (found := kernels(mean.device)) is not None:
        return found.gaussian_kl_fused(mean, log_variance)  # type: ignore[no-any-return]
    return bottleneck.gaussian_kl(mean, log_variance)


class Knowledge(NamedTuple):
    """What is known of a batch's frames."""

    empirical: Tensor  # p_D [B, M, K]
    observed: Tensor  # l [B, M]
    strength: Tensor  # λ [B, M]
    chance: Tensor  # U[0,1) [B, M]: below λ̂ the proposal is kept


class Drawing:
    """How the frames of a batch are drawn, by Gumbel-softmax.

    uniform [B, M, K]: U[0,1) noise. Where there is knowledge, the proposal is kept all the same with probability λ̂.
    Elsewhere, with a noise_rate, t is drawn of what is believed of p_D given the proposal, with its gradient; without
    one, of p_D itself.
    """

    def __init__(
        self,
        uniform: Tensor,
        temperature: float,
        hard: bool,
        knowledge: Knowledge | None = None,
        noise_rate: Tensor | None = None,
    ) -> None:
        self.uniform, self.temperature, self.hard = uniform, temperature, hard
        self.knowledge, self.noise_rate = knowledge, noise_rate
        self.kernels = kernels(uniform.device)
        self.kept: Tensor | None = None
        self.known: Tensor | None = None
        self.explained: Tensor | None = None
        if self.kernels is not None:
            return
        self.gumbel = bottleneck.gumbel_from_uniform(uniform)
        if knowledge is not None:  # all that does not depend on the chain
            self.kept = knowledge.chance < bottleneck.keep_probability(knowledge.observed, knowledge.strength)
            if noise_rate is None:
                self.known = bottleneck.categorical_sample(knowledge.empirical, self.gumbel)
            else:
                explained = bottleneck.log_likelihood(knowledge.empirical, noise_rate)
                self.explained = explained.masked_fill(self.kept.unsqueeze(-1), 0.0)

    def __call__(self, raw: Tensor, prior: Tensor | None, i: int) -> tuple[Tensor, Tensor]:
        """Of event i: its logits, raw + prior, and the frame drawn of them, [B, K]."""
        if self.kernels is not None:
            knowledge = None if self.knowledge is None else Knowledge(*(part[:, i] for part in self.knowledge))
            settings = (self.noise_rate, self.temperature, self.hard, compute_dtype(raw))
            return self.kernels.draw_fused(raw, prior, self.uniform[:, i], knowledge, *settings)  # type: ignore[no-any-return]
        logits = raw.float() if prior is None else raw.float() + prior
        told = logits if self.explained is None else logits + self.explained[:, i]
        frames = bottleneck.gumbel_softmax(told, self.gumbel[:, i], self.temperature, self.hard)
        if self.known is not None and self.kept is not None:  # `bottleneck.sample_revised`, its draws made beforehand
            frames = torch.where(self.kept[:, i, None], frames, self.known[:, i])
        return logits, frames
