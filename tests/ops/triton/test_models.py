"""Every model's loss and gradients are the same with all operations fused and with all of them plain."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from revup import ops
from revup.benchmark import RandomCorpus, Size
from revup.models.randomness import Draws
from revup.settings import Config, build_module

CPU = torch.device("cpu")
SIZE = Size(words=40, frames=9, hidden=8, batch=4)
NETWORK = {"embedding": 5, "hidden": 8, "latent": 4, "frame": 6}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    *((model, preset, {}) for model in ("revup", "ssdvae", "haqae") for preset in ("default", "paper")),
    ("tagger", "default", {}),
    ("tagger", "plain", {}),
    ("rnnlm", "default", {}),
    ("revup", "released", {}),
    ("revup", "paper", {"straight_through": True}),
    ("revup", "default", {"noise": "none"}),
    ("revup", "default", {"samples": 2}),
    ("revup", "default", {"prior": "none"}),
    ("revup", "default", {"noise_rate": 0.3, "gate": 0.0}),
    ("revup", "default", {"straight_through": True}),
    ("ssdvae", "default", {"straight_through": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "preset", "objective"), CASES)
def test_loss_and_gradients(model: str, preset: str, objective: dict[str, Any]) -> None:
    config = Config.make(model, preset, overrides={"network": NETWORK, "objective": objective})
    module, corpus = build_module(config, SIZE.sizes).train(), RandomCorpus(SIZE, 30)
    module.prepare(corpus, config.observation)
    batch = next(module.batches(corpus.split("train"), config.observation, SIZE.batch, training=True).ordered())
    batch.observed[0] = batch.weights[0] = batch.other[0] = 0.0
    batch.belief[2], batch.other[2], batch.weights[2] = 1.0, 0.0, F.one_hot(torch.tensor(0), batch.weights.shape[-1])
    batch.mask[1, 2:] = False  # a shorter document
    batch.events, batch.observed_events = torch.tensor(17.0), torch.tensor(12.0)  # tensors, as a captured step has them
    if config.network.context and hasattr(module, "residual"):  # as after some training
        nn.init.normal_(module.residual.context.out.weight)

    def gradients(mode: str) -> dict[str, Tensor]:
        module.zero_grad(set_to_none=True)
        with ops.using(mode):
            with ops.defer_gradients(module):
                loss = module(batch, Draws.seeded(3, batch.documents, CPU))
            loss.total.backward()
        found = {name: part.grad for name, part in module.named_parameters() if part.grad is not None}
        return {**found, "loss": loss.total.detach(), **loss.terms}

    plain, fused = gradients("plain"), gradients("fused")
    assert plain.keys() == fused.keys()
    for name in plain:
        torch.testing.assert_close(fused[name], plain[name], rtol=1e-3, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
