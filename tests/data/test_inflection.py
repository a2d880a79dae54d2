"""Lemmas by rule: a form's lemma is tried, and before others that a lexicon may hold as well."""

from __future__ import annotations

import pytest

from revup.data.inflection import lemmas


@pytest.mark.parametrize(
    ("form", "lemma"),
    [
        *(("arrested", "arrest"), ("robbing", "rob"), ("sentenced", "sentence"), ("carries", "carry")),
        *(("visited", "visit"), ("offered", "offer"), ("agreeing", "agree"), ("seen", "see"), ("freed", "free")),
        *(("began", "begin"), ("said", "say"), ("left", "leave"), ("withdrew", "withdraw"), ("underwent", "undergo")),
        *(("misunderstood", "misunderstand"), ("rebuilt", "rebuild"), ("became", "become"), ("does", "do")),
        *(("dying", "die"), ("underlying", "underlie"), ("picnicking", "picnic"), ("quizzes", "quiz")),
        *(("men", "man"), ("gunmen", "gunman"), ("crises", "crisis"), ("losses", "loss"), ("goes", "go")),
    ],
)
def test_lemma_is_tried(form: str, lemma: str) -> None:
    assert lemma in lemmas(form)


@pytest.mark.parametrize(
    ("form", "lemma", "other"),
    [
        *(
            ("hoped", "hope", "hop"),
            ("rated", "rate", "rat"),
            ("scraping", "scrape", "scrap"),
            ("rides", "ride", "rid"),
        ),
        *(("singing", "sing", "singe"), ("dying", "die", "dye"), ("writing", "write", "writ")),
    ],
)
def test_likely_lemma_comes_first(form: str, lemma: str, other: str) -> None:
    found = [*lemmas(form), other]
    assert found.index(lemma) < found.index(other)


@pytest.mark.parametrize("word", ["", "a", "s", "ing", "ed", "bring", "thing", "x" * 5000 + "ing", "ßs", "re" * 20_000])
def test_any_word_has_only_words_as_lemmas(word: str) -> None:
    assert all(len(form) > 1 and form != word for form in lemmas(word))
