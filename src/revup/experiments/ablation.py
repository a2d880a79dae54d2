"""What each ingredient of `default` RevUp is worth: one row with it switched off, read from the presets as they are.

An ingredient is a setting of `default` that has a plain value to go back to: one named in OFF, one that the preset sets
itself, or one in which it differs from `paper`. The objective's weights count as one. `oracle` is told the share of
wrong frames instead of estimating it; nobody has that in practice.
"""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

from revup.experiments.grid import Condition, Results, Scope, Section, System, score, unlabelled
from revup.experiments.sweep import Run
from revup.models import model_module
from revup.reporting.tables import Row, Table
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
NO_INGREDIENTS = {  # sizes, how long and how fast is trained, what matters where nothing is seen alone
    "objective": ("induce",),
    "network": ("size", "embedding", "hidden", "latent", "frame", "layers"),
    "training": (
        "epochs",
        "least_steps",
        "most_steps",
        "batch_size",
        "learning_rate",
        "patience",
        "validate_steps",
        "precision",
    ),
}
DEFAULT = System("revup")

Ingredient = tuple[str, dict[str, dict[str, Any]]]  # label, what switches it off


def ingredients() -> list[Ingredient]:
    """Each ingredient of today's `default`, with the overrides that switch it off."""
    module = model_module("revup")
    default, paper = (Config.make("revup", preset).to_json() for preset in ("default", "paper"))
    plain = {"objective": asdict(module.Objective()), "training": asdict(Training())}
    found: list[Ingredient] = []
    for section in ("objective", "network", "training"):
        named = module.PRESETS["default"].get(section, {})
        for name, value in default[section].items():
            if (section == "objective" and name in WEIGHTS) or name in NO_INGREDIENTS.get(section, ()):
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


def _overrides(scope: Scope) -> list[tuple[str, Condition, dict[str, dict[str, Any]]]]:
    """Row by row, condition by condition: what is changed of the default."""
    oracle = "noise_rate" in {item.name for item in fields(model_module("revup").Objective)}
    cells: list[tuple[str, Condition, dict[str, dict[str, Any]]]] = []
    for condition in CONDITIONS:
        cells.append((DEFAULT.label, condition, {}))
        if oracle:
            cells.append(("oracle: told η", condition, {"objective": {"noise_rate": condition.eta}}))
        cells += [(label, condition, changed) for label, changed in ingredients()]
    return cells


def plan(scope: Scope) -> list[Run]:
    return [scope.run(DEFAULT, condition, seed, o) for _, condition, o in _overrides(scope) for seed in scope.seeds]


def show(scope: Scope, results: Results) -> Section:
    cells = _overrides(scope)
    labels = list(dict.fromkeys(label for label, _, _ in cells))
    runs = {(label, c, seed): scope.run(DEFAULT, c, seed, o) for label, c, o in cells for seed in scope.seeds}
    tables = []
    for name, title, pick in (
        ("accuracy", "Accuracy", score("accuracy")),
        ("macro-f1", "Macro-F1", score("macro_f1")),
        ("unlabelled", "Accuracy on unlabelled predicates", unlabelled),
        ("perplexity", "Perplexity, hard frames", score("perplexity_hard")),
    ):
        made = tuple(
            Row(
                label,
                tuple(
                    tuple(
                        None if (found := results.get(runs[label, c, seed])) is None else pick(found)
                        for seed in scope.seeds
                    )
                    for c in CONDITIONS
                ),
            )
            for label in labels
        )
        perplexity = name == "perplexity"
        columns = tuple(condition.label for condition in CONDITIONS)
        table = Table(f"ablation-{name}", f"{title}: RevUp default, and one ingredient less", "", columns, made)
        tables.append(replace(table, digits=2 if perplexity else 3, higher=not perplexity, compete=False))
    return Section(
        "ablation",
        "Ablation of the default",
        "Each row is `default` with one setting put back to the plain value named; `oracle` is told the true share of "
        "wrong frames, which the default estimates.",
        tables,
    )
