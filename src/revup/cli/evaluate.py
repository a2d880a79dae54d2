"""`revup evaluate`."""

from __future__ import annotations

from collections.abc import Sequence

import revup
from revup.cli.options import Parser, print_figures, whole


def run(arguments: Sequence[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("evaluate", "revup evaluate run --split test --json")
    parser.common("run", "data", "--split")
    add = parser.add
    add("--samples", type=whole(), default=0, metavar="S", help="average over S samples of z (default: its mean alone)")
    add("--sampled", action="store_true", help="predict the frame of one Gumbel sample, as the paper does")
    add(
        "--bound", type=whole(), default=0, metavar="S", help="bound log p(x) with S samples a document (default: none)"
    )
    add("--figure", metavar="FILE", help="write a reliability diagram (PNG, SVG or PDF)")
    parser.common("--seed", "--device", "--allow-unfinished", "--json")
    given = parser.parse_args(arguments)
    scores = revup.evaluate(
        revup.load(given.run, given.device, allow_unfinished=given.allow_unfinished),
        revup.Corpus.load(given.data) if given.data else None,
        given.split,
        seed=given.seed,
        samples=given.samples,
        sampled=given.sampled,
        bound=given.bound,
    )
    if given.figure:
        from revup.reporting.figures import reliability_figure

        reliability_figure(scores["reliability"]).savefig(given.figure)
    print_figures(scores, given.json, scores.get("optimum"))
