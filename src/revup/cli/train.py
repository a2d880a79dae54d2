"""`revup train`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import revup
from revup.cli.options import Parser, chosen, overrides, pick
from revup.models import CLASSES
from revup.reporting.progress import training

if TYPE_CHECKING:
    from revup.inference.trained import Trained

FIRST = (
    "network.size",
    "training.epochs",
    "training.batch-size",
    "training.learning-rate",
    "training.minutes",
    "training.precision",
    "objective.strength",
    "objective.noise-rate",
)


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    from revup.data.knowledge import Observation

    parser = Parser(
        "train",
        "revup train data --out run --epsilon 0.3 --eta 0.2",
        "revup train data --out run --preset paper --network.size paper --training.epochs 10 --device cuda",
        "revup train --out run --resume",
        "torchrun --nproc-per-node 8 -m revup train data --out run --device cuda",
    )
    add = parser.add
    add("data", metavar="DATA", nargs="?", help="a dataset directory; with --resume the run knows its own")
    add("--out", required=True, metavar="RUN", help="the run directory to write")
    add("--model", choices=tuple(CLASSES), metavar="M", help=f"{', '.join(CLASSES)} (default: revup)")
    add("--preset", metavar="P", help="settings to start from: default, paper or released (default: default)")
    parser.fields(Observation, absent=True)
    add("--labels", metavar="DECISIONS", help="reviewed labels (revup review), which are trusted")
    add("--resume", action="store_true", help="continue the run if it was stopped, start it if it does not exist")
    parser.common("--device", "--force", "--json")
    parser.settings(arguments, FIRST)
    given = parser.parse_args(arguments)
    if given.data is None and not given.resume:
        parser.error("the following arguments are required: DATA")
    nested: dict[str, Any] = overrides(given)
    if given.data is not None:
        from revup.settings import Config

        for note in Config.make(given.model or "revup", given.preset or "default", overrides=nested).notes:
            print(f"revup: note: {note}", file=sys.stderr)
    first = os.environ.get("RANK", "0") == "0"
    finished = given.resume and _is_finished(Path(given.out))
    with training(enabled=first, board=Path(given.out) / "tensorboard" if first else None) as show:
        model = revup.train(
            revup.Corpus.load(given.data) if given.data else None,
            progress=show,
            **pick(given, "model", "preset", "out", "device", "resume", "force", "labels"),
            **chosen(given, Observation),
            **nested,
        )
    if first:
        _report(given.out, model, given.json, finished)


def _is_finished(out: Path) -> bool:
    """Whether there is a complete run, which a resume leaves as it is."""
    from revup.inference.run_directory import is_sealed, read_state

    return is_sealed(out) and read_state(out).finished


def _report(out: str, model: Trained, as_json: bool, finished: bool) -> None:
    """Print the best validation, what was estimated of the labels, and whether it was `finished` before."""
    from revup.inference.run_directory import read_metrics

    figures, sources = model.figures, model.reliability

    lines = read_metrics(Path(out))
    best = next((line for line in reversed(lines) if line["best"]), None)
    if as_json:
        print(json.dumps({"run": out, "best": best, "validations": len(lines), **figures, "sources": sources}))
        return
    if best:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in best["valid"].items())
        when = "decoder phase" if best["settled"] else f"epoch {best['epoch']:g}"
        print(f"best at step {best['step']} ({when}): {scores or 'no validation split'}")
    if "realised_noise" in figures:
        print(f"{figures['realised_noise']:.1%} of the observed labels were replaced by another frame")
    for name, source in sources.items():
        rate = source["error_rate"]
        if rate is None:
            print(f"source {name}: how often it is wrong can't be told from this data")
        elif rate > 0.01:
            print(f"source {name}: about {rate:.0%} of what it says looks wrong")
    if induced := int(figures.get("induced_frames", 0)):
        print(f"no label is observed: {induced} clusters of predicates stand for frames; their names mean nothing")
    print(f"{out} has finished already; --force in place of --resume trains it anew" if finished else f"wrote {out}")
