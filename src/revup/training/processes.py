"""Several processes that train one model together."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """This process among those that train together (started by torchrun).

    Attributes:
        rank: The number of this process, from 0 on; process 0 writes the files.
        count: How many there are.
    """

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls, device: torch.device) -> Processes:
        """Join the other processes, if there are any.

        Args:
            device: Where this process trains; it decides how they communicate.
        """
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(torch.distributed.get_rank(), count)

    def sum(self, values: Tensor) -> Tensor:
        """Add a tensor up over all processes, in place."""
        if self.count > 1:
            torch.distributed.all_reduce(values)
        return values

    def any(self, value: bool, device: torch.device) -> bool:
        """Whether a value is true in any process."""
        return value if self.count == 1 else bool(self.sum(torch.tensor(float(value), device=device)) > 0)

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.count > 1:
            torch.distributed.barrier()
