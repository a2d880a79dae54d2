"""One session of training: consume the loop, choose the best weights, stop in time, write the files of the run."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM

import torch
from torch import Tensor

from revup.data.batches import Batches
from revup.data.corpus import Corpus
from revup.errors import Interrupted
from revup.inference.measures import BATCH, validate
from revup.inference.run_directory import METRICS, TEXT, WEIGHTS, RunState, read_metrics, seal, unseal, write_metrics
from revup.inference.trained import Trained
from revup.inference.weights import check_fit, check_values
from revup.io.tensors import load_tensors
from revup.reporting.progress import Progress
from revup.settings import MEASURES
from revup.training.checkpoint import TrainingState, load_checkpoint, save_checkpoint
from revup.training.estimate import steps_left
from revup.training.interrupt import SignalWatch
from revup.training.loop import fit, plan, training_batches
from revup.training.optimiser import make_optimiser
from revup.training.processes import Processes
from revup.training.step import settle, text_weights

CHECKPOINT = "checkpoint.safetensors"
FIRST_REPORT, REPORT_EVERY = 2.0, 10.0  # seconds after which to report, however few steps were taken


class Session:
    """Trains a model from where its run stands, to the end or until a signal stops it.

    Args:
        trained: The model, its weights as they are before the first step.
        corpus: The dataset.
        folder: The run directory, where a checkpoint may be; None: nothing is written.
        processes: The processes that train together; the first one writes.
        progress: Called every few steps and after each validation. What it raises stops training, after a checkpoint.
        keep: Write the outcome. Otherwise `folder` only serves a resume: it is written when training is stopped.
        steps: Take steps. Otherwise the weights are calibrated as they are.
    """

    def __init__(
        self,
        trained: Trained,
        corpus: Corpus,
        folder: Path | None,
        processes: Processes,
        progress: Callable[[Progress], None] | None = None,
        keep: bool = True,
        steps: bool = True,
    ) -> None:
        self.trained, self.corpus, self.folder, self.processes = trained, corpus, folder, processes
        self.progress, self.keep = progress, keep
        self.writes = folder is not None and processes.rank == 0
        self.watch = SignalWatch(f"revup train --out {shlex.quote(str(folder))} --resume")
        config, module = trained.config, trained.module
        self.optimiser = make_optimiser(module, config.training, trained.device)
        self.state = TrainingState(figures=trained.figures)
        self.best: dict[str, Tensor] | None = None  # weights of the best validation
        self.best_written = True
        self._held_out: Batches | None = None  # the validation split
        self.decoder: dict[str, Tensor] | None = None  # weights of the decoder at `state.best_perplexity`
        if folder is not None:
            self._resume(folder)
        self.batches = training_batches(
            module, corpus, config.training, config.observation, self.state.shard_rows, processes
        )
        self.state.shard_rows = self.batches.shard_rows
        training = config.training if steps else replace(config.training, epochs=0)
        self.course = plan(module, corpus, training, config.observation, len(self.batches))
        self._saved = self._reported = time.monotonic()
        self._started = self._saved - self.state.seconds
        self._paced = self.state.step, self._saved  # where the measurement of the pace begins
        self._told = False
        self._improved = [True] + [False] * self.state.stale if self.state.best is not None else []

    def _resume(self, folder: Path) -> None:
        """Continue from the checkpoint, if there is one."""
        if (folder / CHECKPOINT).exists():
            self.state, self.decoder = load_checkpoint(folder / CHECKPOINT, self.trained.module, self.optimiser)
            self.trained.figures = self.state.figures
            if self.state.best is not None or self.state.finished:
                saved, device = load_tensors(folder / WEIGHTS)[0], self.trained.device
                check_fit(saved, self.trained.module.state_dict(), folder / WEIGHTS)
                check_values(saved, folder / WEIGHTS)
                self.best = {name: tensor.to(device) for name, tensor in saved.items()}
                if self.state.finished and (folder / TEXT).exists():
                    self.trained.use_writer(load_tensors(folder / TEXT)[0])
                if not self.state.finished:  # a kill in the last write: weights were calibrated, and training goes on
                    chosen = [name for name in self.trained.module.calibrated if name in self.best]
                    self.best |= {name: torch.ones_like(self.best[name]) for name in chosen}
            if self.state.settled:
                settle(self.trained.module)
        if self.writes:
            _trim_metrics(folder, self.state.step)

    def run(self) -> None:
        """Train to the end; the model then has its best weights.

        Raises:
            Interrupted: A signal came. A checkpoint is written; a run without a directory has no such protection.
        """
        state = self.state
        with self.watch if self.folder is not None else nullcontext():
            while not state.finished and self._train():  # again, with the frames settled
                pass
            best = self.best
            if best is None or state.best is None:  # ended before the first validation
                best = self._keep_best()
            best = self._calibrated(best)
            if self._keeps_text and self.decoder is not None and state.text_step != state.best_step:
                self.trained.use_writer(self.decoder)
                self.best_written = False
            state.finished, self.decoder = True, None
            if self.keep:
                self._save()
            self.processes.wait()
            self._stop_if_interrupted()
        self.trained.module.load_state_dict(best)
        settle(self.trained.module, settled=False)
        self.trained.state = self._run_state()

    def _calibrated(self, best: dict[str, Tensor]) -> dict[str, Tensor]:
        """The best weights, calibrated on the validation split."""
        module = self.trained.module
        module.load_state_dict(best)
        settle(module, settled=False)
        module.eval()
        module.calibrate(self.corpus.split("valid"), self.trained.config.observation)
        return self._keep_best()

    def _train(self) -> bool:
        """Train until it is finished, or until the frames have settled; returns whether to continue."""
        config, state = self.trained.config, self.state
        loop = fit(
            self.trained.module,
            self.optimiser,
            self.batches,
            self.course,
            config.training,
            config.seed,
            state,
            self._validate,
            self.processes,
            self._report_is_wanted,
        )
        for report in loop:
            self._reported = time.monotonic()
            settled = state.settled
            if report.scores is not None:
                self._judge(report, report.scores)
            state.seconds = self._seconds
            state.finished = state.finished or self._out_of_time()
            if not state.finished:
                self._stop_if_interrupted(save=True)
            self._told = True
            if self.progress is not None:
                try:
                    self.progress(self._completed(report))
                except BaseException as error:
                    if not isinstance(error, Interrupted):  # a second signal: leave at once
                        self._save()
                    raise
            if state.finished or state.settled != settled:
                return not state.finished
            if time.monotonic() - self._saved > config.training.checkpoint_minutes * 60:
                self._save()
        return False

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _out_of_time(self) -> bool:
        """Whether the time limit is over for any of the processes: all stop together."""
        limit = self.trained.config.training.minutes * 60
        return limit > 0 and self.processes.any(self._seconds > limit, self.trained.device)

    def _stop_if_interrupted(self, save: bool = False) -> None:
        """Raise `Interrupted` if a signal came to any of the processes, after a checkpoint."""
        if self.processes.any(self.watch.received is not None, self.trained.device):
            if save:
                self._save()
                self.processes.wait()  # a process that leaves ends the others
            raise Interrupted(self.watch.received or SIGTERM, self.watch.resume)

    def _report_is_wanted(self) -> bool:
        """Whether the loop should report after this step: a signal came, or there was no report for a while."""
        if self.processes.count > 1:  # all must report together
            return False
        now = time.monotonic()
        if self._paced[0] == self.state.step - 1:  # the first step is slower than those that follow
            self._paced = self.state.step, now
        since = now - self._reported
        return self.watch.received is not None or since > (REPORT_EVERY if self._told else FIRST_REPORT)

    def _completed(self, report: Progress) -> Progress:
        """The loop's report, with what early stopping and the clock say."""
        state, training = self.state, self.trained.config.training
        steps, since = state.step - self._paced[0], time.monotonic() - self._paced[1]
        pace = since / steps if steps else state.seconds / max(state.step, 1)
        left = steps_left(
            report.steps - report.step,
            0 if state.settled else self.course.settled_epochs * len(self.batches),
            training.validate_steps or self.course.every * len(self.batches),
            self._improved,
            state.stale,
            self.course.patience,
        )
        most = pace * left.most
        if training.minutes:
            most = min(most, max(training.minutes * 60 - state.seconds, 0.0))
        return replace(
            report,
            best_step=None if state.best is None else state.best_step,
            settled=state.settled,
            finished=state.finished,
            seconds=state.seconds,
            seconds_left=most,
            seconds_likely=None if left.likely is None else min(pace * left.likely, most),
        )

    # ---- validation and early stopping ---------------------------------------------------------------------------

    def _validate(self) -> dict[str, float]:
        split, module, config = self.corpus.split("valid"), self.trained.module, self.trained.config
        if not len(split):
            return {}
        if self._held_out is None:  # with the prior of the counts, which no step changes
            self._held_out = module.batches(split, config.observation, BATCH)
        return validate(module, split, config.observation, config.seed, batches=self._held_out)

    def _judge(self, report: Progress, scores: dict[str, float]) -> None:
        """Compare a validation with the best so far; where the chosen measure is missing, the next one decides."""
        state, training = self.state, self.trained.config.training
        measures = ("perplexity",) if state.settled else (training.measure, "accuracy", "perplexity")
        name = next((n for n in measures if n in scores), None)
        value = MEASURES[name] * scores[name] if name else float(report.step)  # no validation split: the last
        if state.best is None or value > state.best:
            state.best, state.best_step, state.stale = value, report.step, 0
            self._keep_best()
        else:
            state.stale += 1
        self._improved.append(state.stale == 0)
        best, out_of_patience = state.stale == 0, state.stale >= self.course.patience
        may_settle = not state.settled and self.course.settled_epochs > 0 and bool(self.trained.module.text_parts)
        if may_settle or self._keeps_text:
            self._keep_decoder(scores)
        if may_settle and name not in (None, "perplexity") and (out_of_patience or state.epoch >= self.course.epochs):
            self._settle()
        else:
            goes_on = self._keeps_text and name != "perplexity" and state.text_stale < self.course.patience
            state.finished = out_of_patience and not goes_on
        if self.writes and self.folder is not None:
            line = {
                "step": report.step,
                "epoch": round(report.epoch + report.share, 4),
                "seconds": round(self._seconds, 3),
                "best": best,
                "settled": state.settled,
                "train": report.terms,
                "valid": scores,
            }
            with open(self.folder / METRICS, "a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")

    def _settle(self) -> None:
        """Put the frames back to their best validation and freeze them; the decoder continues from its own best.

        The two differ where the corpus is so small that the decoder overfitted before the frames converged.
        """
        state, module = self.state, self.trained.module
        module.load_state_dict({**(self.best or {}), **(self.decoder or text_weights(module))})
        settle(module)
        if state.batch:  # the rest of this epoch is skipped
            state.epoch, state.batch = state.epoch + 1, 0
        state.settled, state.settled_epoch, state.settled_step = True, state.epoch, state.step
        state.best, state.stale, self.decoder, self._improved = None, 0, None, []

    @property
    def _keeps_text(self) -> bool:
        """Whether the perplexity has an epoch of its own, beside that of the best frames."""
        module, training = self.trained.module, self.trained.config.training
        both = module.predicts_frames and module.writes_text
        return training.text_epoch and both and not self.course.settled_epochs

    def _keep_decoder(self, scores: dict[str, float]) -> None:
        """Keep the weights of the decoder, or all, if the perplexity has never been lower."""
        found, state, module = scores.get("perplexity"), self.state, self.trained.module
        state.text_stale += 1
        if found is not None and (state.best_perplexity is None or found < state.best_perplexity):
            state.best_perplexity, state.text_step, state.text_stale = found, state.step, 0
            weights = module.state_dict() if self._keeps_text else text_weights(module)
            if self.decoder is None:
                self.decoder = {name: torch.empty_like(tensor) for name, tensor in weights.items()}
            for name, kept in self.decoder.items():
                kept.copy_(weights[name])

    def _keep_best(self) -> dict[str, Tensor]:
        weights = self.trained.module.state_dict()
        self.best = {name: tensor.detach().clone() for name, tensor in weights.items()}
        self.best_written = False
        return self.best

    # ---- files ---------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        """Write the best weights, the checkpoint and the digest, in this order: a kill in between loses no step."""
        self._saved = time.monotonic()
        if not self.writes or self.folder is None:
            return
        unseal(self.folder)
        if self.best is None or not self.best_written:
            self.trained.save_weights(self.folder, self.best)
            self.best_written = True
        save_checkpoint(self.folder / CHECKPOINT, self.trained.module, self.optimiser, self.state, self.decoder)
        seal(self.folder, self._run_state())

    def _run_state(self) -> RunState:
        state = self.state
        return RunState(state.finished, state.step, state.epoch, state.best_step or None, state.figures)


def _trim_metrics(folder: Path, step: int) -> None:
    """Remove what was logged after the checkpoint, an incomplete line included: these steps are taken again."""
    if os.path.lexists(folder / METRICS):
        write_metrics(folder, [line for line in read_metrics(folder, cut=True) if line["step"] <= step])
