"""A checkpoint holds all that a resume needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from revup.errors import InputError
from revup.io.tensors import load_tensors, save_tensors
from revup.settings import Training
from revup.training.checkpoint import TrainingState, load_checkpoint, save_checkpoint
from revup.training.optimiser import Optimiser, make_optimiser

CPU = torch.device("cpu")


def stepped() -> tuple[torch.nn.Linear, Optimiser]:
    """A small module after three steps, and its optimiser."""
    module = torch.nn.Linear(3, 2)
    optimiser = make_optimiser(module, Training(), CPU)
    for _ in range(3):
        module(torch.ones(1, 3)).square().sum().backward()
        optimiser.step()
    return module, optimiser


def fresh(inputs: int = 3) -> tuple[torch.nn.Linear, Optimiser]:
    module = torch.nn.Linear(inputs, 2)
    return module, make_optimiser(module, Training(), CPU)


def test_checkpoint_restores_weights_moments_and_state(tmp_path: Path) -> None:
    (module, optimiser), (other, its_optimiser) = stepped(), fresh()
    state = TrainingState(step=3, epoch=1, best=-0.5, figures={"noise_rate": 0.25}, summed_steps=2)
    state.sums = {"loss": torch.tensor(1.5), "half": torch.tensor(0.25, dtype=torch.bfloat16)}
    decoder = {"bias": torch.ones(2)}
    save_checkpoint(tmp_path / "c", module, optimiser, state, decoder)
    found, text = load_checkpoint(tmp_path / "c", other, its_optimiser)
    assert found == state
    assert all(found.sums[name].dtype == tensor.dtype for name, tensor in state.sums.items())
    assert text is not None
    assert torch.equal(text["bias"], decoder["bias"])
    assert torch.equal(other.weight, module.weight)
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        moments, expected = its_optimiser.state[theirs], optimiser.state[mine]
        assert moments.keys() == expected.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(moments[key], expected[key]) for key in moments)


def test_checkpoint_without_decoder_weights(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", *stepped(), TrainingState())
    assert load_checkpoint(tmp_path / "c", *fresh()) == (TrainingState(), None)


def test_weights_are_no_checkpoint(tmp_path: Path) -> None:
    save_tensors(tmp_path / "w", stepped()[0].state_dict(), {"model": "revup"})
    with pytest.raises(InputError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "w", *fresh())


def test_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", *stepped(), TrainingState())
    with pytest.raises(InputError, match="do not fit this model"):
        load_checkpoint(tmp_path / "c", *fresh(inputs=4))


@pytest.mark.parametrize("value", ["3", True, None, [3], 2.5])
def test_state_of_another_type_is_no_checkpoint(tmp_path: Path, value: object) -> None:
    save_tensors(tmp_path / "c", {}, {"state": {"step": value}})
    with pytest.raises(InputError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "c", *fresh())


@pytest.mark.parametrize("state", [{"step": -1}, {"stale": 10**12}, {"best": 1e999}, {"figures": {"a": "b"}}])
def test_state_that_no_run_has_is_no_checkpoint(tmp_path: Path, state: dict[str, Any]) -> None:
    save_tensors(tmp_path / "c", {}, {"state": state})
    with pytest.raises(InputError, match="not a checkpoint"):
        load_checkpoint(tmp_path / "c", *fresh())


def test_missing_moments_are_refused(tmp_path: Path) -> None:
    module, optimiser = stepped()
    save_checkpoint(tmp_path / "c", module, optimiser, TrainingState())
    tensors, meta = load_tensors(tmp_path / "c")
    save_tensors(tmp_path / "c", {n: t for n, t in tensors.items() if n != "adam/exp_avg_sq/bias"}, meta)
    with pytest.raises(InputError, match="moments of the optimiser are missing"):
        load_checkpoint(tmp_path / "c", *fresh())


@pytest.mark.parametrize("name", ["adam/exp_avg/other", "adam/exp_avg/weight", "adam/x/bias", "decoder/bias", "sums/a"])
def test_moments_that_fit_no_parameter_are_refused(tmp_path: Path, name: str) -> None:
    weights = {f"model/{part}": tensor for part, tensor in fresh()[0].state_dict().items()}
    save_tensors(tmp_path / "c", {**weights, name: torch.zeros(7)}, {"state": {}})
    with pytest.raises(InputError, match=f"'{name}' does not fit"):
        load_checkpoint(tmp_path / "c", *fresh())
