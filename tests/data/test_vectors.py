"""Pretrained word vectors in their text formats, for the words of a vocabulary."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paths import DATA as SHARED
from revup.data.corpus import Corpus
from revup.data.encode import SPECIAL
from revup.data.events import Document, Event
from revup.data.vectors import read_beyond, read_vectors
from revup.errors import InputError

VOCABULARY = {"jury": 0, "man": 1, "new-york": 2, "judge": 3}
GLOVE = "the 1 2 3\njury 0.5 -1e-3 2\nman 4 5 6\nother 7 8 9\n"


def write(tmp_path: Path, text: str, name: str = "vectors.txt") -> Path:
    path = tmp_path / name
    data = text.encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glove.txt", GLOVE),
        ("glove.txt.gz", GLOVE),
        ("word2vec.txt", "4 3\n" + GLOVE),
        ("fasttext.vec", "4 3\n" + GLOVE.replace("\n", " \n")),  # fastText ends its lines with a blank
        ("tabs.txt", GLOVE.replace("jury ", "jury\t")),
        ("windows.txt", GLOVE.replace("\n", "\r\n")),
        ("unended.txt", GLOVE.rstrip("\n")),
        ("blank lines.txt", GLOVE.replace("\n", "\n\n")),
    ],
)
def test_every_file_format_gives_same_vectors(tmp_path: Path, name: str, text: str) -> None:
    vectors, found = read_vectors(write(tmp_path, text, name), VOCABULARY)
    np.testing.assert_array_equal(found, [True, True, False, False])
    np.testing.assert_allclose(vectors, [[0.5, -1e-3, 2], [4, 5, 6], [0, 0, 0], [0, 0, 0]])
    assert vectors.dtype == np.float32


def test_exact_match_wins_over_lower_case(tmp_path: Path) -> None:
    path = write(tmp_path, "Man 1 1\nMAN 2 2\nman 3 3\nman 4 4\nJury 5 5\nJURY 6 6\n")
    vectors, found = read_vectors(path, VOCABULARY)
    assert found.tolist() == [True, True, False, False]
    assert vectors[:2].tolist() == [[5, 5], [3, 3]]


def test_words_with_blanks_are_skipped(tmp_path: Path) -> None:
    """GloVe's large files have a few, and they begin with words that are in any vocabulary."""
    path = write(tmp_path, "the 1 2\njury at name@domain.com 5 6\njury 7 8\n")
    vectors, _ = read_vectors(path, VOCABULARY)
    assert vectors[0].tolist() == [7, 8]


def test_more_rows_than_words(tmp_path: Path) -> None:
    vectors, found = read_vectors(write(tmp_path, GLOVE), {"man": 2}, rows=5)
    assert vectors.shape == (5, 3)
    assert found.tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected word vectors, found no line of them"),
        ("4 3\n", "found no line of them"),
        ("the 1 2\njury 1 nan\n", "line 2: the vector of 'jury' has a NaN or infinite number"),
        ("the 1 2\njury 1 -inf\n", "line 2: the vector of 'jury' has a NaN or infinite number"),
        ("the 1 2\njury 1e99 1\n", "line 2: the vector of 'jury' has a NaN or infinite number"),
        ("the 1 2\njury 1\n", "line 2: expected 2 numbers, found 1"),
        ("the 1 2\njury 1 2 3\n", "line 2: expected 2 numbers, found 3"),
        ("the 1 2\njury 1 x\n", "line 2: expected numbers after the word"),
        ("2 3\njury 1 2\n", "line 2: expected 3 numbers, found 2"),
        ("2 1000000000\njury 1 2\n", "line 2: expected vectors of 1 to 65536 numbers, found 1000000000"),
        (f"2 {'9' * 5000}\njury 1 2\n", "line 2: expected vectors of 1 to 65536 numbers, found 9999"),
        ("the a b\n", "line 1: expected numbers after the word"),
        ("justaword\n", "line 1: expected a word and its numbers, found 'justaword'"),
        ("jury 1 2\nman \udcff 2\n", "line 2: not UTF-8"),
    ],
)
def test_wrong_files_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        read_vectors(path, VOCABULARY)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_truncated_and_missing_files_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"word%d 1 2 3\n" % n for n in range(5000)))
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="the compressed file is damaged"):
        read_vectors(path, VOCABULARY)
    with pytest.raises(InputError, match="no such file"):
        read_vectors(tmp_path / "none.txt", VOCABULARY)


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3)))
def test_written_vectors_are_read_back(tmp_path_factory: pytest.TempPathFactory, table: dict[str, list[float]]) -> None:
    path = write(tmp_path_factory.mktemp("v"), "".join(f"{w} {' '.join(map(repr, v))}\n" for w, v in table.items()))
    index = {word: number for number, word in enumerate("hgfedcba")}
    if not table:
        with pytest.raises(InputError):
            read_vectors(path, index)
        return
    vectors, found = read_vectors(path, index)
    assert {word for word, row in index.items() if found[row]} == set(table)
    for word, values in table.items():
        np.testing.assert_allclose(vectors[index[word]], values, rtol=1e-6)


def test_corpus_keeps_vectors_and_reports_coverage(tmp_path: Path) -> None:
    events = [Event("convicted", "jury", "man"), Event("left", "jury", frame="Departing")]
    text = "<unk> 9 9\n<null> 9 9\njury 1 2\nconvicted 3 4\nunused 5 6\n"
    built = Corpus.build(train=[Document("a", events)], window="first", vectors=write(tmp_path, text))
    vectors, found = built.vectors() or pytest.fail("no vectors")
    words = [*built.vocabulary.words, *built.vocabulary.beyond]
    assert {words[row] for row in np.flatnonzero(found)} == {"jury", "convicted", "unused"}
    assert built.vocabulary.beyond == ["unused"]
    assert vectors[-1].tolist() == [5, 6]
    assert vectors[built.vocabulary.index["jury"]].tolist() == [1, 2]
    assert not vectors[: len(SPECIAL)].any()
    # jury twice, convicted, of five words that are there; two of four different ones
    assert built.statistics["vectors"] == {"words": 2, "share_of_words": 0.5, "share_of_tokens": 0.6, "beyond": 1}
    plain = Corpus.build(train=[Document("a", events)], window="first")
    assert plain.vectors() is None
    assert plain.fingerprint != built.fingerprint


def test_words_beyond_the_vocabulary_in_file_order(tmp_path: Path) -> None:
    text = "5 2\n. . 9 9\nThe 1 2\nman 3 4\nthe 5 6\nodd nan 1\nodder x 1\nparis 7 8\nrome 9 9\n"
    words, vectors = read_beyond(write(tmp_path, text), {"man"}, 10, 2)
    assert words == ["the", "paris", "rome"]  # the first of two spellings; no word of two; no vector that is none
    assert vectors.tolist() == [[1, 2], [7, 8], [9, 9]]
    assert read_beyond(write(tmp_path, text), {"man"}, 2, 2)[0] == ["the", "paris"]
    assert read_beyond(write(tmp_path, text), {"man"}, 0, 2)[1].shape == (0, 2)


@pytest.mark.skipif(not SHARED.exists(), reason="the real data in ../shared is not there")
def test_real_glove_has_documented_size() -> None:
    path = SHARED / "vectors" / "glove.100d.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        index = {line.partition(" ")[0]: number for number, line in enumerate(stream)}
    vectors, found = read_vectors(path, index)
    assert vectors.shape == (70_579, 100)
    assert found.all()
    king, queen, cabbage = (vectors[index[word]] for word in ("king", "queen", "cabbage"))
    assert np.corrcoef(king, queen)[0, 1] > np.corrcoef(king, cabbage)[0, 1]
