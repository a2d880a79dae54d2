"""RevUp: revise the proposed frame with side knowledge, then train the proposal towards the revised distribution.

For a document x of M events, with t_0 a summary of x, and for m = 1..M (the sawtooth):

    z_m ~ N(μ_m, σ_m),  μ_m, σ_m from attention over the encoder's states H, queried by e_{m−1}
    r(t|z_m) = softmax(γ_m),  γ_m = linear(z_m)                                    the proposal
    p(t|x,z) = λ̂ r + (1−λ̂) p_D(t|x),  λ̂ = 1/(1+λ l_m)                              the revision
    t_m ~ p(t|x,z),  e_m = t_mᵀ E
    y ~ decoder(e_1..e_M)

    L = L_y + α Σ KL(revised ‖ proposed) + β Σ KL(N(μ,σ) ‖ N(0,I)) + ζ Σ KL(r ‖ uniform)

Presets: `paper` follows the paper exactly; `released` uses the effective weights of the published code; `default` is
this project's own and adds four options:

    confined attention    latent m attends to the tokens of event m only, and all m share weights (`Network`)
    counts as a prior     γ_m = g_m·linear(z_m) + log prior, g_m by how much was seen of the predicate (`Residual`)
    noise model           labels are evidence: p_D is replaced by the posterior over the true frame, ∝ r(t)·p(labels|t)
    frame context         given frames of the other events are a further input of γ_m (`FrameContext`)
"""

from __future__ import annotations

from collections.abc import Iterable
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

PRIOR_DRAWS = 4096  # samples of z over which the prior over frames is averaged
ACTIVE = 0.01  # variance of μ over the data above which a unit of z is active


@dataclass(frozen=True, kw_only=True)
class Objective(ResidualSettings):
    """Weights of the loss terms, the revision, and the prior. A `scarce_` weight replaces its namesake where ε̂ < ½."""

    alpha: float = setting(0.3, "weight α of the update loss L_I", minimum=0)
    beta: float = setting(1e-6, "weight β of the loss L_z of the latents", minimum=0)
    zeta: float = setting(0.0, "weight ζ of the loss L_t of the frames", minimum=0)
    scarce_alpha: float | None = setting(None, "alpha where less than half of the labels is observed", minimum=0)
    scarce_beta: float | None = setting(None, "beta where less than half of the labels is observed", minimum=0)
    scarce_zeta: float | None = setting(None, "zeta where less than half of the labels is observed", minimum=0)
    classification: float = setting(
        0.0, "weight of a classification loss beside the update loss, as in the published code", minimum=0
    )
    entropy: float = setting(
        0.0, "weight of the published code's entropy terms: of the revised distribution and of the proposal"
    )
    scarce_entropy: float | None = setting(None, "entropy where less than half of the labels is observed")
    z_where: str = setting(
        "all",
        "events that L_z covers: all, or those with an observed label as in the published code",
        choices=("all", "observed"),
    )
    reconstruction: str = setting(
        "mean",
        "reconstruction loss L_y: mean per token, or sum over a document's tokens as derived",
        choices=("mean", "sum"),
    )
    strength: float = setting(9.0, "strength λ of side knowledge in the revised distribution", minimum=0)
    temperature: float = setting(0.5, "temperature τ of the Gumbel-softmax samples of frames", minimum=0.001)
    straight_through: bool = setting(False, "pass one-hot samples forward and the gradient of soft ones backward")
    samples: int = setting(1, "samples S drawn for each document in training", minimum=1, maximum=1000)

    def weight(self, name: str, observed_share: float | Tensor) -> float | Tensor:
        """A weight at this share of observed events (the paper's ε̂)."""
        plain, scarce = getattr(self, name), getattr(self, f"scarce_{name}")
        if scarce is None:
            return float(plain)
        if isinstance(observed_share, Tensor):
            return torch.where(observed_share < 0.5, scarce, plain)
        return float(scarce if observed_share < 0.5 else plain)

    @property
    def adapts(self) -> bool:
        """Whether some weight depends on the share of observed events."""
        return any(value is not None for name, value in vars(self).items() if name.startswith("scarce_"))


_PLAIN: dict[str, Any] = {"strength": 1.0, **PLAIN}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": DEFAULT,
    "paper": {
        "network": AS_PUBLISHED,
        "objective": {
            **_PLAIN,
            "alpha": 0.3,
            "beta": 1e-6,
            "zeta": 0.7,
            "scarce_alpha": 0.1,
            "scarce_beta": 0.2,
            "scarce_zeta": 1.0,
        },
        "training": {"text_epoch": True},
    },
    "released": {
        "network": {**AS_PUBLISHED, "input_feeding": True},
        "objective": {
            **_PLAIN,
            "alpha": 0.0,
            "beta": 1e-6,
            "classification": 1.0,
            "entropy": 0.3,
            "scarce_entropy": 0.1,
            "z_where": "observed",
        },
        "training": {"clip": 0.0, "text_epoch": True},
    },
}


@dataclass
class Latents:
    """The chain of latents; S rows for each document where S samples are drawn."""

    logits: Tensor  # γ [B, M, K], the proposal
    mean: Tensor  # μ [B, M, d_z]
    log_variance: Tensor  # log σ² [B, M, d_z]
    embedded: Tensor  # e [B, M, d_t]
    drawn: list[Tensor]  # t [B, K] of each event
    looked: list[Tensor]  # attention weights of each event [B, attended tokens]

    @property
    def frames(self) -> Tensor:
        """t [B, M, K]."""
        return torch.stack(self.drawn, dim=1)

    @property
    def attention(self) -> Tensor:
        """Attention weights [B, M, attended tokens]."""
        return torch.stack(self.looked, dim=1)


class _LatentWeights(nn.Module):
    """Attention, μ and log σ², γ: one set shared by all events, or one for each."""

    def __init__(self, network: Architecture, memory: int, classes: int) -> None:
        super().__init__()
        self.attention = Attention(network.frame, memory, network.hidden, network.places)
        self.gaussian = nn.Linear(network.hidden, 2 * network.latent)
        with torch.no_grad():  # start with a small σ: with σ = 1 the noise dominates μ for many epochs
            self.gaussian.bias[network.latent :] = -5.0
            if network.shared:  # `default`: μ starts as a rotation of the context; the published model starts at random
                nn.init.orthogonal_(self.gaussian.weight[: network.latent])
                self.gaussian.bias[: network.latent] = 0.0
        self.propose = nn.Linear(network.latent, classes)


class RevUp(FrameAutoencoder):
    """The module: encoder, the chain of latents, decoder."""

    objective: Objective

    def __init__(self, sizes: Sizes, network: Architecture, objective: Objective) -> None:
        super().__init__(sizes, network, objective, _LatentWeights)

    def knowledge(self, batch: Batch) -> ops.Knowledge:
        """p_D(t|x) or a likelihood [B, M, K], l and λ [B, M] of a batch."""
        strength, belief = self.objective.strength * batch.confidence, None if self.counts is None else batch.belief
        return ops.Knowledge(batch.empirical(self.sizes.classes), batch.observed, strength, belief)

    def chain(
        self,
        states: Tensor,
        batch: Batch,
        log_prior: Tensor | None,
        knowledge: ops.Knowledge | None = None,
        draws: Draws | None = None,
        hard: bool = False,
    ) -> Latents:
        """Run the chain of latents. Without draws each variable is its mean (z = μ, t = r), or with `hard` its mode.

        knowledge [B, M, ...]: where given, frames are drawn from the revised distribution, not from the proposal; and
        with frame context, given frames move those of the other events (`Residual.of_given`).
        """
        confined = self.network.attention == "confined"
        memory = event_tokens(states) if confined else states
        mask = batch.mask.new_ones(len(states), memory.shape[2]) if confined else batch.token_mask
        noise, uniform, keep_uniform = self._noise(draws, knowledge is not None)
        kept: dict[str, list[Tensor]] = {name: [] for name in Latents.__dataclass_fields__}
        memories = memory.unbind(1) if confined else [memory] * self.sizes.events
        priors = [None] * self.sizes.events if log_prior is None else log_prior.unbind(1)
        given, factor = self.residual.of_vectors(batch, draws), self.residual.weight(batch)
        e = ops.linear(self.first_query, ops.masked_mean(states, batch.token_mask))
        for m in range(self.sizes.events):
            weights = cast(_LatentWeights, self.latents[0 if self.network.shared else m])
            context, looked = weights.attention(e.unsqueeze(1), memories[m], mask)
            parameters = ops.linear(weights.gaussian, context.squeeze(1))
            mean, log_variance, z = ops.gaussian_sample(parameters, None if noise is None else noise[:, m])
            raw, known = ops.linear(weights.propose, z), None if knowledge is None else knowledge.at(m)
            raw = raw if given is None else raw + given[:, m]
            raw = raw if log_prior is None else raw * factor[:, m]
            if uniform is None:
                logits, t = self._most_likely(raw, priors[m], known, hard)
            else:
                kept_if = None if keep_uniform is None else keep_uniform[:, m]
                temperature = self.objective.temperature
                logits, t = ops.draw_frame(raw, priors[m], uniform[:, m], temperature, hard, known, kept_if)
            e = ops.mix(t, self.frames)
            for name, value in zip(kept, (logits, mean, log_variance, e, t, looked.squeeze(1)), strict=True):
                kept[name].append(value)
        *together, drawn, attention = kept.values()
        logits, mean, log_variance, embedded = (torch.stack(values, dim=1) for values in together)
        moved = self.residual.of_given(logits, self.frames, knowledge, batch, draws)
        logits = logits if moved is None else logits + moved
        return Latents(logits, mean, log_variance, embedded, drawn, attention)

    def _noise(self, draws: Draws | None, revises: bool) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Noise of z [B, M, d_z], of t [B, M, K], and of whether the proposal is kept [B, M]."""
        if draws is None:
            return None, None, None
        m = self.sizes.events
        normal, uniform = draws.normal(m, self.network.latent), draws.uniform(m, self.sizes.classes)
        return normal, uniform, draws.uniform(m) if revises else None

    @staticmethod
    def _most_likely(
        raw: Tensor, log_prior: Tensor | None, knowledge: ops.Knowledge | None, hard: bool
    ) -> tuple[Tensor, Tensor]:
        """γ [B, K], and r itself (its mode, if hard) as the frame, revised where there is knowledge."""
        logits = raw.float() if log_prior is None else raw.float() + log_prior
        t = torch.softmax(logits, dim=-1)
        if hard:
            t = torch.zeros_like(t).scatter_(-1, t.argmax(-1, keepdim=True), 1.0)
        if knowledge is not None:
            posterior = bottleneck.label_posterior(torch.softmax(logits, dim=-1), knowledge.empirical, knowledge.belief)
            t = bottleneck.revise(t, posterior, knowledge.observed, knowledge.strength)
        return logits, t

    # ---- learning --------------------------------------------------------------------------------------------

    def forward(self, batch: Batch, draws: Draws) -> Loss:
        """L = L_y + α L_I + β L_z + ζ L_t: sums over events, means over the whole batch's documents."""
        o = self.objective
        states = self.encode(batch, draws)
        knowledge = self.knowledge(batch)
        log_prior = self.prior_of(batch)
        if o.samples > 1:
            certain = batch.belief if knowledge.belief is None else knowledge.belief
            batch, states, empirical, observed, strength, certain = _repeat(
                o.samples, batch, states, *knowledge[:3], certain
            )
            knowledge = ops.Knowledge(empirical, observed, strength, None if knowledge.belief is None else certain)
            log_prior = None if log_prior is None else log_prior.repeat_interleave(o.samples, 0)
        draws.copies = o.samples
        latents = self.chain(states, batch, log_prior, knowledge, draws, o.straight_through or self.settled)

        losses = ops.frame_losses("update", latents.logits, log_prior if o.anchor else None, knowledge)
        z_kl = ops.gaussian_kl(latents.mean, latents.log_variance)
        z_kl = z_kl * knowledge.observed if o.z_where == "observed" else z_kl
        uniform = with_gradient_if(bool(o.zeta or o.scarce_zeta), losses.uniform)
        of_documents = batch.mask / (batch.documents * o.samples)

        l_y = self.reconstruction_loss(batch, latents.embedded, o.samples)
        l_i = (losses.learned * of_documents).sum()
        l_z = (z_kl * of_documents).sum()
        l_t = (uniform * of_documents).sum()
        share = batch.observed_share if o.adapts else 1.0
        total = l_y + o.weight("alpha", share) * l_i + o.weight("beta", share) * l_z + o.weight("zeta", share) * l_t
        terms = {"reconstruction": l_y, "update": l_i, "z": l_z, "uniform": l_t}

        if losses.anchor is not None:  # `default`: keep the proposal near the prior
            terms["anchor"] = (losses.anchor * of_documents).sum()
            total = total + anchor_weight(self) * terms["anchor"]
        if o.classification or o.entropy:  # `released`: the published code's effective terms
            terms |= self._released_terms(latents.logits, knowledge, of_documents)
            total = total + o.classification * terms["classification"] + o.weight("entropy", share) * terms["entropy"]
        return Loss(total, {name: term.detach() for name, term in terms.items()})

    def _released_terms(self, logits: Tensor, knowledge: ops.Knowledge, of_documents: Tensor) -> dict[str, Tensor]:
        """The published code's classification term, and its entropies: H(r) minimised if observed, else maximised."""
        empirical, observed, strength, belief = knowledge
        posterior = bottleneck.label_posterior(torch.softmax(logits.detach(), dim=-1), empirical, belief)
        expanded = bottleneck.update_terms(logits, posterior, observed, strength)
        entropy = expanded.negative_revised_entropy + (2 * observed - 1) * bottleneck.categorical_entropy(logits)
        return {
            "classification": (expanded.classification * of_documents * observed).sum(),
            "entropy": (entropy * of_documents).sum(),
        }

    # ---- frames and embeddings ---------------------------------------------------------------------------------

    def latents_of(self, batch: Batch, draws: Draws | None = None, hard: bool = False, revise: bool = False) -> Latents:
        """The latents of a batch, inferred without its labels unless `revise` is true."""
        knowledge = self.knowledge(batch) if revise else None
        return self.chain(self.encode(batch), batch, self.prior_of(batch), knowledge, draws, hard)

    def frame_probabilities(self, batch: Batch, draws: Draws | None = None, revise: bool = False) -> Tensor:
        """r(t|z) at the mean of z (or at a sampled z), [B, M, K]; revised with the batch's labels if asked."""
        if self.residual.is_zero(draws, revise):  # then the network need not be computed
            return torch.softmax(self.log_prior(batch), dim=-1)
        latents = self.latents_of(batch, draws, revise=revise)
        proposed = torch.softmax(latents.logits, dim=-1)
        if not revise:
            return proposed
        empirical, observed, strength, belief = self.knowledge(batch)
        return bottleneck.revise(proposed, bottleneck.label_posterior(proposed, empirical, belief), observed, strength)

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Events [B, M, d_z + d_t]: [μ_m; e_m]; documents: their mean over the document's events."""
        latents = self.latents_of(batch)
        events = torch.cat([latents.mean, latents.embedded], dim=-1)
        return ops.masked_mean(events, batch.mask), events

    # ---- generation, the bound, inspection ---------------------------------------------------------------------

    def frame_prior(self) -> Tensor:
        """p(t_m = k) = E_{z~N(0,I)} r(t|z), [M, K], over a fixed set of draws.

        No predicate is known before any text is read, so the base distribution of the counts is used.
        """
        z = torch.randn(PRIOR_DRAWS, self.network.latent, generator=torch.Generator().manual_seed(0))
        base = self.log_base if self.objective.prior != "none" else 0.0
        proposals = [cast(_LatentWeights, weights).propose(z.to(self.device)) for weights in self.latents]
        proposed = [torch.softmax(logits.float() + base, dim=-1).mean(0) for logits in proposals]
        return torch.stack(proposed).expand(self.sizes.events, -1)

    def inspect_latents(self, batches: Iterable[Batch]) -> dict[str, Any]:
        """`z`: for each unit the variance of μ over the events and the KL to N(0,1), and the number of active units."""
        means, divergence, events = [], torch.zeros(()), 0
        for batch in batches:
            latents = self.latents_of(batch)
            mean, log_variance = latents.mean[batch.mask].double(), latents.log_variance[batch.mask].double()
            means.append(mean.cpu())
            divergence = divergence + (0.5 * (mean**2 + log_variance.exp() - 1 - log_variance)).sum(0).cpu()
            events += len(mean)
        variance = torch.cat(means).var(0, correction=0)
        units = {
            "units": len(variance),
            "active": int((variance > ACTIVE).sum()),
            "threshold": ACTIVE,
            "variance": variance.tolist(),
            "kl": (divergence / events).tolist(),
        }
        return {"z": units}


def _repeat(copies: int, batch: Batch, *tensors: Tensor) -> tuple[Any, ...]:
    """Repeat each document `copies` times, copies adjacent."""
    fields: dict[str, Any] = {
        name: value.repeat_interleave(copies, 0) if isinstance(value, Tensor) and value.dim() else value
        for name, value in batch.parts().items()
    }
    return (Batch(**fields), *(tensor.repeat_interleave(copies, 0) for tensor in tensors))
