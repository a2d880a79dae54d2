"""Side knowledge that makes no sense: one line that names file, line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import revup
from failing import fails
from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.errors import InputError, RevupError

GOOD = {"id": "a", "events": [{"pred": "tried", "frame": "Trial"}]}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sources": {"": "Trial"}}, "sources: expected the name of a source, found an empty one"),
    ({"sources": {" ": "Trial"}}, "sources: expected the name of a source, found an empty one"),
    ({"sources": ["Trial"]}, "sources: expected an object"),
    ({"sources": {"ann": ""}}, "sources.ann: expected the name of a frame"),
    ({"sources": {"ann": []}}, "sources.ann: expected at least one frame, found none"),
    ({"sources": {"ann": {}}}, "sources.ann: expected a frame, found none"),
    ({"sources": {"ann": {"Trial": -1}}}, "sources.ann.Trial: expected a weight of 0 or more"),
    ({"sources": {"ann": {"kind": "vote", "value": "Trial"}}}, "sources.ann.kind: expected one of"),
    ({"sources": {"ann": {"kind": "label", "value": "Trial", "confidence": -1}}}, "sources.ann.confidence: "),
    ({"frames": {"Trial": -0.5, "Verdict": 1.5}}, "frames.Trial: expected a weight of 0 or more"),
    ({"frames": {"Trial": 0, "Verdict": 0}}, "frames: expected weights with a positive, finite sum"),
    ({"frames": {"Trial": 1e308, "Verdict": 1e308}}, "frames: expected weights with a positive, finite sum"),
    ({"frames": {"": 1}}, "frames: expected the names of frames"),
    ({"candidates": []}, "candidates: expected at least one frame, found none"),
    ({"candidates": {}}, "candidates: expected a frame, found none"),
    ({"candidates": ["Trial", ""]}, "candidates[1]: expected the name of a frame"),
    ({"candidates": "Trial"}, "candidates: expected a list of frames"),
]


@pytest.mark.parametrize(("keys", "message"), WRONG)
def test_wrong_keys_are_named(
    keys: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (GOOD, {"events": [{"pred": "tried", **keys}]})))
    found = fails(["prepare", str(path), "--out", str(tmp_path / "data")], capsys)
    assert found.startswith(f"revup: error: {path}: line 2: events[0].{message}")


@pytest.mark.parametrize("value", ["[]", "{}", '["Trial", ""]'])
def test_wrong_cells_of_a_table_are_named(value: str, tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    cell = '"' + value.replace('"', '""') + '"'
    path.write_text(f"document,pred,candidates\nd,tried,\nd,tried,{cell}\n")
    with pytest.raises(InputError, match=r"events\.csv: line 3: column .candidates") as caught:
        list(revup.read(path))
    assert "\n" not in str(caught.value)


def test_empty_cells_of_a_table_are_missing_values(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("document,pred,frame,frames,candidates,sources\nd,tried,,,,\n")
    (document,) = revup.read(path)
    assert document.events == [Event("tried")]


@pytest.mark.parametrize("weight", ["nan", "-1", "inf", "much"])
def test_wrong_weights_of_a_lexicon_are_named(weight: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs, lexicon = tmp_path / "docs.jsonl", tmp_path / "lexicon.csv"
    docs.write_text(json.dumps(GOOD) + "\n")
    lexicon.write_text(f"predicate,frame,weight\ntry,Trial,1\ntry,Verdict,{weight}\n")
    found = fails(["prepare", str(docs), "--lexicon", str(lexicon), "--out", str(tmp_path / "data")], capsys)
    assert found.startswith(
        f"revup: error: {lexicon}: line 3: weight: expected a number of 0 or more, found '{weight}'"
    )


def test_further_source_with_other_events_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs, other = tmp_path / "docs.jsonl", tmp_path / "other.jsonl"
    docs.write_text(json.dumps(GOOD) + "\n")
    other.write_text(json.dumps({**GOOD, "events": GOOD["events"] * 2}) + "\n")
    arguments = ["prepare", str(docs), "--frames-from", f"parser={other}", "--out", str(tmp_path / "data")]
    assert f"{docs}: line 1: the source parser has 2 events" in fails(arguments, capsys)
    nameless = ["prepare", str(docs), "--frames-from", f"={other}", "--out", str(tmp_path / "data")]
    assert "--frames-from: expected NAME=FILE" in fails(nameless, capsys)


# ---- frames that nobody knows --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    documents = [
        Document(f"d{n}", [Event(pred, f"s{n}", frame=frame)])
        for n in range(30)
        for pred, frame in [("tried", ("Trial", "Attempt")[n % 2])]
    ]
    out = tmp_path_factory.mktemp("known") / "run"
    revup.train(Corpus.build(documents), "counts", out=out)
    return out


@pytest.mark.parametrize(
    ("keys", "field", "what"),
    [
        ({"frame": "Tryal"}, "frame", "the frame 'Tryal'"),
        ({"frames": {"X": 0.5, "Y": 0.5}}, "frames", "any of these frames"),
        ({"candidates": ["X"]}, "candidates", "the frame 'X'"),
        ({"frame": "Trial", "sources": {"ann": "X"}}, "sources.ann", "the frame 'X'"),
    ],
)
def test_frame_that_nobody_knows_is_named(
    run: Path, keys: dict[str, Any], field: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "docs.jsonl"
    document = {"id": "x", "events": [{"pred": "tried"}, {"pred": "tried", **keys}]}
    path.write_text("".join(json.dumps(row) + "\n" for row in (GOOD, document)))
    message = f"events[1].{field}: the model does not know {what}"
    assert f"revup: error: {path}: line 2: {message}" in fails(["predict", str(run), str(path), "--revise"], capsys)
    model = revup.load(run)
    with pytest.raises(InputError) as caught:
        model.predict(document, revise=True)
    assert str(caught.value) == f"document x: {message}"
    assert model.predict(document)  # labels are ignored unless asked for
    from revup import cli

    cli.run(["predict", str(run), str(path), "--revise", "--skip-bad"])
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_known_frames_among_unknown_ones_count(run: Path) -> None:
    event = {"pred": "tried", "candidates": ["Trial", "Unheard_of"]}
    (found,) = revup.load(run).predict({"id": "x", "events": [event]}, revise=True)
    assert found[0][0][0] == "Trial"


def test_reviewed_frame_that_nobody_knows_is_named(tmp_path: Path) -> None:
    corpus = Corpus.build([Document(f"d{n}", [Event("tried", f"s{n}", frame="Trial")]) for n in range(5)])
    with pytest.raises(RevupError, match=r"^decisions\.jsonl: frame: the frame 'X' of document d1, event 0 is not in"):
        corpus.with_labels({("d1", 0): "X"}, "decisions.jsonl")
    for labels in ({}, {("other", 0): "Trial"}):
        with pytest.raises(RevupError, match=rf"^decisions\.jsonl: none of its {len(labels)} reviewed labels is of"):
            corpus.with_labels(labels, "decisions.jsonl")


@pytest.mark.parametrize(
    ("lines", "name", "message"),
    [
        ([], "parser", "other.jsonl: no documents in it"),
        ([{"id": "a", "events": [{"pred": "left", "frame": "A"}]}] * 2, "parser", "line 2: id: the document a stands"),
        ([{"id": "z", "events": [{"pred": "left", "frame": "A"}]}], "parser", "other.jsonl: says nothing of any event"),
        ([{"id": "a", "events": [{"pred": "left"}]}], "parser", "other.jsonl: says nothing of any event"),
        ([{"id": "a", "events": [{"pred": "left", "frame": "A"}]}], "frame", "'frame' is the name of another source"),
    ],
)
def test_further_source_that_would_be_lost_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[Any], name: str, message: str
) -> None:
    docs, other = tmp_path / "docs.jsonl", tmp_path / "other.jsonl"
    docs.write_text(json.dumps({"id": "a", "events": [{"pred": "left", "frame": "A"}]}) + "\n")
    other.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ["prepare", str(docs), "--frames-from", f"{name}={other}", "--out", str(tmp_path / "data")]
    assert message in fails(command, capsys)
    assert not (tmp_path / "data").exists()
    twice = [*command, "--frames-from", f"{name}={other}"]
    assert f"the source {name} is given twice" in fails(twice, capsys)
