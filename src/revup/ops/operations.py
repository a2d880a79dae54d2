"""The operations. Each body is the equation; faster versions register with it.

Shapes: B documents, M events, T tokens, K frames, V words, h hidden units, d other sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
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

    empirical: Tensor  # p_D(t|x) [..., K]
    observed: Tensor  # l [...]
    strength: Tensor  # λ [...]
    noise_rate: Tensor | None = None  # share of wrong labels; None: labels are assumed to be correct

    def at(self, event: int) -> Knowledge:
        """The side knowledge of one event, from that of documents [B, M, ...]."""
        empirical, observed, strength, noise_rate = self
        return Knowledge(empirical[:, event], observed[:, event], strength[:, event], noise_rate)


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
    empirical, observed, strength, noise_rate = knowledge
    drawn = bottleneck.sample_revised(
        logits, empirical, observed, keep_uniform, gumbel, strength, temperature, hard, noise_rate
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

    kind: "update": KL(revised ‖ r), revised with the posterior over the true frame if there is a noise rate;
    "classification": −E_{y~p_D} log Σ_k r_k·p(y|k), which does not use λ.
    """
    empirical, observed, strength, noise_rate = knowledge
    if kind == "update":
        proposed = torch.softmax(logits.detach(), dim=-1)
        posterior = bottleneck.label_posterior(proposed, empirical, noise_rate)
        learned = bottleneck.update_loss(logits, posterior, observed, strength)
    else:
        learned = bottleneck.noisy_label_loss(logits, empirical, observed, 0.0 if noise_rate is None else noise_rate)
    anchor = None if log_prior is None else bottleneck.categorical_kl(logits, log_prior)
    return FrameLosses(learned, bottleneck.uniform_kl(logits), anchor)


# ---- counts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CountTables:
    """Pooled counts of labels: a row for each counted form, lemma and argument word; row 0 for all others."""

    words: int  # V; `data.vocabulary` defines the numbers of words beyond it
    form_row: Tensor  # [V]
    lemma_row: Tensor  # [V]
    forms: Tensor  # [forms, K]
    lemmas: Tensor  # [lemmas, K]
    base: Tensor  # [K]: the distribution over all labels
    total: Tensor  # [K]: Σ lemmas
    near: Tensor | None  # [words with a vector, N]: rows of the most similar lemmas
    near_weights: Tensor | None
    slot_row: Tensor | None  # [slots, V]
    slots: Tensor | None  # [argument words, K]
    slot_weights: Tensor | None  # [slots], learned
    smoothing: float  # a
    similar_smoothing: float  # c
    slot_smoothing: float  # b


@Operation
def pooled_log_prior(tables: CountTables, events: Tensor, own: Tensor | None = None) -> Tensor:
    """Log prior over frames [B, M, K] of events [B, M, 5], by the equations of `revup.models.counts`.

    own [B, M, K]: each event's own label, which is excluded from every count.
    """

    def without_own(counts: Tensor) -> Tensor:
        return counts if own is None else (counts - torch.minimum(own, counts)).clamp_min(0.0)

    def back_off(counts: Tensor, to: Tensor) -> Tensor:
        counts = without_own(counts)
        return (counts + tables.smoothing * to) / (counts.sum(-1, keepdim=True) + tables.smoothing)

    preds = events[..., 0]
    word = preds % tables.words
    lemma_counts = tables.lemmas[tables.lemma_row[word] * (preds < 2 * tables.words)]
    form_counts = tables.forms[tables.form_row[word] * (preds < tables.words)]
    form = back_off(form_counts, back_off(lemma_counts, _similar(tables, preds)))
    log_prior = form.clamp_min(1e-12).log()
    if tables.slot_weights is None or tables.slot_row is None or tables.slots is None:
        return log_prior
    total = without_own(tables.total)
    everything = total.sum(-1, keepdim=True) + 1.0
    log_class = (total + tables.slot_smoothing).log()
    for slot, weight in enumerate(tables.slot_weights):
        argument = events[..., slot + 1]
        rows = tables.slot_row[slot][argument % tables.words] * (argument < tables.words)
        counts = without_own(tables.slots[rows])
        seen = counts.sum(-1, keepdim=True)
        share = seen / everything
        smoothed = (counts + tables.slot_smoothing * share).clamp_min(1e-12).log()
        ratio = smoothed - log_class - share.clamp_min(1e-12).log()
        known = (rows > 0).unsqueeze(-1) & (seen > 1e-6)  # a word without other labels has no influence
        log_prior = log_prior + weight * ratio.masked_fill(~known, 0.0)
    return log_prior


def _similar(tables: CountTables, preds: Tensor) -> Tensor:
    """θ_similar [B, M, K]: the counts of the nearest lemmas; the base distribution where there are none."""
    if tables.near is None or tables.near_weights is None:
        return tables.base
    word = torch.where(preds < 2 * tables.words, preds % tables.words, preds - tables.words).flatten()
    near = tables.near[word].long()
    pooled = F.embedding_bag(near, tables.lemmas, mode="sum", per_sample_weights=tables.near_weights[word])
    pooled, c = pooled.view(*preds.shape, -1), tables.similar_smoothing
    return (pooled + c * tables.base) / (pooled.sum(-1, keepdim=True) + c)


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
