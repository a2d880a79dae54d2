"""Evaluation of a trained model on a split of a dataset, in the model's own vocabulary and frames."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.corpus import Corpus, Split
from revup.data.renumber import renumber
from revup.errors import InputError, RevupError
from revup.inference.bound import bound_split
from revup.inference.measures import evaluate_split, optimum
from revup.inference.trained import Trained, opened


def evaluate(
    model: Trained | str | Path,
    corpus: Corpus | None = None,
    split: str = "test",
    *,
    seed: int = 0,
    samples: int = 0,
    sampled: bool = False,
    bound: int = 0,
) -> dict[str, Any]:
    """Compute all measures of a model on a split; the model is given no labels.

    Perplexity is exp(Σ −log p / number of tokens) over all five tokens of each event, given the number of events. For a
    model with latents it is *reconstruction* perplexity, conditioned on latents inferred from the same text, and can't
    be compared with a language model's; the bound can. Classification is over the events with a reference frame; a
    reference frame that is not in the model's frame list counts as wrong.

    Args:
        model: The model, or its run directory.
        corpus: The dataset; by default the one that the model was trained on. One with another vocabulary, frame list
            or number of events is read in the model's own.
        split: train, valid or test.
        seed: Seed of all samples.
        samples: Average the distribution over frames over so many samples of the continuous latents; 0 takes their
            mean.
        sampled: Predict the frame of one Gumbel sample, as the paper does, not the most probable one.
        bound: Importance samples of the bound on log p(x) for each document; 0 leaves it out.

    Returns:
        `model`, `preset`, `split`, `documents`, `events`, `events_scored`, `events_with_unseen_frame`; `perplexity`
        (frames as Gumbel-softmax samples) and `perplexity_hard` (one-hot frames); `accuracy`, `macro_f1`,
        `macro_precision`, `macro_recall`, `label_nll`, `calibration_error`, `reliability`; `optimum`, the best that any
        model can reach, where the dataset knows it; with `bound` also `bound` and `perplexity_bound`. None where a
        model or dataset has no such measure.

    Raises:
        RevupError: The split is empty, or the model's dataset is not known.
        InputError: The model's dataset is gone or has changed.
    """
    for name, count in (("samples", samples), ("bound", bound)):
        if count < 0:
            raise RevupError(f"{name}: expected 0 or more, found {count}")
    model = opened(model)
    corpus = corpus or trained_on(model)
    part = corpus.split(split)
    same = corpus.events == model.events and corpus.frames == model.frames
    words, known = corpus.vocabulary, model.vocabulary
    if not same or (words.words, words.beyond) != (known.words, known.beyond):
        part = translate(part, corpus, model)
    scores = evaluate_split(model.module, part, seed, samples, sampled)
    if bound:
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
    """The dataset that a model was trained on.

    Args:
        model: A model that knows the path of its dataset.

    Raises:
        RevupError: The path is not known.
        InputError: The dataset is gone or has changed.
    """
    where = model.data.get("path")
    if not where:
        raise RevupError("the model does not know where its dataset is: name one")
    where = os.path.normpath(os.path.join(model.path or ".", where))
    corpus = Corpus.load(where)
    if corpus.fingerprint != model.data.get("fingerprint"):
        raise InputError("has changed since the model was trained on it; name the dataset to evaluate on", str(where))
    return corpus


def translate(split: Split, corpus: Corpus, model: Trained) -> Split:
    """A split of another corpus in the model's own vocabulary, frames and number of events."""
    arrays = renumber(split.arrays, corpus.vocabulary, corpus.frames, model.vocabulary, model.frames)
    arrays = rewindow(arrays, model.events)
    return Split(split.name, arrays, lambda: split.ids, len(model.frames))


def rewindow(arrays: dict[str, NDArray[Any]], events: int) -> dict[str, NDArray[Any]]:
    """Windows of another size.

    Args:
        arrays: The arrays of a split.
        events: The new number of events. Longer windows are cut into several, shorter ones padded; `lengths` masks the
            padding.
    """
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
