"""The runs as Markdown tables: medians with their ranges over rates and seeds, or means over seeds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median
from typing import Any

Run = dict[str, Any]
Key = tuple[Any, ...]
CLEANLAB = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
RIVALS = (*(f"cleanlab {name}" for name in CLEANLAB), "argmax", "AUM")
SHOWN = ("cleanlab self_confidence", "cleanlab normalized_margin", "AUM")  # of all rivals, where space is short
CALIBRATED = {"uniform": 0.03, "confusable": 0.08}  # calibration error of p(wrong), at most


def tables(runs: list[Run]) -> str:
    """All tables, those without a run left out."""
    parts = (_planted, _means, _behind, _figures, _users, _folds, _coverage, _forecasts, _crowd, _wiki)
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


def _span(values: Iterable[float], form: str = ".3f") -> str:
    """The median with the range."""
    found = sorted(values)
    return f"{median(found):{form}} ({found[0]:{form}} to {found[-1]:{form}})"


def _within(part: list[Run], limit: Callable[[Run], bool]) -> str:
    return f"{sum(limit(each) for each in part)}/{len(part)}"


def _kinds(runs: list[Run], part: str) -> list[tuple[Key, list[Run]]]:
    return _grouped(runs, part, lambda e: [(e["corpus"], e["noise"])])


def _planted(runs: list[Run]) -> str:
    rows = [
        [
            *key,
            len(part),
            _span(e["ap"] for e in part),
            *(_span(e["rivals"][name] for e in part) if name in part[0]["rivals"] else "–" for name in SHOWN),
            f"{min(e['ap'] - max(e['rivals'].values()) for e in part):+.3f}",
        ]
        for key, part in _kinds(runs, "planted")
    ]
    head = ["corpus", "errors", "runs", "audit", *SHOWN, "least lead over the best of all"]
    return _table("Planted errors: average precision", head, rows)


def _figures(runs: list[Run]) -> str:
    rows = [
        [
            *key,
            len(part),
            _span(e["calibration_error"] for e in part),
            _within(part, lambda e: e["calibration_error"] <= CALIBRATED[e["noise"]]),
            _span((e["expected"] / max(e["wrong"], 1) - 1 for e in part), "+.0%"),
            _within(part, lambda e: bool(e["covered"])),
            _span(e["proposal"] for e in part),
            _span(e["accuracy"] for e in part),
            _within(part, lambda e: e["proposal"] >= e["accuracy"]),
        ]
        for key, part in _kinds(runs, "planted")
        if "accuracy" in part[0]
    ]
    head = ["corpus", "errors", "runs", "calibration error", "within its bar", "number of errors", "covered"]
    more = ["proposal right", "accuracy", "not below it"]
    return _table("Planted errors: probabilities, number and proposal", [*head, *more], rows)


def _behind(runs: list[Run]) -> str:
    """The conditions in which another tool is ahead by more than .01."""
    rows = []
    for key, part in _conditions(runs, "planted"):
        own = _mean(part, "ap")
        ahead = {name: float(_rival(part, name)) - own for name in part[0]["rivals"]}
        if max(ahead.values()) > 0.01:
            which = ", ".join(f"{name} +{gap:.3f}" for name, gap in ahead.items() if gap > 0.01)
            rows.append([*key, len(part), own, which])
    return _table(
        "Conditions in which another tool is ahead", ["corpus", "errors", "rate", "seeds", "audit", "ahead"], rows
    )


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
    head = ["corpora", "conditions", "score", "mean", "least lead of the audit", "conditions over .01 behind"]
    return _table("Means over conditions", head, rows)


def _users(runs: list[Run]) -> str:
    """The audit of one run beside cleanlab on five folds of a classifier; conditions of both only."""
    audit = {(*key, e["seed"]): e["ap"] for key, part in _conditions(runs, "planted") for e in part}
    rows = []
    for (classifier, corpus, noise), part in _grouped(
        runs, "users", lambda e: [(e.get("classifier", "linear"), c, e["noise"]) for c in (e["corpus"], "all")]
    ):
        use = [e for e in part if (e["corpus"], e["noise"], e["rate"], e["seed"]) in audit]
        if not use:
            continue
        own = [audit[e["corpus"], e["noise"], e["rate"], e["seed"]] for e in use]
        best = [max(e["rivals_users"].values()) for e in use]
        scores = [_span(e["rivals_users"][f"cleanlab {name}"] for e in use) for name in CLEANLAB[:2]]
        lead = f"{min(a - b for a, b in zip(own, best, strict=True)):+.3f}"
        cells = [_span(own), *scores, mean(own) - mean(best), lead, _span(e["accuracy_users"] for e in use)]
        rows.append([classifier, corpus, noise, len(use), *cells])
    head = ["classifier", "corpus", "errors", "runs", "audit", *CLEANLAB[:2], "mean lead over the best", "least"]
    return _table("Cleanlab with five folds of a classifier", [*head, "accuracy of the classifier"], rows)


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
