"""Format "cloze": items and their true chains, wrong lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from paths import DATA as SHARED
from revup.data.events import Document, Event
from revup.data.readers import read
from revup.data.readers.cloze import items
from revup.errors import InputError
from samples import (
    ITEM,
    complaint,
    put,
)

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the real corpora (shared/data) are not here")


def test_cloze_items_and_documents(tmp_path: Path) -> None:
    path = put(tmp_path / "c.txt", ITEM, "")
    true = [Event("a", "b", "c", "d"), Event("e", "f", "g")]
    assert list(read(path, format="cloze")) == [Document("c.txt:1", true)]
    (item,) = items(path)
    assert (item.id, item.true) == ("c.txt:1", true)
    assert item.candidates == [true, *([true[0], Event(f"x{n}", "y", "z")] for n in range(5))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a b c d <DIST> a b c d", "expected 6 sequences separated by <DIST>, found 2"),
        (
            ITEM.replace("a b c d <TUP> ", ""),
            "sequences[0]: expected a first event and its continuation, found 1 events",
        ),
        (ITEM.replace("x2 y z _NULL_", ""), "sequences[3]: expected the events of a continuation, found none"),
        (ITEM.replace("x2 y z", "x2 y"), "sequences[3].events[0]: expected four words, 'pred subj obj mod', found 3"),
    ],
)
def test_wrong_cloze_item_is_named(tmp_path: Path, line: str, expected: str) -> None:
    path = put(tmp_path / "c.txt", ITEM, line, ITEM)
    assert complaint(path, "cloze").startswith(f"c.txt: line 2: {expected}")
    with pytest.raises(InputError, match="line 2"):
        list(items(path))
    errors: list[InputError] = []
    assert [item.id for item in items(path, errors.append)] == ["c.txt:1", "c.txt:3"]
    path.write_bytes(b"\xff\n" + ITEM.encode())
    assert len(list(items(path, errors.append))) == 1
    assert [error.line for error in errors] == [2, 1]


@needs_shared
def test_real_cloze_items() -> None:
    path = SHARED / "nyt_cloze" / "inverse_cloze.txt.gz"
    documents = list(read(path, format="cloze"))
    assert len(documents) == 2_000
    assert sum(len(document.events) for document in documents) == 12_000
    assert not any(event.frame for document in documents for event in document.events)
    for document, item in zip(documents, items(path), strict=True):
        assert (item.id, item.true) == (document.id, document.events)
        assert [len(chain) for chain in item.candidates] == [6] * 6
        assert all(chain[0] == item.true[0] for chain in item.candidates)
