"""Putting weights into a model, after a comparison of their shapes with those that the settings describe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from revup.errors import InputError, RevupError
from revup.models.base import Sizes
from revup.settings import Config, build_module


def check_shapes(tensors: Mapping[str, Tensor], path: Path, config: Config, sizes: Sizes) -> None:
    """Refuse weights that are not those of a model, without allocating the model.

    A damaged configuration may ask for sizes that no memory holds: the model is built on torch's meta device, which
    holds shapes alone, after a look at how many parts it would have.

    Args:
        tensors: The weights.
        path: The file that they come from.
        config: Settings of the model.
        sizes: The sizes of its vocabulary, frame list and windows.

    Raises:
        InputError: Names or shapes differ, or no such model can be built; the message names the first difference.
    """
    parts = max(config.network.layers, 1 if config.network.shared else sizes.events)
    if parts > max(len(tensors), 1):
        message = f"config.json describes {parts} layers or events, the file holds {len(tensors)} tensors"
        raise InputError(message, str(path))
    try:
        with torch.device("meta"), _WithoutValues():
            module = build_module(config, sizes)
    except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError, RevupError) as error:
        raise InputError(f"damaged: no such model can be built: {error}", str(path.with_name("config.json"))) from None
    parameters = dict(module.named_parameters())
    for name, tensor in module.state_dict().items():
        if name not in tensors:
            raise InputError(f"the weights do not fit config.json: '{name}' is missing", str(path))
        # the number of rows of a buffer may follow from the training data
        first = 0 if name in parameters else 1
        expected, there = tensor.shape, tensors[name].shape
        if len(expected) != len(there) or expected[first:] != there[first:]:
            shapes = f"'{name}' is {_shown(there)}, expected {_shown(expected)}"
            raise InputError(f"the weights do not fit config.json: {shapes}", str(path))


class _WithoutValues(TorchFunctionMode):
    """Skips what changes values and no shapes: on the meta device that does nothing, but imports half of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, options = func.__name__, kwargs or {}
        target = args[0] if args else options.get("tensor")
        fills = name == "__setitem__" or (name.endswith("_") and not name.endswith("__") and name != "requires_grad_")
        scales = name in ("mul", "sub", "add") and isinstance(args[1], int | float)
        if (fills or scales) and isinstance(target, Tensor):
            return target
        return (torch.empty if name in ("rand", "randn") else func)(*args, **options)


def load_weights(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Put weights into a module.

    Args:
        module: The module.
        tensors: Its weights by name.
        path: The file that they come from, for the error.

    Raises:
        InputError: Names or shapes differ.
    """
    try:
        module.load_state_dict(tensors)
    except (RuntimeError, RevupError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the weights do not fit this model: {reason[:300]}", str(path)) from None


def _shown(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a number"
