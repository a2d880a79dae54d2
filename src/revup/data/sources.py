"""The sources of a split after ε and η: what each says of which events, as `revup.reliability` takes it.

An item is an event of the split, numbered in order. A source that says things of several kinds appears once for each
kind: "ann1" for its labels, "ann1/candidates" and "ann1/distribution" for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.events import KINDS
from revup.data.knowledge import FrameSet, Observation, annotator_keys, observe
from revup.data.source_evidence import Kind, Source
from revup.data.told import LABEL, OWN

Array = NDArray[Any]
REVIEWED = "reviewed"  # the source of trusted labels
_ROWS = ("source_name", "source_kind", "source_frame", "source_weight", "source_confidence")


@dataclass(frozen=True)
class TrustedLabels:
    """Labels that somebody reviewed, by the hashes of their events (`knowledge.event_keys`), ascending."""

    keys: NDArray[np.uint64]
    frames: NDArray[np.int32]

    def find(self, keys: Array) -> Array:
        """Return the reviewed frames of events, -1 where there is none."""
        if not len(self.keys):
            return np.full(keys.shape, -1, np.int32)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.frames[place], -1).astype(np.int32)


def sources_of(
    arrays: Mapping[str, Array],
    names: Sequence[str],
    observation: Observation,
    known: FrameSet,
    trusted: TrustedLabels | None = None,
) -> dict[str, Source]:
    """Return all sources of some windows, by name.

    Args:
        arrays: The arrays of the windows (`revup.data.dataset.ARRAYS`).
        names: The names of the sources that the array `source_name` numbers.
        observation: ε, η, the seed, the noise and simulated annotators.
        known: What replaces wrong labels.
        trusted: Reviewed labels, which neither ε nor η acts on.
    """
    there = np.arange(arrays["keys"].shape[1]) < np.asarray(arrays["lengths"])[:, None]
    item = np.cumsum(there.ravel()).reshape(there.shape) - 1
    keys, lemma = np.asarray(arrays["keys"]), np.asarray(arrays["lemma"])
    found: dict[str, Source] = {}
    kinds: tuple[Kind, ...] = ("label", "candidates", "distribution")  # by their numbers

    def add(name: str, frames: Array, weights: Array, kind: Array, confidence: Array | None, how: Observation) -> None:
        own = keys if name == OWN else annotator_keys(keys, name)
        ones = np.ones(keys.shape, np.float32)
        seen = observe(own, frames, weights, ones, how, known, kind, lemma)
        use = (seen.weights > 0) & (seen.observed & there)[..., None]
        for number, label in enumerate(KINDS):
            chosen = use & (kind == number)[..., None]
            if chosen.any():
                rows = np.broadcast_to(item[..., None], chosen.shape)[chosen]
                exponent: Any = 1.0
                if confidence is not None and (confidence[there] != 1).any():
                    exponent = confidence[there].astype(np.float64)
                weight = None if number == LABEL else seen.weights[chosen].astype(np.float64)
                called = name if number == LABEL else f"{name}/{label}"
                found[called] = Source(
                    kinds[number], rows.astype(np.int64), seen.frames[chosen].astype(np.int64), weight, exponent
                )

    frames, weights, kind = (np.asarray(arrays[f"knowledge_{part}"]) for part in ("frames", "weights", "kind"))
    rates = observation.annotators()
    if rates:
        labelled = weights * (kind == LABEL)[..., None]
        for number, rate in enumerate(rates, 1):
            add(f"annotator-{number}", frames, labelled, kind, None, replace(observation, eta=rate))
        weights = weights * (kind != LABEL)[..., None]
    if (weights > 0).any():
        add(OWN, frames, weights, kind, None, observation)
    for name, frames, weights, kind, trust in _further(arrays, names):
        add(name, frames, weights, kind, trust, observation)
    if trusted is not None:
        label = trusted.find(keys)
        use = there & (label >= 0)
        if use.any():
            found[REVIEWED] = Source("label", item[use].astype(np.int64), label[use].astype(np.int64))
    return _shortened(found)


def _further(arrays: Mapping[str, Array], names: Sequence[str]) -> Iterator[tuple[str, Array, Array, Array, Array]]:
    """Yield what each further source says: its name, frames and weights [N, M, R], kind and confidence [N, M]."""
    source, kind, frame, weight, confidence = (np.asarray(arrays[name]) for name in _ROWS)
    for number, name in enumerate(names):
        mine = (source == number) & (weight > 0)
        if mine.any():
            first = mine.argmax(-1)[..., None]
            kinds = np.where(mine.any(-1), np.take_along_axis(kind, first, -1)[..., 0], LABEL)
            trust = np.where(mine.any(-1), np.take_along_axis(confidence, first, -1)[..., 0], 1.0)
            yield name, frame, weight * mine, kinds, trust


def _shortened(found: dict[str, Source]) -> dict[str, Source]:
    """Drop the kind from the name of a source that has only one."""
    kept: dict[str, Source] = {}
    for name, source in found.items():
        plain = name.removesuffix(f"/{source.kind}")
        others = [
            other for other in found if other != name and other in (plain, *(f"{plain}/{kind}" for kind in KINDS))
        ]
        kept[name if others else plain] = source
    return kept
