"""Counts as a prior inside the proposal: what other events with the same words were seen to be.

    θ_similar = (Σ_n k_n·C_n/N_n + c·base)/(Σ_n k_n + c)          n: the nearest lemmas by their word vectors
    θ_lemma = (C_lemma + a·θ_similar)/(N_lemma + a),    θ_form = (C_form + a·θ_lemma)/(N_form + a)
    log prior(t|event) = log θ_form(t) + Σ_slot w_slot · log p(word_slot|t)/p(word_slot)
    p(w|t)/p(w) = (C_w(t) + b·p(w)) / ((C(t) + b)·p(w))

C are the noise-discounted counts of `knowledge.pool`: of the predicate's form and lemma, and of the words in the other
slots (subject, object, modifier). How much a slot says beside the predicate is learned: w is a parameter. Where few
labels of a predicate were seen, or none, those of similar predicates stand in, k_n = e^{τ(cos − 1)}·N_n/(N_n + 1); its
own lemma is not among them. In training an event's own label is left out of every count, or the model would learn to
copy it from there. Predicates are numbered as they are read (`Vocabulary`).

Where no frame is seen at all, frames are made up to be counted (`induced`), of all events, each one's own included: a
proposal that says nothing at first is never listened to by the decoder, which alone could teach it to say more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revup import ops
from revup.data.corpus import Corpus, Split
from revup.data.encode import PAD, TOKENS
from revup.data.events import SLOTS
from revup.data.knowledge import Observation, Pooled, Seen, pool
from revup.data.vocabulary import Vocabulary
from revup.models.layers import make_room

ARGUMENTS = len(SLOTS) - 1
SLOT_SMOOTHING = 20.0  # b
NEIGHBOURS = 16
ANCHOR = 2000.0  # labels
SHARPNESS = 15.0  # τ
SIMILAR_SMOOTHING = 0.002  # c
ROWS_AT_ONCE = 2048  # words whose neighbours are looked for together
LARGEST_TABLE = 2**23  # numbers; the rarest words of a slot stay out of a larger one


class PooledPrior(nn.Module):
    """Pooled counts as buffers: a row for each form, lemma and slot word with a seen frame, row 0 for all others."""

    form_row: Tensor
    lemma_row: Tensor
    slot_row: Tensor
    forms: Tensor
    lemmas: Tensor
    slots: Tensor
    base: Tensor
    near: Tensor
    near_weights: Tensor
    noise_rate: Tensor
    total: Tensor

    def __init__(
        self,
        words: int,
        classes: int,
        kind: str = "pooled",
        neighbours: int = NEIGHBOURS,
        smoothing: float = 1.0,
        induce: bool = False,
    ) -> None:
        """kind: "pooled" counts predicates and the other slots' words; anything else predicates alone.

        induce: where no frame is seen at all, count `induced` ones.
        """
        super().__init__()
        self.words, self.neighbours, self.smoothing = words, neighbours, smoothing
        self.induce = induce and kind != "none"  # or no proposal would stand on them
        self.register_buffer("near", torch.zeros(0, neighbours, dtype=torch.int32))  # rows of lemmas
        self.register_buffer("near_weights", torch.zeros(0, neighbours))  # k_n/N_n
        for name in ("form_row", "lemma_row"):
            self.register_buffer(name, torch.zeros(words, dtype=torch.long))
        for name in ("forms", "lemmas"):
            self.register_buffer(name, torch.zeros(1, classes))
        self.register_buffer("base", torch.full((classes,), 1.0 / classes))
        self.register_buffer("noise_rate", torch.zeros(()))
        self.register_buffer("total", torch.zeros(classes), persistent=False)  # of the lemmas: C(t)
        self.counted = 0.0  # labels, in all
        self.slot_weights = nn.Parameter(torch.full((ARGUMENTS,), 0.3)) if kind == "pooled" else None
        if self.slot_weights is not None:
            self.register_buffer("slot_row", torch.zeros(ARGUMENTS, words, dtype=torch.long))
            self.register_buffer("slots", torch.zeros(1, classes))

    def fit(self, corpus: Corpus, observation: Observation, noise_rate: float | None) -> int:
        """Pool what is seen of the training split; estimate its error rate unless it is given.

        How many frames were made up, which is 0 if any was seen.
        """
        split = corpus.split("train")
        seen = split.seen(observation)
        preds = np.asarray(split.arrays["tokens"][..., 0])
        lemma_of = lemma_numbers(corpus.vocabulary)
        vectors, made_up = corpus.vectors(), 0
        if self.induce and not seen.observed.any():
            seen, noise_rate = induced(preds, lemma_of, vectors, split.classes), 0.0
            made_up = len(np.unique(seen.frames[seen.observed]))
        used = np.unique(preds[seen.observed])
        form_row = _rows(used, len(corpus.vocabulary))
        lemma_row = _rows(np.unique(lemma_of[used]), int(lemma_of.max()) + 1)[lemma_of]
        classes = split.classes
        by_lemma: Pooled = pool(lemma_row[preds], seen, classes, int(lemma_row.max()) + 1, noise_rate)
        by_form = pool(form_row[preds], seen, classes, len(used) + 1, by_lemma.noise_rate)
        self.form_row.copy_(torch.from_numpy(form_row))
        self.lemma_row.copy_(torch.from_numpy(lemma_row))
        self.forms = torch.from_numpy(by_form.counts).to(self.base)
        self.lemmas = torch.from_numpy(by_lemma.counts).to(self.base)
        self._add_up()
        self.base.copy_(torch.from_numpy(by_lemma.base))
        self.noise_rate.fill_(by_lemma.noise_rate)
        if self.slot_weights is not None:
            self._fit_slots(split, seen, form_row[preds], by_form)
        if self.neighbours and vectors is not None:
            self._find_neighbours(*vectors)
        return made_up

    def _find_neighbours(self, vectors: NDArray[Any], found: NDArray[Any]) -> None:
        """For every word that has a vector, the lemmas with the most similar ones, of those with a label."""
        device = self.base.device
        kind = torch.float64 if device.type == "cuda" else torch.float32  # a GPU would round its products
        lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        unit = torch.from_numpy(vectors * found[:, None] / lengths)  # stays here, a part goes there at a time
        has_vector = torch.from_numpy(found).to(device)
        own = torch.zeros(len(unit), dtype=torch.long, device=device)
        own[: self.words] = self.lemma_row
        labels = self.forms.sum(1)[self.form_row] * (self.form_row > 0)  # how much each form weighs in its lemma
        middle = torch.zeros(len(self.lemmas), unit.shape[1]).index_add_(
            0, self.lemma_row.cpu(), unit[: self.words] * labels.unsqueeze(1).cpu()
        )
        middle = middle.to(device, kind)
        length = middle.norm(dim=1, keepdim=True)
        counts = self.lemmas.sum(1)
        usable = (length.squeeze(1) > 1e-9) & (counts > 1e-9)
        usable[0] = False
        middle = middle / length.clamp_min(1e-9)
        size = min(self.neighbours, len(self.lemmas))
        self.near = torch.zeros(len(unit), self.neighbours, dtype=torch.int32, device=device)
        self.near_weights = torch.zeros(len(unit), self.neighbours, device=device)
        for start in range(0, len(unit), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            cosine = unit[part].to(device, kind) @ middle.t()
            cosine[:, ~usable] = -torch.inf
            cosine[torch.arange(len(cosine), device=device), own[part]] = -torch.inf
            best, row = cosine.topk(size, dim=1)
            weights = torch.exp(SHARPNESS * (best.float() - 1)) / (counts[row] + 1)
            weights[~has_vector[part]] = 0.0
            self.near[part, :size], self.near_weights[part, :size] = row.int(), weights

    def _fit_slots(self, split: Split, seen: Seen, groups: NDArray[np.int64], pooled: Pooled) -> None:
        """Count the words of the other slots with each label, as far as it is believed to be genuine."""
        where, classes = seen.observed, split.classes
        frames, weights, group = seen.frames[where], seen.weights[where], groups[where]
        raw = np.zeros_like(pooled.counts)
        np.add.at(raw, (group[:, None], frames), weights)
        genuine = weights * (pooled.counts / np.maximum(raw, 1e-9))[group[:, None], frames]
        tables = [np.zeros((1, classes), np.float32)]
        for slot in range(ARGUMENTS):
            words = np.asarray(split.arrays["tokens"][..., slot + 1])[where]
            used, counts = np.unique(words, return_counts=True)
            used = used[np.argsort(-counts, kind="stable")][: max(1, LARGEST_TABLE // classes)]
            rows = _rows(used, self.slot_row.shape[1])
            table = np.zeros((len(used) + 1, classes), np.float32)
            np.add.at(table, (rows[words][:, None], frames), genuine)
            before = sum(len(part) for part in tables)
            self.slot_row[slot].copy_(torch.from_numpy(np.where(rows > 0, rows + before - 1, 0)))
            tables.append(table[1:])
        self.slots = torch.from_numpy(np.concatenate(tables)).to(self.base)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Take as many rows as were saved."""
        make_room(self, ("forms", "lemmas", "slots", "near", "near_weights"), state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._add_up()

    def _add_up(self) -> None:
        self.total = self.lemmas.sum(0)
        self.counted = float(self.total.sum())

    def anchor(self, labels: float) -> float:
        """How much staying near this prior weighs, for an event: as if it were worth so many of the labels counted.

        Where none was there is nothing to stay near: 0.
        """
        return min(labels / max(self.counted, 1.0), 1.0) if self.counted > 0 else 0.0

    def forward(self, read: Tensor, own: Tensor | None = None) -> Tensor:
        """read [B, M·5] → log prior [B, M, K]; own [B, M, K]: the labels to be left out of the counts."""
        return ops.pooled_log_prior(self.tables(), read.view(len(read), -1, TOKENS), own)

    def tables(self) -> ops.CountTables:
        """The counts as the operation takes them."""
        has_vectors, has_slots = len(self.near) > 0, self.slot_weights is not None
        return ops.CountTables(
            words=self.words,
            form_row=self.form_row,
            lemma_row=self.lemma_row,
            forms=self.forms,
            lemmas=self.lemmas,
            base=self.base,
            total=self.total,
            near=self.near if has_vectors else None,
            near_weights=self.near_weights if has_vectors else None,
            slot_row=self.slot_row if has_slots else None,
            slots=self.slots if has_slots else None,
            slot_weights=self.slot_weights,
            smoothing=self.smoothing,
            similar_smoothing=SIMILAR_SMOOTHING,
            slot_smoothing=SLOT_SMOOTHING,
        )


def fit_prior(
    prior: PooledPrior | None, noise: str, noise_rate: float | None, corpus: Corpus, observation: Observation
) -> dict[str, float]:
    """Fit a model's prior, if it has one, before its first step; figures worth reporting: the error rate, and how many
    frames were made up, if no frame was seen.

    noise: "none" takes what is seen for the truth; noise_rate tells the rate instead of estimating it.
    """
    if prior is None:
        return {}
    made_up = prior.fit(corpus, observation, 0.0 if noise == "none" and noise_rate is None else noise_rate)
    return {"noise_rate": float(prior.noise_rate), **({"induced_frames": float(made_up)} if made_up else {})}


def error_rate(prior: PooledPrior | None, noise: str) -> Tensor | None:
    """The share of wrong frames among those that are seen, by a model's prior; None: what is seen is the truth."""
    return prior.noise_rate if prior is not None and noise == "estimated" else None


def induced(
    preds: NDArray[Any], lemma_of: NDArray[np.int64], vectors: tuple[NDArray[Any], NDArray[Any]] | None, classes: int
) -> Seen:
    """Frames where nobody gave any: each of the K most frequent lemmas of predicates is one, a rarer one is that of the
    most similar of them by its word vector (without a vector, any).

    vectors: of the words, and which of them have one.
    """
    there = preds != PAD
    lemmas, counts = np.unique(lemma_of[preds[there]], return_counts=True)
    lemmas = lemmas[np.argsort(-counts, kind="stable")]
    frame = np.zeros(int(lemma_of.max()) + 1, np.int64)
    frame[lemmas] = np.arange(len(lemmas)) % classes
    rare = lemmas[classes:]
    if len(rare) and vectors is not None:
        mean = np.zeros((len(frame), vectors[0].shape[1]), np.float64)
        known = np.flatnonzero(vectors[1][: len(lemma_of)])
        np.add.at(mean, lemma_of[known], vectors[0][known])
        mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-9)
        cosine = mean[rare] @ mean[lemmas[:classes]].T
        frame[rare] = np.where(cosine.max(1) > 0, cosine.argmax(1), frame[rare])
    ones = there.astype(np.float32)
    return Seen(frame[lemma_of[preds]][..., None] * there[..., None], ones[..., None], there, ones)


def lemma_numbers(vocabulary: Vocabulary) -> NDArray[np.int64]:
    """A number for each word's lemma, words of one lemma sharing it."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(lemma, len(numbers)) for lemma in vocabulary.lemmas], np.int64)


def _rows(used: NDArray[Any], size: int) -> NDArray[np.int64]:
    rows = np.zeros(size, np.int64)
    rows[used] = np.arange(1, len(used) + 1)
    return rows
