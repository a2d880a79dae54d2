"""Inspection: what the latents of a trained model mean, and whether they are used.

words         p(first predicate = w | t = k): the first word that the decoder writes, given that frame alone
predicates    p(w | argmax r = k): the predicates of the split's events whose most probable frame this is
followers     Σ r_m(k) r_{m+1}(j) / Σ r_m(k): the frames of the events that follow, as the model predicts them
active units  those of z with Var_x(μ) > 0.01 over the split's events; the others carry no information
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revup.data.batches import Batch
from revup.data.corpus import Corpus, Split
from revup.data.encode import BOS, TOKENS
from revup.data.events import SLOTS
from revup.data.knowledge import Observation
from revup.data.sparse_table import Table
from revup.errors import RevupError
from revup.inference.decoding import grammar
from revup.inference.evaluate import trained_on, translate
from revup.inference.loading import opened
from revup.inference.measures import BATCH
from revup.inference.trained import Trained
from revup.models.base import Model

PLACES = (*SLOTS, "<tup>")
MOST_NUMBERS = 2**25  # of a table over frames or words that are held at a time
MOST_TRANSITIONS = 1000  # frames whose transitions are listed in full
MOST_FOLLOWED = 4096  # frames, up to which all r are multiplied
LIKELY = 16  # most probable frames of an event, beyond which r is left out where there are more frames
Floats = NDArray[np.float64]


def inspect(
    model: Trained | str | Path, corpus: Corpus | None = None, split: str = "test", top: int = 10
) -> dict[str, Any]:
    """Describe a model's latents on a split; the model is given no labels.

    `revup.reporting.latents` shows the result as text or as a page.

    Args:
        model: A model with frames or latents, or its run directory.
        corpus: The dataset; by default the one that the model was trained on.
        split: train, valid or test.
        top: Words and frames listed for each frame.

    Returns:
        `model`, `preset`, `split`, `documents`, `events`; where the model predicts frames, `frames` (for each its
        events, share, predicates, followers and words), `unused_frames`, `frame_perplexity`, and `transitions` between
        `transition_frames` (all, or the most frequent of more than `MOST_TRANSITIONS`); where its decoder attends over
        latents, `attention`; what the model says of its own latents: `z` or `codes`.

    Raises:
        RevupError: The model has neither frames nor latents, or the split is empty.
    """
    if top < 1:
        raise RevupError(f"top: expected 1 or more, found {top}")
    model = opened(model)
    module = model.module
    if not (module.predicts_frames or module.has_latents):
        raise RevupError(f"the model {model.config.model} has no frames and no latents to inspect")
    corpus = corpus or trained_on(model)
    part = translate(corpus.split(split), corpus, model)
    module.eval()
    found: dict[str, Any] = {
        "model": model.config.model,
        "preset": model.config.preset,
        "split": split,
        "documents": len(part),
        "events": part.events,
    }
    if module.predicts_frames:
        found |= _frames(model, part, top)
    if module.has_latents:
        found["attention"] = _attention(model, part)
    with torch.no_grad():
        return found | module.inspect_latents(_batches(model, part))


def _batches(model: Trained, split: Split) -> list[Batch]:
    return list(model.module.batches(split, Observation(0.0), BATCH).ordered())


# ---- frames ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def _frames(model: Trained, split: Split, top: int) -> dict[str, Any]:
    names, words, batches = model.frames, model.vocabulary.words, _batches(model, split)
    counts, mass = np.zeros(len(names), np.int64), np.zeros(len(names))
    predicates: list[Counter[int]] = [Counter() for _ in names]
    for batch in batches:
        r = model.module.frame_probabilities(batch)[batch.mask]
        chosen = r.argmax(-1).cpu().numpy()
        counts += np.bincount(chosen, minlength=len(names))
        mass += r.sum(0, dtype=torch.float64).cpu().numpy()
        for frame, word in zip(chosen.tolist(), batch.tokens[:, ::TOKENS][batch.mask].tolist(), strict=True):
            predicates[frame][word] += 1
    rows: list[dict[str, Any]] = [
        {
            "frame": name,
            "events": int(counts[k]),
            "share": float(mass[k] / mass.sum()),
            "predicates": [
                {"word": words[word], "probability": count / int(counts[k])}
                for word, count in predicates[k].most_common(top)
            ],
        }
        for k, name in enumerate(names)
    ]
    shown = np.sort(np.argsort(-counts, kind="stable")[:MOST_TRANSITIONS])
    transitions: list[list[float]] = []
    for start, follow in _follow(model.module, batches, len(names)):
        part = follow / np.maximum(follow.sum(1, keepdims=True), 1e-30)
        for k, row in enumerate(part, start):
            rows[k]["followers"] = _best(names, row, top, "frame")
        inside = shown[(shown >= start) & (shown < start + len(part))] - start
        transitions += part[np.ix_(inside, shown)].round(6).tolist()
    if model.module.has_latents:
        for part in torch.arange(len(names)).split(_rows(len(words))):
            for k, row in zip(part.tolist(), favoured_words(model.module, part), strict=True):
                rows[k]["words"] = _best(words, row, top, "word")
    return {
        "frames": rows,
        "unused_frames": [name for name, count in zip(names, counts, strict=True) if not count],
        "frame_perplexity": float(np.exp(-(mass / mass.sum() * np.log(np.maximum(mass / mass.sum(), 1e-30))).sum())),
        "transitions": transitions,
        "transition_frames": [names[k] for k in shown],
    }


def _follow(module: Model, batches: Sequence[Batch], classes: int) -> Iterator[tuple[int, Floats]]:
    """Σ r_m(k) r_{m+1}(j) for parts of the frames k: the first one, and sums [frames of this part, K].

    All of them at once would be K² numbers, of which nearly all are nearly 0 where frames are many: there each r is cut
    to its `LIKELY` most probable frames.
    """
    if classes > MOST_FOLLOWED:
        yield from _follow_likely(module, batches, classes)
        return
    for start in range(0, classes, _rows(classes)):
        part = slice(start, min(start + _rows(classes), classes))
        total = torch.zeros(part.stop - start, classes, dtype=torch.float64, device=module.device)
        for batch in batches:
            r = module.frame_probabilities(batch)
            both = batch.mask[:, 1:] & batch.mask[:, :-1]
            total.addmm_(r[:, :-1, part][both].double().T, r[:, 1:][both].double())
        yield start, total.cpu().numpy()


def _follow_likely(module: Model, batches: Sequence[Batch], classes: int) -> Iterator[tuple[int, Floats]]:
    """`_follow` of the most probable frames of each event, as a sparse table."""
    nothing = np.zeros(0, np.int64)
    found = Table(nothing, nothing, nothing, classes)
    for batch in batches:
        best = module.frame_probabilities(batch).topk(min(LIKELY, classes), dim=-1)
        p, k = best.values.double().cpu().numpy(), best.indices.cpu().numpy()
        both = (batch.mask[:, 1:] & batch.mask[:, :-1]).cpu().numpy()
        value = p[:, :-1][both][:, :, None] * p[:, 1:][both][:, None, :]  # [n, LIKELY, LIKELY]
        row, column = (
            np.broadcast_to(part, value.shape).ravel()
            for part in (k[:, :-1][both][:, :, None], k[:, 1:][both][:, None, :])
        )
        rows, columns, values = (found.row, row), (found.column, column), (found.value, value.ravel())
        found = Table(np.concatenate(rows), np.concatenate(columns), np.concatenate(values), classes)
    for start in range(0, classes, _rows(classes)):
        stop = min(start + _rows(classes), classes)
        inside = slice(*np.searchsorted(found.row, (start, stop)).tolist())
        total = np.zeros((stop - start, classes))
        total[found.row[inside] - start, found.column[inside]] = found.value[inside]
        yield start, total


def _rows(columns: int) -> int:
    """How many rows of float64 numbers are computed at a time."""
    return max(1, MOST_NUMBERS // columns)


@torch.no_grad()
def favoured_words(module: Model, frames: Tensor | None = None) -> Floats:
    """p(first predicate | frame), [K, V]: the decoder's first word given one frame, among possible predicates.

    Args:
        module: The model.
        frames: The numbers of some frames; None: all.
    """
    chosen = (torch.arange(module.sizes.classes) if frames is None else frames).to(module.device)
    memory = module.memory_of_frames(chosen.unsqueeze(1))  # a document of one event, for each frame
    log_probabilities, _ = module.step(torch.full_like(chosen, BOS), module.start(memory))
    allowed = grammar(module.sizes.words, module.device)[0]
    return torch.softmax((log_probabilities + allowed).double(), dim=-1).cpu().numpy()


def _best(names: Sequence[str], probabilities: Floats, top: int, what: str) -> list[dict[str, Any]]:
    among = np.flatnonzero(probabilities)
    if len(among) > top:  # sorting all of them would take longest where there are thousands
        least = np.partition(probabilities[among], -top)[-top]
        among = among[probabilities[among] >= least]
    order = among[np.argsort(-probabilities[among], kind="stable")[:top]]
    return [{what: names[i], "probability": float(probabilities[i])} for i in order]


# ---- attention ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def _attention(model: Trained, split: Split) -> dict[str, Any]:
    """The decoder's attention, as means over the split's tokens: from each slot of each event to each latent [M, 5, M],
    the share on the event's own latent by slot [5], and the share that uniform attention would give it."""
    module, m = model.module, model.events
    total, count = np.zeros((m, TOKENS, m)), np.zeros((m, 1, 1))
    own, chance = np.zeros(TOKENS), 0.0
    for batch in _batches(model, split):
        memory = module.memory(batch)
        weights = module.text_attention(batch.tokens, memory).view(len(batch.tokens), m, TOKENS, -1)
        weights = weights * batch.mask[:, :, None, None]
        total += weights.double().sum(0).cpu().numpy()
        count += batch.mask.double().sum(0).cpu().numpy()[:, None, None]
        own += torch.einsum("bmtm->t", weights.double()).cpu().numpy()
        chance += float((batch.mask.sum(1) / memory.mask.sum(1).clamp_min(1)).sum())
    events = float(count.sum())
    return {
        "slots": list(PLACES),
        "to_latents": (total / np.maximum(count, 1)).round(6).tolist(),
        "own_event": {slot: float(value) for slot, value in zip(PLACES, own / events, strict=True)},
        "own_event_by_chance": chance / events,
    }
