"""Learning curves: strategies against exact answers, the pool against training itself, tables from raw runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from revup.data.corpus import Corpus
from revup.errors import RevupError
from revup.experiments import experiment, labelling
from revup.experiments.labelling_tables import needed
from revup.experiments.pool import Pool
from revup.experiments.runs import read_lines
from revup.experiments.strategies import State, badge, choose
from revup.world import World


@pytest.fixture(scope="module")
def pool(tiny_path: Path) -> Pool:
    return Pool(Corpus.load(tiny_path))


def state_of(p: Any, label: Any, trusted: Any = None) -> State:
    none = np.full(len(p), -1, np.int64)
    x = np.random.default_rng(3).standard_normal((len(p), 4))
    return State(np.array(p), np.array(label), none if trusted is None else np.array(trusted), x, lambda n, check: none)


def test_pool_with_all_labels_is_the_trained_model(pool: Pool, tiny_path: Path) -> None:
    corpus = Corpus.load(tiny_path)
    exact = revup.evaluate(revup.train(corpus, "counts"), corpus)["accuracy"]
    assert pool.fit(pool.truth).accuracy() == pytest.approx(exact)


def test_pool_of_words_beyond_the_vocabulary_has_their_vectors(tmp_path: Path) -> None:
    """Words of training that a small vocabulary lacks are read by their vectors, behind those of the vocabulary."""
    documents = World(frames=6, seed=1).sample(60)
    words = sorted({word for d in documents for e in d.events for word in (e.pred, e.subj, e.obj, e.mod) if word})
    numbers = np.random.default_rng(0).standard_normal((len(words), 5))
    lines = [" ".join([word.replace(" ", "-"), *map(str, row)]) for word, row in zip(words, numbers, strict=True)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n")
    vectors, parts = tmp_path / "vectors.txt", (0.6, 0.2, 0.2)
    small = Corpus.build(documents, out=tmp_path / "small", split=parts, vectors=vectors, vocabulary=8)
    assert int(small.split("train").arrays["read"].max()) >= len(small.vocabulary) + len(small.vocabulary.beyond)
    found = Pool(small).x
    assert np.isfinite(found).all()
    assert np.ptp(found, axis=0).max() > 0


def test_uncertain_events_come_first() -> None:
    p = [[0.9, 0.1, 0.0], [0.5, 0.5, 0.0], [0.4, 0.3, 0.3], [1 / 3, 1 / 3, 1 / 3]]
    state = state_of(p, [-1, -1, -1, 0])  # the last one has a label
    draw = np.random.default_rng(0)
    assert choose("margin", state, 2, draw).tolist() == [1, 2]
    assert choose("entropy", state, 2, draw).tolist() == [2, 1]
    assert sorted(choose("random", state, 9, draw).tolist()) == [0, 1, 2]


def test_badge_is_k_means_on_the_gradients_themselves() -> None:
    draw = np.random.default_rng(1)
    p, x = draw.dirichlet(np.ones(5), 40), draw.standard_normal((40, 3))
    error = p - np.eye(5)[p.argmax(1)]
    gradient = (error[:, :, None] * x[:, None, :]).reshape(40, -1)
    chosen, again = [int((gradient**2).sum(1).argmax())], np.random.RandomState(7)
    for _ in range(9):
        away = ((gradient[:, None] - gradient[None, chosen]) ** 2).sum(-1).min(1)
        chosen.append(int(again.choice(40, 1, replace=False, p=away / away.sum())[0]))
    assert badge(p, x, 10, np.random.RandomState(7)).tolist() == chosen


def test_typiclust_takes_one_event_of_each_cluster() -> None:
    pytest.importorskip("skactiveml")
    state = state_of(np.full((40, 2), 0.5), np.where(np.arange(40) == 0, 1, -1))
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0], [50.0, 50.0]])
    x = np.repeat(centres, 10, 0) + np.random.default_rng(0).standard_normal((40, 2))
    found = choose(
        "typiclust", State(state.p, state.label, state.trusted, x, state.suggested), 3, np.random.default_rng(2)
    )
    assert len(set(found.tolist())) == 3
    assert 0 not in found


def test_activelab_asks_again_about_contradicted_labels() -> None:
    pytest.importorskip("cleanlab")
    p = np.full((30, 3), 0.05)
    p[np.arange(30), np.arange(30) % 3] = 0.9
    label = np.arange(30) % 3
    label[4] = 2  # predicted: 1
    label[20:] = -1
    trusted = np.where(np.arange(30) == 5, 2, -1)
    found = choose("activelab", state_of(p, label, trusted), 29, np.random.default_rng(0)).tolist()
    assert found.index(4) < found.index(3)  # before a label that is confirmed
    assert 5 not in found  # nobody is asked twice
    assert len(found) == 29


def test_needed_labels_are_interpolated() -> None:
    points = [{"labels": n, "accuracy": a} for n, a in ((10, 0.5), (20, 0.7), (40, 0.9), (100, 1.0))]
    assert needed({"points": points}, 0.8) == pytest.approx(30.0)
    assert needed({"points": points}, 0.4) == 10.0


def test_tables_and_figures_are_made_from_raw_runs(
    tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labelling, "LABEL", ("suggest", "random"))
    monkeypatch.setattr(labelling, "CHECK", ("suggest-checks",))
    monkeypatch.setattr(labelling, "FEW_ASKED", (0.0, 0.4))  # with less, new labels are worth more than checks here
    found = experiment("labelling", tiny_path, tmp_path / "out", seeds=1, few=True)
    assert (found["complete"], found["runs"], found["written"]) == (True, 3, ["labelling"])
    lines = [line for line in read_lines(tmp_path / "out" / "runs.jsonl.gz")[0] if "labelling" in line]
    curves = {line["labelling"]["strategy"]: line["points"] for line in lines if line["labelling"]["task"] == "label"}
    assert len({points[0]["accuracy"] for points in curves.values()}) == 1  # the same labels at the beginning
    assert len({points[-1]["accuracy"] for points in curves.values()}) == 1  # and all of them at the end
    assert all(line["fingerprint"] == Corpus.load(tiny_path).fingerprint for line in lines)
    checks = next(line["points"] for line in lines if line["labelling"]["strategy"] == "suggest-checks")
    assert checks[-1]["wrong"] < checks[0]["wrong"]
    again = experiment("labelling", None, tmp_path / "again", from_runs=tmp_path / "out" / "runs.jsonl.gz")
    assert again["runs"] == 3
    assert (tmp_path / "again" / "labelling.md").read_bytes() == (tmp_path / "out" / "labelling.md").read_bytes()
    assert (tmp_path / "out" / "labelling-label.svg").exists()


def test_missing_library_is_named(tmp_path: Path, tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("revup.experiments.strategies.find_spec", lambda name: None)
    with pytest.raises(RevupError, match="typiclust needs scikit-activeml"):
        experiment("labelling", tiny_path, tmp_path / "out", seeds=1)
