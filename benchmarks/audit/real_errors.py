"""Real errors: a draw from the votes of a crowd, and wiki's automatic frames."""

from __future__ import annotations

import random
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from corpora import found
from measures import average_precision, calibration_error
from planted import Run, trained

import revup
from revup.data.lexicon import Lexicon

Votes = dict[Any, dict[str, float]]


def crowd(spec: Run, corpora: Path) -> Run:
    """One draw from the votes of each event as its label, audited against the majority."""
    draw, truth, documents = random.Random(spec["seed"]), {}, []
    for document in revup.read(corpora / "crowdtruth" / "train.jsonl.gz"):
        events = []
        for event in document.events:
            votes = dict(event.frames or {})
            if not votes:
                continue
            truth[document.id, len(events)] = max(votes, key=lambda name: (votes[name], name))
            label = draw.choices(list(votes), list(votes.values()))[0]
            events.append(replace(event, frame=label, frames=None))
        documents.append(replace(document, events=events))
    out: Run = {}
    for name, lexicon in (("", None), (" dictionary", found(corpora, "framenet15.csv"))):
        with tempfile.TemporaryDirectory() as folder:
            vectors = found(corpora, "glove.100d.txt.gz")
            data = Path(folder) / "data"
            corpus = revup.Corpus.build(
                train=documents, window="all", duplicates="keep", out=data, lexicon=lexicon, vectors=vectors
            )
            audit = revup.audit(trained(corpus, folder, seed=spec["seed"]), documents)
        rows = audit.rows
        wrong = np.array([row["given"] != truth[row["id"], row["event"]] for row in rows])
        p, own = (np.array([row[key] for row in rows]) for key in ("p_wrong", "p_given"))
        right = [row["proposed"] == truth[row["id"], row["event"]] for row in rows]
        low, high = audit.summary["estimated_errors_interval"]
        out[f"crowdtruth{name}"] = {
            "labels": len(rows),
            "wrong": int(wrong.sum()),
            "ap": average_precision(wrong, p),
            "self-confidence": average_precision(wrong, 1 - own),
            "first_100": float(wrong[:100].mean()),
            "calibration_error": calibration_error(p, wrong),
            "expected": audit.summary["estimated_errors"],
            "interval": [low, high],
            "proposal": float(np.array(right)[wrong].mean()),
        }
    return out


def wiki(work: Path, corpora: Path) -> Run:
    """The first 100 of wiki's automatic frames, and 100 others, against the dictionary and human annotation.

    No document of wiki is annotated by people: what they did with the same predicate, and with the same words, is all
    that there is. Humans: FrameNet's full texts; crowd: the votes on Wikipedia sentences.
    """
    corpus = revup.Corpus.load(work / "wiki")
    lexicon = Lexicon.load(found(corpora, "framenet15.csv"))
    human, crowd, same = _human(corpora)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        model = trained(corpus, folder, seed=1)
        middle = time.process_time()
        audit = revup.audit(model, corpus)
        end = time.process_time()
    first, others = audit.rows[:100], random.Random(1).sample(audit.rows[100:], 100)
    judged: dict[str, dict[str, int]] = defaultdict(lambda: {"first": 0, "random": 0})
    for name, rows in (("first", first), ("random", others)):
        for row in rows:
            lemma, given, proposed = row.get("lemma") or row["pred"], row["given"], row["proposed"]
            entry = lexicon.senses(lemma, None)
            judged["predicate in the dictionary"][name] += bool(entry)
            judged["given in the entry"][name] += given in entry
            judged["proposed in the entry"][name] += proposed in entry
            judged["proposed weighs more in the entry"][name] += entry.get(proposed, 0.0) > entry.get(given, 0.0)
            judged["given weighs more in the entry"][name] += entry.get(given, 0.0) > entry.get(proposed, 0.0)
            for who, table, key in (
                ("human labels of the predicate", human, lemma),
                ("crowd votes on the predicate", crowd, lemma),
                ("crowd votes on the same words", same, (row["pred"], row.get("subj"), row.get("obj"))),
            ):
                votes = table.get(key, {})
                judged[who][name] += bool(votes)
                judged[f"{who}: more for proposed"][name] += votes.get(proposed, 0) > votes.get(given, 0)
                judged[f"{who}: more for given"][name] += votes.get(given, 0) > votes.get(proposed, 0)
    keys = ("id", "event", "pred", "subj", "obj", "given", "proposed", "p_wrong")
    return {
        "labels": len(audit.rows),
        "judged": dict(judged),
        "expected": audit.summary["estimated_errors"],
        "interval": audit.summary["estimated_errors_interval"],
        "training_cpu_seconds": round(middle - start, 1),
        "audit_cpu_seconds": round(end - middle, 1),
        "rows": [{key: row.get(key) for key in keys} for row in first],
    }


def _human(corpora: Path) -> tuple[Votes, Votes, Votes]:
    """Frames that people gave: by lemma in full texts, by lemma and by words in the crowd's votes."""
    human, crowd, same = (defaultdict(lambda: defaultdict(float)) for _ in range(3))
    for name in ("framenet15", "crowdtruth"):
        for split in ("train", "valid", "test"):
            for document in revup.read(corpora / name / f"{split}.jsonl.gz"):
                for event in document.events:
                    lemma = event.lemma or event.pred
                    if event.frame:
                        human[lemma][event.frame] += 1
                    for frame, share in (event.frames or {}).items():
                        crowd[lemma][frame] += share
                        if event.subj and event.obj:
                            same[event.pred, event.subj, event.obj][frame] += share
    return human, crowd, same
