"""Compare arithmetics: float32 with float64 for every loss and gradient, bf16 with float32, one process with two.

    export PYTHONPATH=tests
    python tests/campaigns/arithmetic.py [--short] [--out result.json]

The same batch, weights and random numbers go through a model twice. Losses are compared by their relative difference,
gradients by the norm of the difference over the norm. Prints a table with the versions of Python and torch, so that
runs in other environments can be laid side by side; the exit status is 1 where a difference is above its limit.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import revup
from revup import ops
from revup.data.batches import Batch
from revup.data.corpus import Corpus
from revup.io.files import commit, write_json
from revup.models import CLASSES, model_class
from revup.models.base import Model
from revup.models.network import Sizes
from revup.models.randomness import Draws
from revup.ops.precision import precision
from revup.settings import Config, build_module
from revup.world.world import World

TINY = {"hidden": 24, "embedding": 16, "latent": 12, "frame": 16}
LIMITS = {  # of relative differences: loss, gradient
    "float32": (1e-5, 1e-4),
    "bf16": (2e-2, 1.5e-1),
    "two processes": (1e-5, 1e-3),
}
CPU = torch.device("cpu")


class SameDraws(Draws):
    """Draws in float32, given in another type: both arithmetics see the same numbers."""

    kind = torch.float32

    def normal(self, *shape: int) -> Tensor:
        with default(torch.float32):
            return super().normal(*shape).to(self.kind)

    def uniform(self, *shape: int) -> Tensor:
        with default(torch.float32):
            return super().uniform(*shape).to(self.kind)

    def drawn(self, *shape: int) -> Tensor:
        with default(torch.float32):
            return super().drawn(*shape).to(self.kind)


@contextmanager
def default(kind: torch.dtype) -> Iterator[None]:
    """New tensors are of this type."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def make_corpus(folder: Path) -> Corpus:
    """Documents of a small world."""
    world = World(frames=12, seed=1, words=200, events=5)
    return Corpus.build(world.sample(240), out=folder / "data", split=(0.8, 0.1, 0.1))


def cases() -> list[tuple[str, str]]:
    """Every model that learns, in every preset."""
    return [(m, p) for m in CLASSES if model_class(m).learns for p in ("default", "paper", "released")]


def losses_and_gradients(module: Model, batch: Batch, kind: torch.dtype, bf16: bool = False) -> dict[str, Any]:
    """The loss terms of a step and the gradients of all weights, in float64."""
    draws = SameDraws(torch.Generator().manual_seed(7), batch.documents, batch.rows)
    draws.kind = kind
    module.zero_grad(set_to_none=True)
    with precision("bf16" if bf16 else "float32", CPU):
        loss = module(replace(batch), draws)
    loss.total.backward()
    terms = {"loss": loss.total, **loss.terms}
    gradients = {name: p.grad.double() for name, p in module.named_parameters() if p.grad is not None}
    return {"terms": {name: float(value.detach()) for name, value in terms.items()}, "gradients": gradients}


def as_kind(batch: Batch, kind: torch.dtype) -> Batch:
    """A batch whose real numbers are of another type."""
    parts = batch.parts()
    floats = {n: v.to(kind) for n, v in parts.items() if isinstance(v, Tensor) and v.is_floating_point()}
    return Batch(**{**parts, **floats})


@contextmanager
def in_float64() -> Iterator[None]:
    """Models lift half precision to float32 by `Tensor.float()`; here that must not take half of float64 away."""
    lift = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    try:
        with default(torch.float64):
            yield
    finally:
        torch.Tensor.float = lift  # type: ignore[method-assign]


def difference(found: dict[str, Any], exact: dict[str, Any]) -> tuple[float, float]:
    """The largest relative difference of a loss term, and that of all gradients together."""
    scale = max(abs(exact["terms"]["loss"]), 1e-6)
    terms = max(abs(found["terms"][name] - value) / max(abs(value), scale) for name, value in exact["terms"].items())
    apart = sum(float((found["gradients"][n] - g).square().sum()) for n, g in exact["gradients"].items())
    size = sum(float(g.square().sum()) for g in exact["gradients"].values())
    return terms, (apart / max(size, 1e-30)) ** 0.5


def arithmetics(corpus: Corpus, model: str, preset: str) -> dict[str, tuple[float, float]]:
    """float32 against float64, and bf16 against float32, on one step of a model."""
    config = Config.make(model, preset, 0.6, 0.2, 3, {"network": TINY})
    module = build_module(config, Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events))
    module.prepare(corpus, config.observation)
    module.train()
    batch = next(module.batches(corpus.split("train"), config.observation, 64, training=True).ordered())
    single = losses_and_gradients(copy.deepcopy(module), batch, torch.float32)  # a step may change buffers
    half = losses_and_gradients(copy.deepcopy(module), batch, torch.float32, bf16=True)
    with ops.using("plain"), in_float64():
        doubled = losses_and_gradients(copy.deepcopy(module).double(), as_kind(batch, torch.float64), torch.float64)
    return {"float32": difference(single, doubled), "bf16": difference(half, single)}


WORKER = """
import json, os, sys, torch
torch.set_num_threads(1)
import revup
corpus = revup.Corpus.load(sys.argv[1])
for model, out in json.loads(sys.argv[2]):
    training = {"epochs": 2, "batch_size": 50, "settle": 0.0}
    network = json.loads(sys.argv[3])
    revup.train(corpus, model, 0.6, 0.2, 3, out, network=network, training=training, device="cpu")
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
"""


def processes(corpus: Corpus, models: list[str], folder: Path) -> dict[str, tuple[float, float]]:
    """Runs of one process and of two: the largest difference of a logged loss, and that of the weights."""
    script = folder / "worker.py"
    script.write_text(WORKER)
    launches = {"one": [sys.executable], "two": [sys.executable, "-m", "torch.distributed.run", "--standalone"]}
    launches["two"] += ["--nproc-per-node", "2"]
    for name, launch in launches.items():
        runs = json.dumps([[model, str(folder / f"{model}-{name}")] for model in models])
        subprocess.run([*launch, str(script), str(corpus.path), runs, json.dumps(TINY)], check=True, timeout=3600)
    found = {}
    for model in models:
        one, two = (folder / f"{model}-{name}" for name in launches)
        first, second = ([json.loads(line) for line in (r / "metrics.jsonl").open()] for r in (one, two))
        logged = max(
            abs(b["train"][key] - value) / max(abs(value), abs(a["train"]["loss"]), 1e-6)
            for a, b in zip(first, second, strict=True)
            for key, value in a["train"].items()
        )
        weights = [dict(revup.load(run).module.named_parameters()) for run in (one, two)]
        apart = sum(float((weights[1][n] - w).double().square().sum()) for n, w in weights[0].items())
        size = sum(float(w.double().square().sum()) for w in weights[0].values())
        found[model] = logged, (apart / size) ** 0.5
    return found


def measure(folder: Path, with_processes: bool = True) -> dict[str, dict[str, tuple[float, float]]]:
    """All comparisons: name of the case → arithmetic → relative differences of losses and of gradients (or weights)."""
    corpus = make_corpus(folder)
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for model, preset in cases():
        found[f"{model} {preset}"] = arithmetics(corpus, model, preset)
    if with_processes:
        models = [model for model in CLASSES if model_class(model).learns]
        for model, differences in processes(corpus, models, folder).items():
            found[f"{model} default"]["two processes"] = differences
    return found


def exceeded(found: dict[str, dict[str, tuple[float, float]]]) -> list[str]:
    """The comparisons whose differences are above the limits, in words."""
    return [
        f"{case}: {kind}: {differences} is above {LIMITS[kind]}"
        for case, own in found.items()
        for kind, differences in own.items()
        if not all(d <= limit for d, limit in zip(differences, LIMITS[kind], strict=True))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--short", action="store_true", help="without runs of two processes")
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    with tempfile.TemporaryDirectory(prefix="revup-arithmetic-") as place:
        found = measure(Path(place), not options.short)
    kinds = list(LIMITS)
    print(f"{'':<18}" + "".join(f"{kind + ': loss, gradient':>34}" for kind in kinds))
    for case, own in found.items():
        cells = (f"{own[kind][0]:.1e}, {own[kind][1]:.1e}" if kind in own else "" for kind in kinds)
        print(f"{case:<18}" + "".join(f"{cell:>34}" for cell in cells))
    wrong = exceeded(found)
    for problem in wrong:
        print(problem, file=sys.stderr)
    if options.out is not None:
        about = {"date": date.today().isoformat(), "commit": commit(), **versions, "limits": LIMITS}
        write_json(options.out, {**about, "differences": found})
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
