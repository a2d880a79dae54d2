"""The models, one file each; they share blocks (layers.py) but do not inherit from each other."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from revup.errors import RevupError

CLASSES = {
    "revup": "RevUp",
    "ssdvae": "SSDVAE",
    "haqae": "HAQAE",
    "rnnlm": "RNNLM",
    "tagger": "Tagger",
    "lookup": "Lookup",
}


def model_class(name: str) -> Any:
    """The class of a model by its name; its module also holds its Objective and PRESETS."""
    if name not in CLASSES:
        raise RevupError(f"unknown model '{name}': one of {', '.join(CLASSES)}")
    return getattr(model_module(name), CLASSES[name])


def model_module(name: str) -> Any:
    return import_module(f"revup.models.{name}")
