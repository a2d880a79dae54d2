"""Observed labels against their probabilities, and pooled counts against a known noise rate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.data.knowledge import Observation, Pooled, Seen, document_key, event_keys, observe, pool, uniforms
from revup.errors import RevupError

N, K = 40_000, 25


def keys(documents: int = N // 4, events: int = 4) -> np.ndarray:
    owners = np.array([document_key(f"doc-{number}") for number in range(documents)], np.uint64)
    return event_keys(owners[:, None], np.arange(events)[None, :])


KEYS = keys()
FRAMES = np.random.default_rng(0).integers(0, K, (*KEYS.shape, 1)).astype(np.int32)
ONES = np.ones(FRAMES.shape, np.float32)


def look(epsilon: float = 1.0, eta: float = 0.0, seed: int = 0, rows: object = slice(None)) -> Seen:
    confidence = np.full(KEYS.shape, 0.5, np.float32)
    observation = Observation(epsilon, eta, seed)
    return observe(KEYS[rows], FRAMES[rows], ONES[rows], confidence[rows], K, observation)


def within(count: int, share: float, of: int) -> bool:
    """Within five standard deviations of a binomial."""
    return abs(count - share * of) <= 5 * np.sqrt(share * (1 - share) * of) + 1e-9


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("eta", [0.0, 0.3, 0.9, 1.0])
def test_epsilon_and_eta_hold_together(epsilon: float, eta: float) -> None:
    seen = look(epsilon, eta)
    observed = int(seen.observed.sum())
    changed = int((seen.frames[..., 0] != FRAMES[..., 0])[seen.observed].sum())
    assert within(observed, epsilon, N)
    assert within(changed, eta * (K - 1) / K, observed)  # one in K replacements is the frame itself
    np.testing.assert_array_equal(seen.weights.sum(-1), seen.observed.astype(np.float32))
    assert not seen.confidence[~seen.observed].any()
    assert (seen.confidence[seen.observed] == 0.5).all()


def test_replacements_are_uniform_over_frames() -> None:
    drawn = np.bincount(look(eta=1.0).frames.ravel(), minlength=K)
    chi_squared = float(((drawn - N / K) ** 2 / (N / K)).sum())
    assert chi_squared < (K - 1) + 5 * np.sqrt(2 * (K - 1))


def test_observation_and_noise_are_independent() -> None:
    seen, wrong = look(epsilon=0.3).observed, look(eta=0.4).frames[..., 0] != FRAMES[..., 0]
    assert within(int((seen & wrong).sum()), 0.3 * 0.4 * (K - 1) / K, N)


def test_larger_epsilon_or_eta_gives_a_superset() -> None:
    less, more = look(0.2, 0.3), look(0.6, 0.3)
    assert (more.observed | ~less.observed).all()
    np.testing.assert_array_equal(less.frames[less.observed], more.frames[less.observed])
    clean, noisy = (look(1.0, eta).frames != FRAMES for eta in (0.2, 0.7))
    assert (noisy | ~clean).all()


def test_seed_changes_the_draw() -> None:
    first, second = look(0.5, seed=1).observed, look(0.5, seed=2).observed
    assert within(int((first & second).sum()), 0.25, N)


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(60)), st.integers(1, 60), st.floats(0, 1), st.floats(0, 1))
def test_draws_do_not_depend_on_order_or_batches(order: list[int], batch: int, epsilon: float, eta: float) -> None:
    whole = look(epsilon, eta)
    for start in range(0, 60, batch):
        rows = np.array(order[start : start + batch])
        part = look(epsilon, eta, rows=rows)
        for name in ("frames", "weights", "observed", "confidence"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[rows])


def framed(identity: str, count: int) -> Document:
    return Document(identity, [Event(f"p{i}", f"{identity}-{i}", frame=f"F{i % 7}") for i in range(count)])


def test_draws_do_not_depend_on_windows_or_other_documents() -> None:
    documents = [framed(f"d{number}", 12) for number in range(40)]
    observation = Observation(0.5, 0.5, seed=3)

    def seen_of(corpus: Corpus) -> dict[tuple[str, str], tuple[bool, str]]:
        """What is seen of each event, by the words of its subject, which are unique."""
        split = corpus.split("train")
        seen, words = split.seen(observation), corpus.vocabulary.words
        return {
            words[split.arrays["tokens"][row, m, 1]]: (
                bool(seen.observed[row, m]),
                corpus.frames[seen.frames[row, m, 0]] if seen.observed[row, m] else "",
            )
            for row in range(len(split))
            for m in range(split.arrays["lengths"][row])
        }

    whole = seen_of(Corpus.build(train=documents, window="all"))
    others = [
        Corpus.build(train=documents, window="all", events=7),
        Corpus.build(train=documents, window="framed", events=3),
        Corpus.build(train=documents[::-1], window="first"),
        Corpus.build(train=documents[5:20], window="all"),
    ]
    for corpus in others:
        part = seen_of(corpus)
        assert part.items() <= whole.items()
    assert len(whole) == 480
    assert {seen for seen, _ in whole.values()} == {True, False}


def test_draws_follow_document_id_and_event_index() -> None:
    documents = np.array([document_key("a"), document_key("b")], np.uint64)
    both = event_keys(documents[:, None], np.arange(50)[None, :])
    assert len(np.unique(both)) == 100
    again = event_keys(documents[1:], np.array([7]))
    assert again[0] == both[1, 7]
    assert document_key("a") == document_key("a") != document_key("a ")
    assert document_key("\ud800")  # half a surrogate pair has a key as well


def test_uniforms_of_consecutive_keys_are_uniform() -> None:
    counted = np.arange(N, dtype=np.uint64)
    for stream in (1, 2, 3):
        drawn = uniforms(counted, 0, stream)
        assert drawn.min() >= 0
        assert drawn.max() < 1
        cells = np.bincount((drawn * 64).astype(int), minlength=64)
        assert ((cells - N / 64) ** 2 / (N / 64)).sum() < 63 + 5 * np.sqrt(126)
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 / np.sqrt(N)


def test_soft_label_is_kept_or_replaced_as_a_whole() -> None:
    frames = np.tile(np.array([3, 8], np.int32), (*KEYS.shape, 1))
    weights = np.tile(np.array([0.75, 0.25], np.float32), (*KEYS.shape, 1))
    seen = observe(KEYS, frames, weights, np.ones(KEYS.shape, np.float32), K, Observation(0.5, 0.5, 0))
    hard = look(0.5, 0.5)
    np.testing.assert_array_equal(seen.observed, hard.observed)
    replaced = seen.observed & (seen.weights[..., 0] == 1)
    assert within(int(replaced.sum()), 0.5, int(seen.observed.sum()))
    np.testing.assert_array_equal(seen.frames[..., 0][replaced], hard.frames[..., 0][replaced])
    kept = seen.observed & ~replaced
    np.testing.assert_array_equal(seen.weights[kept], weights[kept])


def test_events_without_label_are_never_observed() -> None:
    weights = ONES.copy()
    weights[::2] = 0
    seen = observe(KEYS, FRAMES, weights, np.ones(KEYS.shape, np.float32), K, Observation(1.0, 1.0, 0))
    np.testing.assert_array_equal(seen.observed.all(1), np.arange(len(KEYS)) % 2 == 1)
    assert not seen.weights[::2].any()


@pytest.mark.parametrize(("name", "value"), [("epsilon", 1.1), ("epsilon", -0.1), ("eta", float("nan"))])
def test_wrong_rates_are_refused(name: str, value: float) -> None:
    with pytest.raises(RevupError, match=f"{name}: expected a number from 0 to 1"):
        Observation(**{name: value})


# ---- pooling ---------------------------------------------------------------------------------------------


def labelled(eta: float, groups: int = 60, per_group: int = 80, classes: int = 40) -> tuple[np.ndarray, Seen]:
    """Groups that mostly have one class and sometimes a second, seen through noise."""
    rng = np.random.default_rng(1)
    owner = np.repeat(np.arange(groups), per_group)
    true = np.where(rng.random(len(owner)) < 0.8, owner % classes, (owner + 7) % classes).astype(np.int32)
    identity = event_keys(np.arange(len(owner), dtype=np.uint64), np.zeros(len(owner), np.int64))
    ones = np.ones((len(owner), 1), np.float32)
    return owner, observe(identity, true[:, None], ones, ones[:, 0], classes, Observation(1.0, eta, 0))


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.5, 0.9])
def test_noise_rate_is_recovered(eta: float) -> None:
    owner, seen = labelled(eta)
    assert abs(pool(owner, seen, 40, 60).noise_rate - eta) < 0.04


@pytest.mark.parametrize("eta", [0.1, 0.5, 0.9])
def test_pooled_counts_recover_the_true_class(eta: float) -> None:
    owner, seen = labelled(eta)
    pooled = pool(owner, seen, 40, 60)
    assert (pooled.counts.argmax(1) == np.arange(60) % 40).mean() > (0.95 if eta < 0.9 else 0.7)
    assert abs(pooled.counts.sum() / len(owner) - (1 - eta)) < 0.04
    assert pooled.base.sum() == pytest.approx(1, abs=1e-5)


def test_given_noise_rate_is_used() -> None:
    owner, seen = labelled(0.3)
    assert pool(owner, seen, 40, 60, noise_rate=0.25).noise_rate == 0.25
    clean = pool(owner, seen, 40, 60, noise_rate=0.0)
    assert clean.counts.sum() == pytest.approx(len(owner))  # every label is label_posterior


def test_pooling_without_labels() -> None:
    owner, seen = labelled(0.0)
    nothing = Seen(seen.frames, np.zeros_like(seen.weights), np.zeros_like(seen.observed), seen.confidence)
    pooled: Pooled = pool(owner, nothing, 40, 60)
    assert not pooled.counts.any()
    np.testing.assert_allclose(pooled.base, 1 / 40)


def test_soft_labels_are_pooled_by_weight() -> None:
    frames = np.tile(np.array([[0, 1]], np.int32), (10, 1))
    weights = np.tile(np.array([[0.75, 0.25]], np.float32), (10, 1))
    seen = Seen(frames, weights, np.ones(10, bool), np.ones(10, np.float32))
    pooled = pool(np.zeros(10, int), seen, 4, 1, noise_rate=0.0)
    np.testing.assert_allclose(pooled.counts, [[7.5, 2.5, 0, 0]], rtol=1e-5)
