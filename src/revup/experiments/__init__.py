"""The paper's tables and figures by one command, every system on equal terms.

    revup experiment all DATA --out results --seeds 3

`sweep` computes runs (once, several at a time, in sittings); each table or figure has its file, with `plan` (which runs
it needs) and `show` (what it says of their results); `tables` renders, `paper` holds the paper's own numbers. What is
written, for each NAME that was asked for:

    NAME.md NAME.csv NAME.tex          tables               NAME*.png NAME*.svg    figures (needs matplotlib)
    report.html                        all of it, one page (needs the extra `report`)
    results.json                       all of it as data, with its provenance
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

import revup
from revup.data.corpus import Corpus
from revup.errors import InputError, RevupError
from revup.experiments import ablation, claims, incomplete, noise, perplexity, reliance, small
from revup.experiments.grid import Scope, Section, System, parse_systems
from revup.experiments.sweep import Deadline, Outcome, Run, Sweep, TimeUp, cores
from revup.experiments.views import first_documents
from revup.io.files import write_text
from revup.io.folders import lock
from revup.ops.device import choose_device
from revup.reporting.progress import SweepProgress
from revup.reporting.tables import MARK_NOTE, Table, as_json, cell_text, csv_text, judge, latex, markdown, row_digits
from revup.settings import Overrides

PARTS: dict[str, Any] = {
    "claims": claims,
    "incomplete": incomplete,
    "noise": noise,
    "perplexity": perplexity,
    "small": small,
    "reliance": reliance,
    "ablation": ablation,
}
NO_DATA = ("small", "reliance")  # can do without
MARK = "experiment.json"  # a directory with this file in it is an experiment's own

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
    systems: Sequence[System] | None = None,
    overrides: Overrides | None = None,
    command: str = "",
    screen: Callable[[], AbstractContextManager[Callable[[SweepProgress], None] | None]] = nullcontext,
) -> dict[str, Any]:
    """Compute what is missing, write what there is; `complete` in the answer says whether that is all.

    A call stops before `minutes` are over and the next one goes on. A run that fails is told at the end, after
    everything else is done and written.
    """
    names = [part for part in PARTS if not (quick and part == "ablation")] if name == "all" else [name]
    if unknown := [part for part in names if part not in PARTS]:
        raise RevupError(f"unknown experiment '{unknown[0]}': one of {', '.join(PARTS)}, all")
    if seeds < 1:
        raise RevupError(f"--seeds: expected 1 or more, found {seeds}")
    deadline, target = Deadline.after(minutes), Path(out)
    corpus = _corpus(names, data)
    device = str(choose_device(device))
    _refuse_foreign(target)
    with lock(target / "work"):
        (target / MARK).touch()
        given = overrides or {}
        if quick:
            given = {
                section: {**QUICK.get(section, {}), **given.get(section, {})} for section in sorted({*QUICK, *given})
            }
            corpus = first_documents(corpus, target / "data" / "quick", **QUICK_VIEW) if corpus else None
        scope = Scope(
            corpus,
            target,
            tuple(range(seeds)),
            tuple(systems) if systems else None,
            given,
            quick,
            device,
            deadline,
        )
        outcome = _complete(scope, names, jobs or min(cores(), 8), screen)
        sections, unfinished = _show(scope, names, outcome)
        about = provenance(scope, outcome, command)
        notes = _write(target, sections, about)
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
            raise RevupError(f"{needing[0]}: name the dataset directory to train on")
        return None
    corpus = Corpus.load(data)
    if not corpus.has_frames and any(part in ("incomplete", "noise", "ablation", "claims") for part in names):
        raise InputError("has no frames: only perplexity, small and reliance can be done", str(data))
    return corpus


def _refuse_foreign(target: Path) -> None:
    """Go on with an experiment's own directory, but not with any other."""
    if target.exists() and not target.is_dir():
        raise InputError("exists already and is not a directory", str(target))
    if target.exists() and any(target.iterdir()) and not (target / MARK).exists():
        raise InputError("exists already and is not an experiment's own", str(target))


def _complete(
    scope: Scope,
    names: Sequence[str],
    jobs: int,
    screen: Callable[[], AbstractContextManager[Callable[[SweepProgress], None] | None]],
) -> Outcome:
    runs: list[Run] = [run for name in names for run in PARTS[name].plan(scope)]
    if not runs or scope.corpus is None:
        return Outcome({}, {}, 0, None)
    with screen() as tell:
        return Sweep(scope.corpus, scope.out, scope.device, jobs, scope.deadline, tell).complete(runs)


def _show(scope: Scope, names: Sequence[str], outcome: Outcome) -> tuple[list[Section], list[str]]:
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
            section.partial = (
                f"Not finished: {len(missing)} runs are missing. A cell without all of its seeds says how many it has."
            )
        sections.append(section)
    return sections, unfinished


# ---- writing ---------------------------------------------------------------------------------------------------


def provenance(scope: Scope, outcome: Outcome, command: str = "") -> dict[str, Any]:
    """What the figures were made from and by."""
    results = list(outcome.results.values())
    return {
        "command": command or None,
        "version": revup.__version__,
        "commits": sorted({str(result["commit"]) for result in results if result.get("commit")}),
        "data": scope.corpus.fingerprint if scope.corpus else None,
        "view": scope.corpus.meta.get("view") if scope.corpus else None,
        "documents": {name: len(split) for name, split in scope.corpus.splits.items()} if scope.corpus else None,
        "frames": len(scope.corpus.frames) if scope.corpus else None,
        "words": len(scope.corpus.vocabulary) if scope.corpus else None,
        "seeds": list(scope.seeds),
        "settings": scope.overrides,
        "runs": len({result["name"] for result in results}),
        "compute_seconds": round(sum({result["name"]: result["seconds"] for result in results}.values()), 1),
        "devices": sorted({str(result["device"]) for result in results}),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _write(target: Path, sections: Sequence[Section], about: dict[str, Any]) -> list[str]:
    """All files; notes on what could not be made for want of a library."""
    for section in sections:
        write_text(target / f"{section.name}.md", section_markdown(section, about))
        write_text(target / f"{section.name}.csv", csv_text(section.tables))
        write_text(target / f"{section.name}.tex", section_latex(section, about))
        for stem, figure, _ in section.figures:
            _save_figure(figure, target / stem)
    data = {
        "provenance": about,
        "sections": {
            s.name: {"partial": s.partial, "tables": [as_json(table) for table in s.tables]} for s in sections
        },
    }
    write_text(target / "results.json", json.dumps(data, indent=1) + "\n")
    try:
        write_text(target / "report.html", page(sections, about))
    except RevupError as error:
        return [f"report.html was not written: {error}"]
    return []


def _save_figure(figure: Any, stem: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "revup"}):
        figure.savefig(stem.with_name(f"{stem.name}.svg"), metadata={"Date": None, "Creator": None})
        figure.savefig(stem.with_name(f"{stem.name}.png"), dpi=160, metadata={"Software": None})


def _provenance_lines(about: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (key.replace("_", " "), value if isinstance(value, str) else json.dumps(value))
        for key, value in about.items()
        if value not in (None, [], {})
    ]


def section_markdown(section: Section, about: dict[str, Any]) -> str:
    """A section as one Markdown file, its provenance at the end."""
    parts = [f"## {section.title}", section.text, section.partial]
    parts += [markdown(table).rstrip() for table in section.tables]
    if any(table.compete for table in section.tables):
        parts.append(MARK_NOTE.replace("*", "\\*"))
    parts += [f"![{caption}]({stem}.svg)" for stem, _, caption in section.figures]
    parts.append("\n".join(["### Provenance", "", *(f"- {key}: `{value}`" for key, value in _provenance_lines(about))]))
    return "\n\n".join(part for part in parts if part) + "\n"


def section_latex(section: Section, about: dict[str, Any]) -> str:
    """A section's tables as LaTeX, its provenance in comments."""
    comments = [f"% {key}: {value}" for key, value in _provenance_lines(about)]
    comments += [f"% {section.partial}"] if section.partial else []
    note = f"% {MARK_NOTE}"
    return "\n".join([*comments, note, "", *(latex(table) for table in section.tables)])


def page(sections: Sequence[Section], about: dict[str, Any]) -> str:
    """All sections on one self-contained HTML page."""
    from revup.reporting.pages import Page

    made = Page("RevUp: tables and figures of the paper")
    made.add_text(MARK_NOTE)
    for section in sections:
        made.add_heading(section.title)
        made.add_text(section.text + (f"\n\n**{section.partial}**" if section.partial else ""))
        for table in section.tables:
            _add_table(made, table)
        for _, figure, caption in section.figures:
            made.add_figure(figure, caption)
    made.add_heading("How this was made")
    made.add_table([{" ": key, "  ": value} for key, value in _provenance_lines(about)])
    return made.html()


def _add_table(made: Any, table: Table) -> None:
    """A table with its best cells in bold."""
    from markupsafe import Markup, escape

    columns = [{"name": table.corner, "number": False}]
    columns += [{"name": column, "number": True} for column in table.columns]
    cells = [
        [
            Markup(f"<em>{escape(row.label)}</em>") if row.quoted else row.label,
            *(Markup(cell_text(cell, row_digits(row, table), ("<strong>", "</strong>"))) for cell in line),
        ]
        for row, line in zip(table.rows, judge(table), strict=True)
    ]
    caption = f"**{table.title}.** {table.caption}".strip()
    made.parts.append({"kind": "table", "columns": columns, "rows": cells, "caption": caption, "headed": True})


__all__ = ["PARTS", "experiment", "page", "parse_systems", "provenance", "section_latex", "section_markdown"]
