"""Reading what lies in a dataset directory, which may be damaged or made by an enemy.

A digest that fits proves nothing about a directory from elsewhere: every array is checked against the type and shape
that its name has, and every number against the list that it points into, before anything is looked up by it. An array
is mapped first, so that a header that promises more than the file holds costs nothing.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from revup.data.dataset import ARRAYS, FORMAT, Settings
from revup.data.encode import NO_ENTRY, TOKENS, UNSEEN, Array
from revup.data.events import KINDS
from revup.data.told import CONTEXT
from revup.data.vocabulary import Vocabulary
from revup.errors import InputError, RevupError
from revup.io.files import display_name, read_json, require_file

ROWS_AT_ONCE = 65_536  # windows whose numbers are compared with their limits together


def read_meta(folder: Path) -> dict[str, Any]:
    """Read corpus.json.

    Args:
        folder: The dataset directory.

    Raises:
        InputError: It is not a dataset directory, or one of another format.
    """
    meta = read_json(folder, "corpus.json", "dataset")
    found = meta.get("format")
    if found != FORMAT:
        message = f"expected a dataset of format {FORMAT}, found {found!r:.40}: prepare it again with revup prepare"
        raise InputError(message, str(folder))
    return meta


def check_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Check all of corpus.json that is used.

    Args:
        folder: The dataset directory.
        meta: The contents of its corpus.json.

    Raises:
        InputError: A part of it is not what it should be; the message names it.
    """
    sound = {
        "settings": isinstance(meta.get("settings"), dict) and isinstance(meta["settings"].get("split"), list),
        "named_frames": isinstance(meta.get("named_frames"), bool),
        "fingerprint": isinstance(meta.get("fingerprint"), str),
        "sources": _is_list(meta.get("sources", []), str),
        "training_frames": meta.get("training_frames") is None or _is_list(meta["training_frames"], int),
    }
    wrong = next((name for name, well in sound.items() if not well), None)
    if wrong is None:
        try:
            settings_of(meta)
        except (RevupError, TypeError, ValueError, OverflowError):
            wrong = "settings"
    if wrong is not None:
        raise InputError(f"damaged: '{wrong}' is not what it should be", str(folder / "corpus.json"))


def settings_of(meta: dict[str, Any]) -> Settings:
    """The settings that a dataset was made with, from the contents of its corpus.json."""
    return Settings(**{**meta["settings"], "split": tuple(meta["settings"]["split"])})


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in value)


def open_array(path: Path, dtype: str, shape: tuple[int | None, ...], mapped: bool = True) -> Array:
    """Open an array, and check its type and shape.

    Args:
        path: The file, of numpy's format.
        dtype: The type of its values.
        shape: Its shape; None for any size.
        mapped: Leave it in the file, of which a part is read when it is used.

    Raises:
        InputError: It can't be read, is no such array, or has another type or shape.
    """
    try:
        require_file(path)
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError("damaged: the file is missing", str(path)) from None
    except InputError:
        raise
    except Exception:  # what numpy raises at a header follows from how it parses one
        raise InputError("damaged: not an array of numbers, or a truncated one", str(path)) from None
    fits = len(shape) == array.ndim and all(
        size in (None, found) for size, found in zip(shape, array.shape, strict=True)
    )
    if array.dtype != np.dtype(dtype) or not fits:
        expected = "×".join("n" if size is None else str(size) for size in shape)
        found = f"{array.dtype.name} of {'×'.join(map(str, array.shape))}"
        raise InputError(f"damaged: expected {np.dtype(dtype).name} of {expected}, found {found}", str(path))
    return array if mapped else np.array(array)


def open_split(folder: Path, events: int) -> dict[str, Array]:
    """Open the arrays of a split, which must agree in their sizes.

    Args:
        folder: The directory of the split.
        events: M, the events of a window.

    Raises:
        InputError: An array is missing or damaged, or does not fit the others.
    """
    sizes: dict[str, int | None] = {"N": None, "M": events, "T": TOKENS, "C": len(CONTEXT), "W": None, "R": None}
    arrays = {}
    for name, (dtype, letters) in ARRAYS.items():
        arrays[name] = open_array(folder / f"{name}.npy", dtype, tuple(sizes[letter] for letter in letters))
        sizes |= dict(zip(letters, arrays[name].shape, strict=True))
    return arrays


def check_numbers(
    folder: Path, arrays: dict[str, Array], vocabulary: Vocabulary, frames: int, sources: int, entries: int
) -> None:
    """Refuse a split with numbers that point beyond the lists of its dataset, or weights that are none.

    Args:
        folder: The directory of the split.
        arrays: Its arrays.
        vocabulary: The vocabulary.
        frames: The number of frames.
        sources: The number of sources.
        entries: The number of entries of the lexicon.

    Raises:
        InputError: There is one; the message names the file.
    """
    words, forms = len(vocabulary), 2 * len(vocabulary) + len(vocabulary.beyond)
    limits: dict[str, tuple[float, float]] = {
        "tokens": (0, words - 1),
        "read": (0, forms - 1),
        "lemma": (-1, vocabulary.distinct_lemmas - 1),
        "lemma_read": (0, forms - 1),
        "entry": (NO_ENTRY, entries - 1),
        "lengths": (0, arrays["reference"].shape[1]),
        "reference": (UNSEEN, frames - 1),
        "knowledge_frames": (0, frames - 1),
        "knowledge_kind": (0, len(KINDS) - 1),
        "source_name": (0, max(sources - 1, 0)),
        "source_kind": (0, len(KINDS) - 1),
        "source_frame": (0, frames - 1),
        "document": (0, math.inf),
        **dict.fromkeys(("knowledge_weights", "source_weight", "source_confidence", "confidence"), (0, _LARGEST)),
    }
    for name, (least, most) in limits.items():
        array = arrays[name]
        for start in range(0, len(array), ROWS_AT_ONCE):
            rows = array[start : start + ROWS_AT_ONCE]
            if rows.size and not (rows.min() >= least and rows.max() <= most):  # false for NaN as well
                what = f"expected {least:g} to {most:g}"
                raise InputError(f"damaged: a value outside its range: {what}", str(folder / f"{name}.npy"))


_LARGEST = float(np.finfo(np.float32).max)


def read_statistics(folder: Path) -> dict[str, Any]:
    """Read statistics.json.

    Raises:
        InputError: It is missing or damaged.
    """
    return read_json(folder, "statistics.json", "dataset")


def read_ids(path: Path) -> list[str]:
    """Read the document ids of a split.

    Raises:
        InputError: It can't be read, or a line of it is no id.
    """
    try:
        require_file(path)
        ids = [json.loads(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValueError, RecursionError):
        raise InputError("damaged: not a list of document ids", display_name(path)) from None
    if not all(isinstance(identity, str) for identity in ids):
        raise InputError("damaged: not a list of document ids", display_name(path))
    return ids
