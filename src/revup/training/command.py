"""The `revup train` command that a run's settings amount to."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import Any

from revup.data.knowledge import Observation
from revup.settings import SECTIONS, Config


def changed_settings(config: Config, classes: int, vector_size: int | None = None) -> dict[str, dict[str, Any]]:
    """The nested settings in which a run differs from its preset.

    Args:
        config: The settings of the run.
        classes: The number of frames, which sizes of the network may follow from.
        vector_size: The size of the pretrained word vectors, if there are any.

    Returns:
        Section → name → value: the overrides that make these settings of the preset.
    """
    now = _flat(config.resolve(classes, vector_size))
    preset = _flat(Config.make(config.model, config.preset).resolve(classes, vector_size))
    found = {key: value for key, value in now.items() if value != preset[key] and value is not None}
    for (section, name), value in now.items():  # some settings are switched off by giving another one
        plain = (section, name.removeprefix("scarce_"))
        if name.startswith("scarce_") and value is None and preset[section, name] is not None:
            found[plain] = now[plain]
    limits = (("training", "least_steps"), ("training", "most_steps"))
    if any(not now[key] and preset[key] for key in limits):
        found["training", "epochs"] = now["training", "epochs"]
    if ("training", "epochs") in found:
        found = {key: value for key, value in found.items() if key not in limits}
        found |= {key: now[key] for key in limits if now[key]}
    return {
        section: values
        for section in SECTIONS
        if (values := {name: value for (own, name), value in found.items() if own == section})
    }


def _flat(config: Config) -> dict[tuple[str, str], Any]:
    """All nested settings by section and name."""
    sections = ((section, getattr(config, section)) for section in SECTIONS)
    return {(section, item.name): getattr(part, item.name) for section, part in sections for item in fields(part)}


def train_command(
    config: Config,
    data: str = "DATA",
    out: str = "RUN",
    *,
    classes: int = 0,
    vector_size: int | None = None,
    device: str | None = None,
) -> str:
    """The command that trains a run with these settings.

    Args:
        config: The settings.
        data: The dataset directory.
        out: The run directory.
        classes: The number of frames, which sizes of the network may follow from.
        vector_size: The size of the pretrained word vectors, if there are any.
        device: cpu or cuda; None leaves the choice to the command.

    Returns:
        One line for a shell; only settings that differ from the preset are named.
    """
    words = ["revup", "train", data, "--out", out, "--model", config.model]
    if config.preset != "default":
        words += ["--preset", config.preset]
    observation = config.observation
    for name, value, usual in (
        ("epsilon", observation.epsilon, 1.0),
        ("eta", observation.eta, 0.0),
        ("noise", observation.noise, Observation.noise),
        ("sources", observation.sources, Observation.sources),
        ("seed", config.seed, 0),
    ):
        if value != usual:
            words += [f"--{name}", shown(value)]
    for section, values in changed_settings(config, classes, vector_size).items():
        for name, value in values.items():
            words += [f"--{section}.{name.replace('_', '-')}", shown(value)]
    if device is not None:
        words += ["--device", device]
    return shlex.join(words)


def shown(value: Any) -> str:
    """A setting's value as it is written on the command line, exactly."""
    return str(value).lower() if isinstance(value, bool) else f"{value!r}" if isinstance(value, float) else str(value)
