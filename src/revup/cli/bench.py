"""`revup bench`."""

import json
from dataclasses import replace

import revup
from revup.cli.options import Parser, whole


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("bench", "revup bench --json", "revup bench --hidden 512 --words 150000 --batch 50")
    add = parser.add
    add("--hidden", type=whole(1), metavar="N", help="units of the network (default: 128)")
    add("--words", type=whole(1), metavar="N", help="words of the vocabulary (default: 20000)")
    add("--frames", type=whole(2), metavar="N", help="number of frames (default: 600)")
    add("--batch", type=whole(1), metavar="N", help="documents in a step (default: 500)")
    add("--steps", type=whole(1), metavar="N", help="timed steps of each system (default: 3)")
    add("--quick", action="store_true", help="small sizes, for a trial of a few seconds")
    parser.common("--device", "--json")
    given = parser.parse_args(arguments)
    from revup.benchmark import Plan, table

    plan = Plan.quick() if given.quick else Plan()
    sizes = {name: getattr(given, name) for name in ("hidden", "words", "frames", "batch")}
    size = replace(plan.size, **{name: value for name, value in sizes.items() if value is not None})
    plan = replace(plan, size=size, steps=given.steps or plan.steps)
    result = revup.bench(plan, given.device)
    print(json.dumps(result) if given.json else table(result))
