"""A compiled step computes what the plain one does. Code is not generated here (that takes a minute): what is tested is
what the compiler sees, where it stops, and what it makes of the gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from revup.bench import Size, batches
from revup.data.batches import Batch
from revup.models.base import Draws
from revup.settings import Config, Training, build_module
from revup.training.optimiser import make_optimiser
from revup.training.processes import Processes
from revup.training.step import _Step, compiled

CPU = torch.device("cpu")
SIZE = Size(words=60, frames=7, hidden=8, batch=6, network="small")


def gradients(loss_of: Any, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
    module.zero_grad(set_to_none=True)
    loss = loss_of(batch, Draws.seeded(3, batch.documents, CPU))
    loss.total.backward()
    found = {name: part.grad for name, part in module.named_parameters() if part.grad is not None}
    return {**found, "loss": loss.total.detach(), **loss.terms}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["revup", "ssdvae", "rnnlm", "tagger"])
def test_the_loss_and_every_gradient(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    network = {"embedding": 5, "hidden": 8, "latent": 4, "frame": 6}
    config = Config.make(model, overrides={"network": network})
    module = build_module(config, SIZE.sizes).train()
    batch = batches(SIZE, CPU, 1)[0]
    plain = gradients(module, module, batch)
    fast = gradients(compiled(module), module, batch)
    assert plain.keys() == fast.keys()
    for name in plain:
        torch.testing.assert_close(
            fast[name], plain[name], rtol=1e-4, atol=1e-7, msg=lambda text, n=name: f"{n}: {text}"
        )


def test_only_captured_steps_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU captures nothing, whatever is asked for."""
    monkeypatch.setattr("revup.training.step.compiled", lambda module: pytest.fail("compiled"))
    training = Training(compile="yes")
    module = build_module(SIZE.config(), SIZE.sizes)
    step = _Step(module, make_optimiser(module, training, CPU), training, Processes(), 1, 10**6)
    assert step.captured_loss_of is step.loss_of
    assert step.scale == 1.0
