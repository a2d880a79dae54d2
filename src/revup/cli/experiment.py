"""`revup experiment`."""

import shlex
import sys
from pathlib import Path

import revup
from revup.cli.options import Parser, overrides, pick, whole
from revup.reporting.progress import sweep


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "experiment",
        "revup experiment all data --out results --seeds 3",
        "revup experiment incomplete data --out results --device cuda --jobs 8 --minutes 9   # repeat until done",
    )
    add = parser.add
    add("name", metavar="NAME", help="claims, incomplete, noise, perplexity, small, reliance, ablation, or all")
    add("data", metavar="DATA", nargs="?", help="a dataset directory (small and reliance work without)")
    add("--out", required=True, metavar="DIR", help="directory of tables, figures and finished runs, which are reused")
    add("--seeds", type=whole(1), default=3, metavar="N", help="runs of each system and condition")
    add("--quick", action="store_true", help="few documents, conditions and epochs and a small network, for a trial")
    add("--models", metavar="M,…", help="systems to compare, such as lookup,revup:paper,revup (default: all)")
    add("--jobs", type=whole(1), metavar="N", help="runs at a time (default: one for each core, at most 8)")
    add("--minutes", type=float, default=0.0, metavar="X", help="stop after X minutes; the next call continues")
    parser.common("--device", "--json")
    parser.settings(arguments)
    given = parser.parse_args(arguments)
    with sweep() as show:
        result = revup.experiment(
            systems=given.models,
            overrides=overrides(given),
            command=shlex.join(["revup", "experiment", *arguments]),
            progress=show,
            **pick(given, "name", "data", "out", "seeds", "quick", "jobs", "device", "minutes"),
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
