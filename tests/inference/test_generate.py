"""Generation: beam search against exhaustive search, sampling against exact probabilities, and the grammar."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from revup.cli import run as run_verb
from revup.data.corpus import Corpus
from revup.data.encode import BOS, NULL, SPECIAL, TOKENS, TUP
from revup.data.events import Document, Event
from revup.data.readers import read as read_documents
from revup.data.vocabulary import Vocabulary
from revup.errors import RevupError
from revup.inference import generate as generation
from revup.inference.decoding import (
    METHODS,
    Method,
    Text,
    beam_search,
    decode,
    grammar,
    narrowed,
    read_tokens,
    sampled_words,
)
from revup.inference.generate import generate
from revup.inference.trained import Trained
from revup.models import model_class
from revup.models.network import Sizes
from revup.settings import Config
from revup.training.run import train

SIZES = {"embedding": 6, "hidden": 8, "latent": 4, "frame": 6, "layers": 2}
WRITERS = ("revup", "ssdvae", "haqae", "rnnlm")
VARIANTS: dict[str, tuple[str, str]] = {
    **{name: (name, "default") for name in WRITERS},
    "revup-full": ("revup", "paper"),
    "ssdvae-fed": ("ssdvae", "released"),
}


def model_of(name: str, words: int, preset: str = "default", events: int = 3, frames: int = 4) -> Trained:
    """An untrained model with peaked distributions, over words w0, w1, … and frames F0, F1, …"""
    small = {"codes": 5} if name == "haqae" else {}
    config = Config.make(name, preset, overrides={"network": SIZES, "objective": small})
    network = config.network.resolve(frames)
    torch.manual_seed(1)
    module = model_class(name)(Sizes(len(SPECIAL) + words, frames, events), network, config.objective)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(2.5)
    vocabulary = Vocabulary([*SPECIAL, *(f"w{n}" for n in range(words))])
    return Trained(module.eval(), config, vocabulary, [f"F{n}" for n in range(frames)], events, {"named_frames": True})


def assert_well_formed(documents: list[Document], events: int) -> None:
    for document in documents:
        assert len(document.events) == events
        for event in document.events:
            assert event.pred
            assert event.pred not in SPECIAL
            assert not {event.subj, event.obj, event.mod} & set(SPECIAL)


def document(*predicates: str, name: str = "p") -> Document:
    return Document(name, [Event(word, "w0", None, "w1") for word in predicates])


# ---- the grammar -------------------------------------------------------------------------------------------------


def test_grammar_allows_words_by_slot() -> None:
    allowed = grammar(8) == 0
    words = set(range(len(SPECIAL), 8))
    assert [set(row.nonzero().flatten().tolist()) for row in allowed] == [words, *[words | {NULL}] * 3, {TUP}]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_every_model_writes_complete_events(variant: str, method: str) -> None:
    name, preset = VARIANTS[variant]
    model = model_of(name, 6, preset)
    assert_well_formed(generate(model, 4, method=method, events=5), 5)
    prompts = [document("w1", name="a"), document("w2", "w5", name="b"), document("w3", name="c")]
    found = generate(model, 2, prompts, method=method)
    assert_well_formed(found, 3)
    assert [d.id for d in found] == ["a-1", "a-2", "b-1", "b-2", "c-1", "c-2"]
    for number, one in enumerate(found):
        assert one.events[: len(prompts[number // 2].events)] == prompts[number // 2].events


# ---- beam search -------------------------------------------------------------------------------------------------


def exhaustive(model: Trained, state: Any, last: Tensor, events: int) -> list[Text]:
    """Every text of so many events, with its log-probability by reading it."""
    words, allowed = range(len(SPECIAL), model.module.sizes.words), grammar(model.module.sizes.words)
    slots = [*words, NULL]
    each = [[*slots_, TUP] for slots_ in itertools.product(words, slots, slots, slots)]
    texts = torch.tensor([list(itertools.chain(*parts)) for parts in itertools.product(each, repeat=events)])
    state, last = state.select(torch.zeros(len(texts), dtype=torch.long)), last.expand(len(texts))
    total = torch.zeros(len(texts), dtype=torch.float64)
    with torch.no_grad():
        for position, tokens in enumerate(texts.unbind(1)):
            log_p, state = model.module.step(last, state)
            log_p = torch.log_softmax(log_p + allowed[position % TOKENS], dim=-1)
            total += log_p.gather(1, tokens.unsqueeze(1)).squeeze(1)
            last = tokens
    return [Text(row, value) for row, value in zip(texts.tolist(), total.tolist(), strict=True)]


def beginning(model: Trained) -> tuple[Any, Tensor]:
    with torch.no_grad():
        memory, _ = model.module.sample_memory([np.random.default_rng(2)])
        return read_tokens(model.module, torch.zeros(1, 0, dtype=torch.long), model.module.start(memory))


@pytest.mark.parametrize("variant", VARIANTS)
def test_wide_beam_equals_exhaustive_search(variant: str) -> None:
    name, preset = VARIANTS[variant]
    model = model_of(name, 3, preset)
    state, last = beginning(model)
    every = sorted(exhaustive(model, state, last, 1), key=lambda text: -text.log_probability)
    assert math.isclose(sum(math.exp(text.log_probability) for text in every), 1.0, rel_tol=1e-5)
    found = beam_search(model.module, state, last, (1, 1), Method("beam", beams=len(every)), best=20)[0]
    assert [text.tokens for text in found] == [text.tokens for text in every[:20]]
    assert [text.log_probability for text in found] == pytest.approx([t.log_probability for t in every[:20]], abs=1e-4)
    narrow = beam_search(model.module, state, last, (1, 1), Method("beam", beams=2))[0][0]
    assert narrow.log_probability <= every[0].log_probability + 1e-5


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0, 2.0])
def test_length_penalty_ranks_texts_of_different_lengths(penalty: float) -> None:
    model = model_of("revup", 1)
    state, last = beginning(model)
    every = [text for events in (1, 2, 3) for text in exhaustive(model, state, last, events)]
    every.sort(key=lambda text: -text.log_probability / len(text.tokens) ** penalty)
    method = Method("beam", beams=512, length_penalty=penalty)
    found = beam_search(model.module, state, last, (1, 3), method, best=5)[0]
    assert [text.tokens for text in found] == [text.tokens for text in every[:5]]
    if penalty == 0:
        assert len(found[0].tokens) == TOKENS  # nothing pays for a second event


def test_greedy_equals_a_beam_of_one() -> None:
    model = model_of("ssdvae", 5)
    state, last = beginning(model)
    greedy = decode(model.module, state, last, 2, Method("greedy"), None)[0]
    single = beam_search(model.module, state, last, (2, 2), Method("beam", beams=1))[0][0]
    assert greedy.tokens == single.tokens
    assert greedy.log_probability == pytest.approx(single.log_probability, abs=1e-4)


# ---- sampling ----------------------------------------------------------------------------------------------------


def test_sample_frequencies_match_probabilities() -> None:
    model = model_of("rnnlm", 2)
    state, last = beginning(model)
    every = {tuple(t.tokens): math.exp(t.log_probability) for t in exhaustive(model, state, last, 1)}
    count = 20_000
    found = Counter(
        tuple(text.tokens)
        for text in decode(
            model.module,
            state.select(torch.zeros(count, dtype=torch.long)),
            last.expand(count),
            1,
            Method("sample"),
            torch.rand(count, TOKENS, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
        )
    )
    for text, probability in every.items():
        error = math.sqrt(probability * (1 - probability) / count)
        assert abs(found[text] / count - probability) < 5 * error + 1e-4
    assert set(found) <= set(every)


@settings(max_examples=60, deadline=None)
@given(
    logits=st.lists(st.floats(-6, 6), min_size=2, max_size=9),
    temperature=st.floats(0.2, 3),
    top_k=st.integers(0, 10),
    top_p=st.floats(0.05, 0.999) | st.just(1.0),  # between them the shares' rounding decides
)
def test_temperature_top_k_and_top_p_match_direct_computation(
    logits: list[float], temperature: float, top_k: int, top_p: float
) -> None:
    log_p = torch.log_softmax(torch.tensor([logits], dtype=torch.float64), dim=-1)
    found = narrowed(log_p, Method("sample", temperature=temperature, top_k=top_k, top_p=top_p))[0].tolist()
    sharp = np.exp((np.array(logits) - max(logits)) / temperature)
    sharp /= sharp.sum()
    order = np.argsort(-sharp, kind="stable")[: top_k or None]
    share, kept = 0.0, []
    for place in order:
        if share >= top_p * sharp[order].sum() * (1 + 1e-12):
            break
        kept.append(place)
        share += sharp[place]
    assert sum(found) == pytest.approx(1)
    positive = [p for p in found if p > 0]
    assert abs(len(positive) - len(kept)) <= 1  # where shares meet the bound exactly, rounding may decide
    if len(positive) == len(kept):
        assert sorted(positive) == pytest.approx(sorted(sharp[kept] / share), abs=1e-9)
    assert sharp[int(np.argmax(found))] == pytest.approx(sharp.max(), abs=1e-9)


def test_sampling_never_picks_impossible_words() -> None:
    probabilities = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).repeat(4, 1)
    numbers = torch.tensor([0.0, 0.4999, 0.5, 1.0], dtype=torch.float64)
    assert sampled_words(probabilities, numbers).tolist() == [1, 1, 3, 3]


def test_low_temperature_equals_greedy() -> None:
    model = model_of("haqae", 6)
    cold = generate(model, 3, method=Method("sample", temperature=1e-3), frames=None, seed=4)
    greedy = generate(model, 3, method="greedy", seed=4)
    assert [d.events for d in cold] == [d.events for d in greedy]  # the same codes are drawn


# ---- batches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("variant", ["revup", "haqae", "rnnlm", "ssdvae-fed"])
def test_generation_does_not_depend_on_batching(monkeypatch: pytest.MonkeyPatch, variant: str, method: str) -> None:
    name, preset = VARIANTS[variant]
    model = model_of(name, 6, preset)
    prompts = [document(*[f"w{n % 6}"] * (1 + n % 2), name=str(n)) for n in range(7)]
    together = generate(model, 2, prompts, method=method, seed=3), generate(model, 6, method=method, seed=3)
    monkeypatch.setattr(generation, "NUMBERS_AT_ONCE", 1)
    apart = generate(model, 2, prompts, method=method, seed=3), generate(model, 6, method=method, seed=3)
    for a, b in zip(itertools.chain(*together), itertools.chain(*apart), strict=True):
        assert (a.id, a.events) == (b.id, b.events)
        assert a.extra is not None
        assert b.extra is not None
        assert a.extra["log_probability"] == pytest.approx(b.extra["log_probability"], abs=1e-3)


def test_generation_is_reproducible_by_seed() -> None:
    model = model_of("revup", 8)
    assert generate(model, 5, seed=1) == generate(model, 5, seed=1)
    assert generate(model, 5, seed=1) != generate(model, 5, seed=2)
    assert [d.events for d in generate(model, 3, seed=1)] == [d.events for d in generate(model, 5, seed=1)][:3]


# ---- prompts and chosen frames -----------------------------------------------------------------------------------


def test_chosen_frames_are_the_latents_of_the_decoder() -> None:
    model = model_of("ssdvae", 6)
    found = generate(model, 2, frames=["F2", "F0"], method="beam")
    assert [[e.frame for e in d.events] for d in found] == [["F2", "F0"]] * 2
    memory = model.module.memory_of_frames(torch.tensor([[2, 0]]))
    last = torch.tensor([BOS])
    best = beam_search(model.module, model.module.start(memory), last, (2, 2), Method("beam"), best=2)[0]
    scores = [d.extra["log_probability"] for d in found if d.extra]
    assert scores == pytest.approx([text.log_probability for text in best], abs=1e-3)
    assert generate(model, 1, frames=["F1"], method="greedy") != generate(model, 1, frames=["F3"], method="greedy")


def test_chosen_frames_follow_the_prompt() -> None:
    for preset in ("default", "paper"):
        model = model_of("revup", 6, preset)
        found = generate(model, 3, [document("w1", "w2")], ["F3", "F0"], method="sample")
        assert [[e.frame for e in d.events] for d in found] == [[None, None, "F3", "F0"]] * 3


def test_sampled_frames_are_named_and_codes_are_not() -> None:
    assert all(e.frame in ("F0", "F1", "F2", "F3") for d in generate(model_of("revup", 6), 4) for e in d.events)
    assert all(e.frame is None for d in generate(model_of("haqae", 6), 4) for e in d.events)
    unnamed = model_of("ssdvae", 6)
    unnamed.data["named_frames"] = False
    assert all(e.frame is None for d in generate(unnamed, 4) for e in d.events)
    frames = Counter(e.frame for d in generate(model_of("ssdvae", 6), 1000) for e in d.events)
    assert all(abs(frames[f"F{k}"] / 3000 - 0.25) < 0.04 for k in range(4))


def test_prompt_conditions_encoder_and_decoder() -> None:
    model = model_of("revup", 6)
    prompt = document("w1", "w4")
    found = generate(model, 1, [prompt], method="greedy")[0]
    batch = model.first_window([prompt])
    memory = model.module.prompt_memory(batch)
    assert memory.mask.tolist() == [[True, True, False]]  # the prompt has two events
    words = {word: n for n, word in enumerate(model.vocabulary.words)}
    tokens = [words["w1"], words["w0"], NULL, words["w1"], TUP, words["w4"], words["w0"], NULL, words["w1"], TUP]
    event = found.events[-1]
    written = [NULL if word is None else words[word] for word in (event.pred, event.subj, event.obj, event.mod)]
    nll = model.module.text_nll(torch.tensor([[*tokens, *written, TUP]]), memory)[0]
    state, last = read_tokens(model.module, torch.tensor([tokens]), model.module.start(memory))
    with torch.no_grad():
        log_p, _ = model.module.step(last, state)
    assert float(-nll[10]) == pytest.approx(float(log_p[0, written[0]]), abs=1e-5)
    assert written[0] == int((log_p + grammar(len(words))[0]).argmax())


def test_full_attention_infers_all_latents_from_a_prompt() -> None:
    model = model_of("revup", 6, "paper")
    memory = model.module.prompt_memory(model.first_window([document("w1")]))
    assert memory.mask.all()


def test_prompt_longer_than_the_window() -> None:
    model = model_of("revup", 6)
    assert_well_formed(generate(model, 1, [document(*["w1"] * 5)], events=7), 7)


# ---- wrong options -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rnnlm", {"frames": ["F0"]}, "the model rnnlm does not write text from chosen frames"),
        ("haqae", {"frames": ["F0"]}, "chosen frames"),
        ("revup", {"frames": ["f1"]}, "no frame 'f1'; did you mean F"),
        ("revup", {"frames": ["Arrest"]}, "frames.txt"),
        ("tagger", {}, "the model tagger does not write text"),
        ("revup", {"n": 0}, "n: expected a number from 1 to 1000000"),
        ("revup", {"n": 10**9}, "n: expected a number from 1 to 1000000, found 1000000000"),
        ("revup", {"events": 10**9}, "events: expected a number from 1 to 1000"),
        ("revup", {"n": 9, "method": Method("beam", beams=3)}, "more beams"),
        ("revup", {"method": "best"}, "method: expected one of greedy"),
        ("revup", {"events": (2, 3)}, "needs the method beam"),
        ("revup", {"events": (3, 2), "method": "beam"}, "found 3-2"),
        ("revup", {"prompts": [Document("d", [])]}, "'d' has no events"),
        ("revup", {"prompts": [document("w1", "w1", "w1")]}, "has 3 events already"),
    ],
)
def test_generate_refuses_wrong_options_and_models(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RevupError, match=message):
        generate(model_of(name, 6), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beams": 10**9}, "beams: expected a number from 1 to 1000, found 1000000000"),
        ({"temperature": float("inf")}, "temperature: expected a number above 0, found inf"),
        ({"temperature": float("nan")}, "temperature: expected a number above 0, found nan"),
        ({"length_penalty": float("nan")}, "length-penalty: expected a number, found nan"),
    ],
)
def test_method_refuses_what_no_number_can_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RevupError, match=message):
        Method("beam", **options)


@pytest.mark.parametrize("options", [{"beams": 0}, {"temperature": 0.0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}])
def test_method_refuses_values_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(RevupError, match="expected"):
        Method("sample", **options)


# ---- the verb ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tiny_corpus: Corpus, tiny_network: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generation") / "run"
    train(tiny_corpus, device="cpu", network=tiny_network, training={"epochs": 8, "learning_rate": 0.01}, out=out)
    return out


def test_generate_verb_writes_readable_documents(
    run: Path, tmp_path: Path, tiny_corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    run_verb(["generate", str(run), "-n", "3", "--seed", "2"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert all(event["frame"] in tiny_corpus.frames for line in lines for event in line["events"])
    frames = ",".join(tiny_corpus.frames[:2])
    out = tmp_path / "x.jsonl.gz"
    run_verb(["generate", str(run), "--frames", frames, "--method", "beam", "-n", "7", "--out", str(out)])
    written = list(read_documents(out))
    assert len(written) == 7
    assert_well_formed(written, 2)
    scores = [d.extra["log_probability"] for d in written if d.extra]
    assert scores == sorted(scores, reverse=True)
    run_verb(["generate", str(run), "--prompt", str(out), "--method", "beam", "--events", "3-4", "-n", "1"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in lines] == [f"{d.id}-1" for d in written]
    with pytest.raises(RevupError, match="--events: expected a number"):
        run_verb(["generate", str(run), "--events", "many"])
    with pytest.raises(RevupError, match="exists already"):
        run_verb(["generate", str(run), "--out", str(out)])
