"""RevUp: each term against its definition, each option against what it promises."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal, kl_divergence
from torch.nn import functional as F

from revup import ops
from revup.bottleneck import label_posterior, update_loss
from revup.data.batches import Batch
from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.models.layers import shifted
from revup.models.network import Sizes
from revup.models.randomness import Draws
from revup.models.residual import anchor_weight
from revup.models.revup import PRESETS, Objective
from revup.settings import Config, build_module

CPU = torch.device("cpu")
SEEN = Observation(epsilon=0.7, eta=0.1, seed=3)
PAPER, RELEASED = ("paper", "released")


@pytest.fixture(scope="module", params=["default", PAPER, RELEASED])
def preset(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Maker:
    """Builds modules for the tiny corpus that see every word, so that two ways of computing can be compared."""

    def __init__(self, corpus: Corpus, network: dict[str, Any]) -> None:
        self.corpus, self.network = corpus, {**network, "dropout": 0.0, "word_dropout": 0.0}
        self.sizes = Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events)

    def __call__(self, preset: str = "default", observation: Observation = SEEN, **settings: Any) -> Any:
        names = {item.name for item in fields(Objective)}
        objective = {name: value for name, value in settings.items() if name in names}
        network = {name: value for name, value in settings.items() if name not in names}
        overrides = {"objective": objective, "network": {**self.network, **network}}
        config = Config.make("revup", preset, seed=5, overrides=overrides)
        module = build_module(config, self.sizes)
        module.prepare(self.corpus, observation)
        for latent in module.latents:  # as after some training
            nn.init.normal_(latent.propose.weight, std=0.3, generator=torch.Generator().manual_seed(5))
        return module

    def batch(self, module: Any, observation: Observation = SEEN, size: int = 30, **options: Any) -> Batch:
        """The first documents, with the prior and the evidence of the module's counts."""
        split = self.corpus.split("train")
        found: Batch = next(module.batches(split, observation, size, training=True, **options).ordered())
        return found

    def both(self, preset: str = "default", observation: Observation = SEEN, **settings: Any) -> tuple[Any, Batch]:
        module = self(preset, observation, **settings)
        return module, self.batch(module, observation)


@pytest.fixture(scope="module")
def make(tiny_corpus: Corpus, tiny_network: dict[str, Any]) -> Maker:
    return Maker(tiny_corpus, tiny_network)


def draws(batch: Batch, seed: int = 1) -> Draws:
    return Draws.seeded(seed, batch.documents, CPU, batch.rows)


@torch.no_grad()
def chain(module: Any, batch: Batch, seed: int = 1) -> Any:
    """The latents of the very draws that `module(batch, draws(batch, seed))` makes."""
    knowledge, log_prior = module.knowledge(batch), module.prior_of(batch)
    hard = module.objective.straight_through
    return module.chain(module.encode(batch), batch, log_prior, knowledge, draws(batch, seed), hard)


# ---- the objective -------------------------------------------------------------------------------------------

WEIGHTS = {  # of the paper's section on training, and of the published code as SPEC has them
    ("paper", 0.5): {"alpha": 0.3, "beta": 1e-6, "zeta": 0.7, "entropy": 0.0},
    ("paper", 1.0): {"alpha": 0.3, "beta": 1e-6, "zeta": 0.7, "entropy": 0.0},
    ("paper", 0.49): {"alpha": 0.1, "beta": 0.2, "zeta": 1.0, "entropy": 0.0},
    ("paper", 0.0): {"alpha": 0.1, "beta": 0.2, "zeta": 1.0, "entropy": 0.0},
    ("released", 0.5): {"alpha": 0.0, "beta": 1e-6, "zeta": 0.0, "entropy": 0.3},
    ("released", 0.49): {"alpha": 0.0, "beta": 1e-6, "zeta": 0.0, "entropy": 0.1},
    ("default", 0.5): {"alpha": 0.3, "beta": 1e-6, "zeta": 0.0, "entropy": 0.0},
    ("default", 0.49): {"alpha": 0.3, "beta": 1e-6, "zeta": 0.0, "entropy": 0.0},
}


@pytest.mark.parametrize(("preset", "share"), WEIGHTS)
def test_presets_have_the_documented_weights(preset: str, share: float) -> None:
    objective = Config.make("revup", preset).objective
    for name, expected in WEIGHTS[preset, share].items():
        assert objective.weight(name, share) == expected
        captured = objective.weight(name, torch.tensor(share))
        assert float(captured) == pytest.approx(expected)


def test_the_presets_of_the_paper_and_its_code_use_none_of_our_additions() -> None:
    for preset in (PAPER, RELEASED):
        config = Config.make("revup", preset)
        assert (config.objective.prior, config.objective.noise, config.objective.induce) == ("none", "none", False)
        assert not config.objective.needs_counts
        assert not config.network.context
        assert (config.network.attention, config.network.shared, config.network.aligned) == ("full", False, False)
        assert (config.network.dropout, config.network.word_dropout, config.network.places) == (0, 0, 0)
        assert config.training.schedule == "constant"
        assert (config.objective.strength, config.objective.temperature, config.objective.samples) == (1.0, 0.5, 1)
        assert config.objective.reconstruction == "mean"
    assert Config.make("revup", PAPER).training.clip == 5.0
    released = Config.make("revup", RELEASED)
    assert (released.training.clip, released.objective.classification, released.objective.z_where) == (0, 1, "observed")
    assert set(PRESETS) == {"default", PAPER, RELEASED}


def test_a_weight_that_is_told_holds_everywhere() -> None:
    told = Config.make("revup", PAPER, overrides={"objective": {"alpha": 2.0}}).objective
    assert [told.weight("alpha", share) for share in (0.1, 0.9)] == [2.0, 2.0]
    assert [told.weight("beta", share) for share in (0.1, 0.9)] == [0.2, 1e-6]
    both = Config.make("revup", PAPER, overrides={"objective": {"alpha": 2.0, "scarce_alpha": 3.0}}).objective
    assert [both.weight("alpha", share) for share in (0.1, 0.9)] == [3.0, 2.0]


@pytest.mark.parametrize("epsilon", [0.2, 1.0], ids=["scarce", "plenty"])
def test_the_papers_loss_is_its_equation(make: Maker, epsilon: float) -> None:
    """Every term anew from torch.distributions and plain logits, for documents of different lengths."""
    observation = Observation(epsilon, 0.1, 3)
    module, batch = make.both(PAPER, observation)
    assert (batch.observed_share < 0.5) == (epsilon < 0.5)
    loss, latents = module(batch, draws(batch)), chain(module, batch)
    empirical = batch.empirical(make.sizes.classes)
    proposed = torch.softmax(latents.logits, -1)
    keep = 1 / (1 + batch.observed).unsqueeze(-1)
    revised = torch.where(batch.observed.unsqueeze(-1) > 0, keep * proposed + (1 - keep) * empirical, proposed)
    update = kl_divergence(Categorical(probs=revised), Categorical(probs=proposed))
    normal = Normal(latents.mean, (0.5 * latents.log_variance).exp())
    z = kl_divergence(normal, Normal(torch.zeros(()), torch.ones(()))).sum(-1)
    uniform = kl_divergence(Categorical(probs=proposed), Categorical(probs=torch.ones_like(proposed)))
    logits = module.vocabulary(module.decoder(module.words(shifted(batch.tokens)), latents.embedded, batch.mask))
    words = F.cross_entropy(logits[batch.token_mask], batch.tokens[batch.token_mask])  # mean per token
    expected = {
        "reconstruction": words,
        "update": (update * batch.mask).sum() / len(batch.mask),
        "z": (z * batch.mask).sum() / len(batch.mask),
        "uniform": (uniform * batch.mask).sum() / len(batch.mask),
    }
    assert {name: float(term) for name, term in loss.terms.items()} == pytest.approx(
        {name: float(term.detach()) for name, term in expected.items()}, rel=1e-4
    )
    alpha, beta, zeta = (0.1, 0.2, 1.0) if epsilon < 0.5 else (0.3, 1e-6, 0.7)
    total = words + alpha * expected["update"] + beta * expected["z"] + zeta * expected["uniform"]
    torch.testing.assert_close(loss.total, total, rtol=1e-5, atol=0)


@pytest.mark.parametrize("anchor", [0.0, 50.0, 1e9])
def test_staying_near_the_prior_weighs_as_many_labels_as_told(make: Maker, anchor: float) -> None:
    """min(1, anchor/n)·Σ KL(r ‖ prior), n being the labels that were counted; SSDVAE's default has the same term."""
    module, batch = make.both(anchor=anchor)
    without = make(anchor=0.0)
    with torch.no_grad():
        loss, plain = module(batch, draws(batch)), without(batch, draws(batch))
        log_prior = module.prior_of(batch)
        latents = chain(module, batch)
        gap = kl_divergence(Categorical(logits=latents.logits), Categorical(logits=log_prior))
    expected = float((gap * batch.mask).sum() / len(batch.mask))
    labels = int(make.corpus.split("train").seen(SEEN).observed.sum())
    assert module.counts.labels == pytest.approx(labels)
    weight = min(1.0, anchor / labels)
    assert float(loss.total - plain.total) == pytest.approx(weight * expected, rel=1e-3, abs=1e-5)
    assert ("anchor" in loss.terms) == (anchor > 0)


def test_the_published_codes_loss_is_its_effective_weights(make: Maker) -> None:
    """(1−λ̂) cross-entropy; −H(revised) plus H(r) where observed, minus H(r) where not; L_z on observed events."""
    module, batch = make.both(RELEASED)
    with torch.no_grad():
        loss, latents = module(batch, draws(batch)), chain(module, batch)
    there = batch.mask / len(batch.mask)
    proposed, empirical = Categorical(logits=latents.logits), batch.empirical(make.sizes.classes)
    seen = batch.observed
    label = -(empirical * torch.log_softmax(latents.logits, -1)).sum(-1)
    keep = (1 / (1 + seen)).unsqueeze(-1)
    mixed = torch.where(seen.unsqueeze(-1) > 0, keep * proposed.probs + (1 - keep) * empirical, proposed.probs)
    entropy = -Categorical(probs=mixed).entropy() + (2 * seen - 1) * proposed.entropy()
    normal = Normal(latents.mean, (0.5 * latents.log_variance).exp())
    z = kl_divergence(normal, Normal(torch.zeros(()), torch.ones(()))).sum(-1)
    expected = {
        "classification": float((0.5 * label * seen * there).sum()),
        "entropy": float((entropy * there).sum()),
        "z": float((z * seen * there).sum()),
    }
    assert {name: float(loss.terms[name]) for name in expected} == pytest.approx(expected, rel=1e-4)
    weight = 0.3 if batch.observed_share >= 0.5 else 0.1
    total = loss.terms["reconstruction"] + expected["classification"] + weight * expected["entropy"]
    assert float(loss.total) == pytest.approx(float(total) + 1e-6 * expected["z"], rel=1e-5)


def test_reconstruction_as_a_sum_counts_the_documents_tokens(make: Maker) -> None:
    batch = make.batch(make())
    mean, total = (
        float(make(reconstruction=kind)(batch, draws(batch)).terms["reconstruction"]) for kind in ("mean", "sum")
    )
    assert total == pytest.approx(mean * int(batch.token_mask.sum()) / len(batch.tokens), rel=1e-5)


def test_unobserved_events_update_nothing(make: Maker, preset: str) -> None:
    """Exactly 0 with nothing seen, and with something seen the same as if only that were there."""
    nothing = Observation(0.0)
    module, batch = make.both(preset, nothing)
    loss = module(batch, draws(batch))
    assert float(loss.terms["update"]) == 0.0
    module, batch = make.both(preset)
    latents, knowledge = chain(module, batch), module.knowledge(batch)
    posterior = label_posterior(latents.logits.softmax(-1), knowledge.empirical, knowledge.belief)
    per_event = update_loss(latents.logits, posterior, batch.observed)
    assert (per_event[batch.observed == 0] == 0).all()
    assert (per_event[batch.observed == 1] > 0).all()


def test_with_nothing_seen_the_frames_do_not_matter(make: Maker, preset: str) -> None:
    nothing = Observation(0.0)
    module, batch = make.both(preset, nothing)
    other = replace(batch, reference=(batch.reference + 1) % make.sizes.classes)
    assert torch.equal(module(batch, draws(batch)).total, module(other, draws(other)).total)


def test_every_parameter_learns(make: Maker, preset: str) -> None:
    """What several processes must agree on, and nothing that is carried along for nothing."""
    module, batch = make.both(preset)
    module(batch, draws(batch)).total.backward()
    assert [name for name, p in module.named_parameters() if p.grad is None] == []
    assert all(p.grad.isfinite().all() for p in module.parameters())


def test_the_loss_of_the_parts_is_the_loss_of_the_whole(make: Maker, preset: str) -> None:
    """31 documents shared by two processes, one with more than the other: losses and gradients add up."""
    module = make(preset)
    whole = make.batch(module, size=31)
    parts = [make.batch(module, size=31, rank=rank, processes=2) for rank in range(2)]
    assert [len(part.tokens) for part in parts] == [15, 16]
    loss = module(whole, draws(whole))
    loss.total.backward()
    expected = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    terms: dict[str, Tensor] = {}
    for part in parts:
        found = module(part, draws(part))
        found.total.backward()
        terms = {name: term + terms.get(name, 0) for name, term in found.terms.items()}
    for name, term in loss.terms.items():
        torch.testing.assert_close(terms[name], term, rtol=1e-5, atol=1e-7)
    for name, p in module.named_parameters():
        assert (p.grad - expected[name]).norm() <= 1e-4 * expected[name].norm() + 1e-7, name


def test_counts_as_tensors_give_the_same_loss(make: Maker, preset: str) -> None:
    """As they are where a step is captured."""
    module, batch = make.both(preset)
    counts = {name: torch.tensor(float(getattr(batch, name))) for name in ("events", "observed_events")}
    torch.testing.assert_close(module(replace(batch, **counts), draws(batch)).total, module(batch, draws(batch)).total)


# ---- samples, temperature, straight-through ------------------------------------------------------------------


class Recorded(Draws):
    """Draws whose numbers are written down, or read back one sample at a time."""

    def __init__(self, batch: Batch, copies: int, read: tuple[list[Tensor], int] | None = None) -> None:
        super().__init__(torch.Generator().manual_seed(1), batch.documents, batch.rows, copies)
        self.written: list[Tensor] = []
        self.read = iter([tensor[:, read[1]] for tensor in read[0]]) if read else None

    def _number(self, numbers: Tensor) -> Tensor:
        if self.read is not None:
            return next(self.read)
        self.written.append(numbers.view(self.documents, self.copies, *numbers.shape[1:]))
        return numbers

    def normal(self, *shape: int) -> Tensor:
        return self._number(super().normal(*shape))

    def uniform(self, *shape: int) -> Tensor:
        return self._number(super().uniform(*shape))


def test_several_samples_are_averaged(make: Maker, preset: str) -> None:
    """S = 3 at once gives the mean of three losses with one sample each."""
    single = make(preset, samples=1)
    batch = make.batch(single, size=16)
    recorded = Recorded(batch, 3)
    together = make(preset, samples=3)(batch, recorded)
    apart = [single(batch, Recorded(batch, 1, (recorded.written, s))) for s in range(3)]
    assert len({loss.total.item() for loss in apart}) == 3
    torch.testing.assert_close(together.total, sum(loss.total for loss in apart) / 3, rtol=1e-5, atol=1e-6)
    for name, term in together.terms.items():
        torch.testing.assert_close(term, sum(loss.terms[name] for loss in apart) / 3, rtol=1e-5, atol=1e-6)


def test_straight_through_passes_one_frame_on_and_learns(make: Maker) -> None:
    soft, (module, batch) = make(), make.both(straight_through=True)
    frames = chain(module, batch).frames
    torch.testing.assert_close(frames.sort(-1).values, torch.eye(frames.shape[-1])[-1].expand_as(frames))
    relaxed = chain(soft, batch).frames
    assert (relaxed.max(-1).values < 0.99).any()
    module(batch, draws(batch)).total.backward()
    assert module.latents[0].propose.weight.grad.abs().sum() > 0


def test_temperature_sharpens(make: Maker) -> None:
    nothing = Observation(0.0)
    batch = make.batch(make(observation=nothing), nothing)
    sharpness = [
        float(chain(make(observation=nothing, temperature=t), batch).frames.max(-1).values.mean())
        for t in (0.02, 0.5, 2.0, 50.0)
    ]
    assert sharpness == sorted(sharpness, reverse=True)
    assert sharpness[0] > 0.97
    assert sharpness[-1] < 0.25


def test_strength_decides_how_much_is_believed(make: Maker) -> None:
    """λ = 0: what is seen is not passed on; λ → ∞: nothing else is; λ = 1: a coin decides."""
    batch = make.batch(make(noise="none"))
    seen = batch.observed > 0
    assert (batch.belief[seen] == 1).all()
    label = batch.empirical(make.sizes.classes)[seen]

    def taken(strength: float) -> float:
        latents = chain(make(strength=strength, noise="none"), batch)
        return float((latents.frames[seen] == label).all(-1).float().mean())

    assert taken(0.0) == 0
    assert taken(1e9) == 1
    assert taken(1.0) == pytest.approx(0.5, abs=0.2)
    surest = replace(batch, confidence=torch.full_like(batch.confidence, 1e9))
    assert (chain(make(noise="none"), surest).frames[seen] == label).all()
    module = make(strength=0.0)
    assert float(module(batch, draws(batch)).terms["update"]) == 0


@pytest.mark.parametrize("strength", [1.0, 1e9])
def test_what_may_be_wrong_is_passed_on_as_far_as_it_is_believed(make: Maker, strength: float) -> None:
    """With a noise model, frames are drawn from the revision by the posterior over the true frame; it passes gradients
    on to the proposal, which a frame that is simply told does not."""
    module, batch = make.both(strength=strength, noise_rate=0.6, straight_through=True)
    seen = batch.observed[:, 0] > 0
    told, belief = batch.empirical(make.sizes.classes)[seen, 0], batch.belief[seen, 0]
    assert not belief.any()
    torch.testing.assert_close(
        told.sort(-1).values, torch.tensor([0.6 / 6 / (0.4 + 0.6 / 6)] * 5 + [1.0]).expand_as(told)
    )
    found, expected = torch.zeros_like(told), torch.zeros_like(told)
    for seed in range(300):
        latents = chain(module, batch, seed)
        proposed = latents.logits[seen, 0].softmax(-1)
        found += latents.frames[seen, 0] / 300
        expected += (proposed + strength * label_posterior(proposed, told, belief)) / (1 + strength) / 300
    assert (found - expected).abs().max() < 0.12  # four standard errors
    label = F.one_hot(told.argmax(-1), make.sizes.classes)
    assert (expected - label).abs().max() > 0.2

    def pull(**noise: Any) -> float:
        everything = Observation(1.0, 0.1, 3)
        module, batch = make.both(observation=everything, strength=1e9, alpha=0.0, anchor=0.0, beta=0.0, **noise)
        module(batch, draws(batch)).total.backward()
        return float(module.latents[0].propose.weight.grad.norm())

    assert pull(noise="none") == 0
    assert pull(noise_rate=0.6) > 0


# ---- attention and weights -----------------------------------------------------------------------------------


def still(module: Any) -> Any:
    """Nothing passes along the chain: the query is the same for every event."""
    with torch.no_grad():
        module.frames.zero_()
        module.first_query.weight.zero_()
        module.first_query.bias.zero_()
    return module


@pytest.mark.parametrize(("attention", "slots"), [("confined", True), ("confined", False), ("full", True)])
def test_who_looks_at_which_tokens(make: Maker, attention: str, slots: bool) -> None:
    """Confined, latent m sees event m's states alone (the encoder and the chain apart); full, it sees all of them."""
    module, batch = make.both(PAPER, attention=attention, slots=slots)
    still(module)
    long = (batch.mask.sum(1) == make.sizes.events).nonzero().flatten()
    with torch.no_grad():
        states = module.encode(batch)
        before = module.chain(states, batch, None)
        assert before.attention.shape[-1] == (5 if attention == "confined" else 5 * make.sizes.events)
        changed = states.clone()
        changed[:, 5:10] += torch.randn_like(changed[:, 5:10])  # event 2
        after = module.chain(changed, batch, None)
    moved = (after.logits - before.logits)[long].abs().amax((0, 2)) > 1e-6
    assert moved.tolist() == ([False, True, False, False] if attention == "confined" else [True] * 4)


@pytest.mark.parametrize("slots", [True, False])
def test_with_slots_it_matters_what_stands_where(make: Maker, slots: bool) -> None:
    """A latent that looks at its tokens all alike notices subject and object changing places if it reads slots."""
    module, batch = make.both(slots=slots)
    still(module)
    with torch.no_grad():
        module.latents[0].attention.score.weight.zero_()
        states = module.encode(batch)
        assert states.shape[-1] == 2 * 16 + 16 * slots
        before = module.chain(states, batch, None).logits
        order = torch.tensor([0, 2, 1, 3, 4, *range(5, states.shape[1])])
        after = module.chain(states[:, order], batch, None).logits
    moved = (after - before).abs().amax((0, 2)) > 1e-5
    assert moved.tolist() == [slots, False, False, False]


def test_the_chain_passes_frames_on(make: Maker, preset: str) -> None:
    """t_1 reaches z_2 through e_1, whatever the attention; nothing runs backwards (before frame context is learned)."""
    module, batch = make.both(preset)
    with torch.no_grad():
        states = module.encode(batch)
        k = make.sizes.classes
        told = torch.zeros(len(states), 4, k)
        told[:, 1, 0] = 1
        observed = torch.zeros(len(states), 4)
        observed[:, 1] = 1
        sure = torch.full((len(states), 4), 1e9)
        plain = module.chain(states, batch, None)
        given = module.chain(states, batch, None, ops.Knowledge(told, observed, sure))
    same = (plain.logits == given.logits).all(-1).all(0)
    assert same.tolist() == [True, True, False, False]


@pytest.mark.parametrize("shared", [True, False])
def test_weights_shared_or_one_set_per_event(make: Maker, shared: bool) -> None:
    module, batch = make.both(PAPER, shared=shared)
    assert len(module.latents) == (1 if shared else make.sizes.events)
    with torch.no_grad():
        before = still(module).latents_of(batch).logits
        module.latents[-1].propose.bias += 1 + torch.arange(float(make.sizes.classes))
        after = module.latents_of(batch).logits
    moved = (before != after).any(-1).all(0)
    assert moved.tolist() == ([True] * 4 if shared else [False, False, False, True])


# ---- padding, batches, what users ask ------------------------------------------------------------------------


def test_what_stands_in_padding_changes_nothing(make: Maker, preset: str) -> None:
    module, batch = make.both(preset)
    assert not batch.mask.all()
    noise = torch.randint(5, make.sizes.words, batch.tokens.shape)
    filled = replace(
        batch,
        tokens=torch.where(batch.token_mask, batch.tokens, noise),
        read=torch.where(batch.token_mask, batch.read, noise),
    )
    assert torch.equal(module(batch, draws(batch)).total, module(filled, draws(batch)).total)
    with torch.no_grad():
        for ask in (module.frame_probabilities, lambda b: module.embed(b)[1]):
            assert torch.equal(ask(batch)[batch.mask], ask(filled)[batch.mask])
        nll = module.token_nll(filled, draws(batch), False)
        assert torch.equal(nll, module.token_nll(batch, draws(batch), False))
    assert (nll[~batch.token_mask] == 0).all()


def test_a_document_is_computed_alike_in_any_batch(make: Maker, preset: str) -> None:
    module, whole = make.both(preset)
    alone = replace(whole, **{n: v[3:5] for n, v in whole.parts().items() if isinstance(v, Tensor)}, documents=2)
    with torch.no_grad():
        torch.testing.assert_close(module.frame_probabilities(alone), module.frame_probabilities(whole)[3:5])
        torch.testing.assert_close(module.token_nll(alone, None, True), module.token_nll(whole, None, True)[3:5])


def test_asking_for_frames(make: Maker, preset: str) -> None:
    """r at the mean of z; revised where asked; drawn where draws are given; sampled from a Gumbel sample."""
    module, batch = make.both(preset)
    with torch.no_grad():
        proposed, revised = module.frame_probabilities(batch), module.frame_probabilities(batch, revise=True)
        torch.testing.assert_close(proposed.sum(-1), torch.ones_like(batch.observed))
        knowledge, strength = module.knowledge(batch).at(0), module.objective.strength
        told = label_posterior(proposed[:, 0], knowledge.empirical, knowledge.belief)
        mixed = (proposed[:, 0] + strength * told) / (1 + strength)
        expected = torch.where(batch.observed[:, :1] > 0, mixed, proposed[:, 0])
        torch.testing.assert_close(revised[:, 0], expected)
        drawn = module.frame_probabilities(batch, draws(batch))
        assert not torch.allclose(drawn, proposed)
        latents = module.latents_of(batch, draws(batch))
        assert torch.equal(module.sampled_frames(batch, draws(batch)), latents.frames.argmax(-1))
        hard = module.latents_of(batch, hard=True)
        assert torch.equal(hard.frames, F.one_hot(hard.logits.argmax(-1), make.sizes.classes).float())
        documents, events = module.embed(batch)
        mean = module.latents_of(batch)
        torch.testing.assert_close(events, torch.cat([mean.mean, mean.embedded], -1))
        row = int(batch.mask[0].sum())
        torch.testing.assert_close(documents[0], events[0, :row].mean(0))


def test_hard_reconstruction_sees_frames_alone(make: Maker) -> None:
    """With one-hot frames the text reaches the decoder through M numbers: equal frames give equal probabilities."""
    module, batch = make.both()
    with torch.no_grad():
        hard = module.latents_of(batch, hard=True)
        rows = module.frames[hard.frames.argmax(-1)]
        torch.testing.assert_close(hard.embedded, rows)


# ---- counts as a prior (of themselves: test_counts.py) ---------------------------------------------------------


def plain_default(module: Any, batch: Batch, draws: Draws) -> dict[str, Tensor]:
    """The terms of `default` step by step, from the batch's arrays: prior, gate, evidence, frame context, anchor."""
    o, m_events, classes = module.objective, module.sizes.events, module.sizes.classes
    log_prior = batch.prior_rest.unsqueeze(-1) + module.log_base
    likelihood = batch.other.unsqueeze(-1).expand_as(log_prior).clone()
    for b in range(len(batch.mask)):
        for m in range(m_events):
            for k, gain in zip(batch.prior_frames[b, m], batch.prior_gain[b, m], strict=True):
                log_prior[b, m, k] += gain
            for k, weight in zip(batch.frames[b, m], batch.weights[b, m], strict=True):
                likelihood[b, m, k] += weight
    gate = (batch.labels / (batch.labels + o.gate)).unsqueeze(-1)
    keep = (1 / (1 + o.strength * batch.confidence * batch.observed)).unsqueeze(-1)
    states = module.encode(batch)
    of_events, weights = states.view(len(states), m_events, 5, -1), module.latents[0]
    normal, uniform, coin = draws.normal(m_events, module.network.latent), *_uniforms(draws, m_events, classes)
    there = batch.token_mask.unsqueeze(-1)
    e = module.first_query((states * there).sum(1) / there.sum(1))
    found: dict[str, list[Tensor]] = {"logits": [], "e": [], "z": []}
    for m in range(m_events):
        memory = of_events[:, m]
        scores = (weights.attention.score(e).unsqueeze(1) * memory).sum(-1) / memory.shape[-1] ** 0.5
        seen = (scores.softmax(-1).unsqueeze(-1) * memory).sum(1)
        context = torch.tanh(weights.attention.out(torch.cat([seen, memory.flatten(1), e], -1)))
        mean, log_variance = weights.gaussian(context).chunk(2, -1)
        z = mean + (log_variance / 2).exp() * normal[:, m]
        logits = gate[:, m] * weights.propose(z) + log_prior[:, m]
        evidence = torch.where(coin[:, m, None] < keep[:, m], torch.zeros(()), likelihood[:, m].log())
        gumbel = -(-uniform[:, m].log()).log()
        e = torch.softmax((logits + evidence + gumbel) / o.temperature, -1) @ module.frames
        normals = Normal(mean, (log_variance / 2).exp()), Normal(torch.zeros(()), torch.ones(()))
        for name, value in zip(found, (logits, e, kl_divergence(*normals).sum(-1)), strict=True):
            found[name].append(value)
    logits = torch.stack(found["logits"], 1)
    given = batch.observed * (draws.uniform(m_events) < 0.5) * (draws.uniform(1) < 0.5)
    told = (logits.detach().softmax(-1) * likelihood * given.unsqueeze(-1)).nan_to_num()
    told = told / told.sum(-1, keepdim=True).clamp_min(1e-30) @ module.frames
    before, after = module.residual.context.rnn(told)[0].chunk(2, -1)
    zero = torch.zeros_like(before[:, :1])
    around = torch.cat([torch.cat([zero, before[:, :-1]], 1), torch.cat([after[:, 1:], zero], 1)], -1)
    moved = gate * module.residual.context.out(around)
    logits = logits + torch.where((given.sum(1) > 0).view(-1, 1, 1), moved, torch.zeros(()))
    proposed = logits.softmax(-1)
    posterior = proposed.detach() * likelihood
    posterior = posterior / posterior.sum(-1, keepdim=True)
    revised = torch.where(batch.observed.unsqueeze(-1) > 0, keep * proposed + (1 - keep) * posterior, proposed)
    words = module.vocabulary(
        module.decoder(module.words(shifted(batch.tokens)), torch.stack(found["e"], 1), batch.mask)
    )
    share = batch.mask / len(batch.mask)
    return {
        "reconstruction": F.cross_entropy(words[batch.token_mask], batch.tokens[batch.token_mask]),
        "update": (kl_divergence(Categorical(probs=revised), Categorical(probs=proposed)) * share).sum(),
        "z": (torch.stack(found["z"], 1) * share).sum(),
        "anchor": (kl_divergence(Categorical(probs=proposed), Categorical(logits=log_prior)) * share).sum(),
    }


def _uniforms(draws: Draws, events: int, classes: int) -> tuple[Tensor, Tensor]:
    return draws.uniform(events, classes), draws.uniform(events)


@pytest.mark.parametrize("epsilon", [0.4, 1.0])
def test_the_default_loss_is_its_equation(make: Maker, epsilon: float) -> None:
    """Loss and every gradient, with a residual and a frame context that say something."""
    observation = Observation(epsilon, 0.3, 3)
    module, batch = make.both(observation=observation)
    nn.init.normal_(module.residual.context.out.weight, generator=torch.Generator().manual_seed(1))
    assert 0 < float(batch.labels.min() + 1) < float(batch.labels.max())
    loss = module(batch, draws(batch))
    loss.total.backward()
    found = {name: p.grad.clone() for name, p in module.named_parameters()}
    module.zero_grad()
    terms = plain_default(module, batch, draws(batch))
    for name, term in terms.items():
        torch.testing.assert_close(loss.terms[name], term.detach(), rtol=1e-4, atol=1e-6, msg=name)
    total = terms["reconstruction"] + 0.3 * terms["update"] + 1e-6 * terms["z"]
    total = total + min(2000 / module.counts.labels, 1.0) * terms["anchor"]
    torch.testing.assert_close(loss.total, total, rtol=1e-5, atol=1e-6)
    total.backward()
    for name, p in module.named_parameters():
        assert (p.grad - found[name]).norm() <= 1e-3 * found[name].norm() + 1e-6, name


def test_the_proposal_stands_on_the_prior(make: Maker) -> None:
    """γ = g·linear(z) + log prior: with a silent network r is the prior itself, Σ = 1."""
    module, batch = make.both()
    with torch.no_grad():
        for weights in module.latents:
            weights.propose.weight.zero_()
            weights.propose.bias.zero_()
        log_prior = module.log_prior(batch)
        torch.testing.assert_close(log_prior[batch.mask].exp().sum(-1), torch.ones(int(batch.mask.sum())))
        torch.testing.assert_close(module.frame_probabilities(batch).log(), torch.log_softmax(log_prior, -1))
    assert make(PAPER).counts is None
    assert make(prior="none").prior_of(batch) is None


@pytest.mark.parametrize("gate", [0.0, 5.0])
def test_the_network_adds_by_how_much_was_seen_of_the_predicate(make: Maker, gate: float) -> None:
    """n/(n + gate) times what it adds, times the calibrated factor of the predicate's group."""
    module, batch = make.both(gate=gate)
    module.residual.scale.copy_(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0]))
    with torch.no_grad():
        states, log_prior = module.encode(batch), module.log_prior(batch)
        raw = module.chain(states, batch, None).logits[:, 0]
        found = module.chain(states, batch, log_prior).logits[:, 0]
    for row, n in enumerate(batch.labels[:, 0].tolist()):
        factor = 0.25 * sum(n > limit for limit in (0.5, 3, 10, 50))
        gated = factor * (n / (n + gate) if gate else 1.0)
        torch.testing.assert_close(found[row], gated * raw[row] + log_prior[row, 0])


def test_where_nothing_was_counted_nothing_stands_on_it(make: Maker) -> None:
    """Without a single label there are no counts to stay near."""
    for observation in (Observation(0.0), SEEN):
        assert (anchor_weight(make(observation=observation, induce=False)) > 0) == (observation is SEEN)


def test_the_noise_rate_is_estimated_or_told(make: Maker) -> None:
    """Where most predicates have one frame, labels that scatter are errors; few labels do not tell."""
    clean, noisy = Observation(1.0, 0.0, 1), Observation(1.0, 0.6, 1)
    said = [[Event(f"p{(7 * n + 3 * m) % 40}", frame=f"F{(7 * n + 3 * m) % 20}") for m in range(4)] for n in range(500)]
    documents = [Document(f"d{n}", events) for n, events in enumerate(said)]
    told = Maker(Corpus.build(train=documents, events=4, duplicates="keep"), make.network)
    assert told(observation=clean).error_rate() < 0.05
    assert told(observation=noisy).error_rate() == pytest.approx(0.6 * 0.95, abs=0.05)  # 1 of 20 is drawn right again
    assert told(observation=noisy, noise_rate=0.2).error_rate() == pytest.approx(0.2)
    assert told(observation=noisy, noise="none").error_rate() == 0
    assert make(observation=noisy).error_rate() == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"z_where": "none"}, "objective.z-where: expected all or observed, found 'none'"),
        ({"reconstruction": "max"}, "objective.reconstruction: expected mean or sum"),
        ({"prior": "yes"}, "objective.prior: expected pooled or none, found 'yes'"),
        ({"noise": "yes"}, "objective.noise: expected estimated or none"),
        ({"samples": 0}, "objective.samples: expected a whole number from 1 to 1000, found 0"),
        ({"strength": -1.0}, "objective.strength: expected a number of 0 or more"),
        ({"temperature": float("nan")}, "objective.temperature: expected a number of 0.001 or more"),
        ({"noise_rate": 1.0}, "objective.noise-rate: expected a number from 0 to below 1"),
    ],
)
def test_a_wrong_objective_is_refused_by_name(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RevupError, match=message):
        Objective(**wrong)
