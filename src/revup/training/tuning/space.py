"""What is searched: settings with their ranges."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from revup.errors import RevupError, did_you_mean
from revup.fields import expected, kind, parse
from revup.settings import Setting, every_setting

DIGITS = 3  # significant ones of a value, so that the printed command is the trial to the bit


@dataclass(frozen=True)
class Dimension:
    """A setting that is searched.

    Attributes:
        name: As users write it: `training.learning-rate`.
        low, high: Its range.
        log: Whether it is searched by orders of magnitude.
        multiple: For whole numbers: of what they are multiples; 0: not whole.
        choices: Its values, if they are not numbers.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    multiple: int = 0
    choices: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[str, str]:
        """Section and name within it."""
        section, _, name = self.name.partition(".")
        return section, name.replace("-", "_")

    def value(self, found: Any) -> Any:
        """The setting's value for what the sampler chose: rounded, or of its own type."""
        if self.choices:
            return {"true": True, "false": False}.get(found, found)
        if self.multiple:
            return max(round(found / self.multiple), 1) * self.multiple
        return min(max(float(f"{found:.{DIGITS}g}"), self.low), self.high)

    def inside(self, value: Any) -> Any:
        """What the sampler would choose for a setting's value, or the nearest that it may."""
        if self.choices:
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            return shown if shown in self.choices else self.choices[0]
        nearest = min(max(value, self.low), self.high)
        return int(nearest) if self.multiple else float(nearest)


SPACE = (
    Dimension("training.learning-rate", 3e-4, 1e-2, log=True),
    Dimension("training.batch-size", 20, 500, log=True, multiple=10),
    Dimension("network.hidden", 32, 256, log=True, multiple=16),
    Dimension("network.dropout", 0.0, 0.6),
    Dimension("network.word-dropout", 0.0, 0.4),
    Dimension("objective.alpha", 0.03, 3.0, log=True),
    Dimension("objective.classification", 0.1, 10.0, log=True),
    Dimension("objective.strength", 1.0, 100.0, log=True),
    Dimension("objective.temperature", 0.1, 2.0, log=True),
    Dimension("objective.anchor", 20.0, 20_000.0, log=True),
)
"""Settings that matter on most corpora. Weights of 0 in `default` stay 0; the number of epochs is a budget."""

LEFT_OUT = {"revup": ("objective.classification",)}  # of a model: what the published code alone uses


def default_space(model: str, measure: str, fixed: Collection[str] = ()) -> tuple[Dimension, ...]:
    """The settings that are searched if nothing else is asked for.

    Args:
        model: The model.
        measure: The measure that is optimised. Perplexity is that of a text whose latents were inferred from it, so
            weights of the loss that let the latents hold more always win: they are left out.
        fixed: Settings that are given, and so not searched.
    """
    settings = {each.name: each for each in every_setting()}
    return tuple(
        dimension
        for dimension in SPACE
        if dimension.name not in {*fixed, *LEFT_OUT.get(model, ())}
        and _has(settings.get(dimension.name), model)
        and not (measure == "perplexity" and dimension.name.startswith("objective."))
    )


def _has(setting: Setting | None, model: str) -> bool:
    return setting is not None and (not setting.models or model in setting.models)


def parse_space(text: str, model: str) -> tuple[Dimension, ...]:
    """Settings to search from a list such as `training.learning-rate=0.001..0.01,network.dropout,objective.prior`.

    Args:
        text: Names separated by commas, each with `=LOW..HIGH` where it has no usual range, or another is wanted.
        model: The model.

    Raises:
        RevupError: A setting that does not exist, that the model does not have, or whose range is missing or wrong.
    """
    known = {each.name: each for each in every_setting() if _has(each, model)}
    usual = {dimension.name: dimension for dimension in SPACE}
    found: dict[str, Dimension] = {}
    for part in text.split(","):
        name, equals, limits = part.strip().partition("=")
        if name not in known:
            raise RevupError(f"--search: {model} has no setting '{name}'{did_you_mean(name, known)}")
        if name.removeprefix("training.") in ("measure", "minutes", "checkpoint-minutes", "settle"):
            raise RevupError(f"--search: {name} is set by tune itself")
        if equals:
            found[name] = _ranged(known[name], limits, usual.get(name))
        elif name in usual:
            found[name] = usual[name]
        else:
            found[name] = _chosen(known[name])
    return tuple(found.values())


def _chosen(setting: Setting) -> Dimension:
    choices: Sequence[str] = setting.item.metadata["choices"]
    if kind(setting.item) == "bool":
        choices = ("true", "false")
    if not choices:
        raise RevupError(f"--search: {setting.name} needs a range: {setting.name}=LOW..HIGH")
    return Dimension(setting.name, choices=tuple(choices))


def _ranged(setting: Setting, limits: str, usual: Dimension | None) -> Dimension:
    """A range as given; by orders of magnitude where its ends are more than tenfold apart."""
    section, item = setting.section, setting.item
    low, dots, high = limits.partition("..")
    if not dots or kind(item) not in ("int", "float"):
        raise RevupError(f"--search: {setting.name}: expected LOW..HIGH within {expected(item)}, found '{limits}'")
    first, last = (parse(item, section, end) for end in (low, high))
    if not first < last:
        raise RevupError(f"--search: {setting.name}: expected LOW..HIGH with LOW below HIGH, found '{limits}'")
    whole = kind(item) == "int"
    fits = usual is not None and usual.multiple and first % usual.multiple == 0
    log = first > 0 and (last > 10 * first or bool(usual and usual.log))
    return Dimension(setting.name, first, last, log, (usual.multiple if usual and fits else 1) if whole else 0)
