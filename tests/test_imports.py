"""What importing revup loads, and what it trains with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import revup


def python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_revup_imports_nothing_heavy() -> None:
    loaded = python("import sys, revup; print(*(n for n in ('torch', 'numpy', 'safetensors') if n in sys.modules))")
    assert loaded.split() == []


HELP_OF_ALL_VERBS = """
import contextlib, io, sys
from revup import cli
for arguments in [[], *([verb, "--help"] for verb in cli.VERBS), ["train", "--help-all"]]:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as shown:
        cli.run(arguments)
    assert "usage: revup" in shown.getvalue(), arguments
    print(*(f"{arguments} imports {n}" for n in ("torch", "safetensors", "pyarrow") if n in sys.modules))
"""


def test_help_needs_no_torch() -> None:
    assert python(HELP_OF_ALL_VERBS).split() == []


def test_prediction_starts_without_the_compiler_and_has_it_when_it_is_used() -> None:
    code = """
import sys
from revup.cli.torch_import import POSTPONED, postpone_compiler
postpone_compiler()
import torch
import revup.inference.predict
assert len(vars(sys.modules[POSTPONED])) < 10
assert torch._meta_registrations.meta_index_Tensor is sys.modules[POSTPONED].meta_index_Tensor
with torch.device("meta"):
    print(torch.zeros(3, 4)[torch.zeros(5, dtype=torch.long)].shape)
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2)).sum())
"""
    assert python(code).split("\n")[:2] == ["torch.Size([5, 4])", "tensor(4.)"]


CORE_ALONE = """
import re, sys
from importlib.machinery import PathFinder
from importlib.metadata import distributions, packages_distributions

def plain(name):
    return re.match(r"[A-Za-z0-9._-]+", name)[0].lower().replace("_", "-")

installed = {plain(d.metadata["Name"]): d for d in distributions()}
queue, allowed = ["torch", "numpy", "safetensors"], {"revup"}
while queue:  # these three, and what they cannot be installed without
    name = queue.pop()
    if name in installed and name not in allowed:
        allowed.add(name)
        queue += [plain(text) for text in installed[name].requires or [] if "extra ==" not in text]
homes = packages_distributions()

class Bare:
    def find_spec(name, path=None, target=None):
        owners = {plain(owner) for owner in homes.get(name.partition(".")[0], ())}
        return None if owners and not owners & allowed else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
import revup.training.run, revup.training.loop, revup.inference.evaluate, revup.data.corpus
from revup.models import CLASSES, model_class
for name in CLASSES:
    model_class(name)
import torch
torch.set_num_threads(1)
corpus = revup.Corpus.load(sys.argv[1])
model = revup.train(corpus, network={"hidden": 8, "embedding": 8}, training={"epochs": 1})
print(revup.evaluate(model, corpus)["accuracy"] is not None)
try:
    import pytest
except ImportError:
    print("blocked")
"""


def test_core_trains_with_torch_numpy_and_safetensors_alone(tiny_path: Path) -> None:
    assert python(CORE_ALONE, str(tiny_path)).split() == ["True", "blocked"]


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        revup.nonsense  # noqa: B018
    assert all(getattr(revup, name) for name in revup.__all__)
