"""The files of a run directory, which is self-contained and movable.

    config.json              settings, sizes and data; never changes
    vocabulary.txt, lemmas.txt, beyond.txt, frames.txt
    model.safetensors        the best weights so far
    state.json               whether training has finished, and how far it went
    digest.json              a digest over all of these
    metrics.jsonl            a line per validation
    checkpoint.safetensors   what a resume needs

`digest.json` is removed before one of its files changes and written last. So a kill at any moment leaves a directory
that its digest fits, or one without a digest, which loading refuses and a resume completes.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from revup.errors import InputError, RevupError
from revup.io.digests import DIGEST, check_digest, write_digest
from revup.io.files import read_json, write_text
from revup.settings import Config

FORMAT = 3
WEIGHTS = "model.safetensors"
LISTS = ("vocabulary.txt", "lemmas.txt", "beyond.txt", "frames.txt")
FILES = ("config.json", "state.json", WEIGHTS, *LISTS)  # that loading reads


@dataclass(frozen=True)
class RunState:
    """How far the training of a run went.

    Attributes:
        finished: Whether training has ended: by its last epoch, by early stopping or by its time limit.
        steps: Optimiser steps taken.
        epochs: Epochs completed.
        best_step: Step of the validation that chose the weights; None without one.
        figures: What the model reported about its data before training.
    """

    finished: bool = True
    steps: int = 0
    epochs: int = 0
    best_step: int | None = None
    figures: dict[str, float] = field(default_factory=dict)


def read_config(folder: Path) -> tuple[Config, dict[str, Any]]:
    """Read the settings of a run.

    Args:
        folder: The run directory.

    Returns:
        The settings, and all that its config.json holds.

    Raises:
        InputError: Not a run directory, a damaged one, or one of another format.
    """
    about = read_json(folder, "config.json", "run")
    if about.get("format") != FORMAT:
        version = about.get("version")
        raise InputError(
            f"a run of format {about.get('format')}, expected {FORMAT}: train it again"
            + (f", or use revup {version}, which wrote it" if isinstance(version, str) else ""),
            str(folder / "config.json"),
        )
    try:
        config = Config.from_json(about)
        if not isinstance(about["data"], dict) or not isinstance(about["events"], int) or about["events"] < 1:
            raise ValueError("data or events are not what they should be")
    except (KeyError, TypeError, ValueError, RevupError) as error:
        raise InputError(f"damaged, or of another version: {error}", str(folder / "config.json")) from None
    return config, about


def read_state(folder: Path) -> RunState:
    """Read how far the training of a run went.

    Args:
        folder: The run directory.

    Raises:
        InputError: There is no such record, or it is damaged.
    """
    try:
        return RunState(**read_json(folder, "state.json", "run"))
    except TypeError as error:
        raise InputError(f"damaged: {error}", str(folder / "state.json")) from None


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read the validations of a run, a record for each line of its metrics.jsonl; none where there is no such file."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def is_sealed(folder: Path) -> bool:
    """Whether the files of a run are complete: nothing stopped in the middle of writing them."""
    return (folder / DIGEST).exists()


def unseal(folder: Path) -> None:
    """Remove the digest of a run, before its files change."""
    (folder / DIGEST).unlink(missing_ok=True)


def seal(folder: Path, state: RunState) -> None:
    """Complete a run directory whose files have changed: write how far training went, and the digest.

    Args:
        folder: The run directory.
        state: How far training went.
    """
    write_text(folder / "state.json", json.dumps(asdict(state), indent=1) + "\n")
    write_digest(folder, [name for name in FILES if (folder / name).exists()])


def check_files(folder: Path, allow_unfinished: bool = False) -> RunState:
    """Check that the files of a run are complete, unchanged and those of a finished run.

    Args:
        folder: The run directory.
        allow_unfinished: Accept a run whose training has not finished, if it has weights.

    Returns:
        How far training went.

    Raises:
        InputError: A file is missing, was changed or was added, or training has not finished.
    """
    how = f"revup train --out {folder} --resume"
    if not is_sealed(folder):
        raise InputError(f"{DIGEST} is missing: writing was stopped half-way; complete it with: {how}", str(folder))
    check_digest(folder, reads=FILES)
    state = read_state(folder)
    if not state.finished and not allow_unfinished:
        raise InputError(f"training has not finished; continue it with: {how}", str(folder))
    if not (folder / WEIGHTS).exists():
        raise InputError(f"there are no weights yet; continue training with: {how}", str(folder))
    return state


def path_from(path: Path, folder: Path | None) -> str:
    """A path as seen from a run directory, so that both may move together.

    Args:
        path: The path.
        folder: The run directory; None: the path is made absolute.
    """
    return os.path.relpath(path, folder) if folder is not None else os.path.abspath(path)
