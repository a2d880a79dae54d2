"""What came of a search: as data, as text, and as a table of all trials."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import revup
from revup.data.corpus import Corpus
from revup.io.files import commit, write_json, write_text
from revup.reporting.progress import clock
from revup.reporting.tables import text_table
from revup.training.command import shown, train_command
from revup.training.tuning.study import DEFAULT, Study

ENDS = {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "failed", "RUNNING": "unfinished"}


def outcome(
    corpus: Corpus, study: Study, comparison: dict[str, Any], most: int | None, device: str | None
) -> dict[str, Any]:
    """The outcome of a search, as `revup.tune` returns it.

    Args:
        corpus: The dataset.
        study: The trials.
        comparison: What `Comparison.result` says.
        most: How many trials were asked for.
        device: The device that was asked for.
    """
    plan, best, default = study.plan, study.best(), study.default()
    vectors = corpus.vectors()
    sizes: dict[str, Any] = {
        "classes": len(corpus.frames),
        "vector_size": None if vectors is None else vectors[0].shape[1],
    }

    def command(values: dict[str, Any]) -> str:
        return train_command(plan.to_train(values), str(corpus.path), "RUN", device=device, **sizes)

    states = [ENDS[trial.state.name] for trial in study.trials() if trial.state.name in ENDS]
    counts = {end: states.count(end) for end in ENDS.values()}
    values = {} if best is None else study.values(best.number)
    better = comparison.get("better", False) if comparison else None
    ended = sum(counts.values()) - counts["unfinished"]
    return {
        "model": plan.model,
        "measure": plan.measure,
        "sampler": plan.sampler,
        "counts": counts,
        "recovered": study.recovered,
        "seconds": round(sum(trial.user_attrs.get("seconds", 0.0) for trial in study.finished()), 1),
        "default": None if default is None else {"trial": default.number, "value": default.value},
        "best": None if best is None else {"trial": best.number, "value": best.value, "settings": values},
        "defaults": plan.defaults(corpus),
        "importance": study.importance(),
        "comparison": comparison,
        "command": command(values if better else {}),
        "best_command": command(values),
        "complete": bool(
            best and not counts["unfinished"] and (most is None or ended >= most) and not comparison.get("missing")
        ),
        "data": plan.data,
        "version": revup.__version__,
    }


def write_outcome(folder: Path, found: dict[str, Any], study: Study, command: str) -> None:
    """Write results.json and trials.csv.

    Args:
        folder: The directory of the search.
        found: The outcome.
        study: The trials.
        command: The command that made it.
    """
    names = [each.name for each in study.plan.space]
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["trial", "end", study.plan.measure, "seconds", *names, "note"])
    for trial in study.trials():
        if trial.state.name in ENDS:
            values = study.plan.values(trial.params)
            note = DEFAULT if trial.user_attrs.get(DEFAULT) else trial.user_attrs.get("reason", "")
            value = max(trial.intermediate_values.items(), default=(0, ""))[1] if trial.value is None else trial.value
            seconds = trial.user_attrs.get("seconds", "")
            rows.writerow(
                [trial.number, ENDS[trial.state.name], value, seconds, *(values.get(name, "") for name in names), note]
            )
    write_text(folder / "trials.csv", table.getvalue())
    write_json(folder / "results.json", {**found, "made_by": command or None, "commit": commit()})


def summary(found: dict[str, Any]) -> str:
    """The outcome as text.

    Args:
        found: The outcome.
    """
    counts, best, default, measure = found["counts"], found["best"], found["default"], found["measure"]
    ends = {"finished": "finished", "stopped": "stopped early", "failed": "failed", "unfinished": "unfinished"}
    trials = ", ".join(f"{counts[end]} {text}" for end, text in ends.items() if counts[end] or end == "finished")
    lines = [f"trials: {trials}; {clock(found['seconds'])} of training"]
    if best is None or default is None:
        return "\n".join([*lines, "no trial has finished yet; the same command continues"])
    if best["trial"] == default["trial"]:
        lines.append(f"best on validation: default, {measure} {default['value']:.4f}; no trial was better")
    else:
        lines.append(f"best on validation: trial {best['trial']}, {measure} {best['value']:.4f}")
        lines.append(f"default:            trial {default['trial']}, {measure} {default['value']:.4f}")
    lines += ["", _settings(found), *_verdict(found), "", found["command"]]
    if found["command"] != found["best_command"]:
        lines += ["", f"the settings of trial {best['trial']} all the same:", "", found["best_command"]]
    if not found["complete"]:
        lines += ["", "not finished: the same command continues"]
    return "\n".join(lines)


def _settings(found: dict[str, Any]) -> str:
    importance, best = found["importance"], found["best"]["settings"]
    order = sorted(found["defaults"], key=lambda name: -importance.get(name, 0.0))
    rows = [
        {
            "setting": name,
            "importance": f"{importance[name]:.2f}" if name in importance else "–",
            "best": _plain(best.get(name, found["defaults"][name])),
            "default": _plain(found["defaults"][name]),
        }
        for name in order
    ]
    note = "" if importance else "\n(too few finished trials to say how important each setting is)"
    return text_table(rows).rstrip() + note


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else shown(value)


def _verdict(found: dict[str, Any]) -> list[str]:
    comparison, best = found["comparison"], found["best"]
    if best["trial"] == found["default"]["trial"]:
        return ["", "default is not beaten: train with"]
    if not comparison:
        return ["", "not compared with default over seeds: one seed alone does not show that it is better. For now"]
    if comparison["missing"]:
        return ["", f"the comparison with default over seeds lacks {comparison['missing']} runs. For now"]
    count, gain, interval = len(comparison["seeds"]), comparison["gain"], comparison["interval"]
    means = [sum(comparison[name]) / count for name in ("best", "default")]
    seeds = f"with {count} other seed{'s' * (count > 1)}: trial {best['trial']} {means[0]:.4f}, default {means[1]:.4f}"
    within = "" if interval is None else f" (90% interval {interval[0]:.4f} to {interval[1]:.4f})"
    said = f"{seeds}; gain {gain:.4f}{within}"
    if comparison["better"]:
        return ["", said, "better than default: train with"]
    why = "one seed can't show it" if interval is None else "the interval includes 0" if gain > 0 else "it is worse"
    return ["", said, f"it does not beat default ({why}): train with"]
