"""Files to datasets: the same for any number of workers, resumable, nothing left behind by an error."""

from __future__ import annotations

import gzip
import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup.data.prepare as module
from paths import DATA as SHARED
from revup.data import chunks
from revup.data.corpus import Corpus
from revup.data.dataset import Settings
from revup.data.events import Document, Event, write
from revup.data.lexicon import Lexicon
from revup.data.prepare import prepare
from revup.data.readers import Options, read
from revup.data.statistics import render_statistics
from revup.errors import InputError, RevupError, UnfinishedError
from revup.world.world import World

real = pytest.mark.skipif(not SHARED.exists(), reason="the real data in ../shared is not there")
GOOD = '{{"id": "d{0}", "events": [{{"pred": "say{0}", "subj": "man", "frame": "F{1}"}}]}}\n'


def good(count: int, first: int = 0) -> str:
    return "".join(GOOD.format(n, n % 5) for n in range(first, first + count))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documents") / "docs.jsonl.gz"
    write(World(frames=20, seed=3).sample(600), path)
    return path


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 50)


def fingerprint(path: Path) -> str:
    return Corpus.load(path).fingerprint


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- the same dataset by any means -----------------------------------------------------------------------


def test_prepare_equals_corpus_build(documents: Path, tmp_path: Path) -> None:
    found = prepare([str(documents)], tmp_path / "data")
    built = Corpus.build(read(documents))
    corpus = Corpus.load(tmp_path / "data")
    assert corpus.fingerprint == built.fingerprint
    assert (
        {key: found[key] for key in built.statistics}
        == built.statistics
        == {key: corpus.statistics[key] for key in built.statistics}
    )
    assert (found["documents"], found["events"], found["skipped"]) == (600, 3000, 0)
    assert left(tmp_path) == ["data"]


@pytest.mark.usefixtures("small_chunks")
def test_dataset_does_not_depend_on_workers_or_chunk_size(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    one = prepare([documents], tmp_path / "one", progress=done.append)
    two = prepare([documents], tmp_path / "two", workers=2, progress=lambda n: done.append(-n))
    assert one == two
    assert done == [*range(50, 601, 50), *range(-50, -601, -50)]
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 7)
    assert prepare([documents], tmp_path / "three") == one
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "two") == fingerprint(tmp_path / "three")


@pytest.mark.usefixtures("small_chunks", "ray_cluster")
def test_ray_gives_same_dataset_and_errors(documents: Path, tmp_path: Path) -> None:
    one = prepare([documents], tmp_path / "one")
    many = prepare([documents], tmp_path / "many", engine="ray")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(good(120) + "nonsense\n")
    with pytest.raises(InputError, match=r"bad\.jsonl: line 121: not valid JSON"):
        prepare([bad], tmp_path / "none", engine="ray")
    assert one == many
    assert fingerprint(tmp_path / "one") == fingerprint(tmp_path / "many")
    assert left(tmp_path) == ["bad.jsonl", "many", "one"]


def test_missing_extra_is_named(documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RevupError, match=r"the engine 'ray' needs the extra 'cluster': pip install"):
        prepare([documents], tmp_path / "data", engine="ray")
    assert left(tmp_path) == []


def test_workers_do_not_load_torch(documents: Path, tmp_path: Path) -> None:
    program = f"""
import sys
from revup.data.prepare import prepare
prepare([{str(documents)!r}], {str(tmp_path / "data")!r})
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_files_of_each_split(tmp_path: Path) -> None:
    for name, count in (("a", 30), ("b", 20), ("v", 10), ("t", 5)):
        (tmp_path / f"{name}.jsonl").write_text(good(count, ord(name) * 100))
    files = {name: tmp_path / f"{name}.jsonl" for name in "abvt"}
    prepare(out=tmp_path / "data", train=[files["a"], files["b"]], valid=files["v"], test=str(files["t"]))
    corpus = Corpus.load(tmp_path / "data")
    assert [len(split) for split in corpus.splits.values()] == [50, 10, 5]
    assert corpus.split("train").ids[:2] == ["d9700", "d9701"]
    for wrong in ({}, {"valid": files["v"]}, {"files": [files["a"]], "train": files["b"]}):
        with pytest.raises(RevupError, match="give either files"):
            prepare(out=tmp_path / "other", **wrong)


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = good(30).replace('"id": "d3", ', "")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    prepare(["-"], tmp_path / "data", settings=Settings(split=(1, 0, 0)))
    assert Corpus.load(tmp_path / "data").split("train").ids[2:5] == ["d2", "<stdin>:4", "d4"]
    with pytest.raises(RevupError, match="can be read only once"):
        prepare(["-", "-"], tmp_path / "other")


def test_lexicon_is_a_source_beside_labels(tmp_path: Path) -> None:
    (tmp_path / "lexicon.csv").write_text("predicate,frame,weight\nsay,Statement,3\nsay,Telling,1\nleave,Departing,1\n")
    events = [Event("say"), Event("leave", frame="Mine"), Event("sleep")]
    write([Document(str(n), [*events, Event(f"x{n}")]) for n in range(9)], tmp_path / "docs.jsonl")
    for lexicon in (tmp_path / "lexicon.csv", Lexicon.load(tmp_path / "lexicon.csv")):
        out = tmp_path / f"data-{type(lexicon).__name__}"
        settings = Settings(split=(1, 0, 0), window="all")
        found = prepare([tmp_path / "docs.jsonl"], out, lexicon=lexicon, settings=settings)
        corpus = Corpus.load(out)
        assert corpus.frames == ["Departing", "Mine", "Statement", "Telling"]
        assert found["frame_counts"] == {"Mine": 9}
        assert found["agreement"]["pairs"] == [{"sources": ["frame", "lexicon"], "events": 9, "agree": 0.0}]
        entry = corpus.split("train").arrays["entry"][0]
        assert corpus.lexicon is not None
        assert [corpus.lexicon.keys[number][0] if number >= 0 else None for number in entry[:4]] == [
            "say",
            "leave",
            None,
            None,
        ]
    write([Document(str(n), [Event("say"), Event("sleep")]) for n in range(9)], tmp_path / "bare.jsonl")
    found = prepare([tmp_path / "bare.jsonl"], tmp_path / "bare", lexicon=tmp_path / "lexicon.csv")
    assert found["named_frames"]  # windows of the events that the lexicon knows
    assert np.load(tmp_path / "bare" / "train" / "lengths.npy").max() == 1


def test_further_sources_come_from_files_and_frames_are_mapped(tmp_path: Path) -> None:
    documents = [
        Document(str(n), [Event("say", f"s{n}", frame="A"), Event("go", f"g{n}", frame="B")]) for n in range(8)
    ]
    write(documents, tmp_path / "docs.jsonl")
    parser = [
        Document(d.id, [Event("say", frame="A"), Event("go", frames={"B": 0.5, "C": 0.5})]) for d in documents[:6]
    ]
    write(parser, tmp_path / "parser.jsonl")
    (tmp_path / "map.json").write_text('{"A": "Said", "C": null}')
    found = prepare(
        [tmp_path / "docs.jsonl"],
        tmp_path / "data",
        frames_from={"parser": tmp_path / "parser.jsonl"},
        frame_map=tmp_path / "map.json",
        settings=Settings(split=(1, 0, 0)),
        workers=2,
    )
    assert Corpus.load(tmp_path / "data").frames == ["B", "Said"]
    assert found["agreement"]["pairs"] == [{"sources": ["frame", "parser"], "events": 12, "agree": 1.0}]
    write([Document("0", [Event("say", frame="A")])], tmp_path / "short.jsonl")
    with pytest.raises(InputError, match="the source parser has 1 events in the document 0, the document itself 2"):
        prepare([tmp_path / "docs.jsonl"], tmp_path / "no", frames_from={"parser": tmp_path / "short.jsonl"})
    (tmp_path / "bad.json").write_text('{"A": 3}')
    with pytest.raises(InputError, match="expected the name of a frame, or null"):
        prepare([tmp_path / "docs.jsonl"], tmp_path / "no", frame_map=tmp_path / "bad.json")


def test_wrong_lexicon_leaves_nothing_behind(tmp_path: Path) -> None:
    write([Document(str(n), [Event(f"x{n}")]) for n in range(9)], tmp_path / "docs.jsonl")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="expected the columns predicate and frame"):
        prepare([tmp_path / "docs.jsonl"], tmp_path / "none", lexicon=tmp_path / "bad.csv", skip_bad=True)
    assert not (tmp_path / "none").exists()


def test_tuples_with_parallel_frames(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"say{name} he it _NULL_ <TUP> left he _NULL_ to\n" * 3)
        (tmp_path / f"{name}.frames").write_text(f"Said{name} __NOFRAME__\n" * 3)
    texts, frames = ([tmp_path / f"{name}.{kind}" for name in "ab"] for kind in ("txt", "frames"))
    settings = Settings(duplicates="keep", split=(1, 0, 0))
    found = prepare(texts, tmp_path / "both", format="tuples", frames=frames, settings=settings)
    assert found["frame_counts"] == {"Saida": 3, "Saidb": 3}
    options = Options(frames=str(frames[0]))
    one = prepare(texts[:1], tmp_path / "one", format="tuples", options=options, settings=settings)
    assert one["frames"] == 1
    with pytest.raises(RevupError, match="expected a file of frames for each of the 2 files, found 1"):
        prepare(texts, tmp_path / "none", format="tuples", frames=frames[:1])


# ---- errors ----------------------------------------------------------------------------------------------

BAD = '{"id": "x", "events": [{"subj": "he"}]}\n'


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("workers", [1, 2])
def test_first_error_is_raised_and_nothing_remains(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text(good(120) + BAD + good(100, 200) + "worse\n")
    with pytest.raises(InputError) as error:
        prepare([path, tmp_path / "not-there.jsonl"], tmp_path / "data", workers=workers)
    assert str(error.value) == f"{path}: line 121: events[0].pred: expected the predicate as text, found nothing"
    assert left(tmp_path) == ["docs.jsonl"]


@pytest.mark.usefixtures("small_chunks")
def test_skipped_records_are_counted_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl.gz"
    text = good(70) + BAD + BAD.replace("he", "she") + "{\n" + good(40, 100) + "[]\n"
    data = gzip.compress(text.encode() + b'{"id": "\xff"}\n' + os.urandom(30_000).hex().encode())
    path.write_bytes(data[:-5000])
    expected = {
        "events[#].pred: expected the predicate as text, found nothing": 2,
        "expected an object with '…', found a list": 1,
        "not UTF-# text: invalid start byte at byte #": 1,
    }
    for workers in (1, 2):
        found = prepare([path], tmp_path / f"data{workers}", skip_bad=True, workers=workers)
        assert found["documents"] == 110
        assert found["skipped"] == 6
        assert expected.items() <= found["skipped_reasons"].items()
        assert sum(found["skipped_reasons"].values()) == 6
        assert any("damaged" in why for why in found["skipped_reasons"])
        assert len(found["skipped_examples"]) == 5
        assert found["skipped_examples"][0].startswith(f"{path}: line 71: events[0].pred: expected")
        text = render_statistics(found)
        assert "2 × events[#].pred: expected the predicate" in text
        assert f"e.g. {path}: line 71" in text


def test_reasons_beyond_fifty_are_counted_together(tmp_path: Path) -> None:
    path = tmp_path / "docs.jsonl"
    keys = [f"{chr(97 + n // 10)}{chr(97 + n % 10)}" for n in range(60)]
    bad = (f'{{"events": [{{"pred": "p", "frames": {{"{key}": -1}}}}]}}\n' for key in keys)
    path.write_text(good(3) + "".join(bad))
    found = prepare(path, tmp_path / "data", skip_bad=True)
    assert len(found["skipped_reasons"]) == 51
    assert found["skipped_reasons"]["other"] == 10


@pytest.mark.parametrize(
    ("text", "message", "options"),
    [
        ("", "docs.jsonl: no documents", {}),
        ("\n \n", "docs.jsonl: no documents", {}),
        ("x\ny\n", "no documents: all 2 are bad, for example", {"skip_bad": True}),
        (good(3), "unknown format 'xml'", {"format": "xml"}),
        (good(3), "engine: expected one of local, ray, found 'spark'", {"engine": "spark"}),
        (good(3), "workers: expected a number from 1 to 1000, found 0", {"workers": 0}),
        (good(3), "needs a spaCy model", {"format": "text"}),
        (good(3), "no such file", {"vectors": "/nowhere/vectors.txt"}),
        (good(3), "no such file", {"lexicon": "/nowhere/lexicon.csv"}),
        (good(3), "no documents", {"format": "jsonl", "also": ""}),
    ],
)
def test_errors_leave_nothing_behind(tmp_path: Path, text: str, message: str, options: dict[str, Any]) -> None:
    path = tmp_path / "docs.jsonl"
    path.write_text(text)
    also = options.pop("also", None)
    sources: dict[str, Any] = {"files": [path]}
    if also is not None:
        (tmp_path / "valid.jsonl").write_text(also)
        sources = {"train": path, "valid": tmp_path / "valid.jsonl"}
    with pytest.raises(RevupError) as error:
        prepare(out=tmp_path / "data", **sources, **options)
    assert message in str(error.value)
    assert "data" not in left(tmp_path)
    assert ".data.partial" not in left(tmp_path)


def test_missing_files_and_existing_outputs(tmp_path: Path, documents: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        prepare([tmp_path / "none.jsonl"], tmp_path / "data")
    with pytest.raises(InputError, match="found a directory"):
        prepare([tmp_path], tmp_path / "data", skip_bad=True)
    with pytest.raises(RevupError, match="out: expected the directory to write"):
        prepare([documents])
    prepare(str(documents), tmp_path / "data")
    with pytest.raises(InputError, match="exists already"):
        prepare([documents], tmp_path / "data")
    prepare([documents], tmp_path / "data", force=True, settings=Settings(events=2))
    assert Corpus.load(tmp_path / "data").events == 2
    assert left(tmp_path) == ["data"]


# ---- resuming ---------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
import revup.data.prepare as module
from revup.data import chunks
if __name__ == "__main__":
    chunks.CHUNK_RECORDS = 50
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the suite runs in the background
    source, out, workers, limit, how = sys.argv[1:]
    def progress(documents):
        if documents >= int(limit):
            os.kill(os.getpid(), getattr(signal, how))
    module.prepare([source], out, workers=int(workers), progress=progress)
"""


def run_until_killed(
    tmp_path: Path, source: Path, workers: int, how: str = "SIGKILL"
) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(KILLED)
    command = [sys.executable, str(program), str(source), str(tmp_path / "data"), str(workers), "200", how]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("workers", "how"), [(1, "SIGKILL"), (2, "SIGKILL"), (2, "SIGTERM")])
def test_killed_call_resumes_with_missing_chunks(documents: Path, tmp_path: Path, workers: int, how: str) -> None:
    whole = prepare([documents], tmp_path / "whole")
    assert run_until_killed(tmp_path, documents, workers, how).returncode == -getattr(signal, how)
    assert not (tmp_path / "data").exists()
    finished = len(list((tmp_path / ".data.partial").glob("[0-9]*.json")))
    assert 4 <= finished < 12
    done: list[int] = []
    found = prepare([documents], tmp_path / "data", progress=done.append)
    assert len(done) == 12 - finished  # finished chunks are not encoded again
    assert found == whole
    assert fingerprint(tmp_path / "data") == fingerprint(tmp_path / "whole")
    assert left(tmp_path) == ["data", "program.py", "whole"]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("change", ["file", "settings", "version"])
def test_changed_job_starts_over(documents: Path, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "docs.jsonl.gz"
    source.write_bytes(documents.read_bytes())
    run_until_killed(tmp_path, source, 1)
    assert (tmp_path / ".data.partial").exists()
    settings = Settings(events=3) if change == "settings" else Settings()
    if change == "file":
        write(World(frames=20, seed=4).sample(600), source)
    if change == "version":
        monkeypatch.setattr(module, "__version__", "99")
    prepare([source], tmp_path / "data", settings=settings)
    fresh = prepare([source], tmp_path / "fresh", settings=settings)
    assert fingerprint(tmp_path / "data") == fingerprint(tmp_path / "fresh")
    assert fresh["documents"] == 600


def test_ctrl_c_keeps_finished_chunks(documents: Path, tmp_path: Path, small_chunks: None) -> None:
    ended = run_until_killed(tmp_path, documents, 2, "SIGINT")
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr.count("Traceback") == 1  # the parent's own; workers are silent
    assert not (tmp_path / "data").exists()
    assert len(list((tmp_path / ".data.partial").glob("[0-9]*.json"))) >= 4
    assert prepare([documents], tmp_path / "data")["documents"] == 600


@pytest.mark.usefixtures("small_chunks")
def test_dead_worker_is_reported_and_the_call_resumes(documents: Path, tmp_path: Path) -> None:
    def kill(_: int) -> None:
        for worker in multiprocessing.active_children():
            worker.kill()

    with pytest.raises(UnfinishedError, match="a worker process died"):
        prepare([documents], tmp_path / "data", workers=2, progress=kill)
    assert left(tmp_path) == [".data.partial"]
    assert prepare([documents], tmp_path / "data")["documents"] == 600


def test_full_disk_is_reported_and_the_call_resumes(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(np.lib.format, "write_array_header_1_0", full)
        with pytest.raises(UnfinishedError, match="can't be written: No space left on device"):
            prepare([documents], tmp_path / "data")
    assert left(tmp_path) == [".data.partial"]
    encoded: list[int] = []
    assert prepare([documents], tmp_path / "data", progress=encoded.append)["documents"] == 600
    assert not encoded


def test_changed_model_directory_starts_over(tmp_path: Path, documents: Path, small_chunks: None) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_text("1")
    done: list[int] = []
    for _ in range(2):
        run_interrupted(documents, tmp_path / "data", done, spacy_model=str(model))
    assert done == [50, 100, 150, 200, 250]  # interrupted at 200 and, resumed, at once after
    os.utime(model / "weights", ns=(1, 1))
    run_interrupted(documents, tmp_path / "data", done, spacy_model=str(model))
    assert done[5:] == [50, 100, 150, 200]


def run_interrupted(source: Path, out: Path, done: list[int], **choices: Any) -> None:
    def progress(documents: int) -> None:
        done.append(documents)
        if documents >= 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare([source], out, progress=progress, **choices)


def test_settings_and_options_by_name(documents: Path, tmp_path: Path) -> None:
    prepare(documents, tmp_path / "data", events=2, window="all", words="lemma")
    corpus = Corpus.load(tmp_path / "data")
    assert (corpus.settings.events, corpus.settings.window) == (2, "all")
    with pytest.raises(RevupError, match="no setting 'evnets'; did you mean events"):
        prepare(documents, tmp_path / "other", evnets=2)


# ---- real corpora ----------------------------------------------------------------------------------------

COUNTED = {
    "reuters": ((9_503, 678, 703), 139_850, 125_413, 486),
    "maven": ((409, 59, 66), 10_108, 4_864, 158),
    "framenet15": ((49, 5, 8), 5_454, 5_454, 410),
}


@real
@pytest.mark.parametrize("name", COUNTED)
def test_real_corpora_have_documented_sizes(tmp_path: Path, name: str) -> None:
    sizes, events, framed, frames = COUNTED[name]
    files = {split: SHARED / name / f"{split}.jsonl.gz" for split in ("train", "valid", "test")}
    found = prepare(out=tmp_path / "data", **files)
    splits = found["splits"]
    assert tuple(splits[split]["documents"] for split in files) == sizes
    assert (splits["train"]["events"], splits["train"]["events_with_frame"], found["frames"]) == (
        events,
        framed,
        frames,
    )
    assert found["documents"] == sum(sizes)


@real
def test_real_cloze_items_and_trees(tmp_path: Path) -> None:
    cloze = prepare([SHARED / "nyt_cloze" / "inverse_cloze.txt.gz"], tmp_path / "cloze", format="cloze")
    assert (cloze["documents"], cloze["events"], cloze["frames"]) == (2_000, 12_000, 50)
    trees = prepare(
        [SHARED / "conllu" / "ewt-dev.conllu.gz"],
        tmp_path / "trees",
        format="conllu",
        lexicon=SHARED / "lexicons" / "framenet15.csv",
        settings=Settings(window="all"),
    )
    assert trees["documents"] == 318
    assert trees["agreement"]["events"]["lexicon"] / trees["events"] > 0.5
    assert np.load(tmp_path / "trees" / "train" / "lengths.npy").max() == 5
    assert json.loads((tmp_path / "trees" / "corpus.json").read_text())["named_frames"]
