"""`revup compare`."""

import json
from pathlib import Path

import revup
from revup.cli.options import Parser, overrides, pick, whole
from revup.reporting.progress import training


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("compare", "revup compare --out comparison --seeds 3 --epsilon 0.3 --eta 0.2")
    add = parser.add
    add("data", metavar="DATA", nargs="?", help="a dataset (default: a small one of the built-in world)")
    add("--out", required=True, metavar="DIR", help="directory of runs and tables; finished runs in it are reused")
    add("--seeds", type=whole(1), default=3, metavar="N", help="runs of each system")
    add("--epsilon", type=float, default=0.3, metavar="X", help="observation probability ε")
    add("--eta", type=float, default=0.2, metavar="X", help="noise rate η")
    add("--preset", default="default", metavar="P", help="default, paper or released")
    add("--bound", type=whole(), default=20, metavar="S", help="samples of the bound on log p(x)")
    parser.common("--device", "--json")
    parser.settings(arguments)
    given = parser.parse_args(arguments)
    with training() as show:
        result = revup.compare(
            given.out,
            revup.Corpus.load(given.data) if given.data else None,
            overrides=overrides(given),
            progress=show,
            **pick(given, "seeds", "epsilon", "eta", "preset", "bound", "device"),
        )
    print(json.dumps(result) if given.json else Path(given.out, "compare.md").read_text("utf-8").rstrip())
