"""The facts about revision and update, each proved against an exact answer, another library or as a property."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical, Gumbel, Independent, Normal, kl_divergence

from paths import ROOT
from revup.bottleneck import (
    categorical_entropy,
    categorical_kl,
    expected_reliance,
    gaussian_kl,
    gumbel_from_uniform,
    gumbel_softmax,
    injected_logits,
    keep_probability,
    knowledge_loss,
    label_posterior,
    log_revise,
    revise,
    sample_revised,
    uniform_errors,
    uniform_kl,
    update_loss,
    update_terms,
)

DTYPES = (torch.float32, torch.float64)
strengths = st.floats(0.0, 1e6)
probabilities = st.floats(0.0, 1.0)
quick = settings(deadline=None, max_examples=60)


class Case(NamedTuple):
    logits: Tensor  # [..., K]
    empirical: Tensor  # [..., K]
    observed: Tensor  # [...]
    strength: float | Tensor


@st.composite
def cases(draw: st.DrawFn, scale: float = 3.0, onehot: bool | None = None) -> Case:
    """Events of any leading shape, with soft or one-hot knowledge and one λ for all or one for each."""
    leading = draw(st.lists(st.integers(1, 3), max_size=3))
    classes = draw(st.integers(2, 7))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shape = (*leading, classes)
    logits = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    soft = torch.softmax(3 * torch.randn(shape, generator=generator, dtype=torch.float64), -1)
    hard = torch.nn.functional.one_hot(soft.argmax(-1), classes).double()
    observed = torch.rand(leading, generator=generator) < 0.7
    each = torch.rand(leading, generator=generator, dtype=torch.float64) * 5
    strength = draw(strengths) if draw(st.booleans()) else each
    is_hard = draw(st.booleans()) if onehot is None else onehot
    return Case(logits, hard if is_hard else soft, observed, strength)


def one_event(logits: list[float], empirical: list[float], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.tensor(logits, dtype=dtype, requires_grad=True),
        torch.tensor(empirical, dtype=dtype, requires_grad=True),
        torch.tensor(1.0, dtype=dtype),
    )


@quick
@given(cases())
def test_revised_sums_to_one_and_is_the_formula(case: Case) -> None:
    r, p, l = case.logits.softmax(-1), case.empirical, case.observed.double()  # noqa: E741
    strength = torch.as_tensor(case.strength, dtype=torch.float64)
    revised = revise(r, p, case.observed, case.strength)
    torch.testing.assert_close(revised.sum(-1), torch.ones_like(l))
    assert (revised >= 0).all()
    expected = (r + (strength * l)[..., None] * p) / (1 + strength * l)[..., None]
    torch.testing.assert_close(revised, expected)


@quick
@given(cases())
def test_revised_is_the_proposal_where_nothing_is_observed(case: Case) -> None:
    r = case.logits.softmax(-1)
    unseen = ~case.observed
    assert torch.equal(revise(r, case.empirical, case.observed, case.strength)[unseen], r[unseen])
    log_revised = log_revise(r.log(), case.empirical, case.observed, case.strength)
    assert torch.equal(log_revised[unseen], r.log()[unseen])


@quick
@given(cases())
def test_revised_tends_to_the_knowledge(case: Case) -> None:
    r, p, seen = case.logits.softmax(-1), case.empirical, case.observed
    distances = [(revise(r, p, seen, strength) - p)[seen].abs().sum() for strength in (1.0, 1e2, 1e4, 1e8)]
    assert all(after <= before for before, after in itertools.pairwise(distances))
    assert distances[-1] <= 1e-6
    assert torch.equal(revise(r, p, seen, math.inf), torch.where(seen[..., None], p, r))


@quick
@given(cases())
def test_log_revise_is_the_log_of_revise(case: Case) -> None:
    revised = revise(case.logits.softmax(-1), case.empirical, case.observed, case.strength)
    log_revised = log_revise(case.logits.log_softmax(-1), case.empirical, case.observed, case.strength)
    torch.testing.assert_close(log_revised.exp(), revised)


def test_keep_probability_is_exact_and_takes_any_mask() -> None:
    for observed in (torch.tensor([True, False]), torch.tensor([1, 0]), torch.tensor([1.0, 0.0])):
        assert keep_probability(observed).tolist() == [0.5, 1.0]
        assert keep_probability(observed, 3.0).tolist() == [0.25, 1.0]
        assert keep_probability(observed, math.inf).tolist() == [0.0, 1.0]
        assert keep_probability(observed, torch.tensor([3.0, 7.0])).tolist() == [0.25, 1.0]


@quick
@given(cases(), probabilities, strengths)
def test_marginalising_the_observation(case: Case, epsilon: float, strength: float) -> None:
    r, p = case.logits.softmax(-1), case.empirical
    seen, unseen = torch.ones_like(case.observed), torch.zeros_like(case.observed)
    marginal = epsilon * revise(r, p, seen, strength) + (1 - epsilon) * revise(r, p, unseen, strength)
    reliance = expected_reliance(epsilon, strength)
    assert reliance == pytest.approx(1 - epsilon * strength / (1 + strength), abs=1e-12)
    torch.testing.assert_close(marginal, reliance * r + (1 - reliance) * p)


def test_expected_reliance_of_tensors() -> None:
    epsilon = torch.tensor([0.0, 0.4, 1.0])
    torch.testing.assert_close(expected_reliance(epsilon), torch.tensor([1.0, 0.8, 0.5]))
    torch.testing.assert_close(expected_reliance(1.0, torch.tensor([0.0, 1.0, 3.0])), torch.tensor([1.0, 0.5, 0.25]))
    torch.testing.assert_close(expected_reliance(epsilon, math.inf), 1 - epsilon)
    assert isinstance(expected_reliance(0.3, 2.0), float)


@quick
@given(cases(onehot=True))
def test_revision_and_injection_move_probability_the_same_way(case: Case) -> None:
    """Theorem 1: neither lowers the observed class, neither raises another."""
    r = case.logits.softmax(-1)
    seen_class = case.empirical.bool() & case.observed[..., None]
    other_class = ~case.empirical.bool() & case.observed[..., None]
    injected = injected_logits(case.logits, case.empirical, case.observed)
    for moved in (revise(r, case.empirical, case.observed, case.strength), injected.softmax(-1)):
        assert (moved >= r - 1e-14)[seen_class].all()
        assert (moved <= r + 1e-14)[other_class].all()
    assert torch.equal(injected[~case.observed], case.logits[~case.observed])


@quick
@given(cases(onehot=True))
def test_injection_is_a_revision_of_some_strength(case: Case) -> None:
    """Stronger than Theorem 1: injection equals the revision with λ = r_k·(e^‖γ‖ − 1)."""
    r = case.logits.softmax(-1)
    strength = (r * case.empirical).sum(-1) * torch.expm1(case.logits.norm(dim=-1))
    injected = injected_logits(case.logits, case.empirical, case.observed).softmax(-1)
    torch.testing.assert_close(injected, revise(r, case.empirical, case.observed, strength))


def test_injection_by_hand() -> None:
    logits = torch.tensor([[3.0, -4.0], [3.0, -4.0]])
    onehot = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    assert injected_logits(logits, onehot, torch.tensor([True, False])).tolist() == [[3.0, 1.0], [3.0, -4.0]]
    still = torch.zeros(1, 2, requires_grad=True)
    injected_logits(still, onehot[:1], torch.tensor([1])).sum().backward()
    assert still.grad is not None
    assert still.grad.isfinite().all()


@quick
@given(cases())
def test_update_is_the_divergence_of_torch_distributions(case: Case) -> None:
    r = case.logits.softmax(-1)
    revised = revise(r, case.empirical, case.observed, case.strength)
    expected = (revised * (revised.log() - r.log())).nan_to_num(0.0).sum(-1)
    loss = update_loss(case.logits, case.empirical, case.observed, case.strength)
    torch.testing.assert_close(loss, expected, atol=1e-10, rtol=1e-7)
    by_library = kl_divergence(Categorical(probs=revised), Categorical(logits=case.logits))
    torch.testing.assert_close(loss, by_library, atol=1e-10, rtol=1e-7)


@quick
@given(cases())
def test_update_equals_its_three_terms(case: Case) -> None:
    loss = update_loss(case.logits, case.empirical, case.observed, case.strength)
    terms = update_terms(case.logits, case.empirical, case.observed, case.strength)
    torch.testing.assert_close(sum(terms, torch.zeros_like(loss)), loss, atol=1e-10, rtol=1e-7)
    r = case.logits.softmax(-1)
    keep = keep_probability(case.observed.double(), case.strength)
    revised = revise(r, case.empirical, case.observed, case.strength)
    torch.testing.assert_close(-terms.negative_revised_entropy, Categorical(probs=revised).entropy(), atol=1e-7, rtol=0)
    torch.testing.assert_close(terms.proposed_entropy, keep * Categorical(probs=r).entropy())
    torch.testing.assert_close(terms.classification, -(1 - keep) * (case.empirical * r.log()).sum(-1))


@quick
@given(cases(scale=30.0), st.sampled_from(DTYPES))
def test_update_is_not_negative_and_zero_where_unobserved(case: Case, dtype: torch.dtype) -> None:
    logits = case.logits.to(dtype).requires_grad_()
    loss = update_loss(logits, case.empirical.to(dtype), case.observed, case.strength)
    assert (loss >= 0).all()
    assert (loss[~case.observed] == 0).all()
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    assert gradient.isfinite().all()
    assert (gradient[~case.observed] == 0).all()


@quick
@given(cases())
def test_update_is_zero_where_the_proposal_agrees(case: Case) -> None:
    loss = update_loss(case.logits, case.logits.softmax(-1), case.observed, case.strength)
    torch.testing.assert_close(loss, torch.zeros_like(loss), atol=1e-14, rtol=0)


@quick
@given(cases())
def test_update_is_at_most_its_share_of_the_full_divergence(case: Case) -> None:
    """KL is convex: KL(λ̂r + (1−λ̂)p ‖ r) ≤ (1−λ̂)·KL(p ‖ r), with equality as λ → ∞."""
    full = update_loss(case.logits, case.empirical, case.observed, math.inf)
    share = 1 - keep_probability(case.observed.double(), case.strength)
    assert (update_loss(case.logits, case.empirical, case.observed, case.strength) <= share * full + 1e-12).all()
    p = torch.where(case.observed[..., None], case.empirical, case.logits.softmax(-1))
    torch.testing.assert_close(
        full, kl_divergence(Categorical(probs=p), Categorical(logits=case.logits)), atol=1e-6, rtol=1e-6
    )


@quick
@given(cases())
def test_small_divergences_are_accurate_in_float32(case: Case) -> None:
    """Summed the plain way, Σ q·log(q/r), the rounding would be of the order 1e-7."""
    strength = 1e-3
    exact = update_loss(case.logits, case.empirical, case.observed, strength)
    single = update_loss(case.logits.float(), case.empirical.float(), case.observed, strength)
    torch.testing.assert_close(single.double(), exact, atol=2e-9, rtol=2e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("strength", [0.0, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize(
    ("logits", "empirical"),
    [
        ([1e4, -1e4, 0.0], [0.0, 1.0, 0.0]),
        ([1e4, -1e4, 0.0], [1.0, 0.0, 0.0]),
        ([-1e4, -1e4, -1e4], [1e-30, 1.0, 1e-30]),
        ([math.log(1e-30), 0.0, math.log(1e-30)], [1.0, 0.0, 0.0]),
        ([math.log(1e-30), 0.0, math.log(1e-30)], [0.5, 1e-30, 0.5]),
        ([1e4, 1e4, -1e4], [0.0, 1e-40, 1.0]),
    ],
)
def test_extremes_stay_finite(logits: list[float], empirical: list[float], strength: float, dtype: torch.dtype) -> None:
    def log_revised(g: Tensor, p: Tensor, seen: Tensor) -> Tensor:
        return log_revise(g.log_softmax(-1), p, seen, strength)

    functions: list[Callable[[Tensor, Tensor, Tensor], Tensor]] = [
        log_revised,
        lambda g, p, seen: revise(g.softmax(-1), p, seen, strength),
        lambda g, p, seen: update_loss(g, p, seen, strength),
        lambda g, p, seen: torch.stack(tuple(update_terms(g, p, seen, strength))),
        lambda g, p, seen: knowledge_loss(g, p, seen),
        lambda g, p, seen: knowledge_loss(g, p, seen, torch.zeros_like(seen)),
        lambda g, p, seen: knowledge_loss(g, uniform_errors(p, 0.5), seen, torch.zeros_like(seen)),
        lambda g, p, seen: knowledge_loss(g, uniform_errors(p, 1.0), seen, torch.ones_like(seen)),
        lambda g, p, seen: label_posterior(g.softmax(-1), p, torch.zeros_like(seen)),
        lambda g, p, seen: label_posterior(g.softmax(-1), uniform_errors(p, 0.5), torch.zeros_like(seen)),
        lambda g, p, seen: label_posterior(g.softmax(-1), p, torch.ones_like(seen)),
        lambda g, p, seen: categorical_entropy(g) + uniform_kl(g),
        lambda g, p, seen: categorical_kl(g, g.flip(-1)),
        lambda g, p, seen: injected_logits(g, p, seen),
        lambda g, p, seen: gumbel_softmax(g, torch.zeros_like(g), 0.5, hard=True),
    ]
    for function in functions:
        for seen in (0.0, 1.0):
            g, p, observed = one_event(logits, empirical, dtype)
            value = function(g, p, observed * seen)
            assert value.isfinite().all()
            grads = torch.autograd.grad(value.sum(), (g, p), allow_unused=True)
            assert all(grad.isfinite().all() for grad in grads if grad is not None)


def test_update_at_an_extreme_is_right() -> None:
    """r_k = e^−20000, far below what a float holds: KL = log ½ + ½·20000 up to terms of that size."""
    logits, empirical, observed = one_event([1e4, -1e4], [0.0, 1.0], torch.float32)
    assert update_loss(logits, empirical, observed).item() == pytest.approx(1e4 - math.log(2), rel=1e-6)


def test_a_class_ruled_out_by_its_logit_adds_nothing() -> None:
    logits = torch.tensor([0.3, -0.7, -math.inf], requires_grad=True)
    empirical, observed = torch.tensor([0.0, 1.0, 0.0]), torch.tensor(1)
    loss = update_loss(logits, empirical, observed) + knowledge_loss(logits, empirical, observed)
    loss = loss + categorical_entropy(logits)
    loss.backward()
    two, p = logits.detach()[:2], empirical[:2]
    expected = update_loss(two, p, observed) + knowledge_loss(two, p, observed) + categorical_entropy(two)
    torch.testing.assert_close(loss.detach(), expected)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def double(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("soft", [True, False])
def test_gradients_agree_with_finite_differences(soft: bool) -> None:
    logits, raw = double(2, 3, 4).requires_grad_(), double(2, 3, 4, seed=1)
    empirical = raw.softmax(-1).requires_grad_() if soft else torch.eye(4, dtype=torch.float64)[raw.argmax(-1)]
    observed = torch.tensor([[True, False, True], [True, True, False]])
    strength = double(2, 3, seed=2).exp().requires_grad_()
    mean, log_variance = double(2, 3, seed=3).requires_grad_(), double(2, 3, seed=4).requires_grad_()
    rate = torch.rand(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).requires_grad_()
    belief = torch.tensor([[True, True, False], [False, False, True]])
    assert torch.autograd.gradcheck(lambda g, p, s: update_loss(g, p, observed, s), (logits, empirical, strength))
    assert torch.autograd.gradcheck(
        lambda g, p, s: torch.stack(tuple(update_terms(g, p, observed, s))), (logits, empirical, strength)
    )
    assert torch.autograd.gradcheck(
        lambda g, p, s: log_revise(g.log_softmax(-1), p, observed, s), (logits, empirical, strength)
    )
    assert torch.autograd.gradcheck(
        lambda g, p, n: knowledge_loss(g, uniform_errors(p, n), observed, belief), (logits, empirical, rate)
    )
    assert torch.autograd.gradcheck(
        lambda g, p, n: label_posterior(g.softmax(-1), uniform_errors(p, n), belief), (logits, empirical, rate)
    )
    assert torch.autograd.gradcheck(gaussian_kl, (mean, log_variance))
    assert torch.autograd.gradcheck(uniform_kl, (logits,))
    assert torch.autograd.gradcheck(lambda g: categorical_kl(g, 2 * g.flip(-1)), (logits,))
    assert torch.autograd.gradcheck(lambda g: injected_logits(g, raw.softmax(-1), observed), (logits,))
    assert torch.autograd.gradcheck(lambda g: gumbel_softmax(g, raw, 0.5), (logits,))


def test_gradient_flows_through_both_sides_of_the_update() -> None:
    """In the logits it is λ̂r·(log(q/r) − Σ r log(q/r)) + r − q: the first part is absent if q is held fixed."""
    logits = double(5).requires_grad_()
    empirical, observed, strength = double(5, seed=1).softmax(-1), torch.tensor(1.0), 2.0
    (gradient,) = torch.autograd.grad(update_loss(logits, empirical, observed, strength), logits)
    r = logits.detach().softmax(-1)
    q = revise(r, empirical, observed, strength)
    ratio = (q / r).log()
    torch.testing.assert_close(gradient, r * (ratio - (r * ratio).sum()) / (1 + strength) + r - q)


@quick
@given(cases(scale=2.0))
def test_divergences_and_entropy_agree_with_torch_distributions(case: Case) -> None:
    mean, log_variance = case.logits, 2 * case.logits.flip(-1) - 1
    gaussian = Independent(Normal(mean, (log_variance / 2).exp()), 1)
    unit = Independent(Normal(torch.zeros_like(mean), torch.ones_like(mean)), 1)
    torch.testing.assert_close(gaussian_kl(mean, log_variance), kl_divergence(gaussian, unit))
    uniform = Categorical(logits=torch.zeros_like(case.logits))
    torch.testing.assert_close(uniform_kl(case.logits), kl_divergence(Categorical(logits=case.logits), uniform))
    torch.testing.assert_close(categorical_entropy(case.logits), Categorical(logits=case.logits).entropy())
    other = case.logits.roll(1, -1)
    expected = kl_divergence(Categorical(logits=case.logits), Categorical(logits=other))
    torch.testing.assert_close(categorical_kl(case.logits, other), expected)


def test_regularisers_are_zero_at_their_targets() -> None:
    assert gaussian_kl(torch.zeros(3, 5), torch.zeros(3, 5)).tolist() == [0.0] * 3
    torch.testing.assert_close(uniform_kl(torch.full((3, 5), 7.0)), torch.zeros(3))


def noise(*shape: int, seed: int) -> Tensor:
    return gumbel_from_uniform(torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


@pytest.mark.parametrize("dtype", DTYPES)
def test_gumbel_noise_is_finite_and_is_gumbel(dtype: torch.dtype) -> None:
    assert gumbel_from_uniform(torch.tensor([0.0, 1.0], dtype=dtype)).isfinite().all()
    uniform = torch.linspace(0.001, 0.999, 99, dtype=dtype)
    torch.testing.assert_close(Gumbel(0.0, 1.0).cdf(gumbel_from_uniform(uniform)), uniform)


def test_relaxed_samples() -> None:
    logits = double(6, 4).requires_grad_()
    g = noise(6, 4, seed=1)
    soft = gumbel_softmax(logits, g, 0.5)
    torch.testing.assert_close(soft, ((logits + g) / 0.5).softmax(-1))
    hard = gumbel_softmax(logits, g, 0.5, hard=True)
    assert torch.equal(hard, torch.eye(4, dtype=torch.float64)[soft.argmax(-1)])
    weights = double(6, 4, seed=2)
    (through_hard,) = torch.autograd.grad((hard * weights).sum(), logits, retain_graph=True)
    (through_soft,) = torch.autograd.grad((soft * weights).sum(), logits)
    assert torch.equal(through_hard, through_soft)


@pytest.mark.parametrize("strength", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("empirical", [[0.0, 0.0, 1.0, 0.0], [0.1, 0.2, 0.0, 0.7]])
def test_hard_samples_follow_the_revised_distribution(strength: float, empirical: list[float]) -> None:
    count = 100_000
    logits, p = double(4, seed=3), torch.tensor(empirical, dtype=torch.float64)
    for observed in (torch.tensor(0), torch.tensor(1)):
        uniform = torch.rand(count, generator=torch.Generator().manual_seed(4))
        drawn = sample_revised(logits, p, observed, uniform, noise(count, 4, seed=5), strength, hard=True)
        expected = revise(logits.softmax(-1), p, observed, strength)
        spread = (expected * (1 - expected) / count).sqrt()
        assert ((drawn.mean(0) - expected).abs() <= 4.5 * spread).all()


def test_soft_samples_are_relaxed_or_known_and_pass_gradient_only_when_relaxed() -> None:
    logits, p = double(200, 4).requires_grad_(), torch.tensor([0.0, 0.0, 1.0, 0.0])
    uniform, g = torch.rand(200, generator=torch.Generator().manual_seed(1)), noise(200, 4, seed=2)
    drawn = sample_revised(logits, p, torch.ones(200), uniform, g, strength=1.0, temperature=0.5)
    kept = uniform < 0.5
    assert torch.equal(drawn[kept], gumbel_softmax(logits, g, 0.5)[kept])
    assert torch.equal(drawn[~kept], p.double().expand(200, 4)[~kept])
    (gradient,) = torch.autograd.grad((drawn * double(200, 4, seed=3)).sum(), logits)
    assert (gradient[~kept] == 0).all()
    assert (gradient[kept] != 0).any(-1).all()


def test_samples_do_not_depend_on_knowledge_that_is_not_observed() -> None:
    logits, uniform, g = double(50, 4), torch.rand(50), noise(50, 4, seed=2)
    unseen = torch.zeros(50)
    one = sample_revised(logits, torch.eye(4)[torch.zeros(50, dtype=torch.long)], unseen, uniform, g)
    other = sample_revised(logits, torch.zeros(50, 4), unseen, uniform, g)
    assert torch.equal(one, other)


def test_hard_samples_follow_the_posterior_where_knowledge_is_a_likelihood() -> None:
    """λ̂ r + (1−λ̂)·posterior for likelihoods, λ̂ r + (1−λ̂) p_D for beliefs; in one batch."""
    count, strength = 100_000, 2.0
    logits, p = double(4, seed=3), torch.tensor([0.1, 0.2, 0.0, 0.7], dtype=torch.float64)
    uniform = torch.rand(count, generator=torch.Generator().manual_seed(4))
    proposed = logits.softmax(-1)
    weighed = proposed * p
    for belief, expected in ((1, p), (0, weighed / weighed.sum())):
        told = torch.full((count,), belief)
        drawn = sample_revised(
            logits, p, torch.ones(count), uniform, noise(count, 4, seed=5), strength, hard=True, belief=told
        )
        revised = proposed / 3 + 2 * expected / 3
        assert ((drawn.mean(0) - revised).abs() <= 4.5 * (revised * (1 - revised) / count).sqrt()).all()


def test_samples_of_a_posterior_pass_gradient_and_those_of_a_belief_none() -> None:
    logits, p = double(200, 4).requires_grad_(), torch.tensor([0.1, 0.2, 0.0, 0.7])
    g, belief = noise(200, 4, seed=2), torch.arange(200) % 2
    drawn = sample_revised(logits, p, torch.ones(200), torch.full((200,), 0.9), g, strength=9.0, belief=belief)
    (gradient,) = torch.autograd.grad((drawn * double(200, 4, seed=3)).sum(), logits)
    certain = belief == 1
    assert (gradient[certain] == 0).all()
    assert (gradient[~certain] != 0).any(-1).all()
    assert (drawn[certain].amax(-1) == 1).all()
    assert (drawn[:, 2] == 0).all()  # ruled out by what is observed


def confusion(classes: int, rate: float) -> Tensor:
    """p(y|k), rows k: the channel of the noise η, written out."""
    return (1 - rate) * torch.eye(classes, dtype=torch.float64) + rate / classes


def likelihoods(case: Case) -> Tensor:
    """No event's knowledge is a belief."""
    return torch.zeros(case.observed.shape)


@quick
@given(cases(onehot=True), probabilities)
def test_uniform_errors_is_the_channel_of_the_noise(case: Case, rate: float) -> None:
    """p(y|k) for each k: the column of y; one rate, or one for each event."""
    column = case.empirical @ confusion(case.logits.shape[-1], rate).T
    torch.testing.assert_close(uniform_errors(case.empirical, rate), column)
    each = torch.full(case.observed.shape, rate, dtype=torch.float64)
    torch.testing.assert_close(uniform_errors(case.empirical, each), column)


@quick
@given(cases(onehot=True), probabilities)
def test_loss_of_a_label_is_the_enumerated_likelihood(case: Case, rate: float) -> None:
    seen_probability = case.logits.softmax(-1) @ confusion(case.logits.shape[-1], rate)
    label = case.empirical.argmax(-1, keepdim=True)
    expected = -seen_probability.log().gather(-1, label).squeeze(-1) * case.observed
    likelihood = uniform_errors(case.empirical, rate)
    loss = knowledge_loss(case.logits, likelihood, case.observed, likelihoods(case))
    torch.testing.assert_close(loss, expected)
    assert (loss[~case.observed] == 0).all()
    if rate > 1e-300:  # bounded influence of wrong labels
        assert (loss <= math.log(case.logits.shape[-1] / rate) + 1e-9).all()


@quick
@given(cases())
def test_loss_of_a_belief_is_cross_entropy(case: Case) -> None:
    expected = -(case.empirical * case.logits.log_softmax(-1)).sum(-1) * case.observed
    torch.testing.assert_close(knowledge_loss(case.logits, case.empirical, case.observed), expected)
    told = torch.ones(case.observed.shape)
    torch.testing.assert_close(knowledge_loss(case.logits, case.empirical, case.observed, told), expected)
    if (case.empirical.amax(-1) == 1).all():  # a label that is certain: both are the same
        certain = knowledge_loss(case.logits, case.empirical, case.observed, likelihoods(case))
        torch.testing.assert_close(certain, expected)


def test_loss_of_a_belief_is_least_at_the_belief() -> None:
    """A proper score: .6/.4 is told, .6/.4 is learned; as a likelihood the same numbers would be sharpened to 1/0."""
    told, one = torch.tensor([0.6, 0.4]), torch.ones(())
    for belief, expected in ((one, 0.6), (0 * one, 1.0)):
        logits = torch.zeros(2, requires_grad=True)
        for _ in range(3000):
            (gradient,) = torch.autograd.grad(knowledge_loss(logits, told, one, belief), logits)
            logits = (logits - gradient).detach().requires_grad_()
        assert float(logits.detach().softmax(-1)[0]) == pytest.approx(expected, abs=0.01)


@quick
@given(cases(onehot=True), probabilities)
def test_label_posterior_is_the_posterior_by_bayes(case: Case, rate: float) -> None:
    prior, classes = case.logits.softmax(-1), case.logits.shape[-1]
    joint = prior[..., :, None] * confusion(classes, rate)  # [..., k, y]
    seen = case.empirical.argmax(-1)[..., None, None].expand(*prior.shape, 1)
    column = joint.gather(-1, seen).squeeze(-1)
    found = label_posterior(prior, uniform_errors(case.empirical, rate), likelihoods(case))
    torch.testing.assert_close(found, column / column.sum(-1, keepdim=True))


@quick
@given(cases(), probabilities)
def test_label_posterior_ends_at_knowledge_and_prior(case: Case, rate: float) -> None:
    prior, unsure = case.logits.softmax(-1), likelihoods(case)
    torch.testing.assert_close(
        label_posterior(prior, uniform_errors(case.empirical, rate), unsure).sum(-1),
        torch.ones(prior.shape[:-1]).double(),
    )
    torch.testing.assert_close(label_posterior(prior, uniform_errors(case.empirical, 1.0), unsure), prior)
    flat = torch.ones_like(prior) / prior.shape[-1]
    torch.testing.assert_close(label_posterior(flat, case.empirical, unsure), case.empirical)
    torch.testing.assert_close(label_posterior(prior, case.empirical, torch.ones_like(unsure)), case.empirical)
    assert label_posterior(prior, case.empirical) is case.empirical


def test_label_posterior_keeps_what_is_certain_though_the_prior_rules_it_out() -> None:
    prior, seen, unsure = torch.tensor([0.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0]), torch.tensor(0.0)
    assert label_posterior(prior, seen, unsure).tolist() == [1.0, 0.0, 0.0]
    torch.testing.assert_close(label_posterior(prior, uniform_errors(seen, 0.5), unsure), torch.tensor([0.0, 1.0, 0.0]))


@quick
@given(cases(), probabilities)
def test_gradient_of_the_loss_is_proposal_minus_posterior(case: Case, rate: float) -> None:
    logits, likelihood = case.logits.requires_grad_(), uniform_errors(case.empirical, rate)
    for belief, told in ((likelihoods(case), likelihood), (torch.ones(case.observed.shape), case.empirical)):
        loss = knowledge_loss(logits, told, torch.ones_like(case.observed), belief)
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        r = logits.detach().softmax(-1)
        torch.testing.assert_close(gradient, r - label_posterior(r, told, belief))


def mutual_information(joint: Tensor) -> Tensor:
    """I(a;b) of a table p(a,b)."""
    independent = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    return torch.xlogy(joint, joint / independent).nan_to_num(0.0).sum()


def conditional_mutual_information(joint: Tensor) -> Tensor:
    """I(a;b|c) of a table p(a,b,c)."""
    given_c = joint.sum((0, 1))
    return torch.stack([w * mutual_information(joint[..., c] / w) for c, w in enumerate(given_c)]).sum()


class Toy(NamedTuple):
    """p(x), p(z|x), p(t|x,z) small enough to enumerate."""

    x: Tensor  # [X]
    z_given_x: Tensor  # [X, Z]
    t_given_xz: Tensor  # [X, Z, T]

    @property
    def xtz(self) -> Tensor:
        return torch.einsum("x,xz,xzt->xtz", *self)

    @property
    def shared(self) -> Tensor:
        """I(x;t) − I(x;t|z)."""
        return mutual_information(self.xtz.sum(2)) - conditional_mutual_information(self.xtz)

    @property
    def captured(self) -> Tensor:
        """I(t;z)."""
        return mutual_information(self.xtz.sum(0))

    @property
    def premise(self) -> Tensor:
        """I(t;z|x), which the theorem takes to be 0."""
        return conditional_mutual_information(self.xtz.permute(1, 2, 0))


@st.composite
def toys(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """p(x), p(z|x), r(t|z) as logits, p_D(t|x)."""
    xs, zs, ts = (draw(st.integers(2, 4)) for _ in range(3))
    seed = draw(st.integers(0, 2**31))
    return (
        double(xs, seed=seed).softmax(-1),
        (2 * double(xs, zs, seed=seed + 1)).softmax(-1),
        2 * double(zs, ts, seed=seed + 2),
        (2 * double(xs, ts, seed=seed + 3)).softmax(-1),
    )


@quick
@given(toys())
def test_theorem_2_where_t_is_independent_of_z_given_x(toy: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """As where all labels are observed and taken for the truth: the revision at λ = ∞ forgets z."""
    x, z_given_x, logits, empirical = toy
    proposed, seen = logits.softmax(-1).expand(len(x), -1, -1), torch.ones(len(x), len(logits))
    independent = Toy(x, z_given_x, revise(proposed, empirical[:, None], seen, math.inf))
    torch.testing.assert_close(independent.premise, torch.zeros_like(independent.premise))
    torch.testing.assert_close(independent.shared, independent.captured)


@quick
@given(toys())
def test_theorem_2_fails_by_its_premise_where_t_is_drawn_from_z(toy: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    """As where nothing is observed: t ~ r(t|z). Then I(t;z) exceeds I(x;t) − I(x;t|z) by exactly I(t;z|x) > 0."""
    x, z_given_x, logits, empirical = toy
    proposed, seen = logits.softmax(-1).expand(len(x), -1, -1), torch.zeros(len(x), len(logits))
    model = Toy(x, z_given_x, revise(proposed, empirical[:, None], seen))
    torch.testing.assert_close(conditional_mutual_information(model.xtz), torch.zeros_like(model.premise))
    torch.testing.assert_close(model.captured - model.shared, model.premise)
    assume(model.captured > 1e-6)  # else r hardly depends on z, and there is nothing to fail
    assert model.premise > 0


@quick
@given(toys(), st.floats(0.1, 10.0))
def test_theorem_2_fails_by_its_premise_in_training(
    toy: tuple[Tensor, Tensor, Tensor, Tensor], strength: float
) -> None:
    """With t from the revised distribution the premise fails too, and holds only as λ → ∞ with all observed."""
    x, z_given_x, logits, empirical = toy
    proposed, seen = logits.softmax(-1), torch.ones(len(x), len(logits))
    model = Toy(x, z_given_x, revise(proposed.expand(len(x), -1, -1), empirical[:, None], seen, strength))
    torch.testing.assert_close(model.captured - model.shared, model.premise)
    assume(Toy(x, z_given_x, proposed.expand(len(x), -1, -1)).premise > 1e-3)
    assert model.premise > 0
    limit = Toy(x, z_given_x, revise(proposed.expand(len(x), -1, -1), empirical[:, None], seen, math.inf))
    torch.testing.assert_close(limit.premise, torch.zeros_like(limit.premise))


@quick
@given(toys(), st.floats(0.0, 100.0))
def test_update_bounds_the_information_left_outside_z(
    toy: tuple[Tensor, Tensor, Tensor, Tensor], strength: float
) -> None:
    """I(x;t|z) ≤ L_I for any proposal, with equality where r(t|z) is the model's own p(t|z)."""
    x, z_given_x, logits, empirical = toy
    seen, each = torch.ones(len(x), len(logits)), logits.expand(len(x), -1, -1)
    model = Toy(x, z_given_x, revise(each.softmax(-1), empirical[:, None], seen, strength))
    weight = x[:, None] * z_given_x
    bound = (weight * update_loss(each, empirical[:, None], seen, strength)).sum()
    left = conditional_mutual_information(model.xtz)
    assert left <= bound + 1e-12
    own = model.xtz.sum(0) / weight.sum(0)  # p(t|z), [T, Z]
    slack = (weight.sum(0) * torch.xlogy(own, own / logits.softmax(-1).T).sum(0)).sum()
    torch.testing.assert_close(bound - left, slack, atol=1e-10, rtol=1e-7)


def everything(g: Tensor, p: Tensor, seen: Tensor, strength: Tensor, uniform: Tensor) -> list[Tensor]:
    """Every function, on tensors of one batch."""
    gumbel = gumbel_from_uniform(uniform)
    return [
        keep_probability(seen, strength),
        revise(g.softmax(-1), p, seen, strength),
        log_revise(g.log_softmax(-1), p, seen, strength),
        update_loss(g, p, seen, strength),
        *update_terms(g, p, seen, strength),
        injected_logits(g, p, seen),
        gaussian_kl(g, g),
        uniform_kl(g),
        categorical_entropy(g),
        gumbel_softmax(g, gumbel, 0.5, hard=True),
        sample_revised(g, p, seen, uniform[..., 0], gumbel, strength),
        sample_revised(g, p, seen, uniform[..., 0], gumbel, strength, belief=seen),
        knowledge_loss(g, p, seen),
        knowledge_loss(g, p, seen, ~seen),
        label_posterior(g.softmax(-1), p, ~seen),
        uniform_errors(p, 0.3).expand(g.shape),
        torch.as_tensor(expected_reliance(uniform, strength.unsqueeze(-1))),
    ]


def batch(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Two samples of logits [S, B, M, K] over one knowledge [B, M, K]."""
    uniform = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(6))
    return (
        double(2, 3, 5, 7).to(dtype),
        double(3, 5, 7, seed=1).softmax(-1).to(dtype),
        double(3, 5, seed=2) > 0,
        double(3, 5, seed=3).exp().to(dtype),
        uniform,
    )


@pytest.mark.parametrize("dtype", [*DTYPES, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    g, p, seen, strength, uniform = batch(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for result in (
        revise(p, p, seen, strength),
        log_revise(g, p, seen, strength),
        update_loss(g, p, seen, strength),
        *update_terms(g, p, seen, strength),
        injected_logits(g, p, seen),
        gaussian_kl(g, g),
        uniform_kl(g),
        categorical_entropy(g),
        gumbel_softmax(g, uniform, 0.5),
        sample_revised(g, p, seen, uniform[..., 0], uniform, strength),
        sample_revised(g, p, seen, uniform[..., 0], uniform, strength, belief=seen),
        knowledge_loss(g, p, seen),
        knowledge_loss(g, p, seen, ~seen),
        label_posterior(p, p, seen),
        uniform_errors(p, strength / 10),
    ):
        assert result.dtype == wide


def test_half_precision_inputs_are_computed_in_float32() -> None:
    g, p, seen, strength, uniform = batch(torch.bfloat16)
    in_float32 = everything(g.float(), p.float(), seen, strength.float(), uniform)
    with torch.autocast("cpu", torch.bfloat16):
        under_autocast = everything(g.float(), p.float(), seen, strength.float(), uniform)
        loss = update_loss(g, p, seen, strength)
    torch.testing.assert_close(under_autocast, in_float32)
    torch.testing.assert_close(loss, update_loss(g.float(), p.float(), seen, strength.float()))


def test_samples_broadcast_over_knowledge() -> None:
    g, p, seen, strength, uniform = batch(torch.float64)
    together = everything(g, p, seen, strength, uniform)
    for s in range(2):
        alone = everything(g[s], p, seen, strength, uniform[s])
        for one, many in zip(alone[1:], together[1:], strict=True):
            torch.testing.assert_close(one, many[s])


def test_nothing_waits_for_the_device() -> None:
    """On the meta device there are no values: an .item() or a shape that depends on values would raise."""
    results = everything(*(tensor.to("meta") for tensor in batch(torch.float32)))
    assert all(result.is_meta for result in results)


def test_compiles_without_graph_breaks() -> None:
    def loss(g: Tensor, *others: Tensor) -> Tensor:
        return torch.stack([result.sum() for result in everything(g, *others)]).sum()

    g, *others = batch(torch.float32)
    gradients = []
    for function in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        leaf = g.clone().requires_grad_()
        gradients.append(torch.autograd.grad(function(leaf, *others), leaf)[0])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_the_theory_page_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    assert named
    assert named <= set(globals())
