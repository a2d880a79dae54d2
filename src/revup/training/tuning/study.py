"""The record of a search: Optuna's study in a journal file, with one writer.

Only the process that holds the search's lock opens the journal; the processes that train know nothing of it. So a trial
that the journal calls running, when it is opened, belongs to nobody: its process was killed, or stopped. It is taken up
again from its checkpoint, or from its start if there is none.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from revup.errors import InputError, missing_extra
from revup.training.tuning.plan import Plan
from revup.training.tuning.space import Dimension

JOURNAL = "journal.log"
NAME = "revup"
RUNGS = 10  # shares of its training at which a trial is compared with others
STARTUP = 4  # trials before values are chosen by a model of those seen
FOR_IMPORTANCE = 8  # finished trials before settings are said to matter
PRUNE_AFTER = 4  # trials that are trained to their end before any is stopped
FIRST_RUNG = 2  # before which none is stopped: early values say little
DEFAULT = "default"  # user attribute of the trial with the default settings


class Study:
    """Trials and their values: `next` gives one to train, `finish`, `stop` and `fail` end it.

    Args:
        folder: The directory of the search, which this process has locked.
        plan: What is searched.
        defaults: Values of the searched settings in `default`, which trial 0 is.
    """

    def __init__(self, folder: Path, plan: Plan, defaults: dict[str, Any]) -> None:
        self.plan, self.optuna = plan, _optuna()
        path = folder / JOURNAL
        repair(path)
        with self._quiet():
            self.study = self._open(path)
            if not self.trials():
                start = {each.name: each.inside(defaults[each.name]) for each in plan.space}
                self.study.enqueue_trial(start, user_attrs={DEFAULT: True})
        self._left = [trial.number for trial in self.trials() if trial.state.name == "RUNNING"]
        self.recovered = len(self._left)

    # ---- trials --------------------------------------------------------------------------------------------------

    def trials(self) -> list[Any]:
        """All trials so far (Optuna's `FrozenTrial`)."""
        found: list[Any] = self.study.get_trials(deepcopy=False)
        return found

    def finished(self) -> list[Any]:
        """Trials that have ended, however that was."""
        return [trial for trial in self.trials() if trial.state.is_finished()]

    def best(self) -> Any | None:
        """The trial with the best value, the earliest of equals; None if none was trained to its end."""
        done = [trial for trial in self.trials() if trial.state.name == "COMPLETE"]
        return max(done, key=lambda trial: (self.plan.sign * trial.value, -trial.number), default=None)

    def default(self) -> Any | None:
        """The trial with the default settings, if it has a value."""
        return next((t for t in self.trials() if t.user_attrs.get(DEFAULT) and t.state.name == "COMPLETE"), None)

    def values(self, number: int) -> dict[str, Any]:
        """The settings of a trial that differ from the default ones."""
        trial = self.trials()[number]
        return {} if trial.user_attrs.get(DEFAULT) else self.plan.values(trial.params)

    def next(self, most: int | None) -> int | None:
        """The number of a trial to train: one that was left half-way, or a new one; None if there are enough.

        Args:
            most: How many trials there may be in all.
        """
        left = self._left.pop(0) if self._left else None
        begun = sum(trial.state.name != "WAITING" for trial in self.trials())
        if left is None and most is not None and begun >= most:
            return None
        with self._quiet():
            # a sampler of each trial's own: what it chooses depends on the trials before it, not on stops and resumes
            self.study.sampler = self._sampler(begun if left is None else left)
            trial = self.study.ask() if left is None else self._trial(left)
            for each in self.plan.space:
                _suggest(trial, each)
        return int(trial.number)

    def report(self, number: int, rung: int, value: float) -> bool:
        """Note the best value that a trial has so far, and say whether it should be stopped.

        Args:
            number: The trial.
            rung: How far it is, in `RUNGS` parts of its training.
            value: Its best value so far.
        """
        trial = self._trial(number)
        frozen = self.trials()[number]
        with self._quiet():
            for part in range(max(frozen.intermediate_values, default=0) + 1, rung + 1):
                trial.report(value, part)
            return bool(self.plan.prune and not frozen.user_attrs.get(DEFAULT) and trial.should_prune())

    def finish(self, number: int, value: float, seconds: float) -> None:
        """Record the value of a trial that was trained to its end."""
        self._end(number, "COMPLETE", value, seconds)

    def stop(self, number: int, seconds: float, reason: str = "") -> None:
        """Record that a trial was stopped: it fell behind, or diverged."""
        self._end(number, "PRUNED", None, seconds, reason)

    def fail(self, number: int, reason: str) -> None:
        """Record that a trial could not be trained."""
        self._end(number, "FAIL", None, 0.0, reason)

    def _end(self, number: int, state: str, value: float | None, seconds: float, reason: str = "") -> None:
        with self._quiet():
            trial = self._trial(number)
            trial.set_user_attr("seconds", round(seconds, 2))
            if reason:
                trial.set_user_attr("reason", reason)
            self.study.tell(number, value, state=getattr(self.optuna.trial.TrialState, state))

    def importance(self) -> dict[str, float]:
        """The share of each setting in the differences between trials, the largest first; {} with too few trials."""
        done = [trial for trial in self.trials() if trial.state.name == "COMPLETE"]
        if len(done) < FOR_IMPORTANCE or len({trial.value for trial in done}) < 2:
            return {}
        with self._quiet():
            found: dict[str, float] = self.optuna.importance.get_param_importances(self.study)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    # ---- Optuna --------------------------------------------------------------------------------------------------

    def _open(self, path: Path) -> Any:
        storages = self.optuna.storages
        try:
            return self.optuna.create_study(
                storage=storages.JournalStorage(storages.journal.JournalFileBackend(str(path))),
                study_name=NAME,
                direction="maximize" if self.plan.sign > 0 else "minimize",
                sampler=self._sampler(0),
                pruner=self._pruner(),
                load_if_exists=True,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"damaged: {type(error).__name__}: {error}", str(path)) from None

    def _trial(self, number: int) -> Any:
        return self.optuna.trial.Trial(self.study, self.trials()[number]._trial_id)

    def _sampler(self, number: int) -> Any:
        digest = hashlib.sha256(f"{self.plan.seed} {number}".encode()).digest()
        seed = int.from_bytes(digest[:4], "little")
        samplers = self.optuna.samplers
        if self.plan.sampler == "random":
            return samplers.RandomSampler(seed)
        return samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True, constant_liar=True)

    def _pruner(self) -> Any:
        if not self.plan.prune:
            return self.optuna.pruners.NopPruner()
        return self.optuna.pruners.MedianPruner(n_startup_trials=PRUNE_AFTER, n_warmup_steps=FIRST_RUNG)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """Without Optuna's log and its warnings of experimental parts."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


def _suggest(trial: Any, each: Dimension) -> None:
    """Let the sampler choose a value, unless the trial has one."""
    if each.choices:
        trial.suggest_categorical(each.name, each.choices)
    elif each.multiple:
        trial.suggest_int(each.name, int(each.low), int(each.high), log=each.log)
    else:
        trial.suggest_float(each.name, each.low, each.high, log=each.log)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise missing_extra("tune", "tuning") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def repair(path: Path) -> None:
    """Put a journal right that a kill left: remove Optuna's lock, and a last line that was not written whole.

    Args:
        path: The journal, which nobody else has open.

    Raises:
        InputError: It can't be read or written.
    """
    for left in path.parent.glob(f"{path.name}.lock*"):
        left.unlink(missing_ok=True)
    if not path.exists():
        return
    try:
        with open(path, "r+b") as journal:
            content = journal.read()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                journal.truncate(whole)
                os.fsync(journal.fileno())
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", str(path)) from None
