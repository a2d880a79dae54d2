"""Head words and passives in tagged spans."""

from __future__ import annotations

import pytest

from revup.data.readers.spans import TaggedWords


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("the/DT old/JJ man/NN of/IN the/DT sea/NN", "man"),
        ("to/TO the/DT people/NNS who/WP want/VVP jobs/NNS", "people"),
        ("the/DT company/NN 's/POS chief/JJ officer/NN ,/, a/DT lawyer/NN", "officer"),
        ("he/PRP", "he"),
        ("five/CD or/CC six/CD", "six"),
        ("the/ old/ man/ of/ the/ sea/", "man"),
        ("by/IN", "by"),
        (",/,", None),
    ],
)
def test_head_of_span(text: str, head: str | None) -> None:
    pairs = [word.rsplit("/", 1) for word in text.split()]
    words = TaggedWords([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    index = words.head(range(len(pairs)))
    assert (None if index is None else words.words[index]) == head


@pytest.mark.parametrize(
    ("text", "passive"),
    [
        ("was/VBD never/RB convicted/VBN", True),
        ("got/VVD fired/VVN", True),
        ("has/VBZ convicted/VBN", False),
        ("was/VBD convicting/VBG", False),
        ("convicted/VBN", False),
        ("was/ not/ convicted/", True),
    ],
)
def test_passive_participles(text: str, passive: bool) -> None:
    pairs = [word.rsplit("/", 1) for word in text.split()]
    words = TaggedWords([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    assert words.is_passive(len(pairs) - 1) is passive
