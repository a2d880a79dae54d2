"""Counts as a prior inside the proposal: what other events with the same predicate were seen to be.

    θ_lemma = (C_lemma + a·base)/(N_lemma + a),    θ_form = (C_form + a·θ_lemma)/(N_form + a),    log prior = log θ_form

C are the noise-discounted counts of `knowledge.pool`. In training an event's own label is left out of them, or the
model would learn to copy it from there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from revup.corpus import Corpus, Vocabulary
from revup.encoding import TOKENS
from revup.knowledge import Observation, Pooled, pool


class PooledPrior(nn.Module):
    """Pooled counts as buffers: rows of forms and lemmas that carried a seen frame, row 0 for all others."""

    form_row: Tensor
    lemma_row: Tensor
    forms: Tensor
    lemmas: Tensor
    base: Tensor
    noise_rate: Tensor

    def __init__(self, words: int, classes: int, forms: int = 1, lemmas: int = 1, smoothing: float = 1.0) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.register_buffer("form_row", torch.zeros(words, dtype=torch.long))
        self.register_buffer("lemma_row", torch.zeros(words, dtype=torch.long))
        self.register_buffer("forms", torch.zeros(forms, classes))
        self.register_buffer("lemmas", torch.zeros(lemmas, classes))
        self.register_buffer("base", torch.full((classes,), 1.0 / classes))
        self.register_buffer("noise_rate", torch.zeros(()))

    def fit(self, corpus: Corpus, observation: Observation, noise_rate: float | None) -> None:
        """Pool what is seen of the training split; estimate its error rate unless it is given."""
        split = corpus.split("train")
        seen = split.seen(observation)
        preds = np.asarray(split.arrays["tokens"][..., 0])
        used = np.unique(preds[seen.observed])
        form_row = _rows(used, len(corpus.vocabulary))
        lemma_of = lemma_numbers(corpus.vocabulary)
        lemma_row = _rows(np.unique(lemma_of[used]), int(lemma_of.max()) + 1)[lemma_of]
        classes = split.classes
        by_lemma: Pooled = pool(lemma_row[preds], seen, classes, int(lemma_row.max()) + 1, noise_rate)
        by_form = pool(form_row[preds], seen, classes, len(used) + 1, by_lemma.noise_rate)
        self.form_row.copy_(torch.from_numpy(form_row))
        self.lemma_row.copy_(torch.from_numpy(lemma_row))
        self.forms = torch.from_numpy(by_form.counts).to(self.base)
        self.lemmas = torch.from_numpy(by_lemma.counts).to(self.base)
        self.base.copy_(torch.from_numpy(by_lemma.base))
        self.noise_rate.fill_(by_lemma.noise_rate)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Take as many rows as were saved."""
        for name in ("forms", "lemmas"):
            saved = state_dict.get(prefix + name)
            if saved is not None and saved.dim() == 2 and saved.shape[1] == self.base.shape[0]:
                setattr(self, name, torch.zeros_like(saved, device=self.base.device))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, tokens: Tensor, own: Tensor | None = None) -> Tensor:
        """tokens [B, M·5] → log prior [B, M, K]; own [B, M, K]: what is to be left out of the counts."""
        preds = tokens[:, ::TOKENS]
        lemma = self._mix(self.lemmas[self.lemma_row[preds]], own, self.base)
        return self._mix(self.forms[self.form_row[preds]], own, lemma).clamp_min(1e-12).log()

    def _mix(self, counts: Tensor, own: Tensor | None, back_off: Tensor) -> Tensor:
        if own is not None:
            counts = (counts - torch.minimum(own, counts)).clamp_min(0.0)
        return (counts + self.smoothing * back_off) / (counts.sum(-1, keepdim=True) + self.smoothing)


def lemma_numbers(vocabulary: Vocabulary) -> NDArray[np.int64]:
    """A number for each word's lemma, words of one lemma sharing it."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(lemma, len(numbers)) for lemma in vocabulary.lemmas], np.int64)


def _rows(used: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    rows = np.zeros(size, np.int64)
    rows[used] = np.arange(1, len(used) + 1)
    return rows
