"""benchmarks/audit: scores of other tools are theirs, and folds hide what they should."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from paths import ROOT
from revup.data.knowledge import Observation


@pytest.fixture(autouse=True)
def _program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "audit"))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    world = revup.World(frames=5, seed=3)
    parts: dict[str, Any] = {name: world.sample(60, seed=number) for number, name in enumerate(("train", "test"))}
    revup.Corpus.build(**parts, valid=world.sample(20, seed=4), out=folder / "world")
    return folder


def test_cleanlab_scores_are_those_of_cleanlab() -> None:
    rank = pytest.importorskip("cleanlab.rank")
    draw = np.random.default_rng(1)
    r = draw.dirichlet(np.full(7, 0.2), size=400) + 1e-9
    r /= r.sum(1, keepdims=True)
    label = draw.integers(7, size=400)
    for name, score in import_module("measures").cleanlab_scores(r, label).items():
        quality = rank.get_label_quality_scores(label, r, method=name.removeprefix("cleanlab "))
        np.testing.assert_allclose(-score, quality, rtol=1e-9)


@pytest.mark.parametrize("noise", ["uniform", "confusable"])
def test_folds_have_the_planted_labels_of_the_whole(work: Path, noise: str) -> None:
    users = import_module("users")
    corpus = revup.Corpus.load(work / "world")
    whole = corpus.split("train")
    observation = Observation(1.0, 0.4, 2, noise)
    keep = np.arange(len(whole)) % 3 > 0
    part = users.Fold(corpus, keep).split("train")
    events = np.repeat(keep, np.asarray(whole.arrays["lengths"]))
    np.testing.assert_array_equal(part.told(observation)["frame"].frame, whole.told(observation)["frame"].frame[events])


@pytest.mark.parametrize("classifier", ["tagger", "tagger plain"])
def test_out_of_fold_predictions_do_not_depend_on_labels_of_their_fold(
    work: Path, classifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = import_module("users")
    monkeypatch.setattr(users, "FOLDS", 2)
    corpus = revup.Corpus.load(work / "world")
    split = corpus.split("train")
    there = np.ones(split.arrays["keys"].shape, bool)
    fold = np.arange(len(split)) % 2
    spec = {"noise": "uniform", "rate": 0.0, "seed": 1, "classifier": classifier, "epochs": 1}
    before = users.out_of_fold(corpus, fold, there, spec, "cpu")
    changed = {name: np.array(array) for name, array in split.arrays.items()}
    for name in ("knowledge_frames", "reference"):  # other labels in fold 0
        changed[name][fold == 0] = (changed[name][fold == 0] + 1) % len(corpus.frames)
    original = corpus.split
    split.arrays = changed
    monkeypatch.setattr(corpus, "split", lambda name: split if name == "train" else original(name))
    after = users.out_of_fold(corpus, fold, there, spec, "cpu")
    own = np.repeat(fold, there.sum(1))
    np.testing.assert_array_equal(before[own == 0], after[own == 0])
    assert not np.allclose(before[own == 1], after[own == 1])  # trained on the others


def test_conditions_are_measured_and_tabulated(work: Path) -> None:
    measure, tables = import_module("conditions").measure, import_module("tables").tables
    spec = {"corpus": "world", "noise": "uniform", "rate": 0.2, "seed": 1}
    specs = [{"part": "planted", **spec}]
    specs += [{"part": "users", **spec, "classifier": name, "epochs": 1} for name in ("tagger plain", "linear")]
    text = tables([{"spec": each, **measure(each, work, work, "cpu")} for each in specs])
    assert "## Planted errors: average precision" in text
    assert "| tagger plain | world | uniform | 1 |" in text
