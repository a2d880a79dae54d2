"""Statistics of a corpus against counting by hand, and as text."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from revup.data.corpus import Corpus
from revup.data.events import Document, Event, write
from revup.data.lexicon import Lexicon
from revup.data.prepare import prepare
from revup.data.statistics import ambiguity, notes, render_statistics, table_accuracy
from revup.errors import RevupError
from revup.reporting.statistics_page import statistics_page
from revup.world import World


def test_ambiguity_is_conditional_entropy() -> None:
    pairs = Counter({("a", "X"): 2, ("a", "Y"): 2, ("b", "X"): 4})
    assert ambiguity(pairs) == pytest.approx(0.5)  # one bit for half of the events
    assert ambiguity(Counter()) == 0


def test_table_accuracy_leaves_each_event_out() -> None:
    """Against a table that is built anew without each event in turn."""
    draw = random.Random(3)
    for _ in range(200):
        events = [(draw.choice("abcde"), draw.choice("WXYZ")) for _ in range(draw.randrange(1, 30))]
        right = 0
        for left_out, (pred, frame) in enumerate(events):
            others = events[:left_out] + events[left_out + 1 :]
            overall = Counter(frame for _, frame in others)
            own = Counter(frame for other, frame in others if other == pred) or overall
            ranked = sorted(own, key=lambda name: (own[name], overall[name]))
            unique = [name for name in own if (own[name], overall[name]) == (own[ranked[-1]], overall[ranked[-1]])]
            right += unique == [frame] if own else False
        assert table_accuracy(Counter(events)) == pytest.approx(right / len(events), abs=1e-4)
    assert table_accuracy(Counter()) is None
    assert table_accuracy(Counter({(f"p{n}", f"F{n}"): 1 for n in range(100)})) == 0  # in-sample it would be 1


def test_unused_events_are_counted_and_the_remedy_is_named() -> None:
    """Documents of 6 events, the even ones framed; windows of 2."""
    documents = [
        Document(str(n), [Event(f"p{n}", f"s{i}", frame=None if i % 2 else "X") for i in range(6)]) for n in range(20)
    ]
    documents.append(Document("bare", [Event("q")] * 5))
    expected = {"framed": (125 - 40, "--window all"), "first": (125 - 42, "--window all"), "all": (0, "")}
    for window, (unused, remedy) in expected.items():
        found = Corpus.build(train=documents, events=2, window=window).statistics
        assert (found["events_unused"], found["window"]) == (unused, window)
        assert found["splits"]["train"]["events_unused"] == unused
        lines = [line for line in render_statistics(found).splitlines() if line.startswith("unused")]
        assert [f"{unused} events" in line and remedy in line for line in lines] == [True] * bool(unused)
        said = [note for note in notes(found) if "are not used" in note]
        assert [f"{unused} events" in note and remedy in note for note in said] == [True] * bool(unused)


@pytest.mark.parametrize("framed", [True, False])
def test_documents_of_the_table_add_up(framed: bool) -> None:
    """Of each split: the windows, and why other documents have none."""
    documents = [Document(f"f{n}", [Event(f"p{n}", frame="X" if framed else None)]) for n in range(30)]
    documents += [Document(f"d{n}", documents[0].events) for n in range(3)]
    documents += [Document(f"e{n}", []) for n in range(4)]
    documents += [Document(f"u{n}", [Event(f"q{n}")]) for n in range(5)]
    found = Corpus.build(train=documents, valid=documents[30:], window="framed").statistics["splits"]
    for split, sizes in {"train": (42, 3, 4, 5), "valid": (12, 2, 4, 5)}.items():
        own = found[split]
        other = own["duplicates"], own["documents_without_events"], own["documents_without_frame"]
        assert (own["documents"], *other) == (*sizes[:3], sizes[3] if framed else 0)
        assert own["windows"] + sum(other) == own["documents"]


def test_empty_splits_are_named() -> None:
    documents = [Document(str(n), [Event(f"p{n}", frame="X")]) for n in range(9)]
    assert [note[:18] for note in notes(Corpus.build(train=documents).statistics)] == [
        "the split valid is",
        "the split test is ",
    ]
    full = Corpus.build(train=documents[:5], valid=documents[5:7], test=documents[7:])
    assert notes(full.statistics) == []
    unlabelled = [Document("v", [Event("a")])]
    assert len(notes(Corpus.build(train=documents, valid=unlabelled, test=documents).statistics)) == 1


def test_statistics_equal_counting_by_hand() -> None:
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
    assert found["table_accuracy"] == 0  # without an X of a, Y is as frequent there and more frequent elsewhere
    assert found["events_per_document"] == {"1": 1, "2": 1, "3": 1}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents") / "docs.jsonl.gz"
    write(World(frames=20, seed=3).sample(600), path)
    return path


def test_statistics_as_text_and_page(tmp_path: Path, documents: Path) -> None:
    (tmp_path / "vectors.txt").write_text("man 1 2\nthe 3 4\n")
    found = prepare([documents, documents], tmp_path / "data", vectors=tmp_path / "vectors.txt")
    text = render_statistics(found)
    for expected in ("documents     1,200", "100.0%", "ambiguity", "vectors", "repeated ids  600", "unseen frames"):
        assert expected in text
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    statistics_page(found, tmp_path / "page.html", title="A <corpus>")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("data:image/svg+xml;base64,") == 3
    assert "A &lt;corpus&gt;" in page
    assert 'src="http' not in page


def test_statistics_of_a_corpus_without_frames(tmp_path: Path) -> None:
    write([Document(str(n), [Event("say", f"s{n}")] * (n % 90 + 1)) for n in range(200)], tmp_path / "docs.jsonl")
    found = prepare([tmp_path / "docs.jsonl"], tmp_path / "data")
    text = render_statistics(found)
    assert "none: 50 unnamed classes" in text
    assert "ambiguity" not in text
    assert found["predicate_counts"].keys() == {"say"}
    pytest.importorskip("matplotlib", reason="the extra 'report' is not installed")
    statistics_page(found, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8").count("data:image/svg+xml") == 2


def test_statistics_of_a_corpus_with_a_dictionary_alone(tmp_path: Path) -> None:
    """Windows hold the events that the dictionary has; the table says so, as the arrays do."""
    (tmp_path / "lexicon.csv").write_text("predicate,frame\nleft,Departing\nran,Motion\n")
    said = [Event("left"), Event("sat"), Event("ran")]
    corpus = Corpus.build(
        [Document(str(n), said) for n in range(3)],
        out=tmp_path / "data",
        lexicon=tmp_path / "lexicon.csv",
        split=(1, 0, 0),
        duplicates="keep",
    )
    found = corpus.statistics
    assert len(corpus.split("train")) == found["splits"]["train"]["windows"] == 3
    assert found["events_unused"] == 3
    assert found["splits"]["train"]["documents_without_frame"] == 0
    shown = render_statistics(found)
    assert "not in the dictionary" in shown
    assert "-0.00" not in shown


def test_page_names_missing_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, documents: Path) -> None:
    found = prepare([documents], tmp_path / "data")
    monkeypatch.setattr("revup.reporting.figures.find_spec", lambda name: None)
    with pytest.raises(RevupError, match="needs the extra 'report'"):
        statistics_page(found, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_dictionary_of_other_words_is_noted() -> None:
    documents = [Document(str(n), [Event("robbed", obj=str(n), lemma="rob")]) for n in range(3)]
    for entry, listed in (("rob", 3), ("sing", 0)):
        known = Lexicon({entry: {("Robbery", ""): 1.0}})
        found = Corpus.build(train=documents, valid=documents[:1], test=documents[:1], lexicon=known).statistics
        assert f"dictionary    1 entries; {listed} training events have one" in render_statistics(found)
        assert [note[:33] for note in notes(found)] == ([] if listed else ["the dictionary has no predicate o"])
