"""Propagation: labels spread over a graph of predicates by the similarity of their word vectors.

Nodes are the lemmas of the training predicates, each linked to its nearest ones by the cosine of their vectors:

    W_ij = e^{s(cos(i,j) − 1)} for the k nearest of i or of j,      S = D^{−½} W D^{−½}
    Y_i  = C_i / (N_i + 1)                      C_i: labels of lemma i, N_i: their sum; 0 without any
    F    ← α S F + (1−α) Y                      until it no longer changes (Zhou et al., 2004)
    p(t|i) ∝ F_i + 0.001·base

A predicate whose lemma is no node takes the mean p of its nearest nodes, weighted as above; without a vector, the
overall distribution. Context and arguments are not used.
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
from revup.data.encode import TOKENS, UNK
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.fields import check, setting
from revup.models.base import WithoutText
from revup.models.count_features import rows_of
from revup.models.layers import make_room
from revup.models.network import Architecture, Sizes

Array = NDArray[Any]
ROUNDS, TOLERANCE = 100, 1e-5
BASE_WEIGHT = 1e-3
ROWS = 4096  # of words that are compared at once


@dataclass(frozen=True)
class Objective:
    """The graph, and how far labels spread over it."""

    neighbours: int = setting(10, "nearest predicates that a predicate is linked to", minimum=1, maximum=1000)
    sharpness: float = setting(10.0, "how fast the weight of a link falls with the cosine s", minimum=0)
    spread: float = setting(0.5, "share α that a predicate takes from its neighbours", minimum=0, below=1)

    def __post_init__(self) -> None:
        check(self, "objective")


PRESETS: dict[str, dict[str, dict[str, Any]]] = {"default": {}, "paper": {}, "released": {}}


class Propagation(WithoutText):
    """The spread labels; `prepare` does all the training.

    Its arrays: `distributions` [R + 1, K], of the nodes and, last, overall; `node` [L]: the node of each lemma, -1
    without one; `near`, `closeness` [V + X, k]: the nearest nodes of each word by their vectors.
    """

    predicts_frames = True
    writes_text = False
    learns = False
    objective: Objective
    distributions: Tensor
    node: Tensor
    near: Tensor
    closeness: Tensor
    ARRAYS = ("distributions", "node", "near", "closeness")
    word_arrays = ("near",)

    def __init__(self, sizes: Sizes, network: Architecture, objective: Objective) -> None:
        super().__init__(sizes, network, objective)
        self.register_buffer("distributions", torch.zeros(0, sizes.classes))
        self.register_buffer("node", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("near", torch.zeros(0, objective.neighbours, dtype=torch.int64))
        self.register_buffer("closeness", torch.zeros(0, objective.neighbours))

    def prepare(self, corpus: Corpus, observation: Observation) -> dict[str, float]:
        """Build the graph of the training predicates and spread their observed labels."""
        o, split = self.objective, corpus.split("train")
        seen = split.seen(observation)
        lemma, read = (np.asarray(split.arrays[name]).astype(np.int64) for name in ("lemma", "lemma_read"))
        there = (np.arange(lemma.shape[1]) < np.asarray(split.arrays["lengths"])[:, None]) & (lemma >= 0)
        lemmas, first, where = np.unique(lemma[there], return_index=True, return_inverse=True)
        use = there[..., None] & seen.observed[..., None] & (seen.weights > 0)
        place = np.zeros(lemma.shape, np.int64)
        place[there] = where
        cell = np.broadcast_to(place[..., None], use.shape)[use] * split.classes + seen.frames[use]
        counts = np.bincount(cell, seen.weights[use], minlength=len(lemmas) * split.classes)
        counts = counts.reshape(len(lemmas), split.classes)
        near, closeness = np.zeros((0, o.neighbours), np.int64), np.zeros((0, o.neighbours))
        given = corpus.vectors()
        total = counts.sum(0)
        base = (total + 1 / split.classes) / (total.sum() + 1)
        labels = counts / (counts.sum(1, keepdims=True) + 1)
        if given is not None:
            rows = rows_of(read[there][first], len(corpus.vocabulary))
            own = np.where((read[there][first] != UNK) & given[1][rows], rows, -1)
            near, closeness = nearest(unit(given[0]), given[1], own, o.neighbours, o.sharpness)
            labels = spread(labels, near, closeness, own, o.spread)
        found = labels + BASE_WEIGHT * base
        found = np.concatenate([found / found.sum(1, keepdims=True), base[None]])
        node = np.full(corpus.vocabulary.distinct_lemmas, -1, np.int64)
        node[lemmas] = np.arange(len(lemmas))
        for name, array in zip(self.ARRAYS, (found, node, near, closeness), strict=True):
            kind = torch.int64 if array.dtype.kind == "i" else torch.float32
            setattr(self, name, torch.from_numpy(np.ascontiguousarray(array)).to(self.device, kind))
        labelled = float((counts.sum(1) > 0).sum())
        return {"predicates": float(len(lemmas)), "labelled_predicates": labelled}

    def propose(self, batch: Batch) -> Tensor:
        """p(frame|lemma) [B, M, K]."""
        last, words = len(self.distributions) - 1, self.sizes.words
        node = number_at(self.node, batch.lemma, -1)
        proposed = self.distributions[torch.where(node >= 0, node, last)]
        if len(self.near):
            read = batch.read[:, ::TOKENS]
            row = torch.where(read < words, read, read - words)
            weight = self.closeness[row] * ((node < 0) & (read != UNK)).unsqueeze(-1)
            total = weight.sum(-1, keepdim=True)
            mixed = torch.zeros_like(proposed)
            for place in range(weight.shape[-1]):
                mixed += weight[..., place : place + 1] * self.distributions[self.near[row][..., place]]
            proposed = torch.where(total > 0, mixed / total.clamp_min(1e-30), proposed)
        return proposed

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Load arrays of any length; raises RevupError if they do not fit together."""
        a = {name: state_dict.get(prefix + name) for name in self.ARRAYS}
        last = len(a["distributions"]) - 1 if a["distributions"] is not None else -1
        for name, least in (("node", -1), ("near", 0)):
            found = a[name]
            if (
                found is None
                or last < 0
                or (found.numel() and not least <= int(found.min()) <= int(found.max()) < last)
            ):
                raise RevupError(f"not spread labels: '{name}' does not fit the other arrays")
        if a["closeness"] is None or a["near"] is None or a["closeness"].shape != a["near"].shape:
            raise RevupError("not spread labels: 'closeness' does not fit the other arrays")
        shares = a["distributions"]
        if (
            shares is None
            or (shares < 0).any()
            or ((shares.sum(1) - 1).abs() > 1e-3).any()
            or (a["closeness"] < 0).any()
        ):
            raise RevupError("not spread labels: expected distributions over frames, and weights of 0 or more")
        make_room(self, self.ARRAYS, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def number_at(table: Tensor, index: Tensor, nothing: int) -> Tensor:
    """The numbers at some places of a table, `nothing` at places that it lacks (a run may be damaged)."""
    if not len(table):
        return torch.full_like(index, nothing)
    there = (index >= 0) & (index < len(table))
    return torch.where(there, table[index.clamp(0, len(table) - 1)], nothing)


def unit(vectors: Array) -> NDArray[np.float32]:
    """Vectors of length 1, or 0 where they are 0, [.., d]."""
    found = vectors.astype(np.float32)
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9))


def nearest(vectors: Array, found: Array, own: Array, neighbours: int, sharpness: float) -> tuple[Array, Array]:
    """The nearest nodes of every word, none of them the word itself.

    Args:
        vectors: Of length 1 [V, d].
        found: Which words have one [V].
        own: The word of each node [R], -1 for one without a vector.
        neighbours: How many.
        sharpness: s.

    Returns:
        Nodes [V, neighbours], and the weights of the links; 0 where there are not so many.
    """
    nodes = np.flatnonzero(own >= 0)
    near = np.zeros((len(vectors), neighbours), np.int64)
    closeness = np.zeros((len(vectors), neighbours), np.float32)
    number = min(neighbours, len(nodes))
    if not number:
        return near, closeness
    for begin in range(0, len(vectors), ROWS):
        part = slice(begin, min(begin + ROWS, len(vectors)))
        cosine = vectors[part] @ vectors[own[nodes]].T
        cosine[np.arange(part.start, part.stop)[:, None] == own[nodes]] = -np.inf
        best = np.argpartition(-cosine, number - 1, axis=1)[:, :number]
        value = np.take_along_axis(cosine, best, 1)
        near[part, :number] = nodes[best]
        closeness[part, :number] = np.exp(sharpness * (value - 1)) * found[part, None]
    return near, closeness


def spread(labels: Array, near: Array, closeness: Array, own: Array, share: float) -> Array:
    """F of the equations above [R, K].

    Args:
        labels: Y [R, K].
        near, closeness: The nearest nodes of every word [V, k] (`nearest`).
        own: The word of each node [R], -1 for one without a vector.
        share: α.
    """
    nodes = np.flatnonzero(own >= 0)
    row, column = np.repeat(nodes, near.shape[1]), near[own[nodes]].ravel()
    value = closeness[own[nodes]].ravel().astype(np.float64)
    linked = value > 0
    ends = np.concatenate([row * len(own) + column, column * len(own) + row])[np.tile(linked, 2)]
    pairs, where = np.unique(ends, return_index=True)  # a link holds in both directions
    row, column = np.divmod(pairs, len(own))
    value = np.tile(value[linked], 2)[where]
    degree = np.maximum(np.bincount(row, value, minlength=len(own)), 1e-30)
    weights = torch.sparse_coo_tensor(
        torch.from_numpy(np.stack([row, column])),
        torch.from_numpy(value / np.sqrt(degree[row] * degree[column])),
        (len(own), len(own)),
        check_invariants=False,
    ).coalesce()
    start = torch.from_numpy(np.ascontiguousarray(labels, np.float64))
    found = start
    for _ in range(ROUNDS):
        before, found = found, share * torch.sparse.mm(weights, found) + (1 - share) * start
        if float((found - before).abs().max()) < TOLERANCE:
            break
    return np.asarray(found.numpy())
