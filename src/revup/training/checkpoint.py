"""Checkpoints: everything that a resumed run needs, in one file."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from revup.errors import InputError
from revup.inference.trained import load_weights
from revup.io.tensors import load_tensors, save_tensors


@dataclass
class State:
    """Where a run stands."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    best: float | None = None  # best score so far, signed so that larger is better
    best_step: int = 0
    stale: int = 0  # validations since
    best_perplexity: float | None = None  # lowest so far, before the frames settled
    settled: bool = False  # the frames are as they stay; the decoder goes on, since
    settled_epoch: int = 0
    settled_step: int = 0
    finished: bool = False
    shard_rows: int = 0
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)  # what the model reported of the data before training


def save_checkpoint(
    path: Path, module: nn.Module, optimiser: torch.optim.Adam, state: State, text: dict[str, Tensor] | None = None
) -> None:
    """Everything a resume needs, in one file. text: weights of the parts that write it, as they were at their best."""
    tensors = {f"model/{name}": tensor for name, tensor in module.state_dict().items()}
    tensors |= {f"text/{name}": tensor for name, tensor in (text or {}).items()}
    for name, parameter in module.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"adam/{key}/{name}"] = value
    save_tensors(path, tensors, {"state": asdict(state)})


def load_checkpoint(
    path: Path, module: nn.Module, optimiser: torch.optim.Adam
) -> tuple[State, dict[str, Tensor] | None]:
    """Put module and optimiser back; where the run stood, and the text's best weights, if they were kept."""
    tensors, meta = load_tensors(path)
    if "state" not in meta:
        raise InputError("not a checkpoint of a training run", str(path))
    load_weights(module, {n[6:]: t for n, t in tensors.items() if n.startswith("model/")}, path)
    device = next(module.parameters()).device
    parameters = dict(module.named_parameters())
    for full, value in tensors.items():
        if full.startswith("adam/"):
            _, key, name = full.split("/", 2)
            optimiser.state.setdefault(parameters[name], {})[key] = value.to(device)
    text = {name[5:]: value.to(device) for name, value in tensors.items() if name.startswith("text/")}
    return State(**meta["state"]), text or None


class Clock:
    """Seconds since it was made, on top of those of earlier sittings."""

    def __init__(self, before: float = 0.0) -> None:
        self._start = time.monotonic() - before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start
