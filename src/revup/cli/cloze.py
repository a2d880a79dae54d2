"""`revup cloze`."""

import revup
from revup.cli.options import Parser, Skipped, load, print_figures
from revup.errors import InputError


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("cloze", "revup cloze run items.txt.gz --json")
    parser.model()
    add = parser.add
    add("file", metavar="FILE", help="items: six sequences a line, the true one first; - is standard input")
    add("--score", default="whole", metavar="S", help="what is compared: whole, continuation or normalised")
    add("--latents", default="first", metavar="L", help="what latents are inferred from: first or candidate")
    parser.common("--skip-bad", "--json")
    given = parser.parse_args(arguments)
    from revup.data.readers.cloze import items

    bad = Skipped()
    model = load(given)
    read = list(items(given.file, bad.add if given.skip_bad else None))
    if not read:
        raise InputError("no items in it", given.file)
    bad.report()
    print_figures({**revup.cloze(model, read, given.score, given.latents), "skipped": bad.count}, given.json)
