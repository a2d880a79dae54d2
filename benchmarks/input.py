"""How fast documents come in: the spaCy component beside the parser alone, and `revup predict -` beside a file.

    python benchmarks/input.py spacy --pipeline en_ud_small --texts wiki.txt.gz    # nlp.pipe with and without frames
    python benchmarks/input.py stream                                               # answers from a pipe

The model has the sizes of `revup bench` (network small, 600 frames, 20,000 words) and random weights, which are as fast
as learned ones. What is compared takes turns, so that whatever else runs on the machine slows all of it. Beside rates,
processor time is given: it says what the rates would be where nothing else runs. Results are written to
benchmarks/results/input-COMMAND-DATE.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from revup.benchmark import RandomCorpus, Size, surroundings, trained
from revup.data.events import write

HERE = Path(__file__).parent
SPACY_BATCH = 64  # of `nlp.pipe`, so that a stream of some hundred texts has several


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


# ---- spaCy ------------------------------------------------------------------------------------------------------


def spacy_component(run: Path, given: argparse.Namespace) -> dict[str, Any]:
    """`nlp.pipe` of a stream of texts with the component and without it, in turns."""
    from revup.data.readers.text import load_model

    nlp = load_model(given.pipeline)
    nlp.add_pipe("revup", config={"model": str(run)})
    with gzip.open(given.texts, "rt", encoding="utf-8") as file:
        texts = [" ".join(line.split()) for line in islice(file, given.documents) if line.strip()]
    list(nlp.pipe(texts[:SPACY_BATCH]))
    ways: dict[str, list[str]] = {"parser": ["revup"], "with_component": []}  # components that are off
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    words = events = 0
    for number in range(given.rounds):
        for name in list(ways) if number % 2 else list(ways)[::-1]:
            with nlp.select_pipes(disable=ways[name]):
                started, used = time.perf_counter(), time.process_time()
                docs = list(nlp.pipe(texts, batch_size=SPACY_BATCH))
                seconds[name].append(time.perf_counter() - started)
                processor[name].append(time.process_time() - used)
            if name == "with_component":
                words, events = sum(map(len, docs)), sum(len(doc._.events) for doc in docs)
        shown = (f"{name} {len(texts) / seconds[name][-1]:.1f}/s {processor[name][-1]:.1f} s" for name in ways)
        print("; ".join(shown), flush=True)
    return {
        "documents": len(texts),
        "batch_size": SPACY_BATCH,
        "words_per_document": words / len(texts),
        "events_per_document": events / len(texts),
        "documents_per_second": {name: spread([len(texts) / each for each in seconds[name]]) for name in ways},
        "processor_ms_per_document": {
            name: spread([1000 * each / len(texts) for each in processor[name]]) for name in ways
        },
        "ratio": spread([a / b for a, b in zip(*seconds.values(), strict=True)]),
        "ratio_of_processor_time": spread([a / b for a, b in zip(*processor.values(), strict=True)]),
    }


# ---- a stream ---------------------------------------------------------------------------------------------------


def stream(run: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Answers of `revup predict -` to lone documents, and its rate beside that of a file."""
    documents = RandomCorpus(Size(), given.documents).documents()
    source = run.parent / "docs.jsonl"
    write(documents, source)
    command = [sys.executable, "-m", "revup", "predict", str(run), "--device", "cpu"]
    waits = _latencies([*command, "-"], source, given.rounds * 50)
    seconds: dict[str, list[float]] = {"file": [], "pipe": []}
    for _ in range(given.rounds):
        for name in seconds:
            started = time.perf_counter()
            with source.open("rb") as file:
                arguments = [*command, "-" if name == "pipe" else str(source)]
                pipe = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) if name == "pipe" else None
                done = subprocess.run(arguments, stdin=pipe.stdout if pipe else None, capture_output=True, check=True)
            seconds[name].append(time.perf_counter() - started)
            assert done.stdout.count(b"\n") == given.documents
            print(f"{name:<8}{seconds[name][-1]:8.2f} s, start-up included", flush=True)
    return {
        "documents": given.documents,
        "idle_answer_ms": {
            **spread(waits),
            "p90": statistics.quantiles(waits, n=100)[89],
            "p99": statistics.quantiles(waits, n=100)[98],
            "within_100_ms": sum(wait < 100 for wait in waits) / len(waits),
            "answers": len(waits),
        },
        "seconds": {name: spread(each) for name, each in seconds.items()},
        "pipe_to_file": spread([a / b for a, b in zip(*seconds.values(), strict=True)]),
    }


def _latencies(command: list[str], source: Path, count: int) -> list[float]:
    """Milliseconds from a written document to its answer, one at a time; the first ten are not counted."""
    waits = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process, source.open("rb") as file:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in islice(file, count + 10):
            started = time.perf_counter()
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline()
            waits.append((time.perf_counter() - started) * 1000)
            time.sleep(0.02)
        process.stdin.close()
    return waits[10:]


COMMANDS = {"spacy": spacy_component, "stream": stream}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--pipeline", help="spacy: a pipeline with tagger and parser")
    parser.add_argument("--texts", help="spacy: texts, one a line, .gz")
    parser.add_argument("--documents", type=int, default=None, help="default: 300 texts, 5,000 documents of a stream")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    given.documents = given.documents or {"spacy": 300, "stream": 5000}[given.command]
    around = surroundings(torch.device("cpu"))
    size = Size()
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        trained(RandomCorpus(size, 100), size, torch.device("cpu")).save(run)
        result = COMMANDS[given.command](run, given)
    whole = {"benchmark": f"input {given.command}", **around, "load_after": os.getloadavg()[0], **result}
    target = given.out or HERE / "results" / f"input-{given.command}-{around['date']}.json"
    target.write_text(json.dumps(whole, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
