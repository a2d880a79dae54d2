"""The models to compare with: each against a hand computation, an exact answer or a property that all must have."""

from __future__ import annotations

import copy
import math
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paths import ROOT
from revup import bottleneck
from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus
from revup.data.encode import BOS, TOKENS, UNK
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.models import CLASSES, haqae, lookup, model_class, model_module, rnnlm, ssdvae, tagger
from revup.models.count_prior import PLAIN
from revup.models.haqae import HAQAE, nearest, straight_through
from revup.models.lookup import Lookup
from revup.models.network import DEFAULT, Network, Sizes
from revup.models.randomness import Draws
from revup.models.rnnlm import RNNLM
from revup.models.ssdvae import SSDVAE
from revup.models.tagger import Tagger
from revup.world.world import World

TINY: dict[str, int] = {"embedding": 8, "hidden": 12, "latent": 6, "frame": 10}
STILL: dict[str, float] = {"dropout": 0.0, "word_dropout": 0.0}  # what is computed by hand sees every word
SEEN = Observation(epsilon=0.7, eta=0.1, seed=3)
NOTHING = Observation(epsilon=0.0)
TEXT = ("revup", "ssdvae", "haqae", "rnnlm")
FRAMES = ("revup", "ssdvae", "tagger", "lookup", "counts", "logistic", "propagation")
UNTRAINED = ("lookup", "counts", "logistic", "propagation")
# every wiring that a preset or an option can choose
VARIANTS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    **{f"{name}-{preset}": (name, preset, {}, {}) for name in CLASSES for preset in ("default", "paper")},
    "haqae-confined": ("haqae", "default", {"attention": "confined", "shared": True, "aligned": True}, {}),
    "revup-plain": ("revup", "default", {"slots": False, "aligned": False, "context": False}, PLAIN),
    "revup-unsure": ("revup", "default", {}, {"prior": "none"}),
    "tagger-transformer": ("tagger", "default", {}, {"encoder": "transformer"}),
    "tagger-plain": ("tagger", "plain", {}, {}),
    "ssdvae-fed": ("ssdvae", "released", {}, {"straight_through": True, "reconstruction": "sum"}),
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def ragged(documents: list[Document]) -> list[Document]:
    """Documents of different lengths: every second one loses some of its last events."""
    return [Document(d.id, d.events[: len(d.events) - (i % 2) * (1 + i % 3)]) for i, d in enumerate(documents)]


def renamed(documents: list[Document], frames: list[str]) -> list[Document]:
    """The same documents with every frame exchanged for another; the frame list as a whole stays what it was."""
    other = dict(zip(frames, frames[1:] + frames[:1], strict=True))
    return [
        Document(d.id, [replace(e, frame=other[e.frame] if e.frame else None) for e in d.events]) for d in documents
    ]


@pytest.fixture(scope="module")
def world() -> World:
    return World(frames=5, seed=1, words=80, events=4)


@pytest.fixture(scope="module")
def corpus(world: World, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    out = tmp_path_factory.mktemp("peers") / "corpus"
    return Corpus.build(ragged(world.sample(60)), out=out, events=4, split=(1.0, 0.0, 0.0))


def build(name: str, corpus: Corpus, observation: Observation = SEEN, preset: str = "default", **options: Any) -> Any:
    """A tiny model of a preset, prepared; options go to its network or its objective."""
    module, chosen = model_module(name), model_module(name).PRESETS[preset]
    of_network = {key: value for key, value in options.items() if key in Network.__dataclass_fields__}
    of_objective = {key: value for key, value in options.items() if key not in of_network}
    if name == "haqae":
        of_objective = {"codes": 7, **of_objective}
    network = Network(**{**chosen.get("network", {}), **TINY, **of_network}).resolve(len(corpus.frames))
    objective = module.Objective(**{**chosen.get("objective", {}), **of_objective})
    torch.manual_seed(0)
    model = model_class(name)(Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events), network, objective)
    model.prepare(corpus, observation)
    return model


def first_batch(
    model: Any, corpus: Corpus, observation: Observation = SEEN, size: int = 40, split: str = "train", **options: Any
) -> Batch:
    """The first documents of a split with what the model's counts say of them."""
    batches = model.batches(corpus.split(split), observation, size, training=split == "train", **options)
    found: Batch = next(batches.ordered())
    return found


def rows_of(batch: Batch, rows: list[int]) -> Batch:
    """Some documents of a batch as a batch of their own."""
    fields = {k: v[rows] if isinstance(v, Tensor) else v for k, v in batch.parts().items()}
    fields |= {"documents": len(rows), "rows": slice(0, len(rows))}
    fields["events"] = int(fields["mask"].sum())
    fields["observed_events"] = int(fields["observed"].sum())
    return Batch(**fields)


def draws_of(batch: Batch, seed: int = 5) -> Draws:
    return Draws.seeded(seed, batch.documents, torch.device("cpu"), batch.rows)


def everything(model: Any, batch: Batch) -> dict[str, Tensor]:
    """All that a model computes for a batch: predictions, text, vectors, and for torch models loss and gradients."""
    found: dict[str, Tensor] = {}
    if model.learns:
        model.zero_grad()
        loss = model(batch, draws_of(batch))
        loss.total.backward()
        found["loss"] = loss.total.detach()
        found |= {f"term {name}": term for name, term in loss.terms.items()}
        found |= {f"gradient {n}": p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        model.eval()
    with torch.no_grad():
        if model.predicts_frames:
            found["frames"] = model.frame_probabilities(batch) * batch.mask.unsqueeze(-1)
        if model.predicts_frames:
            found["sampled"] = model.sampled_frames(batch, draws_of(batch)) * batch.mask
        if model.writes_text:
            found["soft"] = model.token_nll(batch, draws_of(batch), False)
            found["hard"] = model.token_nll(batch, draws_of(batch), True)
        documents, events = model.embed(batch)
        there = model.there(batch) if isinstance(model, HAQAE) else batch.mask
        found |= {"documents": documents, "events": events * there.unsqueeze(-1)}
    return found


# ---- what holds for all of them ------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_observation_nothing_depends_on_the_frames(
    variant: str, world: World, corpus: Corpus, tmp_path: Path
) -> None:
    documents = renamed(ragged(world.sample(60)), corpus.frames)
    other = Corpus.build(documents, out=tmp_path / "other", events=4, split=(1.0, 0.0, 0.0))
    assert other.frames == corpus.frames
    assert (other.split("train").arrays["reference"] != corpus.split("train").arrays["reference"]).any()
    name, preset, network, objective = VARIANTS[variant]
    results = []
    for data in (corpus, other):
        model = build(name, data, NOTHING, preset, **network, **objective)
        results.append(everything(model, first_batch(model, data, NOTHING)))
    assert results[0].keys() == results[1].keys()
    for key, value in results[0].items():
        assert torch.equal(value, results[1][key]), key


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.split("-")[0] in FRAMES])
def test_predictions_do_not_look_at_the_batch_s_frames_unless_revising(variant: str, corpus: Corpus) -> None:
    name, preset, network, objective = VARIANTS[variant]
    model = build(name, corpus, SEEN, preset, **network, **objective)
    batch = first_batch(model, corpus, Observation(1.0))
    spoilt = replace(batch, frames=(batch.frames + 1) % len(corpus.frames), observed=1 - batch.observed)
    with torch.no_grad():
        assert torch.equal(model.frame_probabilities(batch), model.frame_probabilities(spoilt))
        revised = model.frame_probabilities(batch, revise=True)
        seen = batch.observed.bool()
        label = batch.empirical(len(corpus.frames)).argmax(-1, keepdim=True)
        own = model.frame_probabilities(batch).gather(-1, label)[seen]
    torch.testing.assert_close(revised.sum(-1), torch.ones_like(revised.sum(-1)))
    if variant != "revup-paper" and variant != "ssdvae-paper" and variant != "ssdvae-fed":
        # (with full attention a revised frame also moves the query of the next event)
        assert (revised.gather(-1, label)[seen] > own - 1e-3).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_stands_where_no_event_is_has_no_influence(variant: str, corpus: Corpus) -> None:
    name, preset, network, objective = VARIANTS[variant]
    model = build(name, corpus, SEEN, preset, **network, **objective)
    batch = first_batch(model, corpus)
    absent = ~batch.mask
    assert absent.any()
    garbage = replace(
        batch,
        tokens=torch.where(batch.token_mask, batch.tokens, 9),
        frames=torch.where(absent.unsqueeze(-1), 2, batch.frames),
        weights=torch.where(absent.unsqueeze(-1), 1.0, batch.weights),
        confidence=torch.where(absent, 1.0, batch.confidence),
        reference=torch.where(absent, 1, batch.reference),
        other=torch.where(absent, 0.3, batch.other),
        prior_gain=torch.where(absent.unsqueeze(-1), 2.0, batch.prior_gain),
        prior_rest=torch.where(absent, -1.0, batch.prior_rest),
        labels=torch.where(absent, 9.0, batch.labels),
    )
    clean, spoilt = everything(model, batch), everything(copy.deepcopy(model), garbage)
    for key, value in clean.items():
        torch.testing.assert_close(spoilt[key], value, atol=1e-6, rtol=1e-5, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_document_is_computed_alike_alone_and_among_others(variant: str, corpus: Corpus) -> None:
    name, preset, network, objective = VARIANTS[variant]
    model = build(name, corpus, SEEN, preset, **network, **objective)
    batch = first_batch(model, corpus)
    model.eval()

    def asked(part: Batch) -> dict[str, Tensor]:
        with torch.no_grad():
            found = dict(zip(("documents", "events"), model.embed(part), strict=True))
            if model.predicts_frames:
                found["frames"] = model.frame_probabilities(part)
            if model.writes_text:
                found["text"] = model.token_nll(part, None, True)
            return found

    together = asked(batch)
    for row in (0, 1, 7):
        for key, value in asked(rows_of(batch, [row])).items():
            torch.testing.assert_close(value[0], together[key][row], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if not v.startswith(UNTRAINED)])
def test_the_parts_of_a_batch_add_up_to_the_whole(variant: str, corpus: Corpus) -> None:
    """Two processes, each with its rows and the whole batch's counts, give one process's loss and gradients."""
    name, preset, network, objective = VARIANTS[variant]
    model = build(name, corpus, SEEN, preset, **network, **objective, **({"revive": 0} if name == "haqae" else {}))
    whole = everything(model, first_batch(model, corpus))
    model.train()
    shared = [first_batch(model, corpus, rank=rank, processes=2) for rank in range(2)]
    parts = [everything(copy.deepcopy(model), batch) for batch in shared]
    for key in whole:
        if key.split()[0] in ("loss", "term", "gradient"):
            torch.testing.assert_close(parts[0][key] + parts[1][key], whole[key], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if not v.startswith(UNTRAINED)])
def test_half_precision_gives_nearly_the_same_loss(variant: str, corpus: Corpus) -> None:
    name, preset, network, objective = VARIANTS[variant]
    model = build(name, corpus, SEEN, preset, **network, **objective)
    batch = first_batch(model, corpus)
    full = copy.deepcopy(model)(batch, draws_of(batch)).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(batch, draws_of(batch)).total
    half.backward()
    assert float(half.detach()) == pytest.approx(float(full.detach()), rel=0.03)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v.split("-")[0] in TEXT])
def test_writing_one_token_a_step_is_the_model_s_own_probability(variant: str, corpus: Corpus) -> None:
    """Σ of stepwise log-probabilities = −token_nll, and every step is a distribution over the vocabulary."""
    name, preset, network, objective = VARIANTS[variant]
    model = build(name, corpus, SEEN, preset, **network, **objective).eval()
    batch = rows_of(first_batch(model, corpus), [0, 1, 2])
    with torch.no_grad():
        state = model.start(model.memory(batch, hard=True))
        tokens, steps = torch.full((3,), BOS), []
        for i in range(batch.tokens.shape[1]):
            log_p, state = model.step(tokens, state)
            torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3))
            tokens = batch.tokens[:, i]
            steps.append(-log_p.gather(1, tokens.unsqueeze(1)))
            if i == 6:  # beams: the same texts in another order, one of them twice
                again = state.select(torch.tensor([2, 0, 0]))
                log_q, _ = model.step(tokens[[2, 0, 0]], again)
                expected = log_q[[1, 0]]
            if i == 7:
                torch.testing.assert_close(log_p[[0, 2]], expected, atol=1e-5, rtol=1e-4)
        stepwise = torch.cat(steps, 1) * batch.token_mask
        torch.testing.assert_close(stepwise, model.token_nll(batch, None, True), atol=1e-5, rtol=1e-4)


def test_every_model_has_its_presets_and_a_page() -> None:
    pages = ROOT / "docs" / "models"
    for name in CLASSES:
        module = model_module(name)
        assert {"default", "paper", "released"} <= set(module.PRESETS)
        for preset in module.PRESETS.values():
            assert set(preset) <= {"network", "objective", "training"}
            Network(**preset.get("network", {}))
            module.Objective(**preset.get("objective", {}))
        page = (pages / f"{name}.md").read_text("utf-8")
        for option in module.Objective.__dataclass_fields__:
            assert f"`{option.replace('_', '-')}`" in page, (name, option)
    with pytest.raises(RevupError, match="unknown model 'bert'"):
        model_class("bert")


def test_defaults_differ_in_the_model_and_not_in_the_recipe() -> None:
    for name in CLASSES:
        if name in UNTRAINED:
            continue
        chosen = model_module(name).PRESETS["default"]
        assert chosen["training"] == DEFAULT["training"]
        assert chosen["network"].items() >= DEFAULT["network"].items()
        published = [preset for key, preset in model_module(name).PRESETS.items() if key in ("paper", "released")]
        assert not any({"dropout", "word_dropout"} & set(preset.get("network", {})) for preset in published)


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (ssdvae, {"prior": "some"}, "objective.prior: expected pooled or none, found 'some'"),
        (ssdvae, {"temperature": 0.0}, "objective.temperature"),
        (ssdvae, {"noise_rate": 1.0}, "objective.noise-rate"),
        (tagger, {"encoder": "lstm"}, "objective.encoder: expected gru or transformer"),
        (tagger, {"noise_rate": -0.1}, "objective.noise-rate"),
        (haqae, {"codes": 1}, "objective.codes: expected a whole number of 2 or more, found 1"),
        (haqae, {"parent_commitment": -1.0}, "objective.parent-commitment"),
        (lookup, {"smoothing": 0.0}, "objective.smoothing"),
    ],
)
def test_impossible_settings_are_named(module: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RevupError, match=message):
        module.Objective(**options)


# ---- HAQAE ---------------------------------------------------------------------------------------------------


def test_quantisation_is_the_nearest_neighbour() -> None:
    generator = torch.Generator().manual_seed(0)
    asked, codebook = torch.randn(30, 4, generator=generator), torch.randn(9, 4, generator=generator)
    brute = [min(range(9), key=lambda k: float((v - codebook[k]).square().sum())) for v in asked]
    assert nearest(asked, codebook).tolist() == brute


def test_the_gradient_goes_straight_through() -> None:
    """The value is the code's; d/dv is what d/d(value) is; the codebook gets nothing that way."""
    asked = torch.tensor([[0.2, 0.9], [-0.4, 0.1]], requires_grad=True)
    codebook = torch.tensor([[0.0, 1.0], [-1.0, 0.0], [5.0, 5.0]], requires_grad=True)
    quantised = codebook[nearest(asked, codebook)]
    passed = straight_through(asked, quantised)
    torch.testing.assert_close(passed, torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    weights = torch.tensor([[3.0, -1.0], [0.5, 2.0]])
    (passed * weights + passed.square()).sum().backward()
    torch.testing.assert_close(asked.grad, weights + 2 * quantised.detach())
    assert codebook.grad is None or not codebook.grad.any()


@pytest.mark.parametrize("attention", ["full", "confined"])
def test_haqae_loss_terms_by_hand(attention: str, corpus: Corpus) -> None:
    """Each term as a plain loop over documents and latents; and which parameters each of them moves."""
    model = build("haqae", corpus, **STILL, revive=0, attention=attention)
    batch = first_batch(model, corpus, size=16)
    loss = model(batch, draws_of(batch))
    with torch.no_grad():
        latents = model.chain(batch)
    codes = model.codebooks.detach()
    codebook = commitment = parent = 0.0
    count = children = 0
    for b in range(16):
        for m in range(4 if attention == "full" else int(batch.mask[b].sum())):
            v = latents.asked[b, m]
            k = min(range(7), key=lambda k, m=m, v=v: float((v - codes[m, k]).square().sum()))
            assert k == int(latents.codes[b, m])
            e = codes[m, k]
            torch.testing.assert_close(latents.passed[b, m], e)
            codebook += float((v - e).square().sum())
            commitment += float((v - e).square().sum())
            count += 1
            if m > 0:  # the parent's code itself as query; its distance to this latent's code
                states = model.encoder(model.words, batch)[b : b + 1]
                part = slice(m * TOKENS, (m + 1) * TOKENS) if attention == "confined" else slice(None)
                query = codes[m - 1, latents.codes[b, m - 1]].view(1, 1, -1)
                found = model.attention[m](query, states[:, part], batch.token_mask[b : b + 1, part])[0]
                parent += float((found - e).square().sum().detach())
                children += 1
    tokens = model.token_nll(batch).sum() / (batch.events * TOKENS)
    expected = {
        "reconstruction": float(tokens),
        "codebook": codebook / count,
        "commitment": commitment / count,
        "parent_commitment": parent / children,
    }
    for name, value in expected.items():
        assert float(loss.terms[name]) == pytest.approx(value, rel=1e-4), name
    total = expected["reconstruction"] + expected["codebook"] + 0.25 * expected["commitment"]
    assert float(loss.total.detach()) == pytest.approx(total + 0.15 * expected["parent_commitment"], rel=1e-4)


def test_what_each_term_of_haqae_moves(corpus: Corpus) -> None:
    def gradients(**weights: float) -> dict[str, Tensor]:
        options = {"codebook": 0.0, "commitment": 0.0, "parent_commitment": 0.0, **weights}
        model = build("haqae", corpus, **STILL, revive=0, **options)
        batch = first_batch(model, corpus, size=16)
        model(batch, draws_of(batch)).total.backward()
        return {name: torch.zeros(()) if p.grad is None else p.grad for name, p in model.named_parameters()}

    plain = gradients()
    assert not plain["codebooks"].any()  # reconstruction goes past the codes, straight through to the encoder
    assert plain["encoder.rnn.weight_ih_l0"].any()
    moved: dict[str, set[str]] = {}
    for term in ("codebook", "commitment", "parent_commitment"):
        with_term = gradients(**{term: 1.0})
        moved[term] = {n for n in plain if not torch.allclose(with_term[n], plain[n], atol=1e-9, rtol=1e-6)}
    assert moved["codebook"] == {"codebooks"}
    assert "codebooks" not in moved["commitment"]
    assert "encoder.rnn.weight_ih_l0" in moved["commitment"]
    assert "codebooks" in moved["parent_commitment"]
    assert not any(name.startswith(("encoder", "words")) for name in moved["parent_commitment"])


def test_haqae_codebook_gradient_by_hand(corpus: Corpus) -> None:
    """∂/∂C[k] of the codebook term is Σ 2(C[k] − v)/count over what is quantised to k, and 0 for the other codes."""
    model = build("haqae", corpus, **STILL, revive=0, commitment=0.0, parent_commitment=0.0)
    batch = first_batch(model, corpus, size=16)
    model(batch, draws_of(batch)).total.backward()
    latents = model.chain(batch)
    expected = torch.zeros_like(model.codebooks)
    for b in range(16):
        for m in range(4):
            k = latents.codes[b, m]
            expected[m, k] += 2 * (model.codebooks[m, k] - latents.asked[b, m]).detach() / (16 * 4)
    torch.testing.assert_close(model.codebooks.grad, expected, atol=1e-6, rtol=1e-4)


def test_dead_codes_are_revived_and_live_ones_left_alone(corpus: Corpus) -> None:
    model = build("haqae", corpus, codes=20, revive=2, **STILL)
    batch = first_batch(model, corpus, size=16)
    start = model.codebooks.detach().clone()
    model(batch, draws_of(batch)).total.backward()  # at first all codes are placed on what documents ask
    placed = model.codebooks.detach().clone()
    assert not torch.equal(placed, start)
    asked = model.chain(batch).asked
    # latent 1's question does not depend on any code: each of its codes is one of them exactly
    assert torch.cdist(placed[0], asked[:, 0].detach()).min(1).values.max() < 1e-3
    used = model.idle == 0
    assert (model.idle[~used] == 3).all()
    assert used.any(1).all()
    model(batch, draws_of(batch, seed=6))
    assert torch.equal(model.codebooks[used], placed[used])
    assert not torch.equal(model.codebooks[~used], placed[~used])
    for frozen in (build("haqae", corpus, revive=0), build("haqae", corpus, revive=2).eval()):
        before = frozen.codebooks.detach().clone()
        frozen(batch, draws_of(batch))
        assert torch.equal(frozen.codebooks, before)


def test_processes_that_train_together_revive_the_same_codes(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes (threads here), each with half of the batch, end with the codebooks that one process has."""
    alone = build("haqae", corpus, codes=20, revive=2, **STILL)
    pair = [copy.deepcopy(alone) for _ in range(2)]
    for step in range(2):
        batch = first_batch(alone, corpus)
        alone(batch, draws_of(batch, step))

    barrier, parts, rank_of = threading.Barrier(2, timeout=20), [torch.zeros(())] * 2, threading.local()

    def summed(values: Tensor) -> Tensor:
        parts[rank_of.value] = values
        barrier.wait()
        total = parts[0] + parts[1]
        barrier.wait()
        return total

    def process(rank: int) -> None:
        rank_of.value = rank
        for step in range(2):
            batch = next(Batches(corpus.split("train"), SEEN, 40, rank=rank, processes=2).ordered())
            pair[rank](batch, draws_of(batch, step))

    monkeypatch.setattr(haqae, "_over_processes", summed)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(process, range(2)))
    for model in pair:
        assert torch.equal(model.idle, alone.idle)
        torch.testing.assert_close(model.codebooks, alone.codebooks, atol=1e-5, rtol=1e-4)


def test_code_usage_and_perplexity_are_reported(corpus: Corpus) -> None:
    model = build("haqae", corpus, attention="confined").eval()
    batches = list(Batches(corpus.split("train"), NOTHING, 20).ordered())
    report = model.inspect_latents(batches)["codes"]
    for m in range(4):
        codes = Counter(
            int(k) for b in batches for k, there in zip(model.chain(b).codes[:, m], b.mask[:, m], strict=True) if there
        )
        total = codes.total()
        entropy = -sum(n / total * math.log(n / total) for n in codes.values())
        assert report["codes_used"][m] == pytest.approx(len(codes) / 7)
        assert report["code_perplexity"][m] == pytest.approx(math.exp(entropy), rel=1e-4)


# ---- SSDVAE --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", ["none", "pooled"])
def test_parameter_injection_inside_the_model(prior: str, corpus: Corpus) -> None:
    """Where a frame is seen the sampled logits are γ + ‖γ‖·onehot (counts aside), elsewhere γ; at random seeds."""
    model = build("ssdvae", corpus, prior=prior, noise="none", **STILL)
    batch = first_batch(model, corpus)
    log_prior = model.prior_of(batch)
    assert (log_prior is None) == (prior == "none")
    latents = model.chain(model.encode(batch), batch, log_prior, model.knowledge(batch), draws_of(batch))
    bare = latents.logits if log_prior is None else latents.logits - log_prior
    onehot = F.one_hot(batch.frames[..., 0], 5)
    for b in range(10):
        for m in range(4):
            expected = latents.logits[b, m].clone()
            if batch.observed[b, m]:
                expected = expected + bare[b, m].norm() * onehot[b, m]
            torch.testing.assert_close(latents.injected[b, m], expected, atol=1e-5, rtol=1e-4)
    gumbel = bottleneck.gumbel_from_uniform(draws_of(batch).uniform(4, 5))
    torch.testing.assert_close(latents.frames, torch.softmax((latents.injected + gumbel) / 0.5, -1))
    torch.testing.assert_close(latents.embedded, latents.frames @ model.frames)
    assert batch.observed.any()
    assert not batch.observed.all()


def test_ssdvae_loss_terms_by_hand(corpus: Corpus) -> None:
    model = build("ssdvae", corpus, preset="paper")
    batch = first_batch(model, corpus)
    loss = model(batch, draws_of(batch))
    latents = model.chain(model.encode(batch), batch, None, model.knowledge(batch), draws_of(batch))
    log_q = torch.log_softmax(latents.logits, -1).detach()
    classification = entropy = 0.0
    for b in range(40):
        for m in range(int(batch.mask[b].sum())):
            if batch.observed[b, m]:
                classification -= float(log_q[b, m, batch.frames[b, m, 0]])
            else:
                entropy += math.log(5) + float((log_q[b, m].exp() * log_q[b, m]).sum())
    assert float(loss.terms["classification"]) == pytest.approx(classification / 40, rel=1e-4)
    assert float(loss.terms["entropy"]) == pytest.approx(entropy / 40, rel=1e-4)
    total = float(loss.terms["reconstruction"]) + 0.1 * (classification + entropy) / 40
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-4)


# ---- RNNLM against the world's exact probability -------------------------------------------------------------


def trained(
    model: Any, corpus: Corpus, documents: int, epochs: int, rate: float = 1e-2, observation: Observation = SEEN
) -> Any:
    """A plain loop over the first documents of the training split."""
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    whole = first_batch(model, corpus, observation, documents)
    model.train()
    for epoch in range(epochs):
        order = torch.randperm(documents, generator=torch.Generator().manual_seed(epoch)).tolist()
        for number, start in enumerate(range(0, documents, 100)):
            batch = rows_of(whole, order[start : start + 100])
            optimiser.zero_grad()
            model(batch, draws_of(batch, 1000 * epoch + number)).total.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimiser.step()
    return model.eval()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Corpus, list[Document]]:
    """A small world with data enough to know it by; fresh test documents."""
    world = World(frames=5, seed=2, words=60, events=3)
    test = world.sample(600, seed=9)
    out = tmp_path_factory.mktemp("large") / "corpus"
    corpus = Corpus.build(train=world.sample(8000), test=test, out=out, events=3, duplicates="keep")
    return world, corpus, test


def test_rnnlm_approaches_the_exact_perplexity_from_above(large: tuple[World, Corpus, list[Document]]) -> None:
    world, corpus, test = large
    batch = first_batch(build("rnnlm", corpus), corpus, NOTHING, size=600, split="test")
    assert not (batch.tokens == UNK).any()  # else the model would be asked less than the world
    exact = -world.log_probs(test)  # [N]
    per_token = exact.sum() / (batch.events * TOKENS)
    found = {}
    for documents, epochs in ((100, 30), (4000, 5)):
        model = trained(
            build("rnnlm", corpus, embedding=16, hidden=48, layers=1, dropout=0.0), corpus, documents, epochs
        )
        with torch.no_grad():
            nll = model.token_nll(batch).sum(1).double().numpy()
        # in every document the surplus is noisy, but its mean is KL(world ‖ model) ≥ 0
        surplus = nll - exact
        assert surplus.mean() > -3 * surplus.std() / math.sqrt(len(surplus))
        found[documents] = nll.sum() / (batch.events * TOKENS)
    assert found[100] > found[4000] > per_token
    assert math.exp(found[4000]) < 1.12 * math.exp(per_token)
    assert math.exp(found[100]) > 1.3 * math.exp(per_token)


def test_rnnlm_s_tokens_depend_on_those_before_alone(corpus: Corpus) -> None:
    model = build("rnnlm", corpus).eval()
    batch = rows_of(first_batch(model, corpus), [0, 2])
    other = replace(batch, tokens=batch.tokens.clone())
    other.tokens[:, 11] = 7
    with torch.no_grad():
        before, after = model.token_nll(batch), model.token_nll(other)
        assert torch.equal(before[:, :11], after[:, :11])
        assert (before[:, 12] != after[:, 12]).all()
        events = model.embed(batch)[1], model.embed(other)[1]
    assert torch.equal(events[0][:, :2], events[1][:, :2])
    assert not torch.equal(events[0][:, 2], events[1][:, 2])


# ---- tagger and lookup against the exact posterior -----------------------------------------------------------


@pytest.mark.parametrize(("encoder", "documents", "gap"), [("gru", 8000, 0.07), ("transformer", 5000, 0.1)])
def test_tagger_comes_close_to_the_exact_posterior(
    encoder: str, documents: int, gap: float, large: tuple[World, Corpus, list[Document]]
) -> None:
    world, corpus, test = large
    model = build("tagger", corpus, embedding=16, hidden=20, layers=1, dropout=0.1, encoder=encoder)
    trained(model, corpus, documents, 3, 1e-2 if encoder == "gru" else 5e-3, Observation(1.0))
    batch = first_batch(model, corpus, NOTHING, size=600, split="test")
    with torch.no_grad():
        found = model.frame_probabilities(batch)
    best = world.optimum(test)
    accuracy = float((found.argmax(-1) == batch.reference).float().mean())
    assert best["accuracy"] is not None
    assert best["accuracy"] - gap < accuracy < best["accuracy"] + 0.02
    columns = [world.frames.index(name) for name in corpus.frames]
    exact = world.posteriors(test)[..., columns]
    assert np.abs(found.numpy() - exact).sum(-1).mean() < 0.4  # of at most 2


def test_lookup_comes_close_to_the_best_table(large: tuple[World, Corpus, list[Document]]) -> None:
    world, corpus, test = large
    table = build("lookup", corpus, Observation(1.0))
    batch = first_batch(table, corpus, NOTHING, size=600, split="test")
    found = table.frame_probabilities(batch)
    accuracy = float((found.argmax(-1) == batch.reference).float().mean())
    assert abs(accuracy - world.best_table_accuracy()) < 0.04
    assert accuracy <= (world.optimum(test)["accuracy"] or 0)
    predicates, exact = world.frame_given_predicate()
    numbers = np.array([corpus.vocabulary.number(word) for word in predicates])
    columns = [world.frames.index(name) for name in corpus.frames]
    often = np.isin(numbers, table.arrays["preds"][np.diff(table.arrays["starts"]) > 0])
    assert np.abs(table.probabilities(numbers) - exact[:, columns])[often].max() < 0.15


# ---- lookup --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observation", [Observation(1.0), Observation(0.3, 0.5, seed=4), NOTHING])
def test_lookup_is_the_most_frequent_frame(observation: Observation, corpus: Corpus) -> None:
    """Against a Counter over what is seen: ties to the more frequent overall, then to the first by name."""
    split = corpus.split("train")
    seen = split.seen(observation)
    overall: Counter[int] = Counter()
    by_pred: dict[int, Counter[int]] = defaultdict(Counter)
    for n in range(len(split)):
        for m in range(4):
            if seen.observed[n, m]:
                frame = int(seen.frames[n, m, 0])
                overall[frame] += 1
                by_pred[int(split.arrays["tokens"][n, m, 0])][frame] += 1

    def brute(pred: int) -> int:
        counts = by_pred.get(pred, Counter[int]())
        return max(range(5), key=lambda k: (counts[k], overall[k], -k))

    table = Lookup().fit(corpus, observation)
    words = np.arange(len(corpus.vocabulary)).reshape(-1, 1)
    found = table.probabilities(words)
    assert found.shape == (len(words), 1, 5)
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-6)
    assert found[:, 0].argmax(-1).tolist() == [brute(pred) for pred in range(len(words))]
    figures = Lookup().prepare(corpus, observation)
    assert figures == {"predicates": len(by_pred), "labels": overall.total()}


def test_lookup_probabilities_by_hand() -> None:
    events = [Event("run", frame=f) for f in ("A", "A", "B")] + [Event("go", frames={"B": 3.0, "C": 1.0})]
    corpus = Corpus.build(train=[Document("d", events)], window="all")
    table = Lookup(objective=lookup.Objective(smoothing=0.5)).fit(corpus, Observation(1.0))
    base = (np.array([2, 1.75, 0.25]) + 1 / 3) / 5
    run = (np.array([2, 1, 0]) + 0.5 * base) / 3.5
    go = (np.array([0, 0.75, 0.25]) + 0.5 * base) / 1.5
    numbers = np.array([[corpus.vocabulary.index[word] for word in ("go", "run")], [-1, 7000]])
    np.testing.assert_allclose(table.probabilities(numbers), [[go, run], [base, base]], rtol=1e-6)


def test_lookup_refuses_arrays_that_are_no_table(corpus: Corpus) -> None:
    table = Lookup().fit(corpus, Observation(1.0))
    arrays, other = table.state_dict(), Lookup()
    other.to("cpu").load_state_dict(table.state_dict())
    np.testing.assert_array_equal(other.probabilities(np.arange(20)), table.probabilities(np.arange(20)))
    with pytest.raises(RevupError, match="'labels' is missing"):
        other.load_state_dict({name: array for name, array in arrays.items() if name != "labels"})
    for name, bad in (("frames", arrays["frames"] + 5), ("starts", arrays["starts"][:-1]), ("preds", -arrays["preds"])):
        with pytest.raises(RevupError, match="do not fit together"):
            other.load_state_dict({**arrays, name: bad})


# ---- tagger --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["default", "plain"])
def test_tagger_loss_is_the_mean_over_observed_events(preset: str, corpus: Corpus) -> None:
    """−log Σ_k q_k p(y|k) where labels may be wrong, −log q_y where they are the truth."""
    model = build("tagger", corpus, preset=preset, **STILL, anchor=0.0)
    batch = first_batch(model, corpus)
    batch = replace(batch, confidence=batch.confidence * torch.rand(40, 4, generator=torch.Generator().manual_seed(1)))
    log_q = torch.log(model.frame_probabilities(batch)).detach()
    expected = 0.0
    for b in range(40):
        for m in range(4):
            if batch.observed[b, m]:
                own = log_q[b, m, batch.frames[b, m, 0]]
                if preset == "default":
                    own = (log_q[b, m].exp() * batch.empirical(5)[b, m]).sum().log()
                expected -= float(own * batch.confidence[b, m])
    assert bool((batch.belief[batch.observed > 0] == 1).all()) == (preset == "plain")
    loss = model(batch, draws_of(batch))
    assert float(loss.total.detach()) == pytest.approx(expected / batch.observed_events, rel=1e-4)


def test_transformer_survives_a_document_of_nothing(corpus: Corpus) -> None:
    model = build("tagger", corpus, encoder="transformer").eval()
    batch = first_batch(model, corpus)
    batch = replace(batch, mask=batch.mask.clone())
    batch.mask[3] = False
    assert torch.isfinite(model.frame_probabilities(batch)).all()


def test_prepared_models_report_the_noise_rate(corpus: Corpus) -> None:
    told = build("tagger", corpus, noise_rate=0.25)
    assert told.prepare(corpus, SEEN) == {"noise_rate": pytest.approx(0.25)}
    assert build("counts", corpus, noise_rate=0.0).prepare(corpus, SEEN) == {"noise_rate": 0.0}
    assert build("counts", corpus).prepare(corpus, SEEN) == {}  # so few labels do not tell
    assert build("ssdvae", corpus, noise="none").prepare(corpus, SEEN) == {}
    assert build("tagger", corpus, preset="plain").prepare(corpus, SEEN) == {}
    assert build("ssdvae", corpus, preset="paper").prepare(corpus, SEEN) == {}
    for unsupervised in (RNNLM, HAQAE):
        assert not unsupervised.predicts_frames
    for supervised in (SSDVAE, Tagger, Lookup):
        assert supervised.predicts_frames
    assert rnnlm.Objective() == rnnlm.Objective()


@pytest.mark.parametrize(("model", "attention"), [("haqae", "full"), ("haqae", "confined"), ("ssdvae", "confined")])
def test_counts_as_tensors_give_the_same_loss(corpus: Corpus, model: str, attention: str) -> None:
    """As they are where a step is captured."""
    built = build(model, corpus, attention=attention).eval()
    batch = first_batch(built, corpus, size=16)
    counts = {name: torch.tensor(float(getattr(batch, name))) for name in ("events", "observed_events")}
    losses = [built(given, draws_of(batch)) for given in (batch, replace(batch, **counts))]
    torch.testing.assert_close(losses[1].total, losses[0].total)
    torch.testing.assert_close(losses[1].terms, losses[0].terms)


@pytest.mark.parametrize("name", ["revup", "ssdvae"])
def test_with_nothing_seen_predicates_are_frames_at_first(corpus: Corpus, name: str) -> None:
    """In the default preset alone, and only where no frame is seen."""
    classes = len(corpus.frames)

    def prior(observation: Observation, preset: str = "default", **options: Any) -> Tensor | None:
        model = build(name, corpus, observation, preset, **options)
        batch = first_batch(model, corpus, observation, size=16)
        found: Tensor | None = model.prior_of(batch)
        return None if found is None else found[batch.mask]

    assert prior(NOTHING, "paper") is None
    assert build(name, corpus, NOTHING, prior="none", noise="none").prepare(corpus, NOTHING) == {}
    assert build(name, corpus, NOTHING).prepare(corpus, NOTHING) == {"induced_frames": classes}
    seen, plain = prior(SEEN), prior(NOTHING, induce=False)
    assert seen is not None
    assert plain is not None
    torch.testing.assert_close(prior(SEEN, induce=False), seen)
    torch.testing.assert_close(torch.softmax(plain, -1), torch.full_like(plain, 1 / classes))
    told = prior(NOTHING)
    assert told is not None
    split = corpus.split("train")
    there = np.arange(corpus.events) < np.asarray(split.arrays["lengths"])[:16, None]
    lemmas, frames = np.asarray(split.arrays["lemma"])[:16][there], told.argmax(-1).numpy()
    for lemma in np.unique(lemmas):  # a lemma is one frame
        assert len(np.unique(frames[lemmas == lemma])) == 1
    assert len(np.unique(frames)) > min(classes, len(np.unique(lemmas))) // 2
