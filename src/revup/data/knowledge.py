"""Side knowledge in training: observation probability ε, noise rate η, soft labels, confidence, pooled counts.

The reference frame of an event is for scoring. A model learns from *side knowledge*: whether a label is observed (l_m),
and the label p_D(t|x). Both are drawn here, once per corpus, from a seed and the event's identity alone:

    observed_m ~ Bernoulli(ε)          wrong_m ~ Bernoulli(η)          replacement_m ~ Uniform(K)

So a draw does not depend on order, batch size, windows or number of workers; ε and η act independently; and under one
seed, a larger ε (or η) observes (or corrupts) a superset of the labels of a smaller one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.fields import check, setting

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Keys = NDArray[np.uint64]

_SEEN, _WRONG, _REPLACEMENT = 1, 2, 3  # streams of random numbers, one for each draw of an event


def document_key(identity: str) -> int:
    """Return a 64-bit hash of a document's id, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def event_keys(document_keys: Keys, indices: NDArray[Any]) -> Keys:
    """Return a 64-bit hash of each event: its document's key mixed with its index in the original document."""
    with np.errstate(over="ignore"):
        return _mix(document_keys.astype(np.uint64) + _mix(indices.astype(np.uint64) + np.uint64(1)))


def uniforms(keys: Keys, seed: int, stream: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each key, a pure function of key, seed and stream.

    Args:
        keys: Hashes [...].
        seed: The seed of the draw.
        stream: Which of several independent draws of one seed.
    """
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
    """Which of the labels are observed in training, and how many of those are corrupted."""

    epsilon: float = setting(
        1.0, "observation probability ε: share of the labels that training sees", minimum=0, maximum=1
    )
    eta: float = setting(
        0.0, "noise rate η: share of the observed labels that is replaced by random frames", minimum=0, maximum=1
    )
    seed: int = setting(0, "seed of all randomness", minimum=0, maximum=2**63 - 1)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Seen:
    """Side knowledge as a model gets it, for events of shape [...]: a sparse distribution over frames each.

    frames, weights [..., W]: p_D(t|x), with weights that sum to 1 where a label is observed and to 0 elsewhere;
    observed [...]: l_m; confidence [...]: scales λ.
    """

    frames: Ints
    weights: Floats
    observed: NDArray[np.bool_]
    confidence: Floats


def observe(
    keys: Keys, frames: Ints, weights: Floats, confidence: Floats, classes: int, observation: Observation
) -> Seen:
    """Draw which labels are observed, and replace some of them by random frames.

    Args:
        keys: Hashes of the events (`event_keys`) [...].
        frames, weights: All side knowledge [..., W], with weight 0 where there is none.
        confidence: Confidence of the side knowledge [...].
        classes: The number of frames (K).
        observation: ε, η and the seed.
    """
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
    """Observed labels pooled over groups of events (the events of one predicate, say), wrong ones discounted.

    counts [G, K]: expected number of genuine labels of each class in a group; base [K]: the distribution expected of a
    group without labels, by the number of groups that have each class (not by labels: one very frequent predicate says
    nothing about a new one); noise_rate: the estimated share of wrong labels among those observed.
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
    smoothing: float = 1.0,
    iterations: int = 60,
) -> Pooled:
    """Pool observed labels over groups and estimate how many of them are wrong.

    A label y observed in group g is genuine, from the group's own distribution θ_g, or wrong, uniform over K:

        p(y|g) = (1−ρ) θ_g[y] + ρ/K,      θ_g ~ Dirichlet(a·base),      a = smoothing

    EM over this mixture gives the expected counts C of genuine labels and ρ. θ_g is integrated out, not estimated: with
    a small `a` it is sparse, so that a few equal labels are evidence for a sense of the group and labels scattered over
    many classes are evidence for noise; an estimated θ_g would fit the noise, and ρ would be too low. Of the n labels y
    in g, k are genuine (negative binomial, once θ_g is integrated out) and n − k wrong (Poisson):

        p(k|n) ∝ Γ(k + a·base_y)/k! · (N/(N + a))^k · (ρ N_g/K)^(n−k)/(n−k)!,      N = (1−ρ) N_g

    Args:
        groups: The group of each event [...], from 0 to rows − 1.
        seen: The observed labels [...].
        classes: The number of classes (K).
        rows: The number of groups (G).
        noise_rate: ρ; estimated where absent.
        smoothing: The concentration a of the Dirichlet prior.
        iterations: The maximum number of EM iterations.
    """
    group, label, amount = _cells(groups, seen, classes)
    counts = np.zeros((rows, classes), np.float32)
    if not len(amount):
        return Pooled(counts, np.full(classes, 1 / classes, np.float32), noise_rate or 0.0)
    size = np.bincount(group, amount, minlength=rows)[group]  # N_g, for each cell
    cell, wrong, start = _ways(amount, size / classes)
    right = amount[cell] - wrong
    fixed = -_log_gamma(right + 1) - _log_gamma(wrong + 1)

    rho = 0.5 if noise_rate is None else noise_rate
    genuine = amount * (1 - rho)
    belongs = np.minimum(genuine, 1.0)  # the probability that a group has a class at all
    for _ in range(iterations):
        base = np.bincount(label, belongs, minlength=classes) + 1.0 / classes
        base /= base.sum()
        prior, believed = smoothing * base[label], size * (1 - rho)
        log_right = np.log(np.maximum(believed / (believed + smoothing), 1e-300))
        log_wrong = np.log(np.maximum(size * rho / classes, 1e-300))
        ways = fixed + _log_gamma(right + prior[cell]) + right * log_right[cell] + wrong * log_wrong[cell]
        share = np.exp(ways - np.maximum.reduceat(ways, start)[cell])
        share /= np.add.reduceat(share, start)[cell]
        before, genuine = genuine, np.add.reduceat(share * right, start)
        belongs = np.add.reduceat(share * (right > 0), start)
        if noise_rate is None:
            rho = float(np.clip(1 - genuine.sum() / amount.sum(), 1e-4, 1 - 1e-4))
        if np.abs(genuine - before).sum() < 1e-5 * amount.sum():
            break
    counts[group, label] = genuine
    return Pooled(counts, base.astype(np.float32), rho)


def _cells(groups: NDArray[Any], seen: Seen, classes: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return groups, their labels, and how often (for soft labels, with which total weight) each was observed."""
    where = seen.observed
    width = seen.frames.shape[-1]
    flat = groups[where].astype(np.int64)[:, None] * classes + seen.frames[where]
    keys, inverse = np.unique(flat.reshape(-1), return_inverse=True)
    amount = np.bincount(inverse.reshape(-1), seen.weights[where].reshape(-1, width).ravel(), minlength=len(keys))
    there = amount > 1e-9
    return keys[there] // classes, keys[there] % classes, amount[there]


def _ways(amount: NDArray[Any], noise: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Enumerate the numbers of wrong labels a cell may have: the cell of each, the number, and where each cell begins.

    Numbers more than ten standard deviations above `noise`, the mean if all labels were wrong, are left out.
    """
    most = np.ceil(np.minimum(amount, noise + 10 * np.sqrt(noise) + 10)).astype(np.int64)
    start = np.cumsum(most + 1) - (most + 1)
    cell = np.repeat(np.arange(len(amount)), most + 1)
    wrong = np.arange(len(cell)) - start[cell]
    return cell, np.minimum(wrong, amount[cell]), start


def _log_gamma(x: NDArray[Any]) -> NDArray[np.float64]:
    """Return log Γ(x) for x > 0 by Stirling's series, shifted up by eight, where it is exact to ten digits."""
    product = x.copy()
    for step in range(1, 8):
        product *= x + step
    y = x + 8
    series = 1 / (12 * y) - 1 / (360 * y**3) + 1 / (1260 * y**5)
    return np.asarray((y - 0.5) * np.log(y) - y + 0.5 * np.log(2 * np.pi) + series - np.log(product))
