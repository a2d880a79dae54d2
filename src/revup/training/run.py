"""Training a model into a run directory, from the start or from where an earlier session stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.corpus import Corpus
from revup.data.decisions import trusted_labels
from revup.data.knowledge import Observation
from revup.errors import InputError, RevupError
from revup.inference.abstain import measure_calibration
from revup.inference.loading import load
from revup.inference.run_directory import FILES, RunState, is_sealed, path_from, read_config, read_state, seal, unseal
from revup.inference.trained import Trained
from revup.io.digests import check_digest
from revup.io.folders import LOCK, atomic_folder, lock, refuse_existing
from revup.models import model_class
from revup.models.network import Sizes
from revup.ops.device import choose_device
from revup.ops.precision import warn_if_slow
from revup.reporting.progress import Progress
from revup.settings import SECTIONS, Config, Overrides, build_module
from revup.training.processes import Processes
from revup.training.session import Session

PLAIN = ("model", "preset", "epsilon", "eta", "seed", "noise", "sources")  # settings outside a section
PUBLISHED = ("paper", "released")  # presets that use no lexicon and no further sources


def train(
    corpus: Corpus | str | Path | None = None,
    model: str | None = None,
    epsilon: float | None = None,
    eta: float | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    *,
    preset: str | None = None,
    noise: str | None = None,
    sources: str | None = None,
    labels: str | Path | None = None,
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
        corpus: The dataset, or its directory. A run that is resumed finds its own if this is None.
        model: revup (the default), ssdvae, haqae, rnnlm, tagger, lookup or counts.
        epsilon: Observation probability ε: the share of labels that the model gets to see. 1 by default.
        eta: Noise rate η: the share of observed labels that is replaced by random ones. 0 by default.
        seed: Determines initial weights, the order of documents, observed labels and all sampling. 0 by default.
        out: The run directory to write; without one nothing is written.
        preset: The settings to start from: default, paper or released.
        noise: What replaces labels at the rate η: uniform (any training frame) or confusable (one of the same lemma).
        sources: Simulate annotators of every label: their number (each with the error rate η), or their error rates.
        labels: A file of decisions (`revup review`): reviewed labels, a source that is trusted.
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
    plain = zip(PLAIN, (model, preset, epsilon, eta, seed, noise, sources), strict=True)
    given: dict[str, Any] = {name: value for name, value in plain if value is not None}
    corpus = None if corpus is None else Corpus.opened(corpus)
    overrides = {"network": network or {}, "objective": objective or {}, "training": training or {}}
    if resume and out is not None and (Path(out) / "config.json").exists():
        known, about = read_config(Path(out))
        corpus = corpus or _own_corpus(Path(out), about)
        if labels is None and about["data"].get("labels"):
            labels = Path(out) / about["data"]["labels"]
        config = _as_before(Path(out), known, corpus, given, overrides)
    elif corpus is None:
        raise RevupError("training needs a dataset" if out is None else f"{out}: no run to resume; name a dataset")
    else:
        config = Config.make(**given, overrides=overrides)
    if labels is not None:
        corpus = corpus.with_labels(trusted_labels(labels), labels)
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
    frames_only: bool = False,
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
        frames_only: Nothing is wanted but frames predicted without any given: no step is taken where labels are wrong
            so often that these are left to the counts.
        progress: Called with a `Progress` every few steps and after each validation.

    Returns:
        The model with the weights of its best validation.
    """
    folder = Path(out) if out is not None else None
    where = choose_device(device)
    warn_if_slow(config.training.precision, where)
    processes = Processes.join(where)
    corpus = corpus.as_published() if config.preset in PUBLISHED else corpus
    vectors = corpus.vectors()
    config = config.resolve(len(corpus.frames), None if vectors is None else vectors[0].shape[1])
    resuming = resume and folder is not None and (folder / "config.json").exists()
    if folder is not None and resuming:
        _refuse_other_run(folder, config, corpus)
        if is_sealed(folder) and read_state(folder).finished:
            return load(folder, where.type)
    elif folder is not None:
        refuse_existing(folder, force, (folder / "config.json").exists(), reads=[corpus.path])
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
            idle = frames_only and trained.module.leaves_frames_to_counts(corpus.split("valid"))
            Session(trained, corpus, folder, processes, progress, keep=not transient, steps=not idle).run()
        if not transient:
            _calibrate(trained, corpus, folder if writes else None)
        if writes and folder is not None and not transient:
            (folder / LOCK).unlink(missing_ok=True)
    trained.module.eval()
    return trained


def _untrained(corpus: Corpus, config: Config, folder: Path | None, device: torch.device) -> Trained:
    """The model before its first step."""
    reduction = corpus.reduction if model_class(config.model).reads_event_vectors else None
    vectors = 0 if reduction is None else reduction.size
    sizes = Sizes(len(corpus.vocabulary), len(corpus.frames), corpus.events, vectors)
    data = {
        "fingerprint": corpus.fingerprint,
        "path": path_from(corpus.path, folder),
        "named_frames": corpus.has_frames,
        **({} if corpus.labels_path is None else {"labels": path_from(corpus.labels_path, folder)}),
    }
    module = build_module(config, sizes).to(device)
    shared = corpus.vocabulary, corpus.frames, corpus.events
    trained = Trained(module, config, *shared, data, folder, corpus.lexicon, reduction)
    trained.figures = {**module.prepare(corpus, config.observation), **_realised(corpus, config.observation)}
    return trained


def _realised(corpus: Corpus, observation: Observation) -> dict[str, float]:
    """The share of observed training labels that η replaced by another frame, where it acts."""
    if not observation.eta or observation.sources:
        return {}
    split = corpus.split("train")
    clean, noisy = (split.seen(replace(observation, eta=eta)) for eta in (0.0, observation.eta))
    labels = [seen.frames[..., 0][seen.observed] for seen in (clean, noisy)]
    return {"realised_noise": float((labels[0] != labels[1]).mean())} if len(labels[0]) else {}


def _calibrate(trained: Trained, corpus: Corpus, folder: Path | None) -> None:
    """Measure how far the model's probabilities agree with the observed validation labels; the run keeps it."""
    rows = measure_calibration(trained.module, corpus.split("valid"), trained.config.observation)
    trained.state = replace(trained.state, calibration=rows)
    if folder is not None:
        unseal(folder)
        seal(folder, trained.state)


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
    found |= {name: getattr(config.observation, name) for name in ("epsilon", "eta", "noise", "sources")}
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
