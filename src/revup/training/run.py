"""A run: training a model to files, with patience, a best and a checkpoint; killed, it goes on from there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.corpus import Corpus
from revup.errors import InputError
from revup.inference.measures import validate
from revup.inference.trained import Trained, load_weights, path_from, read_config
from revup.io.files import write_text
from revup.io.folders import atomic_folder, refuse_existing
from revup.io.tensors import load_tensors
from revup.models.base import Sizes
from revup.ops.device import choose_device
from revup.reporting.progress import Progress
from revup.settings import MEASURES, Config, Course, build_module
from revup.training.checkpoint import Clock, State, load_checkpoint, save_checkpoint
from revup.training.loop import Report, fit
from revup.training.optimiser import make_optimiser
from revup.training.processes import Processes
from revup.training.step import settle, text_weights


def train(
    corpus: Corpus,
    model: str = "revup",
    epsilon: float = 1.0,
    eta: float = 0.0,
    seed: int = 0,
    out: str | Path | None = None,
    *,
    preset: str = "default",
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Callable[[Progress], None] | None = None,
    network: Mapping[str, Any] | None = None,
    objective: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> Trained:
    """Train a model on a corpus with a share ε of the frames seen and a share η of those wrong.

    `out` is a run directory; without one nothing is written. `resume` goes on with a run that was stopped, starts it
    if it is absent, and does nothing if it is finished.
    """
    overrides = {"network": network or {}, "objective": objective or {}, "training": training or {}}
    config = Config.make(model, preset, epsilon, eta, seed, overrides)
    return train_config(corpus, config, out, device=device, resume=resume, force=force, progress=progress)


def train_config(
    corpus: Corpus,
    config: Config,
    out: str | Path | None = None,
    *,
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    transient: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Trained:
    """`train` with its settings already made. transient: `out` is only for going on after a stop, so that weights are
    written there when it is stopped, or by the clock, but neither at the start nor at the end."""
    folder = Path(out) if out is not None else None
    where = choose_device(device)
    processes = Processes.join(where)
    vectors = corpus.vectors()
    config = config.resolve(len(corpus.frames), vectors[0].shape[1] if vectors else None)
    resuming = resume and folder is not None and (folder / "config.json").exists()
    if folder is not None and not resuming:
        refuse_existing(folder, force)
    if resuming and folder is not None:
        _refuse_other_run(folder, config, corpus)
    processes.wait()  # all have looked before the first one writes
    sizes = Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events)
    data = {
        "fingerprint": corpus.fingerprint,
        "path": path_from(corpus.path, folder),
        "named_frames": corpus.has_frames,
    }
    module = build_module(config, sizes).to(where)
    trained = Trained(module, config, corpus.vocabulary, corpus.frames, corpus.events, data, folder)
    figures = module.prepare(corpus, config.observation)
    trained.figures = figures
    if not module.learns:
        if folder is not None and processes.rank == 0 and not resuming:
            _start_folder(folder, trained)
        return trained
    if vectors is not None:
        module.use_vectors(*vectors)
    if config.network.unigrams:
        module.use_frequencies(_word_counts(corpus))
    optimiser = make_optimiser(module, config.training, where)
    state, text = State(figures=figures), None
    checkpoint = folder / "checkpoint.safetensors" if folder is not None else None
    if resuming and checkpoint is not None and checkpoint.exists():
        state, text = load_checkpoint(checkpoint, module, optimiser)
        trained.figures = state.figures
        if state.best is not None and not state.finished:
            saved = load_tensors(checkpoint.with_name("model.safetensors"))[0]
            trained.best = {name: tensor.to(where) for name, tensor in saved.items()}
    elif folder is not None and processes.rank == 0 and not resuming:
        _start_folder(folder, trained, weights=not transient)
    if state.settled:
        settle(module)
    processes.wait()
    if not state.finished:
        _Sitting(trained, corpus, optimiser, state, text, checkpoint, processes, progress).run(save=not transient)
    processes.wait()  # until the best weights are written
    _restore_best(trained, folder)
    return trained


class _Sitting:
    """One sitting of a training run: consumes the loop, keeps the best, saves, stops in time."""

    def __init__(
        self,
        trained: Trained,
        corpus: Corpus,
        optimiser: torch.optim.Adam,
        state: State,
        text: dict[str, torch.Tensor] | None,
        checkpoint: Path | None,
        processes: Processes,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        """text: weights of the parts that write it, as they were at `state.best_perplexity`."""
        self.trained, self.corpus, self.optimiser, self.state, self.text = trained, corpus, optimiser, state, text
        self.checkpoint, self.processes, self.progress = checkpoint, processes, progress
        self.clock = Clock(state.seconds)
        self.saved_at, self.best_written = self.clock.seconds, True
        self.writes = checkpoint is not None and processes.rank == 0
        if self.writes and checkpoint is not None:
            _trim_metrics(checkpoint.parent / "metrics.jsonl", state.step)

    def run(self, save: bool = True) -> None:
        """Train to the end, and save the outcome."""
        state = self.state
        while self._train():  # on, with the frames settled
            pass
        if state.best is None:  # stopped before the first validation
            self._keep_best()
        state.finished, self.text = True, None
        if save:
            self._save()

    def _train(self) -> bool:
        """Train until it is finished, or until the frames have settled: then True."""
        config, state = self.trained.config, self.state
        loop = fit(
            self.trained.module,
            self.optimiser,
            self.corpus,
            config.training,
            config.observation,
            config.seed,
            state,
            self._validate,
            self.processes,
        )
        # Saved only where the loop pauses: Ctrl-C in the middle of a step leaves the last checkpoint, as a kill does.
        for progress in loop:
            settled = state.settled
            if progress.scores is not None:
                self._judge(progress)
            state.seconds = self.clock.seconds
            state.finished = state.finished or self._out_of_time()
            if self.progress:
                try:
                    self.progress(self._told(progress))
                except BaseException:  # whoever watches has stopped it
                    self._save()
                    raise
            if self._due() and not state.finished:
                self._save()
            if state.finished or state.settled != settled:
                return not state.finished
        return False

    def _told(self, report: Report) -> Progress:
        """The loop's report, completed by what early stopping and the clock say."""
        state, pace = self.state, self.state.seconds / max(self.state.step, 1)
        left = (report.course.patience - state.stale) * report.validation_steps
        return replace(
            report,
            best_step=None if state.best is None else state.best_step,
            settled=state.settled,
            finished=state.finished,
            seconds=state.seconds,
            seconds_left=pace * max(report.steps - report.step, 0),
            seconds_to_stop=None if state.best is None else pace * min(left, max(report.steps - report.step, 0)),
        )

    def _out_of_time(self) -> bool:
        """Whether the time limit is over for any of the processes: all stop together."""
        limit = self.trained.config.training.minutes * 60
        if not limit or self.processes.count == 1:
            return bool(limit) and self.clock.seconds > limit
        over = torch.tensor(float(self.clock.seconds > limit), device=self.trained.device)
        return bool(self.processes.sum(over) > 0)

    def _validate(self) -> dict[str, float]:
        split = self.corpus.split("valid")
        if not len(split):
            return {}
        config = self.trained.config
        return validate(self.trained.module, split, config.observation, config.seed)

    def _judge(self, progress: Report) -> None:
        """Is this the best so far? Where the chosen measure is not to be had, the next one decides."""
        state, training = self.state, self.trained.config.training
        scores = progress.scores or {}
        measures = ("perplexity",) if state.settled else (training.measure, "accuracy", "perplexity")
        name = next((n for n in measures if n in scores), None)
        value = MEASURES[name] * scores[name] if name else float(progress.step)  # no validation split: the last
        if state.best is None or value > state.best:
            state.best, state.best_step, state.stale = value, progress.step, 0
            self._keep_best()
        else:
            state.stale += 1
        if not state.settled and self._may_settle(progress.course):
            self._keep_text(scores)
        best, out_of_patience = state.stale == 0, state.stale >= progress.course.patience
        ended = out_of_patience or state.epoch >= progress.course.epochs
        by_frames = name not in (None, "perplexity")
        if ended and by_frames and not state.settled and self._may_settle(progress.course):
            self._settle()
        else:
            state.finished = out_of_patience
        if self.writes and self.checkpoint is not None:
            line = {
                "step": progress.step,
                "epoch": round(progress.epoch + progress.share, 4),
                "seconds": round(self.clock.seconds, 3),
                "best": best,
                "settled": state.settled,
                "train": progress.terms,
                "valid": scores,
            }
            with open(self.checkpoint.parent / "metrics.jsonl", "a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")

    def _may_settle(self, course: Course) -> bool:
        """Whether there is a decoder that would go on, and whether it should."""
        return course.settled_epochs > 0 and bool(self.trained.module.text_parts)

    def _settle(self) -> None:
        """The frames back to where they were best, to stay there; the decoder goes on from where it was best.

        That is where it is, unless the corpus is so small that it knew it by heart before the frames were done.
        """
        state, module = self.state, self.trained.module
        assert self.trained.best is not None
        module.load_state_dict({**self.trained.best, **(self.text or text_weights(module))})
        settle(module)
        if state.batch:  # what is left of this epoch is left out
            state.epoch, state.batch = state.epoch + 1, 0
        state.settled, state.settled_epoch, state.settled_step = True, state.epoch, state.step
        state.best, state.stale, self.text = None, 0, None

    def _keep_text(self, scores: dict[str, float]) -> None:
        """Keep the weights that write text, if they have never written better."""
        found, state = scores.get("perplexity"), self.state
        if found is not None and (state.best_perplexity is None or found < state.best_perplexity):
            state.best_perplexity, weights = found, text_weights(self.trained.module)
            if self.text is None:
                self.text = {name: torch.empty_like(tensor) for name, tensor in weights.items()}
            for name, kept in self.text.items():
                kept.copy_(weights[name])

    def _keep_best(self) -> None:
        weights = self.trained.module.state_dict()
        self.trained.best = {name: tensor.detach().clone() for name, tensor in weights.items()}
        self.best_written = False

    def _due(self) -> bool:
        return self.clock.seconds - self.saved_at > self.trained.config.training.checkpoint_minutes * 60

    def _save(self) -> None:
        """The best weights and where the run stands, in that order: a kill in between costs what it would before."""
        self.saved_at = self.clock.seconds
        if not self.writes or self.checkpoint is None:
            return
        if not self.best_written and self.trained.best is not None:
            self.trained.save_weights(self.checkpoint.parent, self.trained.best)
            self.best_written = True
        save_checkpoint(self.checkpoint, self.trained.module, self.optimiser, self.state, self.text)


def _restore_best(trained: Trained, folder: Path | None) -> None:
    """The weights of the best validation, whatever came after it."""
    if trained.best is not None:
        trained.module.load_state_dict(trained.best)
        trained.best = None
    elif folder is not None and (folder / "model.safetensors").exists():
        load_weights(trained.module, load_tensors(folder / "model.safetensors")[0], folder)
    settle(trained.module, settled=False)
    trained.module.eval()


def _start_folder(folder: Path, trained: Trained, weights: bool = True) -> None:
    """A run directory with the settings and the initial weights, there whole or not at all."""
    with atomic_folder(folder, force=True) as started:
        trained.write_to(started, trained.data, weights)


def _refuse_other_run(folder: Path, config: Config, corpus: Corpus) -> None:
    """A resume must be of the same run: same settings, same data."""
    known, about = read_config(folder)
    if about["data"].get("fingerprint") != corpus.fingerprint:
        raise InputError("can't resume: it was trained on other data", str(folder))
    for section in ("model", "preset", "network", "objective", "training", "observation", "seed"):
        if getattr(known, section) != getattr(config, section):
            raise InputError(f"can't resume: its {section} differs from what is asked for now", str(folder))


def _trim_metrics(path: Path, step: int) -> None:
    """Forget what was logged after the checkpoint, a line cut short included: it is about to be done again."""
    if path.exists():
        lines = [line for line in path.read_text("utf-8").splitlines(keepends=True) if line.endswith("}\n")]
        write_text(path, "".join(line for line in lines if json.loads(line)["step"] <= step))


def _word_counts(corpus: Corpus) -> NDArray[np.int64]:
    """Occurrences of each word in the training split, [V]."""
    split = corpus.split("train")
    tokens = np.asarray(split.arrays["tokens"])
    there = np.arange(corpus.events) < np.asarray(split.arrays["lengths"])[:, None]
    return np.bincount(tokens[there].ravel(), minlength=len(corpus.vocabulary))
