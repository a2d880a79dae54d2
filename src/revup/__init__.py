"""revup: represent, label and generate sequences of events when labels are few, soft or wrong."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from revup.benchmark import bench
    from revup.data.corpus import Corpus
    from revup.data.events import Document, Event, write
    from revup.data.prepare import prepare
    from revup.data.readers import read
    from revup.errors import InputError, RevupError
    from revup.experiments.compare import compare
    from revup.experiments.demo import demo
    from revup.experiments.suite import experiment
    from revup.inference.cloze import cloze
    from revup.inference.embed import embed
    from revup.inference.evaluate import evaluate
    from revup.inference.generate import generate
    from revup.inference.inspect import inspect
    from revup.inference.predict import predict
    from revup.inference.trained import load
    from revup.training.run import train
    from revup.world import World

__version__ = "0.1.0"

_HOMES = {
    "Corpus": "data.corpus",
    "Document": "data.events",
    "Event": "data.events",
    "InputError": "errors",
    "RevupError": "errors",
    "World": "world",
    "bench": "benchmark",
    "cloze": "inference.cloze",
    "compare": "experiments.compare",
    "demo": "experiments.demo",
    "embed": "inference.embed",
    "evaluate": "inference.evaluate",
    "experiment": "experiments.suite",
    "generate": "inference.generate",
    "inspect": "inference.inspect",
    "load": "inference.trained",
    "predict": "inference.predict",
    "prepare": "data.prepare",
    "read": "data.readers",
    "train": "training.run",
    "write": "data.events",
}

__all__ = [
    "Corpus",
    "Document",
    "Event",
    "InputError",
    "RevupError",
    "World",
    "bench",
    "cloze",
    "compare",
    "demo",
    "embed",
    "evaluate",
    "experiment",
    "generate",
    "inspect",
    "load",
    "predict",
    "prepare",
    "read",
    "train",
    "write",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import revup` is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'revup' has no attribute '{name}'")
    return getattr(import_module(f"revup.{_HOMES[name]}"), name)
