"""The operations. Each body is the equation; faster versions register with it.

Shapes: B documents, M events, T tokens, K frames, V words, h hidden units, d other sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from revup import bottleneck
from revup.ops.dispatch import Operation

LOG_VARIANCES = (-12.0, 6.0)  # log σ² is clamped to this range
MASKED = -1e9  # score of masked positions; not −∞, so that a fully masked row stays finite


class Knowledge(NamedTuple):
    """Side knowledge about the frames of some events."""

    empirical: Tensor  # p_D(t|x), or the likelihood of what is observed given each frame [..., K]
    observed: Tensor  # l [...]
    strength: Tensor  # λ [...]
    belief: Tensor | None = None  # 1 where empirical is p_D, 0 where it is a likelihood [...]; None: p_D everywhere

    def at(self, event: int) -> Knowledge:
        """The side knowledge of one event, from that of documents [B, M, ...]."""
        belief = None if self.belief is None else self.belief[:, event]
        return Knowledge(self.empirical[:, event], self.observed[:, event], self.strength[:, event], belief)

    def flat(self) -> Knowledge:
        """The side knowledge of the events of documents [B, M, ...] as that of B·M events."""
        belief = None if self.belief is None else self.belief.flatten()
        return Knowledge(self.empirical.flatten(0, 1), self.observed.flatten(), self.strength.flatten(), belief)


# ---- layers --------------------------------------------------------------------------------------------------------


@Operation
def embed(table: nn.Embedding, tokens: Tensor) -> Tensor:
    """Rows of an embedding: tokens [B, T] → [B, T, d]."""
    rows: Tensor = table(tokens)
    return rows


@Operation
def linear(layer: nn.Linear, x: Tensor, tanh: bool = False) -> Tensor:
    """x Wᵀ + b of x [..., d], or its tanh."""
    product = F.linear(x, layer.weight, layer.bias)
    return torch.tanh(product) if tanh else product


@Operation
def mix(weights: Tensor, table: Tensor) -> Tensor:
    """tᵀE: the rows of a table [K, d], mixed by weights [..., K]."""
    return F.linear(weights, table.t())


@Operation
def gru(layer: nn.GRU, x: Tensor, state: Tensor | None = None) -> Tensor:
    """A GRU's states after each token: x [B, T, d], state [layers·D, B, h] → [B, T, D·h]."""
    states: Tensor = layer(x, state)[0]
    return states


@Operation
def attend(
    score: nn.Linear,
    out: nn.Linear,
    query: Tensor,
    memory: Tensor,
    mask: Tensor,
    bias: Tensor | None = None,
    slots: bool = False,
) -> tuple[Tensor, Tensor]:
    """Attention with an output layer: tanh(W[context; query]), the context averaging the memory by softmax(qᵀWh/√d).

    query [B, Q, q], memory [B, T, d], mask [B, T], bias [Q, T] of the scores → attended [B, Q, out], weights [B, Q, T].
    slots: the concatenated memory is a further input of the output layer, tanh(W[context; h_1..h_T; query]); Q = 1.
    """
    scores = linear(score, query) @ memory.transpose(1, 2) * memory.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias
    weights = torch.softmax(scores.float().masked_fill(~mask.unsqueeze(1), MASKED), dim=-1).to(memory.dtype)
    parts = [weights @ memory, query.to(memory.dtype)]
    if slots:
        parts.insert(1, memory.flatten(1).unsqueeze(1))
    return linear(out, torch.cat(parts, dim=-1), tanh=True), weights


@Operation
def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of values [B, N, d] where the mask [B, N] holds → [B, d]; 0 where it never does."""
    there = mask.unsqueeze(-1).to(values.dtype)
    return (values * there).sum(1) / there.sum(1).clamp_min(1)


@Operation
def dropout(x: Tensor, uniform: Tensor, rate: float) -> Tensor:
    """x set to 0 where the U[0,1) numbers are below the rate, and scaled up elsewhere."""
    return x.masked_fill(uniform < rate, 0.0) / (1 - rate)


# ---- latents -------------------------------------------------------------------------------------------------------


@Operation
def gaussian_sample(parameters: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """parameters [B, 2d], noise [B, d] → μ, log σ², z = μ + σ·noise (μ itself without noise)."""
    mean, log_variance = parameters.float().chunk(2, dim=-1)
    log_variance = log_variance.clamp(*LOG_VARIANCES)
    return mean, log_variance, mean if noise is None else mean + torch.exp(0.5 * log_variance) * noise


@Operation
def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ,σ²) ‖ N(0,I)) of [..., d] → [...]."""
    return bottleneck.gaussian_kl(mean, log_variance)


@Operation
def draw_frame(
    raw: Tensor,
    log_prior: Tensor | None,
    uniform: Tensor,
    temperature: float,
    hard: bool = False,
    knowledge: Knowledge | None = None,
    keep_uniform: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The logits γ = raw + log prior [B, K] of one event, and its frame t [B, K], drawn by Gumbel-softmax.

    Without knowledge t ~ r = softmax(γ); with it t is drawn from the revised distribution. uniform [B, K] and
    keep_uniform [B]: U[0,1) noise, for the frame and for whether the proposal is kept.
    """
    logits = raw.float() if log_prior is None else raw.float() + log_prior
    gumbel = bottleneck.gumbel_from_uniform(uniform)
    if knowledge is None or keep_uniform is None:
        return logits, bottleneck.gumbel_softmax(logits, gumbel, temperature, hard)
    empirical, observed, strength, belief = knowledge
    drawn = bottleneck.sample_revised(
        logits, empirical, observed, keep_uniform, gumbel, strength, temperature, hard, belief
    )
    return logits, drawn


class FrameLosses(NamedTuple):
    """Per event, [B, M]."""

    learned: Tensor  # KL(revised ‖ r), or the classification loss
    uniform: Tensor  # KL(r ‖ uniform)
    anchor: Tensor | None  # KL(r ‖ prior); None without a prior


@Operation
def frame_losses(kind: str, logits: Tensor, log_prior: Tensor | None, knowledge: Knowledge) -> FrameLosses:
    """The losses on r = softmax(logits) [B, M, K].

    kind: "update": KL(revised ‖ r), revised with p_D or with the posterior over the true frame; "classification":
    −E_{p_D} log r or −log Σ_k r_k·p(observed|k), which does not use λ.
    """
    empirical, observed, strength, belief = knowledge
    if kind == "update":
        proposed = torch.softmax(logits.detach(), dim=-1)
        posterior = bottleneck.label_posterior(proposed, empirical, belief)
        learned = bottleneck.update_loss(logits, posterior, observed, strength)
    else:
        learned = bottleneck.knowledge_loss(logits, empirical, observed, belief)
    anchor = None if log_prior is None else bottleneck.categorical_kl(logits, log_prior)
    return FrameLosses(learned, bottleneck.uniform_kl(logits), anchor)


# ---- the vocabulary ------------------------------------------------------------------------------------------------


@Operation
def vocabulary_loss(
    states: Tensor, layer: nn.Linear, tokens: Tensor, mask: Tensor, count: float | Tensor = 1.0
) -> tuple[Tensor, Tensor]:
    """Σ −log softmax(W s + b)[token] / count over the tokens where the mask holds; and each −log p (detached).

    states [B, T, h], tokens and mask [B, T] → a number, and [B, T].
    """
    logits = F.linear(states, layer.weight, layer.bias).float()
    nll = F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none").view_as(tokens)
    return (nll * (mask / count)).sum(), nll.detach()


# ---- batches -------------------------------------------------------------------------------------------------------


@Operation
def gather_rows(
    which: Tensor, sources: list[Tensor], places: list[Tensor], counts: Tensor, numbers: list[Tensor]
) -> None:
    """Copy rows `which` [B] of each source [N, ...] to its place [B, ...], and each count to its number."""
    for source, place in zip(sources, places, strict=True):
        torch.index_select(source, 0, which, out=place)
    for count, number in zip(counts, numbers, strict=True):
        number.copy_(count)


# ---- the optimiser -------------------------------------------------------------------------------------------------


@Operation
def adam(
    parameter: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, Tensor],
    step: Tensor,
    rate: Tensor,
    scale: Tensor,
    overflow: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """A step of Adam for one tensor, in place: m, v ← moving means of g and g²; θ ← θ − rate·m̂/(√v̂ + ε).

    step: number of previous steps. Gradients are divided by the scale; if overflow ≠ 0, nothing is changed.
    """
    (beta1, beta2), (first, second), g, t = betas, moments, gradient / scale, step + 1.0
    m, v = torch.lerp(first, g, 1 - beta1), torch.lerp(second, g * g, 1 - beta2)
    new = parameter - rate * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + eps)
    for place, value in ((parameter, new), (first, m), (second, v)):
        place.copy_(torch.where(overflow == 0, value, place))
