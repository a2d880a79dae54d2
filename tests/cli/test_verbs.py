"""The other verbs: what they read, write and print."""

from __future__ import annotations

import gc
import gzip
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from failing import fails
from revup import cli


def test_prepare_prints_statistics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "docs.jsonl"
    rows = [
        {"id": f"d{i}", "events": [{"pred": f"p{i % 7}", "frame": "A" if i % 2 else "B"}, {"pred": "x"}]}
        for i in range(60)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cli.run(["prepare", str(path), "--out", str(tmp_path / "d"), "--keep-duplicates", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {k: found[k] for k in ("documents", "events", "events_with_frame", "frames", "skipped")} == {
        "documents": 60,
        "events": 120,
        "events_with_frame": 60,
        "frames": 2,
        "skipped": 0,
    }
    assert "exists already" in fails(["prepare", str(path), "--out", str(tmp_path / "d")], capsys)


def test_evaluate_prints_json(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["evaluate", str(trained), "--json"])
    scores = json.loads(capsys.readouterr().out)
    for name in ("model", "split", "documents", "events", "perplexity", "perplexity_hard", "accuracy", "macro_f1"):
        assert scores[name] is not None
    assert scores["documents"] == 40
    assert scores["optimum"]["accuracy"] > 0.5
    cli.run(["evaluate", str(trained), "--split", "valid", "--sampled", "--samples", "2"])
    assert "exact optimum" in capsys.readouterr().out


def test_run_and_data_move_together(data: Path, trained: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(data.parent, tmp_path / "moved")
    cli.run(["evaluate", str(tmp_path / "moved" / "run"), "--json"])


def test_predict_returns_the_same_documents(
    trained: Path, documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["predict", str(trained), str(documents), "--top", "3"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(line["events"]) for line in lines] == [1, 7]
    assert lines[0]["source"] == "x"
    assert lines[0]["events"][0]["note"] == 7
    assert lines[0]["events"][0]["frame"] == "Arrest"
    for line in lines:
        for event in line["events"]:
            shares = [item["probability"] for item in event["predicted"]]
            assert len(shares) == 3
            assert shares == sorted(shares, reverse=True)
            assert 0 < sum(shares) <= 1.0001
    out = tmp_path / "labelled.jsonl.gz"
    cli.run(["predict", str(trained), str(documents), "--out", str(out)])
    with gzip.open(out, "rt") as stream:
        assert len(stream.readlines()) == 2


def test_input_frames_matter_only_with_revise(
    trained: Path, documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def predicted(path: Path, *options: str) -> list[object]:
        cli.run(["predict", str(trained), str(path), *options])
        return [[e["predicted"] for e in json.loads(line)["events"]] for line in capsys.readouterr().out.splitlines()]

    other = tmp_path / "other.jsonl"
    other.write_text(documents.read_text().replace('"frame": "Arrest"', '"frame": "Election"'))
    assert predicted(documents) == predicted(other)
    assert predicted(documents, "--revise") != predicted(other, "--revise")


def test_predict_reads_standard_input(trained: Path, documents: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    stream = io.TextIOWrapper(io.BytesIO(documents.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    cli.run(["predict", str(trained), "-", "--top", "1"])
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{\n", "line 1: not valid JSON"),
        ("[]\n", "line 1: expected an object"),
        ('{"events": []}\n', "events: a document needs at least one event"),
        ('{"events": [{"subj": "x"}]}\n', "events[0].pred"),
        ('{"events": [{"pred": "x", "subj": 3}]}\n', "events[0].subj"),
        ('{"events": [{"pred": "x", "frames": {"A": -1}}]}\n', "events[0].frames.A"),
        ('{"events": [{"pred": ' + "[" * 100_000 + "}]}\n", "line 1: not valid JSON: nested too deep"),
        ("", "no documents"),
    ],
)
def test_invalid_document_names_line_and_field(
    text: str, expected: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    message = fails(["predict", str(trained), str(path), "--out", str(tmp_path / "o.jsonl")], capsys)
    assert expected in message
    assert str(path) in message
    assert not (tmp_path / "o.jsonl").exists()


def test_skip_bad_counts_lines(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text('{\n{"events": [{"pred": "won"}]}\n')
    cli.run(["predict", str(trained), str(path), "--skip-bad"])
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert "skipped 1" in captured.err


def test_garbage_collection_is_restored(trained: Path, documents: Path) -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    cli.run(["predict", str(trained), str(documents)])
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_embed_writes_plain_arrays(trained: Path, documents: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.npz"
    cli.run(["embed", str(trained), str(documents), "--out", str(out)])
    with np.load(out, allow_pickle=False) as arrays:
        assert arrays["documents"].shape[0] == 2
        assert arrays["events"].shape[0] == 8
        assert arrays["document_ids"].tolist() == ["a", "b"]
        assert arrays["event_document"].tolist() == [0] + [1] * 7
        assert arrays["event_index"].tolist() == [0, *range(7)]
        np.testing.assert_allclose(arrays["events"][1:].mean(0), arrays["documents"][1], rtol=1e-5)


def test_predict_reads_other_formats(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "news.conllu").write_text(
        "# newdoc id = n\n"
        "1\tPolice\tpolice\tNOUN\t_\t_\t2\tnsubj\t_\t_\n"
        "2\tarrested\tarrest\tVERB\t_\t_\t0\troot\t_\t_\n\n"
    )
    cli.run(["predict", str(trained), str(tmp_path / "news.conllu"), "--format", "conllu", "--words", "lemma"])
    (event,) = json.loads(capsys.readouterr().out)["events"]
    assert (event["pred"], event["subj"]) == ("arrested", "police")
    assert event["predicted"]


def test_evaluate_writes_a_figure_once(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    figure = str(tmp_path / "reliability.svg")
    cli.run(["evaluate", str(trained), "--figure", figure])
    assert "<svg" in Path(figure).read_text("utf-8")
    assert "exists already (--force replaces it)" in fails(["evaluate", str(trained), "--figure", figure], capsys)
    assert "expected a name that ends in" in fails(["evaluate", str(trained), "--figure", "x.doc"], capsys)
