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
RevUp's: latent m attends to event m only, all m share weights, the log prior of the counts is added to γ_m (with or
without injection), labels are evidence under an estimated reliability, −log Σ_k q_k p(y|k) instead of −log q_y, and the
frames of the other events are an input. The remaining differences to RevUp are z, the revision and the update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from revup import bottleneck, ops
from revup.data.batches import Batch
from revup.fields import setting
from revup.models.autoencoder import FrameAutoencoder
from revup.models.base import Loss
from revup.models.count_prior import PLAIN, ResidualSettings
from revup.models.layers import Attention, event_tokens, with_gradient_if
from revup.models.network import AS_PUBLISHED, DEFAULT, Architecture, Sizes
from revup.models.randomness import Draws
from revup.models.residual import anchor_weight


@dataclass(frozen=True, kw_only=True)
class Objective(ResidualSettings):
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


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": DEFAULT,
    "paper": {
        "network": AS_PUBLISHED,
        "objective": {"classification": 0.1, "entropy": 0.1, **PLAIN},
        "training": {"text_epoch": True},
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
        knowledge: ops.Knowledge | None = None,
        draws: Draws | None = None,
        hard: bool = False,
    ) -> Latents:
        """Run the chain of frames. Without draws t is the distribution itself, or with `hard` its mode.

        knowledge: p_D or a likelihood [B, M, K], l·confidence [B, M]: side knowledge to inject, a likelihood as the
        posterior over the true frame. The prior is added after the injection: ‖γ‖ is the size of the network's own
        logits, not of the counts. With frame context, given frames move those of the other events as in RevUp.
        """
        confined = self.network.attention == "confined"
        memory = event_tokens(states) if confined else states
        mask = batch.mask.new_ones(len(states), memory.shape[2]) if confined else batch.token_mask
        events = self.sizes.events
        uniform = None if draws is None else draws.uniform(events, self.sizes.classes)
        kept: dict[str, list[Tensor]] = {name: [] for name in Latents.__dataclass_fields__}
        memories = memory.unbind(1) if confined else [memory] * events
        priors = [None] * events if log_prior is None else log_prior.unbind(1)
        given, factor = self.residual.of_vectors(batch, draws), self.residual.weight(batch)
        e = ops.linear(self.first_query, ops.masked_mean(states, batch.token_mask))
        for m in range(events):
            weights, prior = cast(_LatentWeights, self.latents[0 if self.network.shared else m]), priors[m]
            context, _ = weights.attention(e.unsqueeze(1), memories[m], mask)
            own = ops.linear(weights.propose, context.squeeze(1)).float()
            own = own if given is None else own + given[:, m]
            scaled = own if prior is None else own * factor[:, m]
            logits = scaled if prior is None else scaled + prior
            injected = scaled if knowledge is None else self._injected(scaled, logits, knowledge.at(m))
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
        moved = self.residual.of_given(logits, self.frames, knowledge, batch, draws)
        if moved is None:
            return Latents(logits, embedded, kept["told"], kept["drawn"])
        told = [injected + moved[:, m] for m, injected in enumerate(kept["told"])]
        return Latents(logits + moved, embedded, told, kept["drawn"])

    def _injected(self, own: Tensor, logits: Tensor, knowledge: ops.Knowledge) -> Tensor:
        """γ̂ [..., K]: the network's own logits with side knowledge injected; logits: with the prior."""
        proposed = torch.softmax(logits.detach(), dim=-1)
        posterior = bottleneck.label_posterior(proposed, knowledge.empirical, knowledge.belief)
        return bottleneck.injected_logits(own, posterior, knowledge.observed)

    # ---- learning ------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch, draws: Draws) -> Loss:
        """L_y + κ·classification + ω·entropy: sums over events, means over the whole batch's documents."""
        o = self.objective
        states, log_prior, hard = self.encode(batch, draws), self.prior_of(batch), o.straight_through or self.settled
        injected = self.knowledge(batch)
        latents = self.chain(states, batch, log_prior, injected, draws, hard)

        knowledge = injected._replace(observed=batch.observed)
        losses = ops.frame_losses("classification", latents.logits, log_prior if o.anchor else None, knowledge)
        unobserved = with_gradient_if(bool(o.entropy), losses.uniform) * (1 - batch.observed)
        of_documents = batch.mask / batch.documents
        l_y = self.reconstruction_loss(batch, latents.embedded)
        classification = (losses.learned * batch.confidence * of_documents).sum()
        entropy = (unobserved * of_documents).sum()
        total = l_y + o.classification * classification + o.entropy * entropy
        terms = {"reconstruction": l_y, "classification": classification, "entropy": entropy}
        if losses.anchor is not None:  # `default`: keep q near the prior
            terms["anchor"] = (losses.anchor * of_documents).sum()
            total = total + anchor_weight(self) * terms["anchor"]
        return Loss(total, {name: term.detach() for name, term in terms.items()})

    # ---- frames and embeddings -----------------------------------------------------------------------------------

    def latents_of(self, batch: Batch, draws: Draws | None = None, hard: bool = False, revise: bool = False) -> Latents:
        """The latents of a batch, inferred without its labels unless `revise` injects them."""
        knowledge = self.knowledge(batch) if revise else None
        return self.chain(self.encode(batch), batch, self.prior_of(batch), knowledge, draws, hard)

    def knowledge(self, batch: Batch) -> ops.Knowledge:
        """p_D(t|x) or a likelihood [B, M, K], l·confidence and confidence [B, M] of a batch."""
        belief = None if self.counts is None else batch.belief
        observed = batch.observed * batch.confidence
        return ops.Knowledge(batch.empirical(self.sizes.classes), observed, batch.confidence, belief)

    def frame_probabilities(self, batch: Batch, draws: Draws | None = None, revise: bool = False) -> Tensor:
        """q(t|x), [B, M, K]; with the batch's labels injected if asked."""
        if self.residual.is_zero(draws, revise):  # then the network need not be computed
            return torch.softmax(self.log_prior(batch), dim=-1)
        return torch.softmax(self.latents_of(batch, draws, revise=revise).injected, dim=-1)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Events [B, M, K + d_t]: [q(t|x); e_m]; documents: their mean over the document's events."""
        latents = self.latents_of(batch)
        events = torch.cat([latents.frames, latents.embedded], dim=-1)
        return ops.masked_mean(events, batch.mask), events
