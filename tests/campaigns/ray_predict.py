"""Label many documents by one process and on a Ray cluster of two nodes, killing workers and the driver on the way.

    PYTHONPATH=tests python tests/campaigns/ray_predict.py --documents 100000

All outputs must be the same bytes; chunks that a killed driver had finished must not be computed again. Prints a JSON
object with times and digests, and leaves with status 1 if anything differs. `test_ray.py` runs it with few documents.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import revup
from clusters import nodes, workers
from revup.data.corpus import Corpus
from revup.data.events import document_to_line

BLOCK = 10_000
DRIVER = """
import os, signal, sys
import revup
from revup.data import chunks
verb, run, source, out, limit, size = sys.argv[1:]
chunks.CHUNK_RECORDS = int(size)
def progress(documents):
    if documents >= int(limit):
        os.kill(os.getpid(), signal.SIGKILL)
getattr(revup, f"{verb}_on_cluster")(run, source, out, progress=progress)
"""


def main() -> None:
    """Parse the command line and run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--verbs", nargs="+", default=["predict", "embed"], choices=("predict", "embed"))
    parser.add_argument("--size", type=int, default=128, help="units of the network")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = campaign(Path(folder), given.documents, given.verbs, given.size)
    print(json.dumps(found, indent=1))
    sys.exit(0 if found["same"] else 1)


def campaign(folder: Path, documents: int, verbs: list[str], size: int, chunk: int = 2000) -> dict[str, Any]:
    """Run the campaign.

    Args:
        folder: An empty directory.
        documents: How many documents.
        verbs: `predict`, `embed` or both.
        size: Units of the network.
        chunk: Records in a chunk.

    Returns:
        For each verb and way of computing its time and digest; `same`: whether all is as it must be.
    """
    from revup.data import chunks

    chunks.CHUNK_RECORDS = chunk
    run, source = folder / "run", folder / "docs.jsonl"
    prepare(run, source, documents, size)
    found: dict[str, Any] = {"documents": documents, "load": os.getloadavg(), "same": True}
    with nodes(2) as cluster:
        for verb in verbs:
            ways = {
                "one process": lambda out, verb=verb: alone(verb, run, source, out),
                "cluster": lambda out, verb=verb: on_cluster(verb, run, source, out),
                "cluster, workers killed": lambda out, verb=verb: with_kills(
                    cluster, verb, run, source, out, documents
                ),
                "cluster, driver killed": lambda out, verb=verb: with_dead_driver(
                    verb, run, source, out, documents, chunk
                ),
            }
            found[verb] = {name: timed(way, folder / f"{verb}-{k}") for k, (name, way) in enumerate(ways.items())}
            digests = {each["sha256"] for each in found[verb].values()}
            good = len(digests) == 1 and not any(each.get("repeated") for each in found[verb].values())
            found["same"] = found["same"] and good
    found["load_after"] = os.getloadavg()
    return found


def prepare(run: Path, source: Path, documents: int, size: int) -> None:
    """Train a small model, and write documents."""
    world = revup.World(frames=50, seed=1)
    corpus = Corpus.build(train=world.sample(1000, seed=1), valid=world.sample(200, seed=2))
    network = {"hidden": size, "embedding": size, "latent": size, "frame": size}
    revup.train(corpus, epsilon=0.5, out=run, device="cpu", network=network, training={"epochs": 1})
    with open(source, "w", encoding="utf-8") as out:
        for start in range(0, documents, BLOCK):
            sample = world.sample(min(BLOCK, documents - start), seed=3, start=start)
            out.writelines(map(document_to_line, sample))


def timed(way: Callable[[Path], dict[str, Any]], out: Path) -> dict[str, Any]:
    started = time.perf_counter()
    more = way(out)
    digest = hashlib.sha256(out.read_bytes()).hexdigest()
    return {"seconds": round(time.perf_counter() - started, 1), "sha256": digest, **more}


def alone(verb: str, run: Path, source: Path, out: Path) -> dict[str, Any]:
    if verb == "predict":
        revup.write(revup.predict(run, revup.read(source)), out)
    else:
        revup.embed(run, revup.read(source)).save(out)
    return {}


def on_cluster(verb: str, run: Path, source: Path, out: Path, **more: Any) -> dict[str, Any]:
    report = getattr(revup, f"{verb}_on_cluster")(run, source, out, **more)
    assert not report["set_aside"], report
    return {}


def with_kills(cluster: Any, verb: str, run: Path, source: Path, out: Path, documents: int) -> dict[str, Any]:
    """Kill a worker after a quarter, a half and three quarters of the documents."""
    killed: list[int] = []
    name = {"predict": "label_records", "embed": "embed_records"}[verb]

    def progress(done: int) -> None:
        if len(killed) < 3 and done >= (len(killed) + 1) * documents / 4:
            for process in workers(cluster, name)[:1]:
                process.kill()
                killed.append(process.pid)

    on_cluster(verb, run, source, out, progress=progress)
    assert killed, "no worker was killed: more documents are needed"
    return {"killed": len(killed)}


def with_dead_driver(verb: str, run: Path, source: Path, out: Path, documents: int, chunk: int) -> dict[str, Any]:
    """Kill the driver after half of the documents, and call again."""
    words = [sys.executable, "-c", DRIVER, verb, str(run), str(source), str(out), str(documents // 2), str(chunk)]
    assert subprocess.run(words).returncode == -signal.SIGKILL
    work = out.with_name(f".{out.name}.partial")
    before = {path: path.stat().st_mtime_ns for path in work.glob("*.part")}
    after: dict[Path, int] = {}

    def progress(done: int) -> None:
        after.update({path: path.stat().st_mtime_ns for path in before})

    on_cluster(verb, run, source, out, progress=progress)
    repeated = sum(after[path] != when for path, when in before.items())
    return {"chunks_before_the_kill": len(before), "repeated": repeated}


if __name__ == "__main__":
    main()
