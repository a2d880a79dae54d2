"""`revup evaluate`."""

from pathlib import Path

import revup
from revup.cli.options import Parser, load, pick, print_figures, whole


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser("evaluate", "revup evaluate run --split test --json")
    parser.model()
    parser.common("data", "--split")
    add = parser.add
    add("--samples", type=whole(), default=0, metavar="S", help="average over S samples of z (default: its mean alone)")
    add("--sampled", action="store_true", help="predict the frame of one Gumbel sample, as the paper does")
    add(
        "--bound", type=whole(), default=0, metavar="S", help="bound log p(x) with S samples a document (default: none)"
    )
    add("--frame-map", metavar="FILE", help="JSON object of frame: the frame to score it as (null: leave it out)")
    parser.common("--lexicon", "--no-lexicon", "--event-vectors")
    parser.output("--figure", metavar="FILE", help="write a reliability diagram (.png, .svg or .pdf)")
    parser.common("--seed", "--force", "--json")
    given = parser.parse_args(arguments)
    if given.figure and not given.figure.endswith((".png", ".svg", ".pdf")):
        parser.error(f"--figure: expected a name that ends in .png, .svg or .pdf, found '{given.figure}'")
    corpus = revup.Corpus.load(given.data) if given.data else None
    scores = revup.evaluate(
        load(given), corpus, **pick(given, "split", "seed", "samples", "sampled", "bound", "frame_map")
    )
    if given.figure:
        from revup.io.files import atomic_file
        from revup.reporting.figures import reliability_figure

        with atomic_file(given.figure) as out:
            reliability_figure(scores["reliability"]).savefig(out, format=Path(given.figure).suffix[1:])
    print_figures(scores, given.json, scores.get("optimum"))
