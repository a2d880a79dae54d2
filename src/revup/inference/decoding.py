"""Decoding: greedily, by sampling or by beam search, restricted to the grammar of events.

An event is five tokens: predicate, subject, object, modifier, <tup>. A predicate is a word; another slot is a word or
<null>; <unk>, <pad> and <bos> are never written. Log-probabilities are those of the words under this restriction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from revup.data.encode import BOS, NULL, SPECIAL, TOKENS, TUP
from revup.errors import RevupError
from revup.models.base import Model, Written

METHODS = ("greedy", "beam", "sample")
MOST_BEAMS = 1000  # each holds a state and a distribution over the vocabulary


@dataclass(frozen=True)
class Method:
    """How the next words are chosen."""

    name: str = "sample"
    beams: int = 5  # beam: hypotheses kept
    length_penalty: float = 1.0  # beam: log p is divided by (tokens written) to this power
    temperature: float = 1.0  # sample: below 1 sharpens the distribution
    top_k: int = 0  # sample: among the k most probable words; 0: all
    top_p: float = 1.0  # sample: among the fewest words that have this much probability together

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise RevupError(f"method: expected one of {', '.join(METHODS)}, found '{self.name}'")
        if not 1 <= self.beams <= MOST_BEAMS:
            raise RevupError(f"beams: expected a number from 1 to {MOST_BEAMS}, found {self.beams}")
        if not math.isfinite(self.length_penalty):
            raise RevupError(f"length-penalty: expected a number, found {self.length_penalty}")
        if not 0 < self.temperature < math.inf:
            raise RevupError(f"temperature: expected a number above 0, found {self.temperature}; see method greedy")
        if self.top_k < 0:
            raise RevupError(f"top-k: expected 0 or more, found {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise RevupError(f"top-p: expected a number above 0 and up to 1, found {self.top_p}")


@dataclass
class Text:
    """Words that were written, 5 an event, and their log-probability."""

    tokens: list[int]
    log_probability: float


def grammar(words: int, device: torch.device | str = "cpu") -> Tensor:
    """What may stand where in an event: 0 for what may, −∞ for what may not, [5, V]."""
    allowed = torch.full((TOKENS, words), -torch.inf, device=device)
    allowed[:-1, len(SPECIAL) :] = 0.0
    allowed[1:-1, NULL] = 0.0
    allowed[-1, TUP] = 0.0
    return allowed


def narrowed(log_probabilities: Tensor, method: Method) -> Tensor:
    """The distribution to sample from, [B, V]: sharpened, then cut to the top k, then to the nucleus."""
    probabilities = torch.softmax(log_probabilities.double() / method.temperature, dim=-1)
    if method.top_k and method.top_k < probabilities.shape[-1]:
        best, places = probabilities.topk(method.top_k)
        probabilities = torch.zeros_like(probabilities).scatter_(-1, places, best)
    if method.top_p < 1:
        ordered, places = probabilities.sort(descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        kept = ordered * (before < method.top_p * ordered.sum(-1, keepdim=True))
        probabilities = torch.zeros_like(probabilities).scatter_(-1, places, kept)
    return probabilities / probabilities.sum(-1, keepdim=True)


def sampled_words(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The words [B] at which the cumulative probabilities [B, V] pass the numbers u ~ U[0,1) [B]."""
    cumulative = probabilities.double().cumsum(-1)
    total = cumulative[:, -1:]
    passed = (cumulative <= uniform.unsqueeze(1) * total).sum(-1)
    return torch.minimum(passed, (cumulative < total).sum(-1))  # u·total may round up to the total


@torch.no_grad()
def read_tokens(module: Model, tokens: Tensor, state: Written) -> tuple[Written, Tensor]:
    """Read given tokens [B, T] from the start: the state before the last of them, and that one [B]."""
    last = torch.full((len(tokens),), BOS, dtype=torch.long, device=tokens.device)
    for token in tokens.unbind(1):
        state, last = module.step(last, state)[1], token
    return state, last


@torch.no_grad()
def decode(
    module: Model, state: Written, last: Tensor, events: int, method: Method, noise: Tensor | None
) -> list[Text]:
    """Write one text a row, greedily or by sampling.

    Args:
        module: A model that writes text.
        state: Before the token `last` is read.
        last: The last token of each row, [B].
        events: How many events to write.
        method: How the distribution to sample from is narrowed.
        noise: Numbers from U[0,1) [B, events·5] to sample by; None: take the most probable word each time.

    Returns:
        The texts, in the order of the rows.
    """
    allowed = grammar(module.sizes.words, last.device)
    chosen, total = [], torch.zeros(len(last), dtype=torch.float64, device=last.device)
    for position in range(events * TOKENS):
        log_probabilities, state = module.step(last, state)
        log_probabilities = torch.log_softmax(log_probabilities + allowed[position % TOKENS], dim=-1)
        if noise is None:
            last = log_probabilities.argmax(-1)
        else:
            last = sampled_words(narrowed(log_probabilities, method), noise[:, position])
        total += log_probabilities.gather(1, last.unsqueeze(1)).squeeze(1)
        chosen.append(last)
    rows = torch.stack(chosen, dim=1).tolist()
    return [Text(row, value) for row, value in zip(rows, total.tolist(), strict=True)]


@torch.no_grad()
def beam_search(
    module: Model, state: Written, last: Tensor, events: tuple[int, int], method: Method, best: int = 1
) -> list[list[Text]]:
    """The best texts of each row, best first.

    Texts are ranked by log p / lengthᵃ, where the length counts the tokens written and a is the length penalty: with
    a = 0 a shorter text always wins, with a = 1 the mean per token decides.

    Args:
        module: A model that writes text.
        state: Before the token `last` is read.
        last: The last token of each row, [B].
        events: The least and the largest number of events.
        method: How many beams are kept, and the length penalty.
        best: How many texts to return for each row.
    """
    width, words = method.beams, module.sizes.words
    allowed = grammar(words, last.device)
    rows = len(last)
    first = torch.arange(rows, device=last.device).unsqueeze(1) * width  # where each row's beams begin, [B, 1]
    state, last = state.select(first.expand(rows, width).flatten() // width), last.repeat_interleave(width)
    scores = torch.full((rows, width), -torch.inf, device=last.device)
    scores[:, 0] = 0.0
    tokens = torch.zeros(rows * width, 0, dtype=torch.long, device=last.device)
    finished: list[list[tuple[float, Text]]] = [[] for _ in range(rows)]
    for position in range(events[1] * TOKENS):
        log_probabilities, state = module.step(last, state)
        log_probabilities = torch.log_softmax(log_probabilities + allowed[position % TOKENS], dim=-1)
        candidates = (scores.view(-1, 1) + log_probabilities).view(rows, width * words)
        scores, places = candidates.topk(width)  # [B, W], best first
        parents = (first + places // words).flatten()
        last = (places % words).flatten()
        state, tokens = state.select(parents), torch.cat([tokens[parents], last.unsqueeze(1)], dim=1)
        length = position + 1
        if length % TOKENS == 0 and length >= events[0] * TOKENS:
            norm = length**method.length_penalty
            for row, texts, values in zip(
                finished, tokens.view(rows, width, length).tolist(), scores.tolist(), strict=True
            ):
                row += [(v / norm, Text(text, v)) for text, v in zip(texts, values, strict=True) if v > -torch.inf]
    return [[text for _, text in sorted(row, key=lambda pair: -pair[0])[:best]] for row in finished]
