"""The vocabulary: words, their lemmas, and further words that are known by their pretrained vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from revup.data.encode import NULL, SPECIAL, UNK, Array, normal
from revup.errors import InputError
from revup.io.files import read_list, write_list


class Vocabulary:
    """The mapping between words and numbers.

    V words can be encoded and generated; any other word is generated as `<unk>`. An encoder can read more: a predicate
    as another form of a word with the same lemma (V + that word's number), and a word by its pretrained vector
    (2V + its index in `beyond`).

    Args:
        words: The V words, special tokens first, frequent words before rare ones.
        lemmas: The lemma of each word; the words themselves where absent.
        beyond: Further words, known by their vectors.
    """

    def __init__(self, words: Sequence[str], lemmas: Sequence[str] | None = None, beyond: Sequence[str] = ()) -> None:
        self.words, self.beyond = list(words), list(beyond)
        self.index = {word: number for number, word in enumerate(self.words)}
        self.lemmas = list(lemmas) if lemmas is not None else list(self.words)
        self._beyond = {word: 2 * len(self.words) + place for place, word in enumerate(self.beyond)}
        self._by_lemma: dict[str, int] = {}
        self._lemma_number: dict[str, int] = {}
        for number, lemma in enumerate(self.lemmas):
            self._lemma_number.setdefault(lemma, len(self._lemma_number))
            if number >= len(SPECIAL):  # the most frequent word of a lemma represents it
                self._by_lemma.setdefault(lemma, number)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def distinct_lemmas(self) -> int:
        """The number of different lemmas (L)."""
        return len(self._lemma_number)

    def lemma_of(self, word: str, lemma: str) -> int:
        """Return the number of a predicate's lemma, from 0 to L − 1, or -1 for one that training did not have.

        Args:
            word: The predicate.
            lemma: Its lemma in the document, or the predicate itself.
        """
        if lemma == word and word in self.index:  # without a lemma of its own, that which the word has elsewhere
            lemma = self.lemmas[self.index[word]]
        if lemma not in self._lemma_number and word in self.index:
            lemma = self.lemmas[self.index[word]]
        return self._lemma_number.get(lemma, -1)

    def by_vector(self, word: str) -> int:
        """Return the number by which a word outside the vocabulary is read by its vector, or UNK."""
        return self._beyond.get(word, UNK)

    def by_lemma(self, lemma: str) -> int:
        """Return the number by which a predicate outside the vocabulary is read by its lemma, or UNK."""
        known = self._by_lemma.get(lemma)
        return UNK if known is None else len(self) + known

    def read(self, word: str, lemma: str) -> int:
        """Return the number by which a word is read: its own, else by its lemma, its vector or its lemma's vector."""
        found = self.known(word)
        if found == UNK:
            found = self.by_lemma(lemma)
        if found == UNK:
            found = self.by_vector(word)
        return found if found != UNK else self.by_vector(lemma)

    def name(self, number: int) -> str:
        """Return the word that is read by a number; that of the same lemma for a predicate read by its lemma."""
        return self.beyond[number - 2 * len(self)] if number >= 2 * len(self) else self.words[number % len(self)]

    def lemma_names(self, lemma: Array, lemma_read: Array) -> tuple[list[str], Array]:
        """Return the distinct lemmas of events, and for each event its place among them.

        Args:
            lemma: The numbers of the lemmas [...], -1 for unknown ones.
            lemma_read: The numbers by which they are read as words [...], which name those that are unknown.
        """
        pairs, inverse = np.unique(np.stack([lemma.ravel(), lemma_read.ravel()]), axis=1, return_inverse=True)
        known = list(self._lemma_number)
        names = [known[number] if number >= 0 else self.name(read) for number, read in pairs.T.tolist()]
        return names, inverse.reshape(lemma.shape)

    def translation(self, other: Vocabulary) -> Array:
        """Return the number by which this vocabulary reads what another reads by each number, [2V + beyond]."""
        plain = [
            number if number < len(SPECIAL) else self.read(word, lemma)
            for number, (word, lemma) in enumerate(zip(other.words, other.lemmas, strict=True))
        ]
        forms = [len(self) + number if len(SPECIAL) <= number < len(self) else number for number in plain]
        return np.array([*plain, *forms, *(self.read(word, word) for word in other.beyond)], np.int32)

    def number(self, word: str | None) -> int:
        """Return the number of a slot's word as it stands in a document."""
        return self.known(normal(word))

    def known(self, word: str) -> int:
        """Return the number of a normalised word; a word spelt like a special token is UNK."""
        found = self.index.get(word, UNK)
        return found if found >= len(SPECIAL) or found == NULL else UNK


def write_vocabulary(folder: Path, vocabulary: Vocabulary) -> None:
    """Write a vocabulary to vocabulary.txt, lemmas.txt and beyond.txt."""
    write_list(folder / "vocabulary.txt", vocabulary.words)
    write_list(folder / "lemmas.txt", vocabulary.lemmas)
    write_list(folder / "beyond.txt", vocabulary.beyond)


def read_vocabulary(folder: Path) -> Vocabulary:
    """Read what `write_vocabulary` wrote.

    Raises:
        InputError: A list is cut short, has a word twice, or does not fit the others.
        FileNotFoundError: A list is missing.
    """
    words = read_list(folder / "vocabulary.txt", minimum=len(SPECIAL))
    if tuple(words[: len(SPECIAL)]) != SPECIAL:
        raise InputError(f"not a vocabulary: expected {' '.join(SPECIAL)} first", str(folder / "vocabulary.txt"))
    lemmas = read_list(folder / "lemmas.txt", unique=False)
    if len(lemmas) != len(words):
        raise InputError(f"expected {len(words)} lemmas, found {len(lemmas)}", str(folder / "lemmas.txt"))
    return Vocabulary(words, lemmas, read_list(folder / "beyond.txt", minimum=0))
