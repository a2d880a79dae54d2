"""Inspection: what the latents of a trained model mean, and whether they are used.

words         p(first predicate = w | t = k): the first word that the decoder writes, given that frame alone
predicates    p(w | argmax r = k): the predicates of the split's events whose most probable frame this is
followers     Σ r_m(k) r_{m+1}(j) / Σ r_m(k): the frames of the events that follow, as the model predicts them
active units  those of z with Var_x(μ) > 0.01 over the split's events; the others carry no information
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.batches import Batch, Batches
from revup.data.corpus import Corpus, Split
from revup.data.encode import BOS, TOKENS
from revup.data.events import SLOTS
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.inference.decoding import grammar
from revup.inference.evaluate import trained_on, translate
from revup.inference.measures import BATCH
from revup.inference.trained import Trained, opened
from revup.models.base import Model

PLACES = (*SLOTS, "<tup>")
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
        events, share, predicates, followers and words), `unused_frames`, `frame_perplexity` and `transitions`; where
        its decoder attends over latents, `attention`; what the model says of its own latents: `z` or `codes`.

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
    return list(Batches(split, Observation(0.0), BATCH, model.device).ordered())


# ---- frames ------------------------------------------------------------------------------------------------------


@torch.no_grad()
def _frames(model: Trained, split: Split, top: int) -> dict[str, Any]:
    names, words = model.frames, model.vocabulary.words
    counts, mass = np.zeros(len(names), np.int64), np.zeros(len(names))
    follow = np.zeros((len(names), len(names)))
    predicates: list[Counter[int]] = [Counter() for _ in names]
    for batch in _batches(model, split):
        r = model.module.frame_probabilities(batch).double()
        there = batch.mask
        chosen = r.argmax(-1)[there].cpu().numpy()
        counts += np.bincount(chosen, minlength=len(names))
        mass += r[there].sum(0).cpu().numpy()
        both = there[:, 1:] & there[:, :-1]
        follow += (r[:, :-1][both].T @ r[:, 1:][both]).cpu().numpy()
        for frame, word in zip(chosen.tolist(), batch.tokens[:, ::TOKENS][there].tolist(), strict=True):
            predicates[frame][word] += 1
    favoured = favoured_words(model.module) if model.module.has_latents else None
    rows = []
    for k, name in enumerate(names):
        row: dict[str, Any] = {
            "frame": name,
            "events": int(counts[k]),
            "share": float(mass[k] / mass.sum()),
            "predicates": [
                {"word": words[word], "probability": count / int(counts[k])}
                for word, count in predicates[k].most_common(top)
            ],
            "followers": _best(names, follow[k] / follow[k].sum() if follow[k].sum() else follow[k], top, "frame"),
        }
        if favoured is not None:
            row["words"] = _best(words, favoured[k], top, "word")
        rows.append(row)
    return {
        "frames": rows,
        "unused_frames": [name for name, count in zip(names, counts, strict=True) if not count],
        "frame_perplexity": float(np.exp(-(mass / mass.sum() * np.log(np.maximum(mass / mass.sum(), 1e-30))).sum())),
        "transitions": (follow / np.maximum(follow.sum(1, keepdims=True), 1e-30)).round(6).tolist(),
    }


@torch.no_grad()
def favoured_words(module: Model) -> Floats:
    """p(first predicate | frame), [K, V]: the decoder's first word given one frame, among possible predicates."""
    frames = torch.arange(module.sizes.classes, device=module.device)
    memory = module.memory_of_frames(frames.unsqueeze(1))  # a document of one event, for each frame
    log_probabilities, _ = module.step(torch.full_like(frames, BOS), module.start(memory))
    allowed = grammar(module.sizes.words, module.device)[0]
    return torch.softmax((log_probabilities + allowed).double(), dim=-1).cpu().numpy()


def _best(names: Sequence[str], probabilities: Floats, top: int, what: str) -> list[dict[str, Any]]:
    order = np.argsort(-probabilities, kind="stable")[:top]
    return [{what: names[i], "probability": float(probabilities[i])} for i in order if probabilities[i] > 0]


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
