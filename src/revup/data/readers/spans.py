"""Head words of spans, for the readers whose arguments are spans of tagged words (framenet, concrete).

Tags are Penn Treebank's or TreeTagger's, in upper or lower case, or empty where a corpus has none.
"""

from __future__ import annotations

from collections.abc import Sequence

# fmt: off
_BE = frozenset((
    "be", "am", "is", "are", "was", "were", "been", "being", "'s", "'re", "'m", "get", "gets", "got",
    "gotten", "getting",
))
_PREPOSITIONS = frozenset((
    "about", "above", "across", "after", "against", "along", "among", "around", "as", "at", "before", "behind", "below",
    "beneath", "beside", "between", "beyond", "by", "despite", "down", "during", "except", "for", "from", "in",
    "inside", "into", "like", "near", "of", "off", "on", "onto", "out", "outside", "over", "past", "since", "through",
    "throughout", "to", "toward", "towards", "under", "until", "up", "upon", "via", "with", "within", "without",
))
# fmt: on
_NOUNS = frozenset(("NN", "NNS", "NP", "NPS", "NNP", "NNPS", "NOUN", "PROPN"))
_PRONOUNS = frozenset(("PP", "PRP", "EX", "WP", "PP$", "PRP$", "WP$", "PRON"))
_PARTICIPLES = frozenset(("VBN", "VVN", "VHN", "VDN", "VBD", "VVD"))  # taggers often confuse VBN with VBD


class TaggedWords:
    """The words of a sentence with their part-of-speech tags."""

    def __init__(self, words: Sequence[str], tags: Sequence[str] | None = None) -> None:
        self.words = list(words)
        self.tags = [tag.upper() for tag in tags] if tags else [""] * len(self.words)

    def is_verb(self, index: int) -> bool:
        """Return whether a word is tagged as a verb."""
        return self.tags[index].startswith("V")

    def is_noun(self, index: int) -> bool:
        """Return whether a word is tagged as a noun."""
        return self.tags[index] in _NOUNS

    def is_preposition(self, index: int) -> bool:
        """Return whether a word is a preposition, by its tag or, without a tag, by itself."""
        tag = self.tags[index]
        return tag in ("IN", "TO", "ADP", "RP") or (tag in ("", "RB") and self.words[index].lower() in _PREPOSITIONS)

    def is_passive(self, index: int) -> bool:
        """Return whether a word is a past participle after a form of `be` or `get`, possibly with adverbs between."""
        word, tag = self.words[index].lower(), self.tags[index]
        if tag not in _PARTICIPLES and not (tag == "" and word.endswith(("ed", "en"))):
            return False
        for before in range(index - 1, max(index - 5, -1), -1):
            if self.words[before].lower() in _BE:
                return True
            if not self.tags[before].startswith("RB") and self.words[before].lower() not in ("not", "n't", "never"):
                return False
        return False

    def head(self, span: Sequence[int]) -> int | None:
        """Return the index of a noun phrase's head, with or without a preposition before the phrase.

        It is the last noun before a modifying clause or phrase; without nouns a pronoun, and without pronouns the last
        word that has a letter or a digit.
        """
        inside = list(span)
        while inside and self.is_preposition(inside[0]) and len(inside) > 1:
            inside.pop(0)
        noun = pronoun = word = None
        for index in inside:
            tag = self.tags[index]
            if self._ends_phrase(index) and (noun is not None or pronoun is not None or (not tag and word is not None)):
                break
            if self.is_noun(index):
                noun = index
            elif tag in _PRONOUNS and pronoun is None:
                pronoun = index
            if any(letter.isalnum() for letter in self.words[index]):
                word = index
        return noun if noun is not None else pronoun if pronoun is not None else word

    def _ends_phrase(self, index: int) -> bool:
        tag, word = self.tags[index], self.words[index]
        return (
            self.is_preposition(index)
            or tag.startswith(("V", "W", "MD"))
            or tag in ("CC", "CCONJ", ",", ":", "-LRB-", "(", "SENT", ".")
            or word in (",", ";", ":", "(", "--", "that", "who", "which")
        )
