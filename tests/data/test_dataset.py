"""The dataset directory: written atomically, movable, and refused in one line when it is damaged."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revup.data.corpus import Corpus
from revup.data.dataset import Settings
from revup.data.events import Document
from revup.errors import InputError, RevupError
from revup.io.digests import write_digest
from revup.io.folders import atomic_folder
from samples import many, texts


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "data"
    Corpus.build(many(400), out=folder)
    return folder


def test_dataset_can_be_moved(built: Path, tmp_path: Path) -> None:
    before = Corpus.load(built)
    copy = tmp_path / "elsewhere" / "renamed"
    shutil.copytree(built, copy)
    after = Corpus.load(copy)
    assert after.fingerprint == before.fingerprint
    assert texts(after) == texts(before)
    assert after.settings == Settings(window="framed")
    assert not [path for path in copy.rglob("*") if path.is_file() and str(built).encode() in path.read_bytes()]


def test_temporary_corpus_is_removed_with_its_object() -> None:
    corpus = Corpus.build(many(5))
    path = corpus.path
    assert path.exists()
    del corpus
    assert not path.exists()


def test_existing_output_is_refused_unless_forced(built: Path, tmp_path: Path) -> None:
    out = tmp_path / "data"
    first = Corpus.build(many(20), out=out)
    with pytest.raises(InputError, match=r"exists already$"):
        Corpus.build(many(30), out=out)
    assert Corpus.load(out).fingerprint == first.fingerprint
    assert Corpus.build(many(30), out=out, force=True).fingerprint != first.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from many(10)
        raise InputError("broken", "file", 3)

    with pytest.raises(InputError, match="broken"):
        Corpus.build(broken(), out=tmp_path / "data")
    assert list(tmp_path.iterdir()) == []
    for documents, message in (([], "no documents"), ([Document("a", [])], "no training document has an event")):
        with pytest.raises(InputError, match=message):
            Corpus.build(train=documents, out=tmp_path / "data")
    with pytest.raises(RevupError, match="give either documents, or train"):
        Corpus.build(many(3), train=many(3), out=tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_killed_build_leaves_no_dataset(tmp_path: Path) -> None:
    program = f"""
import os, signal
from revup.data.corpus import Corpus
from revup.data.events import Document, Event
def documents():
    yield from (Document(str(n), [Event("p", frame="F")]) for n in range(9000))
    os.kill(os.getpid(), signal.SIGKILL)
Corpus.build(documents(), out={str(tmp_path / "data")!r})
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "data").exists()
    assert Corpus.build(many(20), out=tmp_path / "data").fingerprint  # what it left behind is in nobody's way
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_only_one_process_may_write_a_dataset(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "data") as folder:
        (folder / "precious").write_text("kept")
        with pytest.raises(RevupError, match="another process is writing it now"):
            Corpus.build(many(3), out=tmp_path / "data")
        assert (folder / "precious").exists()
    assert (tmp_path / "data").is_dir()


def test_unwritable_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be written"):
        Corpus.build(many(3), out=tmp_path / "file" / "data")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def _swap_lines(path: Path) -> None:
    first, second, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([second, first, *rest]))


def _list(path: Path, text: str) -> None:
    """Write a list with a digest that fits, as another program might."""
    path.write_text(text)
    write_digest(path.parent)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no corpus.json": (lambda d: (d / "corpus.json").unlink(), "corpus.json is missing"),
    "corpus.json cut": (lambda d: _cut(d / "corpus.json"), "corpus.json: damaged: not valid JSON"),
    "corpus.json empty": (lambda d: (d / "corpus.json").write_bytes(b""), "not valid JSON"),
    "corpus.json a list": (lambda d: (d / "corpus.json").write_text("[1]"), "expected a JSON object"),
    "corpus.json not text": (lambda d: (d / "corpus.json").write_bytes(b"\xff\xfe\x00"), "not valid JSON"),
    "an older format": (lambda d: _edit(d / "corpus.json", format=2), "found 2: prepare it again with revup prepare"),
    "settings changed": (lambda d: _edit(d / "corpus.json", settings={}), "corpus.json was changed"),
    "statistics changed": (lambda d: _edit(d / "statistics.json", events=1), "statistics.json was changed"),
    "words cut": (lambda d: _cut(d / "vocabulary.txt"), "vocabulary.txt was changed"),
    "two words swapped": (lambda d: _swap_lines(d / "vocabulary.txt"), "vocabulary.txt was changed"),
    "two frames swapped": (lambda d: _swap_lines(d / "frames.txt"), "frames.txt was changed"),
    "two lemmas swapped": (lambda d: _swap_lines(d / "lemmas.txt"), "lemmas.txt was changed"),
    "a word added": (lambda d: (d / "beyond.txt").write_text("more\n"), "beyond.txt was changed"),
    "no lemmas": (lambda d: (d / "lemmas.txt").unlink(), "lemmas.txt is missing"),
    "tokens cut": (lambda d: _cut(d / "train" / "tokens.npy"), "train/tokens.npy was changed"),
    "keys missing": (lambda d: (d / "valid" / "keys.npy").unlink(), "valid/keys.npy is missing"),
    "ids changed": (lambda d: (d / "test" / "ids.jsonl").write_text('"x"\n'), "test/ids.jsonl was changed"),
    "a split missing": (lambda d: shutil.rmtree(d / "test"), "test/.* is missing"),
    "vectors added": (lambda d: np.save(d / "vectors.npy", np.ones((3, 2))), "vectors.npy was added"),
    "no digest": (lambda d: (d / "digest.json").unlink(), "digest.json is missing"),
    "a frame twice": (lambda d: _list(d / "frames.txt", "A\nB\nA\n"), "frames.txt: line 3: 'A' stands there twice"),
    "no frames": (lambda d: _list(d / "frames.txt", ""), "frames.txt: expected a list of 1 or more lines"),
    "frames without end": (lambda d: _list(d / "frames.txt", "A\nB"), "frames.txt: line 2: cut short"),
    "words of something else": (lambda d: _list(d / "vocabulary.txt", "a\nb\nc\nd\ne\nf\n"), "not a vocabulary"),
    "fewer lemmas": (lambda d: _list(d / "lemmas.txt", "a\nb\n"), "lemmas.txt: expected .* lemmas, found 2"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_dataset_is_refused_in_one_line(built: Path, tmp_path: Path, damage: str) -> None:
    change, message = DAMAGE[damage]
    copy = tmp_path / "data"
    shutil.copytree(built, copy)
    change(copy)
    with pytest.raises(InputError, match=message) as error:
        Corpus.load(copy)
    assert str(copy) in str(error.value)
    assert "\n" not in str(error.value)


def _values(path: Path, change: Callable[[Any], Any]) -> None:
    np.save(path, change(np.load(path)))


def _with(value: Any) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array.reshape(-1)[0] = value
        return array

    return change


def _array_of_objects(path: Path) -> None:
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)


ENEMIES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pickle": (lambda d: _array_of_objects(d / "train" / "tokens.npy"), "tokens.npy: damaged: not an array of numbers"),
    "no header": (lambda d: (d / "train" / "read.npy").write_bytes(b"\x93NUMPY\x01\x00\x0e\x00{" * 9), "read.npy: dam"),
    "word": (lambda d: _values(d / "train" / "tokens.npy", _with(10**6)), "tokens.npy: damaged: a value outside"),
    "reading": (lambda d: _values(d / "train" / "read.npy", _with(-1)), "read.npy: damaged: a value outside"),
    "lemma": (lambda d: _values(d / "train" / "lemma.npy", _with(10**6)), "lemma.npy: damaged: a value outside"),
    "entry": (lambda d: _values(d / "train" / "entry.npy", _with(0)), "entry.npy: damaged: a value outside"),
    "frame": (lambda d: _values(d / "train" / "reference.npy", _with(9999)), "reference.npy: damaged: a value outside"),
    "length": (lambda d: _values(d / "train" / "lengths.npy", _with(6)), "lengths.npy: damaged: a value outside"),
    "weight": (
        lambda d: _values(d / "train" / "knowledge_weights.npy", _with(np.nan)),
        "knowledge_weights.npy: damaged: a value outside",
    ),
    "rows": (lambda d: _values(d / "train" / "read.npy", lambda a: a[1:]), "read.npy: damaged: expected int32 of"),
    "type": (
        lambda d: _values(d / "train" / "keys.npy", lambda a: a.astype("<f8")),
        "keys.npy: damaged: expected uint64",
    ),
    "ids": (
        lambda d: (d / "train" / "ids.jsonl").write_text("[1]\n"),
        "ids.jsonl: damaged: not a list of document ids",
    ),
    "link": (lambda d: _linked(d / "train" / "keys.npy"), "keys.npy: can't be read"),
    "settings": (lambda d: _json(d, settings={"split": [1]}), "corpus.json: damaged: 'settings'"),
    "sources": (lambda d: _json(d, sources=[1]), "corpus.json: damaged: 'sources'"),
    "statistics": (lambda d: (d / "statistics.json").write_text("[]"), "statistics.json: damaged"),
}


def _linked(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _json(folder: Path, **changes: Any) -> None:
    data = json.loads((folder / "corpus.json").read_text("utf-8"))
    (folder / "corpus.json").write_text(json.dumps({**data, **changes}), "utf-8")


@pytest.mark.parametrize("enemy", ENEMIES)
def test_dataset_of_an_enemy_is_refused_though_its_digest_fits(built: Path, tmp_path: Path, enemy: str) -> None:
    change, message = ENEMIES[enemy]
    folder = shutil.copytree(built, tmp_path / "data")
    change(folder)
    write_digest(folder)

    def use() -> None:
        corpus = Corpus.load(folder)
        assert corpus.statistics
        assert corpus.split("train").ids

    with pytest.raises(InputError, match=re.escape(message)):
        use()


def test_digest_covers_every_file(built: Path) -> None:
    files = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    assert json.loads((built / "digest.json").read_text())["files"].keys() == files - {"digest.json"}
    assert Corpus.load(built, verify=True).fingerprint == Corpus.load(built).fingerprint


def test_file_of_the_user_in_a_dataset_is_no_error(built: Path, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    shutil.copytree(built, copy)
    (copy / "README").write_text("mine")
    assert len(Corpus.load(copy).frames) == 7


def test_other_directories_are_no_datasets(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path, message in (
        (tmp_path / "none", "not a dataset directory: corpus.json is missing"),
        (tmp_path, "corpus.json is missing"),
        (tmp_path / "file", "not a dataset directory"),
    ):
        with pytest.raises(InputError, match=message):
            Corpus.load(path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("window", "some", "window: expected one of framed, first, all"),
        ("duplicates", "maybe", "duplicates: expected drop or keep"),
        ("events", 0, "events: expected a whole number from 1 to 1000"),
        ("vocabulary", 5, "vocabulary: expected a whole number from 6 to 10000000"),
        ("split", (0.5, 0.5, 0.5), "split: expected three shares that sum to 1"),
        ("split", (0.0, 0.5, 0.5), "split: expected three shares"),
        ("split", (float("nan"), 0.5, 0.5), "split: expected three shares"),
    ],
)
def test_wrong_settings_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(RevupError, match=message):
        Settings(**{name: value})


def test_files_are_text_or_plain_arrays(built: Path) -> None:
    """Everything on disk is text or a plain array."""
    for path in built.rglob("*"):
        if path.suffix == ".npy":
            assert np.load(path, allow_pickle=False).dtype.kind in "iufb"
        elif path.is_file():
            path.read_text("utf-8")
    assert os.path.getsize(built / "statistics.json") > 0
