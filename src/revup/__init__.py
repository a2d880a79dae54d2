"""revup: represent, label and write sequences of events when the labels are few, soft or wrong."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Event": "data.events",
    "Document": "data.events",
    "write": "data.events",
    "read": "data.readers",
    "prepare": "data.prepare",
    "World": "world",
    "Corpus": "data.corpus",
    "train": "training.run",
    "evaluate": "inference.evaluate",
    "load": "inference.trained",
    "compare": "experiments.compare",
    "experiment": "experiments.suite",
    "demo": "experiments.demo",
    "RevupError": "errors",
    "InputError": "errors",
}

if TYPE_CHECKING:
    from revup.data.corpus import Corpus
    from revup.data.events import Document, Event, write
    from revup.data.prepare import prepare
    from revup.data.readers import read
    from revup.errors import InputError, RevupError
    from revup.experiments.compare import compare
    from revup.experiments.demo import demo
    from revup.experiments.suite import experiment
    from revup.inference.evaluate import evaluate
    from revup.inference.trained import load
    from revup.training.run import train
    from revup.world import World

__all__ = [
    "Corpus",
    "Document",
    "Event",
    "InputError",
    "RevupError",
    "World",
    "compare",
    "demo",
    "evaluate",
    "experiment",
    "load",
    "prepare",
    "read",
    "train",
    "write",
]


def __getattr__(name: str) -> Any:
    """Import a name from its room when it is first used: `import revup` itself costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'revup' has no attribute '{name}'")
    return getattr(import_module(f"revup.{_HOMES[name]}"), name)
