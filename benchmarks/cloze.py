"""Inverse narrative cloze of every system that writes text: train on the true chains of the first items, test on the
last 400, mean ± standard deviation over seeds.

    python benchmarks/cloze.py inverse_cloze.txt.gz --out results/cloze --seeds 3 [--also more.jsonl.gz] [--vectors V]

With `--also` the documents of another file (their first six events) are trained on as well, `--epsilon` being the share
of their frames that is observed; the chains have none. Everything else is as the presets have it, but that the epoch is
chosen by perplexity, on a tenth of the training chains; the test items choose nothing. The dataset is kept in OUT/data,
what finished runs answered in OUT/answers, and neither is computed again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from revup.benchmark import surroundings
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.data.readers import read
from revup.data.readers.cloze import items as read_items
from revup.inference.cloze import cloze
from revup.ops.device import choose_device
from revup.ops.precision import PRECISIONS
from revup.settings import Config
from revup.training.run import train_config

EVENTS = 6
TEST_ITEMS = 400
SYSTEMS = ("rnnlm:default", "haqae:default", "ssdvae:paper", "ssdvae:default", "revup:paper", "revup:default")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", help="HAQAE's inverse narrative cloze file")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--also", help="documents (JSON Lines) to train on beside the chains")
    parser.add_argument("--epsilon", type=float, default=1.0, help="share of the frames of those documents observed")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="systems, as model:preset")
    parser.add_argument("--vectors", help="pretrained word vectors")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minimum-count", type=int, default=2)
    parser.add_argument("--device", default=None)
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    given = parser.parse_args()

    if not (given.out / "data").exists():
        build(given)
    corpus = Corpus.load(given.out / "data")
    print(f"{len(corpus.split('train')):,} documents, {len(corpus.vocabulary):,} words, data {corpus.fingerprint}")
    systems = [tuple(name.split(":")) for name in given.systems.split(",")]
    runs = [(model, preset, seed) for seed in range(given.seeds) for model, preset in systems]
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        found = dict(zip(runs, pool.map(partial(accuracy, given), runs), strict=True))
    rows = {}
    for model, preset in systems:
        each = [found[model, preset, seed] for seed in range(given.seeds)]
        spread = statistics.stdev(each) if len(each) > 1 else float("nan")
        rows[f"{model} {preset}"] = {"accuracy": each, "mean": statistics.mean(each), "sd": spread}
    print("\n| system | accuracy |\n|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row['mean']:.3f} ± {row['sd']:.3f} |")
    print(f"| chance | {1 / 6:.3f} |")
    about = {
        "items": TEST_ITEMS,
        "precision": given.precision,
        "documents": len(corpus.split("train")),
        "fingerprint": corpus.fingerprint,
        "epsilon": given.epsilon if given.also else 0.0,
    }
    around = surroundings(choose_device(given.device))
    text = json.dumps(
        {
            "benchmark": "cloze",
            **around,
            **about,
            "also": bool(given.also),
            "vectors": bool(given.vectors),
            "rows": rows,
        },
        indent=1,
    )
    (given.out / "cloze.json").write_text(text + "\n")


def build(given: argparse.Namespace) -> None:
    """Write the dataset: chains of all but the test items, and the other documents."""
    chains = [Document(item.id, item.true) for item in list(read_items(given.items))[:-TEST_ITEMS]]
    learned = [chain for number, chain in enumerate(chains) if number % 10]

    def documents() -> Iterator[Document]:
        yield from learned
        for document in read(given.also) if given.also else ():
            yield Document(document.id, list(islice(document.events, EVENTS)))

    Corpus.build(
        out=given.out / "data",
        train=documents(),
        valid=chains[::10],
        window="first",
        events=EVENTS,
        minimum_count=given.minimum_count,
        vectors=given.vectors,
    )


def accuracy(given: argparse.Namespace, run: tuple[str, str, int]) -> float:
    """Train a system and ask it the test items, unless it was asked before."""
    model, preset, seed = run
    corpus = Corpus.load(given.out / "data")
    training = {"measure": "perplexity", "precision": given.precision}
    epsilon = given.epsilon if given.also else 0.0
    config = Config.make(model, preset, epsilon, 0.0, seed, {"training": training})
    name = f"{model}-{preset}-{seed}-{epsilon:g}-{corpus.fingerprint}-{given.precision}"
    answer = given.out / "answers" / f"{name}.json"
    if not answer.exists():
        trained = train_config(corpus, config, device=given.device)
        answers = cloze(trained, list(read_items(given.items))[-TEST_ITEMS:])
        answer.parent.mkdir(exist_ok=True)
        answer.write_text(json.dumps({"accuracy": answers["accuracy"], "config": config.to_json()}) + "\n")
    found: float = json.loads(answer.read_text())["accuracy"]
    print(f"  {model} {preset} seed {seed}: {found:.3f}", flush=True)
    return found


if __name__ == "__main__":
    main()
