"""The optimiser: torch's Adam, with large tensors as an operation of ours on a GPU."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from revup import ops
from revup.ops.streams import low_priority
from revup.settings import Training

LARGE = 2**18  # numbers


class Adam(torch.optim.Adam):
    """Torch's Adam. Where it is given a gradient scale, large tensors go by `ops.adam`, which fills a GPU better."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        amp, taken = cast(Any, self), self._large()
        with low_priority(self.param_groups[0]["params"][0].device):
            for group, p, gradient in taken:
                state = self.state[p]
                moments, settings = (state["exp_avg"], state["exp_avg_sq"]), (group["betas"], group["eps"])
                ops.adam(p, gradient, moments, state["step"], group["lr"], amp.grad_scale, amp.found_inf, *settings)
                p.grad = None  # nothing is left to do for torch's own
        if taken:
            steps = [self.state[p]["step"] for _, p, _ in taken]
            torch._foreach_add_(steps, 1.0)
            torch._foreach_sub_(steps, [amp.found_inf] * len(steps))
        result = super().step(closure)
        for _, p, gradient in taken:
            p.grad = gradient
        return result

    def _large(self) -> list[tuple[dict[str, Any], Tensor, Tensor]]:
        """Large tensors whose moments were made by a first step of torch's."""
        if "found_inf" not in vars(self):
            return []
        tensors = [(group, p, p.grad) for group in self.param_groups for p in group["params"]]
        return [
            (group, p, g)
            for group, p, g in tensors
            if g is not None and p.numel() >= LARGE and p.is_contiguous() and g.is_contiguous() and self.state.get(p)
        ]


def make_optimiser(module: nn.Module, training: Training, device: torch.device) -> torch.optim.Adam:
    """Adam over a module's parameters, fused and capturable on a GPU."""
    on_gpu = device.type == "cuda"
    rate = torch.tensor(training.learning_rate, device=device) if on_gpu else training.learning_rate
    return Adam(module.parameters(), lr=rate, fused=on_gpu, capturable=on_gpu)


def set_rate(optimiser: torch.optim.Adam, rate: float) -> None:
    """Set the learning rate, in place where a captured step reads it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
