"""Scores on predicates without a training label."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import revup
from revup.data.corpus import Corpus
from revup.data.encode import NONE, UNK
from revup.data.knowledge import Observation
from revup.experiments.predicates import labelled_predicates, unlabelled_scores

Settings = dict[str, dict[str, Any]]


def test_unlabelled_predicates_against_brute_force(tiny_corpus: Corpus) -> None:
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
    found = unlabelled_scores(model, tiny_corpus, observation)
    assert 0 < events < test.events
    assert found["events"] == events
    assert found["accuracy"] == pytest.approx(right / events)


def test_models_without_frames_have_no_score(tiny_corpus: Corpus, tiny: Settings) -> None:
    model = revup.train(tiny_corpus, "rnnlm", **tiny)
    assert unlabelled_scores(model, tiny_corpus, Observation(0.1)) == {"events": 0, "accuracy": None, "macro_f1": None}
