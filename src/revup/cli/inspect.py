"""`revup inspect`."""

import json

import revup
from revup.cli.options import Parser, load, whole


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("inspect", "revup inspect run --page latents.html")
    parser.model()
    parser.common("data", "--split")
    parser.add("--top", type=whole(1), default=10, metavar="N", help="words and frames shown for each")
    parser.output("--page", metavar="FILE", help="write an HTML page with plots")
    parser.common("--force", "--json")
    given = parser.parse_args(arguments)
    from revup.reporting.latents import page, summary

    corpus = revup.Corpus.load(given.data) if given.data else None
    found = revup.inspect(load(given), corpus, given.split, given.top)
    if given.page:
        page(found).save(given.page)
    print(json.dumps(found) if given.json else summary(found))
    if given.page and not given.json:
        print(f"wrote {given.page}")
