"""Settings: all that decides a run, but for the data, and the model they describe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch

from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.fields import check, setting
from revup.models import CLASSES, model_class, model_module
from revup.models.base import SIZES, Model, Network, Sizes
from revup.ops.device import PRECISIONS

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
        module = model_module(model)
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

    def resolve(self, classes: int, vector_size: int | None = None) -> Config:
        """The same settings with every size of the network filled in; see `Network.resolve` for the arguments."""
        found = self.network.resolve(classes, vector_size)
        return replace(self, network=replace(self.network, **{name: getattr(found, name) for name in SIZES["small"]}))

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data.pop("notes")
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Config:
        module = model_module(data["model"])
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


def build_module(config: Config, sizes: Sizes) -> Model:
    """A fresh module, its initial weights a function of the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return model_class(config.model)(sizes, config.network.resolve(sizes.classes), config.objective)


MEASURES = {"accuracy": 1, "label_nll": -1, "perplexity": -1}  # name → sign: larger or smaller is better


MORE_VALIDATIONS = 4  # at most, on a small corpus, for each that a large one has


@dataclass(frozen=True)
class Training:
    """How a model is trained."""

    batch_size: int = setting(200, "documents in a step", minimum=1)
    learning_rate: float = setting(1e-3, "learning rate of Adam", minimum=0)
    schedule: str = setting(
        "constant", "course of the learning rate: constant, or falling linearly to 0", choices=("constant", "linear")
    )
    epochs: int = setting(30, "maximum number of epochs", minimum=0)
    least_steps: int = setting(2000, "on a small corpus, train for more epochs until this many steps", minimum=0)
    most_steps: int = setting(
        0, "on a large corpus, train for fewer epochs, up to this many steps; 0: no limit", minimum=0
    )
    patience: int = setting(3, "early stopping: validations without improvement", minimum=1)
    settle: float = setting(
        0.0, "afterwards, train the decoder alone with the frames frozen, for this share of the epochs", minimum=0
    )
    clip: float = setting(5.0, "maximum norm of the gradient; 0: no limit", minimum=0)
    measure: str = setting(
        "accuracy",
        "validation measure that decides which weights are best; perplexity where no label is observed",
        choices=MEASURES,
    )
    validate_steps: int = setting(0, "steps between validations; 0: an epoch", minimum=0)
    minutes: float = setting(0.0, "time limit in minutes; 0: none", minimum=0)
    precision: str = setting("float32", "arithmetic of a step; weights stay in float32", choices=PRECISIONS)
    compile: str = setting(
        "auto", "compile the steps, which takes a minute; auto: where it pays, on a GPU", choices=("auto", "yes", "no")
    )
    checkpoint_minutes: float = setting(5.0, "minutes between checkpoints", minimum=0)
    shard_rows: int = setting(0, "documents held on the device at a time; 0: all if they fit", minimum=0)

    def __post_init__(self) -> None:
        check(self, "training")

    def course(self, steps: int, settles: bool = True) -> Course:
        """How this goes with a corpus of so many steps an epoch.

        A model that writes text and has no frames to settle has the same number of epochs in one go.
        """
        if not self.epochs:
            return Course(0, 1, self.patience, 0)
        epochs = self.epochs
        if self.most_steps:
            epochs = min(epochs, -(-self.most_steps // max(steps, 1)))
        epochs = max(epochs, -(-self.least_steps // max(steps, 1)))
        every = -(-epochs // (MORE_VALIDATIONS * self.epochs))
        patience = math.ceil(self.patience * epochs / (self.epochs * every))
        more = math.ceil(self.settle * epochs)
        return Course(epochs, every, patience, more) if settles else Course(epochs + more, every, patience, 0)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step, out of so many in all."""
        return self.learning_rate * (1 - step / max(steps, 1) if self.schedule == "linear" else 1.0)


@dataclass(frozen=True)
class Course:
    """What `Training` comes to on a corpus of some size."""

    epochs: int
    every: int  # epochs between validations
    patience: int
    settled_epochs: int  # more, for the decoder alone
