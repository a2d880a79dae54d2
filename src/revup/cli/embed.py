"""`revup embed`."""

import revup
from revup.cli.options import Parser, chosen, documents, load, pick, refuse_on_cluster, report_cluster
from revup.reporting.progress import counter


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("embed", "revup embed run docs.jsonl --out vectors.npz")
    parser.model(precision=True)
    parser.common("file")
    parser.output("--out", required=True, metavar="X.npz", help="the file of arrays to write")
    parser.common("--event-vectors", "--encoder")
    parser.reading()
    parser.common("--engine", "--workers", "--force")
    given = parser.parse_args(arguments)
    refuse_on_cluster(given)
    if given.engine == "ray":
        from revup.data.readers import Options

        report = revup.embed_on_cluster(
            load(given),
            progress=counter("documents"),
            **pick(given, "file", "out", "format", "skip_bad", "workers", "force"),
            **chosen(given, Options),
        )
        report_cluster(report, given.out)
        return
    with documents(given) as stream:
        vectors = revup.embed(load(given), stream)
    vectors.save(given.out, given.force)
