"""The curves of `revup experiment labelling` on many cores, and without libraries that only some strategies need.

    python benchmarks/labelling.py DATA --out runs.jsonl.gz [--jobs 8] [--without typiclust,activelab]
    revup experiment labelling --from-runs runs.jsonl.gz --out DIR

DATA is a directory of datasets. What is in the file is not simulated again, so that the same command adds what an
earlier one left out or did not come to; curves of a seed come before those of the next.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path

from revup.data.corpus import Corpus
from revup.experiments.datasets import describe
from revup.experiments.labelling import Curve, curves, simulated
from revup.experiments.pool import Pool
from revup.experiments.runs import Line, RunFile
from revup.experiments.strategies import lacking_library


@cache
def opened(path: Path) -> tuple[Corpus, Pool]:
    """A dataset; each process opens it once."""
    corpus = Corpus.load(path)
    return corpus, Pool(corpus)


def simulate(path: Path, curve: Curve) -> Line:
    """Simulate a curve of a dataset."""
    return simulated(path.name, *opened(path), curve)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--datasets", default="propbank_ewt,maven,framenet15", help="those that take longest first")
    parser.add_argument("--without", default="", help="strategies to leave out")
    parser.add_argument("--few", action="store_true", help="few points, to try it out")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each process
    without = given.without.split(",")
    wanted = [curve for curve in curves(range(given.seeds), given.few) if curve.strategy not in without]
    if why := lacking_library(tuple({curve.strategy for curve in wanted})):
        raise SystemExit(f"{why}; or leave it out (--without)")
    file, todo = RunFile(given.out), []
    for path in [given.data / name for name in given.datasets.split(",")]:
        corpus = Corpus.load(path)
        file.add_dataset(describe(path.name, corpus, {}))
        todo += [(path, curve) for curve in wanted if curve.name(corpus.fingerprint) not in file.examples]
    todo.sort(key=lambda each: each[1].seed)
    with ProcessPoolExecutor(given.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(simulate, *each): each for each in todo}
        for each in as_completed(waiting):
            try:
                file.add(each.result())
            except Exception as error:  # the others go on; the same command tries it again
                print("failed:", *waiting[each], repr(error), flush=True)
    file.compact()


if __name__ == "__main__":
    main()
