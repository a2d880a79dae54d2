"""Document context and frame names in the count model: the equations by hand, and where they act."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counting import dense, events, inputs, labels, only
from revup import Corpus, Document, Event
from revup.data.encode import SPECIAL
from revup.data.knowledge import Observation
from revup.data.vocabulary import Vocabulary
from revup.models.count_context import (
    DISTANCE,
    REACH,
    SMOOTHING,
    STRENGTH,
    context_gain,
    context_weight,
    in_context,
    of_trusted,
    without_document,
)
from revup.models.count_corpus import frame_names
from revup.models.count_features import FrameNames
from revup.models.count_fit import Predictions
from revup.models.count_model import CountModel
from revup.models.count_prior import CountPrior, CountSettings
from revup.models.count_tables import Labels


def predicted(table: Any) -> Predictions:
    """Dense probabilities as predictions; the last column is the remainder."""
    n, width = len(table), table.shape[1] - 1
    return Predictions(
        np.arange(n + 1) * width,
        np.tile(np.arange(width), n),
        table[:, :-1].ravel(),
        table[:, -1].copy(),
        np.zeros(n),
    )


def some(n: int = 60, frames: int = 5, seed: int = 0) -> tuple[Predictions, Any, Any]:
    random = np.random.default_rng(seed)
    table = random.dirichlet(np.ones(frames + 1), n)
    document = np.sort(random.integers(4, size=n))
    return predicted(table), events(random.integers(6, size=n), document), table


def test_gain_follows_its_equation() -> None:
    found, data, table = some()
    f = np.array([0.4, 0.3, 0.2, 0.05, 0.05])
    gain = context_gain(found, data, f[found.frame], 5).reshape(-1, 5)
    for i in range(len(data)):
        total = np.zeros(5)
        for j in range(len(data)):
            near = 0 < abs(i - j) <= REACH and data.document[i] == data.document[j]
            if near and data.lemma[i] != data.lemma[j]:
                counted = np.where(table[j, :-1] > 0.01, table[j, :-1], 0.0)
                total += np.exp((1 - abs(i - j)) / DISTANCE) * counted
        assert np.allclose(gain[i], np.log1p(total / (STRENGTH * f)))


def test_events_alone_in_their_document_are_unchanged() -> None:
    found, data, _ = some()
    alone = replace(data, document=np.arange(len(data)))
    gain = context_gain(found, alone, np.full(len(found.frame), 0.2), 5)
    assert not gain.any()
    assert np.allclose(in_context(found, gain, 0.5).probability, found.probability)


def test_predictions_in_context_sum_to_one() -> None:
    found, data, table = some()
    gain = context_gain(found, data, np.full(len(found.frame), 0.2), 5)
    moved = in_context(found, gain, 0.7)
    sums = moved.probability.reshape(-1, 5).sum(1) + moved.rest
    assert np.allclose(sums, 1)
    expected = table[:, :-1] * np.exp(0.7 * gain.reshape(-1, 5))
    assert np.allclose(moved.probability.reshape(-1, 5), expected / (expected.sum(1, keepdims=True) + table[:, -1:]))


def test_frequency_leaves_the_own_document_out() -> None:
    found, data, table = some()
    base = np.full(5, 0.2)
    f = without_document(found, data.document, base).reshape(-1, 5)
    others = data.document != data.document[0]
    expected = (table[others, :-1].sum(0) + SMOOTHING * base) / (others.sum() + SMOOTHING)
    assert np.allclose(f[0], expected)


@pytest.mark.parametrize("tells", [True, False])
def test_weight_is_large_only_where_documents_repeat_frames(tells: bool) -> None:
    random = np.random.default_rng(1)
    n, frames = 2000, 5
    document = np.repeat(np.arange(n // 10), 10)
    own = random.integers(frames, size=n // 10)
    mostly = np.where(random.random(n) < 0.8, own[document], random.integers(frames, size=n))
    other = (mostly + random.integers(1, frames, size=n)) % frames
    frame = mostly if tells else other
    table = np.full((n, frames + 1), 0.02)
    table[np.arange(n), mostly] += 0.5  # one of two frames, which an event alone can't tell
    table[np.arange(n), other] += 0.5
    table /= table.sum(1, keepdims=True)
    found, data = predicted(table), events(random.integers(50, size=n), document)
    gain = context_gain(found, data, without_document(found, document, np.full(frames, 0.2)), frames)
    weight = context_weight(of_trusted(found, gain, Labels(np.arange(n), frame, np.ones(n)), frames))
    assert weight > 0.5 if tells else weight == 0


def test_name_of_a_frame_speaks_for_unknown_predicates() -> None:
    """Without a label or entry, the frame whose name has the predicate's vector is the most probable."""
    shared = inputs(4, 6, vectors=True)
    names = FrameNames(np.array([5]), np.array([5 + 3]), np.ones(1))  # frame 5 is called like lemma 3
    model = CountModel.fit(
        events([0, 1, 2, 3]), {"a": labels([0, 1, 2], [0, 1, 2])}, replace(shared, names=names), noise=False
    )
    only(model, nu=4.0)
    found = dense(model, model.predict(events([3])))[0]
    only(model, nu=0.0)
    without = dense(model, model.predict(events([3])))[0]
    assert found[5] > 5 * without[5]
    assert np.isclose(found.sum(), 1)


def test_words_of_frame_names() -> None:
    vocabulary = Vocabulary([*SPECIAL, "commerce", "buy", "put", "arrest"], beyond=["people"])
    frames = ["Commerce_buy", "put-9.1", "ArrestPeople", "ARREST", "42", "Unheard_of"]
    found = frame_names(frames, vocabulary)
    words = [*vocabulary.words, *vocabulary.beyond]
    read: dict[str, list[tuple[str, float]]] = {}
    for frame, row, weight in zip(found.frame.tolist(), found.row.tolist(), found.weight.tolist(), strict=True):
        read.setdefault(frames[frame], []).append((words[row], weight))
    assert read == {
        "Commerce_buy": [("commerce", 1.0), ("buy", 1.0)],
        "put-9.1": [("put", 1.0)],
        "ArrestPeople": [("arrest", 0.5), ("people", 1.0)],
        "ARREST": [("arrest", 0.5)],
    }


def test_prior_of_a_part_is_that_part_of_the_whole(tmp_path: Path) -> None:
    """Documents of several windows are predicted as a whole, wherever rows are cut."""
    random = np.random.default_rng(0)
    documents = [
        Document(
            f"d{number}",
            [
                Event(f"p{word}", frame=f"F{(word + random.integers(2)) % 4}")
                for word in random.integers(8, size=random.integers(1, 40))
            ],
        )
        for number in range(12)
    ]
    corpus = Corpus.build(documents, out=tmp_path / "data", split=(0.5, 0.0, 0.5), window="all")
    fitted = CountPrior.fit(corpus, Observation(), CountSettings())
    split = corpus.split("test")
    whole = fitted.prior(split, slice(None), False)
    for begin, end in ((0, 3), (2, 7), (5, len(split)), (4, 4)):
        part = fitted.prior(split, slice(begin, end), False)
        assert np.array_equal(part.rest, whole.rest[begin:end])
