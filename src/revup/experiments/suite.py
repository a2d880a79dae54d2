"""Experiments from end to end: which runs are needed, the sweep that makes them, and the files made from their lines.

    revup experiment all DATA --out results --seeds 3
    revup experiment all --from-runs results/runs.jsonl.gz --out tables       the same tables, byte for byte

The output directory then contains, for each NAME (in a directory for each dataset if there are several),

    runs.jsonl.gz                      raw runs, from which everything else is made
    NAME.md NAME.csv NAME.tex          tables               NAME*.png NAME*.svg    figures (extra `report`)
    report.html                        everything on one page
    results.json                       everything as data, with its provenance
    experiment.json                    what was asked for last
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from revup import __version__
from revup.data.cluster import check_engine
from revup.data.corpus import Corpus
from revup.errors import InputError, RevupError
from revup.experiments import labelling, labelling_tables, reliance, small
from revup.experiments.catalogue import EXPERIMENTS
from revup.experiments.datasets import Corpora, describe, find_datasets
from revup.experiments.output import write_sections
from revup.experiments.plan import Plan, unfinished, variants
from revup.experiments.runs import FILE, Line, Run, RunFile, System, existing, ordered, read_lines
from revup.experiments.sections import Section
from revup.experiments.strategies import lacking_library
from revup.experiments.sweep import Outcome, Sweep
from revup.experiments.tabulate import Found, lines_behind, section
from revup.experiments.views import first_documents
from revup.io.files import commit, write_json
from revup.io.folders import lock
from revup.ops.device import choose_device
from revup.reporting.progress import SweepProgress
from revup.settings import Overrides
from revup.training.deadline import Deadline, TimeUp, resumed_by

NAMES = (*EXPERIMENTS, "labelling", "small", "reliance")
NO_DATA = ("small", "reliance")  # do not need a dataset
MARK = "experiment.json"  # marks the output directory of an experiment, and says what was asked for

QUICK_VIEW = {"documents": 2000, "held_out": 500, "words": 2500}
QUICK: dict[str, dict[str, Any]] = {
    "network": {"hidden": 64, "latent": 32, "frame": 64, "layers": 1},
    "training": {"epochs": 3, "batch_size": 50, "learning_rate": 3e-3},
}


def experiment(
    name: str | Sequence[str],
    data: str | Path | None,
    out: str | Path,
    *,
    seeds: int = 3,
    quick: bool = False,
    few: bool = False,
    jobs: int | None = None,
    device: str | None = None,
    engine: str = "local",
    minutes: float = 0.0,
    systems: str | Sequence[System] | None = None,
    without: str | Sequence[System] = (),
    datasets: Sequence[str] = (),
    tests: Sequence[str | Path] = (),
    columns: Sequence[str] = (),
    search: bool = False,
    overrides: Overrides | None = None,
    from_runs: str | Path | None = None,
    command: str = "",
    progress: Callable[[SweepProgress], None] | None = None,
) -> dict[str, Any]:
    """Compute experiments: train missing runs, and write tables of the available ones.

    The same call continues where an earlier one was stopped, by its time limit or by a signal.

    Args:
        name: One or several of `NAMES`, or `all`.
        data: A dataset directory, or a directory of several; not needed for `small` and `reliance`.
        out: Output directory; runs that it already contains are not computed again.
        seeds: Runs of each system under each condition, with seeds 0, 1, ….
        quick: Use few documents, conditions and epochs, one seed and a small network, to try it out.
        few: Use few conditions of each experiment, those of `quick`, on all of the data.
        jobs: Runs at a time; by default one for each core, at most 8.
        device: `cpu` or `cuda`; by default a GPU if there is one.
        engine: `local`, or `ray` for the cluster that RAY_ADDRESS names, whose nodes must share `data` and `out`; then
            `jobs` is by default one for each of its processors.
        minutes: Time limit in minutes; 0: no limit.
        systems: Systems to compare, such as `lookup,revup:paper,revup`; by default those of each experiment.
        without: Systems to leave out of those, named in the same way.
        datasets: Names of the datasets to use, where `data` holds several; by default all.
        tests: Further datasets to test on (`transfer`): names of datasets in `data`, or paths.
        columns: Columns of the tables to compute, as they are headed; by default all.
        search: Let each system's small search (`revup.models.rivals.search`) choose its settings, by the observed
            validation labels at one column of each table.
        overrides: Settings by section and name, for all systems that have them.
        from_runs: Make the tables from this file of runs and compute nothing; `data` is not needed.
        command: The command that continues after an interruption.
        progress: Called whenever a run starts or ends.

    Returns:
        `complete`: whether everything is done; `runs`: number of results; `left` and `seconds_left`: number of missing
        runs and estimated time; `unfinished`: names of unfinished experiments; `written`: names of written sections;
        `notes`: what was left out, and why.

    Raises:
        RevupError: The request is invalid; or runs failed, after everything else was computed and written.
        Interrupted: A signal came; finished runs are kept, and those being trained have written a checkpoint.
    """
    asked = [name] if isinstance(name, str) else name
    names = _names(asked)
    if quick and "all" in asked:
        names.remove("ablation")  # as long as all the others
    left_out: list[str] = []
    if "labelling" in names and from_runs is None and (why := lacking_library((*labelling.LABEL, *labelling.CHECK))):
        if "labelling" in asked:
            raise RevupError(f"labelling: {why}")
        names.remove("labelling")
        left_out = [f"labelling is left out: {why}"]
    if seeds < 1:
        raise RevupError(f"--seeds: expected 1 or more, found {seeds}")
    target = Path(out)
    if from_runs is not None:
        _refuse_foreign(target)
        lines, _ = read_lines(from_runs)
        _mark(target, names, command, {"from_runs": str(from_runs)})
        written = make_sections(names, lines, overrides)
        notes = write_sections(target, written)
        return _report(
            written, Outcome({}, {}, 0, None), len([x for x in lines if "system" in x or labelling.KEY in x]), [], notes
        )
    chosen, omitted = _chosen(systems), _chosen(without) or ()
    deadline = Deadline.after(minutes)
    paths = {} if data is None else find_datasets(data, datasets)
    if not paths and (needing := [part for part in names if part not in NO_DATA]):
        raise RevupError(f"{needing[0]}: expected a dataset directory to train on")
    check_engine(engine)
    device = device if device and engine == "ray" else str(choose_device(device))
    _refuse_foreign(target)
    _mark(target, names, command, {"data": data and str(data), "seeds": seeds, "quick": quick, "few": few})
    with resumed_by(command or "the same call"), lock(target / "work"):
        given = overrides or {}
        tested = _test_paths(tests, paths)
        if quick:
            given = {part: {**QUICK.get(part, {}), **given.get(part, {})} for part in {*QUICK, *given}}
            paths = {name: _part(path, target / "data" / name) for name, path in paths.items()}
            tested = {name: _part(path, target / "data" / name) for name, path in tested.items()}
        corpora = Corpora({**tested, **paths}, target / "labels")
        file = RunFile(target / FILE)
        plan = Plan(names, chosen, tuple(range(1 if quick else seeds)), given, quick or few, columns, search, omitted)
        for name in paths:
            line = describe(name, corpora[name], {other: corpora[other] for other in tested})
            file.add_dataset(line)
            plan.add(line, target / "labels")
        for made in variants([*plan.first(), *(run for runs in plan.runs().values() for run in runs)]):
            corpora.variant(*made)
        sweep = Sweep(corpora, target, file, device, jobs, deadline, progress, engine)
        searched = sweep.complete(plan.first() if search else ())
        wanted = plan.runs(searched.results)
        outcome = sweep.complete(run for runs in wanted.values() for run in runs)
        outcome.failed |= searched.failed
        left = unfinished(wanted, outcome)
        if "labelling" in names:
            for name in paths:
                if why := labelling.lacks(file.datasets[corpora[name].fingerprint]):
                    plan.notes.append(f"labelling leaves out {name}: {why}")
                    continue
                try:
                    labelling.complete(name, corpora[name], plan.seeds, file, deadline, quick or few)
                except TimeUp:
                    left.append("labelling")
                    break
        if "small" in names:
            where = next(iter(paths), None)
            scope = small.Scope(target, tuple(range(seeds)), given, device, deadline)
            try:
                small.complete(scope, None if where is None else corpora[where], file)
            except TimeUp:
                left.append("small")
        simulated = sum(labelling.KEY in line for line in file.examples.values()) if "labelling" in names else 0
        file.compact()
        written = make_sections(names, file.lines(), given)
        notes = [*left_out, *plan.notes, *write_sections(target, written)]
    if outcome.failed:
        run, problem = next(iter(outcome.failed.items()))
        raise RevupError(f"{len(outcome.failed)} runs failed (the same command tries them again): {run}: {problem}")
    return _report(written, outcome, len({**searched.results, **outcome.results}) + simulated, left, notes)


def _report(
    written: Sequence[Section], outcome: Outcome, runs: int, unfinished: list[str], notes: list[str]
) -> dict[str, Any]:
    return {
        "complete": not unfinished and not outcome.left,
        "runs": runs,
        "left": outcome.left,
        "seconds_left": outcome.seconds_left,
        "unfinished": unfinished,
        "notes": notes,
        "written": [f"{each.folder}/{each.name}" if each.folder else each.name for each in written],
    }


def _names(given: Sequence[str]) -> list[str]:
    names = [*dict.fromkeys(part for name in given for part in (NAMES if name == "all" else [name]))]
    if unknown := [part for part in names if part not in NAMES]:
        raise RevupError(f"unknown experiment '{unknown[0]}': expected one of {', '.join(NAMES)}, all")
    return names


def _chosen(systems: str | Sequence[System] | None) -> tuple[System, ...] | None:
    if isinstance(systems, str):
        return tuple(dict.fromkeys(System.named(name) for name in systems.split(",")))
    return tuple(systems) if systems else None


def _test_paths(tests: Sequence[str | Path], paths: Mapping[str, Path]) -> dict[str, Path]:
    """The datasets that are tested on, by name."""
    return {str(test) if str(test) in paths else Path(test).name: paths.get(str(test), Path(test)) for test in tests}


def _part(path: Path, target: Path) -> Path:
    """A small part of a dataset."""
    first_documents(Corpus.load(path), target, **QUICK_VIEW)
    return target


def _refuse_foreign(target: Path) -> None:
    """Raise InputError if a path exists that is not the output of an experiment, nor a file of runs to start from."""
    if target.exists() and not target.is_dir():
        raise InputError("exists already and is not a directory", str(target))
    if target.exists() and any(target.iterdir()) and not any((target / name).exists() for name in (MARK, FILE)):
        raise InputError("exists already and is not the output directory of an experiment", str(target))


def _mark(target: Path, names: Sequence[str], command: str, asked: Mapping[str, Any]) -> None:
    """Mark a directory as the output of an experiment, by what was asked for last."""
    target.mkdir(parents=True, exist_ok=True)
    (target / MARK).touch()  # first of all: a kill must not leave a directory that the same command refuses
    about = {"version": __version__, "commit": commit(), "experiments": list(names), **asked}
    write_json(target / MARK, {**about, **({"command": command} if command else {})})


# ---- tables --------------------------------------------------------------------------------------------------------


def make_sections(names: Sequence[str], lines: Sequence[Line], overrides: Overrides | None) -> list[Section]:
    """All tables, from the lines of a file of runs.

    Args:
        names: The experiments.
        lines: The lines.
        overrides: Take runs with these settings only; None: there must be one kind.

    Raises:
        RevupError: The file has runs that differ in their settings only, and none were given.
    """
    lines = ordered(lines)
    every = sorted(found_by_dataset(lines, overrides), key=lambda found: (found.name, found.dataset["fingerprint"]))
    titles = [found.name for found in every]
    made = []
    for found in every:
        title = found.name
        fingerprint = found.dataset["fingerprint"]
        folder = "" if len(every) == 1 else title if titles.count(title) == 1 else f"{title}-{fingerprint[:8]}"
        for name in names:
            if name in EXPERIMENTS and (each := section(name, found)) is not None:
                each.folder, each.about = folder, provenance(name, found.dataset, lines_behind(name, found))
                made.append(each)
    if "labelling" in names:
        made += labelling_tables.sections(lines)
    if "small" in names and (example := small.section(lines)) is not None:
        made.append(example)
    if "reliance" in names:
        made.append(reliance.section())
    return made


def found_by_dataset(lines: Iterable[Line], overrides: Overrides | None = None) -> list[Found]:
    """The runs of each dataset.

    Args:
        lines: The lines of a file of runs.
        overrides: Take runs with these settings only; None: there must be one kind.

    Raises:
        RevupError: The file has runs that differ in their settings only, and none were given.
    """
    lines = [*lines]
    datasets = {line["fingerprint"]: line for line in lines if "dataset" in line}
    runs: dict[str, list[Line]] = {}
    for line in lines:
        if "system" in line and line["fingerprint"] in datasets and _asked(line, overrides):
            runs.setdefault(line["fingerprint"], []).append(line)
    for own in runs.values():
        _refuse_mixed(own)
    return [Found(datasets[fingerprint], own) for fingerprint, own in runs.items()]


def _asked(line: Line, overrides: Overrides | None) -> bool:
    """Whether a run has the settings that are wanted."""
    if overrides is None:
        return True
    system = existing([line["system"]])
    if not system:
        return False
    wanted = [list(setting) for setting in Run.of(system[0], overrides=overrides).settings]
    return bool(wanted == line["settings"])


def _refuse_mixed(lines: Iterable[Line]) -> None:
    seen: dict[str, Line] = {}
    for line in lines:
        key = f"{line['system']} {line['condition']} {line['seed']}"
        if key in seen:
            found = " and ".join(str(each["settings"]) for each in (seen[key], line))
            raise RevupError(f"runs with different settings ({found}): name those that are wanted as options")
        seen[key] = line


def provenance(name: str, dataset: Line, lines: Sequence[Line]) -> dict[str, Any]:
    """The origin of an experiment's tables, as the runs that they are made from tell it."""
    return {
        "command": f"revup experiment {name} --from-runs {FILE}",
        "dataset": dataset["dataset"],
        "fingerprint": dataset["fingerprint"],
        "part": dataset["view"],
        "seeds": sorted({line["seed"] for line in lines}),
        "settings": sorted({f"{s}.{n}={value}" for line in lines for s, n, value in line["settings"]}),
        "runs": len(lines),
        "compute_seconds": round(math.fsum(line["seconds"] for line in lines)),
        "maths": sorted({line["maths"] for line in lines}),
        "versions": sorted({line["version"] for line in lines}),
        "commits": sorted({str(line["commit"]) for line in lines if line.get("commit")}),
        "devices": sorted({line["device"] for line in lines}),
        "torch": sorted({line["torch"] for line in lines}),
    }
