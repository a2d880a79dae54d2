"""`revup embed`."""

import revup
from revup.cli.options import Parser, documents, load


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("embed", "revup embed run docs.jsonl --out vectors.npz")
    parser.model(precision=True)
    parser.common("file")
    parser.add("--out", required=True, metavar="X.npz", help="the file of arrays to write")
    parser.reading()
    parser.common("--force")
    given = parser.parse_args(arguments)
    from revup.io.folders import refuse_existing

    refuse_existing(given.out, given.force)
    with documents(given) as stream:
        vectors = revup.embed(load(given), stream)
    vectors.save(given.out, given.force)
