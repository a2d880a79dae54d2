"""Texts: found events are labelled as `revup predict --format text` labels them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import revup
from asking import ask
from revup import cli
from revup.inference.trained import Trained
from revup.serving.server import running

TEXT = "Police arrested men.\nMen left.\n\nJudges freed men."


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline without weights whose rules know three verbs."""
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed")
    made = spacy.blank("en")
    ruler = made.add_pipe("attribute_ruler")
    ruler.add([[{"IS_ALPHA": True}]], {"TAG": "NN", "POS": "NOUN", "DEP": "dep"})
    for verb in ("arrested", "left", "freed"):
        ruler.add([[{"LOWER": verb}]], {"TAG": "VBD", "POS": "VERB", "DEP": "ROOT", "LEMMA": verb})
    made.add_pipe("sentencizer")
    folder = tmp_path_factory.mktemp("pipeline") / "rules"
    made.to_disk(folder)
    return folder


@pytest.fixture(scope="module")
def reader(model: Trained, pipeline: Path) -> Iterator[str]:
    with running(model, spacy_model=str(pipeline), max_text=200) as address:
        yield address


def test_text_is_labelled_as_by_the_command(reader: str, run_path: Path, pipeline: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    options = ["--format", "text", "--document", "file", "--spacy-model", str(pipeline), "--device", "cpu"]
    cli.run(["predict", str(run_path), str(tmp_path / "text"), "--out", str(tmp_path / "out.jsonl"), *options])
    (expected,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    answer = ask(reader, "/predict", {"text": TEXT})
    assert answer.data["documents"] == [expected]
    assert [event["pred"] for event in expected["events"]] == ["arrested", "left", "freed"]
    assert len(ask(reader, "/embed", {"text": TEXT}).data["vectors"]["events"]) == 3
    assert ask(reader, "/info").data["text"] is True


def test_server_component_table_and_command_give_equal_answers(
    reader: str, run_path: Path, pipeline: Path, tmp_path: Path
) -> None:
    import spacy

    pytest.importorskip("pyarrow")
    (tmp_path / "news.txt").write_text(" ".join(TEXT.split()) + "\n")
    source = ["--format", "text", "--spacy-model", str(pipeline)]
    cli.run(["predict", str(run_path), str(tmp_path / "news.txt"), *source, "--out", str(tmp_path / "out.jsonl")])
    (command,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())

    answer = ask(reader, "/predict", {"text": " ".join(TEXT.split())})
    assert answer.data["documents"][0]["events"] == command["events"]

    nlp = spacy.load(pipeline)
    nlp.add_pipe("revup", config={"model": str(run_path)})
    assert nlp(" ".join(TEXT.split()))._.events == command["events"]

    cli.run(["convert", str(tmp_path / "news.txt"), *source, "--out", str(tmp_path / "events.parquet")])
    from pyarrow import parquet

    documents = revup.from_table(parquet.read_table(tmp_path / "events.parquet"))
    rows = revup.load(run_path).predict_table(documents).to_pylist()
    assert [(row["event"], row["frame"], row["probability"]) for row in rows] == [
        (index, each["frame"], each["probability"])
        for index, event in enumerate(command["events"])
        for each in event["predicted"]
    ]


@pytest.mark.parametrize(
    ("text", "status", "sentence"),
    [
        (5, 422, "text: expected text, found the number 5"),
        (" \n ", 422, "text: expected text, found none"),
        ("Nothing happens here.", 422, "text: no event was found in it"),
        ("a" * 201, 413, "text: expected at most 200 characters, found 201"),
    ],
)
def test_text_that_cannot_be_read_is_refused(reader: str, text: object, status: int, sentence: str) -> None:
    answer = ask(reader, "/predict", {"text": text})
    assert (answer.status, answer.data["detail"]) == (status, sentence)


def test_documents_are_read_beside_texts(reader: str) -> None:
    assert ask(reader, "/predict", {"documents": [{"events": [{"pred": "left"}]}]}).status == 200
