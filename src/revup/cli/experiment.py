"""`revup experiment`."""

import shlex
import sys
from pathlib import Path

import revup
from revup.cli.options import Parser, overrides, pick, whole
from revup.errors import RevupError
from revup.reporting.progress import sweep

NAMES = (
    *("incomplete", "noise", "perplexity", "soft", "dictionary", "sources", "transfer", "revealed", "ablation"),
    *("labelling", "small", "reliance"),
)


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "experiment",
        "revup experiment all data --out results --seeds 3",
        "revup experiment soft dictionary data --out results --device cuda --jobs 8 --minutes 9   # repeat until done",
        "revup experiment all --from-runs results/runs.jsonl.gz --out tables",
    )
    add = parser.add
    add("names", metavar="NAME… DATA", nargs="+", help=f"some of {', '.join(NAMES)}, or all; then a dataset directory")
    add("--data", metavar="DIR", help="a dataset directory, or a directory of several (in place of DATA)")
    add("--out", required=True, metavar="DIR", help="directory of raw runs, which are reused, and tables and figures")
    add("--from-runs", metavar="FILE", help="make the tables from this file of raw runs; nothing is trained")
    add("--seeds", type=whole(1), default=3, metavar="N", help="runs of each system and condition")
    add("--quick", action="store_true", help="few documents, conditions and epochs and a small network, for a trial")
    add("--few", action="store_true", help="few conditions of each experiment, on all of the data")
    add("--models", metavar="M,…", help="systems to compare, such as lookup,revup:paper,revup (default: all)")
    add("--without", metavar="M,…", help="systems to leave out of those")
    add("--datasets", metavar="NAME,…", help="those to use of a directory of several (default: all)")
    add("--test", metavar="DATA", action="append", help="transfer: a further dataset to test on; may be repeated")
    add("--columns", metavar="C,…", help="columns of the tables to compute, as they are headed (default: all)")
    add("--search", action="store_true", help="let a small search choose each system's settings, on validation labels")
    add("--jobs", type=whole(1), metavar="N", help="runs at a time (default: one for each core, at most 8)")
    add("--minutes", type=float, default=0.0, metavar="X", help="stop after X minutes; the next call continues")
    parser.common("--device", "--engine", "--json")
    parser.settings(arguments)
    given = parser.parse_args(arguments)
    names, data = given.names, given.data
    if data is None and len(names) > 1 and names[-1] not in (*NAMES, "all"):
        *names, data = names
    settings = overrides(given)
    if given.from_runs and data:
        raise RevupError("--from-runs: needs no dataset: nothing is trained")
    with sweep() as show:
        result = revup.experiment(
            names,
            data,
            systems=given.models,
            without=given.without or (),
            datasets=given.datasets.split(",") if given.datasets else (),
            tests=given.test or (),
            columns=given.columns.split(",") if given.columns else (),
            overrides=(settings if any(settings.values()) else None) if given.from_runs else settings,
            command=shlex.join(["revup", "experiment", *arguments]),
            progress=show,
            **pick(given, "out", "seeds", "quick", "few", "search", "jobs", "device", "engine", "minutes", "from_runs"),
        )
    for note in result["notes"]:
        print(f"revup: note: {note}", file=sys.stderr)
    if given.json:
        print((Path(given.out) / "results.json").read_text("utf-8"), end="")
        return
    print(f"{result['runs']} runs finished; tables in {given.out}: {', '.join(result['written'])}")
    if not result["complete"]:
        left = "" if result["seconds_left"] is None else f", about {result['seconds_left'] / 60:.0f} minutes"
        parts = ", ".join(result["unfinished"])
        print(f"not finished ({parts}): {result['left']} runs left{left}; the same command continues")
