"""A bound on log p(x) that can be compared with a language model's log-likelihood.

Reconstruction perplexity measures p(x|latents inferred from x): the latents have already read the text. A bound on the
probability of the text itself accounts for them. With latents t ~ p(t), text x ~ decoder(t) and any inference
distribution q, in expectation over t_1..t_S ~ q(t|x),

    log p(x) ≥ log (1/S) Σ_s p(x|t_s) p(t_s) / q(t_s|x),

the importance-weighted bound: the usual evidence bound at S = 1, tighter the larger S is, exact in the limit. Each
model says what its latents are (`Model.sample_latents`), here hard frames t_m ~ q(t_m | t_<m, x).

RevUp: z only matters through t, so it is integrated out of the prior, p(t) = E_{z~N(0,I)} r(t|z), and inference takes
its mean, q(t_m|t_<m, x) = r(t|z = μ_m). Weights that keep z, N(z; 0, I)/q(z|x), give a valid bound too, looser by
KL(q(z|x) ‖ N(0,I)): at β = 10⁻⁶ tens of nats an event. SSDVAE: p(t) is uniform. HAQAE: inference is deterministic and
the prior over its L codes uniform, so log p(x) ≥ log p(x|codes) − L log C, whatever S. RNNLM: log p(x) itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from revup.data.batches import Batch
from revup.data.corpus import Split
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.inference.measures import BATCH, draws_for
from revup.models.base import Model
from revup.models.randomness import Draws


@torch.no_grad()
def log_bound(module: Model, batch: Batch, draws: Sequence[Draws]) -> Tensor:
    """The bound on log p(x) of each document, [B], with as many samples as there are draws."""
    weights = []
    for memory, log_ratio in module.sample_latents(batch, draws):
        likelihood = -(module.text_nll(batch.tokens, memory) * batch.token_mask).double().sum(1)
        weights.append(likelihood + log_ratio)
    return torch.logsumexp(torch.stack(weights), dim=0) - math.log(len(weights))


def bound_split(module: Model, split: Split, samples: int, seed: int = 0) -> dict[str, float | None]:
    """The bound over a split.

    Args:
        module: The model.
        split: The documents.
        samples: Importance samples for each document.
        seed: Seed of the samples.

    Returns:
        `bound`: the mean over the split's windows of the bound on log p(x), in nats; `perplexity_bound`: the perplexity
        that it amounts to, in expectation never below the model's own. Both None for a model that writes no text.
    """
    if samples < 1:
        raise RevupError(f"bound: expected 1 sample or more, found {samples}")
    if not module.writes_text:
        return {"bound": None, "perplexity_bound": None}
    module.eval()
    total, tokens = 0.0, 0
    for number, batch in enumerate(module.batches(split, Observation(0.0), BATCH).ordered()):
        draws = [draws_for(batch, number * samples + s, seed, module.device, "bound") for s in range(samples)]
        total += float(log_bound(module, batch, draws).sum())
        tokens += int(batch.token_mask.sum())
    return {"bound": total / len(split), "perplexity_bound": math.exp(min(-total / tokens, 700.0))}
