"""The demo: RevUp on a small made-up newsroom where every answer is known, from documents to a report.

Three frames in ten are seen in training, and a fifth of those are wrong. Beside RevUp stand the lookup table (the most
frequent seen frame of each predicate) and the exact optimum (the argmax of the world's own posterior), so its score
can be read as a place between the two. What is left in the output directory:

    report.html     the page          corpus/     the dataset          run/     the trained model
    results.json    its figures
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import revup
from revup.data.batches import Batches
from revup.data.corpus import Corpus, Split
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.errors import InputError
from revup.inference.measures import Classification, validate
from revup.io.files import open_output
from revup.io.folders import atomic_folder
from revup.models.base import Model
from revup.reporting.figures import bars_grid, curves_figure, heatmap_pair, reliability_figure
from revup.reporting.pages import Page, text_table
from revup.reporting.progress import Progress
from revup.world.world import World

WORLD = {"frames": 12, "words": 249}  # just as many words as it takes for all of them to be English
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
MARK = ".revup-demo"  # a directory with this file in it is a demo's own

WATCHED = 400  # documents in which the predicate of the first figure is watched
SNAPSHOTS = 4
PREDICATES = 16  # in the heat maps
EXAMPLES = 2  # documents

Floats = NDArray[np.float64]
Watcher = Callable[[Progress], None]


def demo(
    out: str | Path = "demo", seed: int = 0, force: bool = False, progress: Watcher | None = None
) -> dict[str, Any]:
    """Do it all, print the table and some predictions, and return the figures. Replaces what an earlier demo left."""
    target = Path(out)
    _refuse_foreign(target, force)
    page = Page("RevUp on a newsroom whose answers are known")  # first: says if the extra is missing
    started = time.monotonic()
    with _one_thread(), atomic_folder(target, force=True) as folder:
        (folder / MARK).touch()
        play = _Play(folder, seed)
        play.train(progress)
        result = play.result()
        result["seconds"] = round(time.monotonic() - started, 1)
        play.fill(page, result)
        page.save(folder / "report.html")
        with open_output(folder / "results.json") as file:
            file.write(json.dumps(result, indent=1) + "\n")
    result["report"] = str(target / "report.html")
    print(summary(result))
    return result


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small gain nothing from a second thread, and lose much by it where other work keeps cores busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _refuse_foreign(target: Path, force: bool) -> None:
    if force or not target.exists() or (target / MARK).exists():
        return
    if not target.is_dir() or any(target.iterdir()):
        raise InputError("exists already and is not a demo's own (--force replaces it)", str(target))


def summary(result: dict[str, Any]) -> str:
    """What the terminal shows at the end."""
    about = result["data"]
    parts = [
        f"{about['documents']:,} documents to learn from, {about['frames']} frames; {about['seen']:,} of "
        f"{about['events']:,} frames seen ({EPSILON:.0%}), a fifth of them replaced at random.",
        text_table(score_rows(result["scores"])),
        textwrap.fill(PERPLEXITY_NOTE, 100),
        f"RevUp estimates that {result['noise']['estimated']:.0%} of the frames it was given are wrong; "
        f"in truth {result['noise']['true']:.0%} are.",
        "The first events of the test documents, which no model has seen a frame of:",
        text_table(result["examples"]),
        f"{result['seconds']:.0f} seconds. The report: {result['report']}",
    ]
    return "\n\n".join(parts)


PERPLEXITY_NOTE = (
    "RevUp's perplexity is that of a reconstruction, given frames inferred from the same text; the optimum's is that "
    "of the text itself. The two are not comparable, and a table of frames writes no text."
)
NAMES = {"lookup": "lookup table", "revup": "RevUp", "optimum": "exact optimum"}


def score_rows(scores: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The table: one row a system."""
    columns = {"accuracy": "accuracy", "macro_f1": "macro-F1", "label_nll": "label NLL", "perplexity": "perplexity"}
    return [
        {"": NAMES[system], **{title: values.get(name) for name, title in columns.items()}}
        for system, values in scores.items()
    ]


class _Play:
    """The pieces of one demo: a world, a corpus sampled from it, two models, and what is drawn of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.world = World(**WORLD, seed=seed)
        stream = self.world.sample(sum(DOCUMENTS.values()))
        self.documents: dict[str, list[Document]] = {}
        for split, count in DOCUMENTS.items():
            self.documents[split], stream = stream[:count], stream[count:]
        self.corpus = Corpus.build(**self.documents, out=folder / "corpus", world=self.world)  # type: ignore[arg-type]
        self.observation = Observation(EPSILON, ETA, seed)
        self.columns = [self.world.frames.index(frame) for frame in self.corpus.frames]
        self.watched = _Watched(self)

    def train(self, progress: Watcher | None) -> None:
        settings: dict[str, Any] = {"epsilon": EPSILON, "eta": ETA, "seed": self.seed, "device": "cpu"}
        self.lookup = revup.train(self.corpus, "lookup", **settings)
        run = self.folder / "run"
        settings["network"] = NETWORK
        self.watched.look(0, revup.train(self.corpus, **settings, training={**TRAINING, "epochs": 0}).module)

        def tell(now: Progress) -> None:
            if now.is_best:
                self.watched.look(now.step, now.module)
            if progress is not None:
                progress(now)

        self.model = revup.train(self.corpus, **settings, out=run, training=TRAINING, progress=tell)

    # ---- figures ---------------------------------------------------------------------------------------------

    def result(self) -> dict[str, Any]:
        """All the figures, and what they were made from."""
        about = json.loads((self.folder / "run" / "config.json").read_text("utf-8"))
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
                # of the frames replaced at random, one in K comes out right
                "estimated": self.model.figures["noise_rate"] * (1 - 1 / classes),
                "true": float(wrong[seen.observed].mean()),
            },
            "examples": self._examples(),
            "predicate": self.watched.predicate,
            "data": {
                "documents": len(train),
                "events": train.events,
                "seen": int(seen.observed.sum()),
                "frames": classes,
                "words": len(self.corpus.vocabulary),
                "fingerprint": self.corpus.fingerprint,
                "world": self.world.config(),
            },
            "seed": self.seed,
            "version": about["version"],
            "commit": about["commit"],
            "config": self.model.config.to_json(),
        }

    def _optimum(self) -> dict[str, Any]:
        """The scores of the exact posterior on the test documents."""
        number = {frame: index for index, frame in enumerate(self.corpus.frames)}
        events = [event for document in self.documents["test"] for event in document.events]
        reference = np.array([number.get(event.frame or "", -2) for event in events])
        posterior = self._posteriors(self.documents["test"]).reshape(len(events), -1)
        score = Classification(len(number))
        score.add(reference, posterior.argmax(1), posterior)
        return {**score.scores(), **score.calibration(), "perplexity": self._optimal("test")["perplexity"]}

    def _optimal(self, split: str) -> dict[str, float]:
        found: dict[str, float] = self.corpus.meta["optimum"][split]
        return found

    def _posteriors(self, documents: Sequence[Document]) -> Floats:
        """Exact p(t_m|x), [N, M, K], in the order of the corpus's frames."""
        return np.asarray(self.world.posteriors(documents)[..., self.columns])

    def _examples(self) -> list[dict[str, Any]]:
        documents = self.documents["test"][:EXAMPLES]
        rows = []
        for document, ours, theirs in zip(
            documents, self.model.predict(documents, top=1), self.lookup.predict(documents, top=1), strict=True
        ):
            for event, ((frame, probability),), ((guess, _),) in zip(document.events, ours, theirs, strict=True):
                rows.append(
                    {
                        "event": _phrase(event),
                        "true frame": event.frame,
                        "RevUp": f"{'✓' if frame == event.frame else '✗'} {frame}",
                        "probability": probability,
                        "lookup table": f"{'✓' if guess == event.frame else '✗'} {guess}",
                    }
                )
        return rows

    def _learned(self, predicates: Sequence[str]) -> Floats:
        """The mean of r(t|z) over the test events of each predicate, [P, K]."""
        row = {self.corpus.vocabulary.index[predicate]: number for number, predicate in enumerate(predicates)}
        totals, counts = np.zeros((len(predicates), len(self.corpus.frames))), np.zeros(len(predicates))
        for batch in Batches(self.corpus.split("test"), Observation(0.0), 500).ordered():
            with torch.no_grad():
                found = self.model.module.frame_probabilities(batch)[batch.mask].numpy()
            words = batch.tokens.view(*batch.mask.shape, -1)[..., 0][batch.mask].tolist()
            chosen = [(place, row[word]) for place, word in enumerate(words) if word in row]
            for place, number in chosen:
                totals[number] += found[place]
                counts[number] += 1
        return np.asarray(totals / np.maximum(counts, 1)[:, None])

    def _ambiguous(self) -> tuple[list[str], Floats]:
        """Of the predicates that the test documents use often, those with the most uncertain frame, and p(t|pred)."""
        names, table = self.world.frame_given_predicate()
        table = table[:, self.columns]
        used = _frequencies(self.documents["test"], names)
        often = np.argsort(-used, kind="stable")[: 2 * PREDICATES]
        often = often[used[often] > 0]
        chosen = often[np.argsort(-_entropy(table[often]), kind="stable")[:PREDICATES]]
        chosen = chosen[np.lexsort((-table[chosen].max(1), table[chosen].argmax(1)))]
        return [names[index] for index in chosen], table[chosen]

    # ---- the page ----------------------------------------------------------------------------------------------

    def fill(self, page: Page, result: dict[str, Any]) -> None:
        scores, about, noise = result["scores"], result["data"], result["noise"]
        page.add_text(
            f"A made-up newsroom wrote {about['documents']:,} documents of five events each to learn from. An event is "
            f"a predicate with its subject, object and modifier, and belongs to one of {about['frames']} frames. Most "
            "predicates serve several frames, so the context has to tell which one is meant. **RevUp was shown the "
            f"frames of {about['seen']:,} of {about['events']:,} events ({EPSILON:.0%}), a fifth of them replaced at "
            "random**, and then labelled documents it had not seen. Because the newsroom is made up, the best answer "
            "that anyone could give is known exactly."
        )
        page.add_heading("Scores on the test documents")
        page.add_table(
            score_rows(scores),
            "Accuracy and macro-F1: higher is better. Label NLL, the mean −log probability of the true frame, and "
            "perplexity: lower is better. The lookup table takes the frame most often seen with the predicate; the "
            f"exact optimum knows the newsroom's own probabilities. {PERPLEXITY_NOTE}",
        )
        page.add_text(
            f"RevUp takes what it is shown as evidence, not as truth: it estimates that {noise['estimated']:.1%} of "
            f"the frames it was given are wrong. In truth {noise['true']:.1%} are."
        )
        page.add_heading("Some predictions")
        page.add_table(
            result["examples"],
            f"All events of the first {EXAMPLES} test documents. `·` is a missing subject or object; the models see "
            "no frame here.",
        )
        page.add_heading("Proposal, revision and truth over training")
        page.add_figure(self.watched.figure(), self.watched.caption())
        page.add_heading("What each predicate means: learned and true")
        predicates, true = self._ambiguous()
        page.add_figure(
            heatmap_pair(predicates, self.corpus.frames, self._learned(predicates), true, ("learned by RevUp", "true")),
            "p(frame|predicate) for the most ambiguous of the frequent predicates. Left: RevUp's proposal, averaged "
            "over the test events of the predicate. Right: the newsroom's own probabilities. The nearer the two "
            "pictures, the better. Some of the difference is chance: each frame occurs in the test events somewhat "
            "more or less often than its probability says.",
        )
        page.add_heading("The course of training")
        page.add_figure(
            curves_figure(self._metrics(), self._levels()),
            "Terms of the loss on training documents (blue) and scores on validation documents (orange). Validation "
            "is against the frames that happened to be seen, a fifth of them wrong, as it would be in practice: the "
            "dashed lines say what the lookup table and the exact optimum reach against those. The terms z and "
            "uniform are watched, but weigh next to nothing in the default objective. Where the accuracy goes flat the "
            "frames have settled, and the decoder learns on from one-hot frames, which say less than soft ones.",
        )
        page.add_heading("Can its probabilities be trusted?")
        page.add_figure(
            reliability_figure(scores["revup"]["reliability"]),
            "Each point gathers the test events that RevUp labels with about the same probability; on the dashed line "
            "it is right as often as it says. The vertical lines are 95% intervals. The mean distance from the dashed "
            "line, weighted by events, is "
            f"{scores['revup']['calibration_error']:.3f}. Below: how many events there are at each probability.",
        )
        page.add_heading("How this was made")
        page.add_table(
            [
                {" ": "revup", "  ": f"{result['version']} ({result['commit'] or 'no commit known'})"},
                {" ": "seed", "  ": str(result["seed"])},
                {" ": "data fingerprint", "  ": about["fingerprint"]},
                {" ": "words in the vocabulary", "  ": str(about["words"])},
                {" ": "time", "  ": f"{result['seconds']:.0f} seconds, this page not counted"},
            ],
            "The dataset, the trained model and all figures lie beside this page: `corpus/`, `run/`, `results.json`. "
            "The model can be asked more: `revup evaluate run`, `revup predict run FILE`.",
        )
        page.add_details("Every setting", json.dumps(result["config"], indent=1))

    def _metrics(self) -> list[dict[str, Any]]:
        lines = (self.folder / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def _levels(self) -> dict[str, dict[str, float]]:
        """Validation accuracy of the others, against the seen frames: the optimum a is right on (1−η)a + η/K."""
        valid = self.corpus.split("valid")
        lookup = validate(self.lookup.module, valid, self.observation, self.seed, text=False)
        best = (1 - ETA) * self._optimal("valid")["accuracy"] + ETA / len(self.corpus.frames)
        return {"accuracy": {"lookup table": lookup["accuracy"], "exact optimum": best}}


class _Watched:
    """One ambiguous predicate in the training documents: what is proposed and revised for it, step by step.

    Only events whose frame was seen are watched, since revision changes no others. They are looked at all together,
    and apart by their true frame: the first shows whether p(frame|predicate) is right, the others whether context
    tells the frames apart.
    """

    def __init__(self, play: _Play) -> None:
        self.play = play
        names, table = play.world.frame_given_predicate()
        weight = _frequencies(play.documents["train"], names) * _entropy(table)
        place = int(weight.argmax())
        self.predicate = names[place]
        true = table[place, play.columns]

        train = play.corpus.split("train")
        seen = train.seen(play.observation).observed
        pred = np.asarray(train.arrays["tokens"])[..., 0] == play.corpus.vocabulary.index[self.predicate]
        rows = np.flatnonzero((seen & pred).any(1))[:WATCHED]
        self.part = Split("watched", {n: np.asarray(a)[rows] for n, a in train.arrays.items()}, list, train.classes)
        here, reference = (seen & pred)[rows], np.asarray(train.arrays["reference"])[rows]

        by_id = {document.id: document for document in play.documents["train"]}
        ids = train.ids
        exact = play._posteriors([by_id[ids[number]] for number in self.part.arrays["document"]])
        self.shown = [int(k) for k in np.argsort(-true, kind="stable") if true[k] > 0.01][:5]
        self.groups = {f"all events\nwith “{self.predicate}”": here}
        self.truth = [true]
        for k in self.shown[:2]:
            group = here & (reference == k)
            if group.any():
                self.groups[f"those that are\n{play.corpus.frames[k]}"] = group
                self.truth.append(exact[group].mean(0))
        self.snapshots: dict[int, list[dict[str, Floats]]] = {}

    def look(self, step: int, module: Model) -> None:
        """Note what the model now proposes, and what becomes of it with what was seen."""
        batch = next(Batches(self.part, self.play.observation, len(self.part)).ordered())
        with torch.no_grad():
            proposed = module.frame_probabilities(batch).double().numpy()
            revised = module.frame_probabilities(batch, revise=True).double().numpy()
        self.snapshots[step] = [
            {"proposal": proposed[group].mean(0), "revision": revised[group].mean(0), "truth": truth}
            for group, truth in zip(self.groups.values(), self.truth, strict=True)
        ]

    def figure(self) -> Any:
        steps = sorted(self.snapshots)
        steps = [
            steps[i] for i in np.unique(np.geomspace(1, len(steps), min(SNAPSHOTS, len(steps))).round() - 1).astype(int)
        ]
        panels = [
            [{name: self._cut(v) for name, v in self.snapshots[step][row].items()} for step in steps]
            for row in range(len(self.groups))
        ]
        labels = [self.play.corpus.frames[k] for k in self.shown] + ["others"]
        return bars_grid(labels, panels, list(self.groups), [f"step {step}" for step in steps])

    def _cut(self, distribution: Floats) -> Floats:
        kept = distribution[self.shown]
        return np.append(kept, max(distribution.sum() - kept.sum(), 0.0))

    def caption(self) -> str:
        kept = 1 / (1 + self.play.model.config.objective.strength)
        return (
            f"The predicate “{self.predicate}” in training events whose frame was seen. Pale: the proposal r(t|z), "
            f"made from the text and from pooled counts. Dark: the revision, {kept:.0%} of it the proposal, the rest "
            "what was seen, wrong frames included. Black lines: the truth by the newsroom's own probabilities, given "
            "the predicate in the top row and the whole document in the others. "
            "In the top row the proposal is near the truth from the start, because it stands on the counts. The rows "
            "below show what training adds: at first the proposal does not know which of the frames is meant, and then "
            "it learns to tell from the context. The revision runs ahead of it, and the update draws the proposal "
            "after."
        )


def _phrase(event: Event) -> str:
    words = (event.subj or "·", event.pred, event.obj or "·", event.mod or "")
    return " ".join(words).rstrip()


def _frequencies(documents: Sequence[Document], predicates: Sequence[str]) -> Floats:
    number = {predicate: index for index, predicate in enumerate(predicates)}
    found = [number[event.pred] for document in documents for event in document.events]
    return np.bincount(found, minlength=len(predicates)).astype(np.float64)


def _entropy(table: Floats) -> Floats:
    return np.asarray(-(table * np.log(np.maximum(table, 1e-300))).sum(-1))
