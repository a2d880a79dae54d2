"""The vocabulary: which words are kept, and by which numbers others are read."""

from __future__ import annotations

import pytest

from revup.data.corpus import Corpus, encode_documents
from revup.data.encode import (
    NULL,
    SPECIAL,
    TUP,
    UNK,
)
from revup.data.events import Document, Event
from revup.data.vocabulary import Vocabulary
from samples import document


def test_vocabulary_keeps_most_frequent_words() -> None:
    events = [Event("b", "c", "a", frame="F"), Event("b", "x", "a", frame="F"), Event("b", frame="F")]
    documents = [Document("1", events)]
    assert Corpus.build(train=documents).vocabulary.words == [*SPECIAL, "b", "a", "c", "x"]
    small = Corpus.build(train=documents, vocabulary=len(SPECIAL) + 3)
    assert small.vocabulary.words == [*SPECIAL, "b", "a", "c"]
    twice = Corpus.build(train=documents, minimum_count=2)
    assert twice.vocabulary.words == [*SPECIAL, "b", "a"]
    assert twice.split("train").arrays["tokens"][0, 1, :4].tolist() == [5, UNK, 6, NULL]
    assert twice.statistics["token_coverage"] == round(5 / 7, 4)
    assert twice.statistics["distinct_words"] == 4


def test_words_spelt_like_special_tokens_are_unknown() -> None:
    corpus = Corpus.build(train=[Document("a", [Event("<pad>", "<TUP>", "<null>", "x", "F")])])
    assert corpus.split("train").arrays["tokens"][0, 0].tolist() == [UNK, UNK, NULL, len(SPECIAL), TUP]
    assert corpus.vocabulary.number(" X ") == len(SPECIAL)
    assert corpus.vocabulary.number(None) == NULL
    assert corpus.vocabulary.number("never-met") == UNK


def test_vocabulary_comes_from_training_windows_only() -> None:
    corpus = Corpus.build(train=[document("a", None, "F", None, "F")], test=[document("b", "F", "F")], events=1)
    assert corpus.vocabulary.words[len(SPECIAL) :] == ["a.1", "p1"]
    assert corpus.statistics["splits"]["test"]["token_coverage"] == 0.0


def test_lemma_given_most_often_is_kept() -> None:
    given_lemmas = ["find", "find", "found", None]
    events = [Event("found", lemma=lemma, frame="F") for lemma in given_lemmas] + [Event("left", frame="F")]
    corpus = Corpus.build(train=[Document("a", events)])
    pairs = dict(zip(corpus.vocabulary.words, corpus.vocabulary.lemmas, strict=True))
    assert pairs["found"] == "find"
    assert pairs["left"] == "left"


KNOWN = Vocabulary([*SPECIAL, "arrested", "man", "flee"], [*SPECIAL, "arrest", "man", "flee"], ["seized", "officer"])
V = len(KNOWN)


@pytest.mark.parametrize(
    ("pred", "lemma", "number"),
    [
        ("arrested", "arrest", 5),  # as itself
        ("arrests", "arrest", V + 5),  # as another form of a word with its lemma
        ("arrest", None, V + 5),  # a lemma that stands there itself
        ("fled", "flee", V + 7),
        ("seized", "seize", 2 * V),  # by its vector
        ("officers", "officer", 2 * V + 1),  # by its lemma's vector
        ("sang", "sing", UNK),
    ],
)
def test_unknown_predicate_is_read_by_lemma_or_vector(pred: str, lemma: str | None, number: int) -> None:
    """And written as <unk> unless it is a word of the vocabulary; a subject is read by its own vector at best."""
    event = Event(pred, subj=pred, obj="officer", lemma=lemma)
    arrays = encode_documents([Document("a", [event])], KNOWN, ["F"], 2).arrays
    read, tokens = arrays["read"][0], arrays["tokens"][0]
    assert read[0, 0] == number == KNOWN.read(pred, lemma or pred)
    assert tokens[0, 0] == (number if number < V else UNK)
    assert read[0, 1] == {"arrested": 5, "seized": 2 * V}.get(pred, UNK)
    assert read[0, 2:].tolist() == [2 * V + 1, NULL, TUP]
    assert tokens[0, 2] == UNK
    assert not read[1].any()


def test_translation_between_vocabularies() -> None:
    other = Vocabulary([*SPECIAL, "man", "arrests"], [*SPECIAL, "man", "arrest"], ["flee", "arrested"])
    found, size = other.translation(KNOWN).tolist(), len(other)
    arrested, man, flee = size + 6, 5, 2 * size
    assert found[:V] == [*range(5), arrested, man, flee]
    assert found[V : 2 * V] == [*range(5), arrested, size + man, flee]  # other forms of the same
    assert found[2 * V :] == [UNK, UNK]
    assert KNOWN.translation(KNOWN)[:V].tolist() == list(range(V))
    assert KNOWN.translation(KNOWN)[2 * V :].tolist() == [2 * V, 2 * V + 1]
