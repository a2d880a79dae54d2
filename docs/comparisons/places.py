"""Rows of the tables that `docs/make_results.py` writes: columns of experiments' tables, with the runs behind them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from revup.experiments.catalogue import Cell
from revup.experiments.runs import read_lines
from revup.experiments.suite import found_by_dataset
from revup.experiments.tabulate import MEASURES, Difference, Found, Samples, cells_with_runs

RESULTS = Path(__file__).parent.parent / "results"
COUNTS, TAGGER, SSDVAE, REVUP = "Counts", "Tagger default", "SSDVAE default", "RevUp default"
LOOKUP, PLAIN = "Lookup lemma", "Tagger plain"
NETWORKS = (TAGGER, SSDVAE, REVUP)
RIVALS = {
    "Tagger gce": "GCE",
    "Tagger elr": "ELR",
    "Tagger bootstrap": "soft bootstrapping",
    "Tagger forward": "forward correction",
    "Tagger confident": "confident learning",
    "Tagger coteaching": "co-teaching",
    "Tagger selftrain": "self-training",
    "Tagger consistency": "consistency",
    "Logistic": "logistic",
    "Propagation default": "propagation",
    "Majority vote + Tagger default": "majority vote + tagger",
    "Dawid–Skene + Tagger default": "Dawid–Skene + tagger",
    "Snorkel + Tagger default": "Snorkel + tagger",
}
NAMES = RIVALS | {  # of rows, where these tables have shorter ones
    COUNTS: "counts",
    TAGGER: "tagger",
    SSDVAE: "SSDVAE",
    REVUP: "RevUp",
    LOOKUP: "lookup (lemma)",
    PLAIN: "tagger plain",
    "Lookup": "lookup",
}
UNIFORM, CONFUSABLE = "uniform errors", "confusable errors"
ANNOTATORS = "simulated annotators with error rates of 10% to 50%"
THREE = "people (10% of the events), a parser (all, 30% wrong), the dictionary"
WITH_DICTIONARY = ("framenet15", "propbank_ewt")
DICTIONARIES = ("no dictionary", "candidates without weights", "weighted dictionary")


@dataclass(frozen=True)
class Place:
    """A column of an experiment's tables on a dataset, which is a row of the tables here.

    Attributes:
        corpus: The dataset and its dictionary, as these tables name it.
        labels: What training is given.
        file: The file of runs.
        data: The dataset.
        experiment, part, column: Where in the experiment's tables.
        measure: What is shown: accuracy, unless labels are distributions.
    """

    corpus: str
    labels: str
    file: str
    data: str
    experiment: str
    part: str = ""
    column: str = "1"
    measure: str = "accuracy"

    @property
    def linked(self) -> list[str]:
        """The first two cells of a row, with a link to the experiment's page."""
        inner = f"{self.data}/" if (RESULTS / self.file / self.data).is_dir() else ""  # of a file of one dataset: none
        return [self.corpus, f"[{self.labels}]({self.file}/{inner}{self.experiment}.md)"]

    @property
    def name(self) -> list[str]:
        """The first two cells of a row."""
        return [self.corpus, self.labels]

    @property
    def shown_column(self) -> str:
        """The column, without a leading zero."""
        return self.column.lstrip("0") or "0"

    @property
    def rows(self) -> list[str]:
        """The rows that have runs here."""
        return [row for part, row, column in self._cells if (part, column) == (self.part, self.column)]

    @property
    def seeds(self) -> int:
        """How many seeds a row should have."""
        return len(found(self.file, self.data).seeds)

    @property
    def has_dictionary(self) -> bool:
        """Whether the dataset was prepared with one."""
        return bool(found(self.file, self.data).dataset["lexicon"])

    def documents(self, row: str, name: str) -> dict[int, NDArray[np.int64]]:
        """The sums of a row over each document, by seed."""
        cell = self._cells.get((self.part, row, self.column))
        sums = found(self.file, self.data).documents(cell) if cell else {}
        return {seed: np.asarray(each[name]) for seed, each in sums.items() if name in each}

    def samples(self, row: str, measure: str = "") -> Samples:
        """A row's scores by seed."""
        cell = self._cells.get((self.part, row, self.column))
        return resampled(self.file, self.data, cell, measure or self.measure) if cell else Samples({}, {})

    def same(self, first: str, second: str) -> bool:
        """Whether two rows have the same sums for every document and seed that both have."""
        names = {"accuracy": ("right", "nll"), "soft_cross_entropy": ("agreement", "cross_entropy")}
        pairs = [
            (a[seed], b[seed])
            for name in names.get(self.measure, (self.measure,))
            for a, b in [(self.documents(first, name), self.documents(second, name))]
            for seed in a.keys() & b.keys()
        ]
        return bool(pairs) and all(np.array_equal(a, b) for a, b in pairs)

    def minus(self, first: str, second: str, measure: str = "", other: Place | None = None) -> Difference:
        """A row minus another, of another place where one is named."""
        return self.samples(first, measure).minus((other or self).samples(second, measure))

    @property
    def _cells(self) -> dict[tuple[str, str, str], Cell]:
        return cells(self.file, self.data, self.experiment)


@cache
def found(file: str, data: str) -> Found:
    """The runs of a file on a dataset."""
    (only,) = [each for each in _read(file) if each.name == data]
    return only


@cache
def _read(file: str) -> list[Found]:
    return found_by_dataset(read_lines(RESULTS / "runs" / f"{file}.jsonl.gz")[0])


@cache
def cells(file: str, data: str, experiment: str) -> dict[tuple[str, str, str], Cell]:
    """The cells of an experiment's tables that have runs, by part, row and column."""
    shown, _ = cells_with_runs(experiment, found(file, data))
    return {(cell.part, cell.row, cell.column): cell for cell in shown}


@cache
def resampled(file: str, data: str, cell: Cell, measure: str) -> Samples:
    """The scores of a cell, by seed."""
    return found(file, data).samples(cell, MEASURES[measure])


# ---- the rows ------------------------------------------------------------------------------------------------------


def _human(data: str, corpus: str, sources: bool) -> list[Place]:
    def place(labels: str, experiment: str, part: str, column: str) -> Place:
        return Place(corpus, labels, "evidence", data, experiment, part, column)

    made = [
        place("a tenth (ε = .1)", "incomplete", "", "0.1"),
        place("all (ε = 1)", "incomplete", "", "1"),
        place("a tenth replaced by any frame", "noise", UNIFORM, "0.1"),
        place("half replaced by any frame", "noise", UNIFORM, "0.5"),
        place("four tenths by a confusable one", "noise", CONFUSABLE, "0.4"),
        place("three annotators, 10, 30, 50% wrong", "sources", ANNOTATORS, "3"),
    ]
    return [*made, *([place("people, parser, dictionary", "sources", THREE, "all three")] if sources else [])]


def _four(corpus: str, file: str, data: str) -> list[Place]:
    return [
        Place(corpus, "a tenth (ε = .1)", file, data, "incomplete", "", "0.1"),
        Place(corpus, "all (ε = 1)", file, data, "incomplete"),
        Place(corpus, "half replaced by any frame", file, data, "noise", UNIFORM, "0.5"),
        Place(corpus, "four tenths by a confusable one", file, data, "noise", CONFUSABLE, "0.4"),
    ]


PLACES = [
    *_human("framenet15", "framenet15 (8), dictionary", True),
    *_human("propbank_ewt", "propbank_ewt (114), VerbNet", True),
    *_human("maven", "maven (66)", False),
    Place(
        "crowdtruth (937), dictionary", "distributions", "evidence", "crowdtruth", "soft", measure="soft_cross_entropy"
    ),
    *_four("wiki (2,503)", "automatic", "wiki"),
    *_four("reuters (703)", "automatic", "reuters"),
    *_four("synthetic world (1,000)", "world", "world"),
    Place("wiki → framenet15 (8)", "all (ε = 1)", "automatic", "wiki", "transfer", "", "framenet15"),
]
CONFUSED = Place(
    "framenet15 (8), no dictionary", "47% confusable errors", "confusable", "framenet15", "noise", CONFUSABLE, "0.6"
)
WORLD = [
    Place("world (1,000)", f"{share.lstrip('0') or '0'} given", "world", "world", "revealed", "", share)
    for share in ("0", "0.2", "0.5", "0.8")
]
TEXT = [
    Place(data, f"ε = {column.lstrip('0') or '0'}", "automatic", data, "perplexity", "", column, "perplexity_hard")
    for data in ("wiki", "reuters")
    for column in ("0", "0.1", "0.7", "1")
]

ABLATED = [
    Place("framenet15, dictionary", "ε = .1", "ablation", "framenet15", "ablation", "", "ε = 0.1"),
    Place("maven", "ε = .1", "ablation", "maven", "ablation", "", "ε = 0.1"),
]


def across(data: str, experiment: str, part: str, *columns: str) -> list[Place]:
    """Some columns of one table of human labels."""
    return [Place(data, column, "evidence", data, experiment, part, column) for column in columns]


def _of_labels(labels: str) -> list[Place]:
    return [place for place in PLACES if place.labels == labels]


def _of_dictionary(part: str, *columns: str) -> list[Place]:
    return [place for data in WITH_DICTIONARY for place in across(data, "dictionary", part, *columns)]


# kinds of knowledge, with the places that show them
KINDS = {
    "few labels (ε = .1)": _of_labels("a tenth (ε = .1)"),
    "all labels (ε = 1)": [place for place in _of_labels("all (ε = 1)") if place.experiment != "transfer"],
    "a tenth of the labels replaced by any frame": _of_labels("a tenth replaced by any frame"),
    "half replaced by any frame": _of_labels("half replaced by any frame"),
    "four tenths replaced by a confusable one": _of_labels("four tenths by a confusable one"),
    "distributions": _of_labels("distributions"),
    "a dictionary's candidates": _of_dictionary(DICTIONARIES[1], "0.1", "1"),
    "a weighted dictionary": _of_dictionary(DICTIONARIES[2], "0.1", "1"),
    "three annotators": _of_labels("three annotators, 10, 30, 50% wrong"),
    "people, parser, dictionary": _of_labels("people, parser, dictionary"),
    "transfer": [place for place in _of_labels("all (ε = 1)") if place.experiment == "transfer"],
}

# corpus, labels, the column of the experiment `dictionary` that has the same labels without one
README = (
    ("framenet15 (8), dictionary", "a tenth (ε = .1)", "0.1"),
    ("framenet15 (8), dictionary", "all (ε = 1)", "1"),
    ("framenet15 (8), dictionary", "people, parser, dictionary", ""),
    ("propbank_ewt (114), VerbNet", "all (ε = 1)", "1"),
    ("propbank_ewt (114), VerbNet", "half replaced by any frame", ""),
    ("maven (66)", "a tenth (ε = .1)", ""),
    ("crowdtruth (937), dictionary", "distributions", ""),
    ("wiki → framenet15 (8)", "all (ε = 1)", ""),
)

# corpus, labels, measure, target of the counts, target of RevUp
TARGETS = (
    ("framenet15 (8), dictionary", "a tenth (ε = .1)", "accuracy", 0.80, 0.82),
    ("framenet15 (8), dictionary", "all (ε = 1)", "accuracy", 0.855, 0.865),
    ("propbank_ewt (114), VerbNet", "a tenth (ε = .1)", "accuracy", 0.86, 0.865),
    ("propbank_ewt (114), VerbNet", "all (ε = 1)", "accuracy", 0.905, 0.915),
    ("crowdtruth (937), dictionary", "distributions", "soft_cross_entropy", 2.64, 2.56),
    ("crowdtruth (937), dictionary", "distributions", "soft_agreement", None, 0.55),
    ("framenet15 (8), no dictionary", "47% confusable errors", "accuracy", 0.61, 0.62),
)
