"""revup: represent, label and generate sequences of events when labels are few, soft or wrong."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from revup.auditing.apply import apply
    from revup.auditing.audit import audit
    from revup.auditing.review import review
    from revup.auditing.suggest import suggest
    from revup.benchmark import bench
    from revup.data.corpus import Corpus
    from revup.data.events import Document, Event, write
    from revup.data.prepare import prepare
    from revup.data.readers import read
    from revup.data.table_output import to_table
    from revup.data.tables import from_table
    from revup.errors import InputError, RevupError
    from revup.experiments.compare import compare
    from revup.experiments.demo import demo
    from revup.experiments.suite import experiment
    from revup.inference.abstain import Abstention, expected_accuracy
    from revup.inference.cloze import cloze
    from revup.inference.cluster import embed_on_cluster, predict_on_cluster
    from revup.inference.embed import embed
    from revup.inference.evaluate import evaluate
    from revup.inference.generate import generate
    from revup.inference.inspect import inspect
    from revup.inference.loading import load
    from revup.inference.predict import predict
    from revup.integrations.hub import from_pretrained, push_to_hub, save_pretrained
    from revup.integrations.sklearn import FrameClassifier
    from revup.serving.server import serve
    from revup.training.run import train
    from revup.training.tuning.search import tune
    from revup.world import World

__version__ = "0.1.0"

_HOMES = {
    "Abstention": "inference.abstain",
    "Corpus": "data.corpus",
    "Document": "data.events",
    "Event": "data.events",
    "FrameClassifier": "integrations.sklearn",
    "InputError": "errors",
    "RevupError": "errors",
    "World": "world",
    "apply": "auditing.apply",
    "audit": "auditing.audit",
    "bench": "benchmark",
    "cloze": "inference.cloze",
    "compare": "experiments.compare",
    "demo": "experiments.demo",
    "embed": "inference.embed",
    "embed_on_cluster": "inference.cluster",
    "evaluate": "inference.evaluate",
    "expected_accuracy": "inference.abstain",
    "experiment": "experiments.suite",
    "from_pretrained": "integrations.hub",
    "from_table": "data.tables",
    "generate": "inference.generate",
    "inspect": "inference.inspect",
    "load": "inference.loading",
    "predict": "inference.predict",
    "predict_on_cluster": "inference.cluster",
    "prepare": "data.prepare",
    "push_to_hub": "integrations.hub",
    "read": "data.readers",
    "review": "auditing.review",
    "save_pretrained": "integrations.hub",
    "serve": "serving.server",
    "suggest": "auditing.suggest",
    "to_table": "data.table_output",
    "train": "training.run",
    "tune": "training.tuning.search",
    "write": "data.events",
}

_MODULES = ("bottleneck", "reliability")

__all__ = [
    "Abstention",
    "Corpus",
    "Document",
    "Event",
    "FrameClassifier",
    "InputError",
    "RevupError",
    "World",
    "apply",
    "audit",
    "bench",
    "cloze",
    "compare",
    "demo",
    "embed",
    "embed_on_cluster",
    "evaluate",
    "expected_accuracy",
    "experiment",
    "from_pretrained",
    "from_table",
    "generate",
    "inspect",
    "load",
    "predict",
    "predict_on_cluster",
    "prepare",
    "push_to_hub",
    "read",
    "review",
    "save_pretrained",
    "serve",
    "suggest",
    "to_table",
    "train",
    "tune",
    "write",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import revup` is fast."""
    if name in _MODULES:
        return import_module(f"revup.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'revup' has no attribute '{name}'")
    return getattr(import_module(f"revup.{_HOMES[name]}"), name)
