"""Documents as arrays: normalised words, windows, side knowledge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revup.data.corpus import Corpus
from revup.data.encode import (
    NONE,
    NULL,
    PAD,
    TUP,
    Chunk,
    encode,
    load_arrays,
    normal,
)
from revup.data.events import Document, Event
from revup.data.told import (
    CANDIDATES,
    DISTRIBUTION,
    LABEL,
    Told,
    context_words,
    frame_name,
    further_knowledge,
    map_event,
    own_knowledge,
)
from revup.errors import InputError
from samples import document, many, texts

LONG = document("x", None, "A", "B", None, "C", "D", None)
SHORT = document("y", "A", None)


def test_slots_are_normalised() -> None:
    assert [normal(word) for word in ("Jury", "New  York", " x ", None, "", "  ")] == [
        "jury",
        "new-york",
        "x",
        "<null>",
        "<null>",
        "<null>",
    ]


@given(st.text())
def test_normalising_is_idempotent_and_leaves_no_blanks(word: str) -> None:
    form = normal(word)
    assert normal(form) == form
    assert form.split() == [form]


def test_event_is_four_slots_and_end_token() -> None:
    corpus = Corpus.build(train=[Document("a", [Event("Left", "New York", None, "At", "Departing")])])
    index = corpus.vocabulary.index
    row = corpus.split("train").arrays["tokens"][0]
    assert row[0].tolist() == [index["left"], index["new-york"], NULL, index["at"], TUP]
    assert (row[1:] == PAD).all()


def test_own_knowledge_is_distribution_candidates_or_label() -> None:
    def own(**keys: Any) -> tuple[int, list[tuple[str, float]]] | None:
        found = own_knowledge(Event("p", **keys))
        return None if found is None else (found.kind, found.frames)

    assert own(frame="A", frames={"A": 3, "B": 1, "C": 0}) == (DISTRIBUTION, [("A", 0.75), ("B", 0.25)])
    assert own(frame="A") == (LABEL, [("A", 1.0)])
    assert own(frame="A", candidates=["B", "C"]) == (CANDIDATES, [("B", 0.5), ("C", 0.5)])
    assert own(candidates={"B": 3, "C": 1}) == (CANDIDATES, [("B", 0.75), ("C", 0.25)])
    assert own() is None
    assert own(frames={"A": 1e308, "B": 1e308}) == (DISTRIBUTION, [("A", 0.5), ("B", 0.5)])
    assert frame_name("two\nlines") == "two lines"


def test_further_knowledge_has_the_kind_of_its_value() -> None:
    says: dict[str, Any] = {
        "z": "A",
        "list": ["A", "B"],
        "belief": {"A": 1, "B": 3},
        "weighted": {"kind": "candidates", "value": {"A": 1, "B": 3}, "confidence": 0.5},
    }
    assert further_knowledge(Event("p", sources=says)) == [
        Told("belief", DISTRIBUTION, [("A", 0.25), ("B", 0.75)]),
        Told("list", CANDIDATES, [("A", 0.5), ("B", 0.5)]),
        Told("weighted", CANDIDATES, [("A", 0.25), ("B", 0.75)], 0.5),
        Told("z", LABEL, [("A", 1.0)]),
    ]


def test_frame_map_renames_merges_and_leaves_out() -> None:
    event = Event("p", frame="A", frames={"A": 1, "B": 2, "C": 1}, sources={"x": "C", "y": ["A", "B"], "z": "A"})
    mapped = map_event(event, {"A": "N", "B": "N", "C": None})
    assert mapped.frame == "N"
    assert mapped.frames == {"N": 3}
    assert mapped.sources == {"y": ["N"], "z": "N"}
    assert event.frame == "A"


def test_words_around_the_predicate() -> None:
    text = "Yesterday she left the old house, they left it."
    assert list(context_words(Event("left", text=text, span=(14, 18)))) == ["yesterday", "she", "the", "old"]
    assert list(context_words(Event("left", text=text))) == [None] * 4  # it stands there twice
    assert list(context_words(Event("old", text=text))) == ["left", "the", "house", ","]
    assert list(context_words(Event("left"))) == [None] * 4


def test_soft_labels_and_confidence_in_arrays() -> None:
    events = [
        Event("p", frame="B", frames={"A": 3, "B": 1}, confidence=0.5),
        Event("q", frame="A"),
        Event("r", frames={"C": 2}, confidence=1e300),
    ]
    corpus = Corpus.build(train=[Document("d", events)])
    a = corpus.split("train").arrays
    assert a["reference"][0].tolist() == [1, 0, NONE, NONE, NONE]
    dense = np.zeros((5, 3))
    np.add.at(dense, (np.arange(5)[:, None], a["knowledge_frames"][0]), a["knowledge_weights"][0])
    assert dense[:3].tolist() == [[0.75, 0.25, 0], [1, 0, 0], [0, 0, 1]]
    assert a["confidence"][0, :2].tolist() == [0.5, 1.0]
    assert np.isfinite(a["confidence"]).all()


def test_windows_framed_first_all() -> None:
    def cut(kind: str) -> list[list[str]]:
        return texts(Corpus.build(train=[LONG, SHORT], window=kind, events=3))

    assert cut("framed") == [["x.1", "x.2", "x.4"], ["y.0"]]
    assert cut("first") == [["x.0", "x.1", "x.2"], ["y.0", "y.1"]]
    assert cut("all") == [["x.0", "x.1", "x.2"], ["x.3", "x.4", "x.5"], ["x.6"], ["y.0", "y.1"]]


@given(st.integers(1, 8), st.lists(st.booleans(), max_size=20))
def test_windows_hold_expected_numbers_of_events(size: int, framed: list[bool]) -> None:
    whole = document("d", *["F" if yes else None for yes in framed])
    chunk = encode([whole], "train", size, "all")
    assert chunk.arrays["lengths"].sum() == len(framed)
    assert (chunk.arrays["lengths"][:-1] == size).all()
    chunk = encode([whole], "train", size, "framed")
    assert chunk.arrays["lengths"].sum() == (min(size, sum(framed)) or min(size, len(framed)))
    assert chunk.statistics["events"] == len(framed)
    assert chunk.statistics["events_with_frame"] == sum(framed)


def test_damaged_chunk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chunk.npz"
    encode(many(3), "train", 5, "framed").save(path)
    assert Chunk.load(path).ids == ["d0", "d1", "d2"]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match="damaged chunk"):
        load_arrays(path)
