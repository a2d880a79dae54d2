"""Computing one run of a sweep: train, score, give its line; stopped before its end, it is resumed by the next call.

`work/NAME/` in the output directory holds the checkpoint of a run that is not finished, and is removed afterwards.
"""

from __future__ import annotations

import gc
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import revup
from revup.data.corpus import Corpus, Split
from revup.data.encode import UNK
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.experiments.datasets import Corpora, revealed_draw, shared_with_train
from revup.experiments.runs import Line, Run, maths_of
from revup.inference.evaluate import in_own_terms
from revup.inference.event_scores import EventScores
from revup.inference.measures import BATCH, evaluate_split, validate
from revup.inference.run_directory import read_metrics
from revup.inference.trained import Trained
from revup.io.files import commit
from revup.io.folders import lock
from revup.models import model_class
from revup.training.deadline import Deadline, TimeUp
from revup.training.run import PUBLISHED, train_config
from revup.training.workers import ORPHAN

SCORES = (
    *("documents", "events", "events_scored", "events_with_unseen_frame", "accuracy", "macro_f1", "macro_precision"),
    *("label_nll", "calibration_error", "perplexity", "perplexity_hard"),
    *("soft_cross_entropy", "soft_entropy", "soft_agreement"),
)


def compute(run: Run, corpora: Corpora, out: Path, device: str | None = None, deadline: Deadline | None = None) -> Line:
    """Train a run (from its checkpoint if there is one) and score it.

    Args:
        run: The run.
        corpora: The datasets.
        out: Output directory of the sweep.
        device: Where to train; by default a GPU if there is one.
        deadline: When to stop.

    Returns:
        Its line for the file of runs.

    Raises:
        TimeUp: The deadline came first.
    """
    deadline = deadline or Deadline()
    deadline.check()
    started = time.monotonic()
    whole, config = corpora[run.data], run.config()
    corpus = corpora.variant(run.data, run.condition.variant, run.seed)
    name = run.name(whole.fingerprint)
    work = out / "work" / name if model_class(run.system.model).learns else None
    if work is not None and work.exists():
        with lock(work, patience=ORPHAN):  # a process whose parent was killed is still writing its checkpoint
            pass
    frames_only = not run.condition.text and not run.revealed
    trained = train_config(
        corpus,
        config,
        work,
        device=device,
        resume=True,
        transient=True,
        frames_only=frames_only,
        progress=deadline.check,
    )
    lines = read_metrics(work) if work is not None else []
    last = lines[-1] if lines else {"seconds": time.monotonic() - started, "epoch": 0}
    started = time.monotonic()
    scores, documents = _scores(trained, corpus)
    sampled = _sampled(trained, corpus) if run.system.preset in PUBLISHED and trained.module.predicts_frames else {}
    transfers = {other: _other(trained, corpora[other]) for other in run.tests}
    revealed = {f"{share:g}": revealed_scores(trained, corpus, share) for share in run.revealed}
    if work is not None:
        shutil.rmtree(work, ignore_errors=True)
    return {
        "maths": maths_of(config.to_json(), run.condition.variant),
        "name": name,
        "data": run.data,
        "fingerprint": whole.fingerprint,
        "system": run.system.name,
        "seed": run.seed,
        "condition": run.condition.to_json(),
        "settings": [list(setting) for setting in run.settings],
        "config": trained.config.to_json(),
        "scores": scores,
        "observed": _observed(trained, corpus),
        "documents": documents,
        **({"sampled": sampled} if sampled else {}),
        **({"transfer": transfers} if transfers else {}),
        **({"revealed": revealed} if revealed else {}),
        "figures": trained.figures,
        "reliability": {source: found["error_rate"] for source, found in trained.reliability.items()},
        "seconds": round(last["seconds"] + time.monotonic() - started, 2),
        "epochs": last["epoch"],
        "best_epoch": next((line["epoch"] for line in reversed(lines) if line["best"]), 0),
        "validations": [{"step": line["step"], **line["valid"]} for line in lines],
        "device": trained.device.type,
        "torch": torch.__version__,
        "version": revup.__version__,
        "commit": commit(),
    }


def _scores(trained: Trained, corpus: Corpus) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores of the test and validation splits, and sums over test documents."""
    found: dict[str, Any] = {}
    documents: dict[str, Any] = {}
    for name in ("test", "valid"):
        if len(corpus.split(name)):
            split = in_own_terms(corpus.split(name), corpus, trained)
            events = EventScores(split)
            found[name] = _named(
                evaluate_split(trained.module, split, events=events, writer=trained.writer), corpus, events
            )
            if name == "test":
                documents = events.by_document()
                if trained.module.predicts_frames and corpus.has_frames:
                    found[name] |= _apart(trained, corpus, split, events)
    return found, documents


def _observed(trained: Trained, corpus: Corpus) -> dict[str, float]:
    """Scores against the observed labels of the validation split, which a search may choose by."""
    if not trained.module.predicts_frames or not len(corpus.split("valid")):
        return {}
    config = trained.config
    known = corpus.as_published() if config.preset in PUBLISHED else corpus
    return validate(trained.module, known.split("valid"), config.observation, config.seed, text=False)


def _sampled(trained: Trained, corpus: Corpus) -> dict[str, Any]:
    """Scores of the paper's prediction, the frame of one Gumbel sample, on the test split."""
    if not len(corpus.split("test")):
        return {}
    split = in_own_terms(corpus.split("test"), corpus, trained)
    events = EventScores(split)
    scores = evaluate_split(trained.module, split, sampled=True, text=False, events=events)
    kept = {name: scores[name] for name in ("accuracy", "macro_f1", "macro_precision")}
    return {**kept, "documents": events.by_document()}


def _named(scores: dict[str, Any], corpus: Corpus, events: EventScores) -> dict[str, Any]:
    """The scores that a line holds; a dataset without named frames has no accuracy."""
    frames = ("accuracy", "macro_f1", "macro_precision", "label_nll", "calibration_error")
    kept = {name: scores[name] for name in SCORES if corpus.has_frames or name not in frames}
    kept["soft_calibration_error"] = events.soft_calibration()
    return {name: value for name, value in kept.items() if value is not None}


def _apart(trained: Trained, corpus: Corpus, split: Split, events: EventScores) -> dict[str, Any]:
    """Accuracy on events whose predicate has no training label, on those that training has word for word, and not."""
    predicate = np.asarray(corpus.split("test").arrays["tokens"])[..., 0]
    verbatim, repeated = shared_with_train(corpus)
    groups = {
        "unlabelled": ~labelled_predicates(corpus, trained.config.observation)[predicate],
        "verbatim": verbatim,
        "fresh": ~verbatim,
        "repeated": np.broadcast_to(repeated[:, None], verbatim.shape),
    }
    return {name: events.accuracy(chosen) for name, chosen in groups.items()} if len(split) else {}


def labelled_predicates(corpus: Corpus, observation: Observation) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which words of the vocabulary, as predicates, have an observed label in training, of any source, [V].

    `<unk>` never has: it stands for many words, and a label of one says nothing about another.
    """
    split = corpus.split("train")
    lengths = np.asarray(split.arrays["lengths"])
    preds = np.asarray(split.arrays["tokens"])[..., 0]
    preds = preds[np.arange(preds.shape[1]) < lengths[:, None]]
    labelled = np.zeros(len(corpus.vocabulary), bool)
    for source in split.told(observation).values():
        labelled[preds[source.item]] = True
    labelled[UNK] = False
    return labelled


def _other(trained: Trained, corpus: Corpus) -> dict[str, Any]:
    """Scores on the test split of another dataset."""
    split = in_own_terms(corpus.split("test"), corpus, trained)
    events = EventScores(split)
    scores = evaluate_split(trained.module, split, text=False, events=events)
    return {"fingerprint": corpus.fingerprint, **_named(scores, corpus, events), "documents": events.by_document()}


@torch.no_grad()
def revealed_scores(trained: Trained, corpus: Corpus, share: float) -> dict[str, Any]:
    """Scores on the remaining test events when a share of the true frames is given at prediction."""
    split = in_own_terms(corpus.split("test"), corpus, trained)
    events, given = EventScores(split), []
    for batch in trained.module.batches(split, revealed_draw(share), BATCH).ordered():
        probabilities = trained.module.frame_probabilities(batch, revise=True)
        events.add(batch, probabilities, probabilities.argmax(-1), {})
        given.append(batch.observed.cpu().numpy().astype(bool))
    remaining = ~np.concatenate(given)
    found = events.accuracy(remaining)
    events.scored, events.right = events.scored & remaining, events.right & remaining
    events.nll = events.nll * remaining
    return {**found, "documents": events.by_document()}


def attempt(
    run: Run, corpora: Corpora, out: Path, device: str | None, deadline: Deadline
) -> tuple[Line | None, str | None]:
    """`compute` that does not raise: the line, or what went wrong, or neither if the time was up."""
    try:
        return compute(run, corpora, out, device, deadline), None
    except TimeUp:
        return None, None
    except RevupError as error:
        return None, str(error)
    except Exception as error:  # one bad run must not end the others
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"
    finally:
        if torch.cuda.is_available():
            gc.collect()  # a captured step holds its memory until it is collected
            torch.cuda.empty_cache()
