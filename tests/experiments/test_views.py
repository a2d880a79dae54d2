"""Views: part of a corpus as a dataset of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from revup.data.corpus import Corpus
from revup.data.encode import NONE, UNSEEN
from revup.data.knowledge import Observation
from revup.experiments.views import ambiguous_frames, first_documents, frequent_frames


def _words(corpus: Corpus, split: str, row: int) -> list[list[str]]:
    a = corpus.split(split).arrays
    return [[corpus.vocabulary.words[n] for n in event] for event in a["tokens"][row, : a["lengths"][row]]]


def test_view_holds_the_first_documents(tmp_path: Path, tiny_corpus: Corpus) -> None:
    view = first_documents(tiny_corpus, tmp_path / "view", 40, 10, 30)
    assert {name: len(split) for name, split in view.splits.items()} == {"train": 40, "valid": 10, "test": 10}
    assert view.fingerprint != tiny_corpus.fingerprint
    known = set(view.vocabulary.words)
    assert len(known) == 30 + 5  # and the special tokens
    for split in ("train", "test"):
        assert view.split(split).ids == tiny_corpus.split(split).ids[:10][: len(view.split(split))] or split == "train"
        for row in range(len(view.split(split))):
            whole = _words(tiny_corpus, split, row)
            assert _words(view, split, row) == [[w if w in known else "<unk>" for w in event] for event in whole]
            mine, theirs = (c.split(split).arrays["reference"][row] for c in (view, tiny_corpus))
            for here, there in zip(mine, theirs, strict=True):
                if there >= 0 and tiny_corpus.frames[there] in view.frames:
                    assert view.frames[here] == tiny_corpus.frames[there]
                else:
                    assert here == (NONE if there == NONE else UNSEEN)
    assert "optimum" not in view.meta  # that of the whole test split

    stamp = (tmp_path / "view" / "corpus.json").stat().st_mtime_ns
    again = first_documents(tiny_corpus, tmp_path / "view", 40, 10, 30)
    assert (again.fingerprint, (tmp_path / "view" / "corpus.json").stat().st_mtime_ns) == (view.fingerprint, stamp)
    (tmp_path / "view" / "corpus.json").write_text("{")  # damaged: made anew
    assert first_documents(tiny_corpus, tmp_path / "view", 40, 10, 30).fingerprint == view.fingerprint
    other = first_documents(tiny_corpus, tmp_path / "view", 20, 10, 30)
    assert (len(other.split("train")), other.fingerprint == view.fingerprint) == (20, False)


def test_observed_labels_of_a_view_are_those_of_the_whole(tmp_path: Path, tiny_corpus: Corpus) -> None:
    """Draws follow the events, so a view under the same seed sees the same of them."""
    view = first_documents(tiny_corpus, tmp_path / "view", 40, 10, 1000)
    a, b = (c.split("train").seen(Observation(0.4, 0.0, 5), slice(40)) for c in (view, tiny_corpus))
    assert (a.observed == b.observed).all()


def test_frequent_frames_keep_their_events_only(tmp_path: Path, tiny_corpus: Corpus) -> None:
    view = frequent_frames(tiny_corpus, tmp_path / "view", 25, 3)
    assert len(view.frames) == 3
    assert len(view.split("train")) == 25
    a, whole = view.split("train").arrays, tiny_corpus.split("train").arrays
    keys = {int(whole["keys"][i, m]): (i, m) for i, n in enumerate(whole["lengths"]) for m in range(n)}
    for row in range(25):
        assert a["lengths"][row] >= 2
        for m in range(a["lengths"][row]):
            i, n = keys[int(a["keys"][row, m])]
            assert view.frames[a["reference"][row, m]] == tiny_corpus.frames[whole["reference"][i, n]]
            assert _words(view, "train", row)[m] == _words(tiny_corpus, "train", i)[n]
        assert (a["reference"][row, a["lengths"][row] :] == NONE).all()


def test_frames_that_share_predicates_are_preferred() -> None:
    preds = np.array([[1] * 9, [2] * 9, [3] * 9, [1] * 2 + [4] * 7])
    reference = np.array([[0] * 9, [1] * 9, [2] * 9, [3] * 9])
    assert ambiguous_frames(preds, reference, 5, 2).tolist() == [0, 3]  # 3 shares predicate 1 with 0
