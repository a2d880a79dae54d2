"""Observed labels against their probabilities: ε, η, confusable noise, several sources, simulated annotators."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.data.knowledge import FrameSet, Observation, Seen, document_key, event_indices, event_keys, observe, uniforms
from revup.data.told import CANDIDATES, DISTRIBUTION, LABEL
from revup.errors import RevupError

N, K = 40_000, 25


def keys(documents: int = N // 4, events: int = 4) -> np.ndarray:
    owners = np.array([document_key(f"doc-{number}") for number in range(documents)], np.uint64)
    return event_keys(owners[:, None], np.arange(events)[None, :])


KEYS = keys()
FRAMES = np.random.default_rng(0).integers(0, K, (*KEYS.shape, 1)).astype(np.int32)
ONES = np.ones(FRAMES.shape, np.float32)
EVERY = FrameSet(np.arange(K, dtype=np.int32))


def look(epsilon: float = 1.0, eta: float = 0.0, seed: int = 0, rows: object = slice(None)) -> Seen:
    confidence = np.full(KEYS.shape, 0.5, np.float32)
    observation = Observation(epsilon, eta, seed)
    return observe(KEYS[rows], FRAMES[rows], ONES[rows], confidence[rows], observation, EVERY)


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


@pytest.mark.parametrize("kind", [LABEL, CANDIDATES, DISTRIBUTION])
def test_noise_acts_on_labels_only_and_epsilon_on_every_kind(kind: int) -> None:
    kinds = np.full(KEYS.shape, kind, np.int8)
    ones = np.ones(KEYS.shape, np.float32)
    seen = observe(KEYS, FRAMES, ONES, ones, Observation(0.5, 0.5, 0), EVERY, kinds)
    hard = look(0.5, 0.5)
    np.testing.assert_array_equal(seen.observed, hard.observed)
    expected = hard.frames if kind == LABEL else np.where(hard.observed[..., None], FRAMES, 0)
    np.testing.assert_array_equal(seen.frames, expected)


def test_uniform_noise_draws_from_the_training_frames() -> None:
    some = FrameSet(np.array([3, 7, 11], np.int32))
    seen = observe(KEYS, FRAMES, ONES, np.ones(KEYS.shape, np.float32), Observation(1.0, 1.0, 0), some)
    drawn = np.bincount(seen.frames.ravel(), minlength=K)
    assert set(np.flatnonzero(drawn)) == {3, 7, 11}
    assert all(within(int(drawn[k]), 1 / 3, N) for k in (3, 7, 11))


def test_confusable_noise_draws_another_frame_of_the_lemma() -> None:
    """charge: A, B, C; fine: A; buy: D; sell: D, E; unknown lemmas: by frames that share a lemma, else none."""
    events = [
        ("charge", "A"),
        ("charge", "B"),
        ("charge", "C"),
        ("fine", "A"),
        ("buy", "D"),
        ("sell", "D"),
        ("sell", "E"),
    ]
    events += [("hum", "F")]
    documents = [Document(f"d{n}", [Event(pred, f"s{n}", frame=frame) for pred, frame in events]) for n in range(400)]
    corpus = Corpus.build(train=documents, window="all")
    split, names = corpus.split("train"), np.array(corpus.frames)
    there = np.arange(5) < split.arrays["lengths"][:, None]
    words = np.array(corpus.vocabulary.words)[split.arrays["tokens"][..., 0]]
    reference = split.arrays["reference"]
    seen = split.seen(Observation(1.0, 1.0, 0, "confusable"))
    found = {
        (pred, frame): set(names[seen.frames[..., 0][there & (words == pred) & (names[reference] == frame)]])
        for pred, frame in events
    }
    assert found["charge", "A"] == {"B", "C"}
    assert found["charge", "B"] == {"A", "C"}
    assert found["sell", "D"] == {"E"}
    assert found["fine", "A"] == {"B", "C"}  # its lemma has one frame: those that share a lemma with it
    assert found["buy", "D"] == {"E"}
    assert found["hum", "F"] == {"F"}  # nothing to be confused with: left as it is


def test_sources_of_a_split_are_drawn_apart() -> None:
    says = {"ann": "B", "dict": ["A", "B"], "parser": {"A": 0.7, "B": 0.3}, "old": {"kind": "label", "value": "A"}}
    events = [
        Event("p", frame="A", sources=says),
        Event("q", frames={"A": 1, "B": 3}),
        Event("r", candidates=["A", "B"]),
    ]
    documents = [
        Document(
            f"d{n}",
            [
                Event(
                    f"{e.pred}{n}",
                    None,
                    None,
                    None,
                    e.frame,
                    e.frames,
                    None,
                    None,
                    None,
                    None,
                    None,
                    e.candidates,
                    e.sources,
                )
                for e in events
            ],
        )
        for n in range(300)
    ]
    split = Corpus.build(train=documents, window="all").split("train")
    told = split.told(Observation())
    kinds = {name: source.kind for name, source in told.items()}
    assert kinds == {
        "frame": "label",
        "frame/distribution": "distribution",
        "frame/candidates": "candidates",
        "ann": "label",
        "dict": "candidates",
        "parser": "distribution",
        "old": "label",
    }
    assert len(told["ann"].item) == 300
    weight = told["frame/distribution"].weight
    assert weight is not None
    assert weight.tolist() == pytest.approx([0.25, 0.75] * 300)
    half = split.told(Observation(0.5, 0.4, seed=2))
    assert within(len(half["ann"].item), 0.5, 300)
    assert set(half["ann"].item) != set(half["old"].item)  # each source has its own draw
    assert within(int((half["old"].frame != 0).sum()), 0.2, len(half["old"].item))
    assert len(half["dict"].item) % 2 == 0  # candidates stay whole


def test_simulated_annotators_have_their_own_error_rates() -> None:
    documents = [framed(f"d{number}", 12) for number in range(300)]
    split = Corpus.build(train=documents, window="all").split("train")
    told = split.told(Observation(1.0, 0.0, 1, "uniform", "0.1,0.5"))
    assert set(told) == {"annotator-1", "annotator-2"}
    there = np.arange(5) < split.arrays["lengths"][:, None]
    truth = split.arrays["reference"][there]
    for name, rate in (("annotator-1", 0.1), ("annotator-2", 0.5)):
        wrong = int((told[name].frame != truth[told[name].item]).sum())
        assert within(wrong, rate * 6 / 7, 3600)
    assert set(split.told(Observation(1.0, 0.3, sources="3"))) == {f"annotator-{n}" for n in (1, 2, 3)}
    with pytest.raises(RevupError, match="sources: expected a number of annotators of at most 999"):
        Observation(sources="many")


def test_events_without_label_are_never_observed() -> None:
    weights = ONES.copy()
    weights[::2] = 0
    seen = observe(KEYS, FRAMES, weights, np.ones(KEYS.shape, np.float32), Observation(1.0, 1.0, 0), EVERY)
    np.testing.assert_array_equal(seen.observed.all(1), np.arange(len(KEYS)) % 2 == 1)
    assert not seen.weights[::2].any()


@pytest.mark.parametrize(("name", "value"), [("epsilon", 1.1), ("epsilon", -0.1), ("eta", float("nan"))])
def test_wrong_rates_are_refused(name: str, value: float) -> None:
    with pytest.raises(RevupError, match=f"{name}: expected a number from 0 to 1"):
        Observation(**{name: value})


@given(st.text(max_size=20), st.integers(0, 2**40))
def test_key_of_an_event_tells_its_index(identity: str, index: int) -> None:
    document = np.array([document_key(identity)], np.uint64)
    assert event_indices(document, event_keys(document, np.array([index]))).tolist() == [index]
