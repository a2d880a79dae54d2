"""The runs as Markdown tables; means over seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import Any

Run = dict[str, Any]
Key = tuple[Any, ...]
CLEANLAB = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
RIVALS = (*(f"cleanlab {name}" for name in CLEANLAB), "argmax", "AUM")


def tables(runs: list[Run]) -> str:
    """All tables, those without a run left out."""
    parts = (_planted, _means, _users, _folds, _coverage, _forecasts, _crowd, _wiki)
    return "\n".join(text for part in parts if (text := part(runs)))


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [[f"{x:.3f}" if isinstance(x, float) else str(x) for x in row] for row in rows]
    if not cells:
        return ""
    lines = ["", f"## {title}", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in cells])


def _grouped(runs: list[Run], part: str, key: Callable[[Run], Iterable[Key]]) -> list[tuple[Key, list[Run]]]:
    groups: dict[Key, list[Run]] = defaultdict(list)
    for each in runs:
        if each["part"] == part:
            for name in key(each):
                groups[name].append(each)
    return sorted(groups.items())


def _conditions(runs: list[Run], part: str) -> list[tuple[Key, list[Run]]]:
    return _grouped(runs, part, lambda e: [(e["corpus"], e["noise"], e["rate"])])


def _mean(part: list[Run], key: str) -> float:
    return mean(each[key] for each in part)


def _rival(part: list[Run], name: str, key: str = "rivals") -> float | str:
    return mean(each[key][name] for each in part) if name in part[0][key] else "–"


def _planted(runs: list[Run]) -> str:
    rows = [
        [
            *key,
            len(part),
            _mean(part, "ap"),
            *(_rival(part, name) for name in RIVALS),
            _mean(part, "calibration_error"),
            f"{mean(e['expected'] / max(e['wrong'], 1) for e in part) - 1:+.0%}",
            f"{sum(e['covered'] for e in part)}/{len(part)}",
            _mean(part, "proposal"),
            _mean(part, "accuracy"),
        ]
        for key, part in _conditions(runs, "planted")
    ]
    head = ["corpus", "errors", "rate", "seeds", "audit", *RIVALS, "calibration", "number", "covered", "proposal"]
    return _table("Planted errors: average precision, and the rest of the audit", [*head, "accuracy"], rows)


def _means(runs: list[Run]) -> str:
    """Means over conditions, and where the audit is below another tool."""
    rows = []
    for corpora in ("all", "without worlds"):
        use = [
            part
            for key, part in _conditions(runs, "planted")
            if key[0] != "wiki" and (corpora == "all" or key[0] != "world")
        ]
        if not use:
            continue
        audit = [_mean(part, "ap") for part in use]
        rows.append([corpora, len(use), "audit", mean(audit), "–", "–"])
        for name in RIVALS:
            gain = [own - float(_rival(part, name)) for own, part in zip(audit, use, strict=True)]
            below = f"{sum(g < -0.01 for g in gain)}/{len(gain)}"
            rows.append([corpora, len(use), name, mean(audit) - mean(gain), f"{min(gain):+.3f}", below])
    head = [
        "corpora",
        "conditions",
        "score",
        "mean",
        "least lead of the audit",
        "conditions in which it is over .01 behind",
    ]
    return _table("Means over conditions", head, rows)


def _users(runs: list[Run]) -> str:
    audit = {key: _mean(part, "ap") for key, part in _conditions(runs, "planted")}
    rows = [
        [
            *key,
            audit.get(key, "–"),
            *(_rival(part, f"cleanlab {name}", "rivals_users") for name in CLEANLAB),
            _mean(part, "accuracy_users"),
        ]
        for key, part in _conditions(runs, "users")
    ]
    if rows:
        columns = [[float(row[k]) for row in rows if row[3] != "–"] for k in (3, 4, 5, 6)]
        rows.append(["mean", "", "", *(mean(column) if column else "–" for column in columns), ""])
    head = ["corpus", "errors", "rate", "audit", *CLEANLAB, "accuracy of the classifier"]
    return _table("Cleanlab with five folds of softmax regression", head, rows)


def _folds(runs: list[Run]) -> str:
    rows = [
        [*key, _mean(part, "ap"), _mean(part, "ap_folds"), mean(max(e["rivals_folds"].values()) for e in part)]
        for key, part in _grouped(runs, "folds", lambda e: [(e["corpus"], e["noise"])])
    ]
    head = ["corpus", "errors", "one run", "five folds", "best rival on five folds"]
    return _table("One run and five folds, 10%", head, rows)


def _coverage(runs: list[Run]) -> str:
    rows = [
        [
            *key,
            len(part),
            mean(float(e["covered"]) for e in part),
            mean((e["interval"][1] - e["interval"][0]) / e["labels"] for e in part),
            mean(abs(e["expected"] - e["wrong"]) / e["labels"] for e in part),
        ]
        for key, part in _grouped(
            runs,
            "coverage",
            lambda e: [(e["noise"], known, corpus) for known in (e["known"], "all") for corpus in (e["corpus"], "all")],
        )
    ]
    head = ["errors", "known", "corpora", "number", "covered", "width / labels", "error of the number / labels"]
    return _table("Intervals", head, rows)


def _forecasts(runs: list[Run]) -> str:
    rows = []
    for key, part in _grouped(runs, "forecast", lambda e: [(c, e["scored"]) for c in (e["corpus"], "all")]):
        outcomes = [outcome for each in part for outcome in each["outcomes"]]
        rows.append(
            [
                *key,
                len(outcomes),
                mean(float(e["covered"]) for e in outcomes),
                mean(e["interval"][1] - e["interval"][0] for e in outcomes),
                mean(e["expected"] - e["reached"] for e in outcomes),
                mean(abs(e["expected"] - e["reached"]) for e in outcomes),
            ]
        )
    head = ["corpus", "scored", "forecasts", "covered", "width", "expected − reached", "distance"]
    return _table("The forecast of suggest", head, rows)


def _crowd(runs: list[Run]) -> str:
    rows = []
    for name in ("crowdtruth", "crowdtruth dictionary"):
        part = [each[name] for each in runs if each["part"] == "crowd"]
        if not part:
            continue
        rows.append(
            [
                name,
                len(part),
                mean(e["wrong"] / e["labels"] for e in part),
                *(_mean(part, key) for key in ("ap", "self-confidence", "first_100", "calibration_error")),
                f"{_mean(part, 'expected'):,.0f} ({_mean(part, 'wrong'):,.0f})",
                f"{sum(e['interval'][0] <= e['wrong'] <= e['interval'][1] for e in part)}/{len(part)}",
                _mean(part, "proposal"),
            ]
        )
    head = ["", "draws", "base rate", "audit", "self-confidence", "of the first 100", "calibration", "number"]
    return _table("Real errors: a draw from the votes against the majority", [*head, "covered", "proposal"], rows)


def _wiki(runs: list[Run]) -> str:
    rows = [
        [what, *(count[name] for name in ("first", "random"))]
        for each in runs
        if each["part"] == "wiki"
        for what, count in each["judged"].items()
    ]
    return _table("Wiki's automatic frames: 100 labels each", ["", "most suspicious", "drawn at random"], rows)
