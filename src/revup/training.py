"""Training: the loop, checkpoints, resume, several processes.

The loop is a generator: it yields after every few steps and after every validation, and knows nothing of files,
patience or screens; those live with its consumer (revup.run). Everything a resume needs is one record, `State`, with
the weights and Adam's moments beside it. Each step's randomness follows from the seed and the step's number alone,
so a run that was killed and resumed walks the very same path.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from revup.corpus import Batch, Batches, Corpus, Gather
from revup.errors import InputError, RevupError
from revup.knowledge import Observation
from revup.models import vocabulary
from revup.models.fused import captured_stream, giving_way, kernels
from revup.models.layers import Draws, Loss, Recurrent

MEASURES = {"accuracy": 1, "label_nll": -1, "perplexity": -1}  # name → sign: larger or smaller is better
PRECISIONS = ("float32", "bf16")
MORE_VALIDATIONS = 4  # at most, on a small corpus, for each that a large one has
COMPILE_FROM = 120_000  # steps of a run from which compiling them pays: a minute, for less than half a millisecond each
LOSS_SCALE = 256.0  # of bf16 on a GPU: recurrent layers compute in float16 then, whose range ends at 6e-8
PART_OF_A_GPU = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
LOG_EVERY = 20  # steps between two looks at the loss, each of which waits for the device


@dataclass(frozen=True)
class Training:
    """How a model is trained."""

    batch_size: int = 200
    learning_rate: float = 1e-3
    schedule: str = "constant"  # or linear: the learning rate falls to 0 over the epochs
    epochs: int = 30
    least_steps: int = 2000  # a corpus too small for so many steps in that many epochs is gone through more often
    most_steps: int = 0  # and one that would take more is gone through less often; 0: never mind
    patience: int = 3  # validations without improvement before it stops
    settle: float = (
        0.0  # after that, as a share of the epochs, those in which the frames stay and the decoder learns on
    )
    clip: float = 5.0  # largest norm of the gradient; 0: none
    measure: str = "accuracy"  # on the validation split's observed frames; perplexity does where there are none
    validate_steps: int = 0  # steps between validations; 0: an epoch
    minutes: float = 0.0  # time limit; 0: none
    precision: str = "float32"  # or bf16
    compile: str = "auto"  # yes, no, or where it pays: steps taken on a GPU are compiled, which takes a minute
    checkpoint_minutes: float = 5.0
    shard_rows: int = 0  # documents held on the device at once; 0: all if they fit

    def __post_init__(self) -> None:
        least = {"batch_size": 1, "epochs": 0, "least_steps": 0, "most_steps": 0, "patience": 1}
        least |= {"validate_steps": 0, "shard_rows": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise RevupError(f"training.{_dashed(name)}: expected {low} or more, found {getattr(self, name)}")
        for name in ("learning_rate", "settle", "clip", "minutes", "checkpoint_minutes"):
            if not getattr(self, name) >= 0:
                raise RevupError(f"training.{_dashed(name)}: expected 0 or more, found {getattr(self, name)}")
        if self.measure not in MEASURES:
            raise RevupError(f"training.measure: expected one of {', '.join(MEASURES)}, found '{self.measure}'")
        check_precision(self.precision, "training.precision")
        if self.compile not in ("auto", "yes", "no"):
            raise RevupError(f"training.compile: expected auto, yes or no, found '{self.compile}'")
        if self.schedule not in ("constant", "linear"):
            raise RevupError(f"training.schedule: expected constant or linear, found '{self.schedule}'")

    def course(self, steps: int, settles: bool = True) -> Course:
        """How this goes with a corpus of so many steps an epoch.

        A model that writes text and has no frames to settle has the same number of epochs in one go.
        """
        if not self.epochs:
            return Course(0, 1, self.patience, 0)
        epochs = self.epochs
        if self.most_steps:
            epochs = min(epochs, -(-self.most_steps // max(steps, 1)))
        epochs = max(epochs, -(-self.least_steps // max(steps, 1)))
        every = -(-epochs // (MORE_VALIDATIONS * self.epochs))
        patience = math.ceil(self.patience * epochs / (self.epochs * every))
        more = math.ceil(self.settle * epochs)
        return Course(epochs, every, patience, more) if settles else Course(epochs + more, every, patience, 0)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step, out of so many in all."""
        return self.learning_rate * (1 - step / max(steps, 1) if self.schedule == "linear" else 1.0)


@dataclass(frozen=True)
class Course:
    """What `Training` comes to on a corpus of some size."""

    epochs: int
    every: int  # epochs between validations
    patience: int
    settled_epochs: int  # more, for the decoder alone


def _dashed(name: str) -> str:
    return name.replace("_", "-")


@dataclass
class State:
    """Where a run stands."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    best: float | None = None  # best score so far, signed so that larger is better
    best_step: int = 0
    stale: int = 0  # validations since
    best_perplexity: float | None = None  # lowest so far, before the frames settled
    settled: bool = False  # the frames are as they stay; the decoder goes on, since
    settled_epoch: int = 0
    settled_step: int = 0
    finished: bool = False
    shard_rows: int = 0
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)  # what the model reported of the data before training


@dataclass
class Progress:
    """What the loop tells after some steps: mean loss terms since it last told, and scores after a validation."""

    step: int
    epoch: int
    share: float  # of the epoch that is done
    terms: dict[str, float]
    documents: int
    course: Course
    scores: dict[str, float] | None = None
    module: nn.Module | None = None  # as it is now; after a validation ready to be asked


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


def choose_device(name: str | None = None) -> torch.device:
    """The device asked for, or the best there is; with several processes each takes its own."""
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RevupError(f"device: expected cpu or cuda, found '{name}'") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RevupError("device: cuda was asked for, but torch sees no CUDA device here")
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", device.index or 0)))
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
        if os.environ.get(PART_OF_A_GPU, "100") != "100":
            what = "with a part of a GPU's multiprocessors cuBLAS has given wrong products; better leave it out"
            warnings.warn(f"{PART_OF_A_GPU} is set: {what} (docs/benchmarks.md)", stacklevel=2)
    return device


def step_seed(seed: int, step: int, purpose: str = "train") -> int:
    """The seed of one step's randomness."""
    digest = hashlib.blake2b(f"{purpose}/{seed}/{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % 2**63


def check_precision(name: str, setting: str = "precision") -> None:
    if name not in PRECISIONS:
        raise RevupError(f"{setting}: expected {' or '.join(PRECISIONS)}, found '{name}'")


def precision(name: str, device: torch.device) -> AbstractContextManager[Any]:
    """bf16 arithmetic with float32 weights, or plain float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if name == "bf16" else nullcontext()


def settle(module: Any, settled: bool = True) -> None:
    """From now on only the parts that write text learn: what the frames depend on stays as it is. Or all again."""
    module.settled = settled
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not settled or _writes_text(module, name))


def text_weights(module: nn.Module) -> dict[str, Tensor]:
    """The weights of the parts that write text."""
    return {name: tensor for name, tensor in module.state_dict().items() if _writes_text(module, name)}


def _writes_text(module: nn.Module, name: str) -> bool:
    return name.partition(".")[0] in cast(Any, module).text_parts


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


def fit(
    module: nn.Module,
    optimiser: torch.optim.Adam,
    corpus: Corpus,
    training: Training,
    observation: Observation,
    seed: int,
    state: State,
    validate: Callable[[], dict[str, float]],
    processes: Processes | None = None,
) -> Iterator[Progress]:
    """Train from where `state` stands; it is kept up to date. Stop by not asking for more."""
    processes = processes or Processes()
    device = next(module.parameters()).device
    batches = Batches(
        corpus.split("train"),
        observation,
        training.batch_size,
        device,
        state.shard_rows or training.shard_rows or None,
        processes.rank,
        processes.count,
        gathering(device),
    )
    state.shard_rows = batches.shard_rows
    length = len(batches)
    has_frames = bool(getattr(module, "has_frames", False))
    chosen_by_frames = has_frames and training.measure != "perplexity" and _judged(corpus, observation)
    course = training.course(length, chosen_by_frames or not getattr(module, "has_text", False))
    take_step = _Step(module, optimiser, training, processes, seed, course.epochs * length)
    sums: dict[str, Tensor] = {}
    steps = documents = 0

    def report(scores: dict[str, float] | None = None) -> Progress:
        nonlocal steps, documents
        terms = _means(sums, steps, processes)
        found = {**terms, **(scores or {})}
        if not all(np.isfinite(value) for value in found.values()):
            raise RevupError(f"training diverged at step {state.step}: {found}; a smaller learning rate may help")
        done = Progress(state.step, state.epoch, state.batch / length, terms, documents, course, scores, module)
        sums.clear()
        steps = documents = 0
        return done

    first, epochs = (state.settled_epoch, course.settled_epochs) if state.settled else (0, course.epochs)
    while state.epoch < first + epochs:
        module.train()
        for batch in batches.epoch(state.epoch, seed, state.batch):
            set_rate(optimiser, training.rate(state.step - state.settled_step, epochs * length))
            terms = take_step(batch, state.step)
            if sums:
                torch._foreach_add_([sums[name] for name in terms], list(terms.values()))
            else:
                sums.update((name, term.clone()) for name, term in terms.items())
            state.step += 1
            state.batch += 1
            steps += 1
            documents += batch.documents
            if state.batch < length and training.validate_steps and state.step % training.validate_steps == 0:
                yield report(validate())
                module.train()
            elif state.batch < length and state.step % LOG_EVERY == 0:
                yield report()
        state.epoch, state.batch = state.epoch + 1, 0
        if (state.epoch - first) % course.every == 0 or state.epoch == first + epochs:
            yield report(validate())


def gathering(device: torch.device) -> Gather | None:
    """What takes batches together in one launch, where there is such a thing."""
    found = kernels(device)
    return None if found is None else found.gather_fused


def _judged(corpus: Corpus, observation: Observation) -> bool:
    """Whether there are frames to judge by: some that are seen among those held out (if nothing is, in training)."""
    split = corpus.split("valid") if len(corpus.split("valid")) else corpus.split("train")
    return bool(split.seen(observation).observed.any())


class _Step:
    """One step of the optimiser. On a GPU a step of full size is captured once and replayed: with small networks its
    hundreds of launches take longer than its arithmetic. Compiled besides, it has fewer of them."""

    EAGER = 3  # steps before capturing, in which cuDNN and cuBLAS set themselves up

    def __init__(
        self,
        module: nn.Module,
        optimiser: torch.optim.Adam,
        training: Training,
        processes: Processes,
        seed: int,
        steps: int = 0,
    ) -> None:
        """steps: how many will be taken, about."""
        self.module, self.optimiser, self.training = module, optimiser, training
        self.processes, self.seed = processes, seed
        self.device = next(module.parameters()).device
        on_gpu = self.device.type == "cuda"
        self.loss_of = _parallel(module, processes, self.device)
        self.captures = on_gpu and processes.count == 1 and bool(getattr(module, "capturable", False))
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


def _means(sums: dict[str, Tensor], steps: int, processes: Processes) -> dict[str, float]:
    if not sums:
        return {}
    values = processes.sum(torch.stack([value.float() for value in sums.values()]))
    return dict(zip(sums, (values / max(steps, 1)).tolist(), strict=True))


# ---- weights and checkpoints as files -----------------------------------------------------------------------


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


def save_checkpoint(
    path: Path, module: nn.Module, optimiser: torch.optim.Adam, state: State, text: dict[str, Tensor] | None = None
) -> None:
    """Everything a resume needs, in one file. text: weights of the parts that write it, as they were at their best."""
    tensors = {f"model/{name}": tensor for name, tensor in module.state_dict().items()}
    tensors |= {f"text/{name}": tensor for name, tensor in (text or {}).items()}
    for name, parameter in module.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"adam/{key}/{name}"] = value
    save_tensors(path, tensors, {"state": asdict(state)})


def load_checkpoint(
    path: Path, module: nn.Module, optimiser: torch.optim.Adam
) -> tuple[State, dict[str, Tensor] | None]:
    """Put module and optimiser back; where the run stood, and the text's best weights, if they were kept."""
    tensors, meta = load_tensors(path)
    if "state" not in meta:
        raise InputError("not a checkpoint of a training run", str(path))
    load_weights(module, {n[6:]: t for n, t in tensors.items() if n.startswith("model/")}, path)
    device = next(module.parameters()).device
    parameters = dict(module.named_parameters())
    for full, value in tensors.items():
        if full.startswith("adam/"):
            _, key, name = full.split("/", 2)
            optimiser.state.setdefault(parameters[name], {})[key] = value.to(device)
    text = {name[5:]: value.to(device) for name, value in tensors.items() if name.startswith("text/")}
    return State(**meta["state"]), text or None


def load_weights(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Put weights into a module, or say in one line how they differ from what it needs."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the weights do not fit this model: {reason[:300]}", str(path)) from None


class Clock:
    """Seconds since it was made, on top of those of earlier sittings."""

    def __init__(self, before: float = 0.0) -> None:
        self._start = time.monotonic() - before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start
