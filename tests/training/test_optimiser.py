"""Adam on a CPU: torch's to the bit, without its compiler."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import torch

from revup.settings import Training
from revup.training.optimiser import PlainAdam, make_optimiser

TRAIN = """
import sys
import revup
network = {"embedding": 8, "hidden": 8, "latent": 4, "frame": 8}
revup.train(revup.Corpus.load(sys.argv[1]), network=network, training={"epochs": 1}, device="cpu")
print("torch._dynamo" in sys.modules)
"""


def test_steps_are_those_of_torch_to_the_bit() -> None:
    mine = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3), torch.nn.Linear(3, 3))
    theirs = copy.deepcopy(mine)
    optimiser, reference = make_optimiser(mine, Training(), torch.device("cpu")), torch.optim.Adam(theirs.parameters())
    assert isinstance(optimiser, PlainAdam)
    for number in range(60):
        inputs = torch.randn(4, 7, generator=torch.Generator().manual_seed(number))
        for module, own in ((mine, optimiser), (theirs, reference)):
            own.param_groups[0]["lr"] = 1e-2 / (number + 1)
            own.zero_grad()
            module[: 3 + number % 2](inputs).square().sum().backward()  # the last layer has a gradient now and then
            own.step()
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other)
        assert optimiser.state[one].keys() == reference.state[other].keys()
        assert all(
            torch.equal(optimiser.state[one][name], reference.state[other][name]) for name in optimiser.state[one]
        )


def test_training_does_not_import_the_compiler(tiny_path: Path) -> None:
    """It would take every process of a sweep, a search or a test a second."""
    found = subprocess.run([sys.executable, "-c", TRAIN, str(tiny_path)], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False"]
