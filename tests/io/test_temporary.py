"""Temporary files: those of killed writers disappear with the next write, those of writers at work stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from revup.io.files import atomic_file, write_text

WRITE = """
import sys, time
from revup.io.files import atomic_file
with atomic_file(sys.argv[1], "w") as out:
    out.write("half")
    out.flush()
    print("writing", flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def writer(target: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", WRITE, str(target)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def test_next_write_removes_what_a_killed_writer_left(tmp_path: Path) -> None:
    (tmp_path / ".x.txt.partial").write_text("not a temporary file of a writer")
    (tmp_path / ".x.txt.note-1.partial").write_text("nor this")
    process = writer(tmp_path / "x.txt")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(names(tmp_path)) == 3
    write_text(tmp_path / "x.txt", "whole")
    assert names(tmp_path) == [".x.txt.note-1.partial", ".x.txt.partial", "x.txt"]
    assert (tmp_path / "x.txt").read_text() == "whole"


def test_writers_at_work_are_left_alone(tmp_path: Path) -> None:
    process = writer(tmp_path / "x.txt")
    try:
        with atomic_file(tmp_path / "x.txt", "w") as out:
            write_text(tmp_path / "y.txt", "other")
            out.write("mine")
        assert (tmp_path / "x.txt").read_text() == "mine"
        assert len([name for name in names(tmp_path) if name.endswith(".partial")]) == 1
        time.sleep(0.05)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
def test_pipe_in_place_of_a_temporary_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".x.txt.1-1.partial")
    write_text(tmp_path / "x.txt", "whole")
    assert (tmp_path / "x.txt").read_text() == "whole"
