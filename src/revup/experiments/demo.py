"""The demo: RevUp on a small synthetic corpus whose exact answers are known, from documents to a report.

Three labels in ten are observed in training, and a fifth of those are wrong. RevUp is compared with a lookup table (the
most frequent observed frame of each predicate) and with the exact optimum (the argmax of the world's own posterior), so
its score can be read as a place between the two. The output directory holds

    report.html     the page          corpus/     the dataset          run/     the trained model
    results.json    its figures
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.errors import OutputExistsError
from revup.experiments.demo_page import (
    EXAMPLES,
    PERPLEXITY_NOTE,
    WatchedPredicate,
    noise_sentence,
    posteriors,
    report,
    score_records,
)
from revup.inference.measures import Classification, validate
from revup.inference.run_directory import read_config, read_metrics
from revup.inference.trained import Trained
from revup.io.files import write_json
from revup.io.folders import atomic_folder
from revup.reporting.figures import require_extra
from revup.reporting.progress import Progress
from revup.reporting.tables import text_table
from revup.world.world import World

WORLD: dict[str, Any] = {"frames": 12, "words": 249}  # just as many words as it takes for all of them to be English
DOCUMENTS = {"train": 15_000, "valid": 1_000, "test": 1_000}
EPSILON, ETA = 0.3, 0.2
# Small and quick: one layer and a high learning rate are enough for a dozen frames.
NETWORK = {"embedding": 50, "hidden": 64, "latent": 32, "frame": 64, "layers": 1}
TRAINING = {
    "batch_size": 100,
    "learning_rate": 3e-3,
    "epochs": 7,
    "validate_steps": 75,
    "patience": 6,
    "measure": "label_nll",
}
MARK = ".revup-demo"  # marks the output directory of a demo


def demo(
    out: str | Path = "demo",
    seed: int = 0,
    force: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, Any]:
    """Sample a corpus, train RevUp on incomplete and noisy labels, evaluate it and write a report.

    Args:
        out: Output directory; that of an earlier demo is replaced.
        seed: Determines the world, the documents, which labels are observed, and the initial weights.
        force: Replace `out` even if it is not the output directory of a demo.
        progress: Called with reports of training.

    Returns:
        Scores of the three systems, noise rates, example predictions, settings, and the path of the report.

    Raises:
        OutputExistsError: `out` exists and is not the output directory of a demo.
        RevupError: The extra `report` is not installed.
    """
    target = Path(out)
    if not (force or (target / MARK).exists()) and target.exists() and not (target.is_dir() and _empty(target)):
        raise OutputExistsError("exists already and is not the output directory of a demo", str(target))
    require_extra("the demo")
    started = time.monotonic()
    with _one_thread(), atomic_folder(target, force=True) as folder:
        (folder / MARK).touch()
        play = Demo(folder, seed)
        play.train(progress)
        result = play.result()
        result["seconds"] = round(time.monotonic() - started, 1)
        levels = {"accuracy": play.validation_accuracy()}
        report(result, play.model, play.corpus, play.world, play.documents["test"], play.watched, levels).save(
            folder / "report.html"
        )
        write_json(folder / "results.json", result)
    return {**result, "report": str(target / "report.html")}


def _empty(folder: Path) -> bool:
    return not any(folder.iterdir())


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small gain nothing from a second thread, and lose much by it where other work keeps cores busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def summary(result: dict[str, Any]) -> str:
    """What the command prints.

    Args:
        result: What `demo` returns.

    Returns:
        Several lines of text.
    """
    about = result["data"]
    return "\n\n".join(
        [
            f"{about['documents']:,} training documents, {about['frames']} frames; {about['observed']:,} of "
            f"{about['events']:,} labels observed ({EPSILON:.0%}), a fifth of them replaced at random.",
            text_table(score_records(result["scores"])),
            textwrap.fill(PERPLEXITY_NOTE, 100),
            noise_sentence(result["noise"]),
            "Predictions for the first test documents, without any label given:",
            text_table(result["examples"]),
            f"{result['seconds']:.0f} seconds. Report: {result['report']}",
        ]
    )


class Demo:
    """The parts of one demo: a world, a corpus sampled from it, and two models.

    Args:
        folder: Where dataset and run are written.
        seed: Seed of all of it.
    """

    lookup: Trained
    model: Trained

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.world = World(**WORLD, seed=seed)
        stream = self.world.sample(sum(DOCUMENTS.values()))
        self.documents: dict[str, list[Document]] = {}
        for split, count in DOCUMENTS.items():
            self.documents[split], stream = stream[:count], stream[count:]
        self.corpus = Corpus.build(**self.documents, out=folder / "corpus", world=self.world)  # type: ignore[arg-type]
        self.observation = Observation(EPSILON, ETA, seed)
        self.watched = WatchedPredicate(self.world, self.corpus, self.documents["train"], self.observation)

    def train(self, progress: Callable[[Progress], None] | None = None) -> None:
        """Train the lookup table and RevUp, following one predicate over training."""
        settings: dict[str, Any] = {"epsilon": EPSILON, "eta": ETA, "seed": self.seed, "device": "cpu"}
        self.lookup = revup.train(self.corpus, "lookup", **settings)
        settings["network"] = NETWORK
        self.watched.look(0, revup.train(self.corpus, **settings, training={**TRAINING, "epochs": 0}).module)

        def tell(now: Progress) -> None:
            if now.is_best and now.module is not None:
                self.watched.look(now.step, now.module)
            if progress is not None:
                progress(now)

        self.model = revup.train(self.corpus, **settings, out=self.folder / "run", training=TRAINING, progress=tell)
        self.watched.look(max(self.watched.snapshots), self.model.module)  # as calibrated at the end

    def result(self) -> dict[str, Any]:
        """All figures, and what they were made from."""
        about = read_config(self.folder / "run")[1]
        train = self.corpus.split("train")
        seen, reference = train.seen(self.observation), np.asarray(train.arrays["reference"])
        wrong = seen.frames[..., 0] != reference
        classes = len(self.corpus.frames)
        return {
            "scores": {
                "lookup": revup.evaluate(self.lookup, self.corpus),
                "revup": revup.evaluate(self.model, self.corpus),
                "optimum": self._optimum(),
            },
            "noise": {
                "estimated": self.model.figures.get("noise_rate"),
                "true": float(wrong[seen.observed].mean()),
            },
            "examples": self._examples(),
            "predicate": self.watched.predicate,
            "data": {
                "documents": len(train),
                "events": train.events,
                "observed": int(seen.observed.sum()),
                "frames": classes,
                "words": len(self.corpus.vocabulary),
                "fingerprint": self.corpus.fingerprint,
                "world": self.world.config(),
            },
            "seed": self.seed,
            "version": about["version"],
            "commit": about["commit"],
            "config": self.model.config.to_json(),
            "metrics": read_metrics(self.folder / "run"),
        }

    def _optimum(self) -> dict[str, Any]:
        """The scores of the exact posterior on the test documents."""
        number = {frame: index for index, frame in enumerate(self.corpus.frames)}
        events = [event for document in self.documents["test"] for event in document.events]
        reference = np.array([number.get(event.frame or "", -2) for event in events])
        posterior = posteriors(self.world, self.corpus, self.documents["test"]).reshape(len(events), -1)
        score = Classification(len(number))
        score.add(reference, posterior.argmax(1), posterior)
        perplexity = self.corpus.meta["optimum"]["test"]["perplexity"]
        return {**score.scores(), **score.calibration(), "perplexity": perplexity}

    def _examples(self) -> list[dict[str, Any]]:
        documents = self.documents["test"][:EXAMPLES]
        predictions = zip(
            (event for document in documents for event in document.events),
            (frames[0] for document in self.model.predict(documents, top=1) for frames in document),
            (frames[0] for document in self.lookup.predict(documents, top=1) for frames in document),
            strict=True,
        )
        return [
            {
                "event": _phrase(event),
                "true frame": event.frame,
                "RevUp": f"{'✓' if frame == event.frame else '✗'} {frame}",
                "probability": probability,
                "lookup table": f"{'✓' if guess == event.frame else '✗'} {guess}",
            }
            for event, (frame, probability), (guess, _) in predictions
        ]

    def validation_accuracy(self) -> dict[str, float]:
        """Accuracy of the other two against the observed validation labels: an optimum a scores (1−η)a + η/K."""
        lookup = validate(self.lookup.module, self.corpus.split("valid"), self.observation, self.seed, text=False)
        best = self.corpus.meta["optimum"]["valid"]["accuracy"]
        return {"lookup table": lookup["accuracy"], "exact optimum": (1 - ETA) * best + ETA / len(self.corpus.frames)}


def _phrase(event: Event) -> str:
    return " ".join((event.subj or "·", event.pred, event.obj or "·", event.mod or "")).rstrip()
