"""`revup demo`."""

import json

import revup
from revup.cli.options import Parser
from revup.reporting.progress import training


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("demo", "revup demo --out demo")
    parser.add("--out", default="demo", metavar="DIR", help="directory of the report")
    parser.add("--force", action="store_true", help="replace DIR even if no demo has written it")
    parser.common("--seed", "--json")
    given = parser.parse_args(arguments)
    with training() as show:
        result = revup.demo(given.out, seed=given.seed, force=given.force, progress=show)
    from revup.experiments.demo import summary

    print(json.dumps(result) if given.json else summary(result))
