"""`revup predict`: abstention, input formats, tables, and documents that arrive one by one."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import revup
from failing import fails
from revup import cli
from revup.errors import InputError


def test_at_least_empties_predictions_and_reports_accuracy(
    trained: Path, documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["predict", str(trained), str(documents)])
    before = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    best = sorted(event["predicted"][0]["probability"] for line in before for event in line["events"])
    limit = best[4]
    cli.run(["predict", str(trained), str(documents), "--at-least", str(limit)])
    found = capsys.readouterr()
    kept = 0
    for one, other in zip(before, map(json.loads, found.out.splitlines()), strict=True):
        for event, left in zip(one["events"], other["events"], strict=True):
            sure = event["predicted"][0]["probability"] > limit - 1e-6
            assert left["predicted"] in (event["predicted"], []) if sure else left["predicted"] == []
            kept += bool(left["predicted"])
    assert found.err.startswith(f"kept {kept} of 8 predictions with a probability of at least {limit:g}; expected accu")
    assert "labels of the validation split" in found.err


@pytest.mark.parametrize("text", ["1.5", "-0.1", "nan", "often"])
def test_at_least_must_be_a_probability(trained: Path, documents: Path, text: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["predict", str(trained), str(documents), f"--at-least={text}"])
    assert stopped.value.code == 2


# ---- input -----------------------------------------------------------------------------------------------


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def flat(labelled: str) -> list[tuple[str, int, int, str, float]]:
    """The predictions of JSON Lines as rows."""
    return [
        (document["id"], index, rank, each["frame"], each["probability"])
        for document in map(json.loads, labelled.splitlines())
        for index, event in enumerate(document["events"])
        for rank, each in enumerate(event["predicted"], 1)
    ]


def test_csv_with_other_column_names_gives_the_same_predictions(
    trained: Path, documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["predict", str(trained), str(documents)])
    expected = flat(capsys.readouterr().out)
    table = tmp_path / "stories.csv"
    cli.run(["convert", str(documents), "--out", str(table)])
    table.write_text(table.read_text().replace("document,pred,subj,", "story,verb,agent,", 1))
    columns = "document=story,pred=verb,subj=agent"
    cli.run(["predict", str(trained), str(table), "--format", "csv", "--columns", columns])
    assert flat(capsys.readouterr().out) == expected
    cli.run(["predict", str(trained), str(table), "--columns", columns])  # the format by the name
    assert flat(capsys.readouterr().out) == expected
    cli.run(["embed", str(trained), str(table), "--columns", columns, "--out", str(tmp_path / "x.npz")])
    assert (tmp_path / "x.npz").exists()


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "parquet"])
def test_table_holds_the_predictions_of_the_documents(
    trained: Path, documents: Path, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / f"t.{suffix}", tmp_path / "labelled.jsonl"
    cli.run(["predict", str(trained), str(documents), "--top", "2", "--table", str(table), "--out", str(out)])
    assert capsys.readouterr().out == ""
    expected = flat(out.read_text())
    assert len(expected) == 16
    arrow = pytest.importorskip("pyarrow")
    if suffix == "parquet":
        from pyarrow import parquet

        read = parquet.read_table(table)
    else:
        from pyarrow import csv as tables

        read = tables.read_csv(table, parse_options=tables.ParseOptions(delimiter="\t" if suffix == "tsv" else ","))
    names = ["document", "event", "rank", "frame", "probability"]
    assert list(zip(*(read[name].to_pylist() for name in names), strict=True)) == expected
    model = revup.load(trained)
    flat_table = model.predict_table(revup.read(documents), top=2)
    assert isinstance(flat_table, arrow.Table)
    assert list(zip(*(flat_table[name].to_pylist() for name in names), strict=True)) == expected


def test_table_alone_writes_no_documents(
    trained: Path, documents: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["predict", str(trained), str(documents), "--top", "1", "--table", "-"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "document,event,pred,rank,frame,probability,known"
    assert len(lines) == 9
    assert lines[1].startswith("a,0,arrested,1,")
    table = tmp_path / "t.csv"
    cli.run(["predict", str(trained), str(documents), "--at-least", "1", "--table", str(table)])
    assert [(row["document"], row["event"], row["frame"]) for row in rows_of(table)][:2] == [
        ("a", "0", ""),
        ("b", "0", ""),
    ]
    capsys.readouterr()
    assert "exists already" in fails(["predict", str(trained), str(documents), "--table", str(table)], capsys)
    wrong = ["predict", str(trained), str(documents), "--table", str(tmp_path / "t.xlsx")]
    assert "expected a file whose name ends in .csv" in fails(wrong, capsys)
    both = ["predict", str(trained), str(documents), "--table", "-", "--out", "-"]
    assert "can't both be standard output" in fails(both, capsys)


# ---- standard input --------------------------------------------------------------------------------------


def revup_process(*arguments: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-m", "revup", *arguments], stdin=pipe, stdout=pipe, stderr=pipe)


def test_documents_from_a_pipe_are_answered_as_they_come(trained: Path, documents: Path) -> None:
    whole = subprocess.run(
        [sys.executable, "-m", "revup", "predict", str(trained), str(documents)], capture_output=True
    )
    expected = whole.stdout.splitlines(keepends=True)
    with revup_process("predict", str(trained), "-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line, answer in zip(documents.read_bytes().splitlines(keepends=True), expected, strict=True):
            process.stdin.write(line)
            process.stdin.flush()  # and it stays open
            assert process.stdout.readline() == answer
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_a_crowd_from_a_pipe_gives_the_bytes_of_the_file(trained: Path, documents: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    rows = [json.loads(line) for line in documents.read_text().splitlines()]
    for number in range(700):
        row = rows[number % 2]
        rows.append({**row, "id": f"{row['id']}{number}", "events": row["events"][: number % 6 + 1]})
    many.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "revup", "predict", str(trained)]
    whole = subprocess.run([*command, str(many)], capture_output=True, check=True).stdout
    assert subprocess.run([*command, "-"], input=many.read_bytes(), capture_output=True, check=True).stdout == whole


def test_bad_line_from_a_pipe_is_named_after_the_answers_before_it(trained: Path, documents: Path) -> None:
    given = documents.read_bytes() + b"{\n" + documents.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "revup", "predict", str(trained), "-"], input=given, capture_output=True
    )
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr.startswith(b"revup: error: <stdin>: line 3: not valid JSON")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_waiting_predict_at_once(trained: Path, documents: Path, number: int) -> None:
    with revup_process("predict", str(trained), "-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(documents.read_bytes().splitlines(keepends=True)[0])
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert process.stderr.read().decode().startswith("revup: stopped")


def test_closed_output_ends_predict(trained: Path, documents: Path) -> None:
    with revup_process("predict", str(trained), "-") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        line = documents.read_bytes().splitlines(keepends=True)[0]
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(line)
        process.stdin.flush()
        assert process.wait(20) == 1
        assert process.stderr.read() == b""


def test_skipped_lines_are_counted_in_constant_memory() -> None:
    from revup.cli.options import Skipped

    bad = Skipped()
    for number in range(1000):
        bad.add(InputError("wrong", "docs.jsonl", number + 1))
    assert (bad.count, bad.first) == (1000, "docs.jsonl: line 1: wrong")
    assert not any(isinstance(value, (list, dict)) for value in vars(bad).values())


def test_workers_of_one_process_are_ignored_with_a_note(
    trained: Path, documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["predict", str(trained), str(documents)])
    plain = capsys.readouterr()
    cli.run(["predict", str(trained), str(documents), "--workers", "2"])
    several = capsys.readouterr()
    assert several.out == plain.out
    assert "revup: note: --workers is for --engine ray" in several.err
    assert "note" not in plain.err
