"""`revup suggest`."""

from typing import Any

import revup
from revup.cli.listing import add_input, add_reading, print_unknown, review_command, written
from revup.cli.options import Parser, whole

CANT_TELL = 0.5  # width of a 90% interval from which on it says nothing


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
    print_unknown(s)
    if s["accuracy"] is not None:
        print(f"expected accuracy of predictions now: {_told(s)}")
    for each in s["forecast"]:
        print(f"after {each['labels']:,} labels: {_told(each)}")
    print(f"wrote {given.out}; label them with: {review_command(given)}")


def _told(forecast: dict[str, Any]) -> str:
    """An expected accuracy with its interval, in words where that says nothing."""
    low, high = forecast["accuracy_interval"]
    if high - low >= CANT_TELL:
        return "can't be told, there are too few labels and documents"
    return f"{forecast['accuracy']:.3f} (90%: {low:.3f} to {high:.3f})"
