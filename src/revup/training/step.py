"""One optimiser step: eager, captured or compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn

from revup.data.batches import Batch
from revup.models.base import Draws, Loss, Model, step_seed
from revup.models.layers import Recurrent
from revup.ops import vocabulary_loss as vocabulary
from revup.ops.device import precision
from revup.ops.fused import captured_stream
from revup.settings import Training
from revup.training.processes import Processes


def settle(module: Model, settled: bool = True) -> None:
    """From now on only the parts that write text learn: what the frames depend on stays as it is. Or all again."""
    module.settled = settled
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not settled or _writes_text(module, name))


def text_weights(module: Model) -> dict[str, Tensor]:
    """The weights of the parts that write text."""
    return {name: tensor for name, tensor in module.state_dict().items() if _writes_text(module, name)}


def _writes_text(module: Model, name: str) -> bool:
    return name.partition(".")[0] in module.text_parts


LOSS_SCALE = 256.0  # of bf16 on a GPU: recurrent layers compute in float16 then, whose range ends at 6e-8


COMPILE_FROM = 120_000  # steps of a run from which compiling them pays: a minute, for less than half a millisecond each


class _Step:
    """One step of the optimiser. On a GPU a step of full size is captured once and replayed: with small networks its
    hundreds of launches take longer than its arithmetic. Compiled besides, it has fewer of them."""

    EAGER = 3  # steps before capturing, in which cuDNN and cuBLAS set themselves up

    def __init__(
        self,
        module: Model,
        optimiser: torch.optim.Adam,
        training: Training,
        processes: Processes,
        seed: int,
        steps: int = 0,
    ) -> None:
        """steps: how many will be taken, about."""
        self.module, self.optimiser, self.training = module, optimiser, training
        self.processes, self.seed = processes, seed
        self.device = module.device
        on_gpu = self.device.type == "cuda"
        self.loss_of = _parallel(module, processes, self.device)
        self.captures = on_gpu and processes.count == 1 and module.capturable
        self.captured_loss_of = self.loss_of
        if self.captures and (training.compile == "yes" or (training.compile == "auto" and steps >= COMPILE_FROM)):
            self.captured_loss_of = compiled(module)
        self.scale = LOSS_SCALE if on_gpu and training.precision == "bf16" else 1.0
        self.divides = on_gpu  # the optimiser divides gradients as it reads them, and leaves out a step that overflowed
        if self.divides:
            amp = cast(Any, optimiser)
            amp.grad_scale = torch.full((), self.scale, device=self.device)
            amp.found_inf = torch.zeros((), device=self.device)
        self.generator = torch.Generator(self.device)
        self.seen = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.held: Batch | None = None  # the captured step's input
        self.terms: dict[str, Tensor] = {}  # and output

    def __call__(self, batch: Batch, step: int) -> dict[str, Tensor]:
        """Update the weights; return the loss and its terms, on the device."""
        self.generator.manual_seed(step_seed(self.seed, step))
        if not self.captures:
            return self._eager(batch, self.loss_of)
        if batch.documents != self.training.batch_size:
            return self._on_its_stream(batch, self.loss_of)
        self.seen += 1
        held = self._hold(batch)
        if self.graph is None and self.seen <= self.EAGER:
            return self._on_its_stream(held, self.captured_loss_of)
        if self.graph is None:
            self._capture(held)
        assert self.graph is not None
        self.graph.replay()
        return self.terms

    def _eager(self, batch: Batch, loss_of: Callable[..., Any]) -> dict[str, Tensor]:
        draws = Draws(self.generator, batch.documents, batch.rows)
        self.optimiser.zero_grad(set_to_none=True)
        with precision(self.training.precision, self.device):
            loss = cast(
                Loss, loss_of(replace(batch), draws)
            )  # a copy: what it works out once is not this batch's next time
        (loss.total * (self.processes.count * self.scale)).backward()
        if self.divides:
            self._divide()
        elif self.training.clip:
            nn.utils.clip_grad_norm_(self.module.parameters(), self.training.clip)
        self.optimiser.step()
        return {"loss": loss.total.detach(), **loss.terms}

    def _divide(self) -> None:
        """What the optimiser divides gradients by: the loss's scale, and more where their norm is above the largest."""
        amp = cast(Any, self.optimiser)
        norm = nn.utils.get_total_norm([p.grad for p in self.module.parameters() if p.grad is not None])
        torch.ne(norm - norm, 0.0, out=amp.found_inf)  # a number less itself is 0
        if self.training.clip:
            torch.clamp(norm * (1 / self.training.clip), min=self.scale, out=amp.grad_scale)

    def _on_its_stream(self, batch: Batch, loss_of: Callable[..., Any]) -> dict[str, Tensor]:
        """A step on the stream that the captured one is taken on, whose memory it then finds there."""
        here, stream = torch.cuda.current_stream(self.device), captured_stream(self.device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            terms = self._eager(batch, loss_of)
        here.wait_stream(stream)
        return terms

    def _capture(self, held: Batch) -> None:
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.generator)
        with torch.cuda.graph(self.graph, stream=captured_stream(self.device)):
            self.terms = self._eager(held, self.captured_loss_of)

    def _hold(self, batch: Batch) -> Batch:
        """A batch in the place that a captured step reads, its counts on the device too."""
        if isinstance(batch.events, Tensor) and (self.held is None or self.held is batch):  # gathered there
            self.held = batch
            return batch
        if self.held is None:
            fields: dict[str, Any] = {n: v.clone() if isinstance(v, Tensor) else v for n, v in batch.parts().items()}
            for name in ("events", "observed_events"):
                fields[name] = torch.zeros((), device=self.device)
            self.held = Batch(**fields)
        together: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for name, value in batch.parts().items():
            held = getattr(self.held, name)
            if isinstance(value, Tensor):
                places, values = together.setdefault(value.dtype, ([], []))
                places.append(held)
                values.append(value)
            elif isinstance(held, Tensor):
                held.fill_(value)
        for places, values in together.values():
            torch._foreach_copy_(places, values)
        return self.held


def compiled(module: nn.Module) -> Callable[..., Any]:
    """The module's loss, what lies between matrix products fused; what a compiler can't do better is left alone."""
    _leave_alone()
    for part in module.modules():
        if isinstance(part, Recurrent):
            part.states = torch.compiler.disable(part.states)  # type: ignore[method-assign]
    return torch.compile(module.forward, dynamic=False)


@cache
def _leave_alone() -> None:
    for owner, names in ((Draws, ("normal", "uniform", "drawn", "dropout")), (vocabulary, ("vocabulary_loss",))):
        for name in names:
            setattr(owner, name, torch.compiler.disable(getattr(owner, name)))


def _parallel(module: nn.Module, processes: Processes, device: torch.device) -> Callable[..., Any]:
    """The module itself, or the module with its gradients averaged over the processes while they are computed."""
    if processes.count == 1:
        return module
    ids = [device.index] if device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(module, device_ids=ids, broadcast_buffers=False)
