"""Putting weights into a model, after a comparison of their header with the shapes that the settings describe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from revup.errors import InputError, RevupError
from revup.io.tensors import Header
from revup.models import model_class
from revup.models.base import Model
from revup.models.layers import InputWords
from revup.models.network import Sizes
from revup.settings import Config, build_module


def check_header(header: Header, path: Path, config: Config, sizes: Sizes) -> None:
    """Refuse weights that are not those of a model, before the weights are read or the model is allocated.

    A damaged configuration may ask for sizes that no memory holds: the model is built on torch's meta device, which
    holds shapes alone, after a look at how many parts it would have.

    Args:
        header: Names, shapes and types of the weights.
        path: The file that it comes from.
        config: Settings of the model.
        sizes: The sizes of its vocabulary, frame list and windows.

    Raises:
        InputError: Names, shapes or types differ, or no such model can be built; the message names the first one.
    """
    shapes = header.shapes
    parts = max(config.network.layers, 1 if config.network.shared else sizes.events)
    if model_class(config.model).learns and parts > max(len(shapes), 1):
        message = f"config.json describes {parts} layers or events, the file holds {len(shapes)} tensors"
        raise InputError(message, str(path))
    try:
        with torch.device("meta"), WithoutValues():
            module = build_module(config, sizes)
    except RevupError as error:
        raise InputError(f"damaged: no such model can be built: {error}", str(path.with_name("config.json"))) from None
    except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError):
        raise InputError(
            "damaged: no model can be built of these settings", str(path.with_name("config.json"))
        ) from None
    parameters, described = dict(module.named_parameters()), module.state_dict()
    other = next((name for name in shapes if name not in described), None)
    if other is not None:
        raise InputError(f"the weights do not fit config.json: '{other[:60]}' is not of this model", str(path))
    for name, tensor in described.items():
        if name not in shapes:
            raise InputError(f"the weights do not fit config.json: '{name}' is missing", str(path))
        # the number of rows of a buffer may follow from the training data
        first = 0 if name in parameters else 1
        expected, there = tuple(tensor.shape), shapes[name]
        if len(expected) != len(there) or expected[first:] != there[first:]:
            found = f"'{name}' is {_shown(there)}, expected {_shown(expected)}"
            raise InputError(f"the weights do not fit config.json: {found}", str(path))
        if header.types[name] != tensor.dtype:
            found = f"'{name}' has numbers of another type than {str(tensor.dtype).removeprefix('torch.')}"
            raise InputError(f"the weights do not fit config.json: {found}", str(path))


def check_fit(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors whose names, shapes or types are not those expected; some may be missing.

    Args:
        tensors: Tensors of a file.
        expected: Tensors of the same shapes and types, by name.
        path: The file.

    Raises:
        InputError: One does not fit; the message names it.
    """
    for name, tensor in tensors.items():
        own = expected.get(name)
        if own is None or (own.shape, own.dtype) != (tensor.shape, tensor.dtype):
            raise InputError(f"weights of another model: '{name[:60]}' does not fit", str(path))


def check_values(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse weights that are no numbers.

    Args:
        tensors: The weights.
        path: The file that they come from.

    Raises:
        InputError: There is a NaN or an infinite number; the message names the weight.
    """
    for name, tensor in tensors.items():
        if not _are_finite(tensor):
            raise InputError(f"damaged: '{name[:60]}' holds values that are no finite numbers", str(path))


def _are_finite(tensor: Tensor) -> bool:
    """Whether all values are finite; without a temporary of their size."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    return bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())


def check_vectors(module: Model, path: Path, rows: int) -> None:
    """Refuse arrays by word that are not those of a vocabulary: words would be looked up beyond their end.

    Args:
        module: A model with its weights.
        path: The file that they come from.
        rows: Words of the vocabulary and beyond it.

    Raises:
        InputError: There are rows, and not one for each word.
    """
    for name in module.word_arrays:
        if len(module.get_buffer(name)) not in (0, rows):
            found = f"'{name}' has {len(module.get_buffer(name))} rows for {rows} words"
            raise InputError(f"the weights do not fit the vocabulary: {found}", str(path))
    for part in module.modules():
        if isinstance(part, InputWords) and {len(part.given), len(part.has)} - {0} not in (set(), {rows}):
            found = f"{len(part.given)} vectors for {rows} words"
            raise InputError(f"the weights do not fit the vocabulary: {found}", str(path))


_NO_VALUES = ("requires_grad_", "t_")  # change a tensor in place, but none of its values


class WithoutValues(TorchFunctionMode):
    """Skips what changes values and no shapes, where a model is built to be filled with loaded weights.

    On the meta device that would do nothing, but import half of torch; on others it would take longer than loading.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, options = func.__name__, kwargs or {}
        target = args[0] if args else options.get("tensor")
        fills = name == "__setitem__" or (name.endswith("_") and not name.endswith("__") and name not in _NO_VALUES)
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
