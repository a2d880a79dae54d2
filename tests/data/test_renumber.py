"""Arrays in another vocabulary and frame list."""

from __future__ import annotations

import numpy as np

from revup.data.corpus import Corpus, encode_documents
from revup.data.dataset import ARRAYS
from revup.data.encode import NONE, SPECIAL, UNK, UNSEEN
from revup.data.events import Document, Event
from revup.data.renumber import renumber
from revup.data.vocabulary import Vocabulary
from samples import many


def test_renumbering_equals_encoding_in_the_new_vocabulary() -> None:
    documents = [*many(60), Document("soft", [Event("p0", "s", frames={"F1": 1, "F2": 3}), Event("p1", frame="F3")])]
    corpus = Corpus.build(train=documents, window="all", duplicates="keep")
    split = corpus.split("train")
    few = Vocabulary(corpus.vocabulary.words[:40])
    for vocabulary, frames in ((corpus.vocabulary, corpus.frames), (few, ["F6", "F3", "F2", "F1", "New"])):
        found = renumber(split.arrays, corpus.vocabulary, corpus.frames, vocabulary, frames)
        direct = encode_documents(documents, vocabulary, frames, corpus.events).arrays
        for name in ARRAYS:
            np.testing.assert_array_equal(found[name], direct[name], err_msg=name)


def test_unknown_words_and_frames() -> None:
    corpus = Corpus.build(train=[Document("a", [Event("won", "team", frame="Match"), Event("lost")])], window="all")
    arrays = renumber(
        corpus.split("train").arrays, corpus.vocabulary, corpus.frames, Vocabulary([*SPECIAL, "lost"]), ["Trial"]
    )
    assert arrays["tokens"][0, :2, :2].tolist() == [[UNK, UNK], [len(SPECIAL), 4]]
    assert arrays["reference"][0, :3].tolist() == [UNSEEN, NONE, NONE]
    assert not arrays["knowledge_weights"].any()
