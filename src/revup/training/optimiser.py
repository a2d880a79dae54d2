"""The optimiser."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from revup.ops.fused import giving_way, kernels
from revup.settings import Training


class Adam(torch.optim.Adam):
    """Torch's; on a GPU large tensors have a kernel of ours, of which a GPU works on more at a time."""

    LARGE = 2**18  # numbers

    def _takes(self, p: Tensor) -> bool:
        return p.numel() >= self.LARGE and p.grad is not None and p.is_contiguous() and p.grad.is_contiguous()

    def step(self, closure: Any = None) -> Any:
        device, amp = self.param_groups[0]["params"][0].device, cast(Any, self)
        found = kernels(device) if getattr(amp, "found_inf", None) is not None else None
        if found is None:
            return super().step(closure)
        taken: list[tuple[Tensor, Tensor]] = []
        with giving_way(device):
            for group in self.param_groups:
                for p in group["params"]:
                    if self._takes(p) and (state := self.state.get(p)):  # the first step makes it
                        settings = group["lr"], amp.grad_scale, amp.found_inf, group["betas"], group["eps"]
                        moments = state["exp_avg"], state["exp_avg_sq"]
                        found.adam_fused(p, p.grad, moments, state["step"], *settings)
                        taken.append((p, p.grad))
        steps = [self.state[p]["step"] for p, _ in taken]
        if steps:
            torch._foreach_add_(steps, 1.0)
            torch._foreach_sub_(steps, [amp.found_inf] * len(steps))
        for p, _ in taken:
            p.grad = None  # nothing left to do for torch's own
        result = super().step(closure)
        for p, gradient in taken:
            p.grad = gradient
        return result


def make_optimiser(module: nn.Module, training: Training, device: torch.device) -> torch.optim.Adam:
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
