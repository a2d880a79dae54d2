"""Cleanlab as its users run it: a classifier of their own, trained in five folds by document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from measures import Linear, average_precision, cleanlab_scores, disagreement

import revup
from revup.data.corpus import Corpus, Split
from revup.data.knowledge import FrameSet, Observation

Run = dict[str, Any]
FOLDS = 5
ROWS = 500  # windows in a batch
PRESETS = {"tagger": "default", "tagger plain": "plain"}


class Fold(Corpus):
    """A dataset without some of its training documents; errors are planted as in the whole.

    Args:
        whole: The dataset.
        keep: Which windows of its training split are in it [N].
    """

    def __init__(self, whole: Corpus, keep: Any) -> None:
        super().__init__(whole.path, whole.meta, whole.vocabulary, whole.frames)
        self._whole, self._keep = whole, keep

    def split(self, name: str) -> Split:
        return self._whole.split(name) if name != "train" else part_of(self._whole, self._keep, "train")

    def frame_set(self, confusable: bool) -> FrameSet:
        return self._whole.frame_set(confusable)


def part_of(corpus: Corpus, rows: Any, name: str) -> Split:
    """Some windows of the training split."""
    whole = corpus.split("train")
    arrays = {key: np.asarray(array)[rows] for key, array in whole.arrays.items()}
    return Split(name, arrays, lambda: whole.ids, whole.classes, whole.sources, whole._frame_set)


def users(spec: Run, work: Path, device: str | None) -> Run:
    """Scores of cleanlab on probabilities of a classifier that was trained without the event's document."""
    corpus = Corpus.load(work / spec["corpus"])
    split = corpus.split("train")
    label = split.told(Observation(1.0, spec["rate"], spec["seed"], spec["noise"]))["frame"]
    there = np.arange(split.arrays["keys"].shape[1]) < np.asarray(split.arrays["lengths"])[:, None]
    truth = np.asarray(split.arrays["reference"])[there].astype(np.int64)[label.item]
    _, document = np.unique(np.asarray(split.arrays["document"]), return_inverse=True)
    fold = np.random.default_rng(spec["seed"]).integers(FOLDS, size=document.max() + 1)[document]  # of each window
    if spec["classifier"] == "linear":
        own = np.repeat(fold, there.sum(1))[label.item]
        r = Linear(split, label.item, len(corpus.frames)).out_of_fold(label.frame, own, spec["seed"])
    else:
        r = out_of_fold(corpus, fold, there, spec, device)[label.item]
    scores = {**cleanlab_scores(r, label.frame), "argmax": disagreement(r, label.frame)}
    return {
        "rivals_users": {name: average_precision(label.frame != truth, score) for name, score in scores.items()},
        "accuracy_users": float((r.argmax(1) == truth).mean()),
    }


def out_of_fold(corpus: Corpus, fold: Any, there: Any, spec: Run, device: str | None) -> Any:
    """Probabilities of all events by taggers that were trained on the other folds [events, K].

    Args:
        corpus: The dataset; validation documents, with errors like those of the training documents, end training.
        fold: Of each window [N].
        there: Which events there are [N, M].
        spec: The condition.
        device: Where to train.
    """
    training = {"epochs": spec["epochs"]} if "epochs" in spec else {}
    training |= {"precision": "bf16"} if device == "cuda" else {}
    options = {name: spec[name] for name in ("noise", "seed")} | {"preset": PRESETS[spec["classifier"]]}
    out = np.zeros((int(there.sum()), len(corpus.frames)))
    owner = np.repeat(fold, there.sum(1))
    for number in range(FOLDS):
        part = Fold(corpus, fold != number)
        model = revup.train(part, "tagger", eta=spec["rate"], device=device, training=training, **options)
        batches = model.module.batches(part_of(corpus, fold == number, "new"), Observation(0.0), ROWS)
        with torch.no_grad():
            found = [model.module.frame_probabilities(batch)[batch.mask] for batch in batches.ordered()]
        out[owner == number] = torch.cat(found).double().cpu().numpy()
    return out
