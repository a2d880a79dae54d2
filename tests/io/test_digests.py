"""The digest of a directory: every changed, missing or added file is named."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revup.errors import InputError
from revup.io.digests import DIGEST, check_digest, content_digest, write_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train").mkdir()
    (tmp_path / "frames.txt").write_text("A\nB\nC\n")
    np.save(tmp_path / "train" / "small.npy", np.arange(10))
    np.save(tmp_path / "train" / "large.npy", np.arange(1_000_000))
    write_digest(tmp_path)
    return tmp_path


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_unchanged_directory_passes_wherever_it_is_moved(folder: Path) -> None:
    moved = folder.rename(folder.with_name("moved"))
    (moved / ".lock").touch()
    (moved / "notes").write_text("mine")
    assert check_digest(moved) == check_digest(moved, verify=True)


def test_digest_follows_names_and_contents(tmp_path: Path) -> None:
    digests = set()
    for name, text in (("a", "1"), ("b", "1"), ("a", "2")):
        (tmp_path / name).write_text(text)
        digests.add(write_digest(tmp_path, [name]))
    (tmp_path / "a").write_text("1")
    assert len(digests) == 3
    assert write_digest(tmp_path, ["a"]) in digests


DAMAGE: dict[str, tuple[Any, str]] = {
    "two lines swapped": (lambda f: (f / "frames.txt").write_text("B\nA\nC\n"), "frames.txt was changed"),
    "a bit of a small array": (lambda f: flip(f / "train" / "small.npy", -1), "train/small.npy was changed"),
    "the header of a large array": (lambda f: flip(f / "train" / "large.npy", 20), "train/large.npy was changed"),
    "the end of a large array": (lambda f: flip(f / "train" / "large.npy", -1), "train/large.npy was changed"),
    "a large array cut": (lambda f: np.save(f / "train" / "large.npy", np.arange(999_999)), "large.npy was changed"),
    "a file missing": (lambda f: (f / "frames.txt").unlink(), "frames.txt is missing"),
    "a file that is read added": (lambda f: (f / "extra.npy").touch(), "extra.npy was added"),
    "no digest": (lambda f: (f / DIGEST).unlink(), "digest.json is missing"),
    "the digest changed": (
        lambda f: (f / DIGEST).write_text((f / DIGEST).read_text().replace('"size": 6', '"size": 7')),
        "digest.json: damaged: it was changed",
    ),
    "the digest of other form": (lambda f: (f / DIGEST).write_text(json.dumps({"digest": 1, "files": [3]})), "damaged"),
    "the digest cut": (lambda f: (f / DIGEST).write_text('{"dig'), "not valid JSON"),
    "the digest nested": (lambda f: (f / DIGEST).write_text("[" * 100_000), "nested too deeply"),
    "a pipe in place of a file": (lambda f: ((f / "frames.txt").unlink(), os.mkfifo(f / "frames.txt")), "a pipe"),
    "a directory in place of a file": (
        lambda f: ((f / "frames.txt").unlink(), (f / "frames.txt").mkdir()),
        "directory",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_changed_file_is_named(folder: Path, damage: str) -> None:
    change, message = DAMAGE[damage]
    change(folder)
    with pytest.raises(InputError, match=message) as caught:
        check_digest(folder, reads=["frames.txt", "extra.npy"])
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("name", ["../secret", "/dev/zero", "train/../../secret"])
def test_digest_names_nothing_outside_its_directory(folder: Path, name: str) -> None:
    (folder / DIGEST).write_text(json.dumps({"digest": "0", "files": {name: {"size": 0, "sha256": "0"}}}))
    with pytest.raises(InputError, match="outside the directory"):
        check_digest(folder)


def test_any_bit_of_a_large_array_is_compared_on_request(folder: Path) -> None:
    flip(folder / "train" / "large.npy", 4096 + 10)  # between two sampled blocks
    check_digest(folder)
    with pytest.raises(InputError, match=r"large\.npy was changed"):
        check_digest(folder, verify=True)


def test_content_digest_is_that_of_what_a_file_unpacks_to(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_bytes(b"{}\n" * 1000)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert content_digest(plain) == content_digest(packed) == hashlib.sha256(plain.read_bytes()).hexdigest()
    packed.write_bytes(packed.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"a\.jsonl\.gz: the compressed file is damaged"):
        content_digest(packed)
    with pytest.raises(InputError, match="no such file"):
        content_digest(tmp_path / "b.jsonl")
