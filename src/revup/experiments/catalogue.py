"""The experiments that train: which systems under which conditions, and what their tables show.

An experiment is a list of cells for each dataset. A cell is a row and a column of a table, with the system and the
condition whose runs it shows; runs are cells × seeds, and tables are made from cells and the lines of finished runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from revup.experiments import paper
from revup.experiments.aggregate import METHODS
from revup.experiments.datasets import REVEALED
from revup.experiments.ingredients import changes
from revup.experiments.runs import Condition, Line, System
from revup.models import model_class
from revup.training.run import PUBLISHED

EPSILONS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
ETAS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
CONFUSABLE = (0.2, 0.4, 0.6)
TEXT_EPSILONS = (0.0, 0.1, 0.7, 1.0)
DICTIONARY_EPSILONS = (0.0, 0.1, 0.5, 1.0)
ANNOTATORS = ("0.1", "0.1,0.3", "0.1,0.3,0.5", "0.1,0.2,0.3,0.5", "0.1,0.2,0.3,0.4,0.5")
ALL_SOURCES = "people+parser+dictionary"
SOURCES = ("people", "parser", "people+parser", ALL_SOURCES)
MOST_EVENTS = 50_000  # in training, for labels that are aggregated beforehand: a matrix of events × frames is held
COMMON = 0.5  # of a test set's events must have a frame that training knows, or transfer is left out

DEFAULT = System("revup")
FRAMES = ("lookup", "counts", "tagger:plain", "tagger", "ssdvae:paper", "ssdvae", "revup:paper", "revup")
STRONG = ("lookup", "counts", "tagger:plain", "tagger", "ssdvae", "revup")
FEW = ("lookup:lemma", "logistic", "propagation", "tagger:selftrain", "tagger:consistency")
NOISY = ("tagger:gce", "tagger:bootstrap", "tagger:elr", "tagger:forward", "tagger:confident", "tagger:coteaching")
TEXT = ("rnnlm:paper", "rnnlm", "haqae:paper", "haqae", "ssdvae:paper", "ssdvae", "revup:paper", "revup")
ORDER = tuple(dict.fromkeys((*FEW[:2], *FRAMES[:2], *FEW[2:], *FRAMES[2:4], *NOISY, *FRAMES[4:], *TEXT)))


@dataclass(frozen=True)
class Cell:
    """A cell of an experiment's tables.

    Attributes:
        part: Which table of the experiment.
        row, column: Where in it.
        system, condition: What is run.
        test: Which scores it shows: "" for the dataset's own test split, "sampled" for the paper's prediction there,
            "transfer/NAME" or "revealed/SHARE".
    """

    part: str
    row: str
    column: str
    system: System
    condition: Condition
    test: str = ""


Cells = Callable[[Line, Sequence[System], bool], list[Cell]]


@dataclass(frozen=True)
class Experiment:
    """An experiment that trains.

    Attributes:
        title: The heading of its section.
        text: What is done.
        systems: Names of its systems; those that do not exist are left out.
        cells: Its cells, given the line of a dataset, systems, and whether only few conditions are wanted.
        needs: What a dataset must have: `scored`, `soft`, `lexicon`, `revealed` or `tests` (keys of its line).
        measures: Names of the measures that are shown (`revup.experiments.tabulate.MEASURES`).
        corner: What columns are values of.
        axis: Name of the figure's horizontal axis, where columns are numbers; no figure where empty.
        printed: The paper's numbers: measure → rows.
        searched: Columns at which the settings of rows are searched, one in each table (`revup.experiments.search`).
    """

    title: str
    text: str
    systems: tuple[str, ...]
    cells: Cells
    needs: str
    measures: tuple[str, ...]
    corner: str = ""
    axis: str = ""
    printed: Mapping[str, paper.Printed] | None = None
    searched: tuple[str, ...] = ()

    def lacks(self, dataset: Line) -> str:
        """Why it is left out on a dataset; empty where it is not."""
        if not self.needs or dataset.get(self.needs):
            return ""
        return _LACKS[self.needs]


_LACKS = {
    "scored": "no test event has a frame",
    "soft": "no test event has a distribution over frames",
    "lexicon": "the dataset was prepared without a dictionary",
    "revealed": "the dataset is not of a world (revup world)",
    "tests": "no other dataset to test on was named (--test)",
}


def _grid(part: str, systems: Iterable[System], columns: Mapping[str, Condition], test: str = "") -> list[Cell]:
    return [Cell(part, s.label, label, s, condition, test) for s in systems for label, condition in columns.items()]


def _with_sampled(part: str, systems: Iterable[System], columns: Mapping[str, Condition]) -> list[Cell]:
    """A grid in which the published settings have a second row: the frame of one Gumbel sample, as in the paper."""
    found = []
    for system in systems:
        found += _grid(part, [system], columns)
        if system.preset in PUBLISHED and system.model in ("ssdvae", "revup"):
            sampled = _grid(part, [system], columns, "sampled")
            found += [replace(cell, row=f"{cell.row}, sampled prediction") for cell in sampled]
    return found


def _predicting(systems: Iterable[System]) -> list[System]:
    return [system for system in systems if model_class(system.model).predicts_frames]


def _incomplete(dataset: Line, systems: Sequence[System], quick: bool) -> list[Cell]:
    values = (0.1, 1.0) if quick else EPSILONS
    return _with_sampled("", _predicting(systems), {f"{epsilon:g}": Condition(epsilon) for epsilon in values})


def _noise(dataset: Line, systems: Sequence[System], quick: bool) -> list[Cell]:
    found = []
    for noise, values in (("uniform", (0.5,) if quick else ETAS), ("confusable", (0.4,) if quick else CONFUSABLE)):
        columns = {f"{eta:g}": Condition(1.0, eta, noise) for eta in values}
        found += _with_sampled(f"{noise} errors", _predicting(systems), columns)
    return found


def _perplexity(dataset: Line, systems: Sequence[System], quick: bool) -> list[Cell]:
    writing = [system for system in systems if model_class(system.model).writes_text]
    values = (0.1, 1.0) if quick else TEXT_EPSILONS
    return _grid("", writing, {f"{epsilon:g}": Condition(epsilon, text=True) for epsilon in values})


def _soft(dataset: Line, systems: Sequence[System], quick: bool) -> list[Cell]:
    values = (1.0,) if quick else (0.1, 1.0)
    return _grid("", _predicting(systems), {f"{epsilon:g}": Condition(epsilon) for epsilon in values})


def _dictionary(dataset: Line, systems: Sequence[System], quick: bool) -> list[Cell]:
    found = []
    for variant, title in (
        ("dictionary=none", "no dictionary"),
        ("dictionary=candidates", "candidates without weights"),
        ("", "weighted dictionary"),
    ):
        values = (0.1,) if quick else DICTIONARY_EPSILONS
        columns = {f"{e:g}": Condition(e, variant=variant) for e in values if e or variant != "dictionary=none"}
        found += _grid(title, _predicting(systems), columns)
    return found


def _sources(dataset: Line, systems: Sequence[System], quick: bool) -> list[Cell]:
    predicting = _predicting(systems)
    several = [system for system in predicting if system.model != "lookup"]
    rates = ANNOTATORS[2:3] if quick else ANNOTATORS
    columns = {str(len(rate.split(","))): Condition(sources=rate) for rate in rates}
    title = "simulated annotators with error rates of 10% to 50%"
    found = _grid(title, several, columns)
    if dataset["events"]["train"] > MOST_EVENTS:
        return found
    for rate in rates:
        if "," in rate:
            found += _aggregated(title, str(len(rate.split(","))), f"annotators={rate}", several)
    if not dataset["lexicon"]:
        return found
    title = "people (10% of the events), a parser (all, 30% wrong), the dictionary"
    kinds = SOURCES[-1:] if quick else SOURCES
    informed = [s for s in several if s.model not in _ONE_LABEL and s.preset not in _ONE_LABEL]
    found += _grid(title, informed, {_listed(kind): Condition(variant=f"sources={kind}") for kind in kinds})
    return found + _aggregated(title, _listed(ALL_SOURCES), f"sources={ALL_SOURCES}", several)


def _aggregated(title: str, column: str, variant: str, systems: Iterable[System]) -> list[Cell]:
    """Taggers on labels of several sources that are aggregated beforehand."""
    return [
        Cell(
            title,
            f"{_METHOD_TITLES[method]} + {system.label}",
            column,
            system,
            Condition(variant=f"{variant}|{method}"),
        )
        for method in METHODS
        for system in systems
        if system.model == "tagger"
    ]


# models and presets that take one label an event: of sources beside it they would see nothing
_ONE_LABEL = ("logistic", "propagation", "plain", "paper", "released")
_METHOD_TITLES = {"vote": "Majority vote", "dawid-skene": "Dawid–Skene", "snorkel": "Snorkel"}


def _listed(kinds: str) -> str:
    return "all three" if kinds == ALL_SOURCES else kinds.replace("+", " and ")  # no comma: --columns splits there


def _transfer(dataset: Line, systems: Sequence[System], quick: bool) -> list[Cell]:
    found = []
    for other, common in dataset["tests"].items():
        if common >= COMMON:
            columns = {other: Condition()}
            found += _grid("", _predicting(systems), columns, f"transfer/{other}")
    return found


def _revealed(dataset: Line, systems: Sequence[System], quick: bool) -> list[Cell]:
    return [
        replace(cell, column=f"{share:g}")
        for share in REVEALED
        for cell in _grid("", _predicting(systems), {"": Condition()}, f"revealed/{share:g}")
    ]


def _ablation(dataset: Line, systems: Sequence[System], quick: bool) -> list[Cell]:
    if DEFAULT not in systems:
        return []
    columns = {"ε = 0.1": Condition(0.1), "η = 0.5": Condition(1.0, 0.5), "ε = 1": Condition()}
    if dataset.get("soft") and not dataset.get("scored"):
        columns = {"ε = 1": Condition()}
    if quick:
        columns = dict([*columns.items()][:1])
    found = _grid("", [s for s in _predicting(systems) if s.name in ("counts:default", DEFAULT.name)], columns)
    for column, condition in columns.items():
        oracle = ("oracle: given η", (("objective", "noise_rate", condition.eta),))
        for label, changed in (*changes(), oracle):
            found.append(Cell("", label, column, DEFAULT, replace(condition, changed=changed)))
    return found


OBSERVED = "ε, share of labels observed in training"
EXPERIMENTS: dict[str, Experiment] = {
    "incomplete": Experiment(
        "Incomplete labels",
        "In training each event's label is observed with probability ε, and observed labels are correct. At test no "
        "label is given.",
        (*FRAMES, *FEW),
        _incomplete,
        "scored",
        ("accuracy", "macro_f1", "unlabelled", "fresh", "label_nll"),
        "ε",
        OBSERVED,
        {"accuracy": (paper.INCOMPLETE, 0), "macro_f1": (paper.INCOMPLETE, 1)},
        ("0.1",),
    ),
    "noise": Experiment(
        "Noisy labels",
        "In training every label is observed, but with probability η it is replaced: by a frame drawn uniformly from "
        "all frames (an error whose shape the noise model of `default` knows), or by a *confusable* one, another frame "
        "of the same lemma, as parsers and annotators err. No system is given η.",
        (*FRAMES, *NOISY),
        _noise,
        "scored",
        ("accuracy", "macro_f1", "noise_rate", "fresh", "label_nll"),
        "η",
        "η, share of labels replaced",
        {"accuracy": (paper.NOISE, 0), "macro_f1": (paper.NOISE, 1)},
        ("0.5", "0.4"),
    ),
    "perplexity": Experiment(
        "Perplexity",
        "exp of the mean −log p over all five tokens of each event. For all systems but RNNLM this is the perplexity "
        "of a reconstruction from latents inferred from the same text, so it can be lower than that of any language "
        "model. RNNLM and HAQAE have no frames: the same runs are shown in every column.",
        TEXT,
        _perplexity,
        "",
        ("perplexity_hard", "perplexity"),
        "ε",
        OBSERVED,
        {"perplexity": (paper.PERPLEXITY, None)},
    ),
    "soft": Experiment(
        "Soft labels",
        "Events carry a distribution over frames (votes of a crowd), observed in training with probability ε. Scores "
        "are against the distributions of the test events, which no system is given.",
        (*STRONG, *FEW),
        _soft,
        "soft",
        ("soft_cross_entropy", "soft_apart", "soft_agreement", "soft_calibration_error"),
        "ε",
        searched=("1",),
    ),
    "dictionary": Experiment(
        "Dictionary",
        "The same labels with no dictionary, with the candidates of a dictionary, and with its weights too. The "
        "dictionary is used in training and at prediction, by every system that stands on counts.",
        (*STRONG, "logistic"),
        _dictionary,
        "lexicon",
        ("accuracy", "macro_f1", "label_nll", "soft_cross_entropy", "soft_agreement"),
        "ε",
        searched=("0.1",),
    ),
    "sources": Experiment(
        "Several sources",
        "Labels come from several sources whose reliability is not known. *Annotators* are simulated: each labels "
        "every event and is wrong at its own rate (uniform errors). *People, parser, dictionary*: people are right and "
        "label a tenth of the events, a parser labels all and is wrong for 30% of them (another frame of the lemma "
        "where there is one), the dictionary lists candidates. The rivals aggregate the labels beforehand and train a "
        "tagger on the result; among people, parser and dictionary the dictionary votes for its heaviest candidate.",
        ("counts", "tagger:plain", "tagger", "ssdvae", "revup"),
        _sources,
        "scored",
        ("accuracy", "macro_f1", "fresh", "label_nll"),
        "sources",
        searched=("3", "all three"),
    ),
    "transfer": Experiment(
        "Transfer",
        "Trained on this dataset, tested on the test documents of another. A frame that training does not know counts "
        "as wrong.",
        (*STRONG, *FEW),
        _transfer,
        "tests",
        ("accuracy", "macro_f1", "label_nll"),
        "tested on",
    ),
    "revealed": Experiment(
        "Labels given at prediction",
        "A share of each test document's true frames is given at prediction (`predict --revise`); scores are on the "
        "remaining events. The exact optimum has the same frames given.",
        STRONG,
        _revealed,
        "revealed",
        ("accuracy", "label_nll"),
        "share of frames given",
    ),
    "ablation": Experiment(
        "Ablation of the default",
        "Each row is RevUp `default` with one setting returned to the plain value named; `oracle` is given the true "
        "noise rate, which the default estimates. What the network adds over the counts that it stands on is the "
        "difference to the row *Counts*.",
        ("counts", "revup"),
        _ablation,
        "",
        ("accuracy", "macro_f1", "soft_cross_entropy"),
    ),
}
