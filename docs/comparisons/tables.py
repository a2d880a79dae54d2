"""The tables themselves. Each is a function without arguments; `TABLES` has them by the names that pages use."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable

import numpy as np

from comparisons.cells import (
    NONE,
    SAME,
    best_rivals,
    between,
    difference,
    mean,
    named,
    number,
    of_seeds,
    opposed,
    score,
    table,
)
from comparisons.places import (
    ABLATED,
    ANNOTATORS,
    CONFUSED,
    COUNTS,
    DICTIONARIES,
    KINDS,
    LOOKUP,
    NETWORKS,
    PLACES,
    PLAIN,
    README,
    RESULTS,
    REVUP,
    RIVALS,
    SSDVAE,
    TAGGER,
    TARGETS,
    TEXT,
    THREE,
    UNIFORM,
    WITH_DICTIONARY,
    WORLD,
    Place,
    across,
    found,
)
from revup.experiments.bootstrap import interval
from revup.experiments.runs import read_lines
from revup.experiments.tabulate import MEASURES
from revup.models import model_class

INGREDIENTS = RESULTS.parent.parent / "benchmarks/results/count-ingredients-2026-11-19.json"
WHERE = ("corpus (test documents)", "labels")
HUMAN = ("framenet15", "propbank_ewt", "maven")
MEASURE_NAMES = {"accuracy": "accuracy", "soft_cross_entropy": "cross-entropy", "soft_agreement": "agreement"}


def compared() -> list[Place]:
    """The rows of most tables: the places that RevUp was run in."""
    return [place for place in PLACES if place.samples(REVUP).drawn]


def minus_counts() -> list[str]:
    """Headings of what networks add to the counts."""
    return [f"{named(network)} − counts" for network in NETWORKS]


def scores() -> str:
    """Every system's score in each place."""
    systems = (LOOKUP, PLAIN, COUNTS, *NETWORKS)
    rows = []
    for place in compared():
        digits = MEASURES[place.measure].digits
        low, high = interval([*place.samples(REVUP).drawn.values()]) or (0.0, 0.0)
        rivals = best_rivals(place)
        best = f"{', '.join(map(named, rivals))} {score(place, rivals[0])}" if rivals else NONE
        own = [score(place, system) for system in systems]
        rows.append([*place.linked, *own, f"{number(low, digits)} to {number(high, digits)}", best])
    return table([*WHERE, *map(named, systems), "interval of RevUp", "best other rival"], rows)


def differences() -> str:
    """RevUp minus others in each place."""
    rows = []
    for place in compared():
        others = [*(difference(place, REVUP, system) for system in (COUNTS, TAGGER, SSDVAE))]
        rivals = best_rivals(place)
        rows.append([*place.name, *others, difference(place, REVUP, rivals[0]) if rivals else NONE])
    return table([*WHERE, "− counts", "− tagger", "− SSDVAE", "− best other rival"], rows)


def likelihood() -> str:
    """−log p of RevUp, and RevUp minus others, where RevUp is not the counts."""
    rows = []
    for place in compared():
        if place.measure == "accuracy" and not place.same(REVUP, COUNTS):
            others = [difference(place, REVUP, system, "label_nll") for system in (COUNTS, TAGGER, SSDVAE)]
            rows.append([*place.name, score(place, REVUP, "label_nll"), *others])
    return table([*WHERE, "RevUp", "− counts", "− tagger", "− SSDVAE"], rows)


def marks() -> str:
    """What the differences in accuracy that `differences` marks rest on."""
    rows = []
    for place in compared():
        if place.measure != "accuracy":
            continue
        for other in (COUNTS, TAGGER, SSDVAE, *best_rivals(place)[:1]):
            gap = place.minus(REVUP, other)
            if not gap.called or gap.wide is None:
                continue
            own, its = place.documents(REVUP, "right"), place.documents(other, "right")
            moved = [own[seed] - its[seed] for seed in sorted(own.keys() & its.keys())]
            events = next(iter(place.documents(REVUP, "events").values())).sum()
            wide = between(gap.wide, 4)
            rows.append(
                [
                    *place.name,
                    f"RevUp − {named(other)}",
                    f"{number(statistics.fmean(gap.values), 3, True)} "
                    f"({', '.join(number(value, 3, True) for value in gap.values)})",
                    f"{abs(np.mean([each.sum() for each in moved])):.0f} of {events:,}",
                    f"{np.any(moved, axis=0).sum()} of {len(moved[0]):,}",
                    f"**{wide}**" if gap.unsure else wide,
                ]
            )
    head = ["", "difference (seeds)", "net events, mean of seeds", "documents that differ", "the jackknife's interval"]
    return table([*WHERE, *head], rows)


def networks() -> str:
    """What each network adds to the counts, where RevUp is not the counts."""
    rows = [
        [*place.name, *(difference(place, network, COUNTS) for network in NETWORKS)]
        for place in compared()
        if not place.same(REVUP, COUNTS)
    ]
    return table([*WHERE, *minus_counts()], rows)


def kinds() -> str:
    """The differences in accuracy that were found, by kind of knowledge."""
    rows = [[kind, *(_found(places, other) for other in (COUNTS, TAGGER, SSDVAE))] for kind, places in KINDS.items()]
    return table(["knowledge", *(f"RevUp − {named(other)}" for other in (COUNTS, TAGGER, SSDVAE))], rows)


def _found(places: list[Place], other: str) -> str:
    """RevUp minus another system in some places: differences with their intervals, then where there is none."""
    parts: dict[str, list[str]] = {}
    shown = NONE
    several = len({place.data for place in places}) < len(places)
    for place in places:
        where = place.data if place.experiment != "transfer" else f"{place.data} → {place.column}"
        where += f" (ε = {place.shown_column})" if several else ""
        shown = difference(place, REVUP, other)
        if not shown.startswith("**"):
            shown = {SAME: SAME, NONE: "not run"}.get(shown, "none")
        parts.setdefault(shown, []).append(where)
    if len(parts) == 1 and not shown.startswith("**"):
        return shown
    ordered = sorted(parts, key=lambda each: not each.startswith("**"))
    return "; ".join(f"{each} on {', '.join(parts[each])}" for each in ordered)


def behind() -> str:
    """Where any other system is ahead of RevUp: its difference is one and rounds to .001 or more."""
    rows = []
    for place in [*compared(), *WORLD[1:]]:
        soft = place.measure != "accuracy"
        for other in place.rows:
            shown = []
            for measure in ("soft_agreement", "soft_cross_entropy") if soft else ("accuracy", "label_nll"):
                gap, sign = place.minus(other, REVUP, measure), 1 if MEASURES[measure].higher else -1
                ahead = sign * statistics.fmean(gap.values) if gap.called else 0.0
                if not gap.within or ahead < 0.0005:
                    shown.append(NONE)
                    continue
                low, high = sorted(sign * end for end in gap.within)
                text = f"{number(ahead)} {between((low, high), 3, False)}{of_seeds(place, len(gap.values))}"
                shown.append(f"{text}{', not certain' if gap.unsure else ''}{'†' if opposed(gap) else ''}")
            if {*shown} != {NONE}:
                rows.append([*place.name, named(other), *shown])
    return table([*WHERE, "ahead of RevUp", "in accuracy", "in −log p"], rows)


def noise() -> str:
    """Accuracy by η, uniform errors."""
    rows = []
    for data in HUMAN:
        for place in across(data, "noise", UNIFORM, "0.1", "0.5"):
            own = [score(place, row) for row in (COUNTS, *NETWORKS)]
            rows.append([data, place.shown_column, *own, *(difference(place, row, COUNTS) for row in NETWORKS)])
    return table(["", "η", *map(named, (COUNTS, *NETWORKS)), *minus_counts()], rows)


def annotators() -> str:
    """Accuracy by the number of annotators."""
    rows = []
    for data in HUMAN:
        places = across(data, "sources", ANNOTATORS, "1", "2", "3", "4", "5")
        rows.append([data, "counts", *(score(place, COUNTS, within=True) for place in places)])
        rows += [[data, named(row), *(score(place, row) for place in places)] for row in NETWORKS]
    return table(["", "", "1", "2", "3", "4", "5"], rows)


def aggregation() -> str:
    """RevUp on several sources minus taggers on labels that were aggregated beforehand."""
    rows = []
    for place in compared():
        rivals = [row for row in place.rows if " + " in row and row in RIVALS]
        if rivals:
            rows.append([*place.name, score(place, REVUP), *(difference(place, REVUP, row) for row in rivals)])
    head = ["RevUp", "− majority vote + tagger", "− Dawid–Skene + tagger", "− Snorkel + tagger"]
    return table([*WHERE, *head], rows)


def dictionary() -> str:
    """What a dictionary is worth to the counts."""
    rows = []
    for data in WITH_DICTIONARY:
        for part in DICTIONARIES:
            places = across(data, "dictionary", part, "0", "0.1", "1")
            rows.append([f"{data}, {part}", *(score(place, COUNTS, within=True) for place in places)])
    return table(["", "ε = 0", "ε = .1", "ε = 1"], rows)


def dictionary_gain() -> str:
    """What the counts gain by a dictionary and by its weights."""
    rows = []
    for data in WITH_DICTIONARY:
        none, candidates, weighted = (across(data, "dictionary", part, "0", "0.1", "1") for part in DICTIONARIES)
        for text, others in (("none", none), ("candidates", candidates)):
            gains = [difference(a, COUNTS, COUNTS, other=b) for a, b in zip(weighted, others, strict=True)]
            rows.append([f"{data}, weighted − {text}", *gains])
    return table(["", "ε = 0", "ε = .1", "ε = 1"], rows)


def dictionary_networks() -> str:
    """What networks add to the counts by the dictionary they have."""
    rows = []
    for data in WITH_DICTIONARY:
        for part in DICTIONARIES:
            for place in across(data, "dictionary", part, "0.1", "1"):
                if place.samples(REVUP).drawn:
                    own = [difference(place, network, COUNTS) for network in NETWORKS]
                    own += [difference(place, REVUP, other) for other in (TAGGER, SSDVAE)]
                    rows.append([f"{data}, {part}, ε = {place.shown_column}", score(place, REVUP), *own])
    return table(["", "RevUp", *minus_counts(), "RevUp − tagger", "RevUp − SSDVAE"], rows)


def single_sources() -> str:
    """Accuracy of the counts with some of the sources."""
    rows = []
    for data in WITH_DICTIONARY:
        people, parser, both, every = across(
            data, "sources", THREE, "people", "parser", "people and parser", "all three"
        )
        (alone,) = across(data, "dictionary", DICTIONARIES[2], "0")
        gain = difference(every, COUNTS, COUNTS, other=both)
        rows.append([data, *(score(place, COUNTS) for place in (people, parser, alone, both, every)), gain])
    head = ["people (a tenth)", "parser (30% wrong)", "dictionary", "people and parser", "all three"]
    return table(["", *head, "all three minus people and parser"], rows)


def revealed() -> str:
    """Accuracy in the world with some of the true frames given."""
    systems = ("Lookup", COUNTS, PLAIN, TAGGER, SSDVAE, REVUP)
    rows = [[named(row), *(score(place, row, within=row == REVUP) for place in WORLD)] for row in systems]
    best = found("world", "world").dataset["revealed"]
    rows.append(["*exact optimum*", *(number(best[place.column]["accuracy"]) for place in WORLD)])
    return table(["share given", *(place.shown_column for place in WORLD)], rows)


def _text() -> tuple[list[str], list[Place]]:
    shown = [place for place in TEXT if place.samples(REVUP).drawn]
    return ["", *(", ".join(place.name) for place in shown)], shown


def perplexity() -> str:
    """Perplexity with hard frames."""
    head, shown = _text()
    systems = ("RNNLM", "HAQAE", SSDVAE, REVUP)
    return table(head, [[named(row), *(score(place, row) for place in shown)] for row in systems])


def perplexity_differences() -> str:
    """Paired differences of perplexity."""
    head, shown = _text()
    pairs = ((REVUP, SSDVAE), (REVUP, "HAQAE"), (SSDVAE, "HAQAE"))
    rows = [[f"{named(a)} − {named(b)}", *(difference(place, a, b) for place in shown)] for a, b in pairs]
    return table(head, rows)


def ablation() -> str:
    """RevUp with one ingredient returned to its plain value, over the counts."""
    bare, oracle = "objective.prior = none", "oracle: given η"
    rows = []
    for place in ABLATED:
        others = [row for row in place.rows if row not in (COUNTS, REVUP, bare, oracle)]
        assert {bare, oracle} < {*place.rows}
        gaps = {row: place.minus(REVUP, row) for row in others}
        means = [statistics.fmean(gap.values) for gap in gaps.values()]
        real = [f"{row}: {difference(place, REVUP, row)}" for row, gap in gaps.items() if gap.called]
        own = [score(place, row) for row in (COUNTS, REVUP, bare)]
        own += [difference(place, REVUP, other) for other in (COUNTS, bare)]
        ends = f"{number(min(means), 3, True)} to {number(max(means), 3, True)}"
        rows.append([", ".join(place.name), *own, f"{len(others)} variants, {ends}", "; ".join(real) or "none"])
    head = ["counts", "RevUp", "without the counts", "RevUp − counts", "RevUp − without the counts"]
    return table(["", *head, "RevUp − each other variant", "variants whose interval excludes 0"], rows)


def ingredients() -> str:
    """What the counts' newer parts are worth, as `benchmarks/count_ingredients.py` measured it."""
    rows = []
    for row in json.loads(INGREDIENTS.read_text("utf-8"))["rows"]:
        gains = [
            f"{number(row[part]['gain'], signed=True)} {between(tuple(row[part]['interval']))}"
            for part in ("names only", "context only", "both")
        ]
        where = f"{row['data']}, ε = {number(row['epsilon'], 1) if row['epsilon'] < 1 else 1}"
        rows.append([where, number(row["neither"]["accuracy"]), *gains])
    return table(["", "with neither", "names", "context", "both"], rows)


def targets() -> str:
    """Targets and what was reached, by the mean of all seeds."""
    by_name = {tuple(place.name): place for place in [*PLACES, CONFUSED]}
    rows = []
    for corpus, labels, measure, *wanted in TARGETS:
        place, higher = by_name[corpus, labels], MEASURES[measure].higher
        cells = []
        for row, target in zip((COUNTS, REVUP), wanted, strict=True):
            samples = place.samples(row, measure)
            told = NONE if target is None else number(target)
            if target is not None and len(samples.drawn) == place.seeds:
                reached = mean(samples) >= target if higher else mean(samples) <= target
                told += ", reached" if reached else ", **not**"
            cells += [SAME if row == REVUP and place.same(REVUP, COUNTS) else score(place, row, measure), told]
        rows.append([corpus, f"{labels}, {MEASURE_NAMES[measure]}", *cells])
    return table([*WHERE, "counts", "target of the counts", "RevUp", "target of RevUp"], rows)


def readme() -> str:
    """What a newcomer sees first."""
    by_name = {tuple(place.name): place for place in PLACES}
    rows = []
    for corpus, labels, without in README:
        place = by_name[corpus, labels]
        if without:
            (bare,) = across(place.data, "dictionary", DICTIONARIES[0], without)
            counted = score(bare, COUNTS)
        else:
            counted = NONE if place.has_dictionary else score(place, COUNTS)
        own = [score(place, LOOKUP), score(place, PLAIN), counted]
        own += [score(place, COUNTS, within=True)]
        own += [SAME if place.same(row, COUNTS) else score(place, row) for row in (TAGGER, SSDVAE)]
        own += [SAME if place.same(REVUP, COUNTS) else score(place, REVUP, within=True)]
        rows.append([corpus, labels, *own])
    alone = ["lookup (lemma)", "tagger plain", "counts, no dictionary"]
    return table([*WHERE, *alone, "counts", "tagger", "SSDVAE", "RevUp"], rows)


def provenance() -> str:
    """Which code made the runs of each file, where."""
    numbers: Counter[tuple[str, ...]] = Counter()
    for path in sorted((RESULTS / "runs").glob("*.jsonl.gz")):
        for line in read_lines(path)[0]:
            if "config" in line:
                precision = {name: value for _, name, value in line["settings"]}.get("precision", "float32")
                where = "CPU" if line["device"] == "cpu" else "H200"
                arithmetic = precision if model_class(line["system"].split(":")[0]).learns else NONE
                name = path.name.partition(".")[0]
                numbers[name, line["commit"] or NONE, where, arithmetic, str(line["maths"])] += 1
    rows = [[*key, str(runs)] for key, runs in sorted(numbers.items())]
    return table(["file", "commit", "machine", "arithmetic", "version", "runs"], rows)


TABLES: dict[str, Callable[[], str]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        scores, kinds, differences, likelihood, marks, networks, behind, noise, annotators, aggregation, dictionary,
        dictionary_gain, dictionary_networks, single_sources, revealed, perplexity, perplexity_differences, ablation,
        ingredients, targets, readme, provenance,
    )
}  # fmt: skip
