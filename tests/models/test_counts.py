"""The pooled prior: counts of words and frames, against the equation and by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus
from revup.data.encode import NULL, TUP, UNK
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.models.counts import PooledPrior

KNOWN = [
    Event("sing", frame="Music", lemma="sing"),
    Event("sang", frame="Music", lemma="sing"),
    Event("run", frame="Motion", lemma="run"),
    Event("run", frame="Motion", lemma="run"),
    Event("run", frame="Office", lemma="run"),
    Event("yell", frame="Noise", lemma="yell"),
]


@pytest.fixture(scope="module")
def counted() -> tuple[Corpus, PooledPrior, Batch]:
    return fitted(KNOWN, "predicate")


def fitted(events: list[Event], kind: str = "pooled") -> tuple[Corpus, PooledPrior, Batch]:
    """A prior that has seen every event's label, taken as the truth, and all the events."""
    documents = [Document(f"d{i}", [event]) for i, event in enumerate(events)]
    corpus = Corpus.build(train=documents, events=1, duplicates="keep")
    prior = PooledPrior(len(corpus.vocabulary), len(corpus.frames), kind)
    prior.fit(corpus, Observation(), 0.0)
    return corpus, prior, next(iter(Batches(corpus.split("train"), Observation(), 50).ordered()))


def backed_off(forms: list[str], lemmas: list[str], corpus: Corpus, base: np.ndarray) -> np.ndarray:
    """θ_form from labels seen for the form and for the lemma, as the equation has it."""
    shares = base
    for labels in (lemmas, forms):
        counts = np.array([labels.count(frame) for frame in corpus.frames], float)
        shares = (counts + shares) / (counts.sum() + 1)
    return shares


def test_an_events_own_label_is_left_out_of_its_prior(counted: tuple[Corpus, PooledPrior, Batch]) -> None:
    corpus, prior, batch = counted
    base = prior.base.numpy().astype(float)
    theta = prior(batch.tokens, batch.empirical(len(corpus.frames))).exp().squeeze(1).numpy()
    for row, event in enumerate(KNOWN):
        others = [other for i, other in enumerate(KNOWN) if i != row]
        forms = [other.frame or "" for other in others if other.pred == event.pred]
        lemmas = [other.frame or "" for other in others if other.lemma == event.lemma]
        np.testing.assert_allclose(theta[row], backed_off(forms, lemmas, corpus, base), rtol=1e-5)
    np.testing.assert_allclose(theta[-1], base, rtol=1e-5)  # seen once: nothing is left but the overall shares


def test_at_prediction_all_counts_count(counted: tuple[Corpus, PooledPrior, Batch]) -> None:
    corpus, prior, batch = counted
    base = prior.base.numpy().astype(float)
    theta = prior(batch.tokens).exp().squeeze(1).numpy()
    for row, event in enumerate(KNOWN):
        forms = [other.frame or "" for other in KNOWN if other.pred == event.pred]
        lemmas = [other.frame or "" for other in KNOWN if other.lemma == event.lemma]
        np.testing.assert_allclose(theta[row], backed_off(forms, lemmas, corpus, base), rtol=1e-5)
    unknown = torch.ones_like(batch.tokens)
    np.testing.assert_allclose(prior(unknown).exp()[0, 0].numpy(), base, rtol=1e-5)
    assert base.sum() == pytest.approx(1)


SPOKEN = [
    Event("run", "dog", "race", None, frame="Motion", lemma="run"),
    Event("run", "dog", None, "fast", frame="Motion", lemma="run"),
    Event("ran", "mayor", "city", None, frame="Office", lemma="run"),
    Event("ran", "mayor", "race", "fast", frames={"Office": 3.0, "Motion": 1.0}, lemma="run"),
    Event("sing", "choir", "song", None, frame="Music", lemma="sing"),
    Event("sing", "dog", "song", "fast", frame="Noise", lemma="sing"),
    Event("lead", "mayor", "choir", None, frame="Office", lemma="lead"),
    Event("howl", "wolf", "dog", None, frame="Noise", lemma="howl"),
]
WEIGHTS_OF_SLOTS = [0.7, -0.4, 1.3]


def labels_of(event: Event, frames: list[str]) -> np.ndarray:
    """What one event says of the frames, Σ = 1."""
    told = {event.frame: 1.0} if event.frame else event.frames or {}
    shares = np.array([told.get(frame, 0.0) for frame in frames])
    return shares / shares.sum()


def counts_where(events: list[Event], frames: list[str], field: str, word: str | None) -> np.ndarray:
    """How often each frame was seen of events with this word in this place."""
    found = [labels_of(event, frames) for event in events if getattr(event, field) == word]
    return np.sum(found, axis=0) if found else np.zeros(len(frames))


def log_prior_of(event: Event, events: list[Event], frames: list[str], base: np.ndarray) -> np.ndarray:
    """The equation at the head of revup.models.counts, from the events themselves: a = 1, b = 20."""
    theta = base
    for field in ("lemma", "pred"):
        counts = counts_where(events, frames, field, getattr(event, field))
        theta = (counts + theta) / (counts.sum() + 1)
    log_prior = np.log(theta)
    by_frame = np.sum([labels_of(other, frames) for other in events], axis=0)
    for weight, field in zip(WEIGHTS_OF_SLOTS, ("subj", "obj", "mod"), strict=True):
        counts = counts_where(events, frames, field, getattr(event, field))
        if counts.sum() > 0:
            share = counts.sum() / (by_frame.sum() + 1)
            log_prior += weight * np.log((counts + 20 * share) / ((by_frame + 20) * share))
    return log_prior


@pytest.fixture(scope="module")
def spoken() -> tuple[Corpus, PooledPrior, Batch]:
    corpus, prior, batch = fitted(SPOKEN)
    assert (batch.tokens > 1).all()  # every word has its own number
    assert prior.slot_weights is not None
    with torch.no_grad():
        prior.slot_weights.copy_(torch.tensor(WEIGHTS_OF_SLOTS))
    return corpus, prior, batch


@pytest.mark.parametrize("left_out", [False, True], ids=["all", "own left out"])
def test_the_prior_with_its_slots_is_the_equation(spoken: tuple[Corpus, PooledPrior, Batch], left_out: bool) -> None:
    corpus, prior, batch = spoken
    own = batch.empirical(len(corpus.frames)) if left_out else None
    with torch.no_grad():
        found = prior(batch.tokens, own).squeeze(1).numpy()
    base = prior.base.numpy().astype(float)
    for row, event in enumerate(SPOKEN):
        events = [other for i, other in enumerate(SPOKEN) if i != row or not left_out]
        np.testing.assert_allclose(found[row], log_prior_of(event, events, corpus.frames, base), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("row", range(len(SPOKEN)))
def test_whatever_an_events_own_label_is_its_prior_is_the_same(row: int) -> None:
    """Nothing to copy from, in any table (the overall shares apart, which single labels hardly move)."""
    found = []
    for frame in ("Motion", "Office", "Music", "Noise"):
        events = [replace(e, frame=frame, frames=None) if i == row else e for i, e in enumerate(SPOKEN)]
        events += [Event("hum", None, None, None, frame=f, lemma="hum") for f in ("Motion", "Office", "Music", "Noise")]
        corpus, prior, batch = fitted(events)
        prior.base.fill_(0.25)
        assert len(corpus.frames) == 4
        with torch.no_grad():
            found.append(prior(batch.tokens, batch.empirical(4))[row])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-5, atol=1e-6)


VECTORS = {"run": (1.0, 0.0), "runs": (0.9, 0.1), "walk": (0.8, 0.3), "sing": (0.0, 1.0), "jog": (0.95, 0.05)}


def test_similar_predicates_stand_in_for_those_without_labels(tmp_path: Path) -> None:
    """θ_similar by the equation, for a known form, another form of it, a word known by its vector, and one unknown."""
    events = [
        Event("run", frame="Motion", lemma="run"),
        Event("runs", frame="Motion", lemma="run"),
        Event("runs", frame="Office", lemma="run"),
        Event("walk", frame="Motion", lemma="walk"),
        Event("sing", frame="Music", lemma="sing"),
    ]
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{word} {a} {b}\n" for word, (a, b) in VECTORS.items()))
    train = [Document(str(n), [event]) for n, event in enumerate(events)]
    corpus = Corpus.build(train=train, window="first", events=1, vectors=path, duplicates="keep")
    assert corpus.vocabulary.beyond == ["jog"]
    assert corpus.frames == ["Motion", "Music", "Office"]
    prior = PooledPrior(len(corpus.vocabulary), 3, "predicate")
    prior.fit(corpus, Observation(), 0.0)
    base = prior.base.numpy().astype(float)

    def unit(values: Any) -> Any:
        return np.array(values) / np.linalg.norm(values)

    lemmas = {  # vector, by the labels of its forms; counts
        "run": (unit(unit(VECTORS["run"]) + 2 * unit(VECTORS["runs"])), np.array([2.0, 0, 1])),
        "walk": (unit(VECTORS["walk"]), np.array([1.0, 0, 0])),
        "sing": (unit(VECTORS["sing"]), np.array([0, 1.0, 0])),
    }

    def theta(vector: Any, own: str | None) -> Any:
        pairs = [(np.exp(15 * (v @ vector - 1)) / (c.sum() + 1), c) for n, (v, c) in lemmas.items() if n != own]
        total = sum(k * c for k, c in pairs)
        return (total + 0.002 * base) / (total.sum() + 0.002)

    size = len(corpus.vocabulary)
    walk, none = corpus.vocabulary.index["walk"], np.zeros(3)
    for number, own, vector, form, lemma in (
        (walk, "walk", VECTORS["walk"], lemmas["walk"][1], lemmas["walk"][1]),
        (size + walk, "walk", VECTORS["walk"], none, lemmas["walk"][1]),
        (2 * size, None, VECTORS["jog"], none, none),
    ):
        similar = theta(unit(vector), own)
        by_lemma = (lemma + similar) / (lemma.sum() + 1)
        expected = (form + by_lemma) / (form.sum() + 1)
        found = prior(torch.tensor([[number, NULL, NULL, NULL, TUP]]))[0, 0].exp().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    unknown = prior(torch.tensor([[UNK, NULL, NULL, NULL, TUP]]))[0, 0].exp().numpy()
    np.testing.assert_allclose(unknown, base, rtol=1e-4)
    other = PooledPrior(size, 3, "predicate")
    other.load_state_dict(prior.state_dict())
    assert torch.equal(other.near_weights, prior.near_weights)
    alone = PooledPrior(size, 3, "predicate", neighbours=0)
    alone.fit(corpus, Observation(), 0.0)
    found = alone(torch.tensor([[2 * size, NULL, NULL, NULL, TUP]]))[0, 0].exp().numpy()
    np.testing.assert_allclose(found, base, rtol=1e-4)


def weighing(prior: PooledPrior, weights: list[float]) -> PooledPrior:
    """The same counts with other weights of the slots, as if loaded from a file."""
    other = PooledPrior(prior.form_row.shape[0], prior.base.shape[0])
    other.load_state_dict({**prior.state_dict(), "slot_weights": torch.tensor(weights)})
    return other


def test_a_word_no_other_label_speaks_for_says_nothing(spoken: tuple[Corpus, PooledPrior, Batch]) -> None:
    """Exactly: its slot's weight has no influence. So it is of a word that is unheard of."""
    corpus, prior, batch = spoken
    own = batch.empirical(len(corpus.frames))
    for slot, field in enumerate(("subj", "obj", "mod")):
        speaking, silent = weighing(prior, [float(slot == i) for i in range(3)]), weighing(prior, [0.0] * 3)

        def said(tokens: Tensor, own: Tensor | None, a: PooledPrior = speaking, b: PooledPrior = silent) -> Tensor:
            """What the slot adds to each event's log prior."""
            return (a(tokens, own) - b(tokens, own)).detach().squeeze(1)

        words = [getattr(event, field) for event in SPOKEN]
        alone = torch.tensor([words.count(word) == 1 for word in words])
        assert alone.any() == (field != "mod")
        assert (said(batch.tokens, own)[alone] == 0).all()
        assert (said(batch.tokens, own)[~alone] != 0).any(-1).all()
        assert (said(batch.tokens, None) != 0).any(-1).all()  # at prediction its own label speaks for it
        assert (said(torch.ones_like(batch.tokens), None) == 0).all()


def test_how_much_a_slot_says_is_learned(spoken: tuple[Corpus, PooledPrior, Batch]) -> None:
    """The log prior is linear in the weights: the gradient is what the slots say of the events' own labels."""
    corpus, prior, batch = spoken
    own = batch.empirical(len(corpus.frames))
    assert prior.slot_weights is not None
    prior.zero_grad()
    (prior(batch.tokens, own) * own).sum().backward()
    silent = weighing(prior, [0.0] * 3)
    said = []
    for slot in range(3):
        speaking = weighing(prior, [float(slot == i) for i in range(3)])
        said.append(float(((speaking(batch.tokens, own) - silent(batch.tokens, own)) * own).sum().detach()))
    assert prior.slot_weights.grad is not None
    assert prior.slot_weights.grad.tolist() == pytest.approx(said, rel=1e-3)
    assert all(abs(value) > 1e-3 for value in said)


def test_slot_words_are_counted_as_far_as_their_labels_are_believed(tiny_corpus: Corpus) -> None:
    """With noise: a label that is label_posterior by half counts half, for each word beside it."""
    observation, corpus = Observation(0.8, 0.4, 2), tiny_corpus
    prior = PooledPrior(len(corpus.vocabulary), len(corpus.frames), "pooled")
    prior.fit(corpus, observation, None)
    assert float(prior.noise_rate) > 0.1
    split = corpus.split("train")
    seen, tokens = split.seen(observation), np.asarray(split.arrays["tokens"])
    labels = [(*tokens[n, m, :4], int(seen.frames[n, m, 0])) for n, m in zip(*seen.observed.nonzero(), strict=True)]
    forms, rows = prior.forms.numpy(), prior.form_row.numpy()
    raw = Counter((pred, frame) for pred, *_, frame in labels)
    expected = np.zeros((3, len(corpus.vocabulary), len(corpus.frames)))
    for pred, *words, frame in labels:
        for slot, word in enumerate(words):
            expected[slot, word, frame] += forms[rows[pred], frame] / raw[pred, frame]
    np.testing.assert_allclose(prior.slots[prior.slot_row].numpy(), expected, rtol=1e-4, atol=1e-5)
    assert expected.sum() < 3 * len(labels) * 0.9


def test_the_rarest_words_stay_out_of_a_large_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revup.models.counts.LARGEST_TABLE", 2 * 4 + 1)
    corpus, prior, _ = fitted(SPOKEN)
    kept = [[corpus.vocabulary.words[n] for n in row.nonzero().flatten()] for row in prior.slot_row]
    assert [set(words) for words in kept] == [{"dog", "mayor"}, {"race", "song"}, {"<null>", "fast"}]
    assert len(prior.slots) == 7
    assert prior.slots[0].sum() == 0
