"""Directories appear complete or not at all, and only one process works in one."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from revup.errors import InputError, OutputExistsError, RevupError, UnfinishedError
from revup.io import folders
from revup.io.folders import atomic_folder, lock


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_folder_appears_only_when_complete(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "a" / "out") as folder:
        (folder / "x").write_text("1")
        (folder.parent / "scratch").write_text("2")
        assert not (tmp_path / "a" / "out").exists()
    assert names(tmp_path / "a") == ["out"]
    assert names(tmp_path / "a" / "out") == ["x"]


def test_folder_is_replaced_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("1")
    with pytest.raises(OutputExistsError, match=r"exists already$"), atomic_folder(tmp_path / "out"):
        pass
    assert names(tmp_path / "out") == ["old"]
    with atomic_folder(tmp_path / "out", force=True) as folder:
        (folder / "new").write_text("2")
    assert names(tmp_path / "out") == ["new"]
    assert names(tmp_path) == ["out"]


def test_folder_that_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(OutputExistsError), atomic_folder(tmp_path / "out"):  # noqa: PT012
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "precious").write_text("1")
    assert names(tmp_path / "out") == ["precious"]
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("stop", [KeyboardInterrupt(), UnfinishedError("disk"), InputError("bad"), RevupError("bad")])
def test_scratch_files_survive_only_what_can_be_resumed(tmp_path: Path, stop: BaseException, resume: bool) -> None:
    with pytest.raises(type(stop)), atomic_folder(tmp_path / "out", resume=resume) as folder:  # noqa: PT012
        (folder / "half").write_text("1")
        (folder.parent / "scratch").write_text("2")
        raise stop
    kept = resume and isinstance(stop, (KeyboardInterrupt, UnfinishedError))
    assert names(tmp_path) == ([".out.partial"] if kept else [])
    with atomic_folder(tmp_path / "out", resume=resume) as folder:
        assert names(folder) == []
        assert (folder.parent / "scratch").exists() == kept


def _try_to_lock(folder: Path, answer: multiprocessing.Queue[str]) -> None:
    try:
        with lock(folder):
            answer.put("locked")
    except RevupError as error:
        answer.put(str(error))


def test_lock_keeps_another_process_out(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    answer: multiprocessing.Queue[str] = spawn.Queue()
    with lock(tmp_path / "run"):
        other = spawn.Process(target=_try_to_lock, args=(tmp_path / "run", answer))
        other.start()
        assert answer.get(timeout=60) == f"{tmp_path / 'run'}: another process is using it now"
        other.join()
    with lock(tmp_path / "run"):
        pass


def test_only_one_process_may_write_a_folder(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "out") as folder:
        (folder / "mine").write_text("1")
        with (
            pytest.raises(RevupError, match="out: another process is writing it now"),
            atomic_folder(tmp_path / "out"),
        ):
            pass
    assert names(tmp_path / "out") == ["mine"]


def test_lock_is_a_no_op_without_fcntl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "flock", None)
    with lock(tmp_path), lock(tmp_path):
        pass


def test_lock_in_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/run: can't be written"), lock(tmp_path / "file" / "run"):
        pass


def test_inputs_and_the_working_directory_are_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "docs.jsonl").write_text("1")
    for target in (tmp_path / "in", tmp_path / "in" / "deep"):
        with pytest.raises(InputError, match=r"can't be replaced: .*docs\.jsonl would be removed"):
            folders.refuse_existing(target, force=True, reads=[tmp_path / "in" / "deep" / "docs.jsonl"])
    folders.refuse_existing(tmp_path / "in" / "deep" / "docs.jsonl", force=True, reads=[tmp_path / "in"])
    monkeypatch.chdir(tmp_path / "in")
    for target in (Path("."), tmp_path):
        with pytest.raises(InputError, match="can't be replaced"), atomic_folder(target, force=True):
            pass
    assert names(tmp_path / "in" / "deep") == ["docs.jsonl"]


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="a system without links")
def test_lock_does_not_touch_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / folders.LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="run: can't be written"), lock(tmp_path / "run"):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
def test_lock_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / folders.LOCK)
    with lock(tmp_path):
        pass
