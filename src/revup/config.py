"""Settings: all that decides a run, but for the data, and the model they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from revup.errors import RevupError
from revup.knowledge import Observation
from revup.models import CLASSES, model_class, model_module
from revup.models.layers import Network, Sizes
from revup.training import Training

SECTIONS = ("network", "objective", "training")

Overrides = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Config:
    """All that decides a run, but for the data."""

    model: str
    preset: str
    network: Network
    objective: Any
    training: Training
    observation: Observation
    seed: int
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def make(
        cls,
        model: str = "revup",
        preset: str = "default",
        epsilon: float = 1.0,
        eta: float = 0.0,
        seed: int = 0,
        overrides: Overrides | None = None,
    ) -> Config:
        """A preset with some of its settings overridden; what the model does not use is noted and ignored."""
        module = model_module(model) if model in CLASSES else model_class(model)
        presets = module.PRESETS
        if preset not in presets:
            raise RevupError(f"model {model} has no preset '{preset}': one of {', '.join(presets)}")
        kinds = {"network": Network, "objective": module.Objective, "training": Training}
        notes: list[str] = []
        made: dict[str, Any] = {}
        for section, kind in kinds.items():
            values = dict(presets[preset].get(section, {}))
            known = {item.name for item in fields(kind)}
            for name, value in (overrides or {}).get(section, {}).items():
                if name not in known:
                    if not any(name in names for names in known_settings()[section].values()):
                        raise RevupError(f"unknown setting {section}.{name.replace('_', '-')}")
                    notes.append(f"{section}.{name.replace('_', '-')} is not used by {model}: ignored")
                    continue
                values[name] = value
                if f"scarce_{name}" in known and f"scarce_{name}" not in (overrides or {}).get(section, {}):
                    values[f"scarce_{name}"] = None  # a weight that is told holds at every ε̂
                if name == "epochs":  # and a number of epochs that is told, whatever the corpus
                    told = (overrides or {}).get(section, {})
                    values |= {limit: told.get(limit, 0) for limit in ("least_steps", "most_steps")}
            made[section] = kind(**values)
        return cls(model, preset, **made, observation=Observation(epsilon, eta, seed), seed=seed, notes=tuple(notes))

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data.pop("notes")
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Config:
        module = model_module(data["model"]) if data["model"] in CLASSES else model_class(data["model"])
        return cls(
            data["model"],
            data["preset"],
            _section(Network, "network", data),
            _section(module.Objective, "objective", data),
            _section(Training, "training", data),
            Observation(**data["observation"]),
            data["seed"],
        )


def _section(kind: Any, name: str, data: Mapping[str, Any]) -> Any:
    unknown = set(data[name]) - {item.name for item in fields(kind)}
    if unknown:
        shown = ", ".join(f"{name}.{setting.replace('_', '-')}" for setting in sorted(unknown))
        raise RevupError(f"no setting {shown} in this version of revup")
    return kind(**data[name])


def known_settings() -> dict[str, dict[str, dict[str, Any]]]:
    """section → model (or '' for all) → name → field: every setting there is."""
    found: dict[str, dict[str, dict[str, Any]]] = {
        "network": {"": {f.name: f for f in fields(Network)}},
        "training": {"": {f.name: f for f in fields(Training)}},
        "objective": {},
    }
    for name in CLASSES:
        found["objective"][name] = {f.name: f for f in fields(model_module(name).Objective)}
    return found


def build_module(config: Config, sizes: Sizes) -> Any:
    """A fresh module, its initial weights a function of the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return model_class(config.model)(sizes, config.network, config.objective)
