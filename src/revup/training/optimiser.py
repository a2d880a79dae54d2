"""The optimiser: on a GPU torch's Adam, with large tensors as an operation of ours; on a CPU the same in few lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from revup import ops
from revup.ops.streams import low_priority
from revup.settings import Training

LARGE = 2**18  # numbers
_MEANS = ("exp_avg", "exp_avg_sq")  # moving means of the gradient and of its square, by torch's names


class PlainAdam:
    """Adam on a CPU, to the bit torch's; making one of torch's imports its compiler, a second in every process.

        m ← β₁m + (1 − β₁)g,   v ← β₂v + (1 − β₂)g²,   θ ← θ − rate/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)

    Attributes:
        param_groups, state: As torch's optimisers have them.
    """

    betas, eps = (0.9, 0.999), 1e-8

    def __init__(self, parameters: Iterable[Tensor], rate: float) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": rate}]
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for p in self.param_groups[0]["params"]:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Take a step along the gradients."""
        rate, (beta1, beta2) = self.param_groups[0]["lr"], self.betas
        for p in self.param_groups[0]["params"]:
            if (g := p.grad) is None:
                continue
            if p not in self.state:
                means = {name: torch.zeros_like(p, memory_format=torch.preserve_format) for name in _MEANS}
                self.state[p] = {"step": torch.tensor(0.0), **means}
            state = self.state[p]
            m, v = (state[name] for name in _MEANS)
            state["step"] += 1
            t = state["step"].item()
            m.lerp_(g, 1 - beta1)
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            size = (v.sqrt() / (1 - beta2**t) ** 0.5).add_(self.eps)
            p.addcdiv_(m, size, value=-rate / (1 - beta1**t))


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


Optimiser = Adam | PlainAdam


def make_optimiser(module: nn.Module, training: Training, device: torch.device) -> Optimiser:
    """Adam over a module's parameters, fused and capturable on a GPU."""
    if device.type != "cuda":
        return PlainAdam(module.parameters(), training.learning_rate)
    rate = torch.tensor(training.learning_rate, device=device)
    return Adam(module.parameters(), lr=rate, fused=True, capturable=True)


def set_rate(optimiser: Optimiser, rate: float) -> None:
    """Set the learning rate, in place where a captured step reads it."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
