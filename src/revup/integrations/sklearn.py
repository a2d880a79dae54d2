"""A scikit-learn estimator for tables of events, so that pipelines, grids and cross-validation work.

A row is an event, and the column `document` says which rows are one sequence. The rows of a document belong together:
split them with `GroupKFold(groups=X["document"])` or the like, never row by row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.corpus import Corpus
from revup.data.events import SLOTS, Document, Event, document_from_json
from revup.data.lexicon import Lexicon
from revup.errors import InputError, RevupError, missing_extra
from revup.inference.trained import Trained
from revup.settings import SECTIONS
from revup.training.run import train

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise missing_extra("learn", "the scikit-learn estimator") from None

COLUMNS = (*SLOTS, "lemma", "text", "confidence")  # of X that are read, beside `document`
POSITIONS = (*SLOTS, "document")  # of an array without names of columns
UNLABELLED = -1


class FrameClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Frames of events, learned from a table in which some or all events have a label.

    X is a table with a row per event: a pandas, polars or Arrow table, a list of dicts, or a two-dimensional array with
    the columns pred, subj, obj, mod, document in this order. `pred` is required. Rows with the same `document` are one
    sequence, in the order of the rows; without this column every row is a document. Other columns are ignored.

    y holds a label for each row, names or numbers. −1, None and NaN mean that the event is unlabelled, as in
    scikit-learn's semi-supervised estimators; such events are trained on too.

    Args:
        model: The name of a model, as for `revup.train`; haqae and rnnlm only `transform`.
        preset: The settings to start from: default, paper or released.
        network: Settings of the network that differ from the preset, by name.
        objective: Settings of the model's loss that differ from the preset, by name.
        training: Settings of training that differ from the preset, by name.
        events: Maximum number of events in a window; longer documents are cut into several.
        lexicon: A dictionary of the frames that predicates may have, or its path. It is used in training and at
            prediction, and its frames are classes too, so labels have to be text.
        vectors: A file of pretrained word vectors.
        validation_fraction: Share of the documents kept for early stopping.
        random_state: Seed of all randomness, or a RandomState to draw one from.
        device: cpu or cuda; None: cuda where there is one.

    Single settings are parameters too, as `training__learning_rate`, so that a grid can vary them.

    Attributes:
        classes_: The labels of y, and the frames of the lexicon for predicates that occur, sorted.
        model_: The trained model, with all that revup does with one: `estimator.model_.save_pretrained("dir")`.
        n_iter_: Optimiser steps taken.
    """

    def __init__(
        self,
        model: str = "revup",
        *,
        preset: str = "default",
        network: Mapping[str, Any] | None = None,
        objective: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        events: int = 5,
        lexicon: str | Path | Lexicon | None = None,
        vectors: str | Path | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = 0,
        device: str | None = "cpu",
    ) -> None:
        self.model = model
        self.preset = preset
        self.network = network
        self.objective = objective
        self.training = training
        self.events = events
        self.lexicon = lexicon
        self.vectors = vectors
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device

    # ---- parameters ----------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; `deep` adds every given setting as `section__name`."""
        found: dict[str, Any] = super().get_params(deep=False)
        if deep:
            found |= {
                f"{section}__{name}": value
                for section in SECTIONS
                if isinstance(getattr(self, section), Mapping)
                for name, value in getattr(self, section).items()
            }
        return found

    def set_params(self, **params: Any) -> FrameClassifier:
        """Set parameters; `training__learning_rate=0.001` sets one setting and keeps the others of its section."""
        nested = {key: value for key, value in params.items() if key.partition("__")[0] in SECTIONS and "__" in key}
        super().set_params(**{key: value for key, value in params.items() if key not in nested})
        for key, value in nested.items():
            section, _, name = key.partition("__")
            setattr(self, section, {**(getattr(self, section) or {}), name: value})
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # of numbers; rows depend on each other
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags

    # ---- fit and predict -----------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> FrameClassifier:
        """Train a model on a table of events.

        Args:
            X: The events.
            y: Their labels; −1, None or NaN where an event has none.

        Returns:
            The estimator itself.

        Raises:
            InputError: X is no table of events, or y does not hold one label for each row.
        """
        table = _Table.of(X)
        labels = _labels(y, len(table))
        there = [label for label in labels if label is not None]
        if self.lexicon is not None and there and not isinstance(there[0], str):
            raise InputError("expected labels as text, as the frames of a lexicon are, found numbers", field="y")
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            seed = check_random_state(seed).randint(2**31 - 1)
        corpus = Corpus.build(
            table.documents(labels),
            events=self.events,
            window="all",
            duplicates="keep",
            split=(1 - self.validation_fraction, self.validation_fraction, 0.0),
            lexicon=self.lexicon,
            vectors=self.vectors,
        )
        self.model_: Trained = train(
            corpus,
            self.model,
            seed=int(seed),
            preset=self.preset,
            network=self.network,
            objective=self.objective,
            training=self.training,
            device=self.device,
        )
        self.model_.data.pop("path", None)  # of a temporary directory
        if self.lexicon is not None:
            there += self.model_.frames
        self.classes_ = np.unique(np.asarray(there)) if there else np.empty(0, dtype=object)
        self.n_iter_ = self.model_.state.steps
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The distribution over `classes_` of every event.

        Args:
            X: The events.

        Returns:
            [rows, classes], in the order of the rows; 0 for a class that occurred in validation documents only.

        Raises:
            RevupError: The model does not predict frames, or was fitted without any label.
        """
        check_is_fitted(self)
        if not self.model_.module.predicts_frames:
            raise RevupError(f"the model {self.model} does not predict frames; it only transforms")
        if not len(self.classes_):
            raise RevupError("no event had a label when this was fitted, and there was no lexicon; it only transforms")
        table = _Table.of(X)
        found = np.concatenate(self.model_.probabilities(table.documents()))
        place = {name: column for column, name in enumerate(self.model_.frames)}
        out = np.zeros((len(table), len(self.classes_)), np.float32)
        for column, label in enumerate(self.classes_):
            if str(label) in place:
                out[table.order, column] = found[:, place[str(label)]]
        return out

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of every event, in the order of the rows.

        Args:
            X: The events.
        """
        found = self.predict_proba(X)
        chosen: NDArray[Any] = self.classes_[found.argmax(1)]
        return chosen

    def transform(self, X: Any) -> NDArray[np.float32]:
        """A vector for every event, in the order of the rows.

        Args:
            X: The events.
        """
        check_is_fitted(self)
        table = _Table.of(X)
        vectors = self.model_.embeddings(table.documents())[1]
        out = np.empty_like(vectors)
        out[table.order] = vectors
        return out

    @property
    def _n_features_out(self) -> int:
        """The size of an event's vector, which scikit-learn names the columns of `transform` by."""
        return int(self.model_.embed([Document("", [Event("be")])]).shape[1])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy on the labelled rows; unlabelled ones are left out.

        Args:
            X: The events.
            y: Their labels; −1, None or NaN where an event has none.
            sample_weight: Weights of the rows.
        """
        predicted = self.predict(X)
        labels = _labels(y, len(predicted))
        known = np.array([label is not None for label in labels])
        right = np.array([label == guess for label, guess in zip(labels, predicted, strict=True)], float)
        weights = (np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, float)) * known
        return float(np.average(right, weights=weights)) if weights.sum() else math.nan


@dataclass(frozen=True)
class _Table:
    """Rows of a table by document."""

    rows: list[dict[str, Any]]
    groups: list[list[int]]  # rows of each document
    ids: list[str]

    @classmethod
    def of(cls, X: Any) -> _Table:
        columns = _columns(X)
        if "pred" not in columns:
            raise InputError(f"expected a table with a column 'pred', found {', '.join(columns) or 'no column'}")
        count = len(columns["pred"])
        if not count:
            raise InputError("expected a table of events, found no row")
        for row, pred in enumerate(columns["pred"]):
            if _missing(pred) or isinstance(pred, float):
                found = "nothing" if _missing(pred) else f"the number {pred:g}"
                raise InputError(f"row {row}: expected the predicate as text, found {found}", "X", field="pred")
        names = [name for name in COLUMNS if name in columns]
        rows = [
            {name: _text(columns[name][row], name) for name in names if not _missing(columns[name][row])}
            for row in range(count)
        ]
        owner = columns.get("document", [None] * count)
        groups: dict[Any, list[int]] = {}
        for row, name in enumerate(owner):
            groups.setdefault(("row", row) if _missing(name) else str(name), []).append(row)
        ids = [f"row {key[1]}" if isinstance(key, tuple) else key for key in groups]
        return cls(rows, list(groups.values()), ids)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def order(self) -> NDArray[np.int64]:
        """The row of each event, in the order of the documents."""
        return np.array([row for group in self.groups for row in group])

    def documents(self, labels: Sequence[Any] | None = None) -> list[Document]:
        """The documents, with labels as observed frames where there are some."""
        found = []
        for name, group in zip(self.ids, self.groups, strict=True):
            events = [dict(self.rows[row]) for row in group]
            for event, row in zip(events, group, strict=True):
                if labels is not None and labels[row] is not None:
                    event["frame"] = str(labels[row])
            found.append(document_from_json({"id": name, "events": events}, path="X", line=group[0] + 1))
        return found


def _columns(X: Any) -> dict[str, list[Any]]:
    """The columns of any kind of table as lists."""
    names = getattr(X, "column_names", None)  # Arrow
    if names is None:
        names = getattr(X, "columns", None)  # pandas, polars
    if names is not None and hasattr(X, "__getitem__"):
        return {str(name): _as_list(X[name]) for name in names}
    if isinstance(X, np.ndarray) and X.ndim == 2:
        if X.shape[1] > len(POSITIONS):
            raise InputError(f"an array has at most the columns {', '.join(POSITIONS)}, found {X.shape[1]} columns")
        return {name: X[:, place].tolist() for place, name in zip(range(X.shape[1]), POSITIONS, strict=False)}
    rows = list(X) if isinstance(X, Iterable) and not isinstance(X, (str, Mapping)) else None
    if rows is None or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"expected a table of events or a list of dicts, found {type(X).__name__}")
    keys = dict.fromkeys(str(key) for row in rows for key in row)
    return {key: [row.get(key) for row in rows] for key in keys}


def _as_list(column: Any) -> list[Any]:
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def _text(value: Any, name: str) -> Any:
    """Slots may hold numbers (a year); confidence is a number."""
    return float(value) if name == "confidence" else str(value)


def _missing(value: Any) -> bool:
    """Whether a cell is empty: None, NaN, pandas' NA and NaT."""
    return value is None or bool((value != value) is True) or type(value).__name__ in ("NAType", "NaTType")


def _labels(y: Any, count: int) -> list[Any]:
    """The labels of rows; None where there is none."""
    if y is None:
        raise InputError("expected a label for each row, or -1, found None", field="y")
    found = _as_list(y)
    if len(found) != count:
        raise InputError(f"expected {count} labels, one for each row, found {len(found)}", field="y")
    labels: list[Any] = []
    for row, label in enumerate(found):
        if isinstance(label, Sequence) and not isinstance(label, str):
            raise InputError(f"row {row}: expected one label, found {len(label)}", field="y")
        if isinstance(label, float) and math.isfinite(label) and not label.is_integer():
            raise InputError(f"row {row}: expected a label, as text or a whole number, found {label:g}", field="y")
        labels.append(None if _missing(label) or label in (UNLABELLED, str(UNLABELLED)) else label)
    if len({isinstance(label, str) for label in labels if label is not None}) == 2:
        raise InputError("expected labels as text or as numbers, found both", field="y")
    return labels
