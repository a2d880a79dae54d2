"""What is seen of the frames during training: observation ε, noise η, soft labels, confidence, pooled counts.

The reference frame of an event is for scoring; what a model may learn from is *side knowledge*: whether anything is
seen (l_m), and what (p_D(t|x)). Both are drawn here, once per corpus, from a seed and the event's identity alone:

    seen_m   ~ Bernoulli(ε)          wrong_m ~ Bernoulli(η)          replacement_m ~ Uniform(K)

so a draw does not depend on order, batch size, windows or number of workers, ε and η act together, and a larger ε
(or η) under the same seed only adds to what a smaller one shows (or spoils).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.errors import RevupError

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Keys = NDArray[np.uint64]

_SEEN, _WRONG, _REPLACEMENT = 1, 2, 3  # streams of random numbers, one per question asked of an event


def document_key(identity: str) -> int:
    """64 bits that stand for a document's id, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def event_keys(document_keys: Keys, indices: NDArray[Any]) -> Keys:
    """64 bits for each event: its document's key mixed with its index in the original document."""
    with np.errstate(over="ignore"):
        return _mix(document_keys.astype(np.uint64) + _mix(indices.astype(np.uint64) + np.uint64(1)))


def uniforms(keys: Keys, seed: int, stream: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each key, a pure function of key, seed and stream."""
    salt = document_key(f"{seed}/{stream}")
    with np.errstate(over="ignore"):
        return (_mix(keys ^ np.uint64(salt)) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: Keys) -> Keys:
    """splitmix64's finaliser: every output bit depends on every input bit."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True)
class Observation:
    """How much of the knowledge is seen and how much of that is wrong."""

    epsilon: float = 1.0
    eta: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epsilon", "eta"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:  # also catches NaN
                raise RevupError(f"{name}: expected a number from 0 to 1, found {value}")


@dataclass(frozen=True)
class Seen:
    """Side knowledge as a model gets it, for events of shape [...]: a sparse distribution over frames each.

    frames [..., W] and weights [..., W]: p_D(t|x), weights summing to 1 where something is seen and 0 elsewhere;
    observed [...]: l_m; confidence [...]: what scales λ.
    """

    frames: Ints
    weights: Floats
    observed: NDArray[np.bool_]
    confidence: Floats


def observe(
    keys: Keys, frames: Ints, weights: Floats, confidence: Floats, classes: int, observation: Observation
) -> Seen:
    """Draw what is seen. frames, weights [..., W]: all there is to know, weight 0 where there is nothing."""
    known = weights.sum(-1) > 0
    observed = known & (uniforms(keys, observation.seed, _SEEN) < observation.epsilon)
    wrong = observed & (uniforms(keys, observation.seed, _WRONG) < observation.eta)
    shown = np.where(observed[..., None], frames, 0).astype(np.int32)
    share = np.where(observed[..., None], weights, 0).astype(np.float32)
    if wrong.any():
        replacement = (uniforms(keys, observation.seed, _REPLACEMENT) * classes).astype(np.int32)
        shown[wrong] = 0
        share[wrong] = 0
        shown[..., 0][wrong] = replacement[wrong]
        share[..., 0][wrong] = 1
    total = share.sum(-1, keepdims=True)
    share = np.divide(share, total, out=share, where=total > 0)
    return Seen(shown, share, observed, np.where(observed, confidence, 0).astype(np.float32))


@dataclass(frozen=True)
class Pooled:
    """Seen frames pooled over groups of events (all events of one predicate, say), with the wrong ones discounted.

    counts [G, K]: how many labels of each class a group is believed to have truly; base [K]: the overall share of
    each class; noise_rate: the estimated share of wrong labels among those seen.
    """

    counts: Floats
    base: Floats
    noise_rate: float


def pool(
    groups: NDArray[Any],
    seen: Seen,
    classes: int,
    rows: int,
    noise_rate: float | None = None,
    smoothing: float = 0.3,
    iterations: int = 60,
) -> Pooled:
    """Pool what is seen over groups, and estimate how much of it is wrong (unless `noise_rate` is given).

    A label y seen in group g is genuine, from the group's own distribution θ_g, or wrong, uniform over K:

        p(y|g) = (1−ρ) θ_g[y] + ρ/K,      θ_g = (C_g + a·base) / (N_g + a)

    EM over this mixture gives each label's probability of being genuine, the counts C of genuine labels and ρ. Each
    label is judged by the *others* of its group (its own contribution left out), otherwise every label that occurs
    once would explain itself and ρ would come out as 0.
    """
    where = seen.observed
    cells = np.concatenate(
        [
            np.stack([groups[where], seen.frames[..., w][where], seen.weights[..., w][where]]).astype(np.float64)
            for w in range(seen.frames.shape[-1])
        ],
        axis=1,
    )
    flat, inverse = np.unique(cells[0].astype(np.int64) * classes + cells[1].astype(np.int64), return_inverse=True)
    group, label = flat // classes, flat % classes
    amount = np.bincount(inverse, cells[2], minlength=len(flat))
    keep = amount > 0
    group, label, amount = group[keep], label[keep], amount[keep]
    counts = np.zeros((rows, classes), np.float32)
    if not len(amount):
        return Pooled(counts, np.full(classes, 1 / classes, np.float32), noise_rate or 0.0)

    rho = 0.2 if noise_rate is None else noise_rate
    genuine = np.full(len(amount), 1 - rho)
    for _ in range(iterations):
        believed = genuine * amount
        base = np.bincount(label, believed, minlength=classes) + 1.0 / classes
        base /= base.sum()
        total = np.bincount(group, believed, minlength=rows)[group]
        own = np.minimum(genuine, believed)
        share = (believed - own + smoothing * base[label]) / (total - own + smoothing)
        genuine = (1 - rho) * share / np.maximum((1 - rho) * share + rho / classes, 1e-30)
        if noise_rate is None:
            rho = float(np.clip(1 - (genuine * amount).sum() / amount.sum(), 1e-4, 1 - 1e-4))
    counts[group, label] = genuine * amount
    return Pooled(counts, base.astype(np.float32), rho)
