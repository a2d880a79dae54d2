"""Write the tables that compare systems across experiments, in the README and docs/results, from the raw runs.

    python docs/make_results.py

A table stands in its page between `<!-- made by docs/make_results.py: NAME -->` and `<!-- end -->`. A test compares the
pages with what this program writes.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from result_places import (
    ABLATED,
    ANNOTATORS,
    CONFUSED,
    COUNTS,
    DICTIONARIES,
    LOOKUP,
    NETWORKS,
    PLACES,
    PLAIN,
    README,
    RESULTS,
    REVUP,
    RIVALS,
    SHOWN,
    SSDVAE,
    TAGGER,
    TARGETS,
    TEXT,
    THREE,
    UNIFORM,
    WORLD,
    Place,
    columns,
    found,
)

from revup.experiments.bootstrap import Interval, interval, jackknife
from revup.experiments.tabulate import MEASURES, Samples

DOCS = Path(__file__).parent
PAGES = (DOCS.parent / "README.md", RESULTS / "README.md", RESULTS / "evidence.md")
TABLE = re.compile(r"(<!-- made by docs/make_results\.py: (\S+) -->\n).*?(<!-- end -->)", re.S)
NONE, SAME = "–", "same"
WHERE = ("corpus (test documents)", "labels")

# ---- cells ---------------------------------------------------------------------------------------------------------


def number(value: float, digits: int = 3, signed: bool = False) -> str:
    """A number as these pages show it: without a leading zero, with a true minus."""
    text = f"{abs(value):.{digits}f}"
    text = text[1:] if text.startswith("0.") else text
    return f"{('−' if value < 0 else '+') if signed else ('−' if value < 0 else '')}{text}"


def digits(measure: str) -> int:
    """Digits after the decimal point."""
    return MEASURES[measure].digits


def between(within: Interval, places: int, signed: bool = True) -> str:
    """An interval."""
    return f"[{number(within[0], places, signed)}, {number(within[1], places, signed)}]"


def mean(samples: Samples) -> float:
    """The mean over seeds."""
    return statistics.fmean(float(each[-1]) for each in samples.drawn.values())


def score(place: Place, row: str, measure: str = "", within: bool = False) -> str:
    """A row's score, with its interval if wanted."""
    measure = measure or place.measure
    samples = place.samples(row, measure)
    if not samples.drawn:
        return NONE
    shown = number(mean(samples), digits(measure))
    if len(samples.drawn) < len(found(place.file, place.data).seeds):
        shown += f" ({len(samples.drawn)} of {len(found(place.file, place.data).seeds)})"
    around = interval([*samples.drawn.values()])
    return f"{shown} {between(around, digits(measure), False)}" if within and around else shown


def difference(place: Place, first: str, second: str, measure: str = "", other: Place | None = None) -> str:
    """A row's score minus that of another, of another place if one is named, as a cell with its mark."""
    measure = measure or place.measure
    if other is None and place.same(first, second):
        return SAME
    a, b = place.samples(first, measure), (other or place).samples(second, measure)
    values, within, called, unsure = a.minus(b)
    if within is None:
        return NONE
    shown = f"{number(statistics.fmean(values), digits(measure), True)} {between(within, digits(measure))}"
    return f"**{shown}** (\\*)" if unsure else f"**{shown}\\***" if called else shown


def called(place: Place, first: str, second: str, measure: str) -> tuple[float, Interval, bool] | None:
    """A difference where it is one: its mean, its interval, whether it is not certain."""
    if place.same(first, second):
        return None
    a, b = place.samples(first, measure), place.samples(second, measure)
    if a.drawn.keys() != b.drawn.keys():
        return None
    values, within, marked, unsure = a.minus(b)
    return (statistics.fmean(values), within, unsure) if within and marked else None


def best_rival(place: Place) -> str:
    """The rival with the best test score; empty where none was run with all seeds."""
    seeds = len(found(place.file, place.data).seeds)
    known = {row: place.samples(row) for row in place.rows if row in RIVALS}
    means = {row: mean(samples) for row, samples in known.items() if len(samples.drawn) == seeds}
    best = max if MEASURES[place.measure].higher else min
    return best(means, key=lambda row: means[row]) if means else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


# ---- the tables ----------------------------------------------------------------------------------------------------


def compared() -> list[Place]:
    """The rows of most tables: the places that RevUp was run in."""
    return [place for place in PLACES if place.samples(REVUP).drawn]


def scores() -> str:
    """Every system's score in each place."""
    systems = (LOOKUP, PLAIN, COUNTS, *NETWORKS)
    head = [*WHERE, *(SHOWN[system] for system in systems), "interval of RevUp", "best other rival"]
    rows = []
    for place in compared():
        around = interval([*place.samples(REVUP).drawn.values()])
        assert around is not None
        rival = best_rival(place)
        rows.append(
            [
                *place.linked,
                *(score(place, system) for system in systems),
                " to ".join(number(end, digits(place.measure)) for end in around),
                f"{RIVALS[rival]} {score(place, rival)}" if rival else NONE,
            ]
        )
    return table(head, rows)


def differences() -> str:
    """RevUp minus others in each place."""
    rows = []
    for place in compared():
        rival = best_rival(place)
        others = [difference(place, REVUP, system) for system in (COUNTS, TAGGER, SSDVAE)]
        rows.append([*place.name, *others, difference(place, REVUP, rival) if rival else NONE])
    return table([*WHERE, "− counts", "− tagger", "− SSDVAE", "− best other rival"], rows)


def likelihood() -> str:
    """−log p of RevUp, and RevUp minus others, in each place with labels."""
    rows = []
    for place in compared():
        if place.measure != "accuracy":
            continue
        others = [difference(place, REVUP, system, "label_nll") for system in (COUNTS, TAGGER, SSDVAE)]
        if not {*others} <= {SAME, NONE}:
            rows.append([*place.name, score(place, REVUP, "label_nll"), *others])
    return table([*WHERE, "RevUp", "− counts", "− tagger", "− SSDVAE"], rows)


def marks() -> str:
    """What the differences that `differences` marks rest on."""
    rows = []
    for place in compared():
        if place.measure != "accuracy":
            continue
        for other in (COUNTS, TAGGER, SSDVAE, best_rival(place)):
            if not other or called(place, REVUP, other, place.measure) is None:
                continue
            a, b = place.samples(REVUP), place.samples(other)
            values, *_ = a.minus(b)
            wide = jackknife(a.left_out, b.left_out)
            right = [*zip(place.sums(REVUP, "right"), place.sums(other, "right"), strict=True)]
            scored = place.sums(REVUP, "events")[0].sum()
            per_seed = ", ".join(number(value, 3, True) for value in values)
            moved = np.mean([(own - its).sum() for own, its in right], axis=0)
            differing = np.any([own != its for own, its in right], axis=0)
            assert wide is not None
            shown = between(wide, 4)
            rows.append(
                [
                    *place.name,
                    f"RevUp − {RIVALS.get(other) or SHOWN[other]}",
                    f"{number(statistics.fmean(values), 3, True)} ({per_seed})",
                    f"{abs(moved):.0f} of {scored:,}",
                    f"{int(differing.sum())} of {len(differing):,}",
                    f"**{shown}**" if wide[0] <= 0 <= wide[1] else shown,
                ]
            )
    head = [
        *WHERE,
        "",
        "difference (seeds)",
        "events, mean of seeds",
        "documents that differ",
        "the jackknife's interval",
    ]
    return table(head, rows)


def networks() -> str:
    """What each network adds to the counts, where RevUp is not the counts."""
    rows = [
        [*place.name, *(difference(place, network, COUNTS) for network in NETWORKS)]
        for place in compared()
        if not place.same(REVUP, COUNTS)
    ]
    return table([*WHERE, *(f"{SHOWN[network]} − counts" for network in NETWORKS)], rows)


def behind() -> str:
    """Where another system is ahead of RevUp by at least .001."""
    rows = []
    for place in [*compared(), *WORLD]:
        if place.measure != "accuracy":
            continue
        for other in place.rows:
            shown = []
            for measure, sign in (("accuracy", -1), ("label_nll", 1)):
                gap = called(place, REVUP, other, measure) if other in (SHOWN | RIVALS) and other != REVUP else None
                if gap and sign * gap[0] >= 0.0005:
                    value, (low, high), unsure = gap
                    ends = sorted((sign * low, sign * high))
                    text = f"{number(sign * value)} [{number(ends[0])}, {number(ends[1])}]"
                    shown.append(f"{text}, not certain" if unsure else text)
                else:
                    shown.append(NONE)
            if {*shown} != {NONE}:
                rows.append([*place.name, RIVALS.get(other) or SHOWN[other], *shown])
    return table([*WHERE, "ahead of RevUp", "in accuracy", "in −log p"], rows)


def grid(places: Sequence[Place], rows: Sequence[str], corner: str, within: Sequence[str] = ()) -> str:
    """Scores of systems in some columns of one table; rows named in `within` with intervals."""
    made = [
        [SHOWN.get(row) or RIVALS[row], *(score(place, row, within=row in within) for place in places)] for row in rows
    ]
    return table([corner, *(place.column.lstrip("0") or "0" for place in places)], made)


def noise() -> str:
    """Accuracy by η, uniform errors."""
    rows = []
    for data in ("framenet15", "propbank_ewt", "maven"):
        for eta in ("0.1", "0.3", "0.5"):
            (place,) = columns(data, "noise", UNIFORM, eta)
            names = [score(place, row) for row in (COUNTS, *NETWORKS)]
            rows.append([data, number(float(eta), 1), *names, *(difference(place, row, COUNTS) for row in NETWORKS)])
    head = ["", "η", *(SHOWN[row] for row in (COUNTS, *NETWORKS)), *(f"{SHOWN[row]} − counts" for row in NETWORKS)]
    return table(head, rows)


def annotators() -> str:
    """Accuracy by the number of annotators."""
    rows = []
    for data in ("framenet15", "propbank_ewt", "maven"):
        places = columns(data, "sources", ANNOTATORS, "1; 2; 3; 4; 5")
        rows += [
            [data, SHOWN[row], *(score(place, row, within=row == COUNTS) for place in places)]
            for row in (COUNTS, *NETWORKS)
        ]
    return table(["", "", "1", "2", "3", "4", "5"], rows)


def dictionary() -> str:
    """What a dictionary is worth to the counts."""
    rows = []
    for data in ("framenet15", "propbank_ewt"):
        for part in DICTIONARIES:
            places = columns(data, "dictionary", part, "0; 0.1; 1")
            rows.append([f"{data}, {part}", *(score(place, COUNTS, within=True) for place in places)])
    return table(["", "ε = 0", "ε = .1", "ε = 1"], rows)


def dictionary_gain() -> str:
    """What the counts gain by a dictionary and by its weights."""
    rows = []
    for data in ("framenet15", "propbank_ewt"):
        none, candidates, weighted = (columns(data, "dictionary", part, "0; 0.1; 1") for part in DICTIONARIES)
        for text, others in (("none", none), ("candidates", candidates)):
            cells_ = [difference(a, COUNTS, COUNTS, other=b) for a, b in zip(weighted, others, strict=True)]
            rows.append([f"{data}, weighted − {text}", *cells_])
    return table(["", "ε = 0", "ε = .1", "ε = 1"], rows)


def dictionary_networks() -> str:
    """What networks add to the counts by the dictionary they have."""
    rows = []
    for data in ("framenet15", "propbank_ewt"):
        for part in DICTIONARIES:
            for place in columns(data, "dictionary", part, "0; 0.1; 1"):
                if place.samples(REVUP).drawn:
                    own = [difference(place, network, COUNTS) for network in NETWORKS]
                    own += [difference(place, REVUP, other) for other in (TAGGER, SSDVAE)]
                    rows.append([f"{data}, {part}, ε = {place.column.lstrip('0') or '0'}", score(place, REVUP), *own])
    head = [*(f"{SHOWN[network]} − counts" for network in NETWORKS), "RevUp − tagger", "RevUp − SSDVAE"]
    return table(["", "RevUp", *head], rows)


def single_sources() -> str:
    """Accuracy of the counts with some of the sources."""
    rows = []
    for data in ("framenet15", "propbank_ewt"):
        places = columns(data, "sources", THREE, "people; parser; people, parser; all three")
        (alone,) = columns(data, "dictionary", DICTIONARIES[2], "0")
        gain = difference(places[3], COUNTS, COUNTS, other=places[2])
        cells_ = [score(place, COUNTS) for place in places]
        rows.append([data, *cells_[:2], score(alone, COUNTS), *cells_[2:], gain])
    head = ["people (a tenth)", "parser (30% wrong)", "dictionary", "people and parser", "all three"]
    return table(["", *head, "all three minus people and parser"], rows)


def revealed() -> str:
    """Accuracy in the world with some of the true frames given."""
    rows = ("Lookup", COUNTS, PLAIN, TAGGER, SSDVAE, REVUP)
    best = [
        "*exact optimum*",
        *(number(found("revealed", "world").dataset["revealed"][p.column]["accuracy"]) for p in WORLD),
    ]
    made = grid(WORLD, rows, "share given", within=(REVUP,))
    return f"{made}| {' | '.join(best)} |\n"


def _text() -> tuple[list[str], list[Place]]:
    shown = [place for place in TEXT if place.samples(REVUP).drawn]
    return ["", *(", ".join(place.name) for place in shown)], shown


def perplexity() -> str:
    """Perplexity with hard frames."""
    head, shown = _text()
    systems = ("RNNLM", "HAQAE", SSDVAE, REVUP)
    return table(head, [[SHOWN[row], *(score(place, row) for place in shown)] for row in systems])


def perplexity_differences() -> str:
    """Paired differences of perplexity."""
    head, shown = _text()
    pairs = ((REVUP, SSDVAE), (REVUP, "HAQAE"), (SSDVAE, "HAQAE"))
    rows = [[f"{SHOWN[a]} − {SHOWN[b]}", *(difference(place, a, b) for place in shown)] for a, b in pairs]
    return table(head, rows)


def ablation() -> str:
    """RevUp with one ingredient returned to its plain value, over the counts."""
    head, rows = ["", "counts", "RevUp", "without the counts", "RevUp − counts", "RevUp − without"], []
    for place in ABLATED:
        cut = "objective.prior = none"
        rows.append([", ".join(place.name), *(score(place, row) for row in (COUNTS, REVUP, cut))])
        rows[-1] += [difference(place, REVUP, other) for other in (COUNTS, cut)]
        gaps = {row: difference(place, REVUP, row) for row in place.rows if row not in (COUNTS, REVUP, cut)}
        named = [f"{row}: {gap}" for row, gap in gaps.items() if "*" in gap]
        least = [mean(place.samples(REVUP)) - mean(place.samples(row)) for row in gaps]
        ends = f"{number(min(least), 3, True)} to {number(max(least), 3, True)}" if least else NONE
        rows[-1] += [f"{len(gaps)}: {ends}", "; ".join(named) or "none"]
    return table([*head, "RevUp minus each other row", "of these, differences"], rows)


def targets() -> str:
    """Targets and what was reached, by the mean."""
    by_name = {tuple(place.name): place for place in [*PLACES, CONFUSED]}
    rows = []
    for corpus, labels, measure, *asked in TARGETS:
        place, up = by_name[corpus, labels], MEASURES[measure].higher
        cells_ = []
        for row, target in zip((COUNTS, REVUP), asked, strict=True):
            value = mean(place.samples(row, measure))
            reached = target is None or (value >= target if up else value <= target)
            shown = NONE if target is None else f"{number(target)}, {'reached' if reached else '**not**'}"
            cells_ += [score(place, row, measure, within=row == COUNTS), shown]
        rows.append([corpus, f"{labels}, {MEASURE_NAMES[measure]}", *cells_])
    return table([*WHERE, "counts", "target", "RevUp", "target"], rows)


MEASURE_NAMES = {"accuracy": "accuracy", "soft_cross_entropy": "cross-entropy", "soft_agreement": "agreement"}


def readme() -> str:
    """What a newcomer sees first."""
    by_name = {tuple(place.name): place for place in PLACES}
    rows = []
    for corpus, labels, without in README:
        place = by_name[corpus, labels]
        plain = next((p for p in columns(place.data, "dictionary", DICTIONARIES[0], without) if without), place)
        bare = score(plain, COUNTS) if without or "," not in corpus else NONE
        cells_ = [score(place, LOOKUP), score(place, PLAIN), bare, *(score(place, s) for s in (COUNTS, *NETWORKS[:2]))]
        rows.append([corpus, labels, *cells_, score(place, REVUP, within=True)])
    alone = [f"{SHOWN[LOOKUP]}", "tagger", "counts"]
    return table([*WHERE, *(f"{name}, no dictionary" for name in alone), "counts", "tagger", "SSDVAE", "RevUp"], rows)


TABLES: dict[str, Callable[[], str]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        scores, differences, likelihood, marks, networks, behind, noise, annotators, dictionary, dictionary_gain,
        dictionary_networks, single_sources, revealed, perplexity, perplexity_differences, ablation,
        targets,
        readme,
    )
}  # fmt: skip


def written(text: str) -> str:
    """A page with its tables made anew."""
    return TABLE.sub(lambda match: f"{match[1]}\n{TABLES[match[2]]()}\n{match[3]}", text)


def main() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        page.write_text(written(text), "utf-8")


if __name__ == "__main__":
    main()
