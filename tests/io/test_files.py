"""Files: lines are read with every fault named, writing is atomic, lists are checked."""

from __future__ import annotations

import errno
import gzip
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from revup.errors import InputError, OutputExistsError, RevupError, UnfinishedError
from revup.io.files import atomic_file, atomic_path, lines, open_output, read_list, write_json, write_list, write_text


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


def bad(path: Path) -> list[str]:
    """What is wrong with each unreadable line, without the file's own name."""
    return [str(text).removeprefix(f"{path}: ") for _, text in lines(path) if isinstance(text, InputError)]


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffé\r\nb".encode())
    assert list(lines(path)) == [(1, "é\r\n"), (2, "b")]


def test_line_in_another_encoding_is_an_error_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\nna\xefve\nthree\n")
    assert [text for _, text in lines(path) if isinstance(text, str)] == ["one\n", "three\n"]
    assert bad(path) == ["line 2: not UTF-8 text: invalid continuation byte at byte 2"]


def test_line_of_100_mb_is_an_error_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with open(path, "wb") as out:
        out.write(b"one\n")
        for _ in range(100):
            out.write(b"x" * 10**6)
        out.write(b"\nthree\n")
    assert [text for _, text in lines(path) if isinstance(text, str)] == ["one\n", "three\n"]
    assert bad(path) == ["line 2: the line is longer than 32 MiB"]


def test_long_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revup.io.files.LONGEST_LINE", 8)
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * 8 + b"\n" + b"y" * 7 + b"\n" + b"z" * 100)
    assert [(n, isinstance(text, str)) for n, text in lines(path)] == [(1, False), (2, True), (3, False)]


def test_truncated_gz_gives_complete_lines_and_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    whole = gzip.compress(b"".join(b"line %d\n" % n for n in range(50_000)))
    path.write_bytes(whole[: len(whole) // 2])
    found = list(lines(path))
    assert len(found) > 1000
    assert all(text == f"line {n - 1}\n" for n, text in found[:-1])
    assert "the compressed file is damaged" in str(found[-1][1])
    path.write_bytes(whole[:-30] + b"\0" * 30)
    assert "the compressed file is damaged" in bad(path)[0]
    path.write_bytes(b"not gz")
    assert bad(path) == ["line 1: the compressed file is damaged: Not a gzipped file (b'no')"]


def test_compressed_file_without_gz_suffix_gets_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(gzip.compress(b"text"))
    assert "compressed? then the name should end in .gz" in bad(path)[0]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("absent.jsonl", "no such file"),
        ("absent.jsonl.gz", "no such file"),
        (".", "expected a file, found a directory"),
        ("folder.gz", "expected a file, found a directory"),
        ("x" * 300, "can't be opened: File name too long"),
        ("a\0b", "can't be opened: embedded null byte"),
    ],
)
def test_missing_files_and_directories_are_refused(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "folder.gz").mkdir()
    with pytest.raises(InputError, match=complaint):
        next(lines(tmp_path / name))


def test_read_error_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(io.BytesIO):
        def readline(self, *_: Any) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Failing()))
    assert [str(text) for _, text in lines("-")] == ["<stdin>: line 1: can't be read: Input/output error"]


def test_a_hundred_million_blank_lines_end_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revup.io.files.MOST_BLANK_LINES", 1000)
    path = tmp_path / "blank.gz"
    path.write_bytes(gzip.compress(b"a\n" + b" \r\n" * 1000 + b"b\n" + b"\n" * 1_000_000))
    found = list(lines(path))
    assert len(found) == 1 + 1000 + 1 + 1001
    assert isinstance(found[-1][1], InputError)
    assert "more than 1,000 blank lines in a row" in str(found[-1][1])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name on this system")
def test_a_pipe_is_written_into_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with open_output(pipe, force=False) as out:
        out.write("ä\n")
    assert os.read(reading, 100) == "ä\n".encode()
    os.close(reading)
    with pytest.raises(InputError, match="pipe: can't be written: it is a pipe or a device"), atomic_path(pipe):
        pass
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]
