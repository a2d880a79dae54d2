"""Inverse narrative cloze: given the first event, which of six continuations is the true one?

The latents are inferred from the first event alone, every candidate is scored by the decoder with them, and the one
with the lowest score is chosen:

    whole          perplexity of the first event and the continuation together, as in HAQAE's evaluation
    continuation   −log p(continuation | first event)
    normalised     the same per token

They differ only where candidates differ in length: the first event is the same for all. A latent that is confined to
its event exists for the first event only; one that attends to all tokens (`network.attention` full: HAQAE, and the
`paper` presets) is inferred from the first event whatever its own. With `latents` = candidate they are inferred from
each candidate itself, as in SSDVAE's evaluation: that scores the reconstruction, not the prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revup.data.corpus import encode_documents
from revup.data.encode import TOKENS, UNK
from revup.data.events import Document
from revup.data.readers.cloze import ClozeItem
from revup.errors import RevupError
from revup.inference.loading import opened
from revup.inference.trained import Trained

SCORES = ("whole", "continuation", "normalised")
LATENTS = ("first", "candidate")
ITEMS_AT_ONCE = 50


def cloze(
    model: Trained | str | Path, items: Sequence[ClozeItem], score: str = "whole", latents: str = "first"
) -> dict[str, Any]:
    """Choose among continuations; where n candidates share the best score, the true one counts 1/n.

    Args:
        model: A model that writes text, or its run directory.
        items: The items, for instance `revup.data.readers.cloze.items("cloze.txt")`.
        score: What is compared: whole, continuation or normalised.
        latents: What the latents are inferred from: the first event, or each candidate.

    Returns:
        `model`, `preset`, `items`, `accuracy`, `chance`, `standard_error`, `mean_rank` of the true candidate, `score`,
        `latents`, and `unknown_words`, the share of words outside the vocabulary.

    Raises:
        RevupError: The model does not write text, there are no items, or an option is unknown.
    """
    model = opened(model)
    for name, value, allowed in (("score", score, SCORES), ("latents", latents, LATENTS)):
        if value not in allowed:
            raise RevupError(f"{name}: expected one of {', '.join(allowed)}, found '{value}'")
    if not model.module.writes_text:
        raise RevupError(f"the model {model.config.model} does not write text")
    if not items:
        raise RevupError("no items")
    right, ranks, unknown, words = 0.0, 0.0, 0, 0
    for found, tokens in candidate_scores(model, items, score, latents):
        right += credit(found)
        ranks += 1 + float((found[1:] < found[0]).sum()) + 0.5 * float((found[1:] == found[0]).sum())
        slots = tokens.reshape(-1, TOKENS)[:, :-1]
        unknown, words = unknown + int((slots == UNK).sum()), words + int((slots > 0).sum())
    accuracy = right / len(items)
    return {
        "model": model.config.model,
        "preset": model.config.preset,
        "items": len(items),
        "accuracy": accuracy,
        "chance": sum(1 / len(item.candidates) for item in items) / len(items),
        "standard_error": (accuracy * (1 - accuracy) / len(items)) ** 0.5,
        "mean_rank": ranks / len(items),
        "score": score,
        "latents": latents,
        "unknown_words": unknown / max(words, 1),
    }


def credit(scores: NDArray[np.float64]) -> float:
    """What an answer counts: 1 if the true candidate is chosen, 1/n if it shares the best score with n − 1 others.

    Args:
        scores: The scores of an item's candidates, the true one first; lower is better.
    """
    best = scores.min()
    return float(scores[0] == best) / int((scores == best).sum())


@torch.no_grad()
def candidate_scores(
    model: Trained, items: Sequence[ClozeItem], score: str, latents: str
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int32]]]:
    """Score the candidates of items.

    Args:
        model: A model that writes text.
        items: The items.
        score: whole, continuation or normalised.
        latents: What they are inferred from: first or candidate.

    Returns:
        For each item the scores of its candidates, lower is better, and their tokens.
    """
    model.module.eval()
    for first in range(0, len(items), ITEMS_AT_ONCE):
        part = items[first : first + ITEMS_AT_ONCE]
        sizes = [len(item.candidates) for item in part]
        candidates = [Document("", list(events)) for item in part for events in item.candidates]
        longest = max(len(candidate.events) for candidate in candidates)
        split = encode_documents(candidates, model.vocabulary, model.frames, longest, "first")
        tokens = torch.from_numpy(split.arrays["tokens"].reshape(len(candidates), -1)).long().to(model.device)
        if latents == "candidate":
            memory = model.module.prompt_memory(model.first_window(candidates))
        else:
            openings = [Document("", item.true[:1]) for item in part]
            owner = torch.arange(len(part)).repeat_interleave(torch.tensor(sizes)).to(model.device)
            memory = model.module.prompt_memory(model.first_window(openings)).select(owner)
        lengths = torch.from_numpy(np.array(split.arrays["lengths"])).to(model.device)
        found = sequence_scores(model.module.text_nll(tokens, memory), lengths, score).cpu().numpy()
        for end, size in zip(accumulate(sizes), sizes, strict=True):
            yield found[end - size : end], np.asarray(split.arrays["tokens"][end - size : end])


def sequence_scores(nll: Tensor, events: Tensor, score: str) -> Tensor:
    """The score of each sequence, [B].

    Args:
        nll: −log p of the tokens, [B, T].
        events: The number of events of each sequence, [B].
        score: What is compared; whole and normalised give the mean per token, whose exponential is the perplexity.
    """
    place = torch.arange(nll.shape[1], device=nll.device)
    start = 0 if score == "whole" else TOKENS
    counted = (place >= start) & (place < (events * TOKENS).unsqueeze(1))
    total = (nll.double() * counted).sum(1)
    if score == "continuation":
        return total
    return total / counted.sum(1).clamp_min(1)
