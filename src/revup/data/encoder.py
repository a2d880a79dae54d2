"""Event vectors of a pretrained transformer: the last layer at the predicate, its word pieces averaged.

Only weights in safetensors form are loaded, and no code of a model's own: nothing that is loaded can run code.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from revup.data.event_vectors import LARGEST_VECTOR, Floats, Found
from revup.data.events import Event
from revup.data.knowledge import Keys
from revup.data.told import place_of
from revup.errors import RevupError, missing_extra, reason

BATCH = 32  # sentences at a time
LONGEST = 512  # word pieces, where a model does not say how many it can read


class Encoder:
    """A pretrained transformer that reads the sentences of events (`VectorSource`).

    Args:
        name: Its directory, or its name on the Hugging Face Hub.

    Attributes:
        encoder: The name.
        size: The size of a vector, d.

    Raises:
        RevupError: The extra is not installed, or there is no such model, or none with a fast tokenizer and
            safetensors.
    """

    def __init__(self, name: str) -> None:
        try:
            import torch
            import transformers
        except ImportError:
            raise missing_extra("encoder", "--encoder") from None
        self.encoder = name
        try:
            with _quiet(transformers.utils.logging):
                tokenizer = transformers.AutoTokenizer.from_pretrained(name, use_fast=True, trust_remote_code=False)
                model = transformers.AutoModel.from_pretrained(name, use_safetensors=True, trust_remote_code=False)
        except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
            raise RevupError(f"the encoder {name} can't be loaded: {reason(error)}") from None
        self._tokenizer = tokenizer
        if not tokenizer.is_fast:
            raise RevupError(f"the encoder {name} has no fast tokenizer, which is needed to find the predicate")
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model = model.eval().to(self._device)
        self.size = int(model.config.hidden_size)
        if not 1 <= self.size <= LARGEST_VECTOR:
            raise RevupError(f"the encoder {name} has vectors of {self.size} numbers, at most {LARGEST_VECTOR} work")
        known = (self._tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None))
        self._longest = min(LONGEST, *(n for n in known if isinstance(n, int) and n > 0))
        self._alone = threading.Lock()  # a tokenizer can't be used by two threads

    def of(self, events: Sequence[Event], keys: Keys) -> tuple[Floats, Found]:
        """Return the vectors of events whose sentence is known, and in it the place of the predicate."""
        out, found = np.zeros((len(events), self.size), np.float32), np.zeros(len(events), bool)
        sentences: dict[str, list[tuple[int, int, int]]] = {}  # text → events with the place of their predicate
        for number, event in enumerate(events):
            place = _span(event)
            if event.text and place is not None:
                sentences.setdefault(event.text, []).append((number, *place))
        texts = sorted(sentences, key=len)  # of similar length, so that little is padded
        with self._alone:
            for start in range(0, len(texts), BATCH):
                part = texts[start : start + BATCH]
                states, offsets = self._read(part)
                for row, text in enumerate(part):
                    for number, first, last in sentences[text]:
                        inside = (offsets[row, :, 0] < last) & (offsets[row, :, 1] > first)
                        if inside.any():
                            out[number], found[number] = states[row][inside].mean(0), True
        return out, found

    def _read(self, texts: list[str]) -> tuple[Any, Any]:
        """States of the last layer [n, pieces, d], and the characters that each piece stands for [n, pieces, 2]."""
        import torch

        pieces = self._tokenizer(
            texts,
            return_offsets_mapping=True,
            padding=True,
            truncation=True,
            max_length=self._longest,
            return_tensors="pt",
        )
        offsets = pieces.pop("offset_mapping").numpy()
        with torch.inference_mode():
            given = {name: tensor.to(self._device) for name, tensor in pieces.items()}
            states = self._model(**given).last_hidden_state.float().cpu().numpy()
        return states, offsets


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without the progress bars of the library."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _span(event: Event) -> tuple[int, int] | None:
    """The characters of the predicate in its sentence, if they are known or it stands there once."""
    if event.span is not None:
        return event.span
    start = place_of(event.pred, event.text) if event.text else None
    return None if start is None else (start, start + len(event.pred))


@cache
def load_encoder(name: str) -> Encoder:
    """Return an encoder, which is loaded once in a process."""
    return Encoder(name)
