"""`revup audit`."""

import json

import revup
from revup.cli.options import Parser, given_documents, load, reading_of, review_command, whole


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    from revup.auditing.issues import write_issues
    from revup.auditing.page import write_page

    parser = Parser(
        "audit",
        "revup audit run docs.jsonl --out issues.jsonl",
        "revup audit run docs.jsonl --out issues.jsonl --page review.html --missing --json",
    )
    parser.model()
    parser.add("file", metavar="FILE", help="documents or a dataset directory; - is standard input")
    parser.output("--out", required=True, metavar="ISSUES", help="the list to write, most suspicious labels first")
    parser.output("--page", metavar="FILE", help="also write the list as one HTML page for review")
    parser.add("--missing", action="store_true", help="list events without a label whose frame is nearly certain too")
    parser.add(
        "--folds",
        type=whole(2),
        default=0,
        metavar="N",
        help="leave labels out by N parts of the documents, not one by one",
    )
    parser.common("--split", "--no-lexicon", "--event-vectors", "--encoder")
    parser.set_defaults(split="train")
    parser.reading()
    parser.common("--force", "--json")
    given = parser.parse_args(arguments)
    model = load(given)
    with given_documents(given) as stream:
        found = revup.audit(model, stream, missing=given.missing, split=given.split, folds=given.folds)
    about = reading_of(given, model.frames, found.summary)
    write_issues(given.out, found.rows, about, given.force)
    if given.page:
        write_page(given.page, given.out, about.file, force=given.force)
    if given.json:
        print(json.dumps(found.summary))
        return
    s = found.summary
    low, high = s["estimated_errors_interval"]
    print(f"{s['labelled']:,} labels of {s['events']:,} events; {s['flagged']:,} are probably wrong")
    print(f"expected number of wrong labels: {s['estimated_errors']:,.0f} (90%: {low:,.0f} to {high:,.0f})")
    if s["told_by"] == "agreement":
        print("one source of labels: errors that name another frame of the predicate look like ambiguity")
    for name, each in s["sources"].items():
        if each["error_rate"] is None:
            print(f"source {name}: how often it is wrong can't be told from this data")
    print(f"wrote {given.out}; review it with: {review_command(given)}")
