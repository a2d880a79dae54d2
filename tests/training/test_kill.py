"""SIGKILL at any moment leaves a run directory that a resume completes, to the same bytes."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
import torch

import revup
from revup.errors import InputError
from revup.io.tensors import load_tensors
from training.runs import (
    OFTEN,
    TINY,
    files,
    lines,
    start,
    train_or_resume,
    train_until_write,
    wait_for_checkpoints,
    weights,
)


@pytest.mark.slow
def test_resume_after_kill_is_bit_identical(few: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """Killed at random moments, from before the first step to the middle of a write."""
    out, moments, reached = tmp_path / "run", random.Random(), []
    for checkpoints in (0, 2, 2):
        process = start(train_or_resume, few, out, OFTEN)
        wait_for_checkpoints(process, out, checkpoints)
        time.sleep(moments.uniform(0, 0.15))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL  # it was not done yet
        if (out / "checkpoint.safetensors").exists():
            reached.append(load_tensors(out / "checkpoint.safetensors")[1]["state"]["step"])
    process = start(train_or_resume, few, out, OFTEN)
    process.join(120)
    assert process.exitcode == 0
    assert reached == sorted(reached)
    assert len(set(reached)) >= 2  # it was stopped at different places, and continued from them
    assert weights(out) == weights(uninterrupted)
    assert lines(out) == lines(uninterrupted)
    mine, theirs = (load_tensors(path / "checkpoint.safetensors")[0] for path in (out, uninterrupted))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert files(out) == files(uninterrupted)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


QUICK = {"network": TINY, "training": {"epochs": 2, "batch_size": 60, "settle": 0.0, "checkpoint_minutes": 0.0}}


@pytest.mark.slow
def test_kill_before_any_write_leaves_a_resumable_directory(few: Path, tmp_path: Path) -> None:
    """Killed before each single file appears; what is left is refused as unfinished, and resumed to the same bytes."""
    whole = tmp_path / "whole"
    train_or_resume(few, whole, QUICK)
    writes, states = 0, set()
    while True:
        writes, out = writes + 1, tmp_path / "run"
        process = start(train_until_write, few, out, QUICK, writes)
        process.join(120)
        if process.exitcode == 0:
            break
        assert process.exitcode == 9
        with pytest.raises(InputError) as refused:
            revup.load(out)
        assert "\n" not in str(refused.value)
        states.add("--resume" if "--resume" in str(refused.value) else "absent")
        process = start(train_or_resume, few, out, QUICK)
        process.join(120)
        assert process.exitcode == 0
        assert weights(out) == weights(whole)
        assert lines(out) == lines(whole)
        assert files(out) == files(whole)
        for path in out.iterdir():
            path.unlink()
        out.rmdir()
        assert [path.name for path in tmp_path.iterdir()] == ["whole"], writes
    assert writes > 10
    assert states == {"--resume", "absent"}
