"""Format "tuples": documents known by hand, parallel frames, wrong lines."""

from __future__ import annotations

import gzip
from pathlib import Path

from revup.data.events import Document, Event
from revup.data.readers import read
from revup.errors import InputError
from samples import (
    complaint,
    put,
)


def test_tuples_documents(tmp_path: Path) -> None:
    path = put(tmp_path / "t.txt", "sought titles day in <TUP> led _NULL_ mark _NULL_", "", "go he _NULL_ to <TUP>")
    documents = list(read(path, format="tuples"))
    assert documents == [
        Document("t.txt:1", [Event("sought", "titles", "day", "in"), Event("led", None, "mark", None)]),
        Document("t.txt:3", [Event("go", "he", None, "to")]),
    ]


def test_tuples_with_frames(tmp_path: Path) -> None:
    path = put(tmp_path / "t.txt", "a b c d <TUP> e f g h", "", "i j k l")
    frames = put(tmp_path / "f.txt", "Motion __NOFRAME__", "", "Statement")
    documents = list(read(path, format="tuples", frames=str(frames)))
    assert [[event.frame for event in document.events] for document in documents] == [["Motion", None], ["Statement"]]
    packed = tmp_path / "f.txt.gz"
    packed.write_bytes(gzip.compress(b"Motion <TUP> __NOFRAME__\n\nStatement"))
    assert list(read(path, format="tuples", frames=str(packed))) == documents


def test_tuples_and_frames_of_different_lengths_are_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "t.txt", "a b c d", "e f g h <TUP> i j k l", "m n o p")
    frames = put(tmp_path / "f.txt", "A", "B", "C", "D", "E")
    errors: list[InputError] = []
    assert len(list(read(path, "tuples", errors.append, frames=str(frames)))) == 2
    assert [str(error).replace(f"{tmp_path}/", "") for error in errors] == [
        "t.txt: line 2: 2 events, but 1 frames in f.txt",
        "f.txt: line 4: t.txt ends before this line: the two files need the same number of lines",
    ]
    put(tmp_path / "f.txt", "A", "B C")
    found = complaint(path, "tuples", frames=str(frames))
    assert found == "t.txt: line 3: f.txt ends before this line: the two files need the same number of lines"
    frames.write_bytes(b"A\n\xff\nC\n")
    assert complaint(path, "tuples", frames=str(frames)).startswith("f.txt: line 2: not UTF-8")
    assert complaint(path, "tuples", frames=str(tmp_path / "no")) == "no: no such file"
    assert complaint(path, "tuples", frames=str(path)) == "t.txt: the events and their frames can't be one file"


def test_wrong_tuple_is_named(tmp_path: Path) -> None:
    assert complaint(put(tmp_path / "t.txt", "a b c d <TUP> e f g"), "tuples") == (
        "t.txt: line 1: events[1]: expected four words, 'pred subj obj mod', found 3: 'e f g'"
    )
    assert complaint(put(tmp_path / "t.txt", "a b c d <TUP> <TUP> e f g h"), "tuples") == (
        "t.txt: line 1: events[1]: expected four words, 'pred subj obj mod', found 0"
    )
    assert complaint(put(tmp_path / "t.txt", "_NULL_ b c d"), "tuples") == (
        "t.txt: line 1: events[0]: expected the predicate, found _NULL_"
    )
    (tmp_path / "t.txt").write_bytes(b"a b c d\n\xff\n")
    errors: list[InputError] = []
    assert len(list(read(tmp_path / "t.txt", "tuples", errors.append))) == 1
    assert errors[0].line == 2
