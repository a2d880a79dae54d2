"""What frame names and document context are worth in the count model: accuracy on test documents without each.

    python benchmarks/count_ingredients.py corpora --datasets framenet15,propbank_ewt,maven

`corpora` is a directory of datasets, as for `revup experiment --data`. Differences are paired by seed and by test
document, with 95% intervals by a bootstrap over documents. Prints a table and writes
benchmarks/results/count-ingredients-DATE.json.
"""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from revup.benchmark import surroundings
from revup.experiments.bootstrap import Ratio, difference
from revup.experiments.compute import compute
from revup.experiments.datasets import Corpora, find_datasets
from revup.experiments.runs import Condition, Line, Run
from revup.models import count_context, count_corpus, count_fit

HERE = Path(__file__).parent
ACCURACY = Ratio("right", "events")
WITHOUT = {"neither": (False, False), "names only": (True, False), "context only": (False, True), "both": (True, True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--datasets", default="")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where to write the result (a file)")
    given = parser.parse_args()
    around = surroundings(torch.device("cpu"))
    target = given.out or HERE / "results" / f"count-ingredients-{around['date']}.json"
    paths = find_datasets(given.data, [name for name in given.datasets.split(",") if name])
    corpora = Corpora(paths, target.parent)
    rows = []
    for data in paths:
        for epsilon in given.epsilon:
            found = {
                name: {seed: line(corpora, data, epsilon, seed, *kept) for seed in range(given.seeds)}
                for name, kept in WITHOUT.items()
            }
            rows.append({"data": data, "fingerprint": corpora[data].fingerprint, "epsilon": epsilon} | summary(found))
            print(json.dumps(rows[-1]), flush=True)
    config = {"datasets": list(paths), "epsilon": given.epsilon, "seeds": given.seeds}
    target.write_text(json.dumps({"benchmark": "count ingredients", **around, "config": config, "rows": rows}) + "\n")
    print(f"written to {target}")


def line(corpora: Corpora, data: str, epsilon: float, seed: int, names: bool, context: bool) -> Line:
    """Fit the counts with some of their ingredients; return the line of the run."""
    with ExitStack() as stack:
        if not names:
            stack.enter_context(patch.object(count_corpus, "frame_names", lambda *_: None))
        if not context:
            stack.enter_context(patch.object(count_context, "WEIGHTS", np.zeros(1)))
            stack.enter_context(patch.dict(count_fit.DEFAULTS, document=0.0))
        return compute(Run.of("counts", Condition(epsilon=epsilon), seed, data=data), corpora, Path(), "cpu")


def summary(found: dict[str, dict[int, Line]]) -> dict[str, Any]:
    """Accuracy of each variant, and how much it has over that with neither ingredient."""
    samples = {
        name: {seed: ACCURACY.samples(each["documents"]) for seed, each in lines.items()}
        for name, lines in found.items()
    }
    out: dict[str, Any] = {}
    for name, of_seeds in samples.items():
        accuracy = [float(each[-1]) for each in of_seeds.values()]
        gains, within = difference(of_seeds, samples["neither"])
        over = {"gain": float(np.mean(gains)), "interval": within} if name != "neither" else {}
        out[name] = {"accuracy": float(np.mean(accuracy)), "deviation": float(np.std(accuracy, ddof=1)), **over}
    return out


if __name__ == "__main__":
    main()
