"""Computes the paper's tables and figures, with every system under the same conditions.

    revup experiment all DATA --out results --seeds 3

Each table or figure is a module of this package with `plan` (the runs it needs) and `show` (the section made from their
results). For each requested NAME, the output directory then contains

    NAME.md NAME.csv NAME.tex          tables               NAME*.png NAME*.svg    figures (extra `report`)
    report.html                        everything on one page
    results.json                       everything as data, with its provenance
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import revup
from revup.data.corpus import Corpus
from revup.errors import InputError, RevupError
from revup.experiments import ablation, claims, incomplete, noise, perplexity, reliance, small
from revup.experiments.compute import Deadline, TimeUp, resumed_by
from revup.experiments.grid import Part, Scope, Section, System, parse_systems
from revup.experiments.output import Provenance, write_sections
from revup.experiments.sweep import Outcome, Sweep, cores
from revup.experiments.views import first_documents
from revup.io.folders import lock
from revup.ops.device import choose_device
from revup.reporting.progress import SweepProgress
from revup.settings import Overrides

PARTS: dict[str, Part] = {
    "claims": claims,
    "incomplete": incomplete,
    "noise": noise,
    "perplexity": perplexity,
    "small": small,
    "reliance": reliance,
    "ablation": ablation,
}
NO_DATA = ("small", "reliance")  # do not need a dataset
NO_FRAMES = ("perplexity", *NO_DATA)  # do not need frames in it
MARK = "experiment.json"  # marks the output directory of an experiment

QUICK_VIEW = {"documents": 2000, "held_out": 500, "words": 2500}
QUICK: dict[str, dict[str, Any]] = {
    "network": {"hidden": 64, "latent": 32, "frame": 64, "layers": 1},
    "training": {"epochs": 3, "batch_size": 50, "learning_rate": 3e-3},
}


def experiment(
    name: str,
    data: str | Path | None,
    out: str | Path,
    *,
    seeds: int = 3,
    quick: bool = False,
    jobs: int | None = None,
    device: str | None = None,
    minutes: float = 0.0,
    systems: str | Sequence[System] | None = None,
    overrides: Overrides | None = None,
    command: str = "",
    progress: Callable[[SweepProgress], None] | None = None,
) -> dict[str, Any]:
    """Compute a table or figure of the paper: train missing runs, and write tables of the available results.

    The same call continues where an earlier one was stopped, by its time limit or by a signal.

    Args:
        name: `claims`, `incomplete`, `noise`, `perplexity`, `small`, `reliance`, `ablation`, or `all`.
        data: A dataset directory; not needed for `small` and `reliance`.
        out: Output directory; results that it already contains are not computed again.
        seeds: Runs of each system under each condition, with seeds 0, 1, ….
        quick: Use few documents, conditions and epochs and a small network, to try it out.
        jobs: Runs at a time; by default one for each core, at most 8.
        device: `cpu` or `cuda`; by default a GPU if there is one.
        minutes: Time limit in minutes; 0: no limit.
        systems: Systems to compare, such as `lookup,revup:paper,revup`; by default those of the paper.
        overrides: Settings by section and name, for all systems that have them.
        command: The command that is recorded as the origin of the results.
        progress: Called whenever a run starts or ends.

    Returns:
        `complete`: whether everything is done; `runs`: number of results; `left` and `seconds_left`: number of missing
        runs and estimated time; `unfinished`: names of unfinished sections; `written`: names of written sections;
        `notes`: outputs that were skipped because a library is missing.

    Raises:
        RevupError: The request is invalid; or runs failed, after everything else was computed and written.
        Interrupted: A signal came; finished runs are kept, and those being trained have written a checkpoint.
    """
    names = [part for part in PARTS if not (quick and part == "ablation")] if name == "all" else [name]
    if unknown := [part for part in names if part not in PARTS]:
        raise RevupError(f"unknown experiment '{unknown[0]}': expected one of {', '.join(PARTS)}, all")
    if seeds < 1:
        raise RevupError(f"--seeds: expected 1 or more, found {seeds}")
    chosen = parse_systems(systems) if isinstance(systems, str) else systems
    deadline, target = Deadline.after(minutes), Path(out)
    corpus = _corpus(names, data)
    device = str(choose_device(device))
    _refuse_foreign(target)
    with resumed_by(command or "the same call"), lock(target / "work"):
        (target / MARK).touch()
        given = overrides or {}
        if quick:
            given = {section: {**QUICK.get(section, {}), **given.get(section, {})} for section in {*QUICK, *given}}
            corpus = first_documents(corpus, target / "data" / "quick", **QUICK_VIEW) if corpus else None
        asked = tuple(chosen) if chosen else None
        scope = Scope(corpus, target, tuple(range(seeds)), asked, given, quick, device, deadline)
        outcome = Outcome({}, {}, 0, None)
        runs = [run for part in names for run in PARTS[part].plan(scope)]
        if runs and corpus is not None:
            outcome = Sweep(corpus, target, device, jobs or min(cores(), 8), deadline, progress).complete(runs)
        sections, unfinished = _sections(scope, names, outcome)
        notes = write_sections(target, sections, provenance(scope, outcome, command))
    if outcome.failed:
        run, problem = next(iter(outcome.failed.items()))
        raise RevupError(f"{len(outcome.failed)} runs failed (the same command tries them again): {run}: {problem}")
    return {
        "complete": not unfinished and not outcome.left,
        "runs": len(outcome.results),
        "left": outcome.left,
        "seconds_left": outcome.seconds_left,
        "unfinished": unfinished,
        "notes": notes,
        "written": [section.name for section in sections],
    }


def _corpus(names: Sequence[str], data: str | Path | None) -> Corpus | None:
    if data is None:
        if needing := [part for part in names if part not in NO_DATA]:
            raise RevupError(f"{needing[0]}: expected a dataset directory to train on")
        return None
    corpus = Corpus.load(data)
    if not corpus.has_frames and not set(names) <= set(NO_FRAMES):
        raise InputError(f"has no frames: only {', '.join(NO_FRAMES)} can be computed", str(data))
    return corpus


def _refuse_foreign(target: Path) -> None:
    """Raise InputError if a path exists that is not the output of an experiment."""
    if target.exists() and not target.is_dir():
        raise InputError("exists already and is not a directory", str(target))
    if target.exists() and any(target.iterdir()) and not (target / MARK).exists():
        raise InputError("exists already and is not the output directory of an experiment", str(target))


def _sections(scope: Scope, names: Sequence[str], outcome: Outcome) -> tuple[list[Section], list[str]]:
    """The sections, and which of them are not finished."""
    sections, unfinished = [], []
    for name in names:
        missing = [run for run in PARTS[name].plan(scope) if run not in outcome.results]
        try:
            section = PARTS[name].show(scope, outcome.results)
        except TimeUp:
            unfinished.append(name)
            continue
        if missing:
            unfinished.append(name)
            section.partial = f"Not finished: {len(missing)} runs are missing. Cells without all seeds say how many."
        sections.append(section)
    return sections, unfinished


def provenance(scope: Scope, outcome: Outcome, command: str = "") -> Provenance:
    """The origin of the results: data, settings, version and commit."""
    corpus, results = scope.corpus, {result["name"]: result for result in outcome.results.values()}
    return {
        "command": command or None,
        "version": revup.__version__,
        "commits": sorted({str(result["commit"]) for result in results.values() if result.get("commit")}),
        "data": corpus.fingerprint if corpus else None,
        "view": corpus.meta.get("view") if corpus else None,
        "documents": {name: len(split) for name, split in corpus.splits.items()} if corpus else None,
        "frames": len(corpus.frames) if corpus else None,
        "words": len(corpus.vocabulary) if corpus else None,
        "seeds": list(scope.seeds),
        "settings": scope.overrides,
        "runs": len(results),
        "compute_seconds": round(sum(result["seconds"] for result in results.values()), 1),
        "devices": sorted({str(result["device"]) for result in results.values()}),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
