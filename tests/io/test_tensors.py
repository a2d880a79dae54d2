"""Tensor files: whole or absent, and every changed byte of their contents is noticed."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from revup.errors import InputError, UnfinishedError
from revup.io.temporary import temporary_path
from revup.io.tensors import load_tensors, read_header, save_tensors


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_tensors_survive_saving(tmp_path: Path) -> None:
    tensors = {
        "b": torch.randn(3, 4).t(),
        "a": torch.tensor(3, dtype=torch.long),
        "half": torch.randn(5).bfloat16(),
        "yes": torch.tensor([True, False]),
        "none": torch.zeros(0, 4),
        "single": torch.tensor(3).expand(1),
    }
    save_tensors(tmp_path / "x", tensors, {"note": "ε"})
    found, meta = load_tensors(tmp_path / "x")
    assert meta == {"note": "ε"}
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    assert files(tmp_path) == {"x"}


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_tensors(path, {"a": torch.arange(6.0), "b": torch.zeros(2)}, {})
    whole = path.read_bytes()
    data = 8 + int.from_bytes(whole[:8], "little")
    for place in range(data, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(InputError, match="do not match their digest"):
            load_tensors(path)
    for place in range(0, data, 7):  # in the header, where a change need not matter (a blank), but must not do harm
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with suppress(InputError):
            assert torch.equal(load_tensors(path)[0]["a"], torch.arange(6.0))
    for length in range(0, len(whole), 11):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError):
            load_tensors(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_tensors(tmp_path / "absent")
    save_file({"a": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(InputError, match="not one that revup wrote"):
        load_tensors(tmp_path / "foreign")
    save_file({"a": torch.zeros(3)}, tmp_path / "odd", metadata={"revup": "{"})
    with pytest.raises(InputError, match="not one that revup wrote"):
        load_tensors(tmp_path / "odd")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError):
        load_tensors(tmp_path / "folder")


def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tensors(tmp_path / "x", {"a": torch.ones(2)}, {})
    before = (tmp_path / "x").read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("revup.io.files.os.fsync", full)
    with pytest.raises(UnfinishedError, match=r"x: can't be written: No space left on device$"):
        save_tensors(tmp_path / "x", {"a": torch.zeros(2)}, {})
    assert (tmp_path / "x").read_bytes() == before
    assert files(tmp_path) == {"x"}


def test_no_file_but_that_of_the_writer_is_there_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill leaves must be found by the next writer, so the library must not make files of its own."""
    seen: list[set[str]] = []
    monkeypatch.setattr("revup.io.files.os.fsync", lambda _: seen.append(files(tmp_path)))
    save_tensors(tmp_path / "x", {"a": torch.zeros(2)}, {})
    assert seen[0] == {temporary_path(tmp_path / "x").name}


def test_header_is_read_without_the_values(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x", {"a": torch.zeros(3, 4), "b": torch.tensor(1)}, {"note": "ε"})
    whole = (tmp_path / "x").read_bytes()
    header = read_header(tmp_path / "x")
    assert header.shapes == {"a": (3, 4), "b": ()}
    assert header.types == {"a": torch.float32, "b": torch.int64}
    assert header.meta["note"] == "ε"
    (tmp_path / "x").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert read_header(tmp_path / "x") == header


def test_tensors_are_readable_like_every_other_file(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x", {"a": torch.zeros(1)}, {})
    (tmp_path / "y").touch()
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "y").stat().st_mode
