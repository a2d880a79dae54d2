"""A training step: what it updates and what it returns."""

from __future__ import annotations

import pytest
import torch

from revup import ops
from revup.benchmark import Size, batches
from revup.models.randomness import Draws, step_seed
from revup.settings import Training, build_module
from revup.training.optimiser import make_optimiser, set_rate
from revup.training.processes import Processes
from revup.training.step import Step

CPU = torch.device("cpu")
SIZE = Size(words=60, frames=7, hidden=8, batch=6, network="small")


def test_a_step_is_the_loss_a_clipped_gradient_and_adam() -> None:
    batch = batches(SIZE, CPU, 1)[0]
    training = Training(clip=0.01)
    mine, reference = (build_module(SIZE.config(), SIZE.sizes) for _ in range(2))
    terms = Step(mine, make_optimiser(mine, training, CPU), training, Processes(), seed=3)(batch, 7)

    loss = reference(batch, Draws.seeded(step_seed(3, 7), batch.documents, CPU))
    loss.total.backward()
    torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.01)
    torch.optim.Adam(reference.parameters(), lr=training.learning_rate).step()
    assert terms == {"loss": loss.total, **loss.terms}
    for one, two in zip(mine.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_plain_and_chunked_steps_agree() -> None:
    batch, training = batches(SIZE, CPU, 1)[0], Training()
    weights = []
    for mode in ("plain", "auto"):
        module = build_module(SIZE.config(), SIZE.sizes)
        with ops.using(mode):
            Step(module, make_optimiser(module, training, CPU), training, Processes(), seed=3)(batch, 0)
        weights.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-4)


def test_the_learning_rate_can_be_set() -> None:
    module = torch.nn.Linear(2, 2)
    optimiser = make_optimiser(module, Training(), CPU)
    set_rate(optimiser, 0.5)
    assert [group["lr"] for group in optimiser.param_groups] == [0.5]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="captures need a GPU")
def test_a_captured_step_equals_an_eager_one() -> None:
    device, training = torch.device("cuda", 0), Training(batch_size=SIZE.batch)
    given = batches(SIZE, device, 1)
    weights = []
    for mode in ("plain", "auto"):
        module = build_module(SIZE.config(), SIZE.sizes).to(device)
        with ops.using(mode):
            step = Step(module, make_optimiser(module, training, device), training, Processes(), seed=3)
            for number in range(8):
                step(given[0], number)
        assert (step.graph is not None) == (mode == "auto")
        weights.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
    torch.testing.assert_close(*weights, rtol=1e-2, atol=1e-3)
