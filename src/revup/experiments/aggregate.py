"""Labels of several sources aggregated into one before training, as is usual: the rivals of learning from the sources.

    vote           the label that most sources give; of equals that of the source listed first
    dawid-skene    Dawid and Skene's EM over confusion matrices (crowd-kit)
    snorkel        Snorkel's label model

The last two give a distribution for each event, of which the heaviest frames are kept. They need their library once:
what they found is kept in a file, which also serves where the library is not installed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.errors import RevupError
from revup.experiments.runs import read_lines, write_lines

METHODS = {"vote": "", "dawid-skene": "crowdkit", "snorkel": "snorkel"}  # method → the library that it needs
PACKAGES = {"crowdkit": "crowd-kit", "snorkel": "snorkel"}
KEPT = 5  # frames of an event's distribution
STEPS = 200  # of Snorkel's label model
SMALLEST = 0.005  # share of a frame that is kept

Array = NDArray[Any]
Says = Mapping[str, Mapping[str, Array]]  # split → source → frame of each event, -1 where it is silent


def lacking(method: str, labels: Path, name: str) -> str:
    """Why a method can't be used: its library is not installed and its labels are not there; empty if it can."""
    library = METHODS[method]
    if not library or kept(labels, name).exists() or find_spec(library) is not None:
        return ""
    return f"{method} needs {PACKAGES[library]}, which is not installed"


def aggregated(
    method: str, says: Says, classes: int, labels: Path, name: str
) -> tuple[dict[str, Array], dict[str, Array]]:
    """One distribution for each event out of what the sources say.

    Args:
        method: One of `METHODS`.
        says: What each source says of the events of each split, [N, M].
        classes: The number of frames.
        labels: Directory of labels that were aggregated before.
        name: Identifies these labels there.

    Returns:
        Frames and weights of each split, [N, M, W]; all weights are 0 where every source is silent.

    Raises:
        RevupError: A library is missing.
    """
    votes = np.concatenate([np.stack([*told.values()], -1).reshape(-1, len(told)) for told in says.values()])
    path = kept(labels, name)
    if path.exists():
        line = read_lines(path)[0][0]
        found = np.array(line["frames"]), np.array(line["weights"])
    else:
        if why := lacking(method, labels, name):
            raise RevupError(why)
        found = _heaviest(_METHODS[method](votes, classes))
        if METHODS[method]:
            labels.mkdir(parents=True, exist_ok=True)
            write_lines(path, [{"labels": name, "frames": found[0].tolist(), "weights": found[1].tolist()}])
    found[1][(votes < 0).all(1)] = 0
    frames, weights, start = {}, {}, 0
    for split, told in says.items():
        shape = next(iter(told.values())).shape
        rows = slice(start, start + int(np.prod(shape)))
        start = rows.stop
        frames[split], weights[split] = (part[rows].reshape(*shape, -1) for part in found)
    return frames, weights


def kept(labels: Path, name: str) -> Path:
    """The file in which aggregated labels are kept."""
    return labels / f"{hashlib.sha256(name.encode()).hexdigest()[:20]}.jsonl.gz"  # whatever the version of the maths


def _heaviest(shares: Array) -> tuple[Array, Array]:
    """The heaviest frames of each row of a matrix [n, K], with their shares, which then sum to 1."""
    order = np.argsort(-shares, axis=1, kind="stable")[:, :KEPT]
    weights = np.take_along_axis(shares, order, 1)
    weights = np.where(weights >= SMALLEST, weights, 0.0)
    total = weights.sum(1, keepdims=True)
    return order, np.round(np.divide(weights, total, out=np.zeros_like(weights), where=total > 0), 4)


def _vote(votes: Array, classes: int) -> Array:
    counts = np.zeros((len(votes), classes))
    for source in range(votes.shape[1]):
        rows = np.flatnonzero(votes[:, source] >= 0)
        counts[rows, votes[rows, source]] += 1 - 1e-3 * source
    chosen = counts.argmax(1)
    return np.where(counts.max(1, keepdims=True) > 0, np.eye(classes)[chosen], 0.0)


def _dawid_skene(votes: Array, classes: int) -> Array:
    import pandas as pd
    from crowdkit.aggregation import DawidSkene

    task, worker = np.nonzero(votes >= 0)
    given = pd.DataFrame({"task": task, "worker": worker, "label": votes[task, worker]})
    found = DawidSkene(n_iter=100).fit_predict_proba(given)
    shares = np.zeros((len(votes), classes))
    shares[np.ix_(found.index.to_numpy(), found.columns.to_numpy())] = found.to_numpy()
    return shares


def _snorkel(votes: Array, classes: int) -> Array:
    from snorkel.labeling.model import LabelModel

    there = (votes >= 0).any(1)
    named = np.unique(votes[votes >= 0])  # its matrices are of all labels: those that nobody gives are left out
    number = np.full(classes + 1, -1)  # the last one: silent
    number[named] = np.arange(len(named))
    model = LabelModel(cardinality=len(named), verbose=False)
    model.fit(number[votes[there]], n_epochs=STEPS, seed=0, progress_bar=False)
    shares = np.zeros((len(votes), classes))
    shares[np.ix_(there, named)] = model.predict_proba(number[votes[there]])
    return shares


_METHODS = {"vote": _vote, "dawid-skene": _dawid_skene, "snorkel": _snorkel}
