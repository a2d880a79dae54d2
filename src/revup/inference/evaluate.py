"""Measures: perplexity, frame classification, calibration; all from one pass over a split.

Perplexity is exp(ΣNLL/Σtokens) over all five tokens of each event, the number of events being given. For models with
latents it is *reconstruction* perplexity, conditioned on latents inferred from the same text: not comparable with a
language model's. Soft uses Gumbel-softmax samples of the frames, as the paper does; hard uses one-hot frames.
Classification is over events with a reference frame; one that training never saw counts as wrong.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.corpus import Corpus, Split
from revup.data.renumber import renumber
from revup.errors import InputError, RevupError
from revup.inference.measures import evaluate_split, optimum
from revup.inference.trained import Trained


def evaluate(
    model: Trained,
    corpus: Corpus | None = None,
    split: str = "test",
    *,
    seed: int = 0,
    samples: int = 0,
    sampled: bool = False,
    bound: int = 0,
) -> dict[str, Any]:
    """All measures on a split of a corpus (by default the one the model was trained on).

    bound: samples of the bound on log p(x) (0: leave it out).
    """
    corpus = corpus or trained_on(model)
    part = corpus.split(split)
    if not len(part):
        raise RevupError(f"the {split} split is empty")
    same = corpus.events == model.events and corpus.frames == model.frames
    words, known = corpus.vocabulary, model.vocabulary
    if not same or (words.words, words.beyond) != (known.words, known.beyond):
        part = translate(part, corpus, model)
    scores = evaluate_split(model.module, part, seed, samples, sampled)
    if bound:
        from revup.inference.bound import bound_split

        scores |= bound_split(model.module, part, bound, seed)
    if not (corpus.has_frames and model.data.get("named_frames", True)):
        names = ("accuracy", "macro_f1", "macro_precision", "macro_recall", "label_nll", "calibration_error")
        scores.update(dict.fromkeys(names), reliability=[])
    return {
        "model": model.config.model,
        "preset": model.config.preset,
        "split": split,
        **scores,
        "optimum": optimum(corpus, split),
    }


def trained_on(model: Trained) -> Corpus:
    """The corpus a run was trained on, if it is still where it was and what it was."""
    where = model.data.get("path")
    if not where:
        raise RevupError("this model does not know its data: name a dataset")
    where = os.path.normpath(os.path.join(model.path or ".", where))
    corpus = Corpus.load(where)
    if corpus.fingerprint != model.data.get("fingerprint"):
        raise InputError("has changed since the model was trained on it; name the dataset to evaluate on", str(where))
    return corpus


def translate(split: Split, corpus: Corpus, model: Trained) -> Split:
    """A split of another corpus in the model's own words, frames and number of events."""
    arrays = renumber(split.arrays, corpus.vocabulary, corpus.frames, model.vocabulary, model.frames)
    arrays = rewindow(arrays, model.events)
    return Split(split.name, arrays, lambda: split.ids, len(model.frames))


def rewindow(arrays: dict[str, NDArray[Any]], events: int) -> dict[str, NDArray[Any]]:
    """Windows of another size: longer ones are cut, shorter ones padded (the padding is masked by `lengths`)."""
    size = arrays["tokens"].shape[1]
    if size == events:
        return arrays
    pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in arrays}
    places: list[NDArray[Any]] = []
    for start in range(0, size, events):
        lengths = np.clip(arrays["lengths"] - start, 0, events)
        rows = np.flatnonzero(lengths)
        places.append(rows)
        for name, array in arrays.items():
            part = array[rows]
            if part.ndim > 1:
                part = part[:, start : start + events]
                part = np.pad(part, [(0, 0), (0, events - part.shape[1]), *[(0, 0)] * (part.ndim - 2)])
            pieces[name].append(lengths[rows] if name == "lengths" else part)
    order = np.argsort(np.concatenate(places), kind="stable")
    return {name: np.concatenate(parts)[order] for name, parts in pieces.items()}
