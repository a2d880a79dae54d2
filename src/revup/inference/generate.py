"""Generation: documents written from a prompt, from chosen frames, or from the model's own prior.

The generative story of a document of N events (N is given, not drawn):

    latents e_1..        of the prompt's events, of the chosen frames, or drawn from the prior
    w_i ~ p(w | w_<i, e) restricted to the grammar of events (`decoding`)

The prior: RevUp draws z_m ~ N(0, I) and t_m ~ r(t|z_m), SSDVAE t_m uniformly, HAQAE each code uniformly; RNNLM has
nothing to draw.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from revup.data.corpus import encode_documents
from revup.data.dataset import MOST_EVENTS
from revup.data.documents import Given, as_documents
from revup.data.encode import NULL, TOKENS
from revup.data.events import Document, Event
from revup.errors import RevupError
from revup.inference.decoding import Method, Text, beam_search, decode, read_tokens
from revup.inference.loading import opened
from revup.inference.trained import Trained

MOST_DOCUMENTS = 1_000_000  # of one call, which holds them all
NUMBERS_AT_ONCE = 2**24  # log-probabilities held at once


@dataclass
class _Start:
    """One text to write: its prompt, and its own stream of random numbers."""

    name: str
    prompt: Document | None
    generator: np.random.Generator

    @property
    def events(self) -> int:
        return len(self.prompt.events) if self.prompt else 0


def generate(
    model: Trained | str | Path,
    n: int = 5,
    prompts: Given | None = None,
    frames: Sequence[str] | None = None,
    events: int | tuple[int, int] | None = None,
    method: Method | str = "sample",
    seed: int = 0,
) -> list[Document]:
    """Write n documents, or n for each prompt.

    Args:
        model: A model that writes text, or its run directory.
        n: How many documents. Beam search gives the n best of each prompt; greedy decoding gives the same one n times
            unless latents are drawn.
        prompts: Documents whose events are the beginning. Without prompts and frames the latents are drawn from the
            model's prior.
        frames: The frames of the events to write.
        events: How many events a document has in the end, the prompt's included (by default the model's number of
            events, or as many as there are frames); a pair for beam search, which chooses a number between.
        method: "greedy", "beam", "sample", or a `Method` with its options.
        seed: Seed of all random numbers.

    Returns:
        The documents, with their log-probability among their further keys.

    Raises:
        RevupError: The model does not write text, or an option does not fit.
    """
    if not 1 <= n <= MOST_DOCUMENTS:
        raise RevupError(f"n: expected a number from 1 to {MOST_DOCUMENTS}, found {n}")
    if isinstance(method, str):
        method = Method(method, beams=max(n, Method.beams) if method == "beam" else Method.beams)
    model = opened(model)
    module = model.module
    if method.name == "beam" and n > method.beams:
        raise RevupError(f"the {n} best of {method.beams} beams were asked for: more beams are needed")
    if not module.writes_text:
        raise RevupError(f"the model {model.config.model} does not write text")
    numbers = _frame_numbers(model, frames) if frames else []
    given = None if prompts is None else list(as_documents(prompts))
    longest = max((len(p.events) for p in given or ()), default=0)
    span = _span(events, longest + len(numbers) if numbers else model.events, method)
    for prompt in given or ():
        if not prompt.events:
            raise RevupError(f"the prompt '{prompt.id}' has no events")
        if len(prompt.events) >= span[0]:
            raise RevupError(
                f"the prompt '{prompt.id}' has {len(prompt.events)} events already: ask for more than that with events"
            )
    module.eval()
    copies = 1 if method.name == "beam" else n
    named = [(prompt.id, prompt) for prompt in given] if given is not None else [("generated", None)]
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
    """Documents numbered from 1 within each name."""
    counts: Counter[str] = Counter()
    made = []
    for document in documents:
        counts[document.id] += 1
        made.append(replace(document, id=f"{document.id}-{counts[document.id]}"))
    return made


def _frame_numbers(model: Trained, frames: Sequence[str]) -> list[int]:
    if not model.module.predicts_frames:
        raise RevupError(f"the model {model.config.model} does not write text from chosen frames")
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
    if not 1 <= low <= high <= MOST_EVENTS:
        found = str(low) if low == high else f"{low}-{high}"
        raise RevupError(f"events: expected a number from 1 to {MOST_EVENTS}, or a range such as 3-5, found {found}")
    if low != high and method.name != "beam":
        raise RevupError("events: a range needs the method beam, which chooses between lengths")
    return low, high


@torch.no_grad()
def _write_some(
    model: Trained, starts: Sequence[_Start], numbers: list[int], span: tuple[int, int], method: Method, n: int
) -> list[list[Document]]:
    """The documents of some starts whose prompts have equally many events."""
    module, given = model.module, starts[0].events
    device = model.device
    labels: list[list[int]] = [numbers for _ in starts]
    chosen = torch.tensor(numbers, device=device).expand(len(starts), -1)
    prompts = [start.prompt for start in starts if start.prompt is not None]
    tokens = torch.zeros(len(starts), 0, dtype=torch.long, device=device)
    if prompts:
        encoded = encode_documents(prompts, model.vocabulary, model.frames, given, "first")
        tokens = torch.from_numpy(encoded.arrays["tokens"].reshape(len(prompts), -1)).long().to(device)
        memory = module.prompt_memory(model.first_window(prompts))
        if numbers:
            memory = memory.followed_by(module.memory_of_frames(chosen), min(given, model.events))
    elif numbers:
        memory = module.memory_of_frames(chosen)
    else:
        memory, labels = module.sample_memory([start.generator for start in starts])
        if not (module.predicts_frames and model.data.get("named_frames", True)):
            labels = [[] for _ in starts]
    state, last = read_tokens(module, tokens, module.start(memory))
    if method.name == "beam":
        texts = beam_search(module, state, last, (span[0] - given, span[1] - given), method, n)
    else:
        size = (span[1] - given) * TOKENS
        noise = np.stack([start.generator.random(size) for start in starts]) if method.name == "sample" else None
        on_device = torch.from_numpy(noise).to(device) if noise is not None else None
        texts = [[text] for text in decode(module, state, last, span[1] - given, method, on_device)]
    return [
        [_document(model, start, text, frames) for text in found]
        for start, found, frames in zip(starts, texts, labels, strict=True)
    ]


def _document(model: Trained, start: _Start, text: Text, frames: Sequence[int]) -> Document:
    words = [None if number == NULL else model.vocabulary.words[number] for number in text.tokens]
    slots = [words[first : first + TOKENS - 1] for first in range(0, len(words), TOKENS)]
    names = [*(model.frames[number] for number in frames), *[None] * len(slots)]
    events = [
        Event(pred or "", subj, obj, mod, name) for (pred, subj, obj, mod), name in zip(slots, names, strict=False)
    ]
    before = list(start.prompt.events) if start.prompt else []
    return Document(start.name, before + events, {"log_probability": round(text.log_probability, 4)})
