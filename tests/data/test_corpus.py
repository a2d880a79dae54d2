"""The corpus: what is kept of documents, in which words and frames, and how batches are cut from it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from revup.data.batches import Batches
from revup.data.corpus import Corpus, Split, encode_documents
from revup.data.dataset import SPLITS, Settings, ambiguity, split_of
from revup.data.encode import (
    NONE,
    NULL,
    PAD,
    SPECIAL,
    TOKENS,
    TUP,
    UNK,
    UNSEEN,
    Chunk,
    encode,
    frame_name,
    knowledge_of,
    load_arrays,
    normal,
)
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.data.vocabulary import Vocabulary
from revup.errors import InputError, RevupError
from revup.io.folders import atomic_folder
from revup.world.world import World


def document(identity: str, *frames: str | None, pred: str = "p") -> Document:
    """Events that can be told apart by their subjects, with these frames."""
    return Document(identity, [Event(f"{pred}{i}", f"{identity}.{i}", frame=f) for i, f in enumerate(frames)])


def many(count: int, prefix: str = "d") -> list[Document]:
    return [document(f"{prefix}{n}", *[f"F{(n + i) % 7}" for i in range(1 + n % 6)]) for n in range(count)]


def texts(corpus: Corpus, split: str = "train") -> list[list[str]]:
    """The windows of a split as their events' subjects."""
    part = corpus.split(split)
    return [
        [corpus.vocabulary.words[event[1]] for event in tokens[:length]]
        for tokens, length in zip(part.arrays["tokens"], part.arrays["lengths"], strict=True)
    ]


# ---- words -----------------------------------------------------------------------------------------------


def test_slots_as_words() -> None:
    assert [normal(word) for word in ("Jury", "New  York", " x ", None, "", "  ")] == [
        "jury",
        "new-york",
        "x",
        "<null>",
        "<null>",
        "<null>",
    ]


@given(st.text())
def test_normal_words_stay_as_they_are_and_fit_a_line(word: str) -> None:
    form = normal(word)
    assert normal(form) == form
    assert form.split() == [form]


def test_an_event_is_five_tokens() -> None:
    corpus = Corpus.build(train=[Document("a", [Event("Left", "New York", None, "At", "Departing")])])
    index = corpus.vocabulary.index
    row = corpus.split("train").arrays["tokens"][0]
    assert row[0].tolist() == [index["left"], index["new-york"], NULL, index["at"], TUP]
    assert (row[1:] == PAD).all()


def test_the_vocabulary_is_the_most_frequent_words_ties_by_name() -> None:
    events = [Event("b", "c", "a", frame="F"), Event("b", "x", "a", frame="F"), Event("b", frame="F")]
    documents = [Document("1", events)]
    assert Corpus.build(train=documents).vocabulary.words == [*SPECIAL, "b", "a", "c", "x"]
    small = Corpus.build(train=documents, vocabulary=len(SPECIAL) + 3)
    assert small.vocabulary.words == [*SPECIAL, "b", "a", "c"]
    twice = Corpus.build(train=documents, minimum_count=2)
    assert twice.vocabulary.words == [*SPECIAL, "b", "a"]
    assert twice.split("train").arrays["tokens"][0, 1, :4].tolist() == [5, UNK, 6, NULL]
    assert twice.statistics["token_coverage"] == round(5 / 7, 4)
    assert twice.statistics["distinct_words"] == 4


def test_words_spelt_like_special_tokens_are_unknown() -> None:
    corpus = Corpus.build(train=[Document("a", [Event("<pad>", "<TUP>", "<null>", "x", "F")])])
    assert corpus.split("train").arrays["tokens"][0, 0].tolist() == [UNK, UNK, NULL, len(SPECIAL), TUP]
    assert corpus.vocabulary.number(" X ") == len(SPECIAL)
    assert corpus.vocabulary.number(None) == NULL
    assert corpus.vocabulary.number("never-met") == UNK


def test_words_come_from_the_windows_of_the_training_documents_alone() -> None:
    corpus = Corpus.build(train=[document("a", None, "F", None, "F")], test=[document("b", "F", "F")], events=1)
    assert corpus.vocabulary.words[len(SPECIAL) :] == ["a.1", "p1"]
    assert corpus.statistics["splits"]["test"]["token_coverage"] == 0.0


def test_lemmas_are_the_most_often_given() -> None:
    given_lemmas = ["find", "find", "found", None]
    events = [Event("found", lemma=lemma, frame="F") for lemma in given_lemmas] + [Event("left", frame="F")]
    corpus = Corpus.build(train=[Document("a", events)])
    pairs = dict(zip(corpus.vocabulary.words, corpus.vocabulary.lemmas, strict=True))
    assert pairs["found"] == "find"
    assert pairs["left"] == "left"


# ---- frames ----------------------------------------------------------------------------------------------


KNOWN = Vocabulary([*SPECIAL, "arrested", "man", "flee"], [*SPECIAL, "arrest", "man", "flee"], ["seized", "officer"])
V = len(KNOWN)


@pytest.mark.parametrize(
    ("pred", "lemma", "number"),
    [
        ("arrested", "arrest", 5),  # as itself
        ("arrests", "arrest", V + 5),  # as another form of a word with its lemma
        ("arrest", None, V + 5),  # a lemma that stands there itself
        ("fled", "flee", V + 7),
        ("seized", "seize", 2 * V),  # by its vector
        ("officers", "officer", 2 * V + 1),  # by its lemma's vector
        ("sang", "sing", UNK),
    ],
)
def test_a_predicate_is_read_by_what_is_known_of_it(pred: str, lemma: str | None, number: int) -> None:
    """And written as <unk> unless it is a word of the vocabulary; a subject is read by its own vector at best."""
    event = Event(pred, subj=pred, obj="officer", lemma=lemma)
    arrays = encode_documents([Document("a", [event])], KNOWN, ["F"], 2).arrays
    read, tokens = arrays["read"][0], arrays["tokens"][0]
    assert read[0, 0] == number == KNOWN.read(pred, lemma or pred)
    assert tokens[0, 0] == (number if number < V else UNK)
    assert read[0, 1] == {"arrested": 5, "seized": 2 * V}.get(pred, UNK)
    assert read[0, 2:].tolist() == [2 * V + 1, NULL, TUP]
    assert tokens[0, 2] == UNK
    assert not read[1].any()


def test_what_one_vocabulary_reads_another_does_in_its_own_way() -> None:
    other = Vocabulary([*SPECIAL, "man", "arrests"], [*SPECIAL, "man", "arrest"], ["flee", "arrested"])
    found, size = other.translation(KNOWN).tolist(), len(other)
    arrested, man, flee = size + 6, 5, 2 * size
    assert found[:V] == [*range(5), arrested, man, flee]
    assert found[V : 2 * V] == [*range(5), arrested, size + man, flee]  # other forms of the same
    assert found[2 * V :] == [UNK, UNK]
    assert KNOWN.translation(KNOWN)[:V].tolist() == list(range(V))
    assert KNOWN.translation(KNOWN)[2 * V :].tolist() == [2 * V, 2 * V + 1]


def test_the_frame_list_is_all_training_frames_before_windows_sorted() -> None:
    soft = Document("s", [Event("p", frames={"M": 0.5, "B": 0.5})])
    corpus = Corpus.build(train=[document("a", "Z", "A", "Q"), soft], test=[document("t", "T")], events=1)
    assert corpus.frames == ["A", "B", "M", "Q", "Z"]
    assert corpus.has_frames


def test_a_frame_met_only_at_test_is_unseen_and_reported() -> None:
    corpus = Corpus.build(train=[document("a", "A", "B")], test=[document("t", "New", "A", None)], window="all")
    test = corpus.split("test")
    assert test.arrays["reference"][0].tolist() == [UNSEEN, 0, NONE, NONE, NONE]
    seen = test.seen(Observation(1.0))
    assert seen.observed[0].tolist() == [False, True, False, False, False]
    assert corpus.statistics["splits"]["test"]["unseen_frames"] == {"New": 1}


def test_frames_as_knowledge() -> None:
    event = Event("p", frame="A", frames={"A": 3, "B": 1, "C": 0})
    assert knowledge_of(event) == [("A", 0.75), ("B", 0.25)]
    assert knowledge_of(Event("p", frame="A")) == [("A", 1.0)]
    assert knowledge_of(Event("p")) == []
    assert knowledge_of(Event("p", frames={"A": 1e308, "B": 1e308})) == [("A", 0.5), ("B", 0.5)]
    assert knowledge_of(Event("p", frames={"A": 0.0})) == []
    assert frame_name("two\nlines") == "two lines"


def test_soft_knowledge_and_confidence_in_the_arrays() -> None:
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


def test_knowledge_of_frames_that_training_lacks_is_dropped_and_the_rest_weighs_more() -> None:
    test = Document("t", [Event("p", frames={"A": 1, "New": 1, "B": 2}), Event("p", frames={"New": 1})])
    corpus = Corpus.build(train=[document("a", "A", "B")], test=[test])
    seen = corpus.split("test").seen(Observation(1.0))
    assert seen.observed[0].tolist() == [True, False, False, False, False]
    kept = np.bincount(seen.frames[0, 0], seen.weights[0, 0], minlength=2)
    np.testing.assert_allclose(kept, [1 / 3, 2 / 3], rtol=1e-6)


# ---- windows ---------------------------------------------------------------------------------------------

LONG = document("x", None, "A", "B", None, "C", "D", None)
SHORT = document("y", "A", None)


def test_windows() -> None:
    def cut(kind: str) -> list[list[str]]:
        return texts(Corpus.build(train=[LONG, SHORT], window=kind, events=3))

    assert cut("framed") == [["x.1", "x.2", "x.4"], ["y.0"]]
    assert cut("first") == [["x.0", "x.1", "x.2"], ["y.0", "y.1"]]
    assert cut("all") == [["x.0", "x.1", "x.2"], ["x.3", "x.4", "x.5"], ["x.6"], ["y.0", "y.1"]]


@given(st.integers(1, 8), st.lists(st.booleans(), max_size=20))
def test_all_windows_hold_every_event_once_and_framed_ones_the_first_framed(size: int, framed: list[bool]) -> None:
    whole = document("d", *["F" if yes else None for yes in framed])
    chunk = encode([whole], "train", size, "all")
    assert chunk.arrays["lengths"].sum() == len(framed)
    assert (chunk.arrays["lengths"][:-1] == size).all()
    chunk = encode([whole], "train", size, "framed")
    assert chunk.arrays["lengths"].sum() == (min(size, sum(framed)) or min(size, len(framed)))
    assert chunk.statistics["events"] == len(framed)
    assert chunk.statistics["events_with_frame"] == sum(framed)


def test_fewer_events_are_masked() -> None:
    corpus = Corpus.build(train=[document(f"d{n}", *["F"] * n) for n in range(1, 6)])
    batch = next(Batches(corpus.split("train"), Observation(1.0), 8).ordered())
    assert batch.mask.tolist() == [[m < n for m in range(5)] for n in range(1, 6)]
    assert batch.events == batch.observed_events == 15
    assert batch.token_mask.sum() == 15 * TOKENS
    assert (batch.tokens[~batch.token_mask] == PAD).all()
    assert (batch.tokens[batch.token_mask] != PAD).all()
    assert not batch.observed[~batch.mask].any()
    assert batch.empirical(1).sum() == 15
    assert batch.observed_share == 1.0


def test_a_corpus_without_any_frame_has_first_windows_and_unnamed_classes() -> None:
    corpus = Corpus.build(train=[document("a", *[None] * 7), document("b", None)], test=[document("c", None)])
    assert texts(corpus) == [["a.0", "a.1", "a.2", "a.3", "a.4"], ["b.0"]]
    assert len(corpus.frames) == 50
    assert not corpus.has_frames
    assert (corpus.split("train").arrays["reference"] == NONE).all()
    assert not corpus.split("train").seen(Observation(1.0, 1.0)).observed.any()
    assert len(Corpus.build(train=[document("a", None)], classes=7).frames) == 7


def test_where_there_are_frames_documents_without_one_are_reported() -> None:
    corpus = Corpus.build(train=[document("a", "F"), document("b", None, None)])
    assert texts(corpus) == [["a.0"]]
    own = corpus.statistics["splits"]["train"]
    assert (own["documents"], own["windows"], own["documents_without_frame"]) == (2, 1, 1)


def test_documents_without_events_count_and_have_no_row() -> None:
    for window in ("framed", "first", "all"):
        corpus = Corpus.build(train=[Document("none", []), document("a", "F")], window=window)
        assert texts(corpus) == [["a.0"]]
        assert corpus.statistics["documents"] == 2


# ---- duplicates and splits -------------------------------------------------------------------------------


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


def test_splits_go_by_id_and_do_not_move_when_documents_are_added() -> None:
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
def test_the_dataset_does_not_depend_on_where_chunks_are_cut(size: int) -> None:
    import revup.data.corpus as module

    documents = many(60)
    before = module.CHUNK_DOCUMENTS
    try:
        whole = Corpus.build(documents)
        module.CHUNK_DOCUMENTS = size
        assert Corpus.build(documents).fingerprint == whole.fingerprint
    finally:
        module.CHUNK_DOCUMENTS = before


def test_the_fingerprint_follows_what_could_be_learnt() -> None:
    prints = {
        Corpus.build(many(50)).fingerprint,
        Corpus.build(many(51)).fingerprint,
        Corpus.build(many(50), events=3).fingerprint,
        Corpus.build([*many(49), document("d49", *["Other"] * 2)]).fingerprint,
    }
    assert len(prints) == 4
    assert Corpus.build(many(50)).fingerprint in prints


# ---- statistics ------------------------------------------------------------------------------------------


def test_ambiguity_is_the_entropy_of_the_frame_given_the_predicate() -> None:
    pairs = Counter({("a", "X"): 2, ("a", "Y"): 2, ("b", "X"): 4})
    assert ambiguity(pairs) == pytest.approx(0.5)  # one bit for half of the events
    assert ambiguity(Counter()) == 0


def test_statistics_against_counting_by_hand() -> None:
    train = [
        Document("1", [Event("a", frame="X"), Event("a", frame="Y"), Event("b")]),
        Document("2", [Event("A", "s", frame="X"), Event("b", frames={"X": 1, "Y": 3})]),
    ]
    found = Corpus.build(train=train, test=[Document("3", [Event("c", frame="X")])]).statistics
    assert (found["documents"], found["events"], found["events_with_frame"], found["frames"]) == (3, 6, 5, 2)
    assert found["share_with_frame"] == round(5 / 6, 4)
    assert found["frame_counts"] == {"X": 2.25, "Y": 1.75}
    assert found["predicate_counts"] == {"a": 3, "b": 2}
    h = lambda p: float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))  # noqa: E731
    assert found["ambiguity_bits"] == pytest.approx((3 * h(1 / 3) + 1 * h(1 / 4)) / 4, abs=1e-4)
    assert found["frame_entropy_bits"] == pytest.approx(h(2.25 / 4), abs=1e-4)
    assert found["table_accuracy"] == pytest.approx((2 + 0.75) / 4, abs=1e-4)
    assert found["events_per_document"] == {"1": 1, "2": 1, "3": 1}


def test_a_world_leaves_its_optimum() -> None:
    world = World(frames=8, seed=1)
    documents = world.sample(300)
    corpus = Corpus.build(iter(documents), world=world)
    test = [document for document in documents if split_of(document.id, (0.9, 0.05, 0.05)) == "test"]
    assert corpus.meta["world"] == world.config()
    assert corpus.meta["optimum"]["test"] == world.optimum(test)
    assert "world" not in Corpus.build(documents).meta


# ---- on disk ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "data"
    Corpus.build(many(400), out=folder)
    return folder


def test_a_dataset_can_be_moved(built: Path, tmp_path: Path) -> None:
    before = Corpus.load(built)
    copy = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(built, copy)
    after = Corpus.load(copy)
    assert after.fingerprint == before.fingerprint
    assert texts(after) == texts(before)
    assert after.settings == Settings()
    assert not [path for path in copy.rglob("*") if path.is_file() and str(built).encode() in path.read_bytes()]


def test_a_temporary_corpus_goes_with_its_object() -> None:
    corpus = Corpus.build(many(5))
    path = corpus.path
    assert path.exists()
    del corpus
    assert not path.exists()


def test_an_output_that_exists_is_refused_unless_forced(built: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    first = Corpus.build(many(20), out=out)
    with pytest.raises(InputError, match=r"exists already$"):
        Corpus.build(many(30), out=out)
    assert Corpus.load(out).fingerprint == first.fingerprint
    assert Corpus.build(many(30), out=out, force=True).fingerprint != first.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from many(10)
        raise InputError("broken", "file", 3)

    with pytest.raises(InputError, match="broken"):
        Corpus.build(broken(), out=tmp_path / "data")
    assert list(tmp_path.iterdir()) == []
    for documents, message in (([], "no documents"), ([Document("a", [])], "no training document has an event")):
        with pytest.raises(InputError, match=message):
            Corpus.build(train=documents, out=tmp_path / "data")
    with pytest.raises(RevupError, match="give either documents, or train"):
        Corpus.build(many(3), train=many(3), out=tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_a_build_that_is_killed_leaves_nothing_at_the_target(tmp_path: Path) -> None:
    program = f"""
import os, signal
from revup.data.corpus import Corpus
from revup.data.events import Document, Event
def documents():
    yield from (Document(str(n), [Event("p", frame="F")]) for n in range(9000))
    os.kill(os.getpid(), signal.SIGKILL)
Corpus.build(documents(), out={str(tmp_path / "data")!r})
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "data").exists()
    assert Corpus.build(many(20), out=tmp_path / "data").fingerprint  # what it left behind is in nobody's way
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_only_one_at_a_time_may_write(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "data") as folder:
        (folder / "precious").write_text("kept")
        with pytest.raises(RevupError, match="another process is writing it now"):
            Corpus.build(many(3), out=tmp_path / "data")
        assert (folder / "precious").exists()
    assert (tmp_path / "data").is_dir()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be written"):
        Corpus.build(many(3), out=tmp_path / "file" / "data")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


DAMAGE: dict[str, Any] = {
    "no corpus.json": lambda d: (d / "corpus.json").unlink(),
    "corpus.json cut": lambda d: _cut(d / "corpus.json"),
    "corpus.json empty": lambda d: (d / "corpus.json").write_bytes(b""),
    "corpus.json a list": lambda d: (d / "corpus.json").write_text("[1]"),
    "corpus.json of another kind": lambda d: (d / "corpus.json").write_text('{"format": 1}'),
    "corpus.json not text": lambda d: (d / "corpus.json").write_bytes(b"\xff\xfe\x00"),
    "another format": lambda d: _edit(d / "corpus.json", format=99),
    "settings of another kind": lambda d: _edit(d / "corpus.json", settings={"colour": "red", "split": [1, 0, 0]}),
    "rows missing": lambda d: _edit(d / "corpus.json", rows={}),
    "words cut": lambda d: _cut(d / "vocabulary.txt"),
    "words of something else": lambda d: (d / "vocabulary.txt").write_text("x\n" * 400),
    "no lemmas": lambda d: (d / "lemmas.txt").unlink(),
    "frames cut": lambda d: _cut(d / "frames.txt"),
    "tokens cut": lambda d: _cut(d / "train" / "tokens.npy"),
    "tokens empty": lambda d: (d / "train" / "tokens.npy").write_bytes(b""),
    "tokens not numpy": lambda d: (d / "train" / "tokens.npy").write_bytes(b"hello there" * 50),
    "keys missing": lambda d: (d / "valid" / "keys.npy").unlink(),
    "a split missing": lambda d: shutil.rmtree(d / "test"),
    "a split too short": lambda d: np.save(d / "test" / "lengths.npy", np.ones(1, np.int32)),
    "a wrong shape": lambda d: np.save(d / "test" / "reference.npy", np.load(d / "test" / "reference.npy")[:, :2]),
    "a wrong width": lambda d: np.save(d / "test" / "knowledge_weights.npy", np.load(d / "test" / "confidence.npy")),
    "text for numbers": lambda d: np.save(d / "test" / "lengths.npy", np.load(d / "test" / "lengths.npy").astype("U8")),
    "objects for numbers": lambda d: np.save(
        d / "test" / "lengths.npy", np.load(d / "test" / "lengths.npy").astype(object), allow_pickle=True
    ),
    "vectors of something else": lambda d: (
        np.save(d / "vectors.npy", np.ones((3, 2))),
        np.save(d / "vectors_found.npy", np.ones(3, bool)),
    ),
    "vectors by half": lambda d: np.save(d / "vectors.npy", np.ones((3, 2))),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_datasets_are_one_clear_error(built: Path, tmp_path: Path, damage: str) -> None:
    copy = tmp_path / "data"
    shutil.copytree(built, copy)
    DAMAGE[damage](copy)
    with pytest.raises(InputError) as error:
        Corpus.load(copy)
    assert str(copy) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_dataset_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path, message in (
        (tmp_path / "none", "not a dataset directory: corpus.json is missing"),
        (tmp_path, "corpus.json is missing"),
        (tmp_path / "file", "not a dataset directory"),
    ):
        with pytest.raises(InputError, match=message):
            Corpus.load(path)


def test_a_damaged_chunk_says_so(tmp_path: Path) -> None:
    path = tmp_path / "chunk.npz"
    encode(many(3), "train", 5, "framed").save(path)
    assert Chunk.load(path).ids == ["d0", "d1", "d2"]
    _cut(path)
    with pytest.raises(InputError, match="a damaged piece"):
        load_arrays(path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("window", "some", "window: expected one of framed, first, all"),
        ("duplicates", "maybe", "duplicates: expected drop or keep"),
        ("events", 0, "events: expected 1 or more"),
        ("vocabulary", 5, "vocabulary: expected 6 or more"),
        ("split", (0.5, 0.5, 0.5), "split: expected three shares that sum to 1"),
        ("split", (0.0, 0.5, 0.5), "split: expected three shares"),
        ("split", (float("nan"), 0.5, 0.5), "split: expected three shares"),
    ],
)
def test_settings_are_checked(name: str, value: Any, message: str) -> None:
    with pytest.raises(RevupError, match=message):
        Settings(**{name: value})


def test_unknown_names(built: Path) -> None:
    with pytest.raises(RevupError, match="unknown split 'dev'"):
        Corpus.load(built).split("dev")
    with pytest.raises(RevupError, match="unknown window"):
        encode(many(2), "train", 5, "none")


# ---- batches ---------------------------------------------------------------------------------------------


def rows_of(batches: list[Any]) -> list[tuple[int, ...]]:
    return [tuple(row) for batch in batches for row in batch.tokens.tolist()]


@pytest.mark.parametrize("shard", [None, 50, 64, 1000])
def test_an_epoch_holds_every_row_once_and_follows_from_seed_and_number(built: Path, shard: int | None) -> None:
    split = Corpus.load(built).split("train")
    everything = sorted(tuple(row.ravel().tolist()) for row in split.arrays["tokens"])
    batches = Batches(split, Observation(0.5, 0.2, 1), 32, shard_rows=shard)
    first = list(batches.epoch(3, seed=7))
    assert sorted(rows_of(first)) == everything
    assert len(first) == len(batches)
    assert sum(batch.documents for batch in first) == len(split)
    again = Batches(split, Observation(0.5, 0.2, 1), 32, shard_rows=shard).epoch(3, seed=7)
    for one, two in zip(first, again, strict=True):
        for name in ("tokens", "mask", "frames", "weights", "observed", "confidence", "reference"):
            assert torch.equal(getattr(one, name), getattr(two, name))
    assert rows_of(list(batches.epoch(4, seed=7))) != rows_of(first)
    assert rows_of(list(batches.epoch(3, seed=8))) != rows_of(first)
    assert rows_of(list(batches.ordered())) == [tuple(row.ravel().tolist()) for row in split.arrays["tokens"]]


def test_what_is_seen_does_not_depend_on_shards(built: Path) -> None:
    split = Corpus.load(built).split("train")
    whole = next(Batches(split, Observation(0.5, 0.5, 1), 10_000).ordered())
    parts = list(Batches(split, Observation(0.5, 0.5, 1), 16, shard_rows=50).ordered())
    for name in ("frames", "weights", "observed", "confidence", "reference"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))
    assert sum(part.observed_events for part in parts) == whole.observed_events == int(whole.observed.sum())
    assert sum(part.events for part in parts) == split.events


@pytest.mark.parametrize("start", [0, 1, 5, 9])
def test_an_epoch_goes_on_from_any_batch(built: Path, start: int) -> None:
    split = Corpus.load(built).split("train")
    batches = Batches(split, Observation(), 32, shard_rows=100)
    whole = list(batches.epoch(0, seed=1))
    rest = list(batches.epoch(0, seed=1, start=start))
    assert rows_of(rest) == rows_of(whole[start:])
    assert list(batches.epoch(0, seed=1, start=len(whole))) == []


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_processes_part_each_batch_among_them(built: Path, processes: int) -> None:
    split = Corpus.load(built).split("train")
    whole = list(Batches(split, Observation(), 50).epoch(0, seed=1))
    parts = [
        list(Batches(split, Observation(), 50, rank=rank, processes=processes).epoch(0, seed=1))
        for rank in range(processes)
    ]
    for batch, *shares in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat([share.tokens for share in shares]), batch.tokens)
        assert {(share.documents, share.events, share.observed_events) for share in shares} == {
            (batch.documents, batch.events, batch.observed_events)
        }


def test_an_empty_split_says_so() -> None:
    corpus = Corpus.build(train=many(3))
    assert len(corpus.split("valid")) == 0
    assert corpus.split("valid").ids == []
    with pytest.raises(RevupError, match="the valid split is empty"):
        Batches(corpus.split("valid"), Observation(), 4)


# ---- new documents in an old vocabulary ------------------------------------------------------------------


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


def test_encoding_anew_gives_what_the_corpus_holds(built: Path) -> None:
    corpus = Corpus.load(built)
    split = corpus.split("valid")
    documents = {document.id: document for document in many(400)}
    new = encode_documents([documents[i] for i in split.ids], corpus.vocabulary, corpus.frames, corpus.events, "framed")
    for name in Split.NAMES:
        np.testing.assert_array_equal(new.arrays[name], split.arrays[name])
    assert isinstance(Vocabulary(["a"]).lemmas, list)


def test_loading_needs_no_network_or_code(built: Path) -> None:
    """Everything on disk is text or a plain array."""
    for path in built.rglob("*"):
        if path.suffix == ".npy":
            assert np.load(path, allow_pickle=False).dtype.kind in "iufb"
        elif path.is_file():
            path.read_text("utf-8")
    assert os.path.getsize(built / "statistics.json") > 0
