"""Pooled counts: a prior over frames from the observed labels of other events with the same words.

    θ_similar = (Σ_n k_n·C_n/N_n + c·base)/(Σ_n k_n + c)          n: the nearest lemmas by their word vectors
    θ_lemma = (C_lemma + a·θ_similar)/(N_lemma + a),    θ_form = (C_form + a·θ_lemma)/(N_form + a)
    log prior(t|event) = log θ_form(t) + Σ_slot w_slot · log p(word_slot|t)/p(word_slot)
    p(w|t)/p(w) = (C_w(t) + b·p(w)) / ((C(t) + b)·p(w))

C are the noise-corrected counts of `knowledge.pool` for the predicate's form, its lemma, and the words in the other
slots (subject, object, modifier). The weights w of the slots are learned parameters. A predicate with few or no
observed labels falls back on similar predicates, weighted by k_n = e^{τ(cos − 1)}·N_n/(N_n + 1); its own lemma is
excluded. In training, an event's own label is excluded from every count, since the model would otherwise learn to
copy it. Predicate numbers are those of `Vocabulary`.

If no label is observed at all, the counts are taken from induced frames (`induced`), including each event's own: with
an initially uniform proposal the decoder ignores the frames, and the proposal then gets no gradient from the text.
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
ROWS_AT_ONCE = 2048  # words per chunk of the neighbour search
LARGEST_TABLE = 2**23  # elements; a larger table drops the rarest words


class PooledPrior(nn.Module):
    """Pooled counts as buffers: a row per form, lemma and slot word with an observed label; row 0 for others."""

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
        """Create empty tables; `fit` or loading a state dict fills them.

        Args:
            words: The size V of the vocabulary.
            classes: The number of frames K.
            kind: "pooled" counts predicates and the words of the other slots; any other value counts predicates only.
            neighbours: Number of similar lemmas that a predicate with few labels falls back on.
            smoothing: The weight a of the backed-off distribution, in labels.
            induce: Whether to count `induced` frames if no label is observed at all.
        """
        super().__init__()
        self.words, self.neighbours, self.smoothing = words, neighbours, smoothing
        self.induce = induce and kind != "none"  # without a prior, induced counts would not be used
        self.register_buffer("near", torch.zeros(0, neighbours, dtype=torch.int32))  # rows of lemmas
        self.register_buffer("near_weights", torch.zeros(0, neighbours))  # k_n/N_n
        for name in ("form_row", "lemma_row"):
            self.register_buffer(name, torch.zeros(words, dtype=torch.long))
        for name in ("forms", "lemmas"):
            self.register_buffer(name, torch.zeros(1, classes))
        self.register_buffer("base", torch.full((classes,), 1.0 / classes))
        self.register_buffer("noise_rate", torch.zeros(()))
        self.register_buffer("total", torch.zeros(classes), persistent=False)  # of the lemmas: C(t)
        self.counted = 0.0  # total number of labels
        self.slot_weights = nn.Parameter(torch.full((ARGUMENTS,), 0.3)) if kind == "pooled" else None
        if self.slot_weights is not None:
            self.register_buffer("slot_row", torch.zeros(ARGUMENTS, words, dtype=torch.long))
            self.register_buffer("slots", torch.zeros(1, classes))

    def fit(self, corpus: Corpus, observation: Observation, noise_rate: float | None) -> int:
        """Pool the observed labels of the training split.

        Args:
            corpus: The dataset.
            observation: Which labels are observed, and which of them are wrong.
            noise_rate: The share of wrong labels; None estimates it.

        Returns:
            The number of induced frames; 0 if any label is observed.
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
        """Find the labelled lemmas with the most similar vectors, for every word that has a vector."""
        device = self.base.device
        kind = torch.float64 if device.type == "cuda" else torch.float32  # GPUs may round float32 products to TF32
        lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        unit = torch.from_numpy(vectors * found[:, None] / lengths)  # kept on the CPU and moved to the device in chunks
        has_vector = torch.from_numpy(found).to(device)
        own = torch.zeros(len(unit), dtype=torch.long, device=device)
        own[: self.words] = self.lemma_row
        labels = self.forms.sum(1)[self.form_row] * (self.form_row > 0)  # weight in the lemma's mean vector
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
        """Count the words of the other slots per label, weighted by the estimated share of correct labels."""
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
        """Resize the tables to the number of saved rows, then load them."""
        make_room(self, ("forms", "lemmas", "slots", "near", "near_weights"), state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self._add_up()

    def _add_up(self) -> None:
        self.total = self.lemmas.sum(0)
        self.counted = float(self.total.sum())

    def anchor(self, labels: float) -> float:
        """Weight per event of the penalty KL(r ‖ prior).

        Args:
            labels: The number of labels that the prior is worth (`objective.anchor`).

        Returns:
            labels / (number of counted labels), at most 1; 0 if no label was counted.
        """
        return min(labels / max(self.counted, 1.0), 1.0) if self.counted > 0 else 0.0

    def forward(self, read: Tensor, own: Tensor | None = None) -> Tensor:
        """Log prior over the frames of each event.

        Args:
            read: Token numbers, [B, M·5].
            own: Labels to exclude from the counts, [B, M, K].

        Returns:
            Log probabilities, [B, M, K].
        """
        return ops.pooled_log_prior(self.tables(), read.view(len(read), -1, TOKENS), own)

    def tables(self) -> ops.CountTables:
        """The counts as arguments of `ops.pooled_log_prior`."""
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
    """Fit a model's prior, if it has one, before the first training step.

    Args:
        prior: The prior to fit, or None.
        noise: "none" assumes that observed labels are correct, "estimated" estimates their error rate.
        noise_rate: The error rate, if given; overrides `noise`.
        corpus: The dataset.
        observation: Which labels are observed, and which of them are wrong.

    Returns:
        Figures to report: `noise_rate`, and `induced_frames` if no label is observed.
    """
    if prior is None:
        return {}
    made_up = prior.fit(corpus, observation, 0.0 if noise == "none" and noise_rate is None else noise_rate)
    return {"noise_rate": float(prior.noise_rate), **({"induced_frames": float(made_up)} if made_up else {})}


def error_rate(prior: PooledPrior | None, noise: str) -> Tensor | None:
    """The estimated share of wrong labels among the observed ones; None where labels are assumed to be correct."""
    return prior.noise_rate if prior is not None and noise == "estimated" else None


def induced(
    preds: NDArray[Any], lemma_of: NDArray[np.int64], vectors: tuple[NDArray[Any], NDArray[Any]] | None, classes: int
) -> Seen:
    """Induce frames from predicates where no label is observed.

    Each of the K most frequent lemmas defines one frame. A rarer lemma joins the frequent lemma with the most similar
    word vector; without a vector it is assigned an arbitrary frame.

    Args:
        preds: Predicates of the events, `PAD` where there is no event.
        lemma_of: Lemma number of each word.
        vectors: Word vectors, and which words have one.
        classes: The number of frames K.

    Returns:
        Labels of all events, all observed.
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
    """A lemma number for each word; words with the same lemma share it."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(lemma, len(numbers)) for lemma in vocabulary.lemmas], np.int64)


def _rows(used: NDArray[Any], size: int) -> NDArray[np.int64]:
    rows = np.zeros(size, np.int64)
    rows[used] = np.arange(1, len(used) + 1)
    return rows
