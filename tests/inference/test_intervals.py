"""Intervals of scores by a bootstrap over documents."""

from __future__ import annotations

import numpy as np

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.inference.intervals import SCORES, intervals


def labelled(name: str, *frames: str) -> Document:
    return Document(name, [Event(pred="be", subj=name, frame=frame) for frame in frames])


def test_intervals_contain_the_score_of_the_whole(tiny_corpus: Corpus) -> None:
    model = revup.train(tiny_corpus, model="lookup", device="cpu")
    scores, found = revup.evaluate(model, tiny_corpus), intervals(model, tiny_corpus)
    for name in SCORES:
        low, high = found[f"{name}_interval"]
        assert low < scores[name] < high


def test_interval_is_that_of_documents_not_of_events() -> None:
    """40 documents of 5 equal events, half of them right: the interval is that of 40 coin flips, not of 200."""
    train = [labelled(f"t{n}", *["A"] * 5) for n in range(20)] + [labelled("u", "B")]
    test = [labelled(f"d{n}", *("AB"[n % 2] * 5)) for n in range(40)]
    corpus = Corpus.build(train=train, valid=train[:2], test=test, events=5)
    model = revup.train(corpus, model="lookup", device="cpu")
    low, high = intervals(model, corpus)["accuracy_interval"]
    expected = 1.645 * np.sqrt(0.25 / 40)
    assert abs((high - low) / 2 - expected) < 0.25 * expected
    assert intervals(model, corpus) == intervals(model, corpus)
