"""The verbs as a user meets them: what they write, what they print, how they fail."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from revup import cli

TINY = ["--network.embedding", "12", "--network.hidden", "12", "--network.latent", "6", "--network.frame", "12"]
QUICK = [*TINY, "--training.epochs", "1", "--training.batch-size", "50", "--device", "cpu"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "data"
    cli.run(["world", "--frames", "10", "--documents", "120", "--held-out", "40", "--out", str(out)])
    return out


@pytest.fixture(scope="module")
def trained(data: Path) -> Path:
    out = data.parent / "run"
    cli.run(["train", str(data), "--out", str(out), "--epsilon", "0.6", "--eta", "0.1", *QUICK])
    return out


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    path = tmp_path / "docs.jsonl"
    rows = [
        {"id": "a", "events": [{"pred": "arrested", "subj": "police", "frame": "Arrest", "note": 7}], "source": "x"},
        {"id": "b", "events": [{"pred": f"did{i}"} for i in range(7)]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command; it must exit with 2 and one line on standard error."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    captured = capsys.readouterr()
    assert exit_.value.code == 2
    assert captured.err.startswith("revup: error: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    return captured.err


def test_version_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith("revup ")
    cli.run([])
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in cli.VERBS)


@pytest.mark.parametrize("verb", sorted(cli.VERBS))
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.run([verb, "--help"])
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    assert "example" in shown
    assert f"revup {verb}" in shown


def test_train_evaluate_as_json(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["evaluate", str(trained), "--json"])
    scores = json.loads(capsys.readouterr().out)
    for name in ("model", "split", "documents", "events", "perplexity", "perplexity_hard", "accuracy", "macro_f1"):
        assert scores[name] is not None
    assert scores["documents"] == 40
    assert scores["optimum"]["accuracy"] > 0.5
    cli.run(["evaluate", str(trained), "--split", "valid", "--sampled", "--samples", "2"])
    assert "exact optimum" in capsys.readouterr().out


def test_a_run_holds_what_it_promises(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()}
    assert {"config.json", "model.safetensors", "vocabulary.txt", "frames.txt", "metrics.jsonl"} <= names
    config = json.loads((trained / "config.json").read_text())
    assert config["observation"] == {"epsilon": 0.6, "eta": 0.1, "seed": 0}
    assert config["network"]["hidden"] == 12


def test_who_gave_no_frames_is_told_that_theirs_are_made_up(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["train", str(data), "--out", str(tmp_path / "run"), "--epsilon", "0", *QUICK])
    assert "no label is observed: 10 clusters of predicates stand for frames" in capsys.readouterr().out


def test_run_and_data_move_together(data: Path, trained: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(data.parent, tmp_path / "moved")
    cli.run(["evaluate", str(tmp_path / "moved" / "run"), "--json"])


def test_a_setting_of_another_model_is_noted(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["train", str(data), "--out", str(tmp_path / "t"), "--model", "tagger", "--objective.alpha", "1", *QUICK])
    assert "objective.alpha is not used by tagger" in capsys.readouterr().err


def test_resume_starts_then_does_nothing(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", str(data), "--out", str(tmp_path / "r"), "--resume", *QUICK]
    cli.run(command)
    before = (tmp_path / "r" / "model.safetensors").read_bytes()
    cli.run([*command, "--json"])
    assert (tmp_path / "r" / "model.safetensors").read_bytes() == before


def test_python_s_search_for_unreachable_objects_is_as_it_was(trained: Path, documents: Path) -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    cli.run(["predict", str(trained), str(documents)])
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


def test_predict_gives_the_same_documents_back(
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


def test_frames_in_the_input_matter_only_with_revise(
    trained: Path, documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def predicted(path: Path, *options: str) -> list[object]:
        cli.run(["predict", str(trained), str(path), *options])
        return [[e["predicted"] for e in json.loads(line)["events"]] for line in capsys.readouterr().out.splitlines()]

    other = tmp_path / "other.jsonl"
    other.write_text(documents.read_text().replace('"frame": "Arrest"', '"frame": "Election"'))
    assert predicted(documents) == predicted(other)
    assert predicted(documents, "--revise") != predicted(other, "--revise")


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


def test_standard_input(trained: Path, documents: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
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
        ("", "no documents"),
    ],
)
def test_bad_documents(
    text: str, expected: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    message = fails(["predict", str(trained), str(path), "--out", str(tmp_path / "o.jsonl")], capsys)
    assert expected in message
    assert str(path) in message
    assert not (tmp_path / "o.jsonl").exists()


def test_skip_bad_counts(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text('{\n{"events": [{"pred": "won"}]}\n')
    cli.run(["predict", str(trained), str(path), "--skip-bad"])
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert "skipped 1" in captured.err


def test_bad_usage(data: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "never")
    cases = {
        "unknown verb": ["dance"],
        "--out": ["train", str(data)],
        "epsilon": ["train", str(data), "--out", out, "--epsilon", "1.5"],
        "eta": ["train", str(data), "--out", out, "--eta", "nan"],
        "exists already": ["train", str(data), "--out", str(trained)],
        "corpus.json is missing": ["train", str(tmp_path), "--out", out],
        "config.json is missing": ["evaluate", str(tmp_path)],
        "no preset": ["train", str(data), "--out", out, "--preset", "magic"],
        "network.size": ["train", str(data), "--out", out, "--network.size", "huge"],
        "--top": ["predict", str(trained), "x.jsonl", "--top", "0"],
        "no such file": ["predict", str(trained), str(tmp_path / "absent.jsonl")],
        "a directory": ["predict", str(trained), str(tmp_path)],
        "expected three": ["prepare", "x.jsonl", "--out", out, "--split", "1,2"],
    }
    for expected, arguments in cases.items():
        assert expected in fails(arguments, capsys), arguments
    assert not Path(out).exists()


def test_prepare_prints_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_full_disk_is_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "revup", "--version"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("revup: error: ")
    assert "Traceback" not in done.stderr


def test_ctrl_c_exits_with_130_and_can_be_resumed(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    command = [sys.executable, "-m", "revup", "train", str(data), "--out", str(out), *TINY, "--device", "cpu"]
    command += ["--training.epochs", "2000", "--training.patience", "100000", "--training.checkpoint-minutes", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as process:
        limit = time.monotonic() + 120
        while not (out / "checkpoint.safetensors").exists() and time.monotonic() < limit:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert (out / "checkpoint.safetensors").exists()
    assert not [path for path in out.iterdir() if "partial" in path.name]
