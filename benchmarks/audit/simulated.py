"""Simulated corpora: does the interval of the number of errors hold it?"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from planted import Run, audited, figures, trained

import revup

REVIEWED = 150  # labels, where some are reviewed
RATES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4)


def coverage(spec: Run, corpora: Path) -> Run:
    """A simulated corpus: of a world, or of documents drawn with replacement; any kind and rate of errors."""
    draw = random.Random(f"{spec['corpus']}/{spec['known']}/{spec['seed']}")
    noise, rate = spec["noise"], draw.choice(RATES)
    if spec["corpus"] == "world":
        documents = revup.World(frames=draw.choice((10, 20, 40)), seed=draw.randrange(10**6)).sample(300, seed=1)
    else:
        whole = list(revup.read(corpora / spec["corpus"] / "train.jsonl.gz"))
        chosen = draw.choices(whole, k=min(len(whole), 150))
        documents = [replace(document, id=f"{n}-{document.id}") for n, document in enumerate(chosen)]
    options: dict[str, Any] = {"eta": rate, "noise": noise, "seed": spec["seed"]}
    if spec["known"] == "two sources":
        options["sources"] = f"{rate},0.1"
    with tempfile.TemporaryDirectory() as folder:
        corpus = revup.Corpus.build(train=documents, window="all", duplicates="keep", out=Path(folder) / "data")
        model = trained(corpus, folder, **options)
        a = audited(corpus, model)
        if spec["known"] == "reviewed":
            decisions = Path(folder) / "decisions.jsonl"
            decisions.write_text("".join(reviewed(a, corpus, draw)))
            model = trained(corpus, folder, labels=decisions, **options)
            a = audited(corpus, model)
    return {"rate": rate, **figures(a)}


def reviewed(a: dict[str, Any], corpus: Any, draw: random.Random) -> Iterator[str]:
    """Decisions about some labels, drawn at random."""
    judged, frames = a["judged"], corpus.frames
    for place in draw.sample(range(len(a["item"])), min(REVIEWED, len(a["item"]))):
        number = int(a["item"][place])
        row = {"id": judged.documents[judged.place[number][0]].id, "event": judged.index[number]}
        given, true = frames[a["label"][place]], frames[a["truth"][place]]
        yield (
            json.dumps({**row, "given": given, "decision": "keep" if given == true else "other", "frame": true}) + "\n"
        )
