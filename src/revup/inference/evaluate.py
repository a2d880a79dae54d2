"""Evaluation of a trained model on a split of a dataset, in the model's own vocabulary and frames."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.corpus import Corpus, Split
from revup.data.event_vectors import REDUCED, EventVectors
from revup.data.renumber import renumber
from revup.data.told import read_frame_map
from revup.errors import InputError, RevupError
from revup.inference.bound import bound_split
from revup.inference.loading import opened
from revup.inference.measures import evaluate_split, optimum
from revup.inference.trained import Trained

MOST_SAMPLES = 100_000  # of the latents for one document


def evaluate(
    model: Trained | str | Path,
    corpus: Corpus | str | Path | None = None,
    split: str = "test",
    *,
    seed: int = 0,
    samples: int = 0,
    sampled: bool = False,
    bound: int = 0,
    frame_map: str | Path | Mapping[str, str | None] | None = None,
) -> dict[str, Any]:
    """Compute all measures of a model on a split; the model is given no labels.

    Perplexity is exp(Σ −log p / number of tokens) over all five tokens of each event, given the number of events. For a
    model with latents it is *reconstruction* perplexity, conditioned on latents inferred from the same text, and can't
    be compared with a language model's; the bound can. Classification is over the events with a reference frame; a
    reference frame that is not in the model's frame list counts as wrong.

    Args:
        model: The model, or its run directory.
        corpus: The dataset, or its directory; by default the one that the model was trained on. One with another
            vocabulary, frame list or number of events is read in the model's own.
        split: train, valid or test.
        seed: Seed of all samples.
        samples: Average the distribution over frames over so many samples of the continuous latents; 0 takes their
            mean.
        sampled: Predict the frame of one Gumbel sample, as the paper does, not the most probable one.
        bound: Importance samples of the bound on log p(x) for each document; 0 leaves it out.
        frame_map: Frames to score as others: name → name (frames with one new name are one), or None for frames whose
            events are not scored; or a JSON file of such an object.

    Returns:
        `model`, `preset`, `split`, `documents`, `events`, `events_scored`, `events_with_unseen_frame`; `perplexity`
        (frames as Gumbel-softmax samples) and `perplexity_hard` (one-hot frames); `accuracy`, `macro_f1`,
        `macro_precision`, `macro_recall`, `label_nll`, `calibration_error`, `reliability`; `ambiguous_events` and
        `ambiguous_accuracy`: those whose entry in the run's lexicon has several frames; `soft_cross_entropy`,
        `soft_entropy` and `soft_agreement` with the distributions that events carry (`frames`); `optimum`, the best
        that any model can reach, where the dataset knows it; where the perplexity has an epoch of its own
        (`--training.text-epoch`) also `perplexity_at_best_frames` and `perplexity_hard_at_best_frames`; with `bound`
        also `bound` and `perplexity_bound`. None where a model or dataset has no such measure.

    Raises:
        RevupError: The split is empty, or the model's dataset is not known.
        InputError: The model's dataset is gone or has changed.
    """
    for name, count in (("samples", samples), ("bound", bound)):
        if not 0 <= count <= MOST_SAMPLES:
            raise RevupError(f"{name}: expected a number from 0 to {MOST_SAMPLES}, found {count}")
    model = opened(model)
    corpus = trained_on(model) if corpus is None else Corpus.opened(corpus)
    part = in_own_terms(corpus.split(split), corpus, model)
    renamed = read_frame_map(frame_map) if isinstance(frame_map, (str, Path)) else frame_map
    merged = merged_frames(model.frames, renamed) if renamed else None
    ambiguous = ambiguous_events(part, model, merged)
    scores = evaluate_split(
        model.module, part, seed, samples, sampled, merged=merged, ambiguous=ambiguous, writer=model.writer
    )
    if model.writer is not None:
        at_frames = evaluate_split(model.module, part, seed)
        scores |= {f"{name}_at_best_frames": at_frames[name] for name in ("perplexity", "perplexity_hard")}
    if bound:
        scores |= bound_split(model.writer or model.module, part, bound, seed)
    if not (corpus.has_frames and model.data.get("named_frames", True)):
        names = ("accuracy", "macro_f1", "macro_precision", "macro_recall", "label_nll", "calibration_error")
        scores.update(dict.fromkeys((*names, "ambiguous_accuracy")), reliability=[])
    return {
        "model": model.config.model,
        "preset": model.config.preset,
        "split": split,
        **scores,
        "optimum": optimum(corpus, split),
    }


def merged_frames(frames: Sequence[str], names: Mapping[str, str | None]) -> NDArray[np.int64]:
    """The number of the merged frame of each frame, [K]; -1 for one that is left out.

    Args:
        frames: The frame list.
        names: Frames to rename, merge or leave out.
    """
    new = [names.get(frame, frame) for frame in frames]
    number = {name: place for place, name in enumerate(sorted({name for name in new if name is not None}))}
    return np.array([-1 if name is None else number[name] for name in new], np.int64)


def ambiguous_events(split: Split, model: Trained, merged: NDArray[np.int64] | None = None) -> NDArray[np.bool_] | None:
    """Which events [N, M] have an entry of several frames in the model's lexicon; None where it has no lexicon.

    Args:
        split: The documents, in the model's own terms.
        model: The model.
        merged: The frame that each frame is scored as, [K]; frames that are one make no entry ambiguous.
    """
    if model.lexicon is None:
        return None
    table = model.lexicon.table(model.frames)
    frame = table.column if merged is None else merged[table.column]
    pairs = np.unique(np.stack([table.row, frame])[:, frame >= 0], axis=1)
    several = np.append(np.bincount(pairs[0], minlength=len(model.lexicon.keys)) > 1, False)
    return np.asarray(several[np.asarray(split.arrays["entry"])])  # NO_ENTRY is the last


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


def in_own_terms(split: Split, corpus: Corpus, model: Trained) -> Split:
    """A split in the model's own vocabulary, frames and number of events: as it is where they are the corpus's too."""
    same = corpus.events == model.events and corpus.frames == model.frames
    words, known = corpus.vocabulary, model.vocabulary
    if same and (words.words, words.beyond) == (known.words, known.beyond) and _same_entries(corpus, model):
        return with_vectors(split, corpus, model)
    return translate(split, corpus, model)


def with_vectors(split: Split, corpus: Corpus, model: Trained) -> Split:
    """A split with the event vectors that a model was trained with: those that it was given, else the corpus's own.

    Those of a corpus that were reduced in another way are left out, and the model predicts without event vectors.

    Raises:
        RevupError: The model was given an encoder: a dataset has no sentences that it could read.
    """
    if model.reduction is None or (model.vectors is None and model.reduction.same(corpus.reduction)):
        return split
    arrays = dict(split.arrays)
    if isinstance(model.vectors, EventVectors):
        arrays[REDUCED] = model.reduction.apply(*model.vectors.of_keys(np.asarray(arrays["keys"])))
    elif model.vectors is not None:
        where = model.path or "RUN"
        how = f"prepare it with --encoder {model.vectors.encoder} --reduce-like {where}"
        raise RevupError(f"a dataset has no sentences that an encoder could read: {how}")
    else:
        arrays.pop(REDUCED, None)
        model.say_without_vectors()
    return Split(split.name, arrays, lambda: split.ids, split.classes, split.sources)


def _same_entries(corpus: Corpus, model: Trained) -> bool:
    """Whether a corpus numbers the entries of its lexicon as the model does; a model without one ignores them."""
    return model.lexicon is None or (corpus.lexicon is not None and corpus.lexicon.keys == model.lexicon.keys)


def translate(split: Split, corpus: Corpus, model: Trained) -> Split:
    """A split of another corpus in the model's own vocabulary, frames and number of events."""
    split = with_vectors(split, corpus, model)
    lexicon = None if _same_entries(corpus, model) else model.lexicon
    arrays = renumber(split.arrays, corpus.vocabulary, corpus.frames, model.vocabulary, model.frames, lexicon)
    arrays = rewindow(arrays, model.events)
    return Split(split.name, arrays, lambda: split.ids, len(model.frames), split.sources)


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
