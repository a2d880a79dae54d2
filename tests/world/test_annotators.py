"""Simulated annotators: planted rates, where errors go, and what labels depend on."""

from __future__ import annotations

import numpy as np
import pytest

from revup.data.events import Document
from revup.errors import RevupError
from revup.world import Annotator, World
from revup.world.annotators import statements


@pytest.fixture(scope="module")
def world() -> World:
    return World(frames=12, seed=2)


def labels(world: World, documents: list[Document], source: str) -> np.ndarray:
    said = [statements(event).get(source) for document in documents for event in document.events]
    return np.array([-1 if label is None else world.frames.index(label) for label in said])


def truth(world: World, documents: list[Document]) -> np.ndarray:
    return np.array([world.frames.index(event.frame or "") for document in documents for event in document.events])


@pytest.mark.parametrize(
    "annotator", [Annotator(0.3), Annotator(0.3, 1.0), Annotator(0.5, 0.5), Annotator(0.0), Annotator(1.0, 1.0)]
)
def test_labels_follow_confusion(world: World, annotator: Annotator) -> None:
    """Every cell of the empirical p(y|t) within 5 standard deviations of the planted one."""
    documents = world.sample(6000)
    true = truth(world, documents)
    said = labels(world, world.annotate(documents, {"a": annotator}), "a")
    expected = world.confusion(annotator)
    np.testing.assert_allclose(expected.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.diag(expected), 1 - annotator.rate)
    found = np.zeros_like(expected)
    np.add.at(found, (true, said), 1)
    counts = found.sum(axis=1, keepdims=True)
    assert not found[expected == 0].any()
    deviation = np.abs(found - counts * expected) / np.sqrt(counts * expected * (1 - expected) + 1e-9)
    assert deviation[counts * expected > 5].max() < 5


def test_confusable_errors_share_a_predicate_with_the_true_frame(world: World) -> None:
    documents = world.sample(500)
    true = truth(world, documents)
    said = labels(world, world.annotate(documents, {"a": Annotator(rate=0.5, confusable=1.0)}), "a")
    uses = world.predicate_probs > 0
    assert (said != true).any()
    assert (uses[said] & uses[true]).any(axis=1).all()
    table = world.confusion(Annotator(rate=1.0, confusable=1.0))
    shared = (uses[:, None] & uses[None]).sum(axis=2)
    t, y, z = 0, *np.argsort(-table[0])[:2]
    assert table[t, y] / table[t, z] == pytest.approx(shared[t, y] / shared[t, z])


def test_coverage_is_the_share_of_labelled_events(world: World) -> None:
    documents = world.annotate(world.sample(2000), {"a": Annotator(rate=0.1, coverage=0.3), "b": 0.1})
    there = labels(world, documents, "a") >= 0
    assert there.mean() == pytest.approx(0.3, abs=0.02)
    assert (labels(world, documents, "b") >= 0).all()


def test_sources_err_independently(world: World) -> None:
    documents = world.sample(4000)
    noisy = world.annotate(documents, {"a": 0.3, "b": 0.3, "c": Annotator(0.3, 1.0)})
    wrong = {name: labels(world, noisy, name) != truth(world, documents) for name in "abc"}
    for first, second in ("ab", "ac", "bc"):
        assert (wrong[first] & wrong[second]).mean() == pytest.approx(0.09, abs=0.01)


def test_labels_depend_only_on_event_name_and_seed(world: World) -> None:
    documents = world.sample(50)
    both = world.annotate(documents, {"b": 0.4, "a": 0.2}, seed=3)
    assert both[10:20] == world.annotate(documents[10:20], {"b": 0.4, "a": 0.2}, seed=3)
    alone = world.annotate(documents, {"a": 0.2}, seed=3)
    np.testing.assert_array_equal(labels(world, both, "a"), labels(world, alone, "a"))
    assert (labels(world, alone, "a") != labels(world, world.annotate(documents, {"a": 0.2}, seed=4), "a")).any()
    more = labels(world, world.annotate(documents, {"a": 0.6}, seed=3), "a")
    true = truth(world, documents)
    assert ((labels(world, alone, "a") == true) >= (more == true)).all()


def test_truth_is_left_out_unless_asked_for(world: World) -> None:
    documents = world.sample(3)
    noisy = world.annotate(documents, {"a": 0.2})
    assert all(event.frame is None for document in noisy for event in document.events)
    assert documents == world.sample(3)
    kept = world.annotate(documents, {"a": 0.2}, truth=True)
    assert [e.frame for d in kept for e in d.events] == [e.frame for d in documents for e in d.events]
    twice = world.annotate(kept, {"b": 0.0})
    assert list(statements(twice[0].events[0])) == ["a", "b"]


def test_bad_annotators_are_refused(world: World) -> None:
    documents = world.sample(1)
    for source, message in (
        (1.5, "annotator.rate: expected a number from 0 to 1, found 1.5"),
        (float("nan"), "annotator.rate: expected a number from 0 to 1, found nan"),
        ("high", "annotator.rate: expected a number from 0 to 1, found 'high'"),
    ):
        with pytest.raises(RevupError, match=message):
            world.annotate(documents, {"a": source})  # type: ignore[dict-item]
    with pytest.raises(RevupError, match=r"annotator\.confusable: expected a number from 0 to 1, found -1"):
        Annotator(confusable=-1)
    with pytest.raises(RevupError, match="sources: expected a name for each source, found ''"):
        world.annotate(documents, {"": 0.1})
    documents[0].events[2].frame = "Nonsense"
    message = r"world-2-0: events\[2\]\.frame: expected a frame of this world, found 'Nonsense'"
    with pytest.raises(RevupError, match=message):
        world.annotate(documents, {"a": 0.1})
