"""How well a score finds wrong labels, and scores of other tools."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

CLEANLAB = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
LEAST = 1e-6  # that cleanlab divides by
EPOCHS, BATCH, RATE = 8, 256, 0.05  # of the linear classifier


def average_precision(wrong: Any, score: Any) -> float:
    """Average precision; tied scores count together."""
    order = np.argsort(-score, kind="stable")
    hit, value = wrong[order].astype(float), score[order]
    last = np.r_[value[1:] != value[:-1], True]
    right, number = np.cumsum(hit)[last], (np.arange(len(hit)) + 1)[last]
    return float((np.diff(np.r_[0.0, right]) * right / number).sum() / max(hit.sum(), 1.0))


def calibration_error(p: Any, wrong: Any, bins: int = 10) -> float:
    """Mean distance of p and the share of wrong labels, in bins of equal width."""
    place = np.minimum((p * bins).astype(int), bins - 1)
    gaps = [abs(p[place == b].mean() - wrong[place == b].mean()) * (place == b).mean() for b in np.unique(place)]
    return float(sum(gaps))


def cleanlab_scores(r: Any, label: Any) -> dict[str, Any]:
    """Cleanlab's scores of labels by out-of-sample probabilities [n, K], high where a label is suspicious.

    By its formulas, so that it need not be installed where probabilities are made; a test compares them with cleanlab.
    """
    r, rows = np.maximum(r, 1e-12), np.arange(len(r))
    own = r[rows, label]
    others = r.copy()
    others[rows, label] = -1.0
    ratio = -(r * np.log(r)).sum(1) / np.log(r.shape[1]) / np.maximum(own, LEAST)
    quality = own, (own - others.max(1) + 1) / 2, np.log(ratio + 1) / np.maximum(ratio, LEAST)
    return {f"cleanlab {name}": -score for name, score in zip(CLEANLAB, quality, strict=True)}


def disagreement(r: Any, label: Any) -> Any:
    """The probability of the most probable frame where it is not the label, else 0."""
    best = r.argmax(1)
    return np.where(best != label, r[np.arange(len(r)), best], 0.0)


class Linear:
    """Softmax regression on the words of events.

    Args:
        split: The events. item: Which of them have labels. classes: K.
    """

    def __init__(self, split: Any, item: Any, classes: int) -> None:
        a = split.arrays
        there = np.arange(a["keys"].shape[1]) < np.asarray(a["lengths"])[:, None]
        words = np.concatenate([np.asarray(a["tokens"])[there][:, :4], np.asarray(a["lemma"])[there][:, None]], 1)
        _, flat = np.unique(words[item] + np.arange(5) * 10**8, return_inverse=True)
        self.words, self.classes = torch.from_numpy(flat.reshape(len(item), 5)), classes

    def train(self, label: Any, rows: Any, seed: int) -> tuple[torch.nn.EmbeddingBag, Any]:
        """Train on some labels; return the classifier, and the sum of each label's margins over the epochs."""
        target = torch.from_numpy(np.asarray(label))
        torch.manual_seed(seed)
        net = torch.nn.EmbeddingBag(int(self.words.max()) + 1, self.classes, mode="sum", sparse=True)
        torch.nn.init.zeros_(net.weight)
        optimiser = torch.optim.SparseAdam(net.parameters(), lr=RATE)
        margins, rows = torch.zeros(len(target)), torch.from_numpy(np.asarray(rows))
        for _ in range(EPOCHS):
            for batch in rows[torch.randperm(len(rows))].split(BATCH):
                logits = net(self.words[batch])
                loss = torch.nn.functional.cross_entropy(logits, target[batch])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                with torch.no_grad():
                    own = logits.gather(1, target[batch, None]).squeeze(1)
                    rest = logits.scatter(1, target[batch, None], -1e9).max(1).values
                    margins[batch] += own - rest
        return net, margins.numpy()

    def area_under_margin(self, label: Any, seed: int) -> Any:
        """AUM (Pleiss et al. 2020), negated: high where a label is suspicious."""
        return -self.train(label, np.arange(len(label)), seed)[1]

    @torch.no_grad()
    def out_of_fold(self, label: Any, fold: Any, seed: int) -> Any:
        """Probabilities by classifiers that were trained without the event's fold [n, K]."""
        out = np.zeros((len(label), self.classes))
        for number in np.unique(fold):
            with torch.enable_grad():
                net, _ = self.train(label, np.flatnonzero(fold != number), seed)
            rows = np.flatnonzero(fold == number)
            out[rows] = net(self.words[rows]).softmax(1).double().numpy()
        return out
