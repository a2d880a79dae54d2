"""One optimiser step, eager or captured. What makes a step fast is opened here, around the model.

On a GPU: gradients of reused weights are deferred and weights cast together (`ops.defer_gradients`), launches go to
streams by priority (`ops.streams`), and a step of full batch size is captured once as a CUDA graph and replayed: with
small networks launching hundreds of kernels takes longer than their arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from revup import ops
from revup.data.batches import Batch
from revup.models.base import Loss, Model
from revup.models.randomness import Draws, step_seed
from revup.ops.dispatch import all_plain
from revup.ops.precision import precision
from revup.ops.streams import step_stream
from revup.settings import Training
from revup.training.optimiser import Optimiser
from revup.training.processes import Processes

LOSS_SCALE = 256.0  # in bf16 on a GPU: recurrent layers compute in float16, whose range ends at 6e-8
EAGER_STEPS = 3  # before capturing, in which cuDNN and cuBLAS set themselves up


def settle(module: Model, settled: bool = True) -> None:
    """From now on only the parts that write text learn, and the frames stay as they are. Or all learn again."""
    module.settled = settled
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not settled or _writes_text(module, name))


def text_weights(module: Model) -> dict[str, Tensor]:
    """The weights of the parts that write text."""
    return {name: tensor for name, tensor in module.state_dict().items() if _writes_text(module, name)}


def _writes_text(module: Model, name: str) -> bool:
    return name.partition(".")[0] in module.text_parts


class Step:
    """Takes optimiser steps on batches: call it with a batch and the step's number."""

    def __init__(
        self, module: Model, optimiser: Optimiser, training: Training, processes: Processes, seed: int
    ) -> None:
        self.module, self.optimiser, self.training = module, optimiser, training
        self.processes, self.seed = processes, seed
        self.device = module.device
        on_gpu = self.device.type == "cuda"
        self.loss_of = _parallel(module, processes, self.device)
        self.captures = on_gpu and processes.count == 1 and not all_plain()
        self.scale = LOSS_SCALE if on_gpu and training.precision == "bf16" else 1.0
        self.divides = on_gpu  # the optimiser divides gradients as it reads them, and skips a step that overflowed
        if self.divides:
            amp = cast(Any, optimiser)
            amp.grad_scale = torch.full((), self.scale, device=self.device)
            amp.found_inf = torch.zeros((), device=self.device)
        self.generator = torch.Generator(self.device)
        self.seen = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.held: Batch | None = None  # the captured step's input
        self.terms: dict[str, Tensor] = {}  # and its output

    def __call__(self, batch: Batch, step: int) -> dict[str, Tensor]:
        """Update the weights; returns the loss and its terms, on the device."""
        self.generator.manual_seed(step_seed(self.seed, step))
        if not self.captures:
            return self._eager(batch)
        if batch.documents != self.training.batch_size:
            return self._on_its_stream(batch)
        self.seen += 1
        held = self._hold(batch)
        if self.graph is None and self.seen <= EAGER_STEPS:
            return self._on_its_stream(held)
        if self.graph is None:
            self.graph = self._capture(held)
        self.graph.replay()
        return self.terms

    def _eager(self, batch: Batch) -> dict[str, Tensor]:
        draws = Draws(self.generator, batch.documents, batch.rows)
        self.optimiser.zero_grad(set_to_none=True)
        with precision(self.training.precision, self.device), ops.defer_gradients(self.module):
            loss = cast(Loss, self.loss_of(replace(batch), draws))  # a copy: its cached values are not the next batch's
        (loss.total * (self.processes.count * self.scale)).backward()
        if self.divides:
            self._divide()
        elif self.training.clip:
            nn.utils.clip_grad_norm_(self.module.parameters(), self.training.clip)
        self.optimiser.step()
        return {"loss": loss.total.detach(), **loss.terms}

    def _divide(self) -> None:
        """Set what the optimiser divides gradients by: the loss's scale, and more where they are to be clipped."""
        amp = cast(Any, self.optimiser)
        norm = nn.utils.get_total_norm([p.grad for p in self.module.parameters() if p.grad is not None])
        torch.ne(norm - norm, 0.0, out=amp.found_inf)  # only a finite number less itself is 0
        if self.training.clip:
            torch.clamp(norm * (1 / self.training.clip), min=self.scale, out=amp.grad_scale)

    def _on_its_stream(self, batch: Batch) -> dict[str, Tensor]:
        """An eager step on the stream of captured ones, whose memory it then finds there."""
        here, stream = torch.cuda.current_stream(self.device), step_stream(self.device)
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            terms = self._eager(batch)
        here.wait_stream(stream)
        return terms

    def _capture(self, held: Batch) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, stream=step_stream(self.device)):
            self.terms = self._eager(held)
        return graph

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


def _parallel(module: nn.Module, processes: Processes, device: torch.device) -> Callable[..., Any]:
    """The module itself, or the module with its gradients averaged over the processes while they are computed."""
    if processes.count == 1:
        return module
    ids = [device.index] if device.type == "cuda" else None
    together = torch.nn.parallel.DistributedDataParallel(module, device_ids=ids)
    together.broadcast_buffers = False  # not as an argument, which torch 2.13 warns of
    return together
