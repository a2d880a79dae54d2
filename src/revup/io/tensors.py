"""Tensors as safetensors files with a digest of their contents.

The header of such a file says the shape of every tensor; `read_header` reads it alone, so that a caller can refuse a
file before anything of its size is allocated.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import torch
from safetensors.torch import save
from torch import Tensor

from revup.errors import InputError, reason
from revup.io.files import atomic_file, require_file


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Write a safetensors file atomically, with a digest of its contents; equal inputs give equal bytes.

    Args:
        path: The file.
        tensors: The tensors by name.
        meta: A JSON object kept in the file's header.

    Raises:
        UnfinishedError: The disk is full or failed.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    header = json.dumps({**meta, "digest": _digest(plain)}, sort_keys=True)
    # not `save_file`: it makes a hidden file of its own, which a kill leaves
    content = save(plain, metadata={"revup": header})
    with atomic_file(path) as stream:
        stream.write(content)


_TYPES = {  # by their names in a header
    "F64": torch.float64,
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class Header(NamedTuple):
    """The header of a safetensors file.

    Attributes:
        shapes: The shape of every tensor, by name.
        types: The type of its numbers; None for one that revup never writes.
        meta: The JSON object that `save_tensors` kept.
    """

    shapes: dict[str, tuple[int, ...]]
    types: dict[str, torch.dtype | None]
    meta: dict[str, Any]


def read_header(path: Path) -> Header:
    """Read the shapes and types of the tensors that `save_tensors` wrote, and none of their values.

    Args:
        path: The file.

    Raises:
        InputError: The file is missing, truncated or not one of revup's.
    """
    with _opened(path) as (stream, meta):
        parts = {name: stream.get_slice(name) for name in stream.keys()}  # noqa: SIM118
        shapes = {name: tuple(part.get_shape()) for name, part in parts.items()}
        return Header(shapes, {name: _TYPES.get(part.get_dtype()) for name, part in parts.items()}, meta)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the JSON object that `save_tensors` wrote.

    Raises:
        InputError: The file is missing, truncated, changed or not one of revup's.
    """
    with _opened(path) as (stream, meta):
        tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    if meta.pop("digest") != _digest(tensors):
        raise InputError("the contents do not match their digest: the file was changed or damaged", str(path))
    return tensors, meta


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """A safetensors file of revup's, and the JSON object in its header."""
    try:
        require_file(path)
        with safetensors.safe_open(path, framework="pt", device="cpu") as stream:
            meta = _parse((stream.metadata() or {}).get("revup", "null"))
            if not isinstance(meta, dict) or "digest" not in meta:
                raise InputError("a safetensors file, but not one that revup wrote", str(path))
            yield stream, meta
    except FileNotFoundError:
        raise InputError("no such file", str(path)) from None
    except (safetensors.SafetensorError, ValueError, OSError) as error:
        raise InputError(f"not a safetensors file, or a truncated one: {_problem(error)}", str(path)) from None


def _problem(error: Exception) -> str:
    """What a library says of a file, without the names of its own types: `No space left on device`."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return os.strerror(int(number[1])) if number else reason(error).removeprefix("Error while ")


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.as_strided((tensor.numel(),), (1,))  # the stride of a single number may be anything
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
