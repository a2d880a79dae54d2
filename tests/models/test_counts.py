"""Counts as models stand on them: fitted to a corpus, given to batches, stored; and the model `counts` itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from revup.bottleneck import label_posterior, revise
from revup.data.batches import Batch, Prior
from revup.data.corpus import Corpus, encode_documents
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.models import count_prior
from revup.models.count_corpus import event_arrays, induced
from revup.models.count_model import CountModel
from revup.models.count_prior import CountPrior, CountSettings
from revup.models.counts import Counts
from revup.models.network import Sizes
from revup.settings import Config, build_module

ALL = Observation()
SURE = CountSettings(noise="none")
SAID = [  # documents
    [Event("run", "dog", "race", frame="Motion", lemma="run"), Event("sing", "choir", "song", frame="Music")],
    [Event("runs", "mayor", "city", frame="Office", lemma="run"), Event("run", "dog", frame="Motion", lemma="run")],
    [Event("howl", "wolf", frame="Noise"), Event("run", "wolf", "race", frame="Motion", lemma="run")],
    [Event("lead", "mayor", "choir", frame="Office")],
    [Event("sing", "dog", "song", frame="Noise"), Event("lead", "dog", "race", frame="Motion")],
]


def corpus_of(*documents: list[Event], **settings: Any) -> Corpus:
    train = [Document(f"d{n}", events) for n, events in enumerate(documents)]
    return Corpus.build(train=train, **{"events": 2, "duplicates": "keep", "window": "all", **settings})


@pytest.fixture(scope="module")
def spoken() -> Corpus:
    return corpus_of(*SAID)


def new(corpus: Corpus, *events: Event) -> Any:
    """New documents of one event each, in the numbers of a corpus."""
    documents = [Document(f"new{n}", [event]) for n, event in enumerate(events)]
    return encode_documents(documents, corpus.vocabulary, corpus.frames, corpus.events, lexicon=corpus.lexicon)


def dense(prior: Prior, counts: CountPrior) -> Any:
    """p(t|event) of the rows [N, M, K]."""
    out = prior.rest[..., None] + counts.log_base.numpy().astype(float)
    for place in np.ndindex(prior.rest.shape):
        np.add.at(out[place], prior.frames[place], prior.gain[place])
    return np.exp(out)


def of_model(model: CountModel, found: Any) -> Any:
    """p(t|event) of predictions [n, K]."""
    out = np.zeros((len(found.rest), model.inputs.frames))
    for i, rest in enumerate(found.rest):
        rows = slice(found.start[i], found.start[i + 1])
        outside = np.setdiff1d(np.arange(out.shape[1]), found.frame[rows])
        out[i, outside] = rest * model.base[outside] / max(model.base[outside].sum(), 1e-30)
        out[i, found.frame[rows]] = found.probability[rows]
    return out


# ---- what is counted -------------------------------------------------------------------------------------------


def test_events_are_taken_in_the_order_of_their_windows(spoken: Corpus) -> None:
    split, words = spoken.split("train"), spoken.vocabulary
    lemmas = words.distinct_lemmas + 1
    found = event_arrays(split, lemmas)
    said = [event for row in split.arrays["document"] for event in SAID[int(split.ids[row][1:])]]
    assert [words.words[n] for n in found.read[:, 0]] == [event.pred for event in said]
    assert [words.words[n] for n in found.read[:, 1]] == [event.subj for event in said]
    same = [[a.lemma or a.pred, b.lemma or b.pred] for a in said for b in said]
    assert [a == b for a, b in same] == [bool(a == b) for a in found.lemma for b in found.lemma]
    assert np.bincount(found.document).tolist() == [len(SAID[int(name[1:])]) for name in split.ids]
    some = event_arrays(split, lemmas, slice(1, 3))
    first = int(split.arrays["lengths"][0])
    assert (some.read == found.read[first : first + len(some)]).all()


def test_unknown_predicates_share_a_lemma_in_training_and_have_none_elsewhere() -> None:
    said = [[Event("often", "it", frame="A")] for _ in range(4)] + [[Event("once", "it", frame="B")]]
    corpus = corpus_of(*said, vocabulary=7)  # 5 special words, often, it
    lemmas = corpus.vocabulary.distinct_lemmas + 1
    split = corpus.split("train")
    once = np.array([corpus.vocabulary.number("once") == n for n in split.arrays["tokens"][:, 0, 0]])
    assert once.sum() == 1
    assert (event_arrays(split, lemmas).lemma[once] == lemmas - 1).all()
    assert event_arrays(new(corpus, Event("never"), Event("often")), lemmas).lemma.tolist()[0] == -1


# ---- the prior -------------------------------------------------------------------------------------------------


def test_a_prior_is_what_the_count_model_predicts(spoken: Corpus) -> None:
    counts, split = CountPrior.fit(spoken, ALL, SURE), spoken.split("train")
    prior = counts.prior(split, slice(None), training=False)
    there = np.arange(2) < np.asarray(split.arrays["lengths"])[:, None]
    found = dense(prior, counts)
    np.testing.assert_allclose(found[there].sum(-1), 1, rtol=1e-5)
    expected = counts.model.predict(event_arrays(split, counts.model.inputs.lemmas))
    np.testing.assert_allclose(found[there], of_model(counts.model, expected), rtol=1e-4)
    assert (prior.labels[~there] == 0).all()
    for n, m in np.argwhere(there):
        lemma = split.arrays["lemma"][n, m]
        assert prior.labels[n, m] == (np.asarray(split.arrays["lemma"])[there] == lemma).sum()
    part = counts.prior(split, slice(1, 3), training=False)
    np.testing.assert_allclose(dense(part, counts), found[1:3], rtol=1e-5)


def test_in_training_the_labels_of_the_own_document_are_left_out() -> None:
    """It is the prior of counts without them, and nothing of them can be copied."""
    random = np.random.default_rng(0)
    said = []
    for _ in range(60):
        frames = random.integers(4, size=2)
        events = [Event(f"p{f + random.integers(2)}", f"w{f}", f"o{random.integers(5)}", frame=f"F{f}") for f in frames]
        said.append(events)
    corpus = corpus_of(*said)
    split, counts = corpus.split("train"), CountPrior.fit(corpus, ALL, SURE)
    left = dense(counts.prior(split, slice(None), training=True), counts)
    events, told = event_arrays(split, counts.model.inputs.lemmas), split.told(ALL)["frame"]
    for row in (0, 17, 41):
        keep = events.document[told.item] != events.document[2 * row]
        rest = replace(told, item=told.item[keep], frame=told.frame[keep])
        again = CountModel.fit(events, {"frame": rest}, counts.model.inputs, noise=False, unlabelled=False)
        again.scalars = counts.model.scalars
        assert again._training is not None
        again._training.compile()
        without = CountPrior(again, counts.predicates, counts.keys)
        part = without.prior(split, slice(row, row + 1), training=False)
        np.testing.assert_allclose(dense(part, without)[0], left[row], atol=5e-4)
    assert np.abs(left - dense(counts.prior(split, slice(None), training=False), counts)).max() > 0.01


def test_the_least_probable_frames_share_a_remainder(spoken: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, split = CountPrior.fit(spoken, ALL, SURE), spoken.split("train")
    whole = dense(counts.prior(split, slice(None), training=False), counts)
    monkeypatch.setattr(count_prior, "PRIOR_FRAMES", 2)
    prior = counts.prior(split, slice(None), training=False)
    assert prior.frames.shape[-1] == 2
    there = np.arange(2) < np.asarray(split.arrays["lengths"])[:, None]
    found = dense(prior, counts)[there]
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)
    top = np.sort(whole[there], -1)[:, -2:]
    np.testing.assert_allclose(np.sort(found, -1)[:, -2:].sum(-1), top.sum(-1), rtol=1e-4)


def test_a_predicate_that_no_training_document_has_is_unknown(spoken: Corpus) -> None:
    """Also if its word is there as an argument: only the ending and the arguments speak then."""
    counts = CountPrior.fit(spoken, ALL, SURE)
    split = new(spoken, Event("wolf"), Event("zzz"), Event("run"))
    prior = counts.prior(split, slice(None), training=False)
    assert prior.labels[:, 0].tolist() == [0, 0, 4]
    found = dense(prior, counts)[:, 0]
    np.testing.assert_allclose(found.sum(-1), 1, rtol=1e-5)
    assert spoken.frames[found[2].argmax()] == "Motion"
    assert found[:2].max() < found[2].max()


def test_a_dictionary_entry_speaks_for_an_unknown_predicate(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.csv"
    path.write_text("predicate,frame\nbark,Noise\nsprint,Motion\n", "utf-8")
    corpus = corpus_of(*SAID, lexicon=path)
    counts = CountPrior.fit(corpus, ALL, SURE)
    found = dense(counts.prior(new(corpus, Event("bark"), Event("sprint")), slice(None), training=False), counts)
    assert [corpus.frames[k] for k in found[:, 0].argmax(-1)] == ["Noise", "Motion"]
    assert found[:, 0].max(-1).min() > 0.6


# ---- evidence --------------------------------------------------------------------------------------------------

KINDS = [
    *SAID,
    [Event("run", frames={"Motion": 3.0, "Office": 1.0}, lemma="run"), Event("howl", candidates=["Noise", "Music"])],
    [Event("sing")],
]


def seen_of(corpus: Corpus, counts: CountPrior) -> dict[str, Any]:
    """Pred and document → (dense side knowledge, observed, belief)."""
    split = corpus.split("train")
    seen = counts.seen(split, ALL, slice(None))
    out = {}
    for n, m in np.argwhere(np.arange(2) < np.asarray(split.arrays["lengths"])[:, None]):
        values = np.full(len(corpus.frames), seen.other[n, m])
        np.add.at(values, seen.frames[n, m], seen.weights[n, m])
        document = split.ids[split.arrays["document"][n]]
        pred = corpus.vocabulary.words[split.arrays["tokens"][n, m, 0]]
        out[f"{document} {pred}"] = values, bool(seen.observed[n, m]), bool(seen.belief[n, m])
    return out


def test_labels_are_evidence_under_their_rate_and_distributions_stay_as_they_are() -> None:
    corpus = corpus_of(*KINDS)
    frame = {name: number for number, name in enumerate(corpus.frames)}
    found = seen_of(corpus, CountPrior.fit(corpus, ALL, CountSettings(noise_rate=0.3)))
    values, observed, belief = found["d0 run"]
    assert (observed, belief) == (True, False)
    expected = np.full(4, 0.3 / 4 / (0.7 + 0.3 / 4))  # an error may be any frame, the true one too
    expected[frame["Motion"]] = 1
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    values, observed, belief = found["d5 run"]
    assert (observed, belief) == (True, True)
    assert values[[frame["Motion"], frame["Office"], frame["Noise"]]] == pytest.approx([0.75, 0.25, 0])
    values, observed, belief = found["d5 howl"]
    assert (observed, belief) == (True, False)
    assert values[frame["Noise"]] == values[frame["Music"]] == 1
    assert max(values[frame["Motion"]], values[frame["Office"]]) < 0.1
    values, observed, _ = found["d6 sing"]
    assert not observed
    assert not values.any()


def test_labels_that_are_taken_for_the_truth_are_beliefs() -> None:
    corpus = corpus_of(*KINDS)
    found = seen_of(corpus, CountPrior.fit(corpus, ALL, SURE))
    values, observed, belief = found["d3 lead"]
    assert (observed, belief) == (True, True)
    assert values.tolist() == [float(name == "Office") for name in corpus.frames]
    assert not found["d5 howl"][2]  # candidates remain candidates


def test_confidence_weighs_what_is_observed() -> None:
    corpus = corpus_of(
        [Event("run", frame="A", confidence=0.5), Event("go", confidence=0.5)], [Event("run", frame="B")]
    )
    seen = CountPrior.fit(corpus, ALL, SURE).seen(corpus.split("train"), ALL, slice(None))
    assert sorted(seen.confidence.ravel().tolist()) == [0, 0, 0.5, 1]


# ---- induced frames --------------------------------------------------------------------------------------------


def test_rare_predicates_join_the_most_similar_frame(tmp_path: Path) -> None:
    """One frame for each of the K most frequent; without a vector a rarer one is anywhere."""
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("run 1 0\nsing 0 1\nhum 0.1 0.9\n", "utf-8")
    preds = [["run", "run"], ["run", "run"], ["sing", "sing"], ["sing", "hum"], ["odd"]]
    said = [[Event(pred, frame=f"F{m}") for m, pred in enumerate(row)] for row in preds]
    corpus = corpus_of(*said, vectors=vectors)
    split = corpus.split("train")
    found = induced(split, corpus.vocabulary, corpus.vectors())
    names = [p for row in split.arrays["document"] for p in preds[int(split.ids[row][1:])]]
    frames = {name: {int(f) for n, f in zip(names, found.frame, strict=True) if n == name} for name in set(names)}
    assert frames["run"] == {0}
    assert frames["sing"] == frames["hum"] == {1}
    assert frames["odd"] <= {0, 1}
    assert found.item.tolist() == list(range(len(names)))


def test_frames_are_induced_only_where_nothing_is_told(spoken: Corpus) -> None:
    nothing = Observation(0.0)
    made = CountPrior.fit(spoken, nothing, CountSettings())
    assert made.figures() == {"induced_frames": 4}
    split = spoken.split("train")
    assert made.labels == len(split.arrays["keys"][np.arange(2) < np.asarray(split.arrays["lengths"])[:, None]])
    assert not made.seen(split, nothing, slice(None)).observed.any()
    for settings in (True, False):  # nothing is left out of what is made up
        np.testing.assert_array_equal(
            made.prior(split, slice(None), training=settings).gain, made.prior(split, slice(None), training=False).gain
        )
    for observation, settings in ((ALL, CountSettings()), (nothing, CountSettings(induce=False))):
        assert CountPrior.fit(spoken, observation, settings).induced == 0


# ---- files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def with_vectors(tmp_path: Path) -> tuple[Corpus, CountPrior]:
    path, lexicon = tmp_path / "vectors.txt", tmp_path / "lexicon.csv"
    path.write_text("run 1 0 1\nsing 0 1 1\nhowl 0.1 0.9 0\nlead 1 1 0\ncry 0 1 0\n", "utf-8")
    lexicon.write_text("predicate,frame\nbark,Noise\n", "utf-8")
    corpus = corpus_of(*KINDS, vectors=path, lexicon=lexicon)
    return corpus, CountPrior.fit(corpus, ALL, CountSettings(noise_rate=0.2))


def test_counts_come_back_from_their_tensors(with_vectors: tuple[Corpus, CountPrior]) -> None:
    corpus, counts = with_vectors
    tensors = counts.tensors()
    assert all(isinstance(tensor, torch.Tensor) for tensor in tensors.values())
    again = CountPrior.from_tensors(tensors, corpus.vocabulary, corpus.frames, corpus.lexicon)
    for split in (corpus.split("train"), new(corpus, Event("cry", "dog"), Event("bark"), Event("zzz"))):
        before, after = (each.prior(split, slice(None), training=False) for each in (counts, again))
        seen = [each.seen(split, ALL, slice(None)) for each in (counts, again)]
        for one, two in ((before, after), seen):
            for name, value in vars(one).items():
                np.testing.assert_array_equal(value, getattr(two, name), err_msg=name)
    assert again.figures() == counts.figures() == {"noise_rate": pytest.approx(0.2)}
    assert torch.equal(again.log_base, counts.log_base)
    assert again.labels == pytest.approx(counts.labels)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vectors", torch.zeros(3, 3)),
        ("found", torch.zeros(2, dtype=torch.bool)),
        ("predicates", torch.zeros(3, dtype=torch.bool)),
        ("predicates", torch.zeros(3)),
        ("keys", torch.zeros(3)),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    name: str, value: torch.Tensor, with_vectors: tuple[Corpus, CountPrior]
) -> None:
    corpus, counts = with_vectors
    with pytest.raises(ValueError, match=r"vectors|predicates|keys"):
        CountPrior.from_tensors({**counts.tensors(), name: value}, corpus.vocabulary, corpus.frames, corpus.lexicon)


# ---- the model -------------------------------------------------------------------------------------------------


def counted(corpus: Corpus, observation: Observation = ALL, **objective: Any) -> tuple[Counts, Batch]:
    config = Config.make("counts", overrides={"objective": objective})
    model = build_module(config, Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events))
    assert isinstance(model, Counts)
    model.prepare(corpus, observation)
    return model, next(model.batches(corpus.split("train"), observation, 50).ordered())


def test_the_model_predicts_the_prior_and_revises_it(spoken: Corpus) -> None:
    model, batch = counted(spoken, noise_rate=0.2, strength=3.0)
    assert model.counts is not None
    prior = model.counts.prior(spoken.split("train"), slice(None), training=False)
    proposed = model.frame_probabilities(batch)
    expected = torch.from_numpy(dense(prior, model.counts)).float()
    torch.testing.assert_close(proposed[batch.mask], expected[batch.mask], rtol=1e-4, atol=1e-6)
    revised = model.frame_probabilities(batch, revise=True)
    posterior = label_posterior(proposed, batch.empirical(4), batch.belief)
    torch.testing.assert_close(revised, revise(proposed, posterior, batch.observed, 3.0))
    label = batch.empirical(4).argmax(-1, keepdim=True)
    assert (revised.gather(-1, label) > proposed.gather(-1, label))[batch.mask].all()


def test_labels_of_a_document_do_not_reach_its_training_batch() -> None:
    corpus = corpus_of(*[[event] for events in SAID for event in events])
    model, batch = counted(corpus, noise="none")
    left = next(model.batches(corpus.split("train"), ALL, 50, training=True).ordered())
    own = batch.empirical(4) > 0
    assert (model.frame_probabilities(left)[own] < model.frame_probabilities(batch)[own]).all()
    assert (left.labels[batch.mask] == batch.labels[batch.mask] - 1).all()
