"""How well `revup audit` finds wrong labels and `revup suggest` foretells accuracy.

    python benchmarks/audit run CORPORA --out runs.jsonl [--jobs 8] [--parts planted,folds,coverage]
    python benchmarks/audit table runs.jsonl

CORPORA is a directory with one directory a corpus (train, valid and test .jsonl.gz), `glove.100d.txt.gz` and
`framenet15.csv` (also found in `vectors/` and `lexicons/`). A line of `runs.jsonl` is one condition; what is there is
not measured again. The constants of `revup.auditing` were chosen on other seeds than 1, 2 and 3, and on other simulated
corpora than those from 100 on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from conditions import CLASSIFIERS, CORPORA, PARTS, PREPARED, SEEDS, measure, plan
from tables import tables

COVERAGE = 60  # simulated corpora of each kind and corpus


def run_all(given: argparse.Namespace) -> None:
    """Measure all conditions that are not in `out` yet, several at a time; one that fails is named and left out."""
    from corpora import prepare

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each process
    work = given.work or given.out.with_suffix(".data")
    work.mkdir(parents=True, exist_ok=True)
    done = [] if not given.out.exists() else [json.loads(line) for line in given.out.read_text().splitlines()]
    finished = {json.dumps(each["spec"], sort_keys=True) for each in done}
    specs = [spec for part in given.parts.split(",") for spec in plan(part, given)]
    left = [spec for spec in specs if json.dumps(spec, sort_keys=True) not in finished]
    needed = {spec["corpus"] for spec in left if spec["part"] in PREPARED}
    with ProcessPoolExecutor(given.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for prepared in [pool.submit(prepare, name, given.corpora, work) for name in sorted(needed)]:
            prepared.result()
        waiting = {pool.submit(measure, spec, work, given.corpora, given.device): spec for spec in left}
        with open(given.out, "a") as stream:
            for each in as_completed(waiting):
                try:
                    stream.write(json.dumps({"spec": waiting[each], **each.result()}) + "\n")
                except Exception as error:
                    print("failed:", waiting[each], repr(error), flush=True)
                stream.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True, dest="verb")
    running = verbs.add_parser("run")
    running.add_argument("corpora", type=Path)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--work", type=Path, help="where datasets are prepared; by default beside OUT")
    running.add_argument("--jobs", type=int, default=8)
    running.add_argument("--parts", default=",".join(PARTS))
    running.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    running.add_argument("--corpora-used", default=",".join(CORPORA))
    running.add_argument("--classifiers", default=",".join(CLASSIFIERS), help="of users of cleanlab")
    running.add_argument("--simulated", type=int, default=COVERAGE, help="corpora of each kind, for the intervals")
    running.add_argument("--first", type=int, default=100, help="number of the first of them")
    running.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where users' taggers are trained")
    running.add_argument("--epochs", type=int, default=0, help="of these taggers, to try it out; 0: the preset's")
    running.add_argument("--scored", choices=("test", "train"), default="test", help="documents to check forecasts on")
    verbs.add_parser("table").add_argument("runs", type=Path)
    given = parser.parse_args()
    if given.verb == "run":
        run_all(given)
        return
    text = given.runs.read_bytes()
    text = gzip.decompress(text) if given.runs.suffix == ".gz" else text
    print(tables([json.loads(line) for line in text.decode().splitlines()]))


if __name__ == "__main__":
    main()
