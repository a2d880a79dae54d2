"""Abstention: what is kept, and whether the expected accuracy is the one that follows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.data.knowledge import Observation
from revup.errors import InputError, RevupError
from revup.inference.abstain import Abstention, Calibration, expected_accuracy, measure_calibration
from revup.inference.loading import load
from revup.inference.predict import predict
from revup.inference.run_directory import read_state
from revup.inference.trained import Trained
from revup.training.run import train
from revup.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return World(frames=10, seed=1)


@pytest.fixture(scope="module")
def corpus(world: World, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    train_part, valid = world.sample(600, seed=2), world.sample(400, seed=3)
    out = tmp_path_factory.mktemp("abstain") / "data"
    return Corpus.build(out=out, train=train_part, valid=valid, test=world.sample(100, seed=4))


@pytest.fixture(scope="module")
def trained(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(corpus, model="lookup", out=tmp_path_factory.mktemp("abstain") / "run")


def kept_and_right(model: Trained, documents: list[Document], rule: Abstention) -> tuple[int, float]:
    kept = right = 0
    for document in predict(model, documents, at_least=rule):
        for event in document.events:
            predicted = (event.extra or {})["predicted"]
            kept += bool(predicted)
            right += bool(predicted) and predicted[0]["frame"] == event.frame
    return kept, right / max(kept, 1)


def test_calibration_rows_count_agreement_with_validation_labels(trained: Trained, world: World) -> None:
    documents = world.sample(400, seed=3)
    best = [event[0] for document in trained.predict(documents, top=1) for event in document]
    truth = [event.frame for document in documents for event in document.events]
    rows = trained.state.calibration
    assert sum(row["events"] for row in rows) == 2000
    edges = [*(row["from"] for row in rows), 1.01]
    for row, end in zip(rows, edges[1:], strict=True):
        inside = [(p, name == frame) for (name, p), frame in zip(best, truth, strict=True) if row["from"] <= p < end]
        assert row["events"] == len(inside)
        assert row["probability"] == pytest.approx(np.mean([p for p, _ in inside]), abs=1e-5)
        assert row["agreement"] == pytest.approx(np.mean([hit for _, hit in inside]))


@pytest.mark.parametrize("at_least", [0.0, 0.5, 0.7, 0.9])
def test_expected_accuracy_is_that_of_new_documents(trained: Trained, world: World, at_least: float) -> None:
    """Within 3 standard deviations of the two samples."""
    rule = Abstention(trained, at_least)
    kept, accuracy = kept_and_right(trained, world.sample(800, seed=9), rule)
    assert rule.events == 4000
    assert rule.kept == kept
    on_validation = expected_accuracy(trained, at_least)
    spread = 0.5 * np.sqrt(1 / kept + 1 / (on_validation["kept"] * on_validation["events"]))
    assert rule.accuracy == pytest.approx(accuracy, abs=3 * spread)
    assert on_validation["accuracy"] == pytest.approx(accuracy, abs=3 * spread)
    assert on_validation["kept"] == pytest.approx(kept / 4000, abs=0.06)


def test_higher_threshold_keeps_fewer_and_better_predictions(trained: Trained, world: World) -> None:
    documents = world.sample(200, seed=9)
    rules = [Abstention(trained, at_least) for at_least in (0.0, 0.5, 0.8)]
    found = [kept_and_right(trained, documents, rule) for rule in rules]
    assert found[0][0] == 1000 > found[1][0] > found[2][0] > 0
    assert found[0][1] < found[1][1] < found[2][1]
    assert [rule.accuracy for rule in rules] == sorted(rule.accuracy or 0 for rule in rules)


def test_wrong_labels_are_allowed_for(world: World, tiny_network: dict[str, Any]) -> None:
    """With 30% of the labels replaced, the expected accuracy is that against true frames, not against labels."""
    parts = {"train": world.sample(600, seed=2), "valid": world.sample(1600, seed=3), "test": world.sample(20, seed=4)}
    corpus = Corpus.build(**parts)  # enough validation labels to tell an accuracy to two digits
    told = {"noise_rate": 0.3 * (1 - 1 / 10)}  # one in ten of the replaced labels comes out right
    quick = {"epochs": 0, "settle": 0}
    model = train(corpus, eta=0.3, network=tiny_network, objective=told, training=quick, device="cpu")
    rule = Abstention(model, 0.6)
    kept, accuracy = kept_and_right(model, world.sample(800, seed=9), rule)
    assert kept > 500
    assert accuracy > 0.9
    assert rule.accuracy == pytest.approx(accuracy, abs=0.04)


@pytest.mark.parametrize("rates", ["0.1,0.3,0.5", "0.3,0.4"])
def test_wrong_labels_of_several_sources_are_allowed_for(world: World, rates: str) -> None:
    parts = {"train": world.sample(600, seed=2), "valid": world.sample(1600, seed=3), "test": world.sample(20, seed=4)}
    model = train(Corpus.build(**parts), model="counts", sources=rates)
    rule = Abstention(model, 0.6)
    kept, accuracy = kept_and_right(model, world.sample(800, seed=9), rule)
    assert kept > 500
    assert accuracy > 0.85
    assert rule.accuracy == pytest.approx(accuracy, abs=0.04)


def rows_of(curve: Callable[[float], float], events: int, wrong: float = 0.0, classes: int = 20) -> Any:
    """A calibration in which predictions of probability p are right in a share curve(p)."""
    rights = {p: curve(p + 0.02) for p in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)}
    return [
        {
            "from": p,
            "events": events,
            "probability": p + 0.02,
            "agreement": (1 - wrong) * right + wrong * (1 - right) / (classes - 1),
            "label_error": wrong,
        }
        for p, right in rights.items()
    ]


@pytest.mark.parametrize("wrong", [0.0, 0.4])
def test_planted_calibration_is_recovered(wrong: float) -> None:
    def overconfident(p: float) -> float:
        return 1 / (1 + math.exp(0.5 - 0.6 * math.log(p / (1 - p))))

    found = Calibration(rows_of(overconfident, 100_000, wrong), classes=20)
    assert (found.alpha, found.beta) == pytest.approx((-0.5, 0.6), abs=0.01)
    for p in (0.35, 0.66, 0.92):
        assert found.accuracy(p) == pytest.approx(overconfident(p), abs=0.002)


def test_few_labels_leave_probabilities_almost_as_they_are() -> None:
    assert Calibration([], classes=20).accuracy(0.91) == 0.91
    few, many = (Calibration(rows_of(lambda p: p / 2, events), classes=20) for events in (1, 1000))
    assert abs(few.accuracy(0.9) - 0.9) < 0.15
    assert many.accuracy(0.9) == pytest.approx(0.45, abs=0.05)
    calibrated = Calibration(rows_of(lambda p: p, 50), classes=20)
    assert (calibrated.alpha, calibrated.beta) == pytest.approx((0, 1), abs=0.01)


def test_predictions_below_are_empty_and_others_unchanged(trained: Trained, world: World) -> None:
    documents = world.sample(50, seed=9)
    for before, after in zip(predict(trained, documents), predict(trained, documents, at_least=0.7), strict=True):
        for one, other in zip(before.events, after.events, strict=True):
            whole, rest = (one.extra or {})["predicted"], (other.extra or {})["predicted"]
            assert rest == (whole if whole[0]["probability"] >= 0.7 else [])
            assert "predicted" in (other.extra or {})


def test_calibration_is_kept_with_the_run(trained: Trained, tmp_path: Path) -> None:
    assert trained.path is not None
    assert load(trained.path).state.calibration == trained.state.calibration != []
    load(trained.path).save(tmp_path / "copy")
    assert load(tmp_path / "copy").state.calibration == trained.state.calibration


def test_without_validation_labels_own_probabilities_decide(corpus: Corpus, trained: Trained, world: World) -> None:
    assert measure_calibration(trained.module, corpus.split("valid"), Observation(0.0)) == []
    rule = Abstention(trained, 0.5, revise=True)  # validation says nothing about labels in the input
    list(predict(trained, world.sample(20), at_least=rule))
    best = [event[0][1] for document in trained.predict(world.sample(20), top=1) for event in document]
    assert rule.measured == 0
    assert rule.accuracy == pytest.approx(np.mean([p for p in best if p >= 0.5]), abs=1e-3)
    assert rule.report().endswith("(by its own probabilities)")
    nothing = Abstention(trained, 1.0)
    assert nothing.accuracy is None
    assert nothing.report() == "kept 0 of 0 predictions with a probability of at least 1"


def test_bad_threshold_and_damaged_calibration_are_refused(trained: Trained, tmp_path: Path) -> None:
    for function in (Abstention, expected_accuracy):
        with pytest.raises(RevupError, match=r"at-least: expected a probability from 0 to 1, found 1\.5"):
            function(trained, 1.5)
    trained.save(tmp_path / "copy")
    state = json.loads((tmp_path / "copy/state.json").read_text())
    state["calibration"][0]["agreement"] = "high"
    (tmp_path / "copy/state.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match="damaged: 'calibration' is not what it should be"):
        read_state(tmp_path / "copy")
