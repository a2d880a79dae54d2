"""Pretrained word vectors in text form (GloVe, word2vec, fastText), read keeping only the vocabulary's rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.errors import InputError
from revup.events import display_name, lines


def read_vectors(path: str | Path, vocabulary: dict[str, int]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Vectors for a vocabulary (word → row) and which rows were found; memory holds one line of the file at a time.

    A first line of two whole numbers (word2vec, fastText) is a header. A word met twice keeps its first vector; the
    file's words match the vocabulary in lower case.
    """
    name = display_name(path)
    vectors: NDArray[np.float32] | None = None
    found = np.zeros(len(vocabulary), bool)
    for number, line in lines(path):
        if isinstance(line, InputError):
            raise line
        word, _, rest = line.rstrip("\n ").partition(" ")
        if number == 1 and _is_header(word, rest):
            continue
        if not rest:
            if line.strip():
                raise InputError(f"expected a word and its numbers, found {line.strip()[:40]!r}", name, number)
            continue
        if vectors is None:
            vectors = np.zeros((len(vocabulary), len(_numbers(rest, name, number))), np.float32)
        row = vocabulary.get(word.lower())
        if row is None or found[row]:
            continue
        values = _numbers(rest, name, number)
        if len(values) != vectors.shape[1]:
            raise InputError(f"expected {vectors.shape[1]} numbers, found {len(values)}", name, number)
        if not np.isfinite(values).all():
            raise InputError(f"the vector of {word[:40]!r} has a NaN or infinite number", name, number)
        vectors[row], found[row] = values, True
    if vectors is None:
        raise InputError("expected word vectors, found no line of them", name)
    return vectors, found


def _is_header(word: str, rest: str) -> bool:
    return word.isdigit() and rest.strip().isdigit()


def _numbers(text: str, name: str, number: int) -> NDArray[Any]:
    try:
        return np.array(text.split(), np.float32)
    except ValueError:
        raise InputError("expected numbers after the word", name, number) from None
