"""SSDVAE: frames as discrete latents, guided by injecting observed labels into their logits.

For a document x of M events, with e_0 a summary of x, and for m = 1..M:

    γ_m = linear(attention over the encoder's states H, queried by e_{m−1})       no z in between
    γ̂_m = γ_m + l_m ‖γ_m‖·p_D(t|x)                                                parameter injection
    t_m ~ GumbelSoftmax(γ̂_m, τ),  e_m = t_mᵀ E
    y ~ decoder(e_1..e_M)

    L = L_y + κ Σ_observed −E_{p_D} log q_m + ω Σ_unobserved KL(q_m ‖ uniform),   q_m = softmax(γ_m)

The second term is the classification loss; the third is the entropy term, log K − H(q), of the evidence lower bound
under a uniform prior over frames. q is the distribution *before* injection, which is the one available at test time.

`paper` has κ = ω = 0.1, full attention and separate weights per event, as published. `default` uses the same options as
RevUp's: latent m attends to event m only, all m share weights, the log prior of the pooled counts is added to γ_m (with
or without injection), and the classification loss uses the noise model with an estimated error rate,
−log Σ_k q_k p(y|k) instead of −log q_y. The remaining differences to RevUp are z, the revision and the update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from revup import bottleneck, ops
from revup.data.batches import Batch
from revup.fields import check, setting
from revup.models.autoencoder import FrameAutoencoder
from revup.models.base import AS_PUBLISHED, DEFAULT, Architecture, Draws, Loss, Sizes
from revup.models.counts import ANCHOR, NEIGHBOURS, error_rate
from revup.models.layers import (
    Attention,
    event_tokens,
    with_gradient_if,
)


@dataclass(frozen=True)
class Objective:
    """Weights of the loss terms, and the prior."""

    classification: float = setting(1.0, "weight κ of the classification loss of observed labels", minimum=0)
    entropy: float = setting(0.0, "weight ω of the entropy term")
    reconstruction: str = setting(
        "mean",
        "reconstruction loss L_y: mean per token, or sum over a document's tokens as derived",
        choices=("mean", "sum"),
    )
    temperature: float = setting(0.5, "temperature τ of the Gumbel-softmax samples of frames", minimum=0.001)
    straight_through: bool = setting(False, "pass one-hot samples forward and the gradient of soft ones backward")
    prior: str = setting(
        "pooled",
        "counts that the frame logits start from: of all words of an event, of its predicate alone, or none",
        choices=("pooled", "predicate", "none"),
    )
    neighbours: int = setting(
        NEIGHBOURS, "similar predicates, by word vectors, that the counts of a rare predicate fall back on", minimum=0
    )
    anchor: float = setting(
        ANCHOR, "weight of staying near the prior, in labels: a penalty of anchor/n with n trusted labels", minimum=0
    )
    induce: bool = setting(
        True, "where no label is observed at all, start the counts from clusters of frequent predicates, one a frame"
    )
    noise: str = setting(
        "estimated",
        "how observed labels are treated: wrong at an estimated rate, or never wrong (none)",
        choices=("estimated", "none"),
    )
    noise_rate: float | None = setting(
        None, "the share of wrong labels, given instead of estimated", minimum=0, below=1
    )

    def __post_init__(self) -> None:
        check(self, "objective")

    @property
    def needs_pool(self) -> bool:
        return self.prior != "none" or self.noise == "estimated"


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": DEFAULT,
    "paper": {
        "network": AS_PUBLISHED,
        "objective": {"classification": 0.1, "entropy": 0.1, "prior": "none", "noise": "none", "induce": False},
    },
}
PRESETS["released"] = {**PRESETS["paper"], "network": {**PRESETS["paper"]["network"], "input_feeding": True}}


@dataclass
class Latents:
    """The chain of latents: logits before and after injection, sampled frames and their embeddings."""

    logits: Tensor  # γ [B, M, K]
    embedded: Tensor  # e [B, M, d_t]
    told: list[Tensor]  # γ̂ [B, K] of each event; equals γ where no label is injected
    drawn: list[Tensor]  # t [B, K] of each event

    @property
    def injected(self) -> Tensor:
        """γ̂ [B, M, K]."""
        return torch.stack(self.told, dim=1)

    @property
    def frames(self) -> Tensor:
        """t [B, M, K]."""
        return torch.stack(self.drawn, dim=1)


class _LatentWeights(nn.Module):
    """Attention and γ: one set shared by all events, or one for each."""

    def __init__(self, network: Architecture, memory: int, classes: int) -> None:
        super().__init__()
        self.attention = Attention(network.frame, memory, network.hidden, network.places)
        self.propose = nn.Linear(network.hidden, classes)


class SSDVAE(FrameAutoencoder):
    """The module: encoder, the chain of frames, decoder."""

    objective: Objective

    def __init__(self, sizes: Sizes, network: Architecture, objective: Objective) -> None:
        super().__init__(sizes, network, objective, _LatentWeights)

    def chain(
        self,
        states: Tensor,
        batch: Batch,
        log_prior: Tensor | None,
        knowledge: tuple[Tensor, Tensor] | None = None,
        draws: Draws | None = None,
        hard: bool = False,
    ) -> Latents:
        """Run the chain of frames. Without draws t is the distribution itself, or with `hard` its mode.

        knowledge: p_D [B, M, K] and l·confidence [B, M], where side knowledge may be injected. The prior is added
        after the injection: ‖γ‖ is the size of the network's own logits, not of the counts.
        """
        confined = self.network.attention == "confined"
        memory = event_tokens(states) if confined else states
        mask = batch.mask.new_ones(len(states), memory.shape[2]) if confined else batch.token_mask
        events = self.sizes.events
        uniform = None if draws is None else draws.uniform(events, self.sizes.classes)
        kept: dict[str, list[Tensor]] = {name: [] for name in Latents.__dataclass_fields__}
        memories = memory.unbind(1) if confined else [memory] * events
        priors = [None] * events if log_prior is None else log_prior.unbind(1)
        e = ops.linear(self.first_query, ops.masked_mean(states, batch.token_mask))
        for m in range(events):
            weights, prior = cast(_LatentWeights, self.latents[0 if self.network.shared else m]), priors[m]
            context, _ = weights.attention(e.unsqueeze(1), memories[m], mask)
            logits = injected = ops.linear(weights.propose, context.squeeze(1)).float()
            if knowledge is not None:
                injected = bottleneck.injected_logits(logits, knowledge[0][:, m], knowledge[1][:, m])
            logits = logits if prior is None else logits + prior
            if uniform is not None:
                injected, t = ops.draw_frame(injected, prior, uniform[:, m], self.objective.temperature, hard)
            else:
                injected = injected if prior is None else injected + prior
                t = torch.softmax(injected, dim=-1)
                if hard:
                    t = torch.zeros_like(t).scatter_(-1, t.argmax(-1, keepdim=True), 1.0)
            e = ops.mix(t, self.frames)
            for name, value in zip(kept, (logits, e, injected, t), strict=True):
                kept[name].append(value)
        logits, embedded = torch.stack(kept["logits"], dim=1), torch.stack(kept["embedded"], dim=1)
        return Latents(logits, embedded, kept["told"], kept["drawn"])

    # ---- learning ------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch, draws: Draws) -> Loss:
        """L_y + κ·classification + ω·entropy: sums over events, means over the whole batch's documents."""
        o = self.objective
        states, empirical = self.encode(batch, draws), batch.empirical(self.sizes.classes)
        log_prior = self.log_prior(batch, empirical)
        injected, hard = (empirical, batch.observed * batch.confidence), o.straight_through or self.settled
        latents = self.chain(states, batch, log_prior, injected, draws, hard)

        knowledge = ops.Knowledge(empirical, batch.observed, batch.confidence, error_rate(self.prior, o.noise))
        losses = ops.frame_losses("classification", latents.logits, log_prior if o.anchor else None, knowledge)
        unobserved = with_gradient_if(bool(o.entropy), losses.uniform) * (1 - batch.observed)
        of_documents = batch.mask / batch.documents
        l_y = self.reconstruction_loss(batch, latents.embedded)
        classification = (losses.learned * batch.confidence * of_documents).sum()
        entropy = (unobserved * of_documents).sum()
        total = l_y + o.classification * classification + o.entropy * entropy
        terms = {"reconstruction": l_y, "classification": classification, "entropy": entropy}
        if losses.anchor is not None and self.prior is not None:  # `default`: keep q near the pooled prior
            terms["anchor"] = (losses.anchor * of_documents).sum()
            total = total + self.prior.anchor(o.anchor) * terms["anchor"]
        return Loss(total, {name: term.detach() for name, term in terms.items()})

    # ---- frames and embeddings -----------------------------------------------------------------------------------

    def latents_of(self, batch: Batch, draws: Draws | None = None, hard: bool = False, revise: bool = False) -> Latents:
        """The latents of a batch, inferred without its labels unless `revise` injects them."""
        knowledge = (batch.empirical(self.sizes.classes), batch.observed * batch.confidence) if revise else None
        return self.chain(self.encode(batch), batch, self.log_prior(batch, None), knowledge, draws, hard)

    def frame_probabilities(self, batch: Batch, draws: Draws | None = None, revise: bool = False) -> Tensor:
        """q(t|x), [B, M, K]; with the batch's labels injected if asked."""
        return torch.softmax(self.latents_of(batch, draws, revise=revise).injected, dim=-1)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Events [B, M, K + d_t]: [q(t|x); e_m]; documents: their mean over the document's events."""
        latents = self.latents_of(batch)
        events = torch.cat([latents.frames, latents.embedded], dim=-1)
        return ops.masked_mean(events, batch.mask), events
