"""Training: the loop, checkpoints, resume, several processes.

The loop is a generator: it yields after every few steps and after every validation, and knows nothing of files,
patience or screens; those live with its consumer (training.run). Everything a resume needs is one record, `State`, with
the weights and Adam's moments beside it. Each step's randomness follows from the seed and the step's number alone,
so a run that was killed and resumed walks the very same path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from revup.data.batches import Batches, Gather
from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.models.base import Model
from revup.ops.fused import kernels
from revup.reporting.progress import Progress
from revup.settings import Course, Training
from revup.training.checkpoint import State
from revup.training.optimiser import set_rate
from revup.training.processes import Processes
from revup.training.step import _Step

LOG_EVERY = 20  # steps between two looks at the loss, each of which waits for the device


@dataclass(frozen=True)
class Report(Progress):
    """Progress with the plan that early stopping goes by."""

    course: Course = field(kw_only=True)
    validation_steps: int = 1  # steps between two validations


def fit(
    module: Model,
    optimiser: torch.optim.Adam,
    corpus: Corpus,
    training: Training,
    observation: Observation,
    seed: int,
    state: State,
    validate: Callable[[], dict[str, float]],
    processes: Processes | None = None,
) -> Iterator[Report]:
    """Train from where `state` stands; it is kept up to date. Stop by not asking for more."""
    processes = processes or Processes()
    device = module.device
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
    chosen_by_frames = module.predicts_frames and training.measure != "perplexity" and _judged(corpus, observation)
    course = training.course(length, chosen_by_frames or not module.writes_text)
    take_step = _Step(module, optimiser, training, processes, seed, course.epochs * length)
    sums: dict[str, Tensor] = {}
    steps = documents = 0

    def report(scores: dict[str, float] | None = None) -> Report:
        nonlocal steps, documents
        terms = _means(sums, steps, processes)
        found = {**terms, **(scores or {})}
        if not all(np.isfinite(value) for value in found.values()):
            raise RevupError(f"training diverged at step {state.step}: {found}; a smaller learning rate may help")
        last = first + epochs + (0 if state.settled else course.settled_epochs)
        done = Report(
            state.step,
            state.settled_step + (last - first) * length,
            state.epoch,
            last,
            state.batch / length,
            terms,
            documents,
            scores,
            module=module,
            course=course,
            validation_steps=training.validate_steps or course.every * length,
        )
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


def _means(sums: dict[str, Tensor], steps: int, processes: Processes) -> dict[str, float]:
    if not sums:
        return {}
    values = processes.sum(torch.stack([value.float() for value in sums.values()]))
    return dict(zip(sums, (values / max(steps, 1)).tolist(), strict=True))


# ---- weights and checkpoints as files -----------------------------------------------------------------------
