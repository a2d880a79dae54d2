"""`revup cloze`."""

from __future__ import annotations

from collections.abc import Sequence

import revup
from revup.cli.options import Parser, print_figures, report_skipped
from revup.errors import InputError


def run(arguments: Sequence[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("cloze", "revup cloze run items.txt.gz --json")
    parser.common("run")
    add = parser.add
    add("file", metavar="FILE", help="items: six sequences a line, the true one first; - is standard input")
    add(
        "--score",
        default="whole",
        metavar="S",
        help="what is compared: whole, continuation or normalised (default: whole)",
    )
    add(
        "--latents",
        default="first",
        metavar="L",
        help="what latents are inferred from: first or candidate (default: first)",
    )
    parser.common("--skip-bad", "--device", "--allow-unfinished", "--json")
    given = parser.parse_args(arguments)
    from revup.data.readers.cloze import items

    bad: list[InputError] = []
    model = revup.load(given.run, given.device, allow_unfinished=given.allow_unfinished)
    read = list(items(given.file, bad.append if given.skip_bad else None))
    if not read:
        raise InputError("no items in it", given.file)
    report_skipped(bad)
    print_figures({**revup.cloze(model, read, given.score, given.latents), "skipped": len(bad)}, given.json)
