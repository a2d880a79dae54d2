"""Ablation of RevUp `default`: a row for each ingredient switched off, read from the presets as they are.

An ingredient is a setting of `default` that has a plain value to return to: one named in OFF, one that the preset sets
itself, or one in which it differs from `paper`. The objective's weights count as one. `oracle` is given the noise rate
instead of estimating it, which is not available in practice.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from revup.experiments.grid import Condition, Results, Scope, Section, System, score, scores
from revup.experiments.results import Run
from revup.models import model_module
from revup.reporting.tables import Row, Table, Values
from revup.settings import Config, Training

CONDITIONS = (Condition("ε=0.1", 0.1, 0.0), Condition("ε=1, η=0.5", 1.0, 0.5))
OFF: dict[str, dict[str, Any]] = {
    "objective": {"prior": "none", "neighbours": 0, "anchor": 0.0, "noise": "none", "pooled_strength": 0.0},
    "network": {
        "attention": "full",
        "shared": False,
        "slots": False,
        "beyond": False,
        "word_dropout": 0.0,
        "dropout": 0.0,
    },
    "training": {"schedule": "constant", "settle": 0.0},
}
WEIGHTS = ("alpha", "beta", "zeta", "scarce_alpha", "scarce_beta", "scarce_zeta")
NO_INGREDIENTS = {  # sizes, training time and speed, and what only acts where no label is observed
    "objective": ["induce", *WEIGHTS],
    "network": ["size", "embedding", "hidden", "latent", "frame", "layers"],
    "training": [
        "epochs",
        "least_steps",
        "most_steps",
        "batch_size",
        "learning_rate",
        "patience",
        "validate_steps",
        "precision",
    ],
}
DEFAULT = System("revup")

Ingredient = tuple[str, dict[str, dict[str, Any]]]  # label, what switches it off


def ingredients() -> list[Ingredient]:
    """Each ingredient of `default`, with the overrides that switch it off."""
    module = model_module("revup")
    default, paper = (Config.make("revup", preset).to_json() for preset in ("default", "paper"))
    plain = {"objective": asdict(module.Objective()), "training": asdict(Training())}
    found: list[Ingredient] = []
    for section in ("objective", "network", "training"):
        named = module.PRESETS["default"].get(section, {})
        for name, value in default[section].items():
            if name in NO_INGREDIENTS[section]:
                continue
            if name in OFF[section]:
                off = OFF[section][name]
            elif paper[section][name] != value:
                off = paper[section][name]
            elif name in named:
                off = plain.get(section, {}).get(name, value)
            else:
                continue
            if off != value:
                found.append((f"{section}.{name.replace('_', '-')} = {_shown(off)}", {section: {name: off}}))
    weights = {name: paper["objective"][name] for name in WEIGHTS}
    if any(default["objective"][name] != value for name, value in weights.items()):
        found.append(("the paper's weights", {"objective": weights}))
    return found


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _changes() -> list[tuple[str, Condition, dict[str, dict[str, Any]]]]:
    """Row by row, condition by condition: the settings that differ from the default."""
    oracle = "noise_rate" in {item.name for item in fields(model_module("revup").Objective)}
    found: list[tuple[str, Condition, dict[str, dict[str, Any]]]] = []
    for condition in CONDITIONS:
        found.append((DEFAULT.label, condition, {}))
        if oracle:
            found.append(("oracle: given η", condition, {"objective": {"noise_rate": condition.eta}}))
        found += [(label, condition, changed) for label, changed in ingredients()]
    return found


def plan(scope: Scope) -> list[Run]:
    """The default, the oracle, and the default without each ingredient."""
    return [run for _, condition, changed in _changes() for run in scope.runs([DEFAULT], [condition], changed)]


def show(scope: Scope, results: Results) -> Section:
    """Scores without each ingredient."""
    tables = []
    for name, title, pick in (
        ("accuracy", "Accuracy", score("accuracy")),
        ("macro-f1", "Macro-F1", score("macro_f1")),
        ("unlabelled", "Accuracy on unlabelled predicates", score("unlabelled", "accuracy")),
        ("perplexity", "Perplexity, hard frames", score("perplexity_hard")),
    ):
        cells: dict[str, tuple[Values, ...]] = {}
        for label, condition, changed in _changes():
            found = scores(scope, results, DEFAULT, [condition], pick, changed)
            cells[label] = (*cells.get(label, ()), *found)
        text = name == "perplexity"
        tables.append(
            Table(
                f"ablation-{name}",
                f"{title}: RevUp default, and without one ingredient",
                "",
                tuple(condition.label for condition in CONDITIONS),
                tuple(Row(label, values) for label, values in cells.items()),
                digits=2 if text else 3,
                higher=not text,
                compete=False,
            )
        )
    return Section(
        "ablation",
        "Ablation of the default",
        "Each row is `default` with one setting returned to the plain value named; `oracle` is given the true noise "
        "rate, which the default estimates.",
        tables,
    )
