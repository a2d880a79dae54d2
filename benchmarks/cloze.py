"""Inverse narrative cloze of every system that writes text: train on the true chains of the first items, test on the
last 400, mean ± standard deviation over seeds.

    python benchmarks/cloze.py inverse_cloze.txt.gz --out results/cloze --seeds 3 [--also more.jsonl.gz] [--vectors V]

With `--also` the documents of another file (their first six events) are trained on as well. Everything else is as the
presets have it, but that the epoch is chosen by perplexity, on a tenth of the training chains; the test items choose
nothing. What finished runs answered is kept in OUT/answers, and not computed again.
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
from revup.ops.device import PRECISIONS, choose_device
from revup.settings import Config
from revup.training.run import train_config

EVENTS = 6
TEST_ITEMS = 400
SYSTEMS = (
    ("rnnlm", "default"),
    ("haqae", "default"),
    ("ssdvae", "paper"),
    ("ssdvae", "default"),
    ("revup", "paper"),
    ("revup", "default"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", help="HAQAE's inverse narrative cloze file")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--also", help="documents (JSON Lines) to train on beside the chains")
    parser.add_argument("--vectors", help="pretrained word vectors")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minimum-count", type=int, default=2)
    parser.add_argument("--device", default=None)
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    given = parser.parse_args()

    every = list(read_items(given.items))
    chains = [Document(item.id, item.true) for item in every[:-TEST_ITEMS]]
    held_out = chains[::10]
    learned = [chain for number, chain in enumerate(chains) if number % 10]

    def documents() -> Iterator[Document]:
        yield from learned
        for document in read(given.also) if given.also else ():
            yield Document(document.id, list(islice(document.events, EVENTS)))

    corpus = Corpus.build(
        out=given.out / "data",
        train=documents(),
        valid=held_out,
        window="first",
        events=EVENTS,
        minimum_count=given.minimum_count,
        vectors=given.vectors,
        force=True,
    )
    print(f"{len(corpus.split('train')):,} documents, {len(corpus.vocabulary):,} words, data {corpus.fingerprint}")
    runs = [(model, preset, seed) for seed in range(given.seeds) for model, preset in SYSTEMS]
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        found = dict(zip(runs, pool.map(partial(accuracy, given), runs), strict=True))
    rows = {}
    for model, preset in SYSTEMS:
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


def accuracy(given: argparse.Namespace, run: tuple[str, str, int]) -> float:
    """Train a system and ask it the test items, unless it was asked before."""
    model, preset, seed = run
    corpus = Corpus.load(given.out / "data")
    training = {"measure": "perplexity", "precision": given.precision}
    config = Config.make(model, preset, 1.0 if given.also else 0.0, 0.0, seed, {"training": training})
    name = f"{model}-{preset}-{seed}-{corpus.fingerprint}-{given.precision}"
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
