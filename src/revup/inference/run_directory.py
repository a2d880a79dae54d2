"""The files of a run directory, which is self-contained and movable.

    config.json              settings, sizes and data; never changes
    vocabulary.txt, lemmas.txt, beyond.txt, frames.txt
    model.safetensors        the best weights so far
    text.safetensors         those of the lowest perplexity, where the perplexity has an epoch of its own
    counts.safetensors, lexicon.csv, event_vectors.safetensors   where it has counts, a lexicon, event vectors
    state.json               whether training has finished, and how far it went
    digest.json              a digest over all of these
    metrics.jsonl            a line per validation
    checkpoint.safetensors   what a resume needs

`digest.json` is removed before one of its files changes and written last. So a kill at any moment leaves a directory
that its digest fits, or one without a digest, which loading refuses and a resume completes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import revup
from revup.data.dataset import MOST_EVENTS
from revup.data.event_vectors import REDUCTION
from revup.errors import InputError, RevupError
from revup.io.digests import DIGEST, check_digest, write_digest
from revup.io.files import commit, read_json, require_file, write_text
from revup.settings import Config

FORMAT = 5
WEIGHTS = "model.safetensors"
TEXT = "text.safetensors"
COUNTS = "counts.safetensors"
LEXICON = "lexicon.csv"
METRICS = "metrics.jsonl"
LISTS = ("vocabulary.txt", "lemmas.txt", "beyond.txt", "frames.txt")
FILES = ("config.json", "state.json", WEIGHTS, TEXT, COUNTS, LEXICON, REDUCTION, *LISTS)  # that loading reads


@dataclass(frozen=True)
class RunState:
    """How far the training of a run went.

    Attributes:
        finished: Whether training has ended: by its last epoch, by early stopping or by its time limit.
        steps: Optimiser steps taken.
        epochs: Epochs completed.
        best_step: Step of the validation that chose the weights; None without one.
        figures: What the model reported about its data before training.
        calibration: How far its probabilities agree with the validation labels (`inference.abstain`).
    """

    finished: bool = True
    steps: int = 0
    epochs: int = 0
    best_step: int | None = None
    figures: dict[str, float] = field(default_factory=dict)
    calibration: list[dict[str, float]] = field(default_factory=list)


def _is_whole(value: Any, minimum: int = 0, maximum: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def _is_data(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(value.get(name), str | None) for name in ("path", "fingerprint", "labels")
    )


def _is_calibration(value: Any) -> bool:
    names = {"from", "events", "probability", "agreement", "label_error"}
    return isinstance(value, list) and all(
        isinstance(row, dict)
        and row.keys() == names
        and _is_whole(row["events"], 1)
        and all(type(row[name]) in (int, float) and 0 <= row[name] <= 1 for name in names - {"events"})
        for row in value
    )


_PARTS: dict[str, Callable[[Any], bool]] = {  # of config.json: what each must be before it is looked into
    "model": lambda value: isinstance(value, str),
    "preset": lambda value: isinstance(value, str),
    "seed": _is_whole,
    "events": lambda value: _is_whole(value, 1, MOST_EVENTS),
    "data": _is_data,
    **dict.fromkeys(("network", "objective", "training", "observation"), lambda value: isinstance(value, dict)),
}
_STATE: dict[str, Callable[[Any], bool]] = {  # of state.json
    "finished": lambda value: isinstance(value, bool),
    "steps": _is_whole,
    "epochs": _is_whole,
    "best_step": lambda value: value is None or _is_whole(value),
    "figures": lambda value: isinstance(value, dict),
    "calibration": _is_calibration,
}


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
    wrong = next((name for name, sound in _PARTS.items() if not sound(about.get(name))), None)
    if wrong is not None:
        found = "nothing" if wrong not in about else json.dumps(about[wrong])[:40]
        raise InputError(f"damaged: not what '{wrong}' of a run should be: {found}", str(folder / "config.json"))
    try:
        return Config.from_json(about), about
    except RevupError as error:
        raise InputError(f"damaged, or of another version: {error}", str(folder / "config.json")) from None


def write_config(folder: Path, config: Config, events: int, data: Mapping[str, Any]) -> None:
    """Write the settings of a run, its format and what wrote it.

    Args:
        folder: The run directory.
        config: The settings.
        events: M, the events of a window.
        data: About the dataset.
    """
    about = {
        "format": FORMAT,
        "version": revup.__version__,
        "commit": commit(),
        **config.to_json(),
        "events": events,
        "data": data,
    }
    write_text(folder / "config.json", json.dumps(about, indent=1) + "\n")


def read_state(folder: Path) -> RunState:
    """Read how far the training of a run went.

    Args:
        folder: The run directory.

    Raises:
        InputError: There is no such record, or it is damaged.
    """
    found = read_json(folder, "state.json", "run")
    for name, value in found.items():
        if name not in _STATE or not _STATE[name](value):
            raise InputError(f"damaged: '{name[:40]}' is not what it should be", str(folder / "state.json"))
    return RunState(**found)


def read_metrics(folder: Path, cut: bool = False) -> list[dict[str, Any]]:
    """Read the validations of a run, a record for each line of its metrics.jsonl; none where there is no such file.

    Args:
        folder: The run directory.
        cut: Leave out a last line without a line break, which a kill leaves.

    Raises:
        InputError: A line is damaged.
    """
    path = folder / METRICS
    try:
        require_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if cut and not line.endswith(b"\n"):
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if not _is_record(record):
            raise InputError("damaged: not a record of a validation", str(path), number)
        found.append(record)
    return found


def write_metrics(folder: Path, records: list[dict[str, Any]]) -> None:
    """Write the validations of a run."""
    write_text(folder / METRICS, "".join(json.dumps(record) + "\n" for record in records))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_record(value: Any) -> bool:
    """Whether a line of metrics.jsonl holds what training writes; further keys are left alone."""
    return (
        isinstance(value, dict)
        and _is_whole(value.get("step"))
        and all(_is_number(value.get(name)) for name in ("epoch", "seconds"))
        and all(isinstance(value.get(name), bool) for name in ("best", "settled"))
        and all(isinstance(value.get(name), dict) for name in ("train", "valid"))
        and all(score is None or _is_number(score) for score in (*value["train"].values(), *value["valid"].values()))
    )


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
