"""Rivals as users train them: through the same verbs, resumable, on the labels as they stand."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import revup
from revup.data.corpus import Corpus
from revup.data.encode import TOKENS
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.errors import InputError, RevupError
from revup.inference.run_directory import FILES
from revup.io.digests import write_digest
from revup.io.tensors import load_tensors, save_tensors
from revup.models import model_module
from revup.models.network import Sizes
from revup.models.rivals.search import SEARCH, candidates
from revup.models.rivals.settings import METHODS
from revup.settings import Config, build_module

TINY: dict[str, Any] = {"embedding": 16, "hidden": 16, "latent": 8, "frame": 16}
RIVALS = [name for name in METHODS if name != "evidence"]
PEOPLE = ("jury", "judge", "man", "woman", "city", "team")


def settings(method: str, **training: Any) -> dict[str, Any]:
    return {
        "model": "tagger",
        "preset": method,
        "epsilon": 0.6,
        "eta": 0.2,
        "seed": 3,
        "network": {**TINY, "dropout": 0.2},
        "training": {"epochs": 3, "batch_size": 16, "validate_steps": 10, **training},
    }


class Stop(Exception):
    pass


@pytest.mark.parametrize("method", ["elr", "coteaching", "selftrain", "confident"])  # those that keep something
def test_a_resumed_rival_ends_as_one_that_was_never_stopped(method: str, tiny_corpus: Corpus, tmp_path: Path) -> None:
    whole = revup.train(tiny_corpus, out=tmp_path / "whole", **settings(method))

    def stop(progress: Any) -> None:
        if progress.step >= 15:
            raise Stop

    with pytest.raises(Stop):
        revup.train(tiny_corpus, out=tmp_path / "stopped", progress=stop, **settings(method))
    resumed = revup.train(tiny_corpus, out=tmp_path / "stopped", resume=True)
    assert (tmp_path / "whole/model.safetensors").read_bytes() == (tmp_path / "stopped/model.safetensors").read_bytes()
    scores = revup.evaluate(whole, tiny_corpus)
    assert scores["accuracy"] == revup.evaluate(tmp_path / "stopped", tiny_corpus)["accuracy"]
    assert scores["accuracy"] > 0.3
    assert resumed.state.finished


@pytest.mark.parametrize("method", RIVALS)
def test_a_rival_works_without_counts_and_without_labels(method: str, tiny_corpus: Corpus) -> None:
    plain = {"objective": {"prior": "none", "noise": "none", "induce": False}}
    made = settings(method, epochs=2)
    assert revup.train(tiny_corpus, **{**made, **plain, "epsilon": 0.0}).module.counts is None
    trained = revup.train(tiny_corpus, **{**made, **plain})
    assert trained.module.counts is None
    assert trained.state.epochs == 2


def test_a_rival_trains_on_the_labels_as_they_stand_and_is_judged_as_the_tagger(tiny_corpus: Corpus) -> None:
    noisy = Observation(1.0, 0.5, 1)
    sizes = Sizes(len(tiny_corpus.vocabulary), len(tiny_corpus.frames), tiny_corpus.events)
    made = {}
    for preset in ("default", "gce"):
        module = build_module(Config.make("tagger", preset, overrides={"network": TINY}), sizes)
        module.prepare(tiny_corpus, noisy)
        made[preset] = [
            next(module.batches(tiny_corpus.split(name), noisy, 50, training=name == "train").ordered())
            for name in ("train", "valid")
        ]
    rival, default = made["gce"], made["default"]
    stated = tiny_corpus.split("train").seen(noisy).frames[:50, :, 0]
    frames = rival[0].empirical(sizes.classes)
    there = rival[0].observed > 0
    assert (frames.max(-1).values[there] == 1).all()
    assert np.array_equal(frames.argmax(-1)[there].numpy(), stated[there.numpy()])
    assert (default[0].empirical(sizes.classes).max(-1).values[there] <= 1).all()
    torch.testing.assert_close(rival[0].prior_gain, default[0].prior_gain)
    torch.testing.assert_close(rival[1].weights, default[1].weights)


def test_pruned_labels_are_not_trained_on(tiny_corpus: Corpus) -> None:
    noisy = Observation(1.0, 0.4, 1)
    sizes = Sizes(len(tiny_corpus.vocabulary), len(tiny_corpus.frames), tiny_corpus.events)
    module: Any = build_module(Config.make("tagger", "confident", overrides={"network": TINY}), sizes)
    figures = module.prepare(tiny_corpus, noisy)
    split = tiny_corpus.split("train")
    batch = next(module.batches(split, noisy, len(split), training=True).ordered())
    told = split.seen(noisy).observed.sum()
    assert 0.1 < figures["pruned"] < 0.6
    assert batch.observed.sum() == batch.observed_events == told - round(figures["pruned"] * told)
    assert batch.confidence[batch.observed == 0].sum() == 0


def test_every_declared_candidate_is_valid_and_every_rival_has_some() -> None:
    for system, found in SEARCH.items():
        model, preset = system.split(":")
        assert len(found) == 4
        assert found[0] == {}
        made = {Config.make(model, preset, overrides=each) for each in found}
        assert all(not config.notes for config in made)
        assert len(made) == 4
    assert {f"tagger:{name}" for name in RIVALS} <= SEARCH.keys()
    assert candidates("rnnlm") == ({},)


# ---- lookup by lemma -----------------------------------------------------------------------------------------------


def forms(number: int = 120) -> list[Document]:
    """Documents whose predicates have many forms, of which few are labelled; arguments tell senses apart."""
    generator, documents = np.random.default_rng(1), []
    for document in range(number):
        events = []
        for _ in range(3):
            lemma = ("convict", "build", "run")[generator.integers(3)]
            form = lemma + ("", "s", "ed", "ing")[generator.integers(4)]
            subject = str(generator.choice(PEOPLE))
            frame = {"convict": "Verdict", "build": "Building"}.get(lemma) or (
                "Contest" if subject == "team" else "Motion"
            )
            events.append(Event(form, subject, str(generator.choice(PEOPLE)), None, frame=frame, lemma=lemma))
        documents.append(Document(f"d{document}", events))
    return documents


@pytest.fixture(scope="module")
def inflected() -> Corpus:
    return Corpus.build(forms(), events=3, split=(0.6, 0.2, 0.2))


def test_lookup_by_lemma_pools_all_forms(inflected: Corpus, tmp_path: Path) -> None:
    seen = Observation(0.1, 0.0, 4)
    split = inflected.split("train")
    said = split.seen(seen)
    by_lemma: dict[int, Counter[int]] = defaultdict(Counter)
    for lemma, frame in zip(split.arrays["lemma"][said.observed], said.frames[said.observed][:, 0], strict=True):
        by_lemma[int(lemma)][int(frame)] += 1
    run = tmp_path / "lemma"
    found = revup.train(inflected, "lookup", preset="lemma", epsilon=0.1, seed=4, out=run)
    test = inflected.split("test")
    batch = next(found.module.batches(test, Observation(0.0), len(test)).ordered())
    best = found.module.frame_probabilities(batch).argmax(-1)
    for lemma, frame in zip(batch.lemma[batch.mask].tolist(), best[batch.mask].tolist(), strict=True):
        assert by_lemma[lemma][frame] == max(by_lemma[lemma].values())
    form = revup.train(inflected, "lookup", epsilon=0.1, seed=4)
    assert revup.evaluate(run, inflected)["accuracy"] > revup.evaluate(form, inflected)["accuracy"]


# ---- logistic regression and propagation ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_vectors(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The same with vectors in which *erect*, never labelled, is near *build*."""
    folder, generator = tmp_path_factory.mktemp("vectors"), np.random.default_rng(2)
    named = {lemma: generator.normal(size=16) for lemma in ("convict", "build", "run")}
    words = {lemma + end: v for lemma, v in named.items() for end in ("", "s", "ed", "ing")}
    words |= {"erect": named["build"] + 0.1, "erects": named["build"] - 0.1}
    words |= {word: generator.normal(size=16) for word in PEOPLE}
    lines = (f"{word} {' '.join(f'{x:.4f}' for x in vector)}\n" for word, vector in words.items())
    (folder / "vectors.txt").write_text("".join(lines), "utf-8")
    unseen = [
        Document(f"u{i}", [Event(form, "man", "city", None, frame="Building")])
        for i, form in enumerate(("erect", "erects"))
    ]
    documents = forms()
    return Corpus.build(
        train=documents[:80],
        valid=documents[80:100],
        test=[*documents[100:], *unseen],
        events=3,
        vectors=folder / "vectors.txt",
        minimum_count=1,
    )


@pytest.mark.parametrize("model", ["logistic", "propagation"])
def test_a_model_without_steps_is_saved_and_loaded(model: str, with_vectors: Corpus, tmp_path: Path) -> None:
    made = revup.train(with_vectors, model, epsilon=0.5, seed=1, out=tmp_path / "run")
    scores, again = revup.evaluate(made, with_vectors), revup.evaluate(tmp_path / "run", with_vectors)
    assert scores["accuracy"] > 0.7
    assert scores["accuracy"] == again["accuracy"]
    assert scores["label_nll"] == pytest.approx(again["label_nll"])
    documents = [Document("new", [Event("erects", "woman", None, None)])]
    assert made.predict(documents, top=1)[0][0][0][0] == "Building"
    assert revup.load(tmp_path / "run").predict(documents) == made.predict(documents)


@pytest.mark.parametrize(("model", "array"), [("logistic", "of_word"), ("propagation", "near")])
def test_damaged_arrays_are_refused(model: str, array: str, with_vectors: Corpus) -> None:
    made = revup.train(with_vectors, model)
    tensors = {**made.module.state_dict(), array: made.module.state_dict()[array] + 10**6}
    with pytest.raises(RevupError, match="fit"):
        made.module.load_state_dict(tensors)


@pytest.mark.parametrize(
    ("model", "array", "change"),
    [
        ("logistic", "bias", lambda x: x.repeat(2, 1)),
        ("logistic", "word_vectors", lambda x: x[:-1]),
        ("propagation", "distributions", lambda x: -x),
        ("propagation", ("near", "closeness"), lambda x: x[:-1]),
    ],
)
def test_run_with_changed_arrays_is_refused(
    model: str, array: str | tuple[str, ...], change: Any, with_vectors: Corpus, tmp_path: Path
) -> None:
    revup.train(with_vectors, model, out=tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    tensors, meta = load_tensors(path)
    names = (array,) if isinstance(array, str) else array
    save_tensors(path, {**tensors, **{name: change(tensors[name]) for name in names}}, meta)
    write_digest(tmp_path / "run", [name for name in FILES if (tmp_path / "run" / name).exists()])
    with pytest.raises(InputError, match=r"model\.safetensors: "):
        revup.load(tmp_path / "run")


def test_logistic_regression_is_that_of_scikit_learn(with_vectors: Corpus) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    made: Any = revup.train(with_vectors, "logistic", epsilon=0.6, seed=2).module
    split = with_vectors.split("train")
    batch = next(made.batches(split, Observation(0.6, 0.0, 2), len(split)).ordered())
    use = (batch.observed > 0).flatten()
    read = batch.read.view(-1, TOKENS)[use][:, :4]
    lemma = batch.lemma.flatten()[use]
    rows = torch.zeros(len(read), len(made.indicators))
    which = torch.cat([made.of_word[read, torch.arange(4)], made.of_lemma[lemma].unsqueeze(1)], 1)
    rows.scatter_add_(1, which, torch.ones(which.shape))
    design = torch.cat([rows[:, 1:], made.word_vectors[read % made.sizes.words].flatten(1)], 1).numpy()
    labels = batch.empirical(made.sizes.classes).argmax(-1).flatten()[use].numpy()
    oracle = linear.LogisticRegression(C=1.0, max_iter=2000, tol=1e-8).fit(design, labels)
    found = made.frame_probabilities(batch).flatten(0, 1)[use][:, oracle.classes_].numpy()
    np.testing.assert_allclose(found, oracle.predict_proba(design), atol=5e-3)


def test_every_model_has_the_published_presets() -> None:
    for model in ("logistic", "propagation", "lookup"):
        assert {"default", "paper", "released"} <= model_module(model).PRESETS.keys()
