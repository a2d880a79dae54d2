"""The rivals' equations: against limits, exact answers, cleanlab and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.models.rivals import losses
from revup.models.rivals.propagation import nearest, spread, unit
from revup.models.rivals.settings import PRUNING
from revup.models.rivals.stated import StatedPredictions, pruned, thresholds


@pytest.fixture
def logits() -> Tensor:
    return torch.randn(7, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def labels() -> Tensor:
    return torch.eye(5, dtype=torch.float64)[torch.tensor([0, 1, 2, 3, 4, 0, 1])]


def test_generalised_cross_entropy_runs_from_cross_entropy_to_absolute_error(logits: Tensor, labels: Tensor) -> None:
    plain = losses.cross_entropy(logits, labels)
    torch.testing.assert_close(losses.generalised_cross_entropy(logits, labels, 1e-7), plain, rtol=1e-5, atol=1e-5)
    chance = (torch.softmax(logits, -1) * labels).sum(-1)
    torch.testing.assert_close(losses.generalised_cross_entropy(logits, labels, 1.0), 1 - chance)
    torch.testing.assert_close(losses.generalised_cross_entropy(logits, labels, 0.7), (1 - chance**0.7) / 0.7)


def test_bootstrapping_mixes_the_label_with_the_prediction(logits: Tensor, labels: Tensor) -> None:
    torch.testing.assert_close(losses.soft_bootstrap(logits, labels, 1.0), losses.cross_entropy(logits, labels))
    entropy = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(losses.soft_bootstrap(logits, labels, 0.0), entropy)


def test_early_learning_pulls_towards_what_was_predicted_before(logits: Tensor, labels: Tensor) -> None:
    before = torch.softmax(2 * logits, -1)
    torch.testing.assert_close(losses.early_learning(logits, labels, before, 0.0), losses.cross_entropy(logits, labels))
    free = logits.clone().requires_grad_()
    (losses.early_learning(free, labels, before, 3.0) - losses.cross_entropy(free, labels)).sum().backward()
    assert free.grad is not None
    step = torch.softmax(logits - 0.01 * free.grad, -1)
    assert ((step * before).sum(-1) > (torch.softmax(logits, -1) * before).sum(-1)).all()


def test_forward_correction_is_least_at_the_true_distribution(logits: Tensor, labels: Tensor) -> None:
    torch.testing.assert_close(
        losses.forward_corrected(logits, labels, torch.eye(5, dtype=torch.float64)),
        losses.cross_entropy(logits, labels),
    )
    confusion = 0.6 * torch.eye(5, dtype=torch.float64) + 0.4 / 5
    stated = torch.softmax(logits, -1) @ confusion
    free = logits.clone().requires_grad_()
    losses.forward_corrected(free, stated, confusion).sum().backward()
    assert free.grad is not None
    assert free.grad.abs().max() < 1e-12


def test_small_losses_keep_the_share_of_labelled_events() -> None:
    loss = torch.tensor([[3.0, 1.0, 2.0], [0.5, 4.0, 0.1]])
    use = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    kept = losses.small_losses(loss, use, torch.tensor(0.6))
    assert kept.tolist() == [[0, 1, 1], [1, 0, 0]]
    assert losses.small_losses(loss, use, torch.tensor(1.0)).tolist() == use.tolist()
    assert losses.small_losses(loss, use * 0, torch.tensor(0.5)).sum() == 0


def test_pseudo_labels_are_sure_predictions(logits: Tensor) -> None:
    onehot, sure = losses.pseudo_labels(logits, 0.5)
    assert torch.equal(onehot.argmax(-1), logits.argmax(-1))
    assert torch.equal(sure > 0, torch.softmax(logits, -1).max(-1).values >= 0.5)


def uncertain(seed: int, classes: int = 6, events: int = 400) -> tuple[Any, Any]:
    """Labels of which a third is wrong, and probabilities of a classifier that half believes them."""
    generator = np.random.default_rng(seed)
    true = generator.integers(classes - 1, size=events)  # one class without labels
    labels = np.where(generator.random(events) < 0.3, generator.integers(classes - 1, size=events), true)
    logits = generator.normal(size=(events, classes)) + 2 * np.eye(classes)[true] + np.eye(classes)[labels]
    odds = np.exp(logits)
    return labels, odds / odds.sum(1, keepdims=True)


@pytest.mark.parametrize("rule", PRUNING)
@pytest.mark.parametrize("seed", range(3))
def test_pruning_is_that_of_cleanlab(rule: str, seed: int) -> None:
    count, filters = pytest.importorskip("cleanlab.count"), pytest.importorskip("cleanlab.filter")
    labels, probabilities = uncertain(seed)
    expected = filters.find_label_issues(labels, probabilities, filter_by=rule)
    blocks = [probabilities[:150], probabilities[150:]]
    assert 0 < expected.sum() < len(labels)
    np.testing.assert_array_equal(pruned(labels, blocks, rule), expected)
    np.testing.assert_allclose(thresholds(labels, blocks), count.get_confident_thresholds(labels, probabilities))


def test_wrong_labels_are_pruned_and_confusion_is_estimated(tiny_corpus: Corpus) -> None:
    noisy = Observation(1.0, 0.4, 2)
    found = StatedPredictions.of(tiny_corpus, noisy)
    assert found is not None
    split = tiny_corpus.split("train")
    clean, seen = split.seen(Observation(1.0, 0.0, 2)), split.seen(noisy)
    keys = np.asarray(split.arrays["keys"])[seen.observed]
    wrong = (clean.frames[..., 0] != seen.frames[..., 0])[seen.observed]
    out = np.isin(keys, found.pruned("confident_learning"))
    assert wrong[out].mean() > 1.5 * wrong.mean() > 3 * wrong[~out].mean()
    matrix = found.confusion_matrix(20)
    np.testing.assert_allclose(matrix.sum(1), 1)
    assert 0.45 < matrix.diagonal().mean() < 0.9
    assert StatedPredictions.of(tiny_corpus, Observation(0.0)) is None


def test_spreading_is_that_of_scikit_learn() -> None:
    spreading = pytest.importorskip("sklearn.semi_supervised").LabelSpreading
    generator = np.random.default_rng(3)
    vectors = unit(generator.normal(size=(30, 4)))
    own = np.arange(30)
    near, closeness = nearest(vectors, np.ones(30, bool), own, 5, 4.0)
    assert (near != own[:, None]).all()
    weights = np.zeros((30, 30))
    for row in range(30):
        weights[row, near[row]] = weights[near[row], row] = closeness[row]
    given = np.where(generator.random(30) < 0.4, generator.integers(3, size=30), -1)
    given[:3] = 0, 1, 2
    model = spreading(kernel=lambda a, b: weights.copy(), alpha=0.6, max_iter=1000, tol=1e-9).fit(vectors, given)
    labels = np.where(given[:, None] >= 0, np.eye(3)[np.maximum(given, 0)], 0.0)
    found = spread(labels, near, closeness, own, 0.6)
    np.testing.assert_allclose(found / found.sum(1, keepdims=True), model.label_distributions_, atol=1e-3)
