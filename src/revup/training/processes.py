"""Several processes that train one model together."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """This process among those that train together (started by torchrun)."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls, device: torch.device) -> Processes:
        """Join the other processes, if there are any."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        return cls(torch.distributed.get_rank(), count)

    def sum(self, values: Tensor) -> Tensor:
        """Add up over all processes."""
        if self.count > 1:
            torch.distributed.all_reduce(values)
        return values

    def wait(self) -> None:
        if self.count > 1:
            torch.distributed.barrier()
