"""How well `revup audit` finds wrong labels: planted errors, their number, its interval, and real errors.

    python benchmarks/audit.py run CORPORA --out runs.jsonl [--jobs 8] [--parts planted,folds,coverage]
    python benchmarks/audit.py table runs.jsonl

CORPORA is a directory with one directory a corpus (train, valid and test .jsonl.gz), `glove.100d.txt.gz` and
`framenet15.csv` (also found in `vectors/` and `lexicons/`). Labels of training documents are replaced, by any frame or
by another frame of the lemma; a run of the model `counts` is trained on them and audits them. A line of `runs.jsonl` is
one condition. The constants of `revup.auditing` were chosen on seed 0; the seeds here are 1, 2 and 3.

Without cleanlab (`--without-cleanlab`) its two scores are computed by their formulas: self-confidence and normalised
margin.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

CORPORA = ("maven", "framenet15", "propbank_ewt", "world")
NOISES, RATES, SEEDS = ("uniform", "confusable"), (0.05, 0.1, 0.2, 0.5), (1, 2, 3)
PARTS = ("planted", "folds", "coverage", "forecast", "crowd", "wiki")
COVERAGE = 60  # simulated corpora of each kind and corpus
REVIEWED = 150  # labels, where some are reviewed
AUM_EPOCHS = 8
FORECAST_STREAM = 5  # of random numbers
Run = dict[str, Any]


def plan(
    parts: Iterable[str],
    seeds: Iterable[int],
    corpora: Iterable[str],
    numbers: Iterable[int],
    scored: str = "test",
    noises: Iterable[str] = NOISES,
) -> list[Run]:
    """All conditions, those that take longest first."""
    runs: list[Run] = []
    if "wiki" in parts:
        runs.append({"part": "wiki", "corpus": "wiki", "seed": 1})
        runs += [{"part": "planted", "corpus": "wiki", "noise": n, "rate": 0.1, "seed": 1} for n in NOISES]
    for corpus in corpora:
        for noise in NOISES:
            for rate in RATES:
                for seed in seeds:
                    spec = {"corpus": corpus, "noise": noise, "rate": rate, "seed": seed}
                    if "planted" in parts:
                        runs.append({"part": "planted", **spec})
                    if "folds" in parts and rate == 0.1:
                        runs.append({"part": "folds", **spec})
    if "crowd" in parts:
        runs += [{"part": "crowd", "corpus": "crowdtruth", "seed": seed} for seed in seeds]
    if "coverage" in parts:
        for corpus in corpora:
            for known in ("one source", "two sources", "reviewed"):
                spec = {"part": "coverage", "corpus": corpus, "known": known}
                runs += [{**spec, "noise": noise, "seed": n} for noise in noises for n in numbers]
    if "forecast" in parts:
        for corpus in corpora:
            runs += [{"part": "forecast", "corpus": corpus, "scored": scored, "seed": n} for n in numbers]
    return runs


# ---- data ----------------------------------------------------------------------------------------------------------


def found(corpora: Path, name: str) -> Path:
    """A file of CORPORA, or of a directory in it."""
    return next((path for path in (corpora / name, *corpora.glob(f"*/{name}")) if path.exists()), corpora / name)


def prepare(name: str, corpora: Path, work: Path) -> None:
    """Make a dataset, unless it is there."""
    import revup

    if (work / name).exists():
        return
    if name == "world":
        world = revup.World(frames=30, seed=7)
        revup.Corpus.build(train=world.sample(1500, seed=1), test=world.sample(300, seed=2), out=work / name)
        return
    files = {split: corpora / name / f"{split}.jsonl.gz" for split in ("train", "valid", "test")}
    window = "framed" if name == "wiki" else "all"
    revup.prepare(**files, out=work / name, window=window, vectors=found(corpora, "glove.100d.txt.gz"))


# ---- measures ------------------------------------------------------------------------------------------------------


def average_precision(wrong: Any, score: Any) -> float:
    """Average precision; tied scores count together."""
    order = np.argsort(-score, kind="stable")
    hit, value = wrong[order].astype(float), score[order]
    last = np.r_[value[1:] != value[:-1], True]
    right, number = np.cumsum(hit)[last], (np.arange(len(hit)) + 1)[last]
    return float((np.diff(np.r_[0.0, right]) * right / number).sum() / max(hit.sum(), 1.0))


def calibration_error(p: Any, wrong: Any, bins: int = 10) -> float:
    """Mean distance of p and the share of wrong labels, in bins of equal width."""
    place = np.minimum((p * bins).astype(int), bins - 1)
    gaps = [abs(p[place == b].mean() - wrong[place == b].mean()) * (place == b).mean() for b in np.unique(place)]
    return float(sum(gaps))


def rivals(r: Any, label: Any, with_cleanlab: bool) -> dict[str, Any]:
    """Scores of other tools on the same probabilities, high where a label is suspicious."""
    rows = np.arange(len(r))
    own = r[rows, label]
    others = r.copy()
    others[rows, label] = -1
    best = others.max(1)
    scores = {"self-confidence": 1 - own, "margin": best - own, "argmax": np.where(best > own, best, 0.0)}
    if with_cleanlab:
        from cleanlab.rank import get_label_quality_scores

        for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
            quality = get_label_quality_scores(label, np.maximum(r, 1e-12), method=method)
            scores[f"cleanlab {method}"] = 1 - quality
    return scores


def area_under_margin(split: Any, item: Any, label: Any, classes: int, seed: int) -> Any:
    """AUM (Pleiss et al. 2020) of a linear classifier on the words of events, negated: high where suspicious."""
    import torch

    a = split.arrays
    there = np.arange(a["keys"].shape[1]) < np.asarray(a["lengths"])[:, None]
    words = np.concatenate([np.asarray(a["tokens"])[there][:, :4], np.asarray(a["lemma"])[there][:, None]], 1)
    _, flat = np.unique(words[item] + np.arange(5) * 10**8, return_inverse=True)
    words = torch.from_numpy(flat.reshape(len(item), 5))
    target = torch.from_numpy(np.asarray(label))
    torch.manual_seed(seed)
    net = torch.nn.EmbeddingBag(int(words.max()) + 1, classes, mode="sum", sparse=True)
    torch.nn.init.zeros_(net.weight)
    optimiser = torch.optim.SparseAdam(net.parameters(), lr=0.05)
    total = torch.zeros(len(item))
    for _ in range(AUM_EPOCHS):
        for rows in torch.randperm(len(item)).split(256):
            logits = net(words[rows])
            loss = torch.nn.functional.cross_entropy(logits, target[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            with torch.no_grad():
                own = logits.gather(1, target[rows, None]).squeeze(1)
                rest = logits.scatter(1, target[rows, None], -1e9).max(1).values
                total[rows] += own - rest
    return -total.numpy()


# ---- conditions ----------------------------------------------------------------------------------------------------


def audited(corpus: Any, model: Any, folds: int = 0) -> dict[str, Any]:
    """The audit of a model's own training labels, as arrays of the labelled events."""
    from revup.auditing.audit import errors_of
    from revup.auditing.judge import judge
    from revup.auditing.left_out import LeftOut, reviewed_labels, training_events
    from revup.auditing.parts import parts

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
    import revup

    return revup.train(corpus, "counts", out=Path(folder) / "run", force=True, **options)


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


def planted(spec: Run, work: Path, with_cleanlab: bool) -> Run:
    """Errors in the labels of training documents."""
    import revup
    from revup.auditing.left_out import probabilities

    corpus = revup.Corpus.load(work / spec["corpus"])
    with tempfile.TemporaryDirectory() as folder:
        model = trained(corpus, folder, eta=spec["rate"], noise=spec["noise"], seed=spec["seed"])
        a = audited(corpus, model)
        out = figures(a)
        split = corpus.split("train")
        r = probabilities(model, a["knowledge"], split)[0][a["item"]]
        scores = rivals(r, a["label"], with_cleanlab)
        if spec["corpus"] != "wiki":
            scores["AUM"] = area_under_margin(split, a["item"], a["label"], len(model.frames), spec["seed"])
        out["rivals"] = {name: average_precision(a["wrong"], score) for name, score in scores.items()}
        out["accuracy"] = revup.evaluate(model, corpus, "test")["accuracy"]
    return out


def folds(spec: Run, work: Path, with_cleanlab: bool) -> Run:
    """One run against five folds by document, of the audit and of what cleanlab's users do."""
    import revup
    from revup.auditing.left_out import probabilities

    corpus = revup.Corpus.load(work / spec["corpus"])
    with tempfile.TemporaryDirectory() as folder:
        model = trained(corpus, folder, eta=spec["rate"], noise=spec["noise"], seed=spec["seed"])
        one, five = audited(corpus, model), audited(corpus, model, folds=5)
        r = probabilities(model, five["knowledge"], corpus.split("train"))[0][five["item"]]
    scores = rivals(r, five["label"], with_cleanlab)
    return {
        "ap": average_precision(one["wrong"], one["p"]),
        "ap_folds": average_precision(five["wrong"], five["p"]),
        "seconds": [round(each["seconds"], 1) for each in (one, five)],
        "rivals_folds": {name: average_precision(five["wrong"], score) for name, score in scores.items()},
    }


def coverage(spec: Run, work: Path, corpora: Path) -> Run:
    """A simulated corpus: of a world, or of documents drawn with replacement; any kind and rate of errors."""
    import revup

    draw = random.Random(f"{spec['corpus']}/{spec['known']}/{spec['seed']}")
    noise, rate = spec["noise"], draw.choice((0.02, 0.05, 0.1, 0.2, 0.3, 0.4))
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


def forecast(spec: Run, work: Path) -> Run:
    """Forecasts of accuracy after further suggested labels, and what came of them.

    Some documents of a corpus (or of a world of its own) have labels to be revealed. The forecast is compared with the
    accuracy on test documents, or on other training documents (`scored`), on which constants may be chosen.
    """
    import revup
    from revup.auditing.suggest import forecast_of
    from revup.experiments.pool import Pool

    draw = np.random.default_rng([FORECAST_STREAM, spec["seed"]])
    with tempfile.TemporaryDirectory() as folder:
        if spec["corpus"] == "world":
            frames, documents = int(draw.choice((10, 20, 40))), int(draw.choice((200, 400, 800)))
            world = revup.World(frames=frames, seed=int(draw.integers(10**6)))
            train, test = world.sample(documents, seed=1), world.sample(300, seed=2)
            corpus = revup.Corpus.build(train=train, test=test, duplicates="keep", out=Path(folder) / "data")
        else:
            corpus = revup.Corpus.load(work / spec["corpus"])
        owner = event_documents(corpus.split("train"))
        names = draw.permutation(np.unique(owner))
        cut = round(len(names) * draw.uniform(0.4, 0.7))
        inside = np.isin(owner, names[:cut])
        rows, others = np.flatnonzero(inside), np.flatnonzero(~inside)
        pool = Pool(corpus, rows, others if spec["scored"] == "train" else None)
    none = np.full(len(pool), -1, np.int64)
    label = none.copy()
    first, size = draw.permutation(len(pool)), round(len(pool) * float(np.exp(draw.uniform(np.log(0.02), np.log(0.4)))))
    by_suggest = bool(draw.integers(2))  # how the labels were chosen that are known already
    begin = first[: max(round(0.02 * len(pool)), 5)] if by_suggest else first[: max(size, 5)]
    label[begin] = pool.truth[begin]
    fit = pool.fit(none, label, spec["seed"])
    if by_suggest and size > len(begin):
        more = [number for number, _ in fit.plan.order(size - len(begin), False)]
        label[more] = pool.truth[more]
        fit = pool.fit(none, label, spec["seed"])
    plan, before = fit.plan, fit.accuracy()
    whole = [number for number, _ in plan.order(len(pool), False)]
    outcomes = []
    for share in (0.02, 0.06, 0.2):
        chosen = whole[: max(round(share * len(pool)), 1)]
        label = fit.trusted.copy()
        label[chosen] = pool.truth[chosen]
        found = forecast_of(plan, chosen, np.unique(pool.test.document, return_counts=True)[1])
        now, then = plan.accuracy(chosen).tolist()
        (low, high), reached = found["accuracy_interval"], pool.fit(none, label, spec["seed"]).accuracy()
        outcomes.append(
            {
                "labels": len(chosen),
                "now": now,
                "expected": then,
                "interval": [low, high],
                "before": before,
                "reached": reached,
                "covered": bool(low <= reached <= high),
            }
        )
    about = {"pool": len(pool), "known": int((fit.trusted >= 0).sum()), "by_suggest": by_suggest}
    return {**about, "held_out": len(pool.answers), "outcomes": outcomes}


def event_documents(split: Any) -> Any:
    """The document of each event."""
    lengths = np.asarray(split.arrays["lengths"])
    return np.repeat(np.asarray(split.arrays["document"]), lengths)


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


def crowd(spec: Run, corpora: Path, with_cleanlab: bool) -> Run:
    """One draw from the votes of each event as its label, audited against the majority."""
    import revup

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
    """The first 100 of wiki's automatic frames, judged against the dictionary."""
    import revup

    corpus = revup.Corpus.load(work / "wiki")
    lexicon = revup.data.lexicon.Lexicon.load(found(corpora, "framenet15.csv"))
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        model = trained(corpus, folder, seed=1)
        middle = time.time()
        rows = revup.audit(model, corpus).rows
        end = time.time()
    first, counts = rows[:100], defaultdict(int)
    for row in first:
        entry = lexicon.senses(row.get("lemma") or row["pred"], None)
        heaviest = max(entry, key=lambda name: entry[name], default=None)
        counts["without an entry"] += not entry
        counts["given not in the entry"] += bool(entry) and row["given"] not in entry
        counts["proposed in the entry"] += row["proposed"] in entry
        counts["proposed is the heaviest sense"] += row["proposed"] == heaviest
        counts["given is the heaviest sense"] += row["given"] == heaviest
    keys = ("id", "event", "pred", "subj", "obj", "given", "proposed", "p_wrong")
    return {
        "labels": len(rows),
        "first_100": dict(counts),
        "training_seconds": round(middle - start, 1),
        "audit_seconds": round(end - middle, 1),
        "rows": [{key: row.get(key) for key in keys} for row in first],
    }


def run(spec: Run, work: Path, corpora: Path, with_cleanlab: bool) -> Run:
    """Measure one condition."""
    import torch

    import revup
    from revup.io.files import commit

    torch.set_num_threads(1)
    start, part = time.time(), spec["part"]
    if part == "planted":
        out = planted(spec, work, with_cleanlab)
    elif part == "folds":
        out = folds(spec, work, with_cleanlab)
    elif part == "coverage":
        out = coverage(spec, work, corpora)
    elif part == "forecast":
        out = forecast(spec, work)
    else:
        out = crowd(spec, corpora, with_cleanlab) if part == "crowd" else wiki(work, corpora)
    about = {"version": revup.__version__, "commit": commit(), "wall": round(time.time() - start, 1)}
    return {**spec, **out, **about}


KEYS = ("part", "corpus", "noise", "rate", "known", "seed")


def run_all(given: argparse.Namespace) -> None:
    """Measure all conditions that are not in `out` yet, several at a time; one that fails is named and left out."""
    work = given.out.with_suffix(".data")
    work.mkdir(parents=True, exist_ok=True)
    done = [] if not given.out.exists() else [json.loads(line) for line in given.out.read_text().splitlines()]
    finished = {json.dumps(each["spec"], sort_keys=True) for each in done}
    seeds = [int(seed) for seed in given.seeds.split(",")]
    numbers = range(given.first, given.first + given.simulated)
    specs = plan(
        given.parts.split(","),
        seeds,
        given.corpora_used.split(","),
        numbers,
        given.scored,
        given.noises.split(","),
    )
    left = [spec for spec in specs if json.dumps(spec, sort_keys=True) not in finished]
    needed = {spec["corpus"] for spec in left if spec["part"] in ("planted", "folds", "forecast", "wiki")}
    with ProcessPoolExecutor(given.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for prepared in [pool.submit(prepare, name, given.corpora, work) for name in sorted(needed)]:
            prepared.result()
        waiting = {pool.submit(run, spec, work, given.corpora, not given.without_cleanlab): spec for spec in left}
        with open(given.out, "a") as stream:
            for each in as_completed(waiting):
                try:
                    stream.write(json.dumps({"spec": waiting[each], **each.result()}) + "\n")
                except Exception as error:
                    print("failed:", waiting[each], repr(error), flush=True)
                stream.flush()


# ---- the table -----------------------------------------------------------------------------------------------------


def table(runs: list[Run]) -> str:
    """All measures, means over seeds, as Markdown."""
    lines: list[str] = []

    def add(head: Iterable[str], rows: Iterable[Iterable[Any]], title: str) -> None:
        cells = [[f"{x:.3f}" if isinstance(x, float) else str(x) for x in row] for row in rows]
        if cells:
            head = list(head)
            lines.extend(["", f"### {title}", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"])
            lines.extend("| " + " | ".join(row) + " |" for row in cells)

    groups: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for each in runs:
        if each["part"] == "planted":
            groups[each["corpus"], each["noise"], each["rate"]].append(each)
    names = list(dict.fromkeys(name for each in runs for name in each.get("rivals", {})))
    body = []
    for key, part in sorted(groups.items()):
        body.append(
            [
                *key,
                mean(e["ap"] for e in part),
                *(mean(e["rivals"][n] for e in part) if n in part[0]["rivals"] else "–" for n in names),
                mean(e["calibration_error"] for e in part),
                f"{mean(e['expected'] / max(e['wrong'], 1) for e in part) - 1:+.0%}",
                f"{sum(e['covered'] for e in part)}/{len(part)}",
                mean(e["proposal"] for e in part),
                mean(e["accuracy"] for e in part),
            ]
        )
    head = ["corpus", "errors", "rate", "audit", *names, "calibration", "number", "covered", "proposal", "accuracy"]
    add(head, body, "Planted errors: average precision, and the rest of the audit")
    if body:
        small = [row for row in body if row[0] != "wiki"]
        means = [mean(row[3 + k] for row in small) for k in range(1 + len(names)) if isinstance(small[0][3 + k], float)]
        add(["", "audit", *names], [["mean", *means]], "Mean over conditions (without wiki)")
    grouped: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for each in runs:
        if each["part"] == "folds":
            grouped[each["corpus"], each["noise"]].append(each)
    body = [
        [*key, *(mean(e[n] for e in part) for n in ("ap", "ap_folds")), mean(best(e["rivals_folds"]) for e in part)]
        for key, part in sorted(grouped.items())
    ]
    add(["corpus", "errors", "one run", "five folds", "best rival on five folds"], body, "One run and five folds, 10%")
    covered: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for each in runs:
        if each["part"] == "coverage":
            for known in (each["known"], "all"):
                covered[known, each["noise"]].append(each)
    body = [
        [
            *key,
            len(part),
            mean(e["covered"] for e in part),
            mean((e["interval"][1] - e["interval"][0]) / e["labels"] for e in part),
            mean(abs(e["expected"] - e["wrong"]) / e["labels"] for e in part),
        ]
        for key, part in sorted(covered.items())
    ]
    add(["known", "errors", "corpora", "covered", "width / labels", "error of the number / labels"], body, "Intervals")
    forecasts: dict[tuple[Any, ...], list[Run]] = defaultdict(list)
    for each in runs:
        if each["part"] == "forecast":
            for corpus in (each["corpus"], "all"):
                forecasts[corpus, each["scored"]] += each["outcomes"]
    body = [
        [
            *key,
            len(part),
            mean(e["covered"] for e in part),
            mean(e["interval"][1] - e["interval"][0] for e in part),
            mean(e["expected"] - e["reached"] for e in part),
            mean(abs(e["expected"] - e["reached"]) for e in part),
        ]
        for key, part in sorted(forecasts.items())
    ]
    head = ["corpus", "scored", "forecasts", "covered", "width", "expected − reached", "distance"]
    add(head, body, "The forecast of suggest")
    crowds: dict[str, list[Run]] = defaultdict(list)
    for each in runs:
        if each["part"] == "crowd":
            for name in ("crowdtruth", "crowdtruth dictionary"):
                crowds[name].append(each[name])
    body = [
        [
            name,
            len(part),
            mean(e["wrong"] / e["labels"] for e in part),
            *(mean(e[key] for e in part) for key in ("ap", "self-confidence", "first_100")),
            mean(e["calibration_error"] for e in part),
            f"{mean(e['expected'] for e in part):,.0f} ({mean(e['wrong'] for e in part):,.0f})",
            f"{sum(e['interval'][0] <= e['wrong'] <= e['interval'][1] for e in part)}/{len(part)}",
            mean(e["proposal"] for e in part),
        ]
        for name, part in crowds.items()
    ]
    head = [
        "",
        "draws",
        "base rate",
        "audit",
        "self-confidence",
        "of the first 100",
        "calibration",
        "number",
        "covered",
    ]
    add([*head, "proposal"], body, "Real errors: a draw from the votes against the majority")
    for each in runs:
        if each["part"] == "wiki":
            lines += ["", "wiki: " + json.dumps({k: v for k, v in each.items() if k != "rows"})]
    return "\n".join(lines)


def best(scores: dict[str, float]) -> float:
    return max(scores.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True, dest="verb")
    running = verbs.add_parser("run")
    running.add_argument("corpora", type=Path)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--jobs", type=int, default=8)
    running.add_argument("--parts", default=",".join(PARTS))
    running.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    running.add_argument("--corpora-used", default=",".join(CORPORA))
    running.add_argument("--simulated", type=int, default=COVERAGE, help="corpora of each kind, for the intervals")
    running.add_argument("--first", type=int, default=0, help="number of the first of them")
    running.add_argument("--noises", default=",".join(NOISES), help="kinds of errors, for the intervals")
    running.add_argument("--scored", choices=("test", "train"), default="test", help="documents to check forecasts on")
    running.add_argument("--without-cleanlab", action="store_true")
    verbs.add_parser("table").add_argument("runs", type=Path)
    given = parser.parse_args()
    if given.verb == "run":
        run_all(given)
        return
    text = given.runs.read_bytes()
    text = gzip.decompress(text) if given.runs.suffix == ".gz" else text
    print(table([json.loads(line) for line in text.decode().splitlines()]))


if __name__ == "__main__":
    main()
