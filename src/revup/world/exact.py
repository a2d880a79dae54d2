"""Exact inference in hidden Markov chains over frames, one chain for each scenario.

Shapes: n documents of one length, S scenarios of F frames each, K frames in all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Chains:
    """The scenarios' chains: p(s) [S], π_s [S, F], A_s [S, F, F], and which frames a scenario has [S, F]."""

    def __init__(self, probs: Floats, initial: Floats, transitions: Floats, members: Ints, frames: int) -> None:
        self.probs, self.initial, self.transitions, self.frames = probs, initial, transitions, frames
        # the (scenario, frame) pairs in the order of their frames, and where each frame's begin
        flat = members.ravel()
        self._order = np.argsort(flat, kind="stable")
        self._starts = np.searchsorted(flat[self._order], np.arange(frames))

    def by_frame(self, values: Floats) -> Floats:
        """Sum values of (scenario, frame) pairs [..., S, F] over the scenarios that share a frame, [..., K]."""
        flat = values.reshape(*values.shape[:-2], -1)[..., self._order]
        return np.asarray(np.add.reduceat(flat, self._starts, axis=-1))

    def frame_probs(self, events: int) -> Floats:
        """Return p(t) of an event anywhere in a document of so many events, [K]."""
        now = self.probs[:, None] * self.initial
        total = np.zeros_like(now)
        for _ in range(events):
            total += now / events
            now = np.einsum("sf,sfg->sg", now, self.transitions)
        return self.by_frame(total)

    def forward(self, emissions: list[Floats]) -> tuple[Floats, list[Floats]]:
        """Run the forward recursion.

        α is normalised within each scenario and log p(x|s) kept apart, so that nothing underflows in long documents.

        Args:
            emissions: p(x_m|t,s) of every event, [n, S, F] each.

        Returns:
            log p(s, x) [n, S], and α_m(t) for every event, [n, S, F] each.
        """
        joint = np.tile(np.log(self.probs), (len(emissions[0]), 1))
        alphas: list[Floats] = []
        for emission in emissions:
            alpha = emission * (_step(alphas[-1], self.transitions) if alphas else self.initial)
            scale = alpha.sum(axis=-1)
            with np.errstate(divide="ignore"):
                joint += np.log(scale)
            alphas.append(alpha / np.where(scale > 0, scale, 1.0)[..., None])
        return joint, alphas

    def posterior(self, emissions: list[Floats]) -> tuple[Floats, Floats]:
        """Return log p(x) [n] and p(t_m|x) [n, M, K]; the posterior of an impossible document is 0 (log p(x) = −∞)."""
        joint, alphas = self.forward(emissions)
        log_probs = log_sum_exp(joint)
        scenario_posterior = np.exp(joint - np.where(np.isneginf(log_probs), 0.0, log_probs)[:, None])
        posterior = np.zeros((len(joint), len(emissions), self.frames))
        beta = np.ones_like(alphas[0])
        for m in reversed(range(len(emissions))):
            gamma = alphas[m] * beta
            total = gamma.sum(axis=-1)
            gamma *= (scenario_posterior / np.where(total > 0, total, 1.0))[..., None]
            posterior[:, m] = self.by_frame(gamma)
            beta = _step(beta * emissions[m], self.transitions.transpose(0, 2, 1))
            beta /= np.maximum(beta.max(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
        return log_probs, posterior


def _step(message: Floats, transitions: Floats) -> Floats:
    """Σ_u message[n, s, u] · transitions[s, u, t] → [n, S, F]."""
    return np.asarray(np.matmul(message.transpose(1, 0, 2), transitions).transpose(1, 0, 2))


def log_sum_exp(terms: Floats) -> Floats:
    """log Σ_j exp(terms[i, j]), also where all of a row are −inf."""
    top = terms.max(axis=1)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(terms - top[:, None]).sum(axis=1)) + top)
