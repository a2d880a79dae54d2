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
from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.models.base import Draws, Sizes
from revup.models.layers import shifted
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

    def batch(self, observation: Observation = SEEN, size: int = 30, rank: int = 0, processes: int = 1) -> Batch:
        split = self.corpus.split("train")
        return next(iter(Batches(split, observation, size, rank=rank, processes=processes).ordered()))


@pytest.fixture(scope="module")
def make(tiny_corpus: Corpus, tiny_network: dict[str, Any]) -> Maker:
    return Maker(tiny_corpus, tiny_network)


def draws(batch: Batch, seed: int = 1) -> Draws:
    return Draws.seeded(seed, batch.documents, CPU, batch.rows)


@torch.no_grad()
def chain(module: Any, batch: Batch, seed: int = 1) -> Any:
    """The latents of the very draws that `module(batch, draws(batch, seed))` makes."""
    empirical = batch.empirical(module.sizes.classes)
    knowledge = module.knowledge(batch)
    log_prior = module.log_prior(batch, empirical)
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
        assert (config.objective.prior, config.objective.noise, config.objective.pooled_strength) == ("none", "none", 0)
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
    module, batch = make(PAPER, observation), make.batch(observation)
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
    """min(1, anchor/n)·Σ KL(r ‖ prior), n being the labels label_posterior; SSDVAE's default has the same term."""
    module, batch = make(anchor=anchor), make.batch()
    without = make(anchor=0.0)
    with torch.no_grad():
        loss, plain = module(batch, draws(batch)), without(batch, draws(batch))
        empirical = batch.empirical(make.sizes.classes)
        log_prior = module.log_prior(batch, empirical)
        latents = chain(module, batch)
        gap = kl_divergence(Categorical(logits=latents.logits), Categorical(logits=log_prior))
    expected = float((gap * batch.mask).sum() / len(batch.mask))
    weight = min(1.0, anchor / float(module.prior.lemmas.sum()))
    assert float(loss.total - plain.total) == pytest.approx(weight * expected, rel=1e-3, abs=1e-5)
    assert ("anchor" in loss.terms) == (anchor > 0)


def test_the_published_codes_loss_is_its_effective_weights(make: Maker) -> None:
    """(1−λ̂) cross-entropy; −H(revised) plus H(r) where observed, minus H(r) where not; L_z on observed events."""
    module, batch = make(RELEASED), make.batch()
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
    batch = make.batch()
    mean, total = (
        float(make(reconstruction=kind)(batch, draws(batch)).terms["reconstruction"]) for kind in ("mean", "sum")
    )
    assert total == pytest.approx(mean * int(batch.token_mask.sum()) / len(batch.tokens), rel=1e-5)


def test_unobserved_events_update_nothing(make: Maker, preset: str) -> None:
    """Exactly 0 with nothing seen, and with something seen the same as if only that were there."""
    nothing = Observation(0.0)
    module, batch = make(preset, nothing), make.batch(nothing)
    loss = module(batch, draws(batch))
    assert float(loss.terms["update"]) == 0.0
    module, batch = make(preset), make.batch()
    latents, empirical = chain(module, batch), batch.empirical(make.sizes.classes)
    per_event = update_loss(latents.logits, empirical, batch.observed)
    assert (per_event[batch.observed == 0] == 0).all()
    assert (per_event[batch.observed == 1] > 0).all()


def test_with_nothing_seen_the_frames_do_not_matter(make: Maker, preset: str) -> None:
    nothing = Observation(0.0)
    batch = make.batch(nothing)
    other = replace(batch, reference=(batch.reference + 1) % make.sizes.classes)
    module = make(preset, nothing)
    assert torch.equal(module(batch, draws(batch)).total, module(other, draws(other)).total)


def test_every_parameter_learns(make: Maker, preset: str) -> None:
    """What several processes must agree on, and nothing that is carried along for nothing."""
    module, batch = make(preset), make.batch()
    module(batch, draws(batch)).total.backward()
    assert [name for name, p in module.named_parameters() if p.grad is None] == []
    assert all(p.grad.isfinite().all() for p in module.parameters())


def test_the_loss_of_the_parts_is_the_loss_of_the_whole(make: Maker, preset: str) -> None:
    """31 documents shared by two processes, one with more than the other: losses and gradients add up."""
    module = make(preset)
    whole = make.batch(size=31)
    parts = [make.batch(size=31, rank=rank, processes=2) for rank in range(2)]
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
    module, batch = make(preset), make.batch()
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
    batch = make.batch(size=16)
    recorded = Recorded(batch, 3)
    together = make(preset, samples=3)(batch, recorded)
    single = make(preset, samples=1)
    apart = [single(batch, Recorded(batch, 1, (recorded.written, s))) for s in range(3)]
    assert len({loss.total.item() for loss in apart}) == 3
    torch.testing.assert_close(together.total, sum(loss.total for loss in apart) / 3, rtol=1e-5, atol=1e-6)
    for name, term in together.terms.items():
        torch.testing.assert_close(term, sum(loss.terms[name] for loss in apart) / 3, rtol=1e-5, atol=1e-6)


def test_straight_through_passes_one_frame_on_and_learns(make: Maker) -> None:
    module, soft, batch = make(straight_through=True), make(), make.batch()
    frames = chain(module, batch).frames
    torch.testing.assert_close(frames.sort(-1).values, torch.eye(frames.shape[-1])[-1].expand_as(frames))
    relaxed = chain(soft, batch).frames
    assert (relaxed.max(-1).values < 0.99).any()
    module(batch, draws(batch)).total.backward()
    assert module.latents[0].propose.weight.grad.abs().sum() > 0


def test_temperature_sharpens(make: Maker) -> None:
    nothing = Observation(0.0)
    batch = make.batch(nothing)
    sharpness = [
        float(chain(make(observation=nothing, temperature=t), batch).frames.max(-1).values.mean())
        for t in (0.02, 0.5, 2.0, 50.0)
    ]
    assert sharpness == sorted(sharpness, reverse=True)
    assert sharpness[0] > 0.97
    assert sharpness[-1] < 0.25


def test_strength_decides_how_much_is_believed(make: Maker) -> None:
    """λ = 0: what is seen is not passed on; λ → ∞: nothing else is; λ = 1: a coin decides."""
    batch = make.batch()
    seen = batch.observed > 0
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
    """With a noise model, frames are drawn from the revision by what is label_posterior; it passes gradients on to the
    proposal, which a frame that is simply told does not."""
    batch = make.batch()
    seen = batch.observed[:, 0] > 0
    module = make(strength=strength, noise_rate=0.6, straight_through=True)
    told = batch.empirical(make.sizes.classes)[seen, 0]
    found, expected = torch.zeros_like(told), torch.zeros_like(told)
    for seed in range(300):
        latents = chain(module, batch, seed)
        proposed = latents.logits[seen, 0].softmax(-1)
        found += latents.frames[seen, 0] / 300
        expected += (proposed + strength * label_posterior(proposed, told, 0.6)) / (1 + strength) / 300
    assert (found - expected).abs().max() < 0.12  # four standard errors
    assert (expected - told).abs().max() > 0.2

    everywhere = replace(batch, observed=batch.mask.float(), confidence=batch.mask.float())

    def pull(noise: str) -> float:
        module = make(strength=1e9, noise=noise, noise_rate=0.6, alpha=0.0, anchor=0.0, beta=0.0)
        module(everywhere, draws(batch)).total.backward()
        return float(module.latents[0].propose.weight.grad.norm())

    assert pull("none") == 0
    assert pull("estimated") > 0


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
    module, batch = still(make(PAPER, attention=attention, slots=slots)), make.batch()
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
    module, batch = still(make(slots=slots)), make.batch()
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
    """t_1 reaches z_2 through e_1, whatever the attention; nothing runs backwards."""
    module, batch = make(preset), make.batch()
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
    module, batch = make(PAPER, shared=shared), make.batch()
    assert len(module.latents) == (1 if shared else make.sizes.events)
    with torch.no_grad():
        before = still(module).latents_of(batch).logits
        module.latents[-1].propose.bias += 1 + torch.arange(float(make.sizes.classes))
        after = module.latents_of(batch).logits
    moved = (before != after).any(-1).all(0)
    assert moved.tolist() == ([True] * 4 if shared else [False, False, False, True])


# ---- padding, batches, what users ask ------------------------------------------------------------------------


def test_what_stands_in_padding_changes_nothing(make: Maker, preset: str) -> None:
    module, batch = make(preset), make.batch()
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
    module, whole = make(preset), make.batch(size=30)
    alone = replace(whole, **{n: v[3:5] for n, v in whole.parts().items() if isinstance(v, Tensor)}, documents=2)
    with torch.no_grad():
        torch.testing.assert_close(module.frame_probabilities(alone), module.frame_probabilities(whole)[3:5])
        torch.testing.assert_close(module.token_nll(alone, None, True), module.token_nll(whole, None, True)[3:5])


def test_asking_for_frames(make: Maker, preset: str) -> None:
    """r at the mean of z; revised where asked; drawn where draws are given; sampled from a Gumbel sample."""
    module, batch = make(preset), make.batch()
    with torch.no_grad():
        proposed, revised = module.frame_probabilities(batch), module.frame_probabilities(batch, revise=True)
        torch.testing.assert_close(proposed.sum(-1), torch.ones_like(batch.observed))
        told = batch.empirical(make.sizes.classes)[:, 0]
        strength = module.objective.strength
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
    module, batch = make(), make.batch()
    with torch.no_grad():
        hard = module.latents_of(batch, hard=True)
        rows = module.frames[hard.frames.argmax(-1)]
        torch.testing.assert_close(hard.embedded, rows)


# ---- counts as a prior (of itself: test_prior.py) --------------------------------------------------------------


def test_slot_weights_learn_with_the_rest(make: Maker) -> None:
    module, batch = make(), make.batch()
    module(batch, draws(batch)).total.backward()
    assert (module.prior.slot_weights.grad != 0).all()
    assert make(prior="predicate").prior.slot_weights is None


@pytest.mark.parametrize("prior", ["pooled", "predicate"])
def test_the_proposal_stands_on_the_prior(make: Maker, prior: str) -> None:
    """γ = linear(z) + log prior: with a silent network r is the prior itself, Σ = 1."""
    module, batch = make(prior=prior), make.batch()
    with torch.no_grad():
        for weights in module.latents:
            weights.propose.weight.zero_()
            weights.propose.bias.zero_()
        log_prior = module.prior(batch.tokens)
        torch.testing.assert_close(module.frame_probabilities(batch).log(), torch.log_softmax(log_prior, -1))
        if prior == "predicate":
            torch.testing.assert_close(log_prior.exp().sum(-1), torch.ones(batch.mask.shape))
    assert make(PAPER).prior is None
    assert make(prior="none").log_prior(batch, None) is None


def test_where_nothing_was_counted_nothing_stands_on_it(make: Maker) -> None:
    """Without a single label there are no counts to stay near."""
    for observation in (Observation(0.0), SEEN):
        config = Config.make("revup", seed=5, overrides={"network": make.network, "objective": {"induce": False}})
        module = build_module(config, make.sizes)
        module.prepare(make.corpus, observation)
        assert (float(module.prior.anchor(50.0)) > 0) == (observation is SEEN)


def test_the_noise_rate_is_estimated_or_told(make: Maker) -> None:
    clean, noisy = Observation(1.0, 0.0, 1), Observation(1.0, 0.6, 1)
    assert float(make(observation=clean).prior.noise_rate) < 0.1
    assert float(make(observation=noisy).prior.noise_rate) == pytest.approx(0.6, abs=0.15)
    assert float(make(observation=noisy, noise_rate=0.2).prior.noise_rate) == pytest.approx(0.2)
    assert float(make(observation=noisy, noise="none").prior.noise_rate) == 0


def test_pooled_knowledge_teaches_where_nothing_is_seen(make: Maker) -> None:
    batch = make.batch(Observation(0.0))
    plain, weak = make(), make(pooled_strength=0.1)  # counts of SEEN, a batch of which nothing is seen
    assert float(plain(batch, draws(batch)).terms["update"]) == 0
    loss = weak(batch, draws(batch))
    assert float(loss.terms["update"]) > 0
    assert loss.total.isfinite()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"z_where": "none"}, "objective.z-where: expected all or observed, found 'none'"),
        ({"reconstruction": "max"}, "objective.reconstruction: expected mean or sum"),
        ({"prior": "yes"}, "objective.prior: expected one of pooled, predicate, none, found 'yes'"),
        ({"noise": "yes"}, "objective.noise: expected estimated or none"),
        ({"samples": 0}, "objective.samples: expected a whole number of 1 or more, found 0"),
        ({"strength": -1.0}, "objective.strength: expected a number of 0 or more"),
        ({"temperature": float("nan")}, "objective.temperature: expected a number of 0.001 or more"),
        ({"noise_rate": 1.0}, "objective.noise-rate: expected a number from 0 to below 1"),
    ],
)
def test_a_wrong_objective_is_refused_by_name(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RevupError, match=message):
        Objective(**wrong)
