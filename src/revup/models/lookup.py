"""Lookup: the most frequent observed label of the predicate, backed off to the overall distribution.

    base_k = (C_k + 1/K) / (N + 1)                        over all events with an observed label
    p(k|pred) = (C_pred,k + a·base_k) / (N_pred + a)      a: smoothing, 1 by default

A predicate without any observed label gets the overall distribution. With integer counts and a ≤ 1 the most probable
frame is the most frequent one; ties go to the frame that is more frequent overall, then to the first by name. A
distribution over frames adds its probabilities to the counts. Wrong labels are not discounted: spread evenly over K
frames, they seldom outvote the right one. With `key` = lemma, all forms of a lemma share their counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revup.data.batches import Batch
from revup.data.corpus import Corpus
from revup.data.encode import TOKENS
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.fields import check, setting
from revup.models.base import WithoutText
from revup.models.network import Architecture, Network, Sizes

Array = NDArray[Any]


@dataclass(frozen=True)
class Objective:
    """What labels are counted by, and the weight of the overall distribution against a predicate's own counts."""

    smoothing: float = setting(1.0, "weight a of the overall frequencies, in labels, beside a predicate's own", above=0)
    key: str = setting(
        "form", "what labels are counted by: the form of the predicate, or its lemma", choices=("form", "lemma")
    )

    def __post_init__(self) -> None:
        check(self, "objective")


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {},
    "lemma": {"objective": {"key": "lemma"}},
    "paper": {},
    "released": {},
}


class Lookup(WithoutText):
    """A table of counts of observed labels per predicate; `prepare` counts, and there is nothing else to train.

    Its arrays: `preds` [R], the predicates with a label, ascending; the frames of row i and their numbers of labels are
    `frames[starts[i]:starts[i+1]]` and `labels[...]`; `overall` [K]. Predicates are numbers of the corpus's vocabulary,
    or those of its lemmas.
    """

    predicts_frames = True
    writes_text = False
    learns = False
    objective: Objective
    ARRAYS = ("preds", "starts", "frames", "labels", "overall")

    def __init__(
        self, sizes: Sizes | None = None, network: Architecture | None = None, objective: Objective | None = None
    ) -> None:
        super().__init__(sizes or Sizes(0, 0, 0), network or Network().resolve(0), objective or Objective())
        for name in self.ARRAYS:
            self.register_buffer(name, torch.zeros(0))
        self._set(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), sizes.classes if sizes else 0)

    # ---- counting ------------------------------------------------------------------------------------------------

    def fit(self, corpus: Corpus, observation: Observation) -> Lookup:
        """Count the observed labels of a corpus's training split, in the numbers of its vocabulary and frame list."""
        split = corpus.split("train")
        seen = split.seen(observation)
        by_lemma = self.objective.key == "lemma"
        keys = np.asarray(split.arrays["lemma"]) if by_lemma else np.asarray(split.arrays["tokens"])[..., 0]
        preds = np.broadcast_to(keys[..., None], seen.frames.shape)
        there = seen.observed[..., None] & (seen.weights > 0)
        self._set(preds[there], seen.frames[there], seen.weights[there], split.classes)
        return self

    def _set(self, preds: Array, frames: Array, weights: Array, classes: int) -> None:
        cells, inverse = np.unique(preds.astype(np.int64) * max(classes, 1) + frames, return_inverse=True)
        counts = np.bincount(inverse, weights, minlength=len(cells)).astype(np.float64)  # whole numbers without any
        rows, frames = np.divmod(cells, max(classes, 1))
        used, starts = np.unique(rows, return_index=True)
        overall = np.bincount(frames, counts, minlength=classes).astype(np.float64)
        ends = np.append(starts, len(rows)).astype(np.int64)
        for name, array in zip(self.ARRAYS, (used, ends, frames, counts, overall), strict=True):
            setattr(self, name, torch.from_numpy(array))

    @property
    def arrays(self) -> dict[str, Array]:
        """The table as numpy arrays."""
        return {name: self.get_buffer(name).numpy() for name in self.ARRAYS}

    # ---- looking up ----------------------------------------------------------------------------------------------

    def probabilities(self, preds: Array) -> NDArray[np.float32]:
        """p(frame|pred) [..., K] for numbers of predicates [...]; the overall distribution for unknown ones."""
        a, smoothing = self.arrays, self.objective.smoothing
        overall = a["overall"]
        base = (overall + 1 / max(len(overall), 1)) / (overall.sum() + 1)
        asked, where = np.unique(np.asarray(preds).reshape(-1), return_inverse=True)
        table = np.tile(smoothing * base, (len(asked), 1))
        if len(a["preds"]):
            row = np.minimum(np.searchsorted(a["preds"], asked), len(a["preds"]) - 1)
            known = np.flatnonzero(a["preds"][row] == asked)
            first, sizes = a["starts"][row[known]], np.diff(a["starts"])[row[known]]
            cells = np.arange(sizes.sum()) + np.repeat(first - np.cumsum(sizes) + sizes, sizes)
            table[np.repeat(known, sizes), a["frames"][cells]] += a["labels"][cells]
        table /= table.sum(1, keepdims=True)
        return table.astype(np.float32)[where].reshape(*np.shape(preds), len(overall))

    # ---- files ---------------------------------------------------------------------------------------------------

    def _apply(self, fn: Any, recurse: bool = True) -> Lookup:
        """Keep the counts in main memory; results are moved to the device of the batch."""
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Load a table of any length; raises RevupError if the arrays are not a valid table of counts."""
        missing = [name for name in self.ARRAYS if prefix + name not in state_dict]
        if missing:
            raise RevupError(f"not a lookup table: '{missing[0]}' is missing")
        a = {name: np.asarray(state_dict[prefix + name]) for name in self.ARRAYS}
        starts, size, classes = a["starts"], len(a["frames"]), len(a["overall"])
        sound = (
            all(array.ndim == 1 and array.dtype.kind in "iuf" for array in a.values())
            and len(starts) == len(a["preds"]) + 1
            and (np.diff(a["preds"]) > 0).all()
            and (np.diff(starts) >= 0).all()
            and starts[0] == 0
            and starts[-1] == size == len(a["labels"])
            and (size == 0 or 0 <= a["frames"].min() <= a["frames"].max() < classes)
            and self.sizes.classes in (0, classes)
            and all(np.isfinite(a[name]).all() and (a[name] >= 0).all() for name in ("labels", "overall"))
        )
        if not sound:
            raise RevupError("not a lookup table: its arrays do not fit together")
        for name in self.ARRAYS:
            setattr(self, name, torch.zeros_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    # ---- as every model ------------------------------------------------------------------------------------------

    def prepare(self, corpus: Corpus, observation: Observation) -> dict[str, float]:
        """Count; report how many predicates have a label, and how many labels there are."""
        self.fit(corpus, observation)
        return {"predicates": float(len(self.arrays["preds"])), "labels": float(self.arrays["overall"].sum())}

    def propose(self, batch: Batch) -> Tensor:
        """p(frame|pred) [B, M, K]."""
        preds = batch.lemma if self.objective.key == "lemma" else batch.tokens[:, ::TOKENS]
        found = self.probabilities(preds.cpu().numpy())
        proposed = torch.from_numpy(found).to(batch.tokens.device)
        return proposed
