"""Inverse narrative cloze of every system that writes text: train on the true chains of the first items, test on the
last 400, mean ± standard deviation over seeds, and the difference of each system to the first, paired by item.

    python benchmarks/cloze.py inverse_cloze.txt.gz --out results/cloze --seeds 3 [--also more.jsonl.gz] [--vectors V]
    python benchmarks/cloze.py … --systems revup:default revup:default+training.least-steps=2000

With `--also` the documents of another file (their first six events) are trained on as well, `--epsilon` being the share
of their frames that is observed; the chains have none. Everything else is as the presets have it, but that the epoch is
chosen by perplexity, on a tenth of the training chains; the test items choose nothing. The dataset is kept in OUT/data,
what each answer of finished runs counts in OUT/credits, and neither is computed again.
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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.benchmark import surroundings
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.data.readers import read
from revup.data.readers.cloze import items as read_items
from revup.fields import parse
from revup.inference.cloze import candidate_scores, credit
from revup.ops.device import choose_device
from revup.ops.precision import PRECISIONS
from revup.reporting.progress import Progress
from revup.settings import Config, every_setting
from revup.training.run import train_config

EVENTS = 6
TEST_ITEMS = 400
SAMPLES = 2000
SYSTEMS = ("rnnlm:default", "haqae:default", "ssdvae:paper", "ssdvae:default", "revup:paper", "revup:default")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", help="HAQAE's inverse narrative cloze file")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--also", help="documents (JSON Lines) to train on beside the chains")
    parser.add_argument("--epsilon", type=float, default=1.0, help="share of the frames of those documents observed")
    parser.add_argument(
        "--systems",
        nargs="+",
        default=SYSTEMS,
        help="model:preset[+section.name=value…]; the first is the one others are compared to",
    )
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
    runs = [(system, seed) for seed in range(given.seeds) for system in given.systems]
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        found = dict(zip(runs, pool.map(partial(credits, given), runs), strict=True))
    rows: dict[str, dict[str, Any]] = {}
    first = np.array([found[given.systems[0], seed] for seed in range(given.seeds)])  # [seeds, items]
    for system in given.systems:
        right = np.array([found[system, seed] for seed in range(given.seeds)])
        each = [float(accuracy) for accuracy in right.mean(1)]
        spread = statistics.stdev(each) if len(each) > 1 else float("nan")
        gain, low, high = difference(right - first)
        rows[system] = {
            "accuracy": each,
            "mean": statistics.mean(each),
            "sd": spread,
            "minus the first": {"mean": gain, "interval": [low, high]},
        }
    print(f"\n| system | accuracy | minus {given.systems[0]} |\n|---|---|---|")
    for name, row in rows.items():
        gain, (low, high) = row["minus the first"]["mean"], row["minus the first"]["interval"]
        print(f"| {name} | {row['mean']:.3f} ± {row['sd']:.3f} | {gain:+.3f} [{low:+.3f}, {high:+.3f}] |")
    print(f"| chance | {1 / 6:.3f} | |")
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


def settings(system: str) -> tuple[str, str, dict[str, dict[str, Any]]]:
    """Model, preset and further settings of a system such as `revup:default+network.context=false`."""
    name, *changes = system.split("+")
    model, _, preset = name.partition(":")
    known, found = {each.name: each for each in every_setting()}, dict[str, dict[str, Any]]()
    for change in changes:
        key, _, value = change.partition("=")
        item = known[key].item
        found.setdefault(known[key].section, {})[item.name] = parse(item, known[key].section, value)
    return model, preset or "default", found


def credits(given: argparse.Namespace, run: tuple[str, int]) -> list[float]:
    """Train a system and ask it the test items, unless it was asked before: what each answer counts."""
    system, seed = run
    corpus = Corpus.load(given.out / "data")
    model, preset, changed = settings(system)
    training = {"measure": "perplexity", "precision": given.precision, **changed.pop("training", {})}
    epsilon = given.epsilon if given.also else 0.0
    config = Config.make(model, preset, epsilon, 0.0, seed, {"training": training, **changed})
    name = f"{system.replace(':', '-')}-{seed}-{epsilon:g}-{corpus.fingerprint}-{given.precision}"
    answer = given.out / "credits" / f"{name}.json"
    if not answer.exists():
        found_by: dict[str, float] = {}

        def keep(progress: Progress) -> None:
            if progress.scores and progress.scores["perplexity"] < found_by.get("perplexity", float("inf")):
                found_by.update(step=progress.step, perplexity=progress.scores["perplexity"])

        trained = train_config(corpus, config, device=given.device, progress=keep)
        items = list(read_items(given.items))[-TEST_ITEMS:]
        each = [credit(scores) for scores, _ in candidate_scores(trained, items, "whole", "first")]
        answer.parent.mkdir(exist_ok=True)
        kept = {"credits": each, "best validation": found_by, "config": config.to_json()}
        answer.write_text(json.dumps(kept) + "\n")
    found: list[float] = json.loads(answer.read_text())["credits"]
    print(f"  {system} seed {seed}: {statistics.mean(found):.3f}", flush=True)
    return found


def difference(gains: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean of paired differences [seeds, items] and its 95% interval by bootstrap over items."""
    means = gains.mean(0)
    drawn = np.random.default_rng(0).integers(len(means), size=(SAMPLES, len(means)))
    low, high = np.percentile(means[drawn].mean(1), [2.5, 97.5])
    return float(means.mean()), float(low), float(high)


if __name__ == "__main__":
    main()
