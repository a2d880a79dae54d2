"""The world's exact posteriors and likelihoods against enumeration, and its samples against its tables."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from enumeration import enumerate_chains
from revup.data.events import Document, Event
from revup.errors import RevupError
from revup.world.world import World


@pytest.fixture(scope="module")
def tiny() -> World:
    return World(frames=4, seed=3, words=30, events=3, scenarios=3)


def cut(document: Document, length: int) -> Document:
    return Document(document.id, document.events[:length])


def test_posterior_and_log_prob_equal_enumeration(tiny: World) -> None:
    for document in tiny.sample(20):
        log_prob, posterior = enumerate_chains(tiny, document)
        assert tiny.log_prob(document) == pytest.approx(log_prob, rel=1e-12)
        np.testing.assert_allclose(tiny.posterior(document), posterior, atol=1e-12)


def test_enumeration_with_frames_shared_by_scenarios() -> None:
    world = World(frames=10, seed=5, events=3)
    assert np.bincount(world.scenario_frames.ravel()).min() >= 1
    for document in world.sample(5):
        log_prob, posterior = enumerate_chains(world, document)
        assert world.log_prob(document) == pytest.approx(log_prob, rel=1e-12)
        np.testing.assert_allclose(world.posterior(document), posterior, atol=1e-12)


def test_probabilities_of_all_documents_sum_to_one() -> None:
    world = World(frames=2, seed=1, words=8)
    nouns, modifiers = [None, *world.nouns], [None, *world.modifiers]
    events = [Event(*words) for words in itertools.product(world.predicates, nouns, nouns, modifiers)]
    for length in (1, 2):
        documents = [Document("", list(chosen)) for chosen in itertools.product(events, repeat=length)]
        assert np.exp(world.log_probs(documents)).sum() == pytest.approx(1.0, abs=1e-9)


def test_batch_of_unequal_lengths_equals_single_documents(tiny: World) -> None:
    documents = [cut(document, 1 + index % 3) for index, document in enumerate(tiny.sample(400))]
    documents.append(Document("empty", []))
    posteriors, log_probs = tiny.posteriors(documents), tiny.log_probs(documents)
    assert posteriors.shape == (401, 3, 4)
    assert log_probs[-1] == 0.0
    for index in (0, 1, 2, 399, 400):
        length = len(documents[index].events)
        np.testing.assert_allclose(posteriors[index, :length], tiny.posterior(documents[index]), atol=1e-14)
        assert not posteriors[index, length:].any()
        assert log_probs[index] == pytest.approx(tiny.log_prob(documents[index]))


def test_long_document_does_not_underflow() -> None:
    world = World(frames=20, seed=0, events=150)
    document = world.sample(1)[0]
    assert -150 * 60 < world.log_prob(document) < -745  # the logarithm of the least positive float64
    np.testing.assert_allclose(world.posterior(document).sum(axis=1), 1.0)


@pytest.mark.parametrize("world", [World(frames=4, words=30), World(frames=23, seed=2), World(frames=120, seed=1)])
def test_every_table_is_a_distribution(world: World) -> None:
    scenarios, size = world.scenario_frames.shape
    assert world.scenario_probs.sum() == pytest.approx(1)
    for table in (world.initial, world.transitions, world.predicate_probs, world.modifier_probs):
        assert (table >= 0).all()
        np.testing.assert_allclose(table.sum(axis=-1), 1.0)
    for slot, frame, scenario in itertools.product(("subj", "obj"), (0, len(world.frames) - 1), (0, scenarios - 1)):
        assert world.argument_probs(slot, frame, scenario).sum() == pytest.approx(1)
    assert all(len(set(row)) == size for row in world.scenario_frames.tolist())
    assert set(world.scenario_frames.ravel().tolist()) == set(range(len(world.frames)))
    np.testing.assert_allclose(world.posteriors(world.sample(50)).sum(axis=2), 1.0)


def test_requested_number_of_distinct_words_and_frames() -> None:
    for frames, words in ((2, 8), (10, 500), (50, 2500), (600, 150_000), (2050, 9_000)):
        world = World(frames=frames, words=words)
        vocabulary = [*world.predicates, *world.nouns, *world.modifiers]
        assert len(set(vocabulary)) == len(vocabulary) == words
        assert len(set(world.frames)) == frames
        assert world.frames == sorted(world.frames)
        assert all(word == word.lower() and " " not in word and "<" not in word for word in vocabulary)


def test_sample_frequencies_match_tables() -> None:
    """Frames at each place, predicates, modifiers and missing arguments, each within 5 standard deviations."""
    world = World(frames=10, seed=4, events=3)
    count = 30_000
    documents = world.sample(count, seed=7)
    now = world.scenario_probs[:, None] * world.initial
    expected_predicates = np.zeros(len(world.predicates))
    for m in range(3):
        frame_probs = np.bincount(world.scenario_frames.ravel(), now.ravel(), 10)
        found = Counter(document.events[m].frame for document in documents)
        check_counts(np.array([found[name] for name in world.frames]), frame_probs, count)
        expected_predicates += frame_probs @ world.predicate_probs / 3
        now = np.einsum("sf,sfg->sg", now, world.transitions)
    events = [event for document in documents for event in document.events]
    predicates = Counter(event.pred for event in events)
    check_counts(np.array([predicates[word] for word in world.predicates]), expected_predicates, len(events))
    for frame in (0, 9):
        inside = [event for event in events if event.frame == world.frames[frame]]
        modifiers = Counter(event.mod for event in inside)
        found_modifiers = np.array([modifiers[word] for word in (None, *world.modifiers)])
        check_counts(found_modifiers, world.modifier_probs[frame], len(inside))


def test_sampled_arguments_match_argument_probs() -> None:
    world = World(frames=2, seed=2, words=40, events=1, scenarios=1)
    documents = world.sample(20_000)
    for frame, slot in itertools.product((0, 1), ("subj", "obj")):
        words = Counter(getattr(d.events[0], slot) for d in documents if d.events[0].frame == world.frames[frame])
        found = np.array([words[word] for word in (None, *world.nouns)])
        check_counts(found, world.argument_probs(slot, frame, 0), found.sum())


def check_counts(found: np.ndarray, probs: np.ndarray, count: int) -> None:
    assert found.sum() == count
    assert not found[probs == 0].any()
    deviation = np.abs(found - count * probs) / np.sqrt(count * probs * (1 - probs) + 1e-9)
    assert deviation[count * probs > 5].max() < 5


def test_posterior_is_calibrated() -> None:
    """E_x p(t|x) = p(t), and a frame of probability p is the true one in a share p of events."""
    world = World(frames=10, seed=0)
    documents = world.sample(4000)
    probs = world.posteriors(documents).reshape(-1, 10)
    np.testing.assert_allclose(probs.mean(axis=0), world.frame_probs(), atol=0.01)
    truth = np.array([world.frames.index(event.frame or "") for d in documents for event in d.events])
    sure = probs.max(axis=1)
    for low, high in itertools.pairwise((0.3, 0.5, 0.7, 0.9, 1.01)):
        inside = (sure >= low) & (sure < high)
        right = (probs.argmax(axis=1) == truth)[inside]
        assert right.mean() == pytest.approx(sure[inside].mean(), abs=4 * 0.5 / math.sqrt(len(right)))


def test_samples_depend_only_on_seed_and_index() -> None:
    world = World(frames=10, seed=1)
    documents = world.sample(5000, seed=2)
    assert documents == World(frames=10, seed=1).sample(5000, seed=2)
    assert documents[:10] == world.sample(10, seed=2)
    assert documents[4090:4100] == world.sample(10, seed=2, start=4090)
    others = world.sample(5000, seed=3)
    assert not {document.id for document in documents} & {document.id for document in others}
    assert [d.events for d in documents] != [d.events for d in others]
    assert world.sample(3) == world.sample(3, seed=1)
    assert world.sample(0) == []
    assert all(len(d.events) == 5 and all(e.frame in world.frames for e in d.events) for d in documents)


def test_config_makes_same_world_in_another_process() -> None:
    world = World(frames=12, seed=9, words=700, events=4, scenarios=7)
    config = json.dumps(world.config())
    program = (
        "import json, sys; from revup.world import World; w = World(**json.loads(sys.argv[1]));"
        "d = w.sample(3); print(json.dumps([repr(d), w.frames, w.log_prob(d[0])]))"
    )
    command = [sys.executable, "-c", program, config]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    documents = world.sample(3)
    assert told == [repr(documents), world.frames, world.log_prob(documents[0])]
    assert World(**world.config()).config() == world.config()


def test_frame_given_predicate_and_best_table_match_samples(tiny: World) -> None:
    predicates, table = tiny.frame_given_predicate()
    assert predicates == tiny.predicates
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    documents = tiny.sample(20_000)
    joint = Counter((event.pred, event.frame) for document in documents for event in document.events)
    total = Counter(event.pred for document in documents for event in document.events)
    for pred, row in zip(predicates, table, strict=True):
        if total[pred] > 1000:
            found = [joint[pred, frame] / total[pred] for frame in tiny.frames]
            np.testing.assert_allclose(found, row, atol=0.06)
    best = dict(zip(predicates, table.argmax(axis=1), strict=True))
    right = sum(n for (pred, frame), n in joint.items() if frame == tiny.frames[best[pred]])
    assert tiny.best_table_accuracy() == pytest.approx(right / total.total(), abs=0.01)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_world_of_paper_size_is_ambiguous_but_solvable(seed: int) -> None:
    world = World(frames=600, seed=seed)
    assert 0.45 <= world.best_table_accuracy() <= 0.60
    accuracy = world.optimum(world.sample(400))["accuracy"]
    assert accuracy is not None
    assert 0.9 < accuracy < 0.98


@pytest.mark.parametrize("frames", [10, 20, 30, 100])
def test_smaller_worlds_are_ambiguous_but_solvable(frames: int) -> None:
    world = World(frames=frames, seed=1)
    assert 0.45 <= world.best_table_accuracy() <= 0.65
    accuracy = world.optimum(world.sample(1000))["accuracy"]
    assert accuracy is not None
    assert 0.9 < accuracy < 0.98


def test_word_frequencies_follow_zipfs_law() -> None:
    """The logarithm of frequency falls in a line with that of rank, by about 1; ranks evenly spaced in logarithm."""
    documents = World(frames=600, seed=0).sample(20_000)
    nouns = Counter(noun for d in documents for event in d.events for noun in (event.subj, event.obj) if noun)
    slope, fit = power_law(nouns, 2000)
    assert -1.3 < slope < -0.7
    assert fit > 0.97
    slope, fit = power_law(Counter(event.pred for d in documents for event in d.events), 2000)
    assert -1.3 < slope < -0.3  # flatter: every frame has frequent predicates of its own
    assert fit > 0.85


def power_law(words: Counter[str], most: int) -> tuple[float, float]:
    """The slope of log-frequency over log-rank and how much of its variance a line explains."""
    ranks = np.unique(np.geomspace(1, most, 40).astype(int))
    frequency = np.array([count for _, count in words.most_common(most)], dtype=float)[ranks - 1]
    x, y = np.log(ranks), np.log(frequency)
    return float(np.polyfit(x, y, 1)[0]), float(np.corrcoef(x, y)[0, 1] ** 2)


def test_optimum_equals_scores_of_posteriors(tiny: World) -> None:
    documents = [cut(document, 1 + index % 3) for index, document in enumerate(tiny.sample(50))]
    documents[0].events[0].frame = None
    right, framed, nll = 0, 0, 0.0
    for document in documents:
        for event, probs in zip(document.events, tiny.posterior(document), strict=True):
            if event.frame is not None:
                framed += 1
                right += tiny.frames[probs.argmax()] == event.frame
                nll -= math.log(probs[tiny.frames.index(event.frame)])
    tokens = 5 * sum(len(document.events) for document in documents)
    perplexity = math.exp(-sum(map(tiny.log_prob, documents)) / tokens)
    expected = {"accuracy": right / framed, "nll": nll / framed, "perplexity": perplexity}
    assert tiny.optimum(documents) == pytest.approx(expected)


def test_optimum_without_frames_and_with_unknown_frames(tiny: World) -> None:
    document = tiny.sample(1)[0]
    for event in document.events:
        event.frame = None
    assert tiny.optimum([document])["accuracy"] is None
    assert tiny.optimum([]) == {"accuracy": None, "nll": None, "perplexity": None}
    for event in document.events:
        event.frame = "No_Such_Frame"
    scores = tiny.optimum([document])
    assert scores["accuracy"] == 0
    assert scores["nll"] == math.inf


def test_impossible_documents_are_refused(tiny: World) -> None:
    document = tiny.sample(1)[0]
    document.events[1].obj = "zebra"
    with pytest.raises(RevupError, match=r"world-3-0: events\[1\]\.obj: .*'zebra' is not among its words for obj"):
        tiny.posterior(document)
    assert tiny.log_prob(document) == -math.inf
    world = World(frames=20, seed=0)
    own = [int(np.flatnonzero((world.predicate_probs > 0).sum(axis=0) == 1)[frame]) for frame in range(20)]
    everything = Document("all", [Event(world.predicates[predicate]) for predicate in own])
    with pytest.raises(RevupError, match="no scenario has frames for all"):
        world.posterior(everything)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frames": 1}, "frames: expected 2 to 2050, found 1"),
        ({"frames": 10, "words": 39}, "words: expected 40 to 500000 for 10 frames, found 39"),
        ({"seed": -1}, "seed: expected 0 or more, found -1"),
        ({"events": 0}, "events: expected 1 or more, found 0"),
        ({"frames": 20, "scenarios": 1}, "scenarios: expected 2 or more for 20 frames, found 1"),
    ],
)
def test_impossible_sizes_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(RevupError, match=message):
        World(**arguments)


def test_negative_sample_size_is_refused(tiny: World) -> None:
    with pytest.raises(RevupError, match="0 or more"):
        tiny.sample(-1)
