"""The training loop: a generator that yields after every few steps and after every validation.

It knows nothing of files, early stopping or terminals; those are the business of its consumer (`training.session`).
All that it changes beside the weights is one record, `TrainingState`. The randomness of a step follows from the seed
and the step's number alone, so a run that was stopped at any step and resumed takes the same steps as one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from revup import ops
from revup.data.batches import Batches
from revup.data.corpus import Corpus
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.models.base import Model
from revup.reporting.progress import Progress
from revup.settings import Course, Training
from revup.training.checkpoint import TrainingState
from revup.training.optimiser import Optimiser, set_rate
from revup.training.processes import Processes
from revup.training.step import Step

LOG_EVERY = 20  # steps between two looks at the loss, each of which waits for the device


def fit(
    module: Model,
    optimiser: Optimiser,
    batches: Batches,
    course: Course,
    training: Training,
    seed: int,
    state: TrainingState,
    validate: Callable[[], dict[str, float]],
    processes: Processes | None = None,
    wanted: Callable[[], bool] = lambda: False,
) -> Iterator[Progress]:
    """Train from where `state` stands, keeping it up to date. Stop by not asking for more.

    Args:
        module: The model.
        optimiser: Its optimiser.
        batches: The training split.
        course: How many epochs, and how often to validate.
        training: The settings of training.
        seed: Determines the order of documents and the randomness of every step.
        state: Where training stands.
        validate: Computes the validation scores.
        processes: The processes that train together.
        wanted: Asked after every step; when it is true, the loop yields where it is, without loss terms: what has been
            summed up since the last report stays in `state`, for the next one or for that of a resumed run.

    Yields:
        Where training stands; its loss terms are means since the last report.

    Raises:
        RevupError: The loss or a score is not a finite number.
    """
    processes = processes or Processes()
    length = len(batches)
    first, epochs = (state.settled_epoch, course.settled_epochs) if state.settled else (0, course.epochs)
    last = first + epochs + (0 if state.settled else course.settled_epochs)
    take_step = Step(module, optimiser, training, processes, seed)

    def here(terms: dict[str, float], documents: int, scores: dict[str, float] | None = None) -> Progress:
        steps = state.settled_step + (last - first) * length
        place = state.step, steps, state.epoch, last, state.batch / length
        return Progress(*place, terms, documents, scores, settled=state.settled, module=module)

    def report(scores: dict[str, float] | None = None) -> Progress:
        terms = _means(state, processes)
        found = {**terms, **(scores or {})}
        if not all(np.isfinite(value) for value in found.values()):
            wrong = ", ".join(f"{name} is {value}" for name, value in found.items() if not np.isfinite(value))
            raise RevupError(f"training diverged at step {state.step}: {wrong}; a smaller learning rate may help")
        documents = state.summed_documents
        state.sums, state.summed_steps, state.summed_documents = {}, 0, 0
        return here(terms, documents, scores)

    while state.epoch < first + epochs:
        module.train()
        for batch in batches.epoch(state.epoch, seed, state.batch):
            set_rate(optimiser, training.rate(state.step - state.settled_step, epochs * length))
            terms = take_step(batch, state.step)
            if state.sums:
                state.sums = {name: state.sums[name] for name in terms}
                torch._foreach_add_(list(state.sums.values()), list(terms.values()))
            else:
                state.sums = {name: term.clone() for name, term in terms.items()}
            state.step += 1
            state.batch += 1
            state.summed_steps += 1
            state.summed_documents += batch.documents
            if state.batch == length:
                continue
            if training.validate_steps and state.step % training.validate_steps == 0:
                yield report(validate())
                module.train()
            elif state.step % LOG_EVERY == 0:
                yield report()
            elif wanted():
                yield here({}, 0)
        state.epoch, state.batch = state.epoch + 1, 0
        if (state.epoch - first) % course.every == 0 or state.epoch == first + epochs:
            yield report(validate())
        elif wanted():
            yield here({}, 0)


def training_batches(
    module: Model,
    corpus: Corpus,
    training: Training,
    observation: Observation,
    shard_rows: int = 0,
    processes: Processes | None = None,
) -> Batches:
    """The training split in batches, this process's share of each.

    Args:
        module: The model, whose counts give the prior and the side knowledge.
        corpus: The dataset.
        training: The settings of training.
        observation: Which labels are observed, and which of them are wrong.
        shard_rows: Documents held there at a time, as an earlier session of the run had it; 0: as the settings say.
        processes: The processes that train together.
    """
    together = processes or Processes()
    gather = ops.gather_rows if module.device.type == "cuda" else None
    return module.batches(
        corpus.split("train"),
        observation,
        training.batch_size,
        training=True,
        shard_rows=shard_rows or training.shard_rows or None,
        rank=together.rank,
        processes=together.count,
        gather=gather,
    )


def plan(module: Model, corpus: Corpus, training: Training, observation: Observation, steps: int) -> Course:
    """How many epochs a model is trained on a corpus, and how often it is validated.

    Args:
        module: The model.
        corpus: The dataset.
        training: The settings of training.
        observation: Which labels are observed.
        steps: Steps of an epoch.
    """
    by_frames = False
    if module.predicts_frames and training.measure != "perplexity":
        split = corpus.split("valid") if len(corpus.split("valid")) else corpus.split("train")
        by_frames = bool(split.told(observation))  # whether there is side knowledge to validate by
    return training.course(steps, by_frames or not module.writes_text)


def _means(state: TrainingState, processes: Processes) -> dict[str, float]:
    """Mean loss terms since the last report, over all processes."""
    if not state.sums:
        return {}
    values = processes.sum(torch.stack([value.float() for value in state.sums.values()]))
    return dict(zip(state.sums, (values / max(state.summed_steps, 1)).tolist(), strict=True))
