"""`revup predict`."""

import revup
from revup.cli.options import Parser, documents, load, whole


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "predict",
        "revup predict run docs.jsonl --top 3 > labelled.jsonl",
        "revup predict run news.txt --format text --spacy-model en_core_web_sm --out labelled.jsonl.gz",
    )
    parser.model(precision=True)
    parser.common("file")
    parser.add("--out", default="-", metavar="FILE", help="where to write (default: standard output)")
    parser.add("--top", type=whole(1), default=5, metavar="N", help="frames for each event")
    parser.add("--revise", action="store_true", help="use the frames in the input as side knowledge")
    parser.reading()
    parser.common("--force")
    given = parser.parse_args(arguments)
    model = load(given)
    with documents(given) as stream:
        revup.write(revup.predict(model, stream, given.top, given.revise), given.out, given.force)
