"""Event vectors: what a user's own encoder says of an event, as a further input of the networks.

They come from a file of the form that `revup embed` writes (`EventVectors`), or from a pretrained transformer that
reads the sentences (`revup.data.encoder`). They are standardised and reduced to `DIMENSIONS` numbers by principal
components of the training events; dataset and run keep this `Reduction`, so that prediction reduces in the same way. An
event without a vector has zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from revup.data.events import Event
from revup.data.knowledge import Keys, document_key, event_keys
from revup.errors import InputError, RevupError, reason
from revup.io.archives import DAMAGED, is_archive, refuse_bomb

DIMENSIONS = 100  # of reduced vectors
REDUCTION = "event_vectors.safetensors"  # in dataset and run directories
RAW, FOUND, REDUCED = "raw_vectors", "vectors_found", "vectors"  # arrays of a split; only the last one is kept
LARGEST_VECTOR = 16_384
_BLOCK = 4096  # rows of a split that are reduced at a time
_ARRAYS = ("events", "document_ids", "event_document", "event_index")

Floats = NDArray[np.float32]
Found = NDArray[np.bool_]


class VectorSource(Protocol):
    """What gives events their vectors."""

    @property
    def encoder(self) -> str:
        """The name of the encoder; "" where it is not known."""
        ...

    @property
    def size(self) -> int:
        """The size of a vector, d."""
        ...

    def of(self, events: Sequence[Event], keys: Keys) -> tuple[Floats, Found]:
        """Return the vectors of n events [n, d], 0 without one, and which events have one [n].

        Args:
            events: The events.
            keys: The hashes of their documents' ids and their indices (`event_keys`), [n].
        """
        ...


class EventVectors:
    """Vectors by the hash of the event, from arrays of the form that `revup embed` writes.

    Attributes:
        encoder: "": whose vectors they are is not known.
        size: The size of a vector, d.
    """

    encoder = ""

    def __init__(self, keys: Keys, rows: Floats) -> None:
        order = np.argsort(keys, kind="stable")
        self._keys, self._order, self._rows = keys[order], order, rows
        self.size = int(rows.shape[1])

    @classmethod
    def load(cls, path: str | Path) -> EventVectors:
        """Read a .npz file with the arrays `events`, `document_ids`, `event_document` and `event_index`.

        Raises:
            InputError: The file is missing or its arrays don't fit together; the message names the array.
        """
        try:
            if not is_archive(path):
                raise InputError("expected a .npz file of arrays, as revup embed writes", str(path))
            with np.load(path, allow_pickle=False) as data:
                missing = [name for name in _ARRAYS if name not in data.files]
                if missing:
                    raise InputError(f"expected the arrays {', '.join(_ARRAYS)}", str(path), field=missing[0])
                refuse_bomb(path, sum(item.file_size for item in data.zip.infolist()) if data.zip else 0)
                arrays = {name: data[name] for name in _ARRAYS}
        except FileNotFoundError:
            raise InputError("no such file", str(path)) from None
        except (OSError, ValueError, MemoryError, *DAMAGED) as error:
            why = "" if isinstance(error, MemoryError) else reason(error)
            raise InputError(f"not a .npz file of plain arrays{why and ': '}{why}", str(path)) from None
        return cls(*_checked(arrays, str(path)))

    def of(self, events: Sequence[Event], keys: Keys) -> tuple[Floats, Found]:
        """Return the vectors of events by their hashes (`VectorSource.of`)."""
        return self.of_keys(keys)

    def of_keys(self, keys: Keys) -> tuple[Floats, Found]:
        """Return the vectors of events [..., d], 0 without one, and which events have one [...]."""
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found: Found = self._keys[place] == keys
        return np.where(found[..., None], self._rows[self._order[place]], 0).astype(np.float32), found


def _checked(arrays: dict[str, Any], path: str) -> tuple[Keys, Floats]:
    """The hashes of the events and their vectors, after a look at the arrays."""

    def wrong(name: str, message: str) -> InputError:
        return InputError(message, path, field=name)

    events, ids, document, index = (arrays[name] for name in _ARRAYS)
    if events.ndim != 2 or events.dtype.kind != "f" or not 1 <= events.shape[1] <= LARGEST_VECTOR or not len(events):
        raise wrong("events", f"expected numbers [E, d], found {events.dtype} {list(events.shape)}")
    if ids.ndim != 1 or ids.dtype.kind != "U":
        raise wrong("document_ids", f"expected texts [N], found {ids.dtype} {list(ids.shape)}")
    for name, array, most in (("event_document", document, len(ids)), ("event_index", index, 2**31)):
        if array.shape != (len(events),) or array.dtype.kind not in "iu":
            raise wrong(name, f"expected {len(events)} whole numbers, found {array.dtype} {list(array.shape)}")
        if array.min() < 0 or array.max() >= most:
            raise wrong(name, f"expected numbers from 0 to {most - 1}, found {array.min()} to {array.max()}")
    bad = np.flatnonzero(~np.isfinite(events).all(1))
    if len(bad):
        raise wrong(f"events[{bad[0]}]", "expected finite numbers")
    keys = event_keys(np.array([document_key(str(name)) for name in ids], np.uint64)[document], index.astype(np.int64))
    distinct, first, count = np.unique(keys, return_index=True, return_counts=True)
    if len(distinct) < len(keys):
        row = int(first[count.argmax()])
        raise wrong("event_index", f"two vectors of event {index[row]} of the document {ids[document[row]]}")
    return keys, events.astype(np.float32)


def vectors_of(encoder: str | None) -> VectorSource | None:
    """Return the encoder of this name, which is loaded once in a process; None without a name."""
    if encoder is None:
        return None
    from revup.data.encoder import load_encoder

    return load_encoder(encoder)


# ---- reduction -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reduction:
    """Standardisation and principal components of the training events' vectors: x → ((x − mean) / spread) directions.

    Attributes:
        mean, spread: Of each of the d numbers over the training events.
        directions: [d, r], scaled so that the r numbers have a mean variance of 1.
        encoder: The name of the encoder whose vectors these are; "" where it is not known.
    """

    mean: NDArray[np.float32]
    spread: NDArray[np.float32]
    directions: NDArray[np.float32]
    encoder: str = ""

    @cached_property
    def size(self) -> int:
        """The size of a reduced vector, r."""
        return int(self.directions.shape[1])

    def apply(self, vectors: NDArray[Any], found: Found) -> Floats:
        """Reduce vectors [..., d] → [..., r]; zeros for events that have none."""
        standard = (vectors.astype(np.float32) - self.mean) / self.spread
        return np.where(found[..., None], standard @ self.directions, 0).astype(np.float32)

    def same(self, other: Reduction | None) -> bool:
        """Whether another one reduces vectors in the same way."""
        return other is not None and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("mean", "spread", "directions")
        )

    def refuse_other(self, source: VectorSource) -> None:
        """Raise an error unless these can be vectors of the encoder that this was fitted to.

        Raises:
            RevupError: Their size or the name of their encoder differs.
        """
        name, known = (text.rstrip("/").rsplit("/", 1)[-1] for text in (source.encoder, self.encoder))
        if name and known and name != known:
            raise RevupError(f"the run was trained with vectors of the encoder {self.encoder}, not {source.encoder}")
        if source.size != len(self.mean):
            raise RevupError(f"the run was trained with event vectors of {len(self.mean)} numbers, not {source.size}")

    def save(self, folder: Path) -> None:
        """Write it to a dataset or run directory."""
        import torch

        from revup.io.tensors import save_tensors

        parts = {name: torch.from_numpy(getattr(self, name)) for name in ("mean", "spread", "directions")}
        save_tensors(folder / REDUCTION, parts, {"encoder": self.encoder})

    @classmethod
    def load(cls, folder: Path) -> Reduction | None:
        """Read what `save` wrote; None where the directory has none.

        Raises:
            InputError: The file is damaged.
        """
        path = folder / REDUCTION
        if not path.exists():
            return None
        from revup.io.tensors import load_tensors

        tensors, meta = load_tensors(path)
        parts: list[Any] = [
            tensors[name].numpy() if name in tensors else np.zeros(0) for name in ("mean", "spread", "directions")
        ]
        mean, spread, directions = parts
        fits = mean.ndim == 1 and spread.shape == mean.shape and directions.ndim == 2 and len(directions) == len(mean)
        sound = all(part.dtype == np.float32 and np.isfinite(part).all() for part in parts)
        named = isinstance(meta.get("encoder"), str)
        if not (fits and sound and named and directions.size and (spread > 0).all()):
            raise InputError("damaged: not a reduction of event vectors", str(path))
        return cls(mean, spread, directions, meta["encoder"])


def fit_reduction(parts: Iterator[Floats], encoder: str = "", most: int = DIMENSIONS) -> Reduction:
    """Fit a reduction to vectors that come in parts [n, d].

    Args:
        parts: The vectors of the training events.
        encoder: The name of the encoder whose vectors they are.
        most: The largest size of a reduced vector.

    Raises:
        RevupError: There are no vectors, or all are equal.
    """
    count, total, products = 0, np.zeros(0), np.zeros((0, 0))
    for part in parts:
        wide = part.astype(np.float64)
        if not count:
            total, products = np.zeros(wide.shape[1]), np.zeros((wide.shape[1],) * 2)
        count, total, products = count + len(wide), total + wide.sum(0), products + wide.T @ wide
    if not count:
        raise RevupError("no training event has an event vector: are the document ids the same?")
    mean = total / count
    covariance = products / count - np.outer(mean, mean)
    variance = np.maximum(np.diag(covariance), 0)
    tiny = 1e-10 * max(float(variance.max()), 1e-30)
    spread = np.where(variance > tiny, np.sqrt(variance), 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(spread, spread))
    kept = np.flatnonzero(values[::-1] > 1e-6 * max(float(values[-1]), 0.0))[: min(most, max(count - 1, 1))]
    if not len(kept) or values[-1] <= 1e-9:
        raise RevupError("the event vectors of all training events are equal: nothing can be learned from them")
    values, vectors = values[::-1][kept], vectors[:, ::-1][:, kept]
    vectors = vectors * np.where(vectors[np.abs(vectors).argmax(0), np.arange(len(kept))] < 0, -1.0, 1.0)
    directions = vectors / np.sqrt(values.mean())
    return Reduction(mean.astype(np.float32), spread.astype(np.float32), directions.astype(np.float32), encoder)


def reduce_splits(folder: Path, splits: Sequence[str], encoder: str, like: Reduction | None) -> dict[str, Any]:
    """Replace the raw vectors of a dataset by reduced ones, and keep the reduction.

    Args:
        folder: The dataset directory, whose splits have the arrays RAW and FOUND.
        splits: The names of the splits; the first one is fitted to.
        encoder: The name of the encoder; "" where it is not known.
        like: A reduction to use in place of one fitted to the training split.

    Returns:
        What the statistics say of it: `encoder`, `size`, `reduced`, and the share of `events` with a vector by split.

    Raises:
        RevupError: No training event has a vector.
    """

    def blocks(split: str) -> Iterator[tuple[Any, Found, Any]]:
        arrays = [np.load(folder / split / f"{name}.npy", mmap_mode="r") for name in (RAW, FOUND, "lengths")]
        for start in range(0, len(arrays[0]), _BLOCK):
            raw, found, lengths = (np.asarray(array[start : start + _BLOCK]) for array in arrays)
            yield raw, found, lengths

    if like is None:
        reduction = fit_reduction((raw[found] for raw, found, _ in blocks(splits[0]) if found.any()), encoder)
    else:
        reduction = like
    shares: dict[str, float | None] = {}
    for split in splits:
        raw = np.load(folder / split / f"{RAW}.npy", mmap_mode="r")
        shape, size = (*raw.shape[:2], reduction.size), raw.shape[2]
        out = np.lib.format.open_memmap(folder / split / f"{REDUCED}.npy", "w+", np.dtype("<f4"), shape)
        row, seen, events = 0, 0, 0
        for part, found, lengths in blocks(split):
            out[row : row + len(part)] = reduction.apply(part, found)
            row, seen, events = row + len(part), seen + int(found.sum()), events + int(lengths.sum())
        out.flush()
        del out, raw
        shares[split] = seen / events if events else None
        for name in (RAW, FOUND):
            (folder / split / f"{name}.npy").unlink()
    reduction.save(folder)
    return {"encoder": reduction.encoder or None, "size": size, "reduced": reduction.size, "events": shares}
