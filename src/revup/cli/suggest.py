"""`revup suggest`."""

import json

import revup
from revup.cli.options import Parser, given_documents, load, reading_of, review_command, whole


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    from revup.auditing.issues import write_issues

    parser = Parser(
        "suggest",
        "revup suggest run docs.jsonl -n 100 --out next.jsonl",
        "revup review next.jsonl docs.jsonl                      # label them in the browser",
    )
    parser.model()
    parser.add("file", metavar="FILE", help="documents or a dataset directory; - is standard input")
    parser.add("-n", type=whole(1), default=100, metavar="N", help="how many events to name")
    parser.output("--out", required=True, metavar="NEXT", help="the list to write, most useful events first")
    parser.add("--no-check", action="store_true", help="leave out labels that are to be checked again")
    parser.common("--split", "--no-lexicon", "--event-vectors", "--encoder")
    parser.set_defaults(split="train")
    parser.reading()
    parser.common("--force", "--json")
    given = parser.parse_args(arguments)
    model = load(given)
    with given_documents(given) as stream:
        found = revup.suggest(model, stream, given.n, split=given.split, check=not given.no_check)
    write_issues(given.out, found.rows, reading_of(given, model.frames, found.summary), given.force)
    if given.json:
        print(json.dumps(found.summary))
        return
    s = found.summary
    print(
        f"{s['suggested']:,} of {s['events']:,} events: {s['label']:,} to label, {s['check']:,} labels to check again"
    )
    if s["accuracy"] is not None:
        print(f"expected accuracy of predictions now: {s['accuracy']:.3f}")
    for each in s["forecast"]:
        low, high = each["accuracy_interval"]
        print(f"after {each['labels']:,} labels: {each['accuracy']:.3f} (90%: {low:.3f} to {high:.3f})")
    print(f"wrote {given.out}; label them with: {review_command(given)}")
