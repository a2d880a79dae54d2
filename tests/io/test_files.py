"""Files are written atomically, and lists are read with every fault named."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path

import pytest

from revup.errors import InputError, OutputExistsError, RevupError, UnfinishedError
from revup.io.files import atomic_file, atomic_path, open_output, read_list, write_json, write_list, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_file_appears_only_when_complete(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "new" / "x.txt", "w") as out:
        out.write("ä\n")
        assert not (tmp_path / "new" / "x.txt").exists()
    assert (tmp_path / "new" / "x.txt").read_bytes() == "ä\n".encode()
    assert names(tmp_path / "new") == ["x.txt"]


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt, SystemExit])
def test_error_leaves_old_file_and_nothing_else(tmp_path: Path, stop: type[BaseException]) -> None:
    write_text(tmp_path / "x", "old")
    with pytest.raises(stop), atomic_file(tmp_path / "x") as out:  # noqa: PT012
        out.write(b"new")
        raise stop
    assert (tmp_path / "x").read_text() == "old"
    assert names(tmp_path) == ["x"]


def test_full_disk_names_the_file(tmp_path: Path) -> None:
    with (
        pytest.raises(UnfinishedError, match=r"x\.npz: can't be written: No space left on device$"),
        atomic_file(tmp_path / "x.npz"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert names(tmp_path) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_full_disk_is_noticed_when_buffers_are_written(tmp_path: Path) -> None:
    with (  # noqa: PT012
        pytest.raises(UnfinishedError, match="x: can't be written: No space left"),
        atomic_path(tmp_path / "x") as path,
    ):
        path.unlink()
        path.symlink_to("/dev/full")
        path.write_bytes(b"more than nothing")
    assert names(tmp_path) == []


def test_other_errors_of_the_block_are_not_blamed_on_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="elsewhere"), atomic_file(tmp_path / "x"):
        open(tmp_path / "elsewhere")  # noqa: SIM115


def test_file_in_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "")
    with pytest.raises(InputError, match="can't be written"):
        write_json(tmp_path / "file" / "x.json", {})


def test_output_that_exists_is_refused_without_naming_a_flag(tmp_path: Path) -> None:
    write_text(tmp_path / "x", "old")
    with pytest.raises(OutputExistsError, match=r"exists already$"), open_output(tmp_path / "x", force=False):
        pass
    with pytest.raises(RevupError, match="is a directory"), open_output(tmp_path):
        pass
    assert (tmp_path / "x").read_text() == "old"


def test_compressed_output_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        with open_output(tmp_path / name) as out:
            out.write("text\n")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"text\n"


def test_lists_come_back_as_written(tmp_path: Path) -> None:
    for items in (["a"], ["b", "a", "ü", "x\ry", "\ud800"], []):
        write_list(tmp_path / "list", items)
        assert read_list(tmp_path / "list", minimum=0) == items


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a list of 1 or more lines, found an empty file"),
        (b"one\ntwo", "line 2: cut short: the last line has no line break"),
        (b"one\ntwo\none\n", "line 3: 'one' stands there twice, first on line 1"),
        (b"\xff\n", "not UTF-8 text"),
    ],
)
def test_faulty_lists_are_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(InputError, match=f"list.txt: {message}"):
        read_list(tmp_path / "list.txt")
