"""`revup suggest`."""

import revup
from revup.cli.listing import add_input, add_reading, review_command, written
from revup.cli.options import Parser, whole


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "suggest",
        "revup suggest run docs.jsonl -n 100 --out next.jsonl",
        "revup review next.jsonl docs.jsonl                      # label them in the browser",
    )
    add_input(parser, "NEXT", "most useful events")
    parser.add("-n", type=whole(1), default=100, metavar="N", help="how many events to name")
    parser.add("--no-check", action="store_true", help="leave out labels that are to be checked again")
    add_reading(parser)
    given = parser.parse_args(arguments)
    s = written(
        given,
        lambda model, events: revup.suggest(model, events, given.n, split=given.split, check=not given.no_check),
    )
    if s is None:
        return
    print(
        f"{s['suggested']:,} of {s['events']:,} events: {s['label']:,} to label, {s['check']:,} labels to check again"
    )
    if s["accuracy"] is not None:
        print(f"expected accuracy of predictions now: {s['accuracy']:.3f}")
    for each in s["forecast"]:
        low, high = each["accuracy_interval"]
        print(f"after {each['labels']:,} labels: {each['accuracy']:.3f} (90%: {low:.3f} to {high:.3f})")
    print(f"wrote {given.out}; label them with: {review_command(given)}")
