"""Labelling and embedding on a Ray cluster of two nodes: the bytes of one process, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import revup
from clusters import workers
from revup.cli import run
from revup.data import chunks
from revup.data.corpus import Corpus
from revup.data.events import Document, write
from revup.errors import InputError, OutputExistsError, RevupError
from revup.inference import cluster
from revup.inference.cluster import Job, Part, Task

pytest.importorskip("ray", reason="the extra 'cluster' is not installed")

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 20)


@pytest.fixture(scope="module")
def trained(tiny_corpus: Corpus, tiny_network: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    revup.train(tiny_corpus, epsilon=0.5, out=out, device="cpu", network=tiny_network, training={"epochs": 1})
    return out


@pytest.fixture(scope="module")
def source(tiny_documents: list[Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """130 documents, among them one of many windows."""
    path = tmp_path_factory.mktemp("source") / "docs.jsonl"
    long = Document("long", [event for document in tiny_documents[:30] for event in document.events])
    write([*tiny_documents[:70], long, *tiny_documents[70:129]], path)
    return path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_predict_and_embed_write_the_bytes_of_one_process(
    trained: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(source.read_text("utf-8").replace("\n", "\nnonsense\n", 3), "utf-8")
    for engine in ("local", "ray"):
        more = ["--engine", engine, "--device", "cpu"]
        out = str(tmp_path / f"{engine}.jsonl.gz")
        table = str(tmp_path / f"{engine}.csv")
        run(["predict", str(trained), str(source), "--out", out, "--table", table, "--top", "3", *more])
        sure = ["--at-least", "0.6", "--revise", "--skip-bad", "--out", str(tmp_path / f"{engine}.jsonl")]
        run(["predict", str(trained), str(bad), *sure, *more])
        run(["embed", str(trained), str(source), "--out", str(tmp_path / f"{engine}.npz"), *more])
    for kind in ("jsonl.gz", "csv", "jsonl", "npz"):
        assert (tmp_path / f"ray.{kind}").read_bytes() == (tmp_path / f"local.{kind}").read_bytes(), kind
    said = [line for line in capsys.readouterr().err.splitlines() if not line.endswith(" documents")]
    assert said[: len(said) // 2] == said[len(said) // 2 :]  # the same notes, and the same accuracy to expect
    assert any("skipped 3 bad lines" in line for line in said)
    assert not [name for name in files(tmp_path) if name.endswith(".partial")]


def test_killed_workers_change_nothing(ray_cluster: Any, trained: Path, source: Path, tmp_path: Path) -> None:
    killed = []

    def kill(documents: int) -> None:
        for process in workers(ray_cluster, "label_records")[: 2 - len(killed)]:
            killed.append(process.pid)
            process.kill()

    report = revup.predict_on_cluster(trained, source, tmp_path / "ray.jsonl", progress=kill)
    assert killed
    assert (report["documents"], report["set_aside"]) == (130, [])
    write(revup.predict(trained, revup.read(source)), tmp_path / "local.jsonl")
    assert (tmp_path / "ray.jsonl").read_bytes() == (tmp_path / "local.jsonl").read_bytes()


DRIVER = """
import os, signal, sys
import revup
from revup.data import chunks
chunks.CHUNK_RECORDS = 20
run, source, out, limit = sys.argv[1:]
def progress(documents):
    if documents >= int(limit):
        os.kill(os.getpid(), signal.SIGKILL)
revup.embed_on_cluster(run, source, out, progress=progress)
"""


def killed(trained: Path, source: Path, out: Path) -> None:
    """A process of its own that is killed after 60 documents."""
    words = [sys.executable, "-c", DRIVER, str(trained), str(source), str(out), "60"]
    stopped = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert stopped.returncode == -signal.SIGKILL, stopped.stderr


def interrupted(trained: Path, source: Path, out: Path) -> None:
    """Ctrl-C after 60 documents."""

    def progress(documents: int) -> None:
        if documents >= 60:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        revup.embed_on_cluster(trained, source, out, progress=progress)


@pytest.mark.parametrize("stopped", [killed, interrupted])
def test_stopped_driver_loses_and_repeats_nothing(stopped: Any, trained: Path, source: Path, tmp_path: Path) -> None:
    out, work = tmp_path / "ray.npz", tmp_path / ".ray.npz.partial"
    stopped(trained, source, out)
    assert not out.exists()
    finished = {path.name: path.stat().st_mtime_ns for path in work.glob("*.part")}
    assert len(finished) == 3
    seen: list[int] = []
    again: dict[str, int] = {}

    def progress(documents: int) -> None:
        seen.append(documents)
        again.update({path.name: path.stat().st_mtime_ns for path in work.glob("*.part")})

    revup.embed_on_cluster(trained, source, out, progress=progress)
    assert seen == [80, 100, 120, 130]
    assert finished.items() <= again.items()  # what was there was not computed again
    revup.embed(trained, revup.read(source)).save(tmp_path / "local.npz")
    assert out.read_bytes() == (tmp_path / "local.npz").read_bytes()
    assert files(tmp_path) == ["local.npz", "ray.npz"]


def test_poison_document_is_set_aside_and_reported(
    trained: Path,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def label_or_die(job: Job, task: Task) -> Part:  # workers get it by value: they can't import a test module
        if any('"poison"' in record.data for record in task.records):
            os._exit(7)
        from revup.inference.cluster import label_records

        return label_records(job, task)

    monkeypatch.setattr(cluster, "label_records", label_or_die)
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 2)  # every half that is tried costs a process
    lines = source.read_text("utf-8").splitlines(keepends=True)
    poison = lines[41].replace(json.dumps(json.loads(lines[41])["id"]), '"poison"', 1)
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text("".join([*lines[:41], poison, *lines[41:]]), "utf-8")
    out = tmp_path / "ray.jsonl"
    run(["predict", str(trained), str(mixed), "--out", str(out), "--engine", "ray", "--device", "cpu"])
    write(revup.predict(trained, revup.read(source)), tmp_path / "local.jsonl")
    assert out.read_bytes() == (tmp_path / "local.jsonl").read_bytes()
    (aside,) = [json.loads(line) for line in (tmp_path / "ray.jsonl.set-aside.jsonl").read_text("utf-8").splitlines()]
    assert (aside["line"], aside["text"]) == (42, poison)
    assert f"set aside 1 that ended their worker, in {out}.set-aside.jsonl: {mixed}: line 42" in capsys.readouterr().err


def test_errors_are_those_of_one_process(trained: Path, source: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text(source.read_text("utf-8") + '{"events": [{"subj": "x"}]}\n', "utf-8")
    with pytest.raises(InputError, match=r"bad\.jsonl: line 131: events\[0\]\.pred"):
        revup.predict_on_cluster(trained, bad, tmp_path / "out.jsonl")
    assert files(tmp_path) == ["bad.jsonl"]
    with pytest.raises(RevupError, match="needs files to write to"):
        run(["predict", str(trained), str(source), "--engine", "ray"])
    bad.write_text("")
    with pytest.raises(InputError, match="no documents in it"):
        revup.embed_on_cluster(trained, bad, tmp_path / "out.npz")
    with pytest.raises(OutputExistsError):
        revup.embed_on_cluster(trained, source, bad)
