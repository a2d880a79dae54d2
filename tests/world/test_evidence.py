"""Posteriors given true frames and labels of noisy sources, against enumeration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from enumeration import enumerate_chains
from revup.data.events import Document
from revup.errors import RevupError
from revup.world import Annotator, World
from revup.world.annotators import statements

SOURCES = {"ann": 0.2, "parser": Annotator(rate=0.4, confusable=0.75), "rare": Annotator(rate=0.1, coverage=0.5)}


@pytest.fixture(scope="module")
def tiny() -> World:
    return World(frames=4, seed=3, words=30, events=3, scenarios=3)


@pytest.fixture(scope="module")
def small() -> World:
    """Scenarios that share frames, and frames that share few predicates."""
    return World(frames=10, seed=5, events=3)


def true_frame(document: Document, place: int) -> str:
    frame = document.events[place].frame
    assert frame is not None
    return frame


@pytest.mark.parametrize("places", [(), (1,), (0, 2), (0, 1, 2)])
def test_posterior_given_frames_equals_enumeration(small: World, places: tuple[int, ...]) -> None:
    for document in small.sample(4):
        given = {place: true_frame(document, place) for place in places}

        def told(place: int, frame: int, given: dict[int, str] = given) -> float:
            return float(place not in given or given[place] == small.frames[frame])

        _, expected = enumerate_chains(small, document, told)
        found = small.posterior(document, given=given)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        for place, frame in given.items():
            assert found[place, small.frames.index(frame)] == pytest.approx(1.0, abs=1e-12)


def test_given_frame_moves_events_before_and_after(small: World) -> None:
    documents = small.sample(50)
    given = [{1: true_frame(document, 1)} for document in documents]
    moved = np.abs(small.posteriors(documents) - small.posteriors(documents, given)).max(axis=(0, 2))
    assert moved.min() > 0.01


@pytest.mark.parametrize("given", [{}, {1: None}])
def test_posterior_with_sources_equals_enumeration(small: World, given: dict[int, None]) -> None:
    tables = {name: small.confusion(source) for name, source in SOURCES.items()}
    for document in small.annotate(small.sample(6), SOURCES, seed=4, truth=True):
        told = {place: true_frame(document, place) for place in given}

        def said(place: int, frame: int, document: Document = document, told: dict[int, str] = told) -> float:
            prob = float(place not in told or told[place] == small.frames[frame])
            for name, label in statements(document.events[place]).items():
                prob *= tables[name][frame, small.frames.index(label)]
            return prob

        _, expected = enumerate_chains(small, document, said)
        np.testing.assert_allclose(small.posterior(document, told, SOURCES), expected, atol=1e-12)


def test_only_named_sources_are_used(tiny: World) -> None:
    document = tiny.annotate(tiny.sample(1), SOURCES)[0]
    np.testing.assert_array_equal(tiny.posterior(document), tiny.posterior(tiny.sample(1)[0]))
    one = tiny.posterior(document, sources={"ann": 0.2})
    np.testing.assert_array_equal(one, tiny.posterior(tiny.annotate(tiny.sample(1), {"ann": 0.2})[0], sources=SOURCES))


def test_reliable_source_decides_and_random_source_says_nothing(tiny: World) -> None:
    sources = {"sure": 0.0, "random": 1 - 1 / len(tiny.frames)}
    document = tiny.annotate(tiny.sample(1), sources)[0]
    plain = tiny.posterior(document)
    np.testing.assert_allclose(tiny.posterior(document, sources={"random": sources["random"]}), plain, atol=1e-12)
    truth = [tiny.frames.index(true_frame(tiny.sample(1)[0], place)) for place in range(3)]
    np.testing.assert_allclose(tiny.posterior(document, sources={"sure": 0.0})[range(3), truth], 1.0)


def test_hundreds_of_sources_do_not_underflow(tiny: World) -> None:
    sources = {f"ann{number}": 0.5 for number in range(2000)}
    document = tiny.annotate(tiny.sample(1), sources)[0]
    np.testing.assert_allclose(tiny.posterior(document, sources=sources).sum(axis=1), 1.0)


def test_batch_with_evidence_equals_single_documents(tiny: World) -> None:
    documents = tiny.annotate(tiny.sample(300), SOURCES, truth=True)
    documents = [replace(d, events=d.events[: 1 + index % 3]) for index, d in enumerate(documents)]
    given = [None if index % 2 else {0: true_frame(document, 0)} for index, document in enumerate(documents)]
    found = tiny.posteriors(documents, given, SOURCES)
    for index in (0, 1, 2, 298, 299):
        length = len(documents[index].events)
        expected = tiny.posterior(documents[index], given[index], SOURCES)
        np.testing.assert_allclose(found[index, :length], expected, atol=1e-14)


def test_posterior_with_sources_is_calibrated() -> None:
    """A frame of probability p is the true one in a share p of events."""
    world = World(frames=10, seed=0)
    documents = world.annotate(world.sample(3000), SOURCES, seed=1, truth=True)
    probs = world.posteriors(documents, sources=SOURCES).reshape(-1, 10)
    truth = np.array([world.frames.index(event.frame or "") for d in documents for event in d.events])
    sure = probs.max(axis=1)
    for low, high in ((0.3, 0.7), (0.7, 0.9), (0.9, 0.99), (0.99, 1.01)):
        inside = (sure >= low) & (sure < high)
        right = (probs.argmax(axis=1) == truth)[inside]
        spread = np.sqrt((sure[inside] * (1 - sure[inside])).sum()) / len(right)
        assert right.mean() == pytest.approx(sure[inside].mean(), abs=4 * spread)


def test_optimum_with_evidence_scores_remaining_events(tiny: World) -> None:
    documents = tiny.annotate(tiny.sample(200), SOURCES, truth=True)
    given = [{1: true_frame(document, 1)} for document in documents]
    probs = tiny.posteriors(documents, given, SOURCES)
    truth = np.array([[tiny.frames.index(true_frame(d, place)) for place in range(3)] for d in documents])
    rest = [0, 2]
    scores = tiny.optimum(documents, given, SOURCES)
    assert scores["accuracy"] == pytest.approx((probs.argmax(axis=2) == truth)[:, rest].mean())
    of_truth = np.take_along_axis(probs, truth[..., None], axis=2)[:, rest]
    assert scores["nll"] == pytest.approx(-np.log(of_truth).mean())
    assert scores["perplexity"] == tiny.optimum(documents)["perplexity"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({3: "Arrest"}, r"^world-3-0: given: expected an event from 0 to 2, found 3$"),
        ({-1: "Arrest"}, r"given: expected an event from 0 to 2, found -1$"),
        ({"1": "Arrest"}, r"given: expected an event from 0 to 2, found '1'$"),
        ({1: "Trial_by_fire"}, r"^world-3-0: given\[1\]: expected a frame of this world, found 'Trial_by_fire'$"),
        ({1: None}, r"given\[1\]: expected a frame of this world, found None$"),
    ],
)
def test_unknown_given_event_or_frame_is_refused(tiny: World, given: dict[Any, Any], message: str) -> None:
    with pytest.raises(RevupError, match=message):
        tiny.posterior(tiny.sample(1)[0], given=given)


def test_contradicting_frames_are_refused(small: World) -> None:
    document = small.sample(1)[0]
    possible = small.predicate_probs[:, small.predicates.index(document.events[0].pred)] > 0
    other = small.frames[int(np.flatnonzero(~possible)[0])]
    with pytest.raises(RevupError, match="no scenario has its predicates together with the frames that are given"):
        small.posterior(document, given={0: other})
    with pytest.raises(RevupError, match="given: expected an entry for each of 1 documents, found 2"):
        small.posteriors([document], given=[{}, {}])


def test_statements_that_are_no_labels_are_refused(tiny: World) -> None:
    document = tiny.annotate(tiny.sample(1), {"ann": 0.2})[0]
    for value, message in (
        (["Arrest"], r"events\[1\]\.sources\.ann: expected the label of an annotator, found a list"),
        ("Nonsense", r"events\[1\]\.sources\.ann: expected a frame of this world, found 'Nonsense'"),
    ):
        document.events[1].sources = {"ann": value}
        with pytest.raises(RevupError, match=message):
            tiny.posterior(document, sources={"ann": 0.2})
        tiny.posterior(document, sources={"other": 0.2})
    document.events[1].sources = {"ann": {"kind": "label", "value": tiny.frames[0]}}
    spelled = tiny.posterior(document, sources={"ann": 0.2})
    document.events[1].sources = {"ann": tiny.frames[0]}
    np.testing.assert_array_equal(spelled, tiny.posterior(document, sources={"ann": 0.2}))
