"""`revup apply`."""

import json
import sys

import revup
from revup.cli.options import Parser
from revup.errors import RevupError


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("apply", "revup apply docs.jsonl issues.decisions.jsonl --out corrected.jsonl")
    parser.add("file", metavar="FILE", help="the reviewed documents in JSON Lines; - is standard input")
    parser.add("decisions", metavar="DECISIONS", help="the decisions of `revup review`")
    parser.output("--out", required=True, metavar="FILE2", help="where to write; - is standard output")
    parser.add("--skip-bad", action="store_true", help="copy invalid lines as they are")
    parser.common("--force", "--json")
    given = parser.parse_args(arguments)
    if given.json and given.out == "-":
        raise RevupError("--json: standard output is taken by --out -")
    figures = revup.apply(given.file, given.decisions, given.out, given.force, given.skip_bad)
    if given.json:
        print(json.dumps(figures))
        return
    print(
        f"revup: {figures['changed']:,} of {figures['decisions']:,} reviewed labels changed, "
        f"{figures['unchanged']:,} unchanged, {figures['skipped']:,} skipped",
        file=sys.stderr,
    )
    if figures["bad_lines"]:
        print(f"revup: note: copied {figures['bad_lines']:,} bad lines as they are", file=sys.stderr)
