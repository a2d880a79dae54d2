"""Building a corpus: frames, splits, duplicates, documents without frames or events."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import revup
from revup.data.batches import Batches
from revup.data.corpus import Corpus, Split, encode_documents
from revup.data.dataset import SPLITS, split_of
from revup.data.encode import (
    NONE,
    UNSEEN,
    encode,
)
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.data.vocabulary import Vocabulary
from revup.errors import InputError, RevupError
from revup.world.world import World
from samples import document, many, texts

LONG = document("x", None, "A", "B", None, "C", "D", None)
SHORT = document("y", "A", None)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "data"
    Corpus.build(many(400), out=folder)
    return folder


def test_frame_list_is_sorted_training_frames_before_windows() -> None:
    soft = Document("s", [Event("p", frames={"M": 0.5, "B": 0.5})])
    corpus = Corpus.build(train=[document("a", "Z", "A", "Q"), soft], test=[document("t", "T")], events=1)
    assert corpus.frames == ["A", "B", "M", "Q", "Z"]
    assert corpus.has_frames


def test_frame_absent_from_training_is_unseen_and_reported() -> None:
    corpus = Corpus.build(train=[document("a", "A", "B")], test=[document("t", "New", "A", None)], window="all")
    test = corpus.split("test")
    assert test.arrays["reference"][0].tolist() == [UNSEEN, 0, NONE, NONE, NONE]
    seen = test.seen(Observation(1.0))
    assert seen.observed[0].tolist() == [False, True, False, False, False]
    assert corpus.statistics["splits"]["test"]["unseen_frames"] == {"New": 1}


def test_knowledge_about_unseen_frames_is_dropped_and_renormalised() -> None:
    test = Document("t", [Event("p", frames={"A": 1, "New": 1, "B": 2}), Event("p", frames={"New": 1})])
    corpus = Corpus.build(train=[document("a", "A", "B")], test=[test])
    seen = corpus.split("test").seen(Observation(1.0))
    assert seen.observed[0].tolist() == [True, False, False, False, False]
    kept = np.bincount(seen.frames[0, 0], seen.weights[0, 0], minlength=2)
    np.testing.assert_allclose(kept, [1 / 3, 2 / 3], rtol=1e-6)


def test_corpus_without_frames_has_unnamed_classes() -> None:
    corpus = Corpus.build(train=[document("a", *[None] * 7), document("b", None)], test=[document("c", None)])
    assert texts(corpus) == [["a.0", "a.1", "a.2", "a.3", "a.4"], ["b.0"]]
    assert len(corpus.frames) == 50
    assert not corpus.has_frames
    assert (corpus.split("train").arrays["reference"] == NONE).all()
    assert not corpus.split("train").seen(Observation(1.0, 1.0)).observed.any()
    assert len(Corpus.build(train=[document("a", None)], classes=7).frames) == 7


def test_documents_without_frame_are_left_out_and_reported() -> None:
    corpus = Corpus.build(train=[document("a", "F"), document("b", None, None)])
    assert texts(corpus) == [["a.0"]]
    own = corpus.statistics["splits"]["train"]
    assert (own["documents"], own["windows"], own["documents_without_frame"]) == (2, 1, 1)


def test_documents_without_events_are_counted_but_have_no_row() -> None:
    for window in ("framed", "first", "all"):
        corpus = Corpus.build(train=[Document("none", []), document("a", "F")], window=window)
        assert texts(corpus) == [["a.0"]]
        assert corpus.statistics["documents"] == 2


def test_duplicates_are_dropped_or_kept() -> None:
    again = Document("other-id", [Event(e.pred.upper(), e.subj, frame="Other") for e in SHORT.events])
    dropped = Corpus.build(train=[SHORT, LONG, again], test=[SHORT])
    assert texts(dropped) == [["y.0"], ["x.1", "x.2", "x.4", "x.5"]]
    assert dropped.split("train").ids == ["y", "x"]
    own = dropped.statistics
    assert (own["documents"], own["duplicates"], own["splits"]["test"]["also_in_train"]) == (4, 1, 1)
    kept = Corpus.build(train=[SHORT, LONG, again], duplicates="keep")
    assert kept.split("train").ids == ["y", "x", "other-id"]
    assert kept.statistics["duplicates"] == 1
    assert kept.statistics["repeated_ids"] == 0
    assert Corpus.build(train=[SHORT, document("y", "A", "B", "C")]).statistics["repeated_ids"] == 1


def test_same_events_of_different_sentences_are_no_duplicates() -> None:
    documents = [
        Document(name, [Event("runs", "dog", frame="Motion", text=text, span=(4, 8))])
        for name, text in (("a", "dog runs"), ("b", "dog runs home"), ("c", "dog runs"))
    ]
    assert Corpus.build(train=documents).statistics["duplicates"] == 1


def test_splits_follow_ids_and_do_not_change_when_documents_are_added() -> None:
    documents = many(600)
    small, large = Corpus.build(documents[:300]), Corpus.build(documents)
    for split in SPLITS:
        assert small.split(split).ids == [i for i in large.split(split).ids if int(i[1:]) < 300]
        assert all(split_of(i, (0.9, 0.05, 0.05)) == split for i in large.split(split).ids)
    ids = [f"document {n}" for n in range(20_000)]
    shares = Counter(split_of(i, (0.8, 0.15, 0.05)) for i in ids)
    assert abs(shares["train"] / 20_000 - 0.8) < 0.02
    assert abs(shares["valid"] / 20_000 - 0.15) < 0.02
    assert Counter(split_of(i, (1.0, 0.0, 0.0)) for i in ids) == {"train": 20_000}


def test_rows_know_their_documents() -> None:
    corpus = Corpus.build(train=[LONG, SHORT, LONG, document("z", "A")], window="all", events=2)
    split = corpus.split("train")
    assert [split.ids[number] for number in split.arrays["document"]] == ["x", "x", "x", "x", "y", "z"]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 50))
def test_dataset_does_not_depend_on_chunk_size(size: int) -> None:
    import revup.data.corpus as module

    documents = many(60)
    before = module.CHUNK_DOCUMENTS
    try:
        whole = Corpus.build(documents)
        module.CHUNK_DOCUMENTS = size
        assert Corpus.build(documents).fingerprint == whole.fingerprint
    finally:
        module.CHUNK_DOCUMENTS = before


def test_fingerprint_changes_with_data_and_settings() -> None:
    prints = {
        Corpus.build(many(50)).fingerprint,
        Corpus.build(many(51)).fingerprint,
        Corpus.build(many(50), events=3).fingerprint,
        Corpus.build([*many(49), document("d49", *["Other"] * 2)]).fingerprint,
    }
    assert len(prints) == 4
    assert Corpus.build(many(50)).fingerprint in prints


def test_dataset_of_a_world_keeps_its_optimum() -> None:
    world = World(frames=8, seed=1)
    documents = world.sample(300)
    corpus = Corpus.build(iter(documents), world=world)
    test = [document for document in documents if split_of(document.id, (0.9, 0.05, 0.05)) == "test"]
    assert corpus.meta["world"] == world.config()
    assert corpus.meta["optimum"]["test"] == world.optimum(test)
    assert "world" not in Corpus.build(documents).meta


def test_unknown_split_and_window_are_refused(built: Path) -> None:
    with pytest.raises(RevupError, match="unknown split 'dev'"):
        Corpus.load(built).split("dev")
    with pytest.raises(RevupError, match="unknown window"):
        encode(many(2), "train", 5, "none")


def test_new_documents_in_an_existing_vocabulary(built: Path) -> None:
    corpus = Corpus.load(built)
    new = [document("d0", "F0", None, "Never"), Document("empty", []), document("d1", *["F1"] * 7)]
    split: Split = encode_documents(new, corpus.vocabulary, corpus.frames, 5)
    assert split.ids == ["d0", "empty", "d1"]
    assert split.arrays["lengths"].tolist() == [3, 5, 2]
    assert split.arrays["document"].tolist() == [0, 2, 2]
    assert split.arrays["reference"][0].tolist() == [0, NONE, UNSEEN, NONE, NONE]
    assert len(next(Batches(split, Observation(0.0), 8).ordered()).tokens) == 3
    assert len(encode_documents([], corpus.vocabulary, corpus.frames, 5)) == 0


def test_encoding_again_equals_the_dataset(built: Path) -> None:
    corpus = Corpus.load(built)
    split = corpus.split("valid")
    documents = {document.id: document for document in many(400)}
    new = encode_documents([documents[i] for i in split.ids], corpus.vocabulary, corpus.frames, corpus.events, "framed")
    for name in Split.NAMES:
        np.testing.assert_array_equal(new.arrays[name], split.arrays[name])
    assert isinstance(Vocabulary(["a"]).lemmas, list)


def test_corpus_that_was_replaced_is_not_mixed_with_the_new_one(tmp_path: Path) -> None:
    """Lists are read when it is opened, arrays later: with those of another dataset words would be other words."""
    first = [Document(f"d{n}", [Event(f"verb{n % 5}", "man", frame="F")]) for n in range(20)]
    other = [replace(document, events=[replace(document.events[0], pred="left")]) for document in first]
    opened = Corpus.build(train=first, out=tmp_path / "data", duplicates="keep")
    before = opened.split("train").arrays["tokens"][:].copy()
    Corpus.build(train=other, out=tmp_path / "data", duplicates="keep", force=True)
    with pytest.raises(InputError, match=r"data: was replaced while it was read: run this again"):
        opened.split("train")
    assert not np.array_equal(Corpus.load(tmp_path / "data").split("train").arrays["tokens"], before)


def test_documents_in_place_of_a_corpus_are_one_line() -> None:
    with pytest.raises(RevupError, match=r"expected a corpus or its directory, found a list: revup\.Corpus\.build"):
        revup.train([document("a", "A")], model="counts")  # type: ignore[arg-type]
