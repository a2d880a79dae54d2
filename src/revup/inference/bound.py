"""A bound on log p(x) that can be compared with a language model's log-likelihood.

Reconstruction perplexity measures p(x|latents inferred from x): the latents have already read the text. The text's own
probability has to pay for them. The generative model is

    t_m ~ p(t)  (`generation.frame_prior`)          x ~ decoder(e_1..e_M), e_m = E[t_m]

and for any inference distribution q, here t_m ~ q(t_m | t_<m, x) with hard frames, in expectation over t_1..t_S ~ q,

    log p(x) ≥ log (1/S) Σ_s p(x|t_s) Π_m p(t_sm) / q(t_sm | t_s<m, x),

the importance-weighted bound: the usual evidence bound at S = 1, tighter the larger S is, exact in the limit.

RevUp: z only matters through t, so it is integrated out of the prior, p(t) = E_{z~N(0,I)} r(t|z), and inference takes
its mean, q(t_m|t_<m, x) = r(t|z = μ_m). Weights that keep z, N(z; 0, I)/q(z|x), give a valid bound too, looser by what
KL(q(z|x) ‖ N(0,I)) costs: at β = 10⁻⁶ tens of nats an event. SSDVAE: p(t) is uniform. HAQAE: inference is
deterministic and the prior over its L codes uniform, so log p(x) ≥ log p(x|codes) − L log C, whatever S. RNNLM:
log p(x) itself.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from revup.data.batches import Batch, Batches
from revup.data.corpus import Split
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.inference.generate import Memory, frame_prior, has_latents, text_nll
from revup.inference.measures import BATCH, draws_for, module_device
from revup.models.base import Draws


class _AtMean(Draws):
    """Randomness of the frames alone: z stays at its mean."""

    def normal(self, *shape: int) -> Tensor:
        return torch.zeros(self._shape(shape), device=self.generator.device)[self.rows].flatten(0, 1)


def _log_likelihood(module: Any, batch: Batch, memory: Memory) -> Tensor:
    """log p(x|latents) of each document, [B]."""
    return -(text_nll(module, batch.tokens, memory) * batch.token_mask).double().sum(1)


@torch.no_grad()
def log_bound(module: Any, batch: Batch, draws: list[Draws]) -> Tensor:
    """The bound on log p(x) of each document, [B], with as many samples as there are draws."""
    if not has_latents(module):
        return _log_likelihood(module, batch, Memory())
    if hasattr(module, "codebooks"):
        memory = Memory(*module.memory(batch))
        assert memory.mask is not None
        return _log_likelihood(module, batch, memory) - memory.mask.sum(1) * math.log(module.objective.codes)
    log_prior = frame_prior(module).double().log()
    states, counts = module.encode(batch), module.log_prior(batch, None)
    weights = []
    for each in draws:
        only_frames = _AtMean(each.generator, each.documents, each.rows)
        latents = module.chain(states, batch, counts, draws=only_frames, hard=True)
        drawn = latents.frames.argmax(-1, keepdim=True)  # [B, M, 1]
        inferred = torch.log_softmax(latents.logits.double(), dim=-1).gather(-1, drawn)
        prior = log_prior.expand(len(drawn), -1, -1).gather(-1, drawn)
        paid = ((prior - inferred).squeeze(-1) * batch.mask).sum(1)
        memory = Memory(module.frames[drawn.squeeze(-1)], batch.mask)
        weights.append(_log_likelihood(module, batch, memory) + paid)
    return torch.logsumexp(torch.stack(weights), dim=0) - math.log(len(weights))


def bound_split(module: Any, split: Split, samples: int, seed: int = 0) -> dict[str, float | None]:
    """`bound`: the mean over a split's windows of the bound on log p(x), in nats; `perplexity_bound`: the perplexity
    that it amounts to, which is never below that of the model itself. None for a model without text."""
    if samples < 1:
        raise RevupError(f"bound: expected 1 sample or more, found {samples}")
    if not module.has_text:
        return {"bound": None, "perplexity_bound": None}
    device = module_device(module)
    module.eval()
    total, tokens = 0.0, 0
    for number, batch in enumerate(Batches(split, Observation(0.0), BATCH, device).ordered()):
        draws = [draws_for(batch, number * samples + s, seed, device, "bound") for s in range(samples)]
        total += float(log_bound(module, batch, draws).sum())
        tokens += int(batch.token_mask.sum())
    return {"bound": total / len(split), "perplexity_bound": math.exp(min(-total / tokens, 700.0))}
