"""`revup tune`."""

import json
import shlex

import revup
from revup.cli.options import Parser, overrides, pick, whole
from revup.models import CLASSES
from revup.reporting.progress import sweep


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    from revup.data.knowledge import Observation

    parser = Parser(
        "tune",
        "revup tune data --out search --trials 40",
        "revup tune data --out search --minutes 60 --jobs 8 --device cuda",
        "revup tune data --out search --measure accuracy --search training.learning-rate=0.001..0.01,network.dropout",
    )
    add = parser.add
    add("data", metavar="DATA", help="a dataset directory")
    add("--out", required=True, metavar="DIR", help="directory of the search; the same command continues it")
    add("--trials", type=whole(1), metavar="N", help="trials in all (default: 30, or as many as fit into --minutes)")
    add("--minutes", type=float, default=0.0, metavar="X", help="stop after X minutes; the next call continues")
    add(
        "--measure",
        metavar="M",
        help="label_nll or accuracy of the observed labels, or perplexity (default: label_nll where labels are)",
    )
    add("--model", choices=tuple(CLASSES), default="revup", metavar="M", help=", ".join(CLASSES))
    parser.fields(Observation, leave_out=("noise", "sources"))
    add("--seeds", type=whole(), default=3, metavar="N", help="further seeds of the comparison with default")
    add("--search", metavar="S,…", help="settings to search, each with =LOW..HIGH or its usual range (default: usual)")
    add("--sampler", default="tpe", choices=("tpe", "random"), help="how settings are chosen")
    add("--no-prune", action="store_true", help="train every trial to its end")
    add("--jobs", type=whole(1), metavar="N", help="trials at a time (default: one for each core, at most 8)")
    parser.common("--device", "--engine", "--json")
    parser.settings(arguments)
    given = parser.parse_args(arguments)
    with sweep() as show:
        found = revup.tune(
            given.data,
            prune=not given.no_prune,
            overrides=overrides(given),
            command=shlex.join(["revup", "tune", *arguments]),
            progress=show,
            **pick(given, "epsilon", "eta", "seed"),
            **pick(given, "out", "trials", "minutes", "measure", "model", "seeds", "search", "sampler"),
            **pick(given, "jobs", "device", "engine"),
        )
    from revup.training.tuning.outcome import summary

    print(json.dumps(found) if given.json else summary(found))
