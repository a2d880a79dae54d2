"""The scikit-learn estimator: tables in, labels out, in grids and pipelines."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import revup
from revup.data.events import Document
from revup.errors import InputError, RevupError

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from revup.integrations.sklearn import FrameClassifier

Rows = list[dict[str, Any]]
QUICK: dict[str, Any] = {
    "network": {"embedding": 8, "hidden": 8, "latent": 8, "frame": 8},
    "training": {"epochs": 2, "batch_size": 50, "settle": 0.0},
}


def table(documents: list[Document]) -> tuple[Rows, list[str]]:
    rows = [
        {"document": d.id, "pred": e.pred, "subj": e.subj, "obj": e.obj, "mod": e.mod}
        for d in documents
        for e in d.events
    ]
    return rows, [str(e.frame) for d in documents for e in d.events]


@pytest.fixture(scope="module")
def data(tiny_documents: list[Document]) -> tuple[Rows, list[str]]:
    return table(tiny_documents)


@pytest.fixture(scope="module")
def fitted(data: tuple[Rows, list[str]]) -> FrameClassifier:
    return FrameClassifier("lookup").fit(*data)


def test_predicts_frames_better_than_the_most_frequent(data: tuple[Rows, list[str]]) -> None:
    rows, frames = data
    kept = [frame if place % 3 else -1 for place, frame in enumerate(frames)]
    estimator = FrameClassifier(**QUICK, random_state=3).fit(rows, kept)
    assert list(estimator.classes_) == sorted(set(frames))
    hidden = [place for place in range(len(rows)) if place % 3 == 0]
    right = np.mean(estimator.predict(rows)[hidden] == np.array(frames)[hidden])
    assert right > 1.5 * max(frames.count(frame) for frame in set(frames)) / len(frames)
    found = estimator.predict_proba(rows)
    assert found.shape == (len(rows), len(estimator.classes_))
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
    assert estimator.n_iter_ > 0


def test_equals_revup_itself(data: tuple[Rows, list[str]], tiny_documents: list[Document]) -> None:
    rows, frames = data
    estimator = FrameClassifier(**QUICK, random_state=1).fit(rows, frames)
    corpus = revup.Corpus.build(tiny_documents, events=5, window="all", duplicates="keep", split=(0.9, 0.1, 0.0))
    model = revup.train(corpus, seed=1, device="cpu", **QUICK)
    assert model.frames == list(estimator.classes_)
    np.testing.assert_array_equal(estimator.predict_proba(rows), np.concatenate(model.probabilities(tiny_documents)))
    np.testing.assert_array_equal(estimator.transform(rows), model.embeddings(tiny_documents)[1])
    names = estimator.get_feature_names_out()
    assert len(names) == estimator.transform(rows).shape[1]


def test_rows_keep_their_order_when_documents_are_mixed(data: tuple[Rows, list[str]]) -> None:
    rows, frames = data
    estimator = FrameClassifier(**QUICK).fit(rows, frames)
    documents = sorted({row["document"] for row in rows})
    # round-robin over documents keeps the order within each
    mixed = sorted(range(len(rows)), key=lambda i: sum(rows[j]["document"] == rows[i]["document"] for j in range(i)))
    assert mixed != sorted(mixed)
    assert len(documents) > 100
    found, shuffled = estimator.predict_proba(rows), estimator.predict_proba([rows[i] for i in mixed])
    np.testing.assert_allclose(shuffled, found[mixed], atol=1e-6)
    vectors = estimator.transform([rows[i] for i in mixed])
    np.testing.assert_allclose(vectors, estimator.transform(rows)[mixed], atol=1e-5)


def test_every_kind_of_table_gives_the_same(data: tuple[Rows, list[str]], fitted: FrameClassifier) -> None:
    rows, _ = data
    expected = fitted.predict(rows)
    pandas, pyarrow, polars = (pytest.importorskip(name) for name in ("pandas", "pyarrow", "polars"))
    array = np.array([[row[name] for name in ("pred", "subj", "obj", "mod", "document")] for row in rows], object)
    for X in (pandas.DataFrame(rows), pyarrow.Table.from_pylist(rows), polars.DataFrame(rows), array):
        np.testing.assert_array_equal(fitted.predict(X), expected)


def test_unlabelled_is_minus_one_none_or_nan(data: tuple[Rows, list[str]]) -> None:
    rows, frames = data
    found = []
    for empty in (-1, None, float("nan"), "-1"):
        y = [frame if place % 2 else empty for place, frame in enumerate(frames)]
        estimator = FrameClassifier("lookup").fit(rows, np.array(y, dtype=object))
        assert -1 not in estimator.classes_
        found.append(estimator.predict_proba(rows))
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def test_numbers_are_labels_too(data: tuple[Rows, list[str]]) -> None:
    rows, frames = data
    names = sorted(set(frames))
    y = np.array([names.index(frame) if place % 4 else -1 for place, frame in enumerate(frames)])
    estimator = FrameClassifier("lookup").fit(rows, y)
    assert estimator.classes_.tolist() == list(range(len(names)))
    assert estimator.predict(rows).dtype == y.dtype
    labelled = y != -1
    assert estimator.score(rows, y) == np.mean(estimator.predict(rows)[labelled] == y[labelled])


def test_without_documents_every_row_is_one(fitted: FrameClassifier) -> None:
    rows = [{"pred": "charged"}, {"pred": "said"}, {"pred": "charged"}]
    found = fitted.predict_proba(rows)
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([{"verb": "say"}], ["A"], "expected a table with a column 'pred', found verb"),
        ([{"pred": "say"}], ["A", "B"], "y: expected 1 labels"),
        ([{"pred": "say"}], None, "y: expected a label for each row"),
        ([], [], "expected a table"),
        ("text", ["A"], "expected a table of events or a list of dicts, found str"),
        ([{"pred": "say", "confidence": -1.0}], ["A"], "X: line 1: events\\[0\\].confidence"),
        (np.zeros((2, 7)), ["A", "B"], "at most the columns"),
        (np.zeros((2, 3)), ["A", "B"], "X: pred: row 0: expected the predicate as text, found the number 0"),
        (
            [{"pred": "say"}, {"subj": "he"}],
            ["A", "B"],
            "X: pred: row 1: expected the predicate as text, found nothing",
        ),
        ([{"pred": "say"}] * 2, np.zeros((2, 3)), "y: row 0: expected one label, found 3"),
        ([{"pred": "say"}] * 2, [1.0, 0.5], "y: row 1: expected a label, as text or a whole number, found 0.5"),
        ([{"pred": "say"}] * 3, [1, None, "A"], "y: expected labels as text or as numbers, found both"),
    ],
)
def test_wrong_tables_are_one_line(X: Any, y: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FrameClassifier("lookup").fit(X, y)


def test_what_cannot_predict_says_so(data: tuple[Rows, list[str]]) -> None:
    rows = data[0][:20]
    unlabelled = FrameClassifier(**QUICK).fit(rows, [-1] * len(rows))
    with pytest.raises(RevupError, match="no event had a label"):
        unlabelled.predict(rows)
    assert len(unlabelled.transform(rows)) == len(rows)
    with pytest.raises(RevupError, match="rnnlm does not predict frames"):
        FrameClassifier("rnnlm", **QUICK).fit(rows, ["A"] * len(rows)).predict(rows)


def test_dictionary_alone_labels_and_adds_its_frames_to_the_classes(
    data: tuple[Rows, list[str]], tmp_path: Path
) -> None:
    rows, frames = data
    path = tmp_path / "frames.csv"
    pairs = sorted({(row["pred"], frame) for row, frame in zip(rows, frames, strict=True)})
    path.write_text("\n".join(["predicate,frame", *(f"{pred},{frame}" for pred, frame in pairs)]) + "\n", "utf-8")
    chance = max(frames.count(frame) for frame in set(frames)) / len(frames)
    unlabelled = FrameClassifier("counts", lexicon=path).fit(rows, [-1] * len(rows))
    assert unlabelled.classes_.tolist() == sorted(set(frames))
    assert unlabelled.score(rows, frames) > 2 * chance
    assert clone(unlabelled).lexicon == path

    some = [frame if frame == frames[0] else -1 for frame in frames]
    assert FrameClassifier("counts", lexicon=path).fit(rows, some).classes_.tolist() == sorted(set(frames))
    with pytest.raises(InputError, match="y: expected labels as text, as the frames of a lexicon are"):
        FrameClassifier("counts", lexicon=path).fit(rows, [1] * len(rows))


# ---- scikit-learn's conventions ----------------------------------------------------------------------------------


def test_clone_keeps_parameters_and_no_state(fitted: FrameClassifier) -> None:
    estimator = FrameClassifier("tagger", training={"epochs": 3}, random_state=5)
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert not hasattr(clone(fitted), "model_")


def test_single_settings_are_parameters() -> None:
    estimator = FrameClassifier(training={"epochs": 3})
    estimator.set_params(training__learning_rate=0.01, objective__strength=2.0, model="revup")
    assert estimator.training == {"epochs": 3, "learning_rate": 0.01}
    assert estimator.get_params()["objective__strength"] == 2.0
    assert clone(estimator).get_params() == estimator.get_params()
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        estimator.set_params(nonsense=1)


def test_grid_search_over_documents(data: tuple[Rows, list[str]]) -> None:
    pandas = pytest.importorskip("pandas")
    rows, frames = data
    X = pandas.DataFrame(rows)
    grid = GridSearchCV(FrameClassifier("lookup"), {"objective__smoothing": [0.01, 1000.0]}, cv=GroupKFold(3))
    grid.fit(X, np.array(frames), groups=X["document"])
    assert grid.best_params_ == {"objective__smoothing": 0.01}
    assert grid.best_estimator_.objective == {"smoothing": 0.01}
    assert grid.predict(X[:7]).shape == (7,)


def test_cross_validated_predictions(data: tuple[Rows, list[str]]) -> None:
    rows, frames = data
    groups = [row["document"] for row in rows]
    found = cross_val_predict(
        FrameClassifier("lookup"), rows, np.array(frames), cv=GroupKFold(4), groups=groups, method="predict_proba"
    )
    assert found.shape == (len(rows), len(set(frames)))


def test_pipelines_before_and_after(data: tuple[Rows, list[str]]) -> None:
    pandas = pytest.importorskip("pandas")
    rows, frames = data
    X = pandas.DataFrame(rows).rename(columns={"pred": "verb"})
    renamed = FunctionTransformer(lambda X: X.rename(columns={"verb": "pred"}))
    first = Pipeline([("rename", renamed), ("frames", FrameClassifier("lookup"))]).fit(X, frames)
    assert first.score(X, frames) > 0.3
    second = Pipeline(
        [("rename", renamed), ("frames", FrameClassifier(**QUICK)), ("classify", LogisticRegression(max_iter=200))]
    )
    assert second.fit(X, frames).predict(X).shape == (len(rows),)
    second.set_params(frames__model="lookup", frames__training__epochs=1)
    assert second.named_steps["frames"].training["epochs"] == 1


WITHOUT_DATA = [
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
]
"""scikit-learn's checks that pass no X; the others pass tables of numbers, which are no events."""


@pytest.mark.parametrize("name", WITHOUT_DATA)
def test_scikit_learns_checks_without_data(name: str) -> None:
    getattr(estimator_checks, name)("FrameClassifier", FrameClassifier())


def test_check_estimator_knows_that_input_is_no_array_of_numbers() -> None:
    with pytest.warns(Warning, match="Can't test estimator FrameClassifier"):
        assert not [each for each in estimator_checks.check_estimator(FrameClassifier()) if each["status"] == "failed"]


def test_unfitted_is_an_error(data: tuple[Rows, list[str]]) -> None:
    for method in ("predict", "predict_proba", "transform"):
        with pytest.raises(NotFittedError):
            getattr(FrameClassifier(), method)(data[0])


def test_fit_is_idempotent_and_leaves_parameters_and_data_alone(data: tuple[Rows, list[str]]) -> None:
    rows, frames = data
    copies = [dict(row) for row in rows], list(frames)
    estimator = FrameClassifier(**QUICK)
    before = estimator.get_params()
    assert estimator.fit(rows, frames) is estimator
    first = estimator.predict_proba(rows)
    np.testing.assert_array_equal(estimator.fit(rows, frames).predict_proba(rows), first)
    assert estimator.get_params() == before
    assert (rows, frames) == copies


def test_a_fitted_estimator_can_cross_processes(data: tuple[Rows, list[str]], fitted: FrameClassifier) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(data[0]), fitted.predict_proba(data[0]))
