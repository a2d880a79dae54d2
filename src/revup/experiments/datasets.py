"""The datasets of an experiment: one dataset directory, or a directory of several, and what tables say about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.corpus import Corpus, Split
from revup.data.encode import NONE, UNK
from revup.data.knowledge import Observation
from revup.data.stored import read_meta
from revup.data.told import DISTRIBUTION
from revup.errors import InputError, RevupError
from revup.experiments.runs import Line
from revup.experiments.variants import variant
from revup.world.world import World

REVEALED = (0.0, 0.2, 0.5, 0.8)  # shares of true frames given at prediction
_TEST_SEED = 3  # of the test documents that `revup world` writes

Array = NDArray[Any]


def find_datasets(data: str | Path, chosen: Sequence[str] = ()) -> dict[str, Path]:
    """The dataset directories in a directory, by name; or the one that it is itself.

    Args:
        data: The directory.
        chosen: Names of those wanted; by default all.

    Raises:
        InputError: There is none, or one that is wanted is not there.
    """
    path = Path(data)
    if (path / "corpus.json").exists() or not path.is_dir():
        read_meta(path)  # before anything is written for it
        return {path.resolve().name: path}
    found = {each.name: each for each in sorted(path.iterdir()) if (each / "corpus.json").exists()}
    if not found:
        raise InputError("expected a dataset directory, or a directory of them: see revup prepare", str(data))
    if missing := [name for name in chosen if name not in found]:
        raise InputError(f"has no dataset '{missing[0]}': it has {', '.join(found)}", str(data))
    return {name: each for name, each in found.items() if not chosen or name in chosen}


class Corpora:
    """Datasets by name, opened when they are first asked for.

    Args:
        paths: Their directories.
        labels: Where aggregated labels of several sources are kept.
    """

    def __init__(self, paths: Mapping[str, str | Path], labels: Path) -> None:
        self.paths, self.labels = {name: Path(path) for name, path in paths.items()}, labels
        self._open: dict[str, Corpus] = {}
        self._last: tuple[tuple[str, str, int], Corpus] | None = None

    def __getitem__(self, name: str) -> Corpus:
        if name not in self._open:
            if name not in self.paths:
                raise RevupError(f"there is no dataset '{name}'")
            self._open[name] = Corpus.load(self.paths[name])
        return self._open[name]

    def variant(self, name: str, which: str, seed: int) -> Corpus:
        """A variant of a dataset, as a seed draws it; the dataset itself where `which` is empty."""
        if not which:
            return self[name]
        key = (name, which, seed)
        if self._last is None or self._last[0] != key:
            self._last = key, variant(self[name], which, seed, self.labels)
        return self._last[1]


def describe(name: str, corpus: Corpus, tests: Mapping[str, Corpus]) -> Line:
    """What tables say about a dataset: a line of the file of runs.

    Args:
        name: Its name.
        corpus: The dataset.
        tests: Further datasets to test on.

    Returns:
        Sizes, document ids of the test split, what it has, and what test shares with train: events, windows, and in
        `shared_documents` the places of the documents that have such an event.
    """
    test, splits = corpus.split("test"), corpus.splits
    kind = np.asarray(test.arrays["knowledge_kind"]) if len(test) else np.zeros((0, 1))
    soft = (kind == DISTRIBUTION) & (np.asarray(test.arrays["knowledge_weights"]).sum(-1) > 0)
    verbatim, repeated = shared_with_train(corpus)
    return {
        "dataset": name,
        "fingerprint": corpus.fingerprint,
        "documents": {split: len(np.unique(part.arrays["document"])) for split, part in splits.items()},
        "windows": {split: len(part) for split, part in splits.items()},
        "events": {split: part.events for split, part in splits.items()},
        "scored": int((_there(test) & (np.asarray(test.arrays["reference"]) != NONE)).sum()),
        "soft": int((soft & _there(test)).sum()),
        "verbatim_events": int(verbatim.sum()),
        "repeated_windows": int(repeated.sum()),
        "shared_documents": np.unique(np.asarray(test.arrays["document"])[verbatim.any(1)]).tolist(),
        "frames": len(corpus.frames),
        "words": len(corpus.vocabulary),
        "has_frames": corpus.has_frames,
        "lexicon": corpus.lexicon is not None,
        "sources": corpus.sources,
        "view": corpus.meta.get("view"),
        "optimum": (corpus.meta.get("optimum") or {}).get("test"),
        "revealed": _ceilings(corpus),
        "tests": {other: _in_common(corpus, tests[other]) for other in tests if other != name},
        "ids": list(test.ids),
    }


def shared_with_train(corpus: Corpus) -> tuple[Array, Array]:
    """Which test events occur word for word in training, [N, M], and which test windows do, [N]."""
    train, test = corpus.split("train"), corpus.split("test")
    known = {row.tobytes() for row in _words(train)[_there(train)]}
    there, words = _there(test), _words(test)
    events = np.array([row.tobytes() in known for row in words.reshape(-1, words.shape[-1])], bool)
    events = events.reshape(there.shape) & there & ~(words == UNK).any(-1)
    windows = {row.tobytes() for row in _masked(train)}
    repeated = np.array([row.tobytes() in windows for row in _masked(test)], bool)
    return events, repeated & (events | ~there).all(1)


def _words(split: Split) -> Array:
    return np.ascontiguousarray(np.asarray(split.arrays["read"])[..., :4])


def _masked(split: Split) -> Array:
    return np.where(_there(split)[..., None], _words(split), -1)


def _there(split: Split) -> Array:
    lengths = np.asarray(split.arrays["lengths"])
    return np.arange(np.asarray(split.arrays["reference"]).shape[1]) < lengths[:, None]


def _in_common(train: Corpus, test: Corpus) -> float:
    """The share of scored test events of another dataset whose frame this one has."""
    split = test.split("test")
    reference = np.asarray(split.arrays["reference"])[_there(split)]
    scored = reference[reference != NONE]
    known = {number for number, frame in enumerate(test.frames) if frame in set(train.frames)}
    return round(float(np.isin(scored, list(known)).mean()), 4) if len(scored) else 0.0


def _ceilings(corpus: Corpus) -> dict[str, Any] | None:
    """On a world: the exact optimum on the remaining test events when some true frames are given, by their share."""
    split = corpus.split("test")
    if not corpus.meta.get("world") or not len(split):
        return None
    world = World(**corpus.meta["world"])
    documents = world.sample(len(split), seed=_TEST_SEED)
    if [document.id for document in documents] != split.ids:
        return None  # made otherwise than by `revup world`
    found = {}
    for share in REVEALED:
        observed = split.seen(revealed_draw(share)).observed
        given = [
            {m: str(event.frame) for m, event in enumerate(document.events) if event.frame and row[m]}
            for document, row in zip(documents, observed, strict=True)
        ]
        best = world.optimum(documents, given)
        found[f"{share:g}"] = {"accuracy": best["accuracy"], "nll": best["nll"]}
    return found


def revealed_draw(share: float) -> Observation:
    """Which true frames are given at prediction: the same ones for every system and seed."""
    return Observation(share)


def names_of(datasets: Iterable[Line]) -> str:
    """The names of datasets, for messages."""
    return ", ".join(sorted({line["dataset"] for line in datasets}))
