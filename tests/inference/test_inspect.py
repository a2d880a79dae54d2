"""Inspection against direct computation and a world whose answers are known."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from revup.cli import run as run_verb
from revup.data.corpus import Corpus
from revup.data.encode import BOS, SPECIAL, TOKENS
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.inference.evaluate import trained_on
from revup.inference.inspect import favoured_words, inspect
from revup.inference.trained import Trained
from revup.models.layers import shifted
from revup.models.revup import ACTIVE
from revup.reporting.latents import page, summary
from revup.training.run import train
from revup.world.world import World

FRAMES = 6


@pytest.fixture(scope="module")
def world() -> World:
    return World(frames=FRAMES, seed=2, words=100, events=2)


@pytest.fixture(scope="module")
def corpus(world: World) -> Corpus:
    parts = {name: world.sample(count, seed=n) for n, (name, count) in enumerate((("train", 1500), ("test", 300)))}
    return Corpus.build(**parts, events=2, duplicates="keep")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A model trained until it predicts frames well."""
    out = tmp_path_factory.mktemp("inspection") / "run"
    sizes = {"embedding": 24, "hidden": 32, "latent": 8, "frame": 24, "layers": 1}
    training = {"epochs": 12, "batch_size": 50, "learning_rate": 0.01, "measure": "perplexity"}
    found = train(corpus, device="cpu", network=sizes, training=training, out=out)
    return found


@pytest.fixture(scope="module")
def found(model: Trained, corpus: Corpus) -> dict[str, Any]:
    return inspect(model, corpus, top=500)


def others(corpus: Corpus, name: str, tiny_network: dict[str, Any], **options: Any) -> Trained:
    return train(corpus, name, device="cpu", network=tiny_network, training={"epochs": 1}, **options)


def by_frame(found: dict[str, Any], part: str, what: str) -> dict[str, dict[str, float]]:
    return {row["frame"]: {item[what]: item["probability"] for item in row[part]} for row in found["frames"]}


def test_decoder_words_of_each_frame_match_the_world(found: dict[str, Any], world: World, model: Trained) -> None:
    """What the decoder writes first for a frame is near the world's own p(predicate|frame)."""
    words = by_frame(found, "words", "word")
    distances = np.array(
        [
            [
                0.5 * sum(abs(words[frame].get(w, 0.0) - p) for w, p in zip(world.predicates, row, strict=True))
                for row in world.predicate_probs
            ]
            for frame in world.frames
        ]
    )
    assert [sum(row.values()) for row in words.values()] == pytest.approx([1.0] * FRAMES)
    assert (distances.argmin(1) == np.arange(FRAMES)).all()  # nearer to its own frame's than to any other's


def test_generated_predicates_match_decoder_words(found: dict[str, Any], model: Trained) -> None:
    frame = model.frames[1]
    words = by_frame(found, "words", "word")[frame]
    drawn = Counter(d.events[0].pred for d in model.generate(3000, frames=[frame], seed=1))
    for word, probability in words.items():
        assert abs(drawn[word] / 3000 - probability) < 5 * (probability * (1 - probability) / 3000) ** 0.5 + 1e-3


def test_decoder_words_match_direct_computation(model: Trained) -> None:
    module = model.module
    favoured = favoured_words(module)
    with torch.no_grad():
        memory = module.frames[2].view(1, 1, -1)
        states = module.decoder(module.words(torch.tensor([[BOS]])), memory, torch.ones(1, 1, dtype=torch.bool))
        direct = torch.softmax(module.vocabulary(states[0, 0]), -1)
    direct[: len(SPECIAL)] = 0
    np.testing.assert_allclose(favoured[2], (direct / direct.sum()).numpy(), atol=1e-6)


def test_predicates_shares_and_followers_match_direct_counts(
    found: dict[str, Any], model: Trained, corpus: Corpus
) -> None:
    predicates: dict[int, Counter[str]] = defaultdict(Counter)
    mass, follow = np.zeros(FRAMES), np.zeros((FRAMES, FRAMES))
    documents = 0
    with torch.no_grad():
        for batch in model.module.batches(corpus.split("test"), Observation(0.0), 64).ordered():
            r = model.module.frame_probabilities(batch).double().numpy()
            for row, mask, tokens in zip(r, batch.mask.numpy(), batch.tokens.numpy(), strict=True):
                documents += 1
                for m in np.flatnonzero(mask):
                    predicates[int(row[m].argmax())][corpus.vocabulary.words[tokens[m * TOKENS]]] += 1
                    mass += row[m]
                    if m and mask[m - 1]:
                        follow += np.outer(row[m - 1], row[m])
    assert found["documents"] == documents
    for k, row in enumerate(found["frames"]):
        total = predicates[k].total()
        assert row["events"] == total
        assert row["share"] == pytest.approx(mass[k] / mass.sum(), abs=1e-5)
        assert {i["word"]: i["probability"] for i in row["predicates"]} == pytest.approx(
            {word: count / total for word, count in predicates[k].items()}
        )
    np.testing.assert_allclose(found["transitions"], follow / follow.sum(1, keepdims=True), atol=1e-4)
    assert found["unused_frames"] == [model.frames[k] for k in range(FRAMES) if not predicates[k]]
    best = {row["frame"]: row["followers"][0]["frame"] for row in found["frames"]}
    assert best == {model.frames[k]: model.frames[int(follow[k].argmax())] for k in range(FRAMES)}


def test_followers_of_many_frames_are_those_of_few(
    found: dict[str, Any], model: Trained, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many frames are followed sparsely; with all frames of every event the result is the same."""
    monkeypatch.setattr("revup.inference.inspect.MOST_FOLLOWED", 0)
    monkeypatch.setattr("revup.inference.inspect.LIKELY", FRAMES)
    sparse = inspect(model, corpus)
    np.testing.assert_allclose(sparse["transitions"], found["transitions"], atol=1e-5)
    assert [row["followers"][0]["frame"] for row in sparse["frames"]] == [
        row["followers"][0]["frame"] for row in found["frames"]
    ]


def test_attention_weights_match_direct_computation(
    model: Trained, corpus: Corpus, tiny_network: dict[str, Any]
) -> None:
    fed = others(corpus, "ssdvae", tiny_network, preset="released")
    for trained in (model, fed):
        module = trained.module
        batch = next(module.batches(corpus.split("test"), Observation(0.0), 20).ordered())
        with torch.no_grad():
            memory = module.memory(batch)
            weights = module.text_attention(batch.tokens, memory)
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
            if trained is fed:
                continue
            states = module.decoder.rnn(
                module.words(shifted(batch.tokens)),
                module.decoder.start(memory.latents[:, 0]),
            )[0]
            scores = module.decoder.attention.score(states) @ memory.latents.mT * memory.latents.shape[-1] ** -0.5
            near = module.decoder.bias(0, scores.shape[1], scores.shape[2])
            torch.testing.assert_close(weights, torch.softmax(scores + near, -1))
    assert not module.decoder.attention._forward_hooks


def test_attention_is_averaged_by_slot_and_event(found: dict[str, Any]) -> None:
    attention = found["attention"]
    weights = np.array(attention["to_latents"])
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-4)
    assert attention["own_event_by_chance"] == pytest.approx(0.5)
    own = np.einsum("mtm->t", weights) / len(weights)  # all documents have two events
    np.testing.assert_allclose(list(attention["own_event"].values()), own, atol=1e-5)


def test_active_units_have_a_varying_mean(found: dict[str, Any], model: Trained, corpus: Corpus) -> None:
    with torch.no_grad():
        batch = next(model.module.batches(corpus.split("test"), Observation(0.0), 300).ordered())
        latents = model.module.latents_of(batch)
    mean, variance = latents.mean[batch.mask], latents.log_variance[batch.mask].exp()
    normal = torch.distributions.Normal(mean, variance.sqrt())
    divergence = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).mean(0)
    assert found["z"]["kl"] == pytest.approx(divergence.tolist(), rel=1e-3)
    spread = mean.numpy().var(0)
    assert found["z"]["variance"] == pytest.approx(spread.tolist(), rel=1e-3)
    assert found["z"]["active"] == int((spread > ACTIVE).sum()) > 0


def test_collapsed_units_and_unused_frames_are_reported(corpus: Corpus, tiny_network: dict[str, Any]) -> None:
    trained = others(corpus, "revup", tiny_network, objective={"prior": "none"})
    with torch.no_grad():
        weights = trained.module.latents[0]
        weights.gaussian.weight[3] = 0.0  # μ of the fourth unit is its bias
        weights.propose.bias[2] = -1e4
    found = inspect(trained, corpus)
    assert found["z"]["variance"][3] == pytest.approx(0, abs=1e-9)
    assert found["z"]["active"] <= 7
    assert trained.frames[2] in found["unused_frames"]
    assert found["frames"][2]["predicates"] == []
    assert trained.frames[2] in summary(found)


def test_haqae_reports_the_use_of_its_codes(corpus: Corpus, tiny_network: dict[str, Any], tmp_path: Path) -> None:
    trained = others(corpus, "haqae", tiny_network, objective={"codes": 8})
    found = inspect(trained, corpus)
    assert "frames" not in found
    assert len(found["codes"]["codes_used"]) == 2
    assert all(1 <= value <= 8.001 for value in found["codes"]["code_perplexity"])
    assert "code perplexity" in summary(found)
    page(found).save(tmp_path / "codes.html")
    assert "Codes" in (tmp_path / "codes.html").read_text("utf-8")


def test_models_without_decoder_report_frames_only(corpus: Corpus, tiny_network: dict[str, Any]) -> None:
    for name in ("lookup", "tagger"):
        found = inspect(others(corpus, name, tiny_network), corpus)
        assert "words" not in found["frames"][0]
        assert found["frames"][0]["predicates"]
        assert not {"attention", "z", "codes"} & set(found)
        assert "the decoder writes" not in summary(found)
    with pytest.raises(RevupError, match="rnnlm has no frames"):
        inspect(others(corpus, "rnnlm", tiny_network), corpus)
    with pytest.raises(RevupError, match="the valid split is empty"):
        inspect(others(corpus, "lookup", tiny_network), corpus, "valid")


def test_inspect_verb_prints_and_writes_a_page(
    model: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = str(model.path), tmp_path / "page.html"
    data = str(trained_on(model).path)
    run_verb(["inspect", run, data, "--json", "--top", "2"])
    told = json.loads(capsys.readouterr().out)
    assert all(len(row["words"]) == 2 for row in told["frames"])
    run_verb(["inspect", run, "--page", str(out)])
    shown = capsys.readouterr().out
    assert "units of z are active" in shown
    html = out.read_text("utf-8")
    assert html.count("<img") == 3
    assert all(frame in html for frame in model.frames)
    with pytest.raises(RevupError, match="exists already"):
        run_verb(["inspect", run, "--page", str(out)])
    with pytest.raises(RevupError, match="--top"):
        run_verb(["inspect", run, "--top", "0"])


def test_tables_in_parts_equal_those_in_one(
    found: dict[str, Any], model: Trained, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of frames, tables over frames and words are computed a few rows at a time."""
    monkeypatch.setattr("revup.inference.inspect.MOST_NUMBERS", 3 * FRAMES)
    monkeypatch.setattr("revup.inference.inspect.MOST_TRANSITIONS", 4)
    parts = inspect(model, corpus)
    for mine, theirs in zip(parts["frames"], found["frames"], strict=True):
        for table, name in (("followers", "frame"), ("words", "word"), ("predicates", "word")):
            assert [row[name] for row in mine[table]] == [row[name] for row in theirs[table][:10]]
    assert len(parts["transition_frames"]) == 4
    chosen = [model.frames.index(name) for name in parts["transition_frames"]]
    assert sorted(chosen) == chosen
    assert parts["transitions"] == np.array(found["transitions"])[np.ix_(chosen, chosen)].tolist()
    assert found["transition_frames"] == model.frames
