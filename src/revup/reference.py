"""RevUp as it was published: slow, obvious, what fast paths are measured and checked against.

The decoder walks over the tokens one by one, and what it attended to at one token is part of its input at the next
(input feeding); the logits of all tokens over the whole vocabulary are held at once; Adam updates one parameter after
another; all of it in float32. The function is that of `RevUp` with the preset `released`, whose weights it loads:

    for m = 1..M:    a_m = tanh(W [Σ_i s_i h_i; e_{m−1}]),   s = softmax over tokens of e_{m−1}ᵀ A h_i / √d
                     z_m = μ(a_m) + σ(a_m)·noise,   r_m = softmax(γ_m),   γ_m = linear(z_m)
                     t_m = softmax((γ_m + g)/τ) with probability λ̂, else a sample of p_D;   e_m = t_mᵀ E
    for i = 1..T:    o_i, state = GRU([word_{i−1}; o_{i−1}], state), then attention over e_1..e_M
                     log p(word_i) = log softmax(W o_i + b)

    L = mean −log p(word) + Σ_m [ c·(−(1−λ̂) E_{p_D} log r) + w·(−H(revised) ± H(r)) + β·l_m·KL(N(μ,σ) ‖ N(0,I)) ]

with + where a frame is observed and − where not. Nothing here is shared with the fast paths but the weights' names,
the objective's numbers and the source of randomness.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from revup.data.batches import Batch
from revup.data.encode import BOS, PAD, TOKENS
from revup.models.base import Loss
from revup.models.network import Architecture, Sizes
from revup.models.randomness import Draws
from revup.models.revup import PRESETS, Objective


class Reference(nn.Module):
    """The published model, step by step. Its state dict is that of a RevUp of the same sizes."""

    def __init__(self, sizes: Sizes, network: Architecture) -> None:
        super().__init__()
        self.sizes, self.network = sizes, network
        self.objective = Objective(**PRESETS["released"]["objective"])
        words, hidden, frame = network.embedding, network.hidden, network.frame
        latent, memory = network.latent, 2 * hidden
        self.words = nn.Embedding(sizes.words, words, padding_idx=PAD)
        encoder = nn.GRU(words, hidden, network.layers, bidirectional=True, batch_first=True)
        self.encoder = nn.ModuleDict({"rnn": encoder})
        self.first_query = nn.Linear(memory, frame)
        self.latents = nn.ModuleList(
            nn.ModuleDict(
                {
                    "attention": _attention(frame, memory, hidden),
                    "gaussian": nn.Linear(hidden, 2 * latent),
                    "propose": nn.Linear(latent, sizes.classes),
                }
            )
            for _ in range(sizes.events)
        )
        self.frames = nn.Parameter(torch.randn(sizes.classes, frame) * frame**-0.5)  # E
        self.decoder = nn.ModuleDict(
            {
                "rnn": nn.GRU(words + hidden, hidden, network.layers, batch_first=True),
                "initial": nn.Linear(frame, network.layers * hidden),
                "attention": _attention(hidden, frame, hidden),
            }
        )
        self.vocabulary = nn.Linear(hidden, sizes.words)

    def forward(self, batch: Batch, draws: Draws) -> Loss:
        """The loss of a batch."""
        observed, strength = batch.observed, self.objective.strength * batch.confidence
        keep = 1 / (1 + strength * observed)  # λ̂ [B, M]
        empirical = torch.zeros(*batch.mask.shape, self.sizes.classes, device=batch.tokens.device)
        empirical.scatter_add_(-1, batch.frames, batch.weights)  # p_D [B, M, K]

        events = self._sawtooth(batch, empirical, keep, draws)
        memory = torch.stack([event["embedded"] for event in events], dim=1)
        terms = {"reconstruction": self._reconstruction(batch, memory)}
        for name in ("classification", "entropy", "z"):
            terms[name] = torch.zeros((), device=batch.tokens.device)
        for m, event in enumerate(events):
            seen, there = observed[:, m], batch.mask[:, m].float() / batch.documents
            proposed = torch.softmax(event["logits"], dim=-1)
            revised = keep[:, m, None] * proposed + (1 - keep[:, m, None]) * empirical[:, m]
            surprise = -(empirical[:, m] * torch.log_softmax(event["logits"], dim=-1)).sum(-1)
            variance = event["log_variance"].exp()
            z = 0.5 * (event["mean"] ** 2 + variance - 1 - event["log_variance"]).sum(-1)
            entropy = -_entropy(revised) + torch.where(seen > 0, 1.0, -1.0) * _entropy(proposed)
            terms["classification"] = terms["classification"] + ((1 - keep[:, m]) * surprise * seen * there).sum()
            terms["entropy"] = terms["entropy"] + (entropy * there).sum()
            terms["z"] = terms["z"] + (z * seen * there).sum()

        share, weight = batch.observed_share, self.objective.weight
        total = terms["reconstruction"] + self.objective.classification * terms["classification"]
        total = total + weight("entropy", share) * terms["entropy"] + weight("beta", share) * terms["z"]
        return Loss(total, {name: term.detach() for name, term in terms.items()})

    def _sawtooth(self, batch: Batch, empirical: Tensor, keep: Tensor, draws: Draws) -> list[dict[str, Tensor]]:
        """z_m, t_m and e_m of one event after another, each event with weights of its own."""
        token_mask = batch.mask.repeat_interleave(TOKENS, dim=1)
        states, _ = self.encoder["rnn"](self.words(batch.tokens * token_mask))
        noise = draws.normal(self.sizes.events, self.network.latent)
        uniform = draws.uniform(self.sizes.events, self.sizes.classes)
        coin = draws.uniform(self.sizes.events)
        there = token_mask.unsqueeze(-1).float()
        query = self.first_query((states * there).sum(1) / there.sum(1).clamp_min(1))
        events = []
        for m in range(self.sizes.events):
            weights: Any = self.latents[m]
            attended = _attend(weights["attention"], query, states, token_mask)
            mean, log_variance = weights["gaussian"](attended).chunk(2, dim=-1)
            log_variance = log_variance.clamp(-12, 6)
            logits = weights["propose"](mean + torch.exp(log_variance / 2) * noise[:, m])
            gumbel = -torch.log(-torch.log(uniform[:, m].clamp(1e-38, 1 - 2**-24)))
            soft = torch.softmax((logits + gumbel) / self.objective.temperature, dim=-1)
            known = (torch.log(empirical[:, m]) + gumbel).argmax(-1)
            hard = nn.functional.one_hot(known, self.sizes.classes).float()
            frame = torch.where((coin[:, m] < keep[:, m])[:, None], soft, hard)
            query = frame @ self.frames
            events.append({"logits": logits, "mean": mean, "log_variance": log_variance, "embedded": query})
        return events

    def _reconstruction(self, batch: Batch, memory: Tensor) -> Tensor:
        """−log p of each token, the mean over the tokens that exist."""
        documents, length = batch.tokens.shape
        layers, hidden = self.network.layers, self.network.hidden
        state = torch.tanh(self.decoder["initial"](memory[:, 0])).view(documents, layers, hidden)
        state = state.transpose(0, 1).contiguous()
        word = torch.full_like(batch.tokens[:, 0], BOS)
        attended = memory.new_zeros(documents, hidden)
        logits = []
        for i in range(length):
            step = torch.cat([self.words(word), attended], dim=-1)
            out, state = self.decoder["rnn"](step.unsqueeze(1), state)
            attended = _attend(self.decoder["attention"], out.squeeze(1), memory, batch.mask)
            logits.append(self.vocabulary(attended))
            word = batch.tokens[:, i]
        log_probabilities = torch.log_softmax(torch.stack(logits, dim=1), dim=-1)  # [B, T, V]
        nll = -log_probabilities.gather(-1, batch.tokens.unsqueeze(-1)).squeeze(-1)
        return (nll * batch.mask.repeat_interleave(TOKENS, dim=1)).sum() / (batch.events * TOKENS)


def _attention(query: int, memory: int, out: int) -> nn.ModuleDict:
    return nn.ModuleDict({"score": nn.Linear(query, memory, bias=False), "out": nn.Linear(memory + query, out)})


def _attend(weights: Any, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """query [B, q] looks at memory [B, T, d] where mask [B, T] is true → [B, out]."""
    scores = (weights["score"](query).unsqueeze(1) * memory).sum(-1) / memory.shape[-1] ** 0.5
    chosen = torch.softmax(scores.masked_fill(~mask, -1e9), dim=-1)
    context = (chosen.unsqueeze(-1) * memory).sum(1)
    attended: Tensor = torch.tanh(weights["out"](torch.cat([context, query], dim=-1)))
    return attended


def _entropy(probabilities: Tensor) -> Tensor:
    terms: Tensor = torch.special.xlogy(probabilities, probabilities)
    return -terms.sum(-1)


def reference_optimiser(module: nn.Module, learning_rate: float = 1e-3) -> torch.optim.Adam:
    """Adam, one parameter after another."""
    return torch.optim.Adam(module.parameters(), lr=learning_rate, foreach=False, fused=False)


def reference_step(module: Reference, optimiser: torch.optim.Adam, batch: Batch, draws: Draws) -> Tensor:
    """One step of training; return the loss. The published code does not clip."""
    optimiser.zero_grad()
    loss: Tensor = module(batch, draws).total
    loss.backward()
    optimiser.step()
    return loss.detach()
