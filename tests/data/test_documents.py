"""Documents as Python callers give them: dicts, one alone, missing values of pandas, wrong types."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from revup.data.documents import as_documents
from revup.data.events import Document, Event
from revup.errors import InputError, RevupError

NAN = math.nan


def test_dicts_and_documents_may_be_mixed() -> None:
    given = [{"id": "a", "events": [{"pred": "left", "note": 1}], "source": "x"}, Document("b", [Event("said")])]
    first, second = as_documents(given)
    assert first == Document("a", [Event("left", extra={"note": 1})], {"source": "x"})
    assert second is given[1]


def test_one_document_is_a_list_of_one() -> None:
    assert list(as_documents(Document("a", [Event("left")]))) == [Document("a", [Event("left")])]
    assert list(as_documents({"events": [{"pred": "left"}]})) == [Document("documents:1", [Event("left")])]


def test_documents_are_taken_one_by_one() -> None:
    stream = as_documents(iter([Document("a", []), 3]))  # type: ignore[list-item]
    assert next(stream).id == "a"


@pytest.mark.parametrize("nan", [NAN, np.float32("nan"), np.float64("nan"), np.datetime64("NaT")])
def test_nan_is_a_missing_value(nan: Any) -> None:
    bare = Document("a", [Event("left")])
    event = {"pred": "left", "subj": nan, "frame": nan, "confidence": nan, "lemma": None, "note": nan}
    assert list(as_documents({"id": "a", "events": [event], "source": nan})) == [bare]
    assert list(as_documents(Document("a", [Event("left", subj=nan, frame=nan, frames={"A": nan})]))) == [bare]
    assert next(as_documents({"id": nan, "events": [{"pred": "left"}]})).id == "documents:1"


def test_pandas_rows_have_missing_values() -> None:
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame({"pred": ["left", "said"], "frame": ["Departing", NAN], "confidence": [0.5, NAN]})
    events = rows.to_dict("records")
    events[0] |= {"x": 1, "time": pandas.NaT}
    events[1]["x"] = pandas.NA
    (document,) = as_documents({"id": 7, "events": events})
    assert document.id == "7"
    assert document.events == [Event("left", frame="Departing", confidence=0.5, extra={"x": 1}), Event("said")]


def test_numbers_of_numpy_are_numbers() -> None:
    event = {"pred": np.str_("left"), "frames": {"A": np.float32(0.5)}, "confidence": np.int64(1), "at": np.arange(2)}
    (document,) = as_documents({"id": np.int64(3), "events": np.array([event])})
    assert document == Document("3", [Event("left", frames={"A": 0.5}, confidence=1.0, extra={"at": [0, 1]})])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("docs.jsonl", "found a str: revup.read opens a file"),
        (Path("docs.jsonl"), r"found a \w*Path: revup.read opens a file"),
        (None, "found None"),
        (3, "found an int"),
        ([Document("a", []), Event("left")], "found an Event as number 2"),
        ([["left", "he"]], "found a list as number 1"),
    ],
)
def test_wrong_type_says_what_is_expected(given: Any, message: str) -> None:
    with pytest.raises(RevupError, match=r"expected documents \(revup.Document or dicts such as .*" + message):
        list(as_documents(given))


def test_table_is_named_with_the_function_that_reads_it() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(RevupError, match=r"found a DataFrame: revup\.from_table"):
        list(as_documents(pandas.DataFrame({"pred": ["left"]})))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pred": "left"}, "document 1: events: expected a list of events, found nothing"),
        ({"events": {"pred": "left"}}, "document 1: events: expected a list of events, found an object"),
        ([{"events": []}, {"events": ["left"]}], r"document 2: events\[0\]: expected an object with 'pred'"),
        ({"events": [{"pred": "left", "frame": 3}]}, r"events\[0\].frame: expected text or null, found the number 3"),
        (Document("a", [Event(None)]), r"document 1: events\[0\].pred: expected the predicate as text, found nothing"),  # type: ignore[arg-type]
        (Document("a", [Event("left", obj=["x"])]), r"events\[0\].obj: expected text or null, found a list"),  # type: ignore[arg-type]
        (Document("a", None), "document 1: events: expected a list of events"),  # type: ignore[arg-type]
    ],
)
def test_wrong_field_is_named(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(as_documents(given))


def test_written_documents_are_valid_json(tmp_path: Path) -> None:
    given = [Document("a", [Event("left", frame=NAN)]), {"id": "b", "events": [{"pred": "said", "note": NAN}]}]  # type: ignore[arg-type]
    assert revup.write(given, tmp_path / "x.jsonl") == 2
    assert list(revup.read(tmp_path / "x.jsonl")) == [Document("a", [Event("left")]), Document("b", [Event("said")])]


def test_corpus_of_dicts_with_nan_is_that_of_documents() -> None:
    bare = [
        {"id": str(n), "events": [{"pred": f"p{n % 7}", "frame": f"F{n % 3}"}, {"pred": "left"}]} for n in range(60)
    ]
    with_nan = [{**d, "events": [{"subj": NAN, "frame": NAN, **event} for event in d["events"]]} for d in bare]
    plain = revup.Corpus.build(bare, events=2)
    assert revup.Corpus.build(with_nan, events=2).fingerprint == plain.fingerprint
    assert plain.frames == ["F0", "F1", "F2"]


def test_blank_frame_and_predicate_are_refused() -> None:
    for event, field in ((Event("x", frame=" "), "frame"), (Event(" "), "pred")):
        with pytest.raises(InputError, match=rf"document 1: events\[0\]\.{field}: .* found (blank|empty) text"):
            list(as_documents([Document("a", [event])]))


def test_unknown_setting_of_a_corpus_is_named() -> None:
    documents = [Document("d", [Event("a")])]
    with pytest.raises(RevupError, match="no setting 'evnts'; did you mean events"):
        revup.Corpus.build(documents, evnts=5)
    with pytest.raises(RevupError, match="no setting 'colour': one of events, window"):
        revup.Corpus.build(documents, colour=5)
