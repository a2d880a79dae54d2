"""Pretrained word vectors in text form (GloVe, word2vec, fastText)."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.errors import InputError
from revup.io.files import display_name, lines

LARGEST_VECTOR = 2**16  # numbers; a header may say anything


def read_vectors(
    path: str | Path, vocabulary: Mapping[str, int], rows: int | None = None
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Read the vectors of a vocabulary, holding one line of the file in memory at a time.

    A first line of two whole numbers (word2vec, fastText) is a header. A word of the file matches exactly or, failing
    that, in lower case; of several matches the first counts, an exact one before all others.

    Args:
        path: The file; ".gz" is decompressed.
        vocabulary: word → row.
        rows: The number of rows; the largest row of the vocabulary plus one where absent.

    Returns:
        Vectors [rows, d], 0 where there is none, and which rows have one [rows].

    Raises:
        InputError: A line is not a vector.
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
            size = int(rest[:19])
            continue
        if not rest:
            if line.strip():
                raise InputError(f"expected a word and its numbers, found {line.strip()[:40]!r}", name, number)
            continue
        if vectors is None:
            size = size or len(_numbers(rest.split(), name, number))
            if not 0 < size <= LARGEST_VECTOR:
                message = f"expected vectors of 1 to {LARGEST_VECTOR} numbers, found {str(size)[:40]}"
                raise InputError(message, name, number)
            vectors = np.zeros((rows, size), np.float32)
        if word not in vocabulary and word.lower() not in vocabulary:
            continue
        values = rest.split()
        if len(values) > size and not _is_number(values[0]):  # a GloVe word with blanks inside: another word
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
    """Read the first (most frequent) words of a file that a vocabulary lacks.

    Lines that hold no vector of that size (a header, a word with blanks inside) are skipped: `read_vectors` has checked
    the file.

    Args:
        path: The file.
        vocabulary: The words to leave out.
        most: The maximum number of words.
        size: The dimension d.

    Returns:
        The words in lower case, and their vectors [n, d].
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
    """Split a line at its first blank or tab into the word and the rest."""
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
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which is reported
            return np.array(values, np.float32)
    except ValueError:
        raise InputError("expected numbers after the word", name, number) from None
