"""Measures against scikit-learn, direct computation and the exact answers of a world."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, precision_recall_fscore_support
from torch.nn import functional as F

import revup
from revup.data.corpus import Corpus
from revup.data.encode import NONE, TOKENS, UNK, UNSEEN
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.errors import InputError, RevupError
from revup.inference.evaluate import rewindow, translate
from revup.inference.measures import BINS, Classification, draws_for, evaluate_split, optimum, validate
from revup.inference.trained import Trained
from revup.models.count_evidence import LEAST_RATE
from revup.models.layers import shifted
from revup.world.world import World

MACRO = ("macro_precision", "macro_recall", "macro_f1")


@pytest.fixture(scope="module")
def trained(tiny_corpus: Corpus, tiny_network: dict[str, Any]) -> Trained:
    """A few steps away from chance."""
    settings = {"epochs": 2, "batch_size": 40, "learning_rate": 0.02}
    return revup.train(tiny_corpus, seed=1, network=tiny_network, training=settings)


# ---- classification ----------------------------------------------------------------------------------------------


def counted(reference: np.ndarray, predicted: np.ndarray, classes: int, parts: int = 1) -> Classification:
    score = Classification(classes)
    for r, p in zip(np.array_split(reference, parts), np.array_split(predicted, parts), strict=True):
        score.add(r, p)
    return score


@settings(max_examples=60, deadline=None)
@given(
    events=st.lists(st.tuples(st.integers(-1, 7), st.integers(0, 7)), min_size=1, max_size=60),
    spare=st.integers(0, 3),
    parts=st.integers(1, 4),
)
def test_classification_agrees_with_scikit_learn(events: list[tuple[int, int]], spare: int, parts: int) -> None:
    """With frames that occur, are predicted, or neither, and with ones outside the frame list (here −1)."""
    reference, predicted = np.array(events).T
    labels = np.where(reference < 0, UNSEEN, reference)
    score = counted(labels, predicted, 8 + spare, parts)
    found = score.scores()
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    expected = precision_recall_fscore_support(labels, predicted, average="macro", zero_division=0)[:3]
    assert [found[name] for name in MACRO] == pytest.approx(list(expected))
    assert score.events == len(events)
    assert score.unseen == (reference < 0).sum()


def test_macro_averages_count_unpredicted_and_absent_classes() -> None:
    found = counted(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 2]), 5).scores()
    assert found["accuracy"] == 0.5
    assert found["macro_precision"] == pytest.approx((2 / 3 + 0 + 0) / 3)
    assert found["macro_recall"] == pytest.approx((1 + 0 + 0) / 3)
    assert found["macro_f1"] == pytest.approx((0.8 + 0 + 0) / 3)


def test_empty_classification_has_no_scores() -> None:
    empty = Classification(4)
    assert set(empty.scores().values()) == {None}
    assert empty.calibration() == {"label_nll": None, "calibration_error": None, "reliability": []}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), events=st.integers(1, 50), classes=st.integers(2, 6), sharpness=st.floats(0, 30))
def test_calibration_matches_direct_computation(seed: int, events: int, classes: int, sharpness: float) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.from_numpy(rng.normal(size=(events, classes)) * sharpness)
    probabilities = torch.softmax(logits, -1).numpy().astype(np.float32)
    reference = rng.integers(0, classes, events)
    reference[rng.random(events) < 0.1] = UNSEEN
    predicted = probabilities.argmax(1)
    score = Classification(classes)
    half = events // 2
    for part in (slice(0, half), slice(half, None)):
        score.add(reference[part], predicted[part], probabilities[part])
    found = score.calibration()

    confidence = probabilities.max(1).astype(float)
    right = reference == predicted
    error = 0.0
    for low in range(BINS):
        inside = (confidence >= low / BINS) & ((confidence < (low + 1) / BINS) | (low == BINS - 1))
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    nll = [
        -math.log(max(p[r], 1e-30)) if r >= 0 else math.log(1e30) for p, r in zip(probabilities, reference, strict=True)
    ]
    assert found["calibration_error"] == pytest.approx(error, abs=1e-6)
    assert found["label_nll"] == pytest.approx(np.mean(nll), rel=1e-5)
    assert sum(row["events"] for row in found["reliability"]) == events


# ---- evaluation of a split ---------------------------------------------------------------------------------------


def direct_perplexity(trained: Trained, corpus: Corpus, hard: bool) -> float:
    """exp(ΣNLL/Σtokens) from plain logits over the vocabulary, token by token."""
    module, nll, tokens = trained.module, 0.0, 0
    for number, batch in enumerate(module.batches(corpus.split("test"), Observation(0.0), 500).ordered()):
        latents = module.latents_of(batch, None if hard else draws_for(batch, number, 0, trained.device), hard)
        states = module.decoder(module.words(shifted(batch.tokens)), latents.embedded, batch.mask)
        log_probabilities = F.log_softmax(module.vocabulary(states), -1)
        for row in range(len(batch.tokens)):
            for place in range(int(batch.mask[row].sum()) * TOKENS):
                nll -= float(log_probabilities[row, place, batch.tokens[row, place]])
                tokens += 1
    return math.exp(nll / tokens)


@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_perplexity_matches_direct_computation(trained: Trained, tiny_corpus: Corpus, hard: bool) -> None:
    with torch.no_grad():
        expected = direct_perplexity(trained, tiny_corpus, hard)
    found = revup.evaluate(trained, tiny_corpus)["perplexity_hard" if hard else "perplexity"]
    assert found == pytest.approx(expected, rel=1e-4)


def test_evaluate_agrees_with_predict(trained: Trained, tiny_corpus: Corpus, tiny_documents: list[Document]) -> None:
    """The scores of `evaluate` against the predictions of `predict` for the same documents."""
    ids = set(tiny_corpus.split("test").ids)
    documents = [d for d in tiny_documents if d.id in ids]
    truth = [e.frame for d in documents for e in d.events]
    chosen = [event[0][0] for d in trained.predict(documents, top=1) for event in d]
    scores = revup.evaluate(trained, tiny_corpus)
    assert scores["events"] == scores["events_scored"] == len(truth)
    assert scores["documents"] == len(documents)
    assert scores["accuracy"] == pytest.approx(accuracy_score(truth, chosen))
    expected = precision_recall_fscore_support(truth, chosen, average="macro", zero_division=0)[:3]
    assert [scores[name] for name in MACRO] == pytest.approx(list(expected))


def test_evaluate_reports_the_exact_optimum_of_a_world(
    trained: Trained, tiny_corpus: Corpus, tiny_world: World, tiny_documents: list[Document]
) -> None:
    ids = set(tiny_corpus.split("test").ids)
    found = revup.evaluate(trained, tiny_corpus)["optimum"]
    assert found == pytest.approx(tiny_world.optimum([d for d in tiny_documents if d.id in ids]))
    assert optimum(tiny_corpus, "train") is None


def test_evaluation_is_reproducible_by_seed(trained: Trained, tiny_corpus: Corpus) -> None:
    first, again, other = (revup.evaluate(trained, tiny_corpus, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first["perplexity"] != other["perplexity"]
    assert first["perplexity_hard"] == other["perplexity_hard"]


def test_samples_average_over_z_and_sampled_predicts_a_gumbel_sample(trained: Trained, tiny_corpus: Corpus) -> None:
    plain, averaged, sampled = (
        revup.evaluate(trained, tiny_corpus, **options) for options in ({}, {"samples": 3}, {"sampled": True})
    )
    assert averaged["label_nll"] != plain["label_nll"]
    assert averaged["label_nll"] == pytest.approx(plain["label_nll"], rel=0.3)
    assert sampled["label_nll"] == plain["label_nll"]
    module, split = trained.module, tiny_corpus.split("test")
    batch = next(module.batches(split, Observation(0.0), 500).ordered())
    chosen = module.sampled_frames(batch, draws_for(batch, 0, 0, trained.device, "predict"))
    right = (chosen == batch.reference)[batch.mask].float().mean()
    assert sampled["accuracy"] == pytest.approx(float(right))


def test_perplexity_can_be_left_out(trained: Trained, tiny_corpus: Corpus) -> None:
    scores = evaluate_split(trained.module, tiny_corpus.split("test"), text=False)
    assert scores["perplexity"] is None
    assert scores["accuracy"] is not None


def test_evaluation_hides_labels_from_the_model(trained: Trained, tiny_corpus: Corpus) -> None:
    """Other references change the scores, and nothing that the model computes."""
    split = tiny_corpus.split("test")
    before = evaluate_split(trained.module, split)
    split.arrays["reference"] = (np.asarray(split.arrays["reference"]) + 1) % split.classes
    split.arrays["knowledge_frames"] = (np.asarray(split.arrays["knowledge_frames"]) + 1) % split.classes
    after = evaluate_split(trained.module, split)
    assert after["perplexity"] == before["perplexity"]
    assert [row["confidence"] for row in after["reliability"]] == [row["confidence"] for row in before["reliability"]]
    assert after["accuracy"] != before["accuracy"]


# ---- validation --------------------------------------------------------------------------------------------------


def test_validation_uses_observed_labels_and_never_references(trained: Trained, tiny_corpus: Corpus) -> None:
    observation, split = Observation(0.6, 0.3, 7), tiny_corpus.split("valid")
    found = validate(trained.module, split, observation, seed=3)
    seen = split.seen(observation)
    reliability = next(iter(trained.reliability.values()))
    rate = max(reliability["error_rate"] or 0.0, LEAST_RATE)
    assert reliability["confusable"] in (None, 0.0)  # so that errors are uniform
    right, nll = [], []
    for batch in trained.module.batches(split, observation, 500).ordered():
        with torch.no_grad():
            probabilities = trained.module.frame_probabilities(batch).double().numpy()
    for row, m in zip(*np.nonzero(seen.observed), strict=True):
        r, label = probabilities[row, m], seen.frames[row, m, 0]
        right.append(r.argmax() == label)
        wrong = rate / (split.classes - 1) / (1 - rate)  # relative to that of the label
        nll.append(-math.log(r[label] + wrong * (1 - r[label])))
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert found["label_nll"] == pytest.approx(np.mean(nll), rel=1e-5)
    split.arrays["reference"] = np.full_like(split.arrays["reference"], NONE)
    assert validate(trained.module, split, observation, seed=3) == found


def test_validation_takes_labels_for_the_truth_where_the_model_does(
    tiny_corpus: Corpus, tiny_network: dict[str, Any]
) -> None:
    objective = {"noise": "none"}
    model = revup.train(tiny_corpus, network=tiny_network, objective=objective, training={"epochs": 0})
    split = tiny_corpus.split("valid")
    batch = next(model.module.batches(split, Observation(1.0), 500).ordered())
    with torch.no_grad():
        log_p = model.module.frame_probabilities(batch).double().log()
    expected = -(log_p * batch.empirical(split.classes)).sum(-1)[batch.observed > 0].mean()
    assert validate(model.module, split, Observation(1.0), 0)["label_nll"] == pytest.approx(float(expected), rel=1e-5)


def test_validation_without_observed_labels_has_perplexity_alone(trained: Trained, tiny_corpus: Corpus) -> None:
    assert list(validate(trained.module, tiny_corpus.split("valid"), Observation(0.0), 0)) == ["perplexity"]


# ---- another corpus ----------------------------------------------------------------------------------------------


def strange(document: Document) -> Document:
    """With one word and one frame that are not in the training split."""
    first = replace(document.events[0], subj="axolotl", frame="Metamorphosis")
    return replace(document, events=[first, *document.events[1:]])


@pytest.mark.parametrize("events", [2, 3, 4, 6])
def test_evaluation_on_another_corpus(trained: Trained, tiny_world: World, tmp_path: Path, events: int) -> None:
    """Other words, frames and windows: the scores are those of `predict` on the same windows."""
    drawn = tiny_world.sample(60, seed=9)
    long = [replace(a, events=[*a.events, *b.events]) for a, b in zip(drawn[::2], drawn[1::2], strict=True)]
    test = [strange(d) if i % 4 == 0 else d for i, d in enumerate(long)]
    train = [Document(f"t{i}", [Event("shout", frame=name)]) for i, name in enumerate(("Noise", "Metamorphosis"))]
    words = [Document("w", [replace(e, frame="Verdict") for e in d.events]) for d in test]
    other = Corpus.build(
        train=[*train, *(replace(d, id=f"w{i}") for i, d in enumerate(words))],
        test=test,
        out=tmp_path / "other",
        events=events,
        window="first",
    )
    assert other.vocabulary.words != trained.vocabulary.words
    scores = revup.evaluate(trained, other)
    shown = [replace(d, events=d.events[:events]) for d in test]
    truth = [e.frame for d in shown for e in d.events]
    # windows longer than the model's are cut and predicted in pieces
    chosen = [e[0][0] for d in trained.predict(shown, top=1) for e in d]
    known = set(other.frames)
    scored = [t if t in known else "never seen" for t in truth]
    assert scores["events_scored"] == len(truth)
    assert scores["accuracy"] == pytest.approx(accuracy_score(scored, chosen))
    assert scores["optimum"] is None


def test_translate_numbers_words_and_frames_as_the_model_does(
    trained: Trained, tiny_world: World, tmp_path: Path
) -> None:
    documents = [strange(d) for d in tiny_world.sample(40, seed=5)]
    other = Corpus.build(documents, out=tmp_path / "other", events=4, split=(0.5, 0.0, 0.5))
    split = translate(other.split("test"), other, trained)
    by_id = {d.id: d for d in documents}
    for row, identity in enumerate(other.split("test").ids):
        expected = trained.encode([by_id[identity]])
        for name in ("tokens", "reference", "lengths", "knowledge_weights", "keys"):
            found = np.asarray(split.arrays[name][row])
            if name == "tokens":  # words outside the other corpus's vocabulary are <unk> in both
                same = (found == expected.arrays[name][0]) | (found == UNK)
                assert same.all()
            else:
                np.testing.assert_array_equal(found, expected.arrays[name][0])
    assert (split.arrays["reference"][:, 0] == UNSEEN).all()


def test_evaluation_with_another_window_size(trained: Trained, tiny_documents: list[Document], tmp_path: Path) -> None:
    """The same words and frames, but windows of 3 for a model of 4."""
    other = Corpus.build(tiny_documents, out=tmp_path / "other", events=3, split=(0.7, 0.15, 0.15), window="all")
    assert other.frames == trained.frames
    assert revup.evaluate(trained, other)["events"] == other.split("test").events


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_rewindow_keeps_all_events_in_order(tiny_corpus: Corpus, size: int) -> None:
    before = dict(tiny_corpus.split("train").arrays)
    after = rewindow(before, size)

    def flat(arrays: dict[str, Any], name: str) -> np.ndarray:
        there = np.arange(arrays["tokens"].shape[1]) < np.asarray(arrays["lengths"])[:, None]
        return np.asarray(arrays[name])[there]

    for name in ("tokens", "reference", "knowledge_frames", "knowledge_weights", "confidence", "keys"):
        np.testing.assert_array_equal(flat(after, name), flat(before, name))
        assert after[name].shape[1] == size
    owner = [np.repeat(a["document"], a["lengths"]) for a in (after, before)]
    np.testing.assert_array_equal(*owner)
    assert after["lengths"].min() >= 1


def test_a_corpus_without_frames_has_no_accuracy(tiny_network: dict[str, Any], tiny_world: World) -> None:
    documents = [replace(d, events=[replace(e, frame=None) for e in d.events]) for d in tiny_world.sample(60)]
    corpus = Corpus.build(documents, events=4, classes=5, split=(0.7, 0.1, 0.2))
    model = revup.train(corpus, network=tiny_network, training={"epochs": 1})
    named = Corpus.build(tiny_world.sample(40), events=4, split=(0.5, 0.0, 0.5))
    for data in (corpus, named):
        scores = revup.evaluate(model, data)
        assert [scores[name] for name in ("accuracy", "label_nll", "calibration_error", *MACRO)] == [None] * 6
        assert scores["reliability"] == []
        assert scores["perplexity"] > 1


def test_evaluate_refuses_empty_splits_and_changed_data(
    trained: Trained, tiny_corpus: Corpus, tmp_path: Path, tiny_world: World
) -> None:
    alone = Corpus.build(train=tiny_world.sample(5), out=tmp_path / "alone", events=4)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: revup.evaluate(trained, alone), "the test split is empty"),
        (lambda: revup.evaluate(trained, tiny_corpus, split="tset"), "unknown split 'tset'"),
        (
            lambda: revup.evaluate(trained, tiny_corpus, samples=-1),
            "samples: expected a number from 0 to 100000, found -1",
        ),
        (lambda: revup.evaluate(trained, tiny_corpus, bound=-1), "bound: expected a number from 0 to 100000, found -1"),
        (lambda: revup.evaluate(trained, tiny_corpus, samples=10**12), "samples: expected a number from 0 to 100000"),
        (lambda: trained.predict([], top=0), "top: expected 1 or more, found 0"),
    ]
    for case, message in cases:
        with pytest.raises(RevupError, match=message):
            case()
    model = revup.load(_saved(trained, tmp_path))
    model.data["fingerprint"] = "another"
    with pytest.raises(InputError, match="has changed since"):
        revup.evaluate(model)
    del model.data["path"]
    with pytest.raises(RevupError, match="does not know where its dataset is"):
        revup.evaluate(model)


def _saved(trained: Trained, folder: Path) -> Path:
    trained.save(folder / "deep" / "run")
    return folder / "deep" / "run"


def test_saved_run_finds_its_dataset(trained: Trained, tmp_path: Path, tiny_corpus: Corpus) -> None:
    """Also after saving twice, at different depths of the directory tree."""
    scores = revup.evaluate(trained)
    once = revup.load(_saved(trained, tmp_path))
    once.save(tmp_path / "run")
    assert revup.evaluate(once) == revup.evaluate(revup.load(tmp_path / "run")) == scores


def test_ambiguous_events_are_scored_apart(tmp_path: Path) -> None:
    """Events whose entry in the lexicon has several frames; without a lexicon there is no such score."""
    from revup.data.lexicon import Lexicon

    documents = [
        Document(f"d{n}", [Event("try", f"s{n}", frame=("Trial", "Attempt")[n % 3 == 0]), Event("say", frame="Saying")])
        for n in range(90)
    ]
    lexicon = Lexicon({"try": {("Trial", ""): 1.0, ("Attempt", ""): 1.0}, "say": {("Saying", ""): 1.0}})
    corpus = Corpus.build(documents, events=2, lexicon=lexicon, split=(0.6, 0.1, 0.3))
    model = revup.train(corpus, "counts")
    found = revup.evaluate(model, corpus)
    asked = [event for document in documents for event in document.events if event.pred == "try"]
    assert 0 < found["ambiguous_events"] == found["events_scored"] / 2 < len(asked)
    right = found["accuracy"] * found["events_scored"] - found["ambiguous_events"]  # "say" is always right
    assert found["ambiguous_accuracy"] == pytest.approx(right / found["ambiguous_events"])
    together = revup.evaluate(model, corpus, frame_map={"Attempt": "Trial"})
    assert (together["ambiguous_events"], together["ambiguous_accuracy"]) == (0, None)
    assert revup.evaluate(model.use_lexicon(None), corpus)["ambiguous_accuracy"] is None
