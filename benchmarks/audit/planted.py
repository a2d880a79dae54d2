"""Planted errors: labels of training documents are replaced, and audited by a run that was trained on them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measures import Linear, average_precision, calibration_error, cleanlab_scores, disagreement

import revup
from revup.auditing.audit import errors_of
from revup.auditing.judge import judge
from revup.auditing.left_out import LeftOut, probabilities, reviewed_labels, training_events
from revup.auditing.parts import parts

Run = dict[str, Any]
FOLDS = 5


def audited(corpus: Any, model: Any, folds: int = 0) -> dict[str, Any]:
    """The audit of a model's own training labels, as arrays of the labelled events."""
    start = time.time()
    knowledge = LeftOut(model.module.counts, training_events(model, model.module.counts, folds))
    judged = judge(model, knowledge, parts(model, corpus), reviewed_labels(model))
    errors = errors_of(model, judged)
    split = corpus.split("train")
    there = np.arange(split.arrays["keys"].shape[1]) < np.asarray(split.arrays["lengths"])[:, None]
    truth = np.asarray(split.arrays["reference"])[there].astype(np.int64)
    item = np.flatnonzero((judged.label >= 0) & (truth >= 0))
    return {
        "judged": judged,
        "knowledge": knowledge,
        "errors": errors,
        "item": item,
        "label": judged.label[item],
        "truth": truth[item],
        "wrong": judged.label[item] != truth[item],
        "p": errors.wrong[item],
        "seconds": time.time() - start,
    }


def trained(corpus: Any, folder: str, **options: Any) -> Any:
    return revup.train(corpus, "counts", out=Path(folder) / "run", force=True, device="cpu", **options)


def figures(a: dict[str, Any]) -> Run:
    """What one audit reached."""
    wrong, errors = a["wrong"], a["errors"]
    low, high = errors.interval
    number = int(wrong.sum())
    proposed = a["judged"].frames[a["item"], 0]
    return {
        "labels": len(wrong),
        "wrong": number,
        "ap": average_precision(wrong, a["p"]),
        "calibration_error": calibration_error(a["p"], wrong),
        "expected": errors.expected,
        "interval": [low, high],
        "arbitrary": errors.arbitrary,
        "contradicted": errors.contradicted,
        "covered": bool(low <= number <= high),
        "told_by": errors.told_by,
        "proposal": float((proposed == a["truth"])[wrong].mean()) if number else None,
        "seconds": round(a["seconds"], 1),
    }


def planted(spec: Run, work: Path) -> Run:
    """The audit beside other tools on the same out-of-sample probabilities, and beside AUM."""
    corpus = revup.Corpus.load(work / spec["corpus"])
    with tempfile.TemporaryDirectory() as folder:
        model = trained(corpus, folder, eta=spec["rate"], noise=spec["noise"], seed=spec["seed"])
        a = audited(corpus, model)
        out = figures(a)
        split = corpus.split("train")
        r = probabilities(model, a["knowledge"], split)[0][a["item"]]
        scores = {**cleanlab_scores(r, a["label"]), "argmax": disagreement(r, a["label"])}
        if spec["corpus"] != "wiki":
            linear = Linear(split, a["item"], len(model.frames))
            scores["AUM"] = linear.area_under_margin(a["label"], spec["seed"])
        out["rivals"] = {name: average_precision(a["wrong"], score) for name, score in scores.items()}
        out["accuracy"] = revup.evaluate(model, corpus, "test")["accuracy"]
    return out


def folds(spec: Run, work: Path) -> Run:
    """One run against five folds by document, of the audit and of cleanlab on the same probabilities."""
    corpus = revup.Corpus.load(work / spec["corpus"])
    with tempfile.TemporaryDirectory() as folder:
        model = trained(corpus, folder, eta=spec["rate"], noise=spec["noise"], seed=spec["seed"])
        one, five = audited(corpus, model), audited(corpus, model, folds=FOLDS)
        r = probabilities(model, five["knowledge"], corpus.split("train"))[0][five["item"]]
    scores = {**cleanlab_scores(r, five["label"]), "argmax": disagreement(r, five["label"])}
    return {
        "ap": average_precision(one["wrong"], one["p"]),
        "ap_folds": average_precision(five["wrong"], five["p"]),
        "seconds": [round(each["seconds"], 1) for each in (one, five)],
        "rivals_folds": {name: average_precision(five["wrong"], score) for name, score in scores.items()},
    }
