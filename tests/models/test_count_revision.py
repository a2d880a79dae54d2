"""Revising noisy labels by their events: the equations by hand, and which of two explanations is taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from counting import dense, events, inputs, labels
from revup.models.count_model import CountModel
from revup.models.count_revision import mean_labels, revision
from revup.models.count_tables import Labels


def noisy_pair(ambiguous: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lemmas with labels of two frames each, 70% and 30%; subjects tell them apart only where they are ambiguous."""
    random = np.random.default_rng(5)
    lemma = random.integers(20, size=4000)
    second = random.random(4000) < 0.3
    told = np.where(second, 41, 40)
    subject = told if ambiguous else random.permutation(told)
    return lemma, (lemma + np.where(second, 1, 0)) % 10, subject


def fit(ambiguous: bool) -> tuple[CountModel, np.ndarray, np.ndarray]:
    lemma, given, subject = noisy_pair(ambiguous)
    data = replace(events(lemma % 20, subj=subject), lemma=lemma, document=np.arange(len(lemma)) // 4)
    return CountModel.fit(data, {"a": labels(given)}, inputs(20, 10)), lemma, given


def test_labels_that_arguments_foretell_are_kept() -> None:
    model, _, given = fit(ambiguous=True)
    assert model._training is not None
    predicted = dense(model, model.predict(model._training.events, "document")).argmax(1)
    assert (predicted == given).mean() > 0.95


def test_labels_that_nothing_foretells_are_errors() -> None:
    model, lemma, _ = fit(ambiguous=False)
    assert model._training is not None
    predicted = dense(model, model.predict(model._training.events, "document")).argmax(1)
    assert (predicted == lemma % 10).mean() > 0.95


def test_revision_follows_the_equations() -> None:
    model, lemma, given = fit(ambiguous=False)
    fitted = model._training
    assert fitted is not None
    channel = model.channels["a"]
    source = labels(given[:50])
    found = revision(fitted, source, channel)
    with fitted.lemmas_only():
        prior = dense(model, fitted.alone("document", source.item))
    at, frame, value, other = channel.likelihood(lemma[:50], given[:50])
    likelihood = np.repeat(other[:, None], 10, axis=1)  # p(y|t) [labels, K]
    likelihood[at, frame] = value
    joint = prior * likelihood
    total = joint.sum(1)
    assert np.allclose(found.log_likelihood, np.log(total), atol=1e-5)
    assert np.allclose(found.wrong, 1 - joint[np.arange(50), given[:50]] / total, atol=1e-5)
    told = prior * (likelihood - likelihood.min(1, keepdims=True)) / total[:, None]
    weights = np.zeros_like(told)
    weights[found.labels.event, found.labels.frame] = found.labels.weight
    assert np.allclose(weights, np.where(weights > 0, told, 0.0), atol=1e-5)
    assert np.abs(told - weights).max() < 2e-3


def test_mean_of_labels_weighs_both_alike() -> None:
    first = Labels(np.array([0, 1]), np.array([2, 3]), np.array([1.0, 0.5]))
    second = Labels(np.array([0]), np.array([2]), np.array([0.5]))
    both = mean_labels(first, second)
    assert both.event.tolist() == [0, 0, 1]
    assert both.weight.tolist() == [0.5, 0.25, 0.25]
