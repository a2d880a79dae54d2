"""The models, one file each; they share an interface (base.py), network settings (network.py), blocks (layers.py)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from revup.errors import RevupError

if TYPE_CHECKING:
    from revup.models.base import Model

CLASSES = {
    "revup": "RevUp",
    "ssdvae": "SSDVAE",
    "haqae": "HAQAE",
    "rnnlm": "RNNLM",
    "tagger": "Tagger",
    "lookup": "Lookup",
    "counts": "Counts",
    "logistic": "Logistic",
    "propagation": "Propagation",
}
RIVALS = ("logistic", "propagation")  # in their own room


def model_class(name: str) -> type[Model]:
    """The class of a model.

    Args:
        name: One of `CLASSES`.

    Returns:
        The class; its module also holds its `Objective` and `PRESETS`.

    Raises:
        RevupError: There is no such model.
    """
    found: type[Model] = getattr(model_module(name), CLASSES[name])
    return found


def model_module(name: str) -> Any:
    """The module of a model: its class, `Objective` and `PRESETS`."""
    if name not in CLASSES:
        raise RevupError(f"unknown model '{name}': one of {', '.join(CLASSES)}")
    return import_module(f"revup.models.{'rivals.' if name in RIVALS else ''}{name}")
