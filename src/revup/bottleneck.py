"""The paper's equations as pure tensor functions: revision, update, parameter injection, divergences.

    λ̂ = 1/(1+λl)                                 keep_probability
    p(t|x,z) = λ̂·r(t|z) + (1−λ̂)·p_D(t|x)        revise, log_revise, sample_revised
    L_I = KL(p(t|x,z) ‖ r(t|z))                   update_loss, update_terms
    ε̂ = 1 − ε·λ/(1+λ)                            expected_reliance
    γ + ‖γ‖·onehot                                injected_logits
    −E log Σ_k r_k·p(y|k)                         noisy_label_loss, log_likelihood, label_posterior

The names follow the paper: `proposed` is r(t|z) = softmax(logits), `empirical` is p_D(t|x), `observed` is l (1 or
True where side knowledge is observed, else 0), `strength` is λ, `temperature` is τ. Distributions are [..., K] and
per-event values [...]; leading dimensions broadcast. Half precision is computed and returned in float32; otherwise the
first argument determines the dtype. Random numbers are passed as arguments. No function synchronises with the device or
has shapes that depend on values, so all of them can be compiled and captured.
"""

from __future__ import annotations

import math
from typing import NamedTuple, overload

import torch
from torch import Tensor


def keep_probability(observed: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    """The share of the proposal in the revised distribution: λ̂ = 1/(1+λl).

    Args:
        observed: l, 1 where side knowledge is observed, else 0, [...].
        strength: λ; ∞ replaces the proposal by the side knowledge.

    Returns:
        λ̂, [...]; 1 where nothing is observed.
    """
    observed = _widened(observed)
    pull = torch.where(observed == 0, 0.0, strength * observed)  # ∞·0 would be NaN
    return 1.0 / (1.0 + pull)


def revise(proposed: Tensor, empirical: Tensor, observed: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    """Mix side knowledge into the proposal: λ̂·r(t|z) + (1−λ̂)·p_D(t|x).

    Args:
        proposed: The proposal r(t|z), [..., K].
        empirical: The side knowledge p_D(t|x), [..., K].
        observed: l, 1 where side knowledge is observed, else 0, [...].
        strength: λ, one number or one per event.

    Returns:
        The revised distribution, [..., K]; exactly the proposal where nothing is observed.
    """
    proposed = _widened(proposed)
    keep = _keep(observed, strength, proposed)
    return torch.lerp(empirical.to(proposed.dtype), proposed, keep)  # exactly r where λ̂ = 1


def log_revise(log_proposed: Tensor, empirical: Tensor, observed: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    """log(λ̂·r + (1−λ̂)·p_D) from log r, [..., K]; accurate even where r underflows. Arguments as in `revise`."""
    log_proposed = _widened(log_proposed)
    keep = _keep(observed, strength, log_proposed)
    log_empirical = _log(empirical.to(log_proposed.dtype))
    return torch.logaddexp(_log(keep) + log_proposed, _log(1.0 - keep) + log_empirical)


@overload
def expected_reliance(epsilon: float, strength: float = 1.0) -> float: ...
@overload
def expected_reliance(epsilon: Tensor, strength: float | Tensor = 1.0) -> Tensor: ...
@overload
def expected_reliance(epsilon: float, strength: Tensor) -> Tensor: ...
def expected_reliance(epsilon: float | Tensor, strength: float | Tensor = 1.0) -> float | Tensor:
    """The expected share of the proposal in the revised distribution: ε̂ = 1 − ε·λ/(1+λ).

    With l ~ Bern(ε), the expected revised distribution is ε̂·r + (1−ε̂)·p_D.

    Args:
        epsilon: The observation probability ε.
        strength: λ.

    Returns:
        ε̂; a tensor if either argument is one.
    """
    return 1.0 - epsilon * (1.0 - 1.0 / (1.0 + strength))  # λ/(1+λ), written so that λ = ∞ gives 1


def injected_logits(logits: Tensor, onehot: Tensor, observed: Tensor) -> Tensor:
    """SSDVAE's parameter injection: γ + ‖γ‖·onehot where observed (L2 norm), γ elsewhere.

    Its softmax is the revision of softmax(γ) by the same one-hot with λ = r_k·(e^‖γ‖ − 1), k being the observed class.

    Args:
        logits: γ, [..., K].
        onehot: The observed label as a one-hot vector, or a distribution, [..., K].
        observed: 1 where a label is observed, else 0, [...].

    Returns:
        The injected logits, [..., K].
    """
    logits = _widened(logits)
    norm: Tensor = torch.linalg.vector_norm(logits, dim=-1, keepdim=True)
    return logits + norm * onehot.to(logits.dtype) * observed.to(logits.dtype).unsqueeze(-1)


class UpdateTerms(NamedTuple):
    """The three terms that sum to the update loss, each per event [...]."""

    negative_revised_entropy: Tensor  # −H(t|x,z)
    proposed_entropy: Tensor  # λ̂·H(t|z)
    classification: Tensor  # −(1−λ̂)·E_{p_D} log r


def update_loss(logits: Tensor, empirical: Tensor, observed: Tensor, strength: float | Tensor = 1.0) -> Tensor:
    """L_I = KL(revised ‖ proposed) per event, with gradient through both distributions.

    With q = λ̂r + (1−λ̂)p_D it is summed as Σ_k q_k·log(q_k/r_k) − (q_k − r_k): the last part sums to zero, makes every
    summand ≥ 0 and so keeps small divergences accurate. The log-ratio is taken directly,
    log(q_k/r_k) = log(λ̂ + (1−λ̂)·p_k/r_k), which is 0 where λ̂ = 1: loss and gradient are exactly 0 there.

    Args:
        logits: Logits of the proposal, [..., K].
        empirical: The side knowledge p_D(t|x), [..., K].
        observed: l, 1 where side knowledge is observed, else 0, [...].
        strength: λ, one number or one per event.

    Returns:
        The loss of each event, [...]; never negative.
    """
    log_proposed = _log_softmax(logits)
    empirical = empirical.to(log_proposed.dtype)
    keep = _keep(observed, strength, log_proposed)
    take = 1.0 - keep
    log_ratio = torch.logaddexp(_log(keep), _log(take) + _log(empirical) - log_proposed)
    proposed = log_proposed.exp()
    revised = keep * proposed + take * empirical
    loss = (revised * log_ratio - take * (empirical - proposed)).sum(-1)
    return loss - loss.detach().clamp_max(0.0)  # clamp negative rounding errors without affecting the gradient


def update_terms(logits: Tensor, empirical: Tensor, observed: Tensor, strength: float | Tensor = 1.0) -> UpdateTerms:
    """The update loss as the paper expands it: −H(revised) + λ̂·H(r) − (1−λ̂)·E_{p_D} log r, per event."""
    log_proposed = _log_softmax(logits)
    empirical = empirical.to(log_proposed.dtype)
    keep = _keep(observed, strength, log_proposed).squeeze(-1)
    log_revised = log_revise(log_proposed, empirical, observed, strength)
    return UpdateTerms(
        (log_revised.exp() * log_revised).sum(-1),
        keep * categorical_entropy(logits),
        -(1.0 - keep) * (empirical * log_proposed).sum(-1),
    )


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(N(μ,σ²) ‖ N(0,I)) = ½ Σ (μ² + σ² − 1 − log σ²), summed over the last dimension, [...]."""
    mean = _widened(mean)
    log_variance = log_variance.to(mean.dtype)
    return 0.5 * (mean.square() + torch.expm1(log_variance) - log_variance).sum(-1)


def categorical_entropy(logits: Tensor) -> Tensor:
    """H(softmax(γ)) over the last dimension, [...]."""
    log_probabilities = _log_softmax(logits)
    return -(log_probabilities.exp() * log_probabilities).sum(-1)


def categorical_kl(logits: Tensor, other: Tensor) -> Tensor:
    """KL(softmax(γ) ‖ softmax(γ')) over the last dimension, [...]."""
    log_probabilities = _log_softmax(logits)
    return (log_probabilities.exp() * (log_probabilities - _log_softmax(other))).sum(-1)


def uniform_kl(logits: Tensor) -> Tensor:
    """KL(softmax(γ) ‖ uniform) = log K − H(softmax(γ)) over the last dimension, [...]."""
    log_probabilities = _log_softmax(logits)
    return (log_probabilities.exp() * (log_probabilities + math.log(logits.shape[-1]))).sum(-1)


def gumbel_from_uniform(uniform: Tensor) -> Tensor:
    """Standard Gumbel noise −log(−log u) from u ~ U[0,1), finite also at u = 0 and u = 1."""
    uniform = _widened(uniform)
    limits = torch.finfo(uniform.dtype)
    return -(-uniform.clamp(limits.tiny, 1.0 - limits.eps / 2).log()).log()


def gumbel_softmax(logits: Tensor, gumbel_noise: Tensor, temperature: float | Tensor, hard: bool = False) -> Tensor:
    """A relaxed sample softmax((γ+g)/τ), [..., K]; `hard` makes it one-hot with the relaxed sample's gradient."""
    logits = _widened(logits)
    soft = torch.softmax((logits + gumbel_noise.to(logits.dtype)) / temperature, dim=-1)
    return _onehot_of_largest(soft) + (soft - soft.detach()) if hard else soft


def sample_revised(
    logits: Tensor,
    empirical: Tensor,
    observed: Tensor,
    keep_uniform: Tensor,
    gumbel_noise: Tensor,
    strength: float | Tensor = 1.0,
    temperature: float | Tensor = 0.5,
    hard: bool = False,
    belief: Tensor | None = None,
) -> Tensor:
    """Draw from the revised distribution: t = b·GumbelSoftmax(γ,τ) + (1−b)·onehot(y), b ~ Bern(λ̂), y ~ p_D.

    Where side knowledge is a likelihood, the posterior over the true frame replaces p_D, and its sample is a
    Gumbel-softmax sample too, with gradient: t = GumbelSoftmax(γ + (1−b)·log p(observed|t), τ).

    Args:
        logits: Logits γ of the proposal, [..., K].
        empirical: The side knowledge: p_D(t|x), or the likelihood of what is observed given each frame, [..., K].
        observed: l, 1 where side knowledge is observed, else 0, [...].
        keep_uniform: U[0,1) noise for b, [...].
        gumbel_noise: Standard Gumbel noise, [..., K]; shared by both draws, of which the independent b selects one.
        strength: λ.
        temperature: τ.
        hard: Return one-hot samples, with the gradient of the relaxed ones.
        belief: 1 where `empirical` is p_D itself, 0 where it is a likelihood, [...]; None: it is p_D everywhere.

    Returns:
        The samples, [..., K].
    """
    logits = _widened(logits)
    noise = gumbel_noise.to(logits.dtype)
    kept = keep_uniform.to(logits.dtype).unsqueeze(-1) < _keep(observed, strength, logits)
    drawn = categorical_sample(empirical, noise)
    if belief is None:
        return torch.where(kept, gumbel_softmax(logits, noise, temperature, hard), drawn)
    certain = (belief != 0).unsqueeze(-1)
    evidence = _log(_widened(empirical)).masked_fill(kept | certain, 0.0)
    return torch.where(kept | ~certain, gumbel_softmax(logits + evidence, noise, temperature, hard), drawn)


def categorical_sample(probabilities: Tensor, gumbel_noise: Tensor) -> Tensor:
    """A one-hot sample of a distribution, [..., K]: the class of the largest log p + g."""
    return _onehot_of_largest(_log(_widened(probabilities)) + gumbel_noise)


def knowledge_loss(logits: Tensor, empirical: Tensor, observed: Tensor, belief: Tensor | None = None) -> Tensor:
    """Negative log score of side knowledge under the proposal, per event.

    For a belief p_D the cross-entropy −E_{p_D} log r, a proper score whose minimum is at r = p_D. For a likelihood
    −log Σ_k r_k·p(observed|k): of a label under a noise model, it bounds the influence of wrong labels. The gradient
    with respect to the logits is r − label_posterior(r, empirical, belief).

    Args:
        logits: Logits of the proposal, [..., K].
        empirical: p_D(t|x), or the likelihood of what is observed given each frame, [..., K].
        observed: 1 where side knowledge is observed, else 0, [...].
        belief: 1 where `empirical` is p_D, 0 where it is a likelihood, [...]; None: it is p_D everywhere.

    Returns:
        The loss of each event, [...]; exactly 0 where nothing is observed.
    """
    log_proposed = _log_softmax(logits)
    empirical = empirical.to(log_proposed.dtype)
    surprise = -(empirical * log_proposed).sum(-1)
    if belief is not None:
        surprise = torch.where(belief != 0, surprise, -torch.logsumexp(log_proposed + _log(empirical), dim=-1))
    return torch.where(observed != 0, surprise, 0.0)


def label_posterior(proposed: Tensor, empirical: Tensor, belief: Tensor | None = None) -> Tensor:
    """The posterior over the true frame given what is observed: ∝ r_k·p(observed|k), or p_D where it is a belief.

    It is a distribution over frames given the event, so `revise` and `update_loss` take it as `empirical`.

    Args:
        proposed: The proposal r, [..., K].
        empirical: p_D(t|x), or the likelihood of what is observed given each frame, [..., K].
        belief: 1 where `empirical` is p_D, 0 where it is a likelihood, [...]; None: it is p_D everywhere.

    Returns:
        The posterior, [..., K].
    """
    if belief is None:
        return empirical
    proposed = _widened(proposed)
    log_proposed = proposed.clamp_min(torch.finfo(proposed.dtype).tiny).log()
    posterior = torch.softmax(log_proposed + _log(empirical.to(proposed.dtype)), dim=-1)
    return torch.where((belief != 0).unsqueeze(-1), empirical.to(proposed.dtype), posterior)


def uniform_errors(label: Tensor, error_rate: float | Tensor) -> Tensor:
    """The likelihood of a label that is wrong at a rate ρ, then drawn from all K frames: (1−ρ)·1[y=k] + ρ/K, [..., K].

    Args:
        label: The label as a one-hot vector, [..., K].
        error_rate: ρ, one number or one per event.
    """
    label = _widened(label)
    rate = error_rate.to(label.dtype).unsqueeze(-1) if isinstance(error_rate, Tensor) else error_rate
    return (1.0 - rate) * label + rate / label.shape[-1]


def _widened(values: Tensor) -> Tensor:
    """Float32 at least: half precision, integers and booleans are widened."""
    return values if values.dtype == torch.float64 else values.float()


def _keep(observed: Tensor, strength: float | Tensor, like: Tensor) -> Tensor:
    """λ̂ in the dtype of `like`, with a last dimension to broadcast over the classes, [..., 1]."""
    strength = strength.to(like.dtype) if isinstance(strength, Tensor) else strength
    return keep_probability(observed.to(like.dtype), strength).unsqueeze(-1)


def _floor(dtype: torch.dtype) -> float:
    """Stands for log 0: its exponential is exactly 0, but sums, differences and products with 0 stay finite."""
    return torch.finfo(dtype).min / 8


def _log(probabilities: Tensor) -> Tensor:
    """log p, with log 0 at the floor and gradient 0 there."""
    positive = probabilities >= torch.finfo(probabilities.dtype).tiny
    return torch.where(positive, torch.where(positive, probabilities, 1.0).log(), _floor(probabilities.dtype))


def _log_softmax(logits: Tensor) -> Tensor:
    """log softmax(γ); a class ruled out by a logit of −∞ is at the floor."""
    logits = _widened(logits)
    return torch.log_softmax(logits, dim=-1).clamp_min(_floor(logits.dtype))


def _onehot_of_largest(scores: Tensor) -> Tensor:
    return torch.zeros_like(scores).scatter(-1, scores.argmax(-1, keepdim=True), 1.0)
