"""The JSON Lines form of documents: read, written, and wrong fields named."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revup.data import events
from revup.data.events import Document, Event, document_from_json, document_from_line, document_to_json, write
from revup.data.readers import read
from revup.errors import InputError, RevupError

EXAMPLE = (
    '{"id": "nyt-17", "events": [{"pred": "convicted", "subj": "jury", "obj": "man", "mod": "of", "frame": "Verdict"},'
    ' {"pred": "sentenced", "frames": {"Sentencing": 0.9, "Becoming": 0.1}, "confidence": 0.5, "lemma": "sentence",'
    ' "text": "the judge sentenced him", "tense": "past"}], "source": {"page": 1}}'
)


def test_documented_example_is_read() -> None:
    document = document_from_line(EXAMPLE)
    assert document.id == "nyt-17"
    assert document.events[0] == Event("convicted", "jury", "man", "of", "Verdict")
    second = document.events[1]
    assert (second.subj, second.obj, second.mod, second.frame) == (None, None, None, None)
    assert second.frames == {"Sentencing": 0.9, "Becoming": 0.1}
    assert (second.confidence, second.lemma, second.text) == (0.5, "sentence", "the judge sentenced him")
    assert second.extra == {"tense": "past"}
    assert document.extra == {"source": {"page": 1}}


word = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(lambda text: text.strip())
weights = st.dictionaries(word, st.floats(0.001, 1e6), min_size=1, max_size=3)
json_value = st.none() | st.booleans() | st.integers(-9, 9) | word | st.lists(word, max_size=2)
unknown = st.dictionaries(word.map(lambda key: f"my {key}"), json_value, min_size=1, max_size=2)
maybe = st.none() | word
event = st.builds(
    Event,
    word,
    maybe,
    maybe,
    maybe,
    frame=maybe,
    frames=st.none() | weights,
    confidence=st.none() | st.floats(0, 10),
    lemma=maybe,
    text=maybe,
    extra=st.none() | unknown,
)
document = st.builds(Document, word, st.lists(event, min_size=1, max_size=3), st.none() | unknown)


@given(document)
def test_written_document_is_read_back(document: Document) -> None:
    text = json.dumps(document_to_json(document), ensure_ascii=False)
    assert document_from_line(text) == document


@given(st.lists(document, max_size=4))
def test_documents_survive_files(tmp_path_factory: pytest.TempPathFactory, documents: list[Document]) -> None:
    for name in ("documents.jsonl", "documents.jsonl.gz"):
        path = tmp_path_factory.mktemp("files") / name
        assert write(documents, path) == len(documents)
        assert list(read(path)) == documents


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not valid JSON: Expecting property name enclosed in double quotes at column 2"),
        ("[1]", "expected an object with 'events', found a list"),
        ('{"events": {}}', "events: expected a list of events, found an object"),
        ('{"id": 1}', "events: expected a list of events, found nothing"),
        ('{"events": []}', "events: a document needs at least one event"),
        ('{"id": [], "events": []}', "id: expected text, found a list"),
        ('{"events": [{"pred": "a"}, 3]}', "events[1]: expected an object with 'pred', found the number 3"),
        ('{"events": [{}]}', "events[0].pred: expected the predicate as text, found nothing"),
        ('{"events": [{"pred": " "}]}', "events[0].pred: expected the predicate as text, found empty text"),
        ('{"events": [{"pred": true}]}', "events[0].pred: expected the predicate as text, found true"),
        ('{"events": [{"pred": "a", "obj": ["b"]}]}', "events[0].obj: expected text or null, found a list"),
        ('{"events": [{"pred": "a", "frame": 7}]}', "events[0].frame: expected text or null, found the number 7"),
        ('{"events": [{"pred": "a", "frames": "F"}]}', "events[0].frames: expected an object of frame: weight, found"),
        ('{"events": [{"pred": "a", "frames": {"F": -1}}]}', "events[0].frames.F: expected a weight of 0 or more"),
        ('{"events": [{"pred": "a", "frames": {"F": null}}]}', "events[0].frames.F: expected a weight of 0 or more"),
        ('{"events": [{"pred": "a", "frames": {"F": 0}}]}', "events[0].frames: expected weights with a positive"),
        (
            '{"events": [{"pred": "a", "frames": {"F": 1e308, "G": 1.5e308}}]}',
            "events[0].frames: expected weights with a positive, finite sum",
        ),
        (
            '{"events": [{"pred": "a", "candidates": []}]}',
            "events[0].candidates: expected at least one frame, found none",
        ),
        ('{"events": [{"pred": "a", "candidates": "F"}]}', "events[0].candidates: expected a list of frames, found"),
        (
            '{"events": [{"pred": "a", "candidates": ["F", 3]}]}',
            "events[0].candidates[1]: expected the name of a frame",
        ),
        ('{"events": [{"pred": "a", "candidates": {"F": -1}}]}', "events[0].candidates.F: expected a weight of 0 or"),
        ('{"events": [{"pred": "a", "candidates": {}}]}', "events[0].candidates: expected a frame, found none"),
        ('{"events": [{"pred": "a", "sources": ["F"]}]}', "events[0].sources: expected an object of name: what the"),
        (
            '{"events": [{"pred": "a", "sources": {" ": "F"}}]}',
            "events[0].sources: expected the name of a source, found",
        ),
        (
            '{"events": [{"pred": "a", "sources": {"x": 3}}]}',
            "events[0].sources.x: expected a frame, a list of candidates",
        ),
        ('{"events": [{"pred": "a", "sources": {"x": []}}]}', "events[0].sources.x: expected at least one frame"),
        ('{"events": [{"pred": "a", "sources": {"x": {"F": 0}}}]}', "events[0].sources.x: expected weights with a"),
        (
            '{"events": [{"pred": "a", "sources": {"x": {"kind": "vote", "value": "F"}}}]}',
            "events[0].sources.x.kind: expected one of label, candidates, distribution",
        ),
        (
            '{"events": [{"pred": "a", "sources": {"x": {"kind": "label", "value": ["F"]}}}]}',
            "events[0].sources.x.value: expected the name of a frame, found a list",
        ),
        ('{"events": [{"pred": "a", "span": [4, 2]}]}', "events[0].span: expected two whole numbers [start, end)"),
        ('{"events": [{"pred": "a", "pos": 7}]}', "events[0].pos: expected text or null, found the number 7"),
        ('{"events": [{"pred": "a", "confidence": "high"}]}', "events[0].confidence: expected a number of 0 or more"),
        ('{"events": [{"pred": "a", "confidence": 1' + "0" * 400 + "}]}", "events[0].confidence: expected a number"),
        ('{"events": [{"pred": "a", "confidence": NaN}]}', "not valid JSON: NaN is not a JSON number"),
        ('{"events": [{"pred": "a"}], "x": 1e999}', "not valid JSON: 1e999 is too large a number"),
        ('{"events": [{"pred": "a", "confidence": ' + "9" * 5000 + "}]}", "not valid JSON: Exceeds the limit"),
        ('{"events": [{"pred": "\\ud800"}]}', "not valid JSON: half a surrogate pair is no character"),
        ("[" * 100_000, "not valid JSON: nested too deep"),
    ],
)
def test_wrong_field_is_named(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        document_from_line(text, "docs.jsonl", 3)
    assert str(caught.value).startswith(f"docs.jsonl: line 3: {complaint}")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_surrogate_pair_is_a_character() -> None:
    assert document_from_line('{"events": [{"pred": "\\ud83d\\ude00"}]}').events[0].pred == "😀"


def test_ids_and_default_ids() -> None:
    assert document_from_line('{"id": 7, "events": [{"pred": "a"}]}').id == "7"
    assert document_from_line('{"events": [{"pred": "a"}]}', "/some/where/docs.jsonl.gz", 4).id == "docs.jsonl.gz:4"
    assert document_from_line('{"id": null, "events": [{"pred": "a"}]}', "docs.jsonl", 4).id == "docs.jsonl:4"


def test_null_frame_and_empty_distribution_are_absent() -> None:
    (found,) = document_from_json({"events": [{"pred": "a", "frame": None, "frames": {}}]}).events
    assert found == Event("a")


@pytest.mark.parametrize("blank", ["", " ", "\t"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("frame", "{}"),
        ("frames", {"{}": 1}),
        ("candidates", ["{}"]),
        ("candidates", {"{}": 1}),
        ("sources", {"ann": "{}"}),
        ("sources", {"ann": ["A", "{}"]}),
        ("sources", {"ann": {"{}": 1}}),
        ("sources", {"ann": {"kind": "label", "value": "{}"}}),
        ("sources", {"{}": "A"}),
    ],
)
def test_blank_name_is_refused_under_every_key(key: str, value: Any, blank: str) -> None:
    text = json.dumps({"events": [{"pred": "a"}, {"pred": "b", key: value}]}).replace("{}", json.dumps(blank)[1:-1])
    with pytest.raises(InputError, match=rf"docs\.jsonl: line 3: events\[1\]\.{key}.*: expected"):
        document_from_line(text, "docs.jsonl", 3)


# ---- files -----------------------------------------------------------------------------------------------


def test_standard_input_and_output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"events": [{"pred": "a"}]}\n')))
    documents = list(read("-"))
    assert documents[0].id == "<stdin>:1"
    write(documents, "-")
    assert capsys.readouterr().out == '{"id": "<stdin>:1", "events": [{"pred": "a"}]}\n'


def test_equal_documents_are_equal_bytes(tmp_path: Path) -> None:
    documents = [Document("a", [Event("b")])]
    write(documents, tmp_path / "one.jsonl.gz")
    write(documents, tmp_path / "folder" / "two.jsonl.gz")
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "folder" / "two.jsonl.gz").read_bytes()


def test_failed_write_leaves_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write([Document("old", [Event("b")])], path)

    def documents() -> Any:
        yield Document("new", [Event("b")])
        raise RevupError("stopped")

    with pytest.raises(RevupError, match="stopped"):
        write(documents(), path)
    assert [found.id for found in read(path)] == ["old"]
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="exists already"), events.open_output(path, force=False):
        pass


def test_unwritable_output_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be written"):
        write([], tmp_path / "file" / "a.jsonl")
