"""The ingredients of RevUp `default`, read from the presets as they are, and the settings that switch each off.

An ingredient is a setting of `default` that has a plain value to return to: one named in OFF, one that the preset sets
itself, or one in which it differs from `paper`. The objective's weights count as one.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from revup.experiments.runs import Settings
from revup.models import model_module
from revup.settings import Config, Training

OFF: dict[str, dict[str, Any]] = {
    "objective": {"prior": "none", "gate": 0.0, "anchor": 0.0, "noise": "none"},
    "network": {
        "attention": "full",
        "shared": False,
        "slots": False,
        "beyond": False,
        "word_dropout": 0.0,
        "dropout": 0.0,
    },
    "training": {"schedule": "constant"},
}
WEIGHTS = ("alpha", "beta", "zeta", "scarce_alpha", "scarce_beta", "scarce_zeta")
NO_INGREDIENTS = {  # sizes, training time and speed, the decoder's, and what only acts where no label is observed
    "objective": ["induce", *WEIGHTS],
    "network": ["size", "embedding", "hidden", "latent", "frame", "layers", "unigrams"],
    "training": [
        *("epochs", "least_steps", "most_steps", "batch_size", "learning_rate", "patience", "validate_steps"),
        *("precision", "settle"),
    ],
}


def changes() -> list[tuple[str, Settings]]:
    """Each ingredient of `default`: a label, and the settings that switch it off."""
    module = model_module("revup")
    default, paper = (Config.make("revup", preset).to_json() for preset in ("default", "paper"))
    plain = {"objective": asdict(module.Objective()), "training": asdict(Training())}
    found: list[tuple[str, Settings]] = []
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
                found.append((f"{section}.{name.replace('_', '-')} = {_shown(off)}", ((section, name, off),)))
    weights = {name: paper["objective"][name] for name in WEIGHTS}
    if any(default["objective"][name] != value for name, value in weights.items()):
        found.append(("the paper's weights", tuple(("objective", name, value) for name, value in weights.items())))
    return found


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
