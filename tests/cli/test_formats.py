"""Every input format through every verb that reads documents; `text` is in tests/integrations and tests/serving."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from revup import cli
from revup.data.readers import FORMATS
from revup.errors import InputError
from samples import ITEM, annotated, as_bytes, framenet_at, fulltext, jury, put, release, released, sentence

DOCUMENT = {"id": "a", "events": [{"pred": "arrested", "subj": "police", "frame": "Arrest"}]}
TEXT = "police arrested"
TREE = ("1\tPolice\tpolice\tNOUN\tNN\t_\t2\tnsubj\t_\t_", "2\tarrested\tarrest\tVERB\tVBD\t_\t0\troot\t_\t_")
SESAME = (
    "1\tpolice\t_\tpolice\tx\tNNS\t0\t_\t_\t_\t_\t_\t_\t_\tS-Authorities",
    "2\tarrested\t_\tarrested\tx\tVBD\t0\t_\t_\t_\t_\t_\tarrest.v\tArrest\tO",
)
HANLP = {"tok": ["police", "arrested"], "srl": [[["police", "ARG0", 0, 1], ["arrested", "PRED", 1, 2]]]}
ALLEN = {"words": TEXT.split(), "verbs": [{"verb": "arrested", "tags": ["B-ARG0", "B-V"]}]}
OMNI = {"text": TEXT, "events": [{"type": "Arrest", "trigger": "arrested", "offset": [7, 15]}]}
FST = {"sentence": TEXT, "frames": [{"name": "Arrest", "trigger_location": 7, "frame_elements": []}]}


def lines(path: Path, *rows: Any) -> Path:
    return put(path, *map(json.dumps, rows))


def table(path: Path) -> Path:
    cli.run(["convert", str(lines(path.with_suffix(".jsonl"), DOCUMENT)), "--out", str(path)])
    return path


def comm(path: Path) -> Path:
    path.write_bytes(as_bytes(jury()))
    return path


def framenet(path: Path) -> Path:
    arrest = sentence("police/nns arrested/vvd", lambda text: annotated("arrest.v", "Arrest", text, ["arrested"]))
    return framenet_at(path, fulltext(arrest))


def tuples(path: Path) -> Path:
    put(path.with_name("frames"), "Arrest")
    return put(path, "arrested police _NULL_ _NULL_")


# format: what writes a sample, and whether it says the frame Arrest (concrete's says others)
SAMPLES: dict[str, tuple[Callable[[Path], Path], bool]] = {
    "jsonl": (lambda path: lines(path, DOCUMENT), True),
    "released": (lambda path: release(path, {"abstract": [released("arrest", frame="http://framenet/Arrest")]}), True),
    "tuples": (tuples, True),
    "cloze": (lambda path: put(path, ITEM), False),
    "concrete": (comm, False),
    "conllu": (lambda path: put(path, *TREE, ""), False),
    "framenet": (framenet, True),
    "csv": (lambda path: table(path.with_suffix(".csv")), True),
    "parquet": (lambda path: table(path.with_suffix(".parquet")), True),
    "frame-semantic-transformer": (lambda path: lines(path, FST), True),
    "open-sesame": (lambda path: put(path, *SESAME, ""), True),
    "hanlp": (lambda path: lines(path, HANLP), False),
    "allennlp": (lambda path: lines(path, ALLEN), False),
    "omnievent": (lambda path: lines(path, OMNI), True),
}


def test_every_format_has_a_sample() -> None:
    assert {*SAMPLES, "text"} == {*FORMATS}


@pytest.mark.parametrize("format", SAMPLES)
def test_verbs_take_every_format(
    format: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if format == "parquet":
        pytest.importorskip("pyarrow")
    maker, labelled = SAMPLES[format]
    path = maker(tmp_path / "sample")
    options = [str(path), "--format", format, *(["--frames", str(tmp_path / "frames")] if format == "tuples" else [])]
    documents = tmp_path / "documents.jsonl"
    cli.run(["convert", *options, "--out", str(documents)])
    cli.run(["predict", str(trained), *options, "--out", str(tmp_path / "predicted.jsonl")])
    assert list(revup.read(tmp_path / "predicted.jsonl")) == list(revup.predict(trained, revup.read(documents)))
    cli.run(["embed", str(trained), *options, "--out", str(tmp_path / "x.npz")])
    events = sum(len(document.events) for document in revup.read(documents))
    with np.load(tmp_path / "x.npz") as arrays:
        assert len(arrays["events"]) == events
    capsys.readouterr()
    cli.run(["suggest", str(trained), *options, "--out", str(tmp_path / "next.jsonl")])
    assert f"of {events} events" in capsys.readouterr().out
    if labelled:
        cli.run(["audit", str(trained), *options, "--out", str(tmp_path / "issues.jsonl")])
        said = capsys.readouterr().out
        assert f"1 labels of {events} events" in said
        assert said.endswith(f"revup review {tmp_path}/issues.jsonl{'' if path.is_dir() else f' {path}'}\n")
        assert [row["given"] for row in map(json.loads, (tmp_path / "issues.jsonl").open())][-1] == "Arrest"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".conllu", ".jsonl"])
def test_format_follows_from_the_name(suffix: str, packed: bool, tmp_path: Path) -> None:
    """`prepare` reads a file as every other verb does, beside one of another format."""
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"sample{suffix}"
    if suffix == ".conllu":
        put(path, *TREE, "")
    elif suffix == ".jsonl":
        lines(path, DOCUMENT)
    else:
        table(path)
    if packed:
        path = put(path.with_name(f"{path.name}.gz"))
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
    other = lines(tmp_path / "other.jsonl", {"id": "b", "events": [{"pred": "left", "frame": "Departing"}]})
    cli.run(["prepare", "--train", str(path), "--train", str(other), "--out", str(tmp_path / "data")])
    assert revup.Corpus.load(tmp_path / "data").vocabulary.words[5:] == ["arrested", "left", "police"]
    cli.run(["convert", str(path), "--out", str(tmp_path / "copy.jsonl")])
    assert [event.pred for document in revup.read(tmp_path / "copy.jsonl") for event in document.events] == ["arrested"]


def test_unknown_name_that_is_no_json_asks_for_the_format(tmp_path: Path) -> None:
    path = put(tmp_path / "events.xml", "<events/>")
    with pytest.raises(InputError, match=r"events.xml: line 1: not valid JSON.*; --format says what a .xml file holds"):
        cli.run(["prepare", str(path), "--out", str(tmp_path / "data")])
