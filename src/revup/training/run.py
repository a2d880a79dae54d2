"""Training a model into a run directory, from the start or from where an earlier session stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.corpus import Corpus
from revup.errors import InputError, RevupError
from revup.inference.run_directory import FILES, RunState, is_sealed, path_from, read_config, read_state
from revup.inference.trained import Trained, load
from revup.io.digests import check_digest
from revup.io.folders import LOCK, atomic_folder, lock, refuse_existing
from revup.models.base import Sizes
from revup.ops.device import choose_device
from revup.reporting.progress import Progress
from revup.settings import SECTIONS, Config, Overrides, build_module
from revup.training.processes import Processes
from revup.training.session import Session

PLAIN = ("model", "preset", "epsilon", "eta", "seed")  # settings outside a section


def train(
    corpus: Corpus | None = None,
    model: str | None = None,
    epsilon: float | None = None,
    eta: float | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    *,
    preset: str | None = None,
    network: Mapping[str, Any] | None = None,
    objective: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Trained:
    """Train a model on a corpus.

    With `out`, SIGINT, SIGTERM and SIGHUP stop training after the current step and a checkpoint (in the main thread);
    `Interrupted`, a KeyboardInterrupt, is raised then. Resumed, the run continues at that step; on a CPU it ends in the
    same weights as a run that was never stopped.

    Args:
        corpus: The dataset. A run that is resumed finds its own if this is None.
        model: revup (the default), ssdvae, haqae, rnnlm, tagger or lookup.
        epsilon: Observation probability ε: the share of labels that the model gets to see. 1 by default.
        eta: Noise rate η: the share of observed labels that is replaced by random ones. 0 by default.
        seed: Determines initial weights, the order of documents, observed labels and all sampling. 0 by default.
        out: The run directory to write; without one nothing is written.
        preset: The settings to start from: default, paper or released.
        network: Settings of the network that differ from the preset, by name (`Network`).
        objective: Settings of the model's loss that differ from the preset, by name (`Objective` of the model).
        training: Settings of training that differ from the preset, by name (`Training`).
        device: cpu or cuda; by default cuda where there is one.
        resume: Continue the run in `out`: start it if it is absent, do nothing if it has finished. Settings that are
            not given are those of the run; one that differs is an error.
        force: Replace `out` if it exists.
        progress: Called with a `Progress` every few steps and after each validation.

    Returns:
        The model with the weights of its best validation.

    Raises:
        InputError: `out` exists, or can't be resumed with this corpus or these settings.
        RevupError: A setting is wrong, another process is training in `out`, or training diverged.
        Interrupted: A signal came.
    """
    plain = zip(PLAIN, (model, preset, epsilon, eta, seed), strict=True)
    given: dict[str, Any] = {name: value for name, value in plain if value is not None}
    overrides = {"network": network or {}, "objective": objective or {}, "training": training or {}}
    if resume and out is not None and (Path(out) / "config.json").exists():
        known, about = read_config(Path(out))
        corpus = corpus or _own_corpus(Path(out), about)
        config = _as_before(Path(out), known, corpus, given, overrides)
    elif corpus is None:
        raise RevupError("training needs a dataset" if out is None else f"{out}: no run to resume; name a dataset")
    else:
        config = Config.make(**given, overrides=overrides)
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
    """`train` with its settings already made, for the experiments.

    Args:
        corpus: The dataset.
        config: All settings.
        out: The run directory.
        device: cpu or cuda; by default cuda where there is one.
        resume: Continue the run in `out`; it must have the same settings.
        force: Replace `out` if it exists.
        transient: `out` only serves a resume: weights are written when training is stopped, not at its end.
        progress: Called with a `Progress` every few steps and after each validation.

    Returns:
        The model with the weights of its best validation.
    """
    folder = Path(out) if out is not None else None
    where = choose_device(device)
    processes = Processes.join(where)
    vectors = corpus.vectors()
    config = config.resolve(len(corpus.frames), None if vectors is None else vectors[0].shape[1])
    resuming = resume and folder is not None and (folder / "config.json").exists()
    if folder is not None and resuming:
        _refuse_other_run(folder, config, corpus)
        if is_sealed(folder) and read_state(folder).finished:
            return load(folder, where.type)
    elif folder is not None:
        refuse_existing(folder, force)
    processes.wait()  # all have looked before the first one writes
    writes = folder is not None and processes.rank == 0
    with ExitStack() as held:
        if writes and folder is not None and folder.is_dir():
            held.enter_context(lock(folder))
        trained = _untrained(corpus, config, folder, where)
        if trained.module.learns:
            if vectors is not None:
                trained.module.use_vectors(*vectors)
            if config.network.unigrams:
                trained.module.use_frequencies(_word_counts(corpus))
        if writes and folder is not None:
            if resuming:
                _restore(folder, trained)
            else:
                _start(folder, trained, force)
                held.enter_context(lock(folder))
        processes.wait()
        if trained.module.learns:
            Session(trained, corpus, folder, processes, progress, keep=not transient).run()
        if writes and folder is not None and not transient:
            (folder / LOCK).unlink(missing_ok=True)
    trained.module.eval()
    return trained


def _untrained(corpus: Corpus, config: Config, folder: Path | None, device: torch.device) -> Trained:
    """The model before its first step."""
    sizes = Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events)
    data = {
        "fingerprint": corpus.fingerprint,
        "path": path_from(corpus.path, folder),
        "named_frames": corpus.has_frames,
    }
    module = build_module(config, sizes).to(device)
    trained = Trained(module, config, corpus.vocabulary, corpus.frames, corpus.events, data, folder)
    trained.figures = module.prepare(corpus, config.observation)
    return trained


def _word_counts(corpus: Corpus) -> NDArray[np.int64]:
    """Occurrences of each word in the training split, [V]."""
    split = corpus.split("train")
    tokens = np.asarray(split.arrays["tokens"])
    there = np.arange(corpus.events) < np.asarray(split.arrays["lengths"])[:, None]
    return np.bincount(tokens[there].ravel(), minlength=len(corpus.vocabulary))


# ---- starting and resuming a run directory -------------------------------------------------------------------------


def _start(folder: Path, trained: Trained, force: bool) -> None:
    """Write a run directory before the first step: without weights, and so marked as unfinished.

    A model that does not learn by steps is finished now.
    """
    trained.state = RunState(finished=not trained.module.learns, figures=trained.figures)
    with atomic_folder(folder, force) as started:
        trained.write_to(started, trained.data, weights=not trained.module.learns)


def _restore(folder: Path, trained: Trained) -> None:
    """Check the files of a run that is resumed, and clear what a kill left."""
    for path in folder.glob(".*.partial"):
        path.unlink()
    if is_sealed(folder):
        check_digest(folder, reads=FILES)
    else:
        trained.write_lists(folder)


def _own_corpus(folder: Path, about: Mapping[str, Any]) -> Corpus:
    """The dataset that a run was started on."""
    path = folder / str(about["data"].get("path", ""))
    if not path.is_dir():
        raise InputError(
            f"its dataset is no longer at {path}; name it: revup train DATA --out {folder} --resume", str(folder)
        )
    return Corpus.load(path)


def _as_before(folder: Path, known: Config, corpus: Corpus, given: Mapping[str, Any], overrides: Overrides) -> Config:
    """The settings of a run that is resumed, after a comparison with those that were given now."""
    before = _flat(known)
    _refuse_differences(folder, before, given)
    plain = {name: before[name] for name in PLAIN}
    asked, preset = Config.make(**plain, overrides=overrides), Config.make(**plain)
    named = {f"{section}.{name}" for section, values in overrides.items() for name in values}
    implied = {name for name, value in _flat(asked).items() if value != _flat(preset)[name]}
    now = _flat(asked.resolve(len(corpus.frames)))
    _refuse_differences(folder, before, {name: now[name] for name in now if name in named | implied})
    return known


def _refuse_other_run(folder: Path, config: Config, corpus: Corpus) -> None:
    """A run is resumed with the same settings, on the same data."""
    known, about = read_config(folder)
    if about["data"].get("fingerprint") != corpus.fingerprint:
        raise InputError(f"can't resume: it was started on other data than {corpus.path}", str(folder))
    _refuse_differences(folder, {"model": known.model}, {"model": config.model})
    _refuse_differences(folder, _flat(known), _flat(config))


def _flat(config: Config) -> dict[str, Any]:
    """All settings by the names that they have on the command line."""
    found = {"model": config.model, "preset": config.preset, "seed": config.seed}
    found |= {"epsilon": config.observation.epsilon, "eta": config.observation.eta}
    for section in SECTIONS:
        part = getattr(config, section)
        found |= {f"{section}.{item.name}": getattr(part, item.name) for item in fields(part)}
    return found


def _refuse_differences(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an error that names the settings which differ, with both values."""
    different = [name for name, value in now.items() if value != before[name]]
    if different:
        shown = (f"{name.replace('_', '-')} is {before[name]} in this run, not {now[name]}" for name in different)
        raise InputError(f"can't resume: {'; '.join(shown)}", str(folder))
