"""Predicates without a training label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import revup
from revup.data.corpus import Corpus
from revup.data.encode import NONE, UNK
from revup.data.knowledge import Observation
from revup.experiments.compute import compute, labelled_predicates
from revup.experiments.datasets import Corpora
from revup.experiments.runs import Condition, Run


def test_unlabelled_predicates_against_brute_force(tiny_corpus: Corpus, tmp_path: Path) -> None:
    """Event by event, in plain Python."""
    observation = Observation(0.05, 0.3, 7)
    model = revup.train(tiny_corpus, "lookup", 0.05, 0.3, 7)
    train, test = tiny_corpus.split("train"), tiny_corpus.split("test")
    seen = train.seen(observation).observed
    labelled = set()
    for row in range(len(train)):
        for m in range(train.arrays["lengths"][row]):
            if seen[row, m]:
                labelled.add(int(train.arrays["tokens"][row, m, 0]))
    labelled.discard(UNK)
    mask = labelled_predicates(tiny_corpus, observation)
    assert set(np.flatnonzero(mask).tolist()) == labelled
    right = events = 0
    for row in range(len(test)):
        for m in range(test.arrays["lengths"][row]):
            pred, frame = int(test.arrays["tokens"][row, m, 0]), int(test.arrays["reference"][row, m])
            if frame != NONE and pred not in labelled:
                events += 1
                right += int(model.module.probabilities(np.array([pred]))[0].argmax()) == frame
    corpora = Corpora({"data": tiny_corpus.path}, tmp_path)
    found = compute(Run.of("lookup", Condition(0.05, 0.3), 7), corpora, tmp_path)["scores"]["test"]["unlabelled"]
    assert 0 < events < test.events
    assert found["events"] == events
    assert found["accuracy"] == pytest.approx(right / events)
