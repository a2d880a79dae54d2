"""Pretrained word vectors in text form (GloVe, word2vec, fastText): those of a vocabulary, and of words beyond it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.errors import InputError
from revup.io.files import display_name, lines


def read_vectors(
    path: str | Path, vocabulary: Mapping[str, int], rows: int | None = None
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Vectors [rows, d] for a vocabulary (word → row) and which rows were found.

    Memory holds one line of the file at a time beside the result. A first line of two whole numbers (word2vec,
    fastText) is a header. A word of the file stands for the vocabulary's as it is, or else in lower case; of several
    the first counts, and one that is the same letter for letter before all others.
    """
    name = display_name(path)
    rows = max(vocabulary.values(), default=-1) + 1 if rows is None else rows
    vectors: NDArray[np.float32] | None = None
    found, exact = np.zeros(rows, bool), np.zeros(rows, bool)
    size = 0
    for number, line in lines(path):
        if isinstance(line, InputError):
            raise line
        word, rest = _cut(line)
        if number == 1 and word.isdecimal() and rest.isdecimal():
            size = int(rest)
            continue
        if not rest:
            if line.strip():
                raise InputError(f"expected a word and its numbers, found {line.strip()[:40]!r}", name, number)
            continue
        if vectors is None:
            size = size or len(_numbers(rest.split(), name, number))
            vectors = np.zeros((rows, size), np.float32)
        if word not in vocabulary and word.lower() not in vocabulary:
            continue
        values = rest.split()
        if len(values) > size and not _is_number(values[0]):  # GloVe has words with blanks inside: not this one
            continue
        same = word in vocabulary
        row = vocabulary[word if same else word.lower()]
        if not found[row] or (same and not exact[row]):
            vectors[row] = _vector(values, size, word, name, number)
            found[row], exact[row] = True, same
    if vectors is None:
        raise InputError("expected word vectors, found no line of them", name)
    return vectors, found


def read_beyond(
    path: str | Path, vocabulary: Container[str], most: int, size: int
) -> tuple[list[str], NDArray[np.float32]]:
    """The first words of a file, in lower case, that a vocabulary does not have, at most so many, with vectors [n, d].

    Files have their most frequent words first. What is no vector of that size (a header, a word with blanks inside) is
    passed over: `read_vectors` has been through the file and has said what is wrong with it.
    """
    found: dict[str, NDArray[Any]] = {}
    for number, line in lines(path):
        if isinstance(line, InputError) or len(found) >= most:
            break
        word, rest = _cut(line)
        word, values = word.lower(), rest.split()
        if len(values) != size or word in found or word in vocabulary:
            continue
        try:
            found[word] = _vector(values, size, word, display_name(path), number)
        except InputError:
            continue
    return list(found), np.array(list(found.values()), np.float32).reshape(len(found), size)


def _cut(line: str) -> tuple[str, str]:
    """A line's word and the rest, which a blank or a tab parts."""
    word, _, rest = line.rstrip("\r\n\t ").replace("\t", " ", 1).partition(" ")
    return word, rest.strip()


def _vector(values: list[str], size: int, word: str, name: str, number: int) -> NDArray[Any]:
    if len(values) != size:
        raise InputError(f"expected {size} numbers, found {len(values)}", name, number)
    vector = _numbers(values, name, number)
    if not np.isfinite(vector).all():
        raise InputError(f"the vector of {word[:40]!r} has a NaN or infinite number", name, number)
    return vector


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(values: list[str], name: str, number: int) -> NDArray[Any]:
    try:
        with np.errstate(over="ignore"):  # too large for float32 is infinite, and that is told
            return np.array(values, np.float32)
    except ValueError:
        raise InputError("expected numbers after the word", name, number) from None
