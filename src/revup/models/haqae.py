"""HAQAE: an autoencoder whose latents are a chain of codes, each the nearest neighbour in its own codebook.

For a document x, with e_0 a summary of x, and for m = 1..M, with M the maximum number of events of a document:

    v_m = A_m(e_{m−1}, H)                         attention over the encoder's states H, queried by the parent's value
    k_m = argmin_k ‖v_m − C_m[k]‖                 the code; C_m is latent m's own codebook
    e_m = C_m[k_m], passed on as v_m + sg(e_m − v_m)   straight-through gradient to v_m
    y ~ decoder(e_1..e_M)

    L = L_y + mean_m ‖sg(v_m) − e_m‖²                         codebook: codes move to their assigned v
          + 0.25 mean_m ‖v_m − sg(e_m)‖²                      commitment: v stays near its code
          + 0.15 mean_{m>1} ‖A_m(e_{m−1}, sg(H)) − sg(e_m)‖²  parent commitment

sg stops the gradient. In the last term e_{m−1} is the parent's codebook row itself, so the parent's code is trained to
retrieve its child's code when used as a query; the straight-through gradient bypasses the codebooks and gives no such
signal. This follows the authors' code. No frames are used or predicted, and a latent does not correspond to an event
unless `network.attention` is confined.

Codes that are never the nearest get no gradient. `revive` = n moves a code that was not used for n steps to the v of a
random document of the batch; all codes are initialised in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from revup import ops
from revup.data.batches import Batch
from revup.fields import check, setting
from revup.models.autoencoder import Autoencoder
from revup.models.base import Loss, Memory
from revup.models.layers import Attention, Decoder, Encoder, event_tokens, shifted, word_embedding
from revup.models.network import AS_PUBLISHED, DEFAULT, Architecture, Sizes
from revup.models.randomness import Draws


@dataclass(frozen=True)
class Objective:
    """Weights of the loss terms, and the codebooks."""

    codes: int = setting(512, "codes in each codebook", minimum=2)
    codebook: float = setting(1.0, "weight of the codebook loss", minimum=0)
    commitment: float = setting(0.25, "weight of the commitment loss", minimum=0)
    parent_commitment: float = setting(0.15, "weight of the parent commitment loss", minimum=0)
    revive: int = setting(20, "steps without use after which a code is moved to a random latent; 0: never", minimum=0)

    def __post_init__(self) -> None:
        check(self, "objective")


_CHAIN: dict[str, Any] = {**AS_PUBLISHED, "frame": 256}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    # the aligned decoder as in RevUp's `default`; the chain is that of the paper
    "default": {**DEFAULT, "network": {**DEFAULT["network"], **_CHAIN, "beyond": True, "aligned": True}},
    "paper": {"network": _CHAIN, "objective": {"revive": 0}},
    "released": {"network": {**_CHAIN, "input_feeding": True}, "objective": {"revive": 0}},
}


@dataclass
class Latents:
    """The chain of latents before and after quantisation."""

    asked: Tensor  # v [B, M, d], before quantisation
    codes: Tensor  # k [B, M], numbers of the nearest codes
    quantised: Tensor  # e as codebook rows [B, M, d], with gradient to the codebooks
    passed: Tensor  # e with straight-through gradient to v [B, M, d]
    from_parent: Tensor  # A_m(e_{m−1}, sg(H)) [B, M, d]; equals v for m = 1


class HAQAE(Autoencoder):
    """The module: encoder, the chain of codes, decoder."""

    predicts_frames = False
    objective: Objective
    idle: Tensor

    def __init__(self, sizes: Sizes, network: Architecture, objective: Objective) -> None:
        super().__init__(sizes, network, objective)
        m, c, d = sizes.events, objective.codes, network.frame
        self.words = word_embedding(sizes.words, network.embedding)
        self.encoder = Encoder(network)
        self.first_query = nn.Linear(self.encoder.size, d)
        self.attention = nn.ModuleList(Attention(d, self.encoder.size, d) for _ in range(1 if network.shared else m))
        self.codebooks = nn.Parameter((2 * torch.rand(m, c, d) - 1) * (6 / (c + d)) ** 0.5)  # Glorot uniform
        self.decoder = Decoder(network, d)
        self.vocabulary = nn.Linear(network.hidden, sizes.words)
        self.register_buffer("idle", torch.full((m, c), objective.revive))  # steps since each code was last used

    # ---- inference -----------------------------------------------------------------------------------------------

    def there(self, batch: Batch) -> Tensor:
        """Mask of latents [B, M]: all of them, or with confined attention those whose event exists."""
        return batch.mask if self.network.attention == "confined" else torch.ones_like(batch.mask)

    def chain(self, batch: Batch, draws: Draws | None = None, reviving: bool = False) -> Latents:
        """Run the chain. Only dropout and the new positions of revived codes are random."""
        states: Tensor = self.encoder(self.words, batch, draws)
        there = self.there(batch)
        confined = self.network.attention == "confined"
        memory = event_tokens(states) if confined else states
        mask = batch.mask.new_ones(len(states), memory.shape[2]) if confined else batch.token_mask
        query = ops.linear(self.first_query, ops.masked_mean(states, batch.token_mask))
        parent: Tensor | None = None
        kept: dict[str, list[Tensor]] = {name: [] for name in Latents.__dataclass_fields__}
        for i in range(self.sizes.events):
            looked_at = memory[:, i] if confined else memory
            attend = self.attention[0 if self.network.shared else i]
            asked = attend(query.unsqueeze(1), looked_at, mask)[0].squeeze(1).float()
            if reviving and draws is not None:
                self._revive(i, asked, there[:, i], batch, draws)
            codes = nearest(asked, self.codebooks[i])
            if reviving:
                self._mark_used(i, codes, there[:, i])
            quantised = self.codebooks[i][codes]
            from_parent = asked
            if parent is not None:
                from_parent = attend(parent.unsqueeze(1), looked_at.detach(), mask)[0].squeeze(1).float()
            query, parent = straight_through(asked, quantised), quantised
            for name, value in zip(kept, (asked, codes, quantised, query, from_parent), strict=True):
                kept[name].append(value)
        return Latents(**{name: torch.stack(values, dim=1) for name, values in kept.items()})

    @torch.no_grad()
    def _revive(self, i: int, asked: Tensor, there: Tensor, batch: Batch, draws: Draws) -> None:
        """Move idle codes of latent i to the v of random documents of the whole batch, identically in all processes."""
        shape = (self.objective.codes,)
        document = torch.randint(batch.documents, shape, generator=draws.generator, device=draws.generator.device)
        local = document - (batch.rows.start or 0)
        mine = (local >= 0) & (local < len(asked))
        local = local.clamp(0, len(asked) - 1)
        mine = mine & there[local]
        found = _over_processes(torch.cat([asked[local], asked.new_ones(len(local), 1)], dim=1) * mine.unsqueeze(1))
        dead = (self.idle[i] >= self.objective.revive) & (found[:, -1] > 0)
        self.codebooks[i] = torch.where(dead.unsqueeze(1), found[:, :-1], self.codebooks[i])

    @torch.no_grad()
    def _mark_used(self, i: int, codes: Tensor, there: Tensor) -> None:
        used = torch.zeros(self.objective.codes, device=codes.device).index_add_(0, codes, there.float())
        self.idle[i] = torch.where(_over_processes(used) > 0, 0, self.idle[i] + 1)

    # ---- learning ------------------------------------------------------------------------------------------------

    def forward(self, batch: Batch, draws: Draws) -> Loss:
        """The loss of a batch, divided by the whole batch's counts."""
        o = self.objective
        reviving = o.revive > 0 and self.training and torch.is_grad_enabled()
        latents = self.chain(batch, draws, reviving)
        there = self.there(batch).float()
        count = batch.events if self.network.attention == "confined" else batch.documents * self.sizes.events
        children = count - batch.documents
        children = children.clamp_min(1) if isinstance(children, Tensor) else max(children, 1)
        asked, quantised = latents.asked, latents.quantised
        parent = _distance(latents.from_parent, quantised.detach()) * there
        terms = {
            "reconstruction": self._decode(batch, latents.passed, batch.events * 5)[0],
            "codebook": (_distance(asked.detach(), quantised) * there).sum() / count,
            "commitment": (_distance(asked, quantised.detach()) * there).sum() / count,
            "parent_commitment": parent[:, 1:].sum() / children,
        }
        total = terms["reconstruction"] + o.codebook * terms["codebook"] + o.commitment * terms["commitment"]
        total = total + o.parent_commitment * terms["parent_commitment"]
        return Loss(total, {name: term.detach() for name, term in terms.items()})

    def _decode(self, batch: Batch, memory: Tensor, count: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        states = self.decoder(ops.embed(self.words, shifted(batch.tokens)), memory, self.there(batch))
        return ops.vocabulary_loss(states, self.vocabulary, batch.tokens, batch.token_mask, count)

    # ---- embeddings and text -------------------------------------------------------------------------------------

    def embed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Latents [B, M, 2d]: [v_m; e_m]; documents [B, 2d]: their mean."""
        latents = self.chain(batch)
        events = torch.cat([latents.asked, latents.quantised], dim=-1)
        return ops.masked_mean(events, self.there(batch)), events

    def memory(self, batch: Batch, draws: Draws | None = None, hard: bool = False) -> Memory:
        """e_1..e_M. Nothing is sampled: a code is always the nearest one."""
        return Memory(self.chain(batch).passed, self.there(batch))

    def sample_memory(self, generators: Sequence[np.random.Generator]) -> tuple[Memory, list[list[int]]]:
        """Draw every code from a uniform prior."""
        events, codes = self.codebooks.shape[:2]
        numbers = [generator.integers(codes, size=events).tolist() for generator in generators]
        return Memory.full(self.codebooks[torch.arange(events), torch.tensor(numbers)]), numbers

    def sample_latents(self, batch: Batch, draws: Sequence[Draws]) -> Iterator[tuple[Memory, Tensor]]:
        """The codes of the text, once: inference is deterministic, so log q = 0 and log p = −log C per latent."""
        memory = self.memory(batch)
        yield memory, -memory.mask.sum(1) * math.log(self.objective.codes)

    @torch.no_grad()
    def inspect_latents(self, batches: Iterable[Batch]) -> dict[str, Any]:
        """`codes`: for each latent the share of its codes in use, and the perplexity exp(H) of their use."""
        counts = self.codebooks.new_zeros(self.sizes.events, self.objective.codes)
        for batch in batches:
            counts.scatter_add_(1, self.chain(batch).codes.T, self.there(batch).T.to(counts.dtype))
        shares = counts / counts.sum(1, keepdim=True).clamp_min(1)
        entropy = -(shares * shares.clamp_min(1e-30).log()).sum(1)
        used = (counts > 0).to(counts.dtype).mean(1)
        return {"codes": {"codes_used": used.tolist(), "code_perplexity": entropy.exp().tolist()}}


def nearest(asked: Tensor, codebook: Tensor) -> Tensor:
    """The nearest code to each v: argmin_k ‖v − C[k]‖, [B, d], [C, d] → [B]."""
    with torch.no_grad(), torch.autocast(asked.device.type, enabled=False):
        return (codebook.square().sum(1) - 2 * asked @ codebook.t()).argmin(1)


def straight_through(asked: Tensor, quantised: Tensor) -> Tensor:
    """The value of `quantised` with the gradient of `asked`."""
    return asked + (quantised - asked).detach()


def _distance(a: Tensor, b: Tensor) -> Tensor:
    """‖a − b‖² over the last dimension."""
    return (a - b).square().sum(-1)


def _over_processes(values: Tensor) -> Tensor:
    """Sum over the processes of a distributed run; the identity for a single process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(values)
    return values
