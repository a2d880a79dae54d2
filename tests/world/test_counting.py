"""The count model on the world: what it should reach with wrong labels and with a dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from revup.data.corpus import Corpus
from revup.world.world import World

TRAINED, HELD_OUT = 800, 300


@pytest.fixture(scope="module")
def world() -> World:
    return World(frames=20, seed=1)


def accuracy(corpus: Corpus, out: Path, **how: Any) -> float:
    model = revup.train(corpus, model="counts", seed=1, out=out, **how)
    return float(revup.evaluate(model, corpus, split="test")["accuracy"])


def build(world: World, out: Path, lexicon: Path | None = None) -> Corpus:
    total = TRAINED + 2 * HELD_OUT
    split = (TRAINED / total, HELD_OUT / total, HELD_OUT / total)
    return Corpus.build(world.sample(total), out=out, split=split, lexicon=lexicon)


def test_arguments_count_though_half_of_the_labels_are_wrong(world: World, tmp_path: Path) -> None:
    corpus = build(world, tmp_path / "data")
    clean = accuracy(corpus, tmp_path / "clean")
    noisy = accuracy(corpus, tmp_path / "noisy", eta=0.5)
    assert noisy > clean - 0.06  # by predicates alone it is .12 below


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.3])
def test_confusable_errors_are_told_from_ambiguity_by_the_events(world: World, tmp_path: Path, rate: float) -> None:
    corpus = build(world, tmp_path / "data")
    noisy: dict[str, Any] = {"eta": rate, "noise": "confusable"}
    given = accuracy(corpus, tmp_path / "given", **noisy, objective={"noise": "none"})
    corrected = accuracy(corpus, tmp_path / "corrected", **noisy)
    assert corrected > given + 0.01  # by predicates alone it is .2 below
    found = revup.load(tmp_path / "corrected").reliability["frame"]
    assert abs(found["error_rate"] - rate) < 0.05


def test_dictionary_costs_no_accuracy_where_labels_are_many(world: World, tmp_path: Path) -> None:
    rows = [
        f"{predicate},{frame}"
        for column, predicate in enumerate(world.predicates)
        for row, frame in enumerate(world.frames)
        if world.predicate_probs[row, column] > 0
    ]
    assert np.isclose(world.predicate_probs.sum(), len(world.frames))
    (tmp_path / "book.csv").write_text("\n".join(["predicate,frame", *rows]) + "\n")
    without = accuracy(build(world, tmp_path / "without"), tmp_path / "a")
    given = accuracy(build(world, tmp_path / "with", tmp_path / "book.csv"), tmp_path / "b")
    assert given > without - 0.01
