"""`revup audit`."""

import revup
from revup.cli.listing import add_input, add_reading, review_command, written
from revup.cli.options import Parser, whole


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "audit",
        "revup audit run docs.jsonl --out issues.jsonl",
        "revup audit run docs.jsonl --out issues.jsonl --page review.html --missing --json",
    )
    add_input(parser, "ISSUES", "most suspicious labels")
    parser.output("--page", metavar="FILE", help="also write the list as one HTML page for review")
    parser.add("--missing", action="store_true", help="list events without a label whose frame is nearly certain too")
    parser.add(
        "--folds",
        type=whole(2),
        default=0,
        metavar="N",
        help="leave labels out by N parts of the documents, not one by one",
    )
    add_reading(parser)
    given = parser.parse_args(arguments)
    s = written(
        given,
        lambda model, events: revup.audit(model, events, missing=given.missing, split=given.split, folds=given.folds),
    )
    if s is None:
        return
    low, high = s["estimated_errors_interval"]
    print(f"{s['labelled']:,} labels of {s['events']:,} events; {s['flagged']:,} are probably wrong")
    if s["unknown_frames"]:
        print(f"{s['unknown_frames']:,} labels name a frame that the run does not know and are not judged")
    print(f"expected number of wrong labels: {s['estimated_errors']:,.0f} (90%: {low:,.0f} to {high:,.0f})")
    if s["told_by"] == "agreement":
        print("one source of labels: errors that name another frame of the predicate look like ambiguity")
    for name, each in s["sources"].items():
        if each["error_rate"] is None:
            most = f"; at most {each['interval'][1]:.0%}" if each["interval"] and each["interval"][1] < 0.5 else ""
            print(f"source {name}: how often it is wrong can't be told from this data{most}")
    print(f"wrote {given.out}; review it with: {review_command(given)}")
