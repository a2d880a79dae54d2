"""Random numbers: of a training step, as a function of its seed alone, and of texts that are written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from revup import ops


class Draws:
    """All randomness of one step, a function of its seed alone.

    Numbers are drawn for the whole batch and sliced to this process's rows, so that results do not depend on the number
    of processes. With `copies` = S each document has S adjacent samples.
    """

    def __init__(self, generator: torch.Generator, documents: int, rows: slice = slice(None), copies: int = 1) -> None:
        self.generator, self.documents, self.rows, self.copies = generator, documents, rows, copies

    @classmethod
    def seeded(
        cls, seed: int, documents: int, device: torch.device, rows: slice = slice(None), copies: int = 1
    ) -> Draws:
        return cls(torch.Generator(device).manual_seed(seed % 2**63), documents, rows, copies)

    def normal(self, *shape: int) -> Tensor:
        return self._cut(torch.randn(self._shape(shape), generator=self.generator, device=self.generator.device))

    def uniform(self, *shape: int) -> Tensor:
        return self._cut(torch.rand(self._shape(shape), generator=self.generator, device=self.generator.device))

    def dropout(self, x: Tensor, rate: float) -> Tensor:
        """Zero elements of x [B, ...] at this rate and scale up the rest."""
        if rate == 0:
            return x
        return ops.dropout(x, self.drawn(*x.shape[1:]), rate)

    def drawn(self, *shape: int) -> Tensor:
        """U[0,1) numbers [B, ...], one copy per document."""
        return torch.rand((self.documents, *shape), generator=self.generator, device=self.generator.device)[self.rows]

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.documents, self.copies, *shape)

    def _cut(self, numbers: Tensor) -> Tensor:
        return numbers[self.rows].flatten(0, 1)


def step_seed(seed: int, step: int, purpose: str = "train") -> int:
    """The seed of one step's randomness."""
    digest = hashlib.blake2b(f"{purpose}/{seed}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 2**63


def draw_numbers(probabilities: Tensor, generators: Sequence[np.random.Generator]) -> list[list[int]]:
    """Draw from M distributions [M, K] once with each generator; returns class numbers, [generators][M]."""
    cumulative = np.cumsum(probabilities.double().cpu().numpy(), axis=1)
    return [
        [
            int(np.searchsorted(row, u * row[-1], "right"))
            for row, u in zip(cumulative, generator.random(len(cumulative)), strict=True)
        ]
        for generator in generators
    ]
