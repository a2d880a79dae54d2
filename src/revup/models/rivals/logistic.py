"""Logistic: multinomial logistic regression on the predicate, its lemma, its arguments and their word vectors.

    logits = b + Σ_j W[x_j] + Uᵀ v         x_j: predicate, lemma, subject, object, modifier, each its own indicator
    minimise Σ_i −E_{p_D} log softmax(logits_i)_t + (‖W‖² + ‖U‖²)/(2C)

v: the word vectors of predicate, subject, object and modifier side by side, each of length 1, 0 where there is none.
The objective is that of scikit-learn's `LogisticRegression(C=C)`; it is convex, and minimised here by L-BFGS on the
model's device, with labels that may be distributions. Labels are taken for the truth; there is no dictionary.
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
from revup.data.encode import SPECIAL, TOKENS
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.fields import check, setting
from revup.models.base import WithoutText
from revup.models.layers import make_room
from revup.models.network import Architecture, Sizes
from revup.models.rivals.propagation import number_at, unit

Array = NDArray[Any]
SLOTS = TOKENS - 1
EVENTS = 16_384  # whose logits are held at once
HISTORY = 10  # of L-BFGS


@dataclass(frozen=True)
class Objective:
    """The regression's own settings."""

    inverse_penalty: float = setting(1.0, "C: the smaller, the closer the weights are kept to 0", above=0)
    features: int = setting(20_000, "indicators, those of the most frequent words", minimum=1)
    iterations: int = setting(200, "iterations of L-BFGS at most", minimum=1)

    def __post_init__(self) -> None:
        check(self, "objective")


PRESETS: dict[str, dict[str, dict[str, Any]]] = {"default": {}, "paper": {}, "released": {}}


class Logistic(WithoutText):
    """The regression; `prepare` does all the training.

    Its arrays: `of_word` [V, 4], `of_lemma` [L]: the number of each word's indicator in each slot, and of each lemma's,
    0 for none; `indicators` [F + 1, K]: W, its first row 0; `dense` [4d, K]: U; `bias` [1, K]; `word_vectors`
    [V + X, d].
    """

    predicts_frames = True
    writes_text = False
    learns = False
    objective: Objective
    of_word: Tensor
    of_lemma: Tensor
    indicators: Tensor
    dense: Tensor
    bias: Tensor
    word_vectors: Tensor
    ARRAYS = ("of_word", "of_lemma", "indicators", "dense", "bias", "word_vectors")
    word_arrays = ("word_vectors",)

    def __init__(self, sizes: Sizes, network: Architecture, objective: Objective) -> None:
        super().__init__(sizes, network, objective)
        self.register_buffer("of_word", torch.zeros(0, SLOTS, dtype=torch.int64))
        self.register_buffer("of_lemma", torch.zeros(0, dtype=torch.int64))
        self.register_buffer("indicators", torch.zeros(0, sizes.classes))
        self.register_buffer("dense", torch.zeros(0, sizes.classes))
        self.register_buffer("bias", torch.zeros(0, sizes.classes))
        self.register_buffer("word_vectors", torch.zeros(0, network.embedding))

    # ---- fitting -------------------------------------------------------------------------------------------------

    def prepare(self, corpus: Corpus, observation: Observation) -> dict[str, float]:
        """Choose the indicators and fit the weights to the observed labels of the training split."""
        split = corpus.split("train")
        seen = split.seen(observation)
        use = seen.observed & (np.arange(seen.observed.shape[1]) < np.asarray(split.arrays["lengths"])[:, None])
        read = np.asarray(split.arrays["read"])[use][:, :SLOTS].astype(np.int64)
        lemma = np.asarray(split.arrays["lemma"])[use].astype(np.int64)
        words, lemmas = len(corpus.vocabulary), corpus.vocabulary.distinct_lemmas
        of_word, of_lemma, number = chosen(read, lemma, words, lemmas, self.objective.features)
        vectors = np.zeros((0, self.network.embedding), np.float32)
        if (given := corpus.vectors()) is not None:
            vectors = unit(given[0]) * given[1][:, None]
        fitted: dict[str, Array] = {"of_word": of_word, "of_lemma": of_lemma, "word_vectors": vectors}
        width = SLOTS * vectors.shape[1] if len(vectors) else 0
        fitted |= {"indicators": np.zeros((number + 1, split.classes), np.float32)}
        fitted |= {"dense": np.zeros((width, split.classes), np.float32)}
        fitted |= {"bias": np.zeros((1, split.classes), np.float32)}
        for name in self.ARRAYS:
            setattr(self, name, torch.from_numpy(np.ascontiguousarray(fitted[name])).to(self.device))
        if len(read):
            target = torch.zeros(len(read), split.classes)
            frames, weights = torch.from_numpy(seen.frames[use]).long(), torch.from_numpy(seen.weights[use])
            target.scatter_add_(1, frames, weights * torch.from_numpy(seen.confidence[use]).unsqueeze(1))
            self._fit(torch.from_numpy(read), torch.from_numpy(lemma), target)
        return {"features": float(number + width), "labels": float(len(read))}

    def _fit(self, read: Tensor, lemma: Tensor, target: Tensor) -> None:
        """Minimise the objective; the mean loss of an event, so that its size does not depend on their number."""
        parameters = [tensor.clone().requires_grad_() for tensor in (self.indicators, self.dense, self.bias)]
        o, n = self.objective, len(read)
        optimiser = torch.optim.LBFGS(
            parameters,
            max_iter=o.iterations,
            history_size=HISTORY,
            tolerance_grad=1e-6,
            tolerance_change=1e-9,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            optimiser.zero_grad()
            penalty = (parameters[0][1:].square().sum() + parameters[1].square().sum()) / (2 * o.inverse_penalty * n)
            penalty.backward()
            total = penalty.detach()
            for begin in range(0, n, EVENTS):
                part = slice(begin, begin + EVENTS)
                logits = self._logits(read[part].to(self.device), lemma[part].to(self.device), *parameters)
                loss = -(target[part].to(self.device) * torch.log_softmax(logits, dim=-1)).sum() / n
                loss.backward()
                total = total + loss.detach()
            if parameters[0].grad is not None:
                parameters[0].grad[0].zero_()  # the row of no indicator
            return total

        with torch.enable_grad():
            optimiser.step(closure)
        self.indicators, self.dense, self.bias = (tensor.detach() for tensor in parameters)

    # ---- prediction ----------------------------------------------------------------------------------------------

    def _logits(self, read: Tensor, lemma: Tensor, indicators: Tensor, dense: Tensor, bias: Tensor) -> Tensor:
        """Logits [n, K] of events with the words read [n, 4] and the lemma [n]."""
        words = self.sizes.words
        known = (read < words) & (read >= len(SPECIAL))
        found = self.of_word[torch.where(known, read, 0), torch.arange(SLOTS, device=read.device)] * known
        own = number_at(self.of_lemma, lemma, 0)
        which = torch.cat([found, own.unsqueeze(1)], dim=1)
        logits = torch.nn.functional.embedding_bag(which, indicators, mode="sum") + bias
        if not len(self.word_vectors):
            return logits
        row = torch.where(read < words, read, read - words)
        return logits + self.word_vectors[row].flatten(1) @ dense

    def propose(self, batch: Batch) -> Tensor:
        """p(frame|event) [B, M, K]."""
        read = batch.read.view(-1, TOKENS)[:, :SLOTS]
        logits = self._logits(read, batch.lemma.flatten(), self.indicators, self.dense, self.bias)
        proposed = torch.softmax(logits, dim=-1).view(*batch.mask.shape, -1)
        return proposed

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Load arrays of any length; raises RevupError if they do not fit together."""
        a = {name: state_dict[prefix + name] for name in self.ARRAYS if prefix + name in state_dict}
        if len(a) < len(self.ARRAYS):
            raise RevupError("not a logistic regression: an array is missing")
        rows, width = len(a["indicators"]), SLOTS * self.network.embedding if len(a["word_vectors"]) else 0
        sound = all(not x.numel() or 0 <= int(x.min()) <= int(x.max()) < rows for x in (a["of_word"], a["of_lemma"]))
        lengths = len(a["bias"]) == 1 and len(a["dense"]) == width and len(a["of_word"]) >= self.sizes.words
        if not sound or rows < 1 or not lengths:
            raise RevupError("not a logistic regression: its arrays do not fit together")
        make_room(self, self.ARRAYS, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def chosen(read: Array, lemma: Array, words: int, lemmas: int, most: int) -> tuple[Array, Array, int]:
    """Number the indicators: the most frequent words of labelled events in each slot, and their lemmas.

    Args:
        read: Numbers of the words [n, 4].
        lemma: Numbers of the lemmas [n], -1 for unknown ones.
        words, lemmas: How many there are.
        most: The number of indicators at most.

    Returns:
        The indicator of each word in each slot [V, 4], that of each lemma [L], 0 for none; and their number.
    """
    known = (read < words) & (read >= len(SPECIAL))
    slot = np.broadcast_to(np.arange(SLOTS), read.shape)
    counts = np.bincount(read[known] * SLOTS + slot[known], minlength=words * SLOTS)
    counts = np.concatenate([counts, np.bincount(lemma[lemma >= 0], minlength=lemmas)])
    order = np.argsort(-counts, kind="stable")[:most]
    order = order[counts[order] > 0]
    number = np.zeros(len(counts), np.int64)
    number[order] = np.arange(1, len(order) + 1)
    return number[: words * SLOTS].reshape(words, SLOTS), number[words * SLOTS :], len(order)
