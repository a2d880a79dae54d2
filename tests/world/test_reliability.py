"""The estimated reliability of sources against planted rates and the exact posterior."""

from __future__ import annotations

import numpy as np
import pytest

from revup.data.events import Document
from revup.reliability import Estimate, Source, estimate, shared_predicates
from revup.world import Annotator, World
from revup.world.annotators import statements

PLANTED = {
    "uniform": Annotator(rate=0.3),
    "confusable": Annotator(rate=0.4, confusable=1.0),
    "both": Annotator(rate=0.15, confusable=0.5),
}


def said(world: World, documents: list[Document], name: str) -> Source:
    """The labels of one source as the reliability module takes them; an item is an event."""
    labels = [statements(event).get(name) for document in documents for event in document.events]
    items = np.array([item for item, label in enumerate(labels) if label is not None])
    return Source("label", items, np.array([world.frames.index(label) for label in labels if label is not None]))


def as_prior(probs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    item, frame = np.nonzero(probs > 1e-9)
    return item, frame, probs[item, frame]


def dense(found: Estimate, items: int, frames: int) -> np.ndarray:
    """The posterior as a table; the remainder is shared evenly among frames that nobody named."""
    table, named = np.zeros((items, frames)), np.zeros((items, frames), bool)
    table[found.item, found.frame] = found.probability
    named[found.item, found.frame] = True
    rest = np.where(named, 0.0, 1.0)
    return table + found.other[:, None] * rest / np.maximum(rest.sum(axis=1, keepdims=True), 1.0)


def fit(world: World, documents: list[Document], planted: dict[str, Annotator], words: bool) -> Estimate:
    sources = {name: said(world, documents, name) for name in planted}
    frame, predicate = np.nonzero(world.predicate_probs > 0)
    graph = shared_predicates(predicate, frame, len(world.frames))
    items = sum(len(document.events) for document in documents)
    prior = as_prior(world.posteriors(documents).reshape(items, -1)) if words else None
    return estimate(sources, items, len(world.frames), prior, graph, frame_prior="uniform" if words else "estimated")


@pytest.mark.parametrize(("words", "rate_tolerance", "share_tolerance"), [(False, 0.02, 0.1), (True, 0.01, 0.05)])
def test_planted_rates_and_confusion_are_recovered(words: bool, rate_tolerance: float, share_tolerance: float) -> None:
    """Error rates and confusable shares, without and with the exact p(t|words) as prior."""
    world = World(frames=60, seed=1)
    documents = world.sample(800, seed=3)
    truth = np.array([world.frames.index(event.frame or "") for document in documents for event in document.events])
    labelled = world.annotate(documents, PLANTED, seed=5)
    found = fit(world, labelled, PLANTED, words)
    for name, annotator in PLANTED.items():
        wrong = (said(world, labelled, name).frame != truth).mean()
        assert wrong == pytest.approx(annotator.rate, abs=0.025)
        assert found.sources[name].identified
        assert found.sources[name].error_rate == pytest.approx(wrong, abs=rate_tolerance)
        assert found.sources[name].confusable == pytest.approx(annotator.confusable, abs=share_tolerance)


@pytest.mark.parametrize(("events", "tolerance"), [(1, 0.001), (5, 0.002)])
def test_posterior_with_estimated_rates_is_close_to_exact(events: int, tolerance: float) -> None:
    """Mean total variation to the exact posterior with the planted rates.

    In documents of one event the only difference are the rates; in longer ones the exact posterior also carries the
    labels of an event to the others of its document.
    """
    world = World(frames=60, seed=1, events=events)
    documents = world.annotate(world.sample(4000 // events, seed=3), PLANTED, seed=5)
    found = fit(world, documents, PLANTED, words=True)
    exact = world.posteriors(documents, sources=PLANTED).reshape(4000, -1)
    distance = np.abs(dense(found, 4000, 60) - exact).sum(axis=1) / 2
    assert distance.mean() < tolerance
