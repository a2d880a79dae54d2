"""Writing event sequences: greedily, by beam search or by sampling; from a prompt, chosen frames, or the prior.

The generative story of a document of N events (N is given, not drawn):

    latents e_1..        of the prompt's events, of the chosen frames, or drawn from the prior
    w_i ~ p(w | w_<i, e) restricted to the grammar: predicate, subject, object, modifier, <tup>, N times over

The prior: RevUp draws z_m ~ N(0, I) and t_m ~ r(t|z_m), SSDVAE t_m uniformly, HAQAE each code uniformly; RNNLM has
nothing to draw. A predicate is a word; another slot is a word or <null>; <unk>, <pad> and <bos> are never written. The
log-probability of what was written is that of the words under this restriction, given the latents and the prompt.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from revup.data.batches import Batch, Batches
from revup.data.corpus import encode_documents
from revup.data.encode import BOS, NULL, SPECIAL, TOKENS, TUP
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.models import layers
from revup.models.layers import Written, shifted
from revup.ops.vocabulary_loss import token_loss

if TYPE_CHECKING:
    from revup.inference.trained import Trained

METHODS = ("greedy", "beam", "sample")
NUMBERS_AT_ONCE = 2**24  # log-probabilities held at once
PRIOR_DRAWS = 4096  # of z, to integrate it out of RevUp's prior over frames


@dataclass(frozen=True)
class Method:
    """How the next words are chosen."""

    name: str = "sample"
    beams: int = 5  # beam: hypotheses kept
    length_penalty: float = 1.0  # beam: log p is divided by (tokens written) to this power
    temperature: float = 1.0  # sample: below 1 sharpens
    top_k: int = 0  # sample: among the k most probable words; 0: all
    top_p: float = 1.0  # sample: among the fewest words that have this much probability together

    def __post_init__(self) -> None:
        if self.name not in METHODS:
            raise RevupError(f"method: expected one of {', '.join(METHODS)}, found '{self.name}'")
        if self.beams < 1:
            raise RevupError(f"beams: expected 1 or more, found {self.beams}")
        if not self.temperature > 0:
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


# ---- what the decoder is given -------------------------------------------------------------------------------


@dataclass
class Memory:
    """What a decoder attends over: latents [B, L, d], and which of them are there [B, L]; neither for RNNLM."""

    latents: Tensor | None = None
    mask: Tensor | None = None

    def select(self, rows: Any) -> Memory:
        return Memory(
            None if self.latents is None else self.latents[rows], None if self.mask is None else self.mask[rows]
        )

    def then(self, latents: Tensor, count: int) -> Memory:
        """The first `count` of them, and more latents [L, d] after those, the same for every row."""
        assert self.latents is not None
        more = latents.expand(len(self.latents), -1, -1)
        return memory_of(torch.cat([self.latents[:, :count], more], dim=1))


def memory_of(latents: Tensor) -> Memory:
    return Memory(latents, torch.ones(latents.shape[:2], dtype=torch.bool, device=latents.device))


def has_latents(module: Any) -> bool:
    return hasattr(module, "decoder")


@torch.no_grad()
def inferred(module: Any, batch: Batch) -> Memory:
    """The latents of a batch's text, each at its mean (t = r at z = μ), for going on from there.

    A latent that is confined to its event is there only where its event is. One that may look at all tokens is
    inferred from those that are given, whether or not its own event is among them.
    """
    if not has_latents(module):
        return Memory()
    latents, mask = module.memory(batch, None, False)
    return Memory(latents, mask if module.network.attention == "confined" else torch.ones_like(mask))


@torch.no_grad()
def frame_prior(module: Any) -> Tensor:
    """p(t_m = k), [M, K]: what RevUp and SSDVAE take a frame to be before they read anything.

    SSDVAE: uniform. RevUp: E_{z~N(0,I)} r(t|z), over a fixed set of draws; where the proposal stands on the counts of
    a predicate there is none yet, and it stands on those of all.
    """
    events, classes = module.sizes.events, module.sizes.classes
    device = module.frames.device
    if not hasattr(module.latents[0], "gaussian"):
        return torch.full((events, classes), 1.0 / classes, device=device)
    z = torch.randn(PRIOR_DRAWS, module.network.latent, generator=torch.Generator().manual_seed(0)).to(device)
    counts = module.prior.base.clamp_min(1e-12).log() if module.objective.prior == "pooled" else 0.0
    proposed = [torch.softmax(weights.propose(z).float() + counts, dim=-1).mean(0) for weights in module.latents]
    return torch.stack(proposed).expand(events, -1)


def text_nll(module: Any, tokens: Tensor, memory: Memory) -> Tensor:
    """−log p of each token given those before it and the latents, [B, T]; T may be any number of tokens."""
    if memory.latents is None:
        states = module.states(shifted(tokens))
    else:
        states = module.decoder(module.words(shifted(tokens)), memory.latents, memory.mask)
    return token_loss(states, module.vocabulary, tokens, torch.ones_like(tokens))[1]


def _drawn(module: Any, generators: Sequence[np.random.Generator]) -> tuple[Memory, list[list[int]]]:
    """Latents from the prior, each row by its own generator, and their numbers (frames or codes)."""
    if not has_latents(module):
        return Memory(), [[] for _ in generators]
    if hasattr(module, "codebooks"):
        events, codes = module.codebooks.shape[:2]
        numbers = [generator.integers(codes, size=events).tolist() for generator in generators]
        return memory_of(module.codebooks[torch.arange(events), torch.tensor(numbers)]), numbers
    cumulative = np.cumsum(frame_prior(module).double().cpu().numpy(), axis=1)
    numbers = [
        [
            int(np.searchsorted(row, u * row[-1], "right"))
            for row, u in zip(cumulative, g.random(len(cumulative)), strict=True)
        ]
        for g in generators
    ]
    return memory_of(module.frames[torch.tensor(numbers, device=module.frames.device)]), numbers


def start(module: Any, rows: int, memory: Memory) -> Written:
    """Before the first token."""
    if memory.latents is None:
        hidden: Tensor = module.vocabulary.weight.new_zeros(module.network.layers, rows, module.rnn.hidden_size)
        return Written(hidden)
    assert memory.mask is not None
    return layers.start(module.decoder, memory.latents, memory.mask)


# ---- choosing words --------------------------------------------------------------------------------------------


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


def drawn_words(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """The words [B] at which the cumulative probabilities [B, V] pass the numbers u ~ U[0,1) [B]."""
    cumulative = probabilities.double().cumsum(-1)
    total = cumulative[:, -1:]
    passed = (cumulative <= uniform.unsqueeze(1) * total).sum(-1)
    return torch.minimum(passed, (cumulative < total).sum(-1))  # u·total may round up to the total


@torch.no_grad()
def write(
    module: Any,
    state: Written,
    last: Tensor,
    events: int,
    method: Method,
    noise: Tensor | None,
) -> list[Text]:
    """Write so many events after the token `last` [B], one text a row: by noise [B, events·5] ~ U[0,1), or greedily."""
    allowed = grammar(module.sizes.words, last.device)
    chosen, total = [], torch.zeros(len(last), dtype=torch.float64, device=last.device)
    for position in range(events * TOKENS):
        log_probabilities, state = module.step(last, state)
        log_probabilities = torch.log_softmax(log_probabilities + allowed[position % TOKENS], dim=-1)
        if noise is None:
            last = log_probabilities.argmax(-1)
        else:
            last = drawn_words(narrowed(log_probabilities, method), noise[:, position])
        total += log_probabilities.gather(1, last.unsqueeze(1)).squeeze(1)
        chosen.append(last)
    rows = torch.stack(chosen, dim=1).tolist()
    return [Text(row, value) for row, value in zip(rows, total.tolist(), strict=True)]


@torch.no_grad()
def beam(
    module: Any, state: Written, last: Tensor, events: tuple[int, int], method: Method, best: int = 1
) -> list[list[Text]]:
    """The best texts after the token `last` [B], for each row, best first.

    Texts may have from events[0] to events[1] events. They are ranked by log p / lengthᵃ, length counting the tokens
    written and a being the length penalty: with a = 0 a shorter text always wins, with 1 the mean per token decides.
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
            _collect(
                finished, tokens.view(rows, width, length).tolist(), scores.tolist(), length**method.length_penalty
            )
    return [[text for _, text in sorted(row, key=lambda pair: -pair[0])[:best]] for row in finished]


def _collect(
    finished: list[list[tuple[float, Text]]], tokens: list[list[list[int]]], scores: list[list[float]], norm: float
) -> None:
    for row, texts, values in zip(finished, tokens, scores, strict=True):
        row += [(v / norm, Text(text, v)) for text, v in zip(texts, values, strict=True) if v > -float("inf")]


@torch.no_grad()
def read(module: Any, tokens: Tensor, state: Written) -> tuple[Written, Tensor]:
    """Read given tokens [B, T] from the start: the state before the last of them, and that one [B]."""
    last = torch.full((len(tokens),), BOS, dtype=torch.long, device=tokens.device)
    for token in tokens.unbind(1):
        state, last = module.step(last, state)[1], token
    return state, last


# ---- what users ask --------------------------------------------------------------------------------------------


@dataclass
class _Start:
    """One text to begin: where it goes on from, and its own stream of random numbers."""

    name: str
    prompt: Document | None
    generator: np.random.Generator

    @property
    def events(self) -> int:
        return len(self.prompt.events) if self.prompt else 0


def generate(
    model: Trained,
    n: int = 5,
    prompts: Sequence[Document] | None = None,
    frames: Sequence[str] | None = None,
    events: int | tuple[int, int] | None = None,
    method: Method | str = "sample",
    seed: int = 0,
) -> list[Document]:
    """Write n documents, or n for each prompt.

    prompts: documents whose events are the beginning; frames: of the events to write; without either the latents come
    from the prior. events: how many a document has in the end, the prompt's included (by default M, or as many as
    there are frames); a pair for beam search, which chooses a number between. Beam search gives the n best of each
    start, greedy the same n times over unless latents are drawn.
    """
    method = Method(method, beams=max(n, Method.beams)) if isinstance(method, str) else method
    module = model.module
    if n < 1:
        raise RevupError(f"n: expected 1 or more, found {n}")
    if method.name == "beam" and n > method.beams:
        raise RevupError(f"the {n} best of {method.beams} beams were asked for: more beams are needed")
    if not module.has_text:
        raise RevupError(f"the model {model.config.model} writes no text")
    numbers = _frame_numbers(model, frames) if frames else []
    longest = max((len(p.events) for p in prompts or ()), default=0)
    span = _span(events, longest + len(numbers) if numbers else model.events, method)
    for prompt in prompts or ():
        if not prompt.events:
            raise RevupError(f"the prompt '{prompt.id}' has no events")
        if len(prompt.events) >= span[0]:
            raise RevupError(
                f"the prompt '{prompt.id}' has {len(prompt.events)} events already: ask for more than that with events"
            )
    if hasattr(module, "eval"):
        module.eval()
    copies = 1 if method.name == "beam" else n
    named = [(prompt.id, prompt) for prompt in prompts] if prompts is not None else [("generated", None)]
    starts = [
        _Start(name, prompt, np.random.default_rng([seed % 2**63, number, copy]))
        for number, (name, prompt) in enumerate(named)
        for copy in range(copies)
    ]
    written: dict[int, list[Document]] = {}
    order = sorted(range(len(starts)), key=lambda place: starts[place].events)
    at_once = max(1, NUMBERS_AT_ONCE // (module.sizes.words * (method.beams if method.name == "beam" else 1)))
    for _, group in groupby(order, key=lambda place: starts[place].events):
        places = list(group)
        for first in range(0, len(places), at_once):
            chosen = places[first : first + at_once]
            texts = _write_some(model, [starts[p] for p in chosen], numbers, span, method, n)
            written.update(zip(chosen, texts, strict=True))
    return _numbered(document for place in range(len(starts)) for document in written[place])


def _numbered(documents: Iterable[Document]) -> list[Document]:
    """Documents of one name told apart by a number, counted from 1."""
    counts: Counter[str] = Counter()
    made = []
    for document in documents:
        counts[document.id] += 1
        made.append(replace(document, id=f"{document.id}-{counts[document.id]}"))
    return made


def _frame_numbers(model: Trained, frames: Sequence[str]) -> list[int]:
    if not (model.module.has_frames and has_latents(model.module)):
        raise RevupError(f"the model {model.config.model} knows no frames: it can't write from chosen ones")
    known = {frame: number for number, frame in enumerate(model.frames)}
    for frame in frames:
        if frame not in known:
            spelt = {name.lower(): name for name in model.frames}
            near = [spelt[name] for name in difflib.get_close_matches(frame.lower(), spelt, 3)]
            hint = f"; did you mean {' or '.join(near)}?" if near else ": frames.txt of the run lists them"
            raise RevupError(f"the model knows no frame '{frame}'{hint}")
    return [known[frame] for frame in frames]


def _span(events: int | tuple[int, int] | None, usual: int, method: Method) -> tuple[int, int]:
    low, high = events if isinstance(events, tuple) else (events or usual,) * 2
    if not 1 <= low <= high:
        raise RevupError(f"events: expected 1 or more, or a range such as 3-5, found {low}-{high}")
    if low != high and method.name != "beam":
        raise RevupError("events: a range needs the method beam, which chooses between lengths")
    return low, high


@torch.no_grad()
def _write_some(
    model: Trained, starts: Sequence[_Start], numbers: list[int], span: tuple[int, int], method: Method, n: int
) -> list[list[Document]]:
    """The documents of some starts that have equally many events."""
    module, given = model.module, starts[0].events
    device = model.device
    told: list[list[int]] = [numbers for _ in starts]
    if given:
        prompts = [start.prompt for start in starts if start.prompt is not None]
        memory, tokens = _of_prompts(model, prompts)
        if numbers:
            memory = memory.then(module.frames[torch.tensor(numbers, device=device)], min(given, model.events))
    else:
        tokens = torch.zeros(len(starts), 0, dtype=torch.long, device=device)
        if numbers:
            memory = memory_of(module.frames[torch.tensor(numbers, device=device)].expand(len(starts), -1, -1))
        else:
            memory, told = _drawn(module, [start.generator for start in starts])
            if not (module.has_frames and model.data.get("named_frames", True)):
                told = [[] for _ in starts]
    state, last = read(module, tokens, start(module, len(starts), memory))
    if method.name == "beam":
        texts = beam(module, state, last, (span[0] - given, span[1] - given), method, n)
    else:
        size = (span[1] - given) * TOKENS
        noise = np.stack([start.generator.random(size) for start in starts]) if method.name == "sample" else None
        on_device = torch.from_numpy(noise).to(device) if noise is not None else None
        texts = [[text] for text in write(module, state, last, span[1] - given, method, on_device)]
    return [
        [_document(model, start, text, frames) for text in found]
        for start, found, frames in zip(starts, texts, told, strict=True)
    ]


def _of_prompts(model: Trained, prompts: Sequence[Document]) -> tuple[Memory, Tensor]:
    """The latents of prompts of equally many events (of the first M of them), and their tokens."""
    count = len(prompts[0].events)
    encoded = encode_documents(prompts, model.vocabulary, model.frames, count, "first")
    tokens = torch.from_numpy(encoded.arrays["tokens"].reshape(len(prompts), -1)).long().to(model.device)
    return inferred(model.module, first_events(model, prompts)), tokens


def first_events(model: Trained, documents: Sequence[Document]) -> Batch:
    """The first M events of some documents as one batch, without any frame."""
    split = encode_documents(documents, model.vocabulary, model.frames, model.events, "first")
    return next(Batches(split, Observation(0.0), len(documents), model.device).ordered())


def _document(model: Trained, start: _Start, text: Text, frames: Sequence[int]) -> Document:
    slots = [
        [
            None if number == NULL else model.vocabulary.words[number]
            for number in text.tokens[first : first + TOKENS - 1]
        ]
        for first in range(0, len(text.tokens), TOKENS)
    ]
    names = [*(model.frames[number] for number in frames), *[None] * len(slots)]
    events = [
        Event(pred or "", subj, obj, mod, frame=name)
        for (pred, subj, obj, mod), name in zip(slots, names, strict=False)
    ]
    before = list(start.prompt.events) if start.prompt else []
    return Document(start.name, before + events, {"log_probability": round(text.log_probability, 4)})
