"""Checkpoints: everything that a resumed run needs, in one file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from revup.errors import InputError
from revup.inference.weights import check_fit, check_values, load_weights
from revup.io.tensors import load_tensors, save_tensors
from revup.training.optimiser import Optimiser

MOST_STALE = 10**6  # validations without improvement that a checkpoint may speak of


@dataclass
class TrainingState:
    """Where training stands. With the weights and Adam's moments it determines all that follows.

    Attributes:
        step: Optimiser steps taken.
        epoch: Epochs completed.
        batch: Batches of the current epoch that are done.
        best: Best validation score so far, signed so that larger is better.
        best_step: Step of that validation.
        stale: Validations since then.
        best_perplexity: Lowest validation perplexity before the decoder phase.
        text_step: Step of that validation, where the perplexity has an epoch of its own.
        text_stale: Validations since then.
        settled: Whether the decoder phase has begun: the frames are frozen.
        settled_epoch: Epochs completed when it began.
        settled_step: Steps taken when it began.
        finished: Whether training has ended.
        shard_rows: Documents held on the device at a time.
        seconds: Training time so far.
        figures: What the model reported about the data before the first step.
        summed_steps: Steps since the last report.
        summed_documents: Documents of those steps.
        sums: Their loss terms, added up.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    best_perplexity: float | None = None
    text_step: int = 0
    text_stale: int = 0
    settled: bool = False
    settled_epoch: int = 0
    settled_step: int = 0
    finished: bool = False
    shard_rows: int = 0
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    summed_steps: int = 0
    summed_documents: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)


def save_checkpoint(
    path: Path,
    module: nn.Module,
    optimiser: Optimiser,
    state: TrainingState,
    decoder: dict[str, Tensor] | None = None,
) -> None:
    """Write all that a resume needs into one file, atomically.

    Args:
        path: The file.
        module: The model, with the weights of the last step.
        optimiser: Its optimiser.
        state: Where training stands.
        decoder: Weights of the decoder at its lowest perplexity, before the decoder phase; all weights where the
            perplexity has an epoch of its own.
    """
    tensors = {f"model/{name}": tensor for name, tensor in module.state_dict().items()}
    tensors |= {f"decoder/{name}": tensor for name, tensor in (decoder or {}).items()}
    tensors |= {f"sums/{name}": tensor for name, tensor in state.sums.items()}
    for name, parameter in module.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"adam/{key}/{name}"] = value
    plain = {item.name: getattr(state, item.name) for item in fields(state) if item.name != "sums"}
    save_tensors(path, tensors, {"state": plain})


def load_checkpoint(
    path: Path, module: nn.Module, optimiser: Optimiser
) -> tuple[TrainingState, dict[str, Tensor] | None]:
    """Put model and optimiser into the state of a checkpoint.

    Args:
        path: The file.
        module: The model, whose weights are replaced.
        optimiser: Its optimiser, whose moments are replaced.

    Returns:
        Where training stood, and the weights of the decoder at its lowest perplexity if they were kept.

    Raises:
        InputError: The file is damaged, no checkpoint, or one of another model.
    """
    tensors, meta = load_tensors(path)
    if not _is_state(meta.get("state")):
        raise InputError("not a checkpoint of this version of revup", str(path))
    check_values(tensors, path)
    device = next(module.parameters()).device
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "decoder": {}, "sums": {}, "adam": {}}
    for full, tensor in tensors.items():
        part, _, name = full.partition("/")
        parts.setdefault(part, {})[name] = tensor
    load_weights(module, parts["model"], path)
    parameters = dict(module.named_parameters())
    expected = {f"decoder/{name}": tensor for name, tensor in module.state_dict().items()}
    expected |= {f"adam/{key}/{name}": p for name, p in parameters.items() for key in ("exp_avg", "exp_avg_sq")}
    expected |= {f"adam/step/{name}": torch.zeros(()) for name in parameters}
    expected |= {f"sums/{name}": tensor.sum() for name, tensor in parts["sums"].items()}
    check_fit({name: tensor for name, tensor in tensors.items() if not name.startswith("model/")}, expected, path)
    for full, tensor in parts["adam"].items():
        key, _, name = full.partition("/")
        optimiser.state.setdefault(parameters[name], {})[key] = tensor.to(device)
    if any(len(held) != 3 for held in optimiser.state.values()):
        raise InputError("damaged: moments of the optimiser are missing", str(path))
    sums, decoder = ({name: t.to(device) for name, t in parts[part].items()} for part in ("sums", "decoder"))
    return TrainingState(**meta["state"], sums=sums), decoder or None


def _is_state(found: Any) -> bool:
    """Whether a JSON value holds what `save_checkpoint` wrote of a `TrainingState`."""
    if not isinstance(found, dict):
        return False
    kinds = {item.name: _KINDS.get(str(item.type)) for item in fields(TrainingState)}
    checks = ((kinds.get(name), value) for name, value in found.items())
    return all(kind is not None and kind(value) for kind, value in checks) and found.get("stale", 0) <= MOST_STALE


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


_KINDS: dict[str, Callable[[Any], bool]] = {  # of the fields of `TrainingState`, as JSON has them
    "int": lambda value: type(value) is int and 0 <= value < 2**63,
    "bool": lambda value: type(value) is bool,
    "float": _is_number,
    "float | None": lambda value: value is None or _is_number(value),
    "dict[str, float]": lambda value: type(value) is dict and all(map(_is_number, value.values())),
}
