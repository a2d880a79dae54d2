"""Tensors as safetensors files with a digest of their contents."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from revup.errors import InputError


def save_tensors(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """A safetensors file, there whole or not at all, with a digest of its contents; equal inputs give equal bytes."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    header = json.dumps({**meta, "digest": _digest(plain)}, sort_keys=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        save_file(plain, partial, metadata={"revup": header})
        with open(partial, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(partial, path)
    except (safetensors.SafetensorError, OSError) as error:
        raise InputError(f"can't be written: {error}", str(path)) from None
    finally:
        partial.unlink(missing_ok=True)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and their record; a truncated, tampered or foreign file is one clear error."""
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as stream:
            meta = json.loads((stream.metadata() or {}).get("revup", "null"))
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputError("no such file", str(path)) from None
    except (safetensors.SafetensorError, ValueError, OSError) as error:
        raise InputError(f"not a safetensors file, or a truncated one: {error}", str(path)) from None
    if not isinstance(meta, dict) or "digest" not in meta:
        raise InputError("a safetensors file, but not one that revup wrote", str(path))
    if meta.pop("digest") != _digest(tensors):
        raise InputError("the contents do not match their digest: the file was changed or damaged", str(path))
    return tensors, meta


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
