"""Settings: everything that determines a run besides the data, and the construction of the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch

from revup.data.knowledge import Observation
from revup.errors import RevupError, did_you_mean
from revup.fields import check, option_name, setting
from revup.models import CLASSES, model_class, model_module
from revup.models.base import Model
from revup.models.network import SIZES, Network, Sizes
from revup.ops.precision import PRECISIONS

SECTIONS = ("network", "objective", "training")
MEASURES = {"accuracy": 1, "label_nll": -1, "perplexity": -1}  # name → sign: larger or smaller is better
MORE_VALIDATIONS = 4  # maximum factor by which a small corpus has more validations than a large one

Overrides = Mapping[str, Mapping[str, Any]]


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
    most_epochs: int = setting(
        0, "on a small corpus, no more than this many epochs for the sake of `least_steps`; 0: no limit", minimum=0
    )
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
    text_epoch: bool = setting(
        False,
        "also keep the weights of the lowest perplexity, for the perplexity; training ends when neither improves",
    )
    validate_steps: int = setting(0, "steps between validations; 0: an epoch", minimum=0)
    minutes: float = setting(0.0, "time limit in minutes; 0: none", minimum=0)
    precision: str = setting("float32", "arithmetic of a step; weights stay in float32", choices=PRECISIONS)
    checkpoint_minutes: float = setting(5.0, "minutes between checkpoints", minimum=0)
    shard_rows: int = setting(0, "documents held on the device at a time; 0: all if they fit", minimum=0)

    def __post_init__(self) -> None:
        check(self, "training")

    def course(self, steps: int, settles: bool = True) -> Course:
        """The training schedule for a corpus of a given size.

        Args:
            steps: Steps in an epoch.
            settles: Whether the model has a decoder phase; otherwise its epochs are added to the others.

        Returns:
            Numbers of epochs, validation interval and patience.
        """
        if not self.epochs:
            return Course(0, 1, self.patience, 0)
        epochs = self.epochs
        if self.most_steps:
            epochs = min(epochs, -(-self.most_steps // max(steps, 1)))
        least = -(-self.least_steps // max(steps, 1))
        epochs = max(epochs, min(least, self.most_epochs) if self.most_epochs else least)
        every = -(-epochs // (MORE_VALIDATIONS * self.epochs))
        patience = math.ceil(self.patience * epochs / (self.epochs * every))
        more = math.ceil(self.settle * epochs)
        return Course(epochs, every, patience, more) if settles else Course(epochs + more, every, patience, 0)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step, given the total number of steps."""
        return self.learning_rate * (1 - step / max(steps, 1) if self.schedule == "linear" else 1.0)


@dataclass(frozen=True)
class Course:
    """The training schedule that follows from `Training` and the size of a corpus."""

    epochs: int
    every: int  # epochs between validations
    patience: int
    settled_epochs: int  # of the decoder phase


@dataclass(frozen=True)
class Config:
    """Everything that determines a run besides the data."""

    model: str
    preset: str
    network: Network
    objective: Any  # the model's own `Objective`
    training: Training
    observation: Observation
    seed: int
    notes: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def make(
        cls,
        model: str = "revup",
        preset: str = "default",
        epsilon: float = Observation.epsilon,
        eta: float = Observation.eta,
        seed: int = Observation.seed,
        overrides: Overrides | None = None,
        noise: str = Observation.noise,
        sources: str = Observation.sources,
    ) -> Config:
        """Take a preset and override some of its settings.

        Args:
            model: One of `revup.models.CLASSES`.
            preset: One of the model's presets: default, paper or released.
            epsilon: Observation probability ε.
            eta: Noise rate η.
            seed: Seed of all randomness.
            overrides: Section → name → value. Settings that only other models have are ignored, with a note.
            noise: What replaces a wrong label: uniform or confusable.
            sources: Simulated annotators: their number, or their error rates.

        Raises:
            RevupError: A model, preset or setting that does not exist, or a value that is not allowed.
        """
        module = model_module(model)
        if preset not in module.PRESETS:
            raise RevupError(f"model {model} has no preset '{preset}': one of {', '.join(module.PRESETS)}")
        kinds = {"network": Network, "objective": module.Objective, "training": Training}
        notes: list[str] = []
        made: dict[str, Any] = {}
        for section, kind in kinds.items():
            values = dict(module.PRESETS[preset].get(section, {}))
            known = {item.name for item in fields(kind)}
            given = dict((overrides or {}).get(section, {}))
            for name in [name for name in given if name not in known]:
                notes.append(_unused(section, name, model))
                del given[name]
            # A given weight applies at any share of observed labels, a given number of epochs to any corpus size.
            values |= {f"scarce_{name}": None for name in given if f"scarce_{name}" in known}
            if "epochs" in given:
                values |= {"least_steps": 0, "most_steps": 0}
            made[section] = kind(**{**values, **given})
        observation = Observation(epsilon, eta, seed, noise, sources)
        return cls(model, preset, **made, observation=observation, seed=observation.seed, notes=tuple(notes))

    def resolve(self, classes: int, vector_size: int | None = None) -> Config:
        """The same settings with every size of the network filled in; see `Network.resolve` for the arguments."""
        found = self.network.resolve(classes, vector_size)
        return replace(self, network=replace(self.network, **{name: getattr(found, name) for name in SIZES["small"]}))

    def to_json(self) -> dict[str, Any]:
        """The settings as stored in a run's config.json."""
        data = asdict(self)
        data.pop("notes")
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Config:
        """The settings of a run from its config.json, every value checked."""
        return cls(
            data["model"],
            data["preset"],
            _section(Network, "network", data),
            _section(model_module(data["model"]).Objective, "objective", data),
            _section(Training, "training", data),
            _section(Observation, "observation", data),
            Observation(seed=data["seed"]).seed,
        )


def build_module(config: Config, sizes: Sizes) -> Model:
    """A new model; its initial weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return model_class(config.model)(sizes, config.network.resolve(sizes.classes), config.objective)


class Setting(NamedTuple):
    """A nested setting, such as `training.batch-size`."""

    section: str
    item: Field[Any]
    models: tuple[str, ...]  # models that have it; empty: all
    help: str

    @property
    def name(self) -> str:
        """The name as users write it."""
        return option_name(self.item, self.section)

    def value(self, preset: str = "default") -> Any:
        """The value in a preset of the first model that has it."""
        config = Config.make(self.models[0] if self.models else "revup", preset)
        return getattr(getattr(config, self.section), self.item.name)


def every_setting() -> list[Setting]:
    """All nested settings, each once; one that several models have is explained for each if they differ."""
    found = [Setting("network", item, (), item.metadata["help"]) for item in fields(Network)]
    found += [Setting("training", item, (), item.metadata["help"]) for item in fields(Training)]
    objective: dict[str, Setting] = {}
    for model in CLASSES:
        for item in fields(model_module(model).Objective):
            known = objective.get(item.name, Setting("objective", item, (), item.metadata["help"]))
            differs = item.metadata["help"] != known.item.metadata["help"]
            help = f"{known.help}; {model}: {item.metadata['help']}" if differs else known.help
            objective[item.name] = known._replace(models=(*known.models, model), help=help)
    return [*found, *objective.values()]


def _section(kind: Any, name: str, data: Mapping[str, Any]) -> Any:
    unknown = set(data[name]) - {item.name for item in fields(kind)}
    if unknown:
        first, *others = (f"{name}.{setting.replace('_', '-')}" for setting in sorted(unknown))
        more = f" (and {len(others)} others)" if others else ""
        raise RevupError(f"no setting {first[:60]}{more} in this version of revup")
    return kind(**data[name])


def _unused(section: str, name: str, model: str) -> str:
    """The note on a setting that this model does not have; raises RevupError if no model has it."""
    shown = f"{section}.{name}".replace("_", "-")
    known = [setting.name for setting in every_setting()]
    if shown not in known:
        raise RevupError(f"unknown setting {shown}{did_you_mean(shown, known)}")
    return f"{shown} is not used by {model}: ignored"
