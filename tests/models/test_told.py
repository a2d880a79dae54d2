"""What models make of what they are told: distributions stay, candidates narrow, given frames move the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import revup
from conftest import TINY
from revup.data.batches import Batch
from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.models.base import Model
from revup.models.network import Sizes
from revup.models.residual import LEAST_SCORED, FrameContext, Residual
from revup.settings import Config, build_module
from revup.world import World

MODELS = ("counts", "tagger", "ssdvae", "revup")
NOTHING = Observation(0.0)


def trained(corpus: Corpus, name: str, **training: Any) -> Model:
    """A tiny model with its `default` settings, trained for a few epochs."""
    if name == "counts":
        return revup.train(corpus, name, device="cpu").module
    quick = {"epochs": 2, "least_steps": 0, "batch_size": 50, **training}
    return revup.train(corpus, name, network=TINY, training=quick, device="cpu").module


def batch_of(model: Model, corpus: Corpus, split: str = "test", observation: Observation = NOTHING) -> Batch:
    return next(model.batches(corpus.split(split), observation, 10_000).ordered())


# ---- distributions ---------------------------------------------------------------------------------------------


def undecided(events: int) -> Corpus:
    """Five predicates, each event told to be A at .6 and B at .4; arguments say nothing."""
    random = np.random.default_rng(0)

    def some(name: str, count: int, told: bool) -> list[Document]:
        frames = {"A": 0.6, "B": 0.4} if told else None
        numbers = random.integers(8, size=(count, 5, 3))
        return [
            Document(f"{name}{n}", [Event(f"p{p % 5}", f"s{s}", f"o{o}", frames=frames) for p, s, o in document])
            for n, document in enumerate(numbers.tolist())
        ]

    parts = {"train": some("train", events // 5, True), "valid": some("valid", 40, True)}
    return Corpus.build(**parts, test=some("test", 20, False), duplicates="keep", window="all")


@pytest.fixture(scope="module")
def few_undecided() -> Corpus:
    return undecided(2000)


def stays(corpus: Corpus, name: str, **training: Any) -> None:
    model = trained(corpus, name, **training)
    batch = batch_of(model, corpus)
    with torch.no_grad():
        found = model.frame_probabilities(batch)[batch.mask]
    assert corpus.frames == ["A", "B"]
    assert (found - torch.tensor([0.6, 0.4])).abs().max() < 0.02


@pytest.mark.parametrize("name", MODELS)
def test_a_distribution_is_not_sharpened(few_undecided: Corpus, name: str) -> None:
    stays(few_undecided, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_distribution_is_not_sharpened_by_many_events(name: str) -> None:
    stays(undecided(40_000), name, epochs=1, batch_size=200)


@pytest.mark.parametrize("name", ["tagger", "ssdvae", "revup"])
def test_a_network_of_its_own_ends_at_the_distribution(few_undecided: Corpus, name: str) -> None:
    """Also what it learns beyond the counts: without a prior there is nothing else."""
    quick = {"epochs": 6, "least_steps": 0, "batch_size": 50, "learning_rate": 1e-2}
    model = revup.train(few_undecided, name, network=TINY, objective={"prior": "none"}, training=quick).module
    batch = batch_of(model, few_undecided)
    with torch.no_grad():
        found = model.frame_probabilities(batch)[batch.mask]
    assert (found.mean(0) - torch.tensor([0.6, 0.4])).abs().max() < 0.05


# ---- candidates ------------------------------------------------------------------------------------------------


def choices() -> Corpus:
    """`run` may be Motion or Office, which its subjects decide as they do for `rush`, of which labels are observed."""
    random = np.random.default_rng(0)
    subjects = {"Motion": ["dog", "horse", "wolf"], "Office": ["mayor", "senator", "judge"]}

    def one(pred: str, topic: str, **told: Any) -> Event:
        return Event(pred, str(random.choice(subjects[topic])), **told)

    def some(name: str, count: int, scored: bool = False) -> list[Document]:
        frames = [["Motion", "Office"][k] for k in random.integers(2, size=count)]
        told = [{"frame": frame} if scored else {"candidates": ["Motion", "Office"]} for frame in frames]
        return [
            Document(f"{name}{n}", [one("run", f, **told[n]) if scored or n % 2 else one("rush", f, frame=f), stop])
            for n, f in enumerate(frames)
        ]

    stop = Event("stop", frame="Other")
    parts = {"train": some("train", 400), "valid": some("valid", 60)}
    return Corpus.build(**parts, test=some("test", 60, True), duplicates="keep", window="all", events=2)


@pytest.fixture(scope="module")
def candidates() -> Corpus:
    return choices()


@pytest.mark.parametrize("name", MODELS)
def test_candidates_narrow_down_and_arguments_decide(candidates: Corpus, name: str) -> None:
    model = trained(candidates, name)
    batch = batch_of(model, candidates)
    with torch.no_grad():
        found = model.frame_probabilities(batch)[:, 0]
    other = candidates.frames.index("Other")
    assert found[:, other].max() < 0.1
    right = found.argmax(-1) == batch.reference[:, 0]
    assert right.float().mean() > 0.95


# ---- given frames ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twins() -> Corpus:
    """Documents of one desk each: all predicates but one of a frame are those of a frame of another desk too."""
    world = World(frames=10, seed=1, words=150, events=4, twins=True)
    parts = {"train": world.sample(1200), "valid": world.sample(150, seed=5), "test": world.sample(150, seed=9)}
    return Corpus.build(**parts, duplicates="keep", window="all", events=4)


def given_at(batch: Batch, place: int) -> Batch:
    """The batch with the label of one event of each document alone."""
    fields = batch.parts()
    fields["observed"] = torch.zeros_like(batch.observed)
    fields["observed"][:, place] = batch.observed[:, place]
    return Batch(**fields)


def test_given_frames_move_those_before_and_after(twins: Corpus) -> None:
    """The first frame tells of the last and the last of the first; how much, is learned."""
    model = trained(twins, "tagger", epochs=8, learning_rate=5e-3)
    batch = batch_of(model, twins, observation=Observation())

    def surprise(asked: Batch, place: int, revise: bool) -> float:
        with torch.no_grad():
            found = model.frame_probabilities(asked, revise=revise)
        own = found.gather(-1, batch.reference.unsqueeze(-1)).squeeze(-1)[:, place]
        return float(-own.log().mean())

    for given, asked in ((0, 3), (3, 0)):
        before, after = (surprise(given_at(batch, given), asked, revise) for revise in (False, True))
        assert after < before - 0.02


def opinionated(name: str, corpus: Corpus, **network: Any) -> Any:
    """An untrained model whose frame context, if it has one, moves frames far."""
    config = Config.make(name, seed=3, overrides={"network": {**TINY, **network}})
    model: Any = build_module(config, Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events))
    model.prepare(corpus, Observation(0.5))
    if model.residual.context is not None:
        nn.init.normal_(model.residual.context.out.weight, std=5.0)
        nn.init.normal_(model.residual.context.out.bias, std=5.0)
    return model


@pytest.mark.parametrize("name", ["tagger", "ssdvae", "revup"])
@torch.no_grad()
def test_without_labels_frame_context_changes_nothing(tiny_corpus: Corpus, name: str) -> None:
    """To the bit, in documents of which nothing is given: whether it is asked to revise, and whatever was learned."""
    model = opinionated(name, tiny_corpus)
    batch = batch_of(model, tiny_corpus, "train", Observation(0.3, seed=1))
    bare = batch.observed.sum(1) == 0
    assert 0 < int(bare.sum()) < len(bare)

    def asked(revise: bool) -> Tensor:
        found: Tensor = model.frame_probabilities(batch, revise=revise)
        return found * batch.mask.unsqueeze(-1)

    told, plain = asked(True), asked(False)
    model.residual.context = None
    silent = asked(True)
    assert torch.equal(plain, asked(False))
    assert torch.equal(told[bare], plain[bare])
    assert not torch.allclose(told[~bare], silent[~bare], atol=0.05)


@torch.no_grad()
def test_an_event_is_told_the_frames_before_and_after_it_and_never_its_own() -> None:
    torch.manual_seed(0)
    context = FrameContext(6, 5, 4)
    nn.init.normal_(context.out.weight)
    embedded, given = torch.randn(1, 5, 6), torch.ones(1, 5)
    before = context(embedded, given)
    for place in range(5):
        other = embedded.clone()
        other[:, place] += 1
        moved = (context(other, given) != before).any(-1)[0]
        assert moved.tolist() == [m != place for m in range(5)]
    assert not context(0 * embedded, 0 * given).any()


# ---- calibration -----------------------------------------------------------------------------------------------


def certain(name: str, corpus: Corpus) -> Any:
    """An untrained model on counts of labels that are the truth."""
    config = Config.make(name, seed=3, overrides={"network": TINY, "objective": {"noise": "none"}})
    model: Any = build_module(config, Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events))
    model.prepare(corpus, Observation())
    return model


@pytest.mark.parametrize("name", ["tagger", "ssdvae", "revup"])
@torch.no_grad()
def test_calibration_takes_away_what_a_network_adds_for_nothing(twins: Corpus, name: str) -> None:
    model = certain(name, twins)
    last = model.classify if name == "tagger" else model.latents[0].propose
    nn.init.normal_(last.weight, std=2.0)
    nn.init.normal_(model.residual.context.out.weight, std=2.0)
    assert (model.residual.scale == 1).all()
    model.calibrate(twins.split("valid"), Observation())
    assert (model.residual.scale == 0).all()
    assert model.residual.context_scale == 0
    batch = batch_of(model, twins, observation=Observation(0.5))
    torch.testing.assert_close(model.frame_probabilities(batch), torch.softmax(model.log_prior(batch), -1))
    unseen = batch.observed == 0
    revised = model.frame_probabilities(batch, revise=True)
    torch.testing.assert_close(revised[unseen], model.frame_probabilities(batch)[unseen])


@torch.no_grad()
def test_calibration_keeps_what_helps(twins: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions that are better the larger the factor is, of groups of predicates with labels."""
    model = certain("tagger", twins)

    def helpful(batch: Batch, draws: Any = None, revise: bool = False) -> Tensor:
        right = torch.nn.functional.one_hot(batch.reference, len(twins.frames)).float()
        return torch.softmax(model.log_prior(batch) + model.residual.weight(batch) * right, -1)

    monkeypatch.setattr(model, "frame_probabilities", helpful)
    model.calibrate(twins.split("valid"), Observation())
    labels = batch_of(model, twins, "valid", Observation()).labels
    groups, events = model.residual.group(labels[labels > 0]).unique(return_counts=True)
    there = groups[events >= LEAST_SCORED]
    assert (model.residual.scale[there] == 1).all()
    assert model.residual.context_scale == 0  # given frames have added nothing


@pytest.mark.parametrize(("split", "observation"), [("valid", NOTHING), ("none", Observation())])
def test_without_held_out_labels_nothing_is_learned_of_the_network(
    twins: Corpus, split: str, observation: Observation
) -> None:
    """No label, no proof: the counts alone are used. Without held-out documents the scale stays as it is."""
    config = Config.make("tagger", overrides={"network": TINY})
    model: Any = build_module(config, Sizes(len(twins.vocabulary), len(twins.frames), twins.events))
    model.prepare(twins, Observation())
    if split == "none":
        empty = Corpus.build(train=[Document("d", [Event("p", frame="A")])], duplicates="keep").split("valid")
        model.calibrate(empty, observation)
        assert (model.residual.scale == 1).all()
    else:
        model.calibrate(twins.split(split), observation)
        assert (model.residual.scale == 0).all()


@pytest.mark.parametrize("name", ["tagger", "ssdvae", "revup"])
@torch.no_grad()
def test_network_whose_factor_is_zero_is_not_computed(
    tiny_corpus: Corpus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the probabilities are those with the network's, times 0, to the bit."""
    model = opinionated(name, tiny_corpus).eval()
    nn.init.normal_((model.classify if name == "tagger" else model.latents[0].propose).weight, std=2.0)
    batch = batch_of(model, tiny_corpus)
    assert not torch.equal(model.frame_probabilities(batch), torch.softmax(model.log_prior(batch), -1))
    model.residual.scale.zero_()
    vectors = model.embed(batch)[1]
    with monkeypatch.context() as patch:
        patch.setattr(Residual, "is_zero", lambda *given: False)
        computed = model.frame_probabilities(batch)
    monkeypatch.setattr(model.encoder, "forward", lambda *given: pytest.fail("the network was computed"))
    assert torch.equal(model.frame_probabilities(batch), computed)
    monkeypatch.undo()
    assert torch.equal(model.embed(batch)[1], vectors)
    model.frame_probabilities(batch_of(model, tiny_corpus, observation=Observation(1.0)), revise=True)
