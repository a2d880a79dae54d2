"""The demo's report: its tables, figures and captions, and the predicate that is followed over training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from revup.data.corpus import Corpus, Split
from revup.data.events import Document
from revup.data.knowledge import Observation
from revup.experiments.predicates import Floats, entropy, frame_means, known_frames, most_ambiguous
from revup.inference.trained import Trained
from revup.models.base import Model
from revup.reporting.figures import bars_grid, heatmaps, reliability_figure, training_curves
from revup.reporting.pages import Page
from revup.world.world import World

FOLLOWED = 400  # documents in which the predicate of the first figure is followed
SNAPSHOTS = 4
PREDICATES = 16  # in the heat maps
EXAMPLES = 2  # documents
PERPLEXITY_NOTE = (
    "RevUp's perplexity is that of a reconstruction, given frames inferred from the same text; the optimum's is that "
    "of the text itself. The two are not comparable, and a lookup table writes no text."
)
SYSTEMS = {"lookup": "lookup table", "revup": "RevUp", "optimum": "exact optimum"}
MEASURES = {"accuracy": "accuracy", "macro_f1": "macro-F1", "label_nll": "label NLL", "perplexity": "perplexity"}


def score_records(scores: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The table of scores, a record for each system."""
    return [
        {"": SYSTEMS[system], **{title: values.get(name) for name, title in MEASURES.items()}}
        for system, values in scores.items()
    ]


def noise_sentence(noise: Mapping[str, float | None], digits: int = 0) -> str:
    """What RevUp estimates about wrong labels, and the truth."""
    true = f"{noise['true']:.{digits}%}"
    if noise["estimated"] is None:
        return f"From these labels RevUp can't tell how many of them are wrong; {true} are."
    return f"RevUp estimates that {noise['estimated']:.{digits}%} of the observed labels are wrong; {true} are."


def posteriors(world: World, corpus: Corpus, documents: Sequence[Document]) -> Floats:
    """Exact p(t_m|x), [N, M, K], in the order of the corpus's frames."""
    return np.asarray(world.posteriors(documents)[..., [world.frames.index(frame) for frame in corpus.frames]])


class WatchedPredicate:
    """One frequent and ambiguous predicate: proposed and revised distributions for its training events, over training.

    Only events with an observed label are used, since the revised distribution of others is the proposal. They are
    shown together, and separately by their true frame: the first shows whether p(frame|predicate) is right, the others
    whether the context tells the frames apart.

    Args:
        world: Where the documents come from.
        corpus: The dataset made of them.
        documents: The training documents.
        observation: Which labels are observed.
    """

    def __init__(self, world: World, corpus: Corpus, documents: Sequence[Document], observation: Observation) -> None:
        names, table = known_frames(world, corpus)
        place = int((_frequencies(documents, names) * entropy(table)).argmax())
        self.predicate, self.frames, self.observation = names[place], corpus.frames, observation
        true = table[place]

        train = corpus.split("train")
        used = np.asarray(train.arrays["tokens"])[..., 0] == corpus.vocabulary.index[self.predicate]
        used &= train.seen(observation).observed
        rows = np.flatnonzero(used.any(1))[:FOLLOWED]
        self.part = Split("watched", {n: np.asarray(a)[rows] for n, a in train.arrays.items()}, list, train.classes)
        used, reference = used[rows], np.asarray(train.arrays["reference"])[rows]

        by_id = {document.id: document for document in documents}
        exact = posteriors(world, corpus, [by_id[train.ids[number]] for number in self.part.arrays["document"]])
        self.shown = [int(k) for k in np.argsort(-true, kind="stable") if true[k] > 0.01][:5]
        self.groups = {f"all events\nwith “{self.predicate}”": used}
        self.truth = [true]
        for k in self.shown[:2]:
            group = used & (reference == k)
            if group.any():
                self.groups[f"true frame\n{corpus.frames[k]}"] = group
                self.truth.append(exact[group].mean(0))
        self.snapshots: dict[int, list[dict[str, Floats]]] = {}

    def look(self, step: int, module: Model) -> None:
        """Keep the model's proposed and revised distributions at this step."""
        batch = next(module.batches(self.part, self.observation, len(self.part)).ordered())
        with torch.no_grad():
            proposed = module.frame_probabilities(batch).double().numpy()
            revised = module.frame_probabilities(batch, revise=True).double().numpy()
        self.snapshots[step] = [
            {"proposed": proposed[group].mean(0), "revised": revised[group].mean(0), "true": truth}
            for group, truth in zip(self.groups.values(), self.truth, strict=True)
        ]

    def figure(self) -> Any:
        """Some of the snapshots as bar charts."""
        steps = sorted(self.snapshots)
        chosen = np.unique(np.geomspace(1, len(steps), min(SNAPSHOTS, len(steps))).round() - 1).astype(int)
        panels = [
            [{name: self._cut(v) for name, v in self.snapshots[steps[i]][row].items()} for i in chosen]
            for row in range(len(self.groups))
        ]
        labels = [self.frames[k] for k in self.shown] + ["others"]
        return bars_grid(labels, panels, list(self.groups), [f"step {steps[i]}" for i in chosen])

    def _cut(self, distribution: Floats) -> Floats:
        kept = distribution[self.shown]
        return np.append(kept, max(distribution.sum() - kept.sum(), 0.0))


def report(
    result: Mapping[str, Any],
    model: Trained,
    corpus: Corpus,
    world: World,
    documents: Sequence[Document],
    watched: WatchedPredicate,
    levels: Mapping[str, Mapping[str, float]],
) -> Page:
    """The report of a demo.

    Args:
        result: Scores, noise rates, examples, settings and metrics of the run.
        model: RevUp as it was trained.
        corpus: Its dataset.
        world: Where the documents come from.
        documents: The test documents.
        watched: The predicate that was followed.
        levels: Validation scores of the other systems.

    Returns:
        The page.
    """
    scores, about, noise = result["scores"], result["data"], result["noise"]
    page = Page("RevUp on a synthetic corpus with known answers")
    page.add_text(
        f"A synthetic newsroom generated {about['documents']:,} training documents of five events each. An event is a "
        f"predicate with its subject, object and modifier, and has one of {about['frames']} frames. Most predicates "
        "can have several frames, and the context decides which. **In training RevUp observed the labels of "
        f"{about['observed']:,} of {about['events']:,} events ({result['config']['observation']['epsilon']:.0%}), a "
        "fifth of them replaced at random**, and then labelled documents it had not seen. Because the corpus is "
        "synthetic, the best possible answer is known exactly."
    )
    page.add_heading("Test scores")
    page.add_table(
        score_records(scores),
        "Accuracy and macro-F1: higher is better. Label NLL, the mean −log probability of the true frame, and "
        "perplexity: lower is better. The lookup table predicts the frame most often observed with the predicate; the "
        f"exact optimum uses the newsroom's own probabilities. {PERPLEXITY_NOTE}",
    )
    page.add_text(f"RevUp treats labels as evidence, not as truth. {noise_sentence(noise, 1)}")
    page.add_heading("Example predictions")
    page.add_table(
        result["examples"],
        f"All events of the first {EXAMPLES} test documents. `·` is a missing subject or object; no labels are given.",
    )
    page.add_heading("Proposed and revised distributions over training")
    page.add_figure(watched.figure(), _watched_caption(watched.predicate, model.config.objective.strength))
    page.add_heading("p(frame|predicate), learned and true")
    names, true = known_frames(world, corpus)
    chosen = most_ambiguous(true, _frequencies(documents, names), PREDICATES)
    predicates = [names[number] for number in chosen]
    learned = frame_means(model, corpus.split("test"), [corpus.vocabulary.index[name] for name in predicates])
    page.add_figure(
        heatmaps(predicates, corpus.frames, {"RevUp": learned, "true": true[chosen]}),
        "p(frame|predicate) for the most ambiguous of the frequent predicates. Left: RevUp's proposal, averaged over "
        "the test events of the predicate. Right: the newsroom's own probabilities. Some of the difference is chance: "
        "the frequencies of the frames in the test events differ from their probabilities.",
    )
    page.add_heading("Training")
    page.add_figure(
        training_curves(result["metrics"], levels),
        "Loss terms on training documents (blue) and scores on validation documents (orange). Validation is against "
        "the observed labels, a fifth of them wrong, as it would be in practice: the dashed lines show the scores of "
        "the lookup table and of the exact optimum against the same labels. The terms z and uniform are recorded, but "
        "have next to no weight in the default objective. Where the accuracy becomes constant the frames have "
        "converged, and only the decoder is trained further, on one-hot frames.",
    )
    page.add_heading("Calibration")
    page.add_figure(
        reliability_figure(scores["revup"]["reliability"]),
        "Each point is a bin of test events with about the same predicted probability; on the dashed line the accuracy "
        "equals the probability. Vertical lines: 95% intervals. The calibration error, the mean distance from the "
        f"dashed line weighted by events, is {scores['revup']['calibration_error']:.3f}. Below: the number of events.",
    )
    page.add_heading("Provenance")
    page.add_table(
        [
            {" ": "revup", "  ": f"{result['version']} ({result['commit'] or 'commit unknown'})"},
            {" ": "seed", "  ": str(result["seed"])},
            {" ": "data fingerprint", "  ": about["fingerprint"]},
            {" ": "words in the vocabulary", "  ": str(about["words"])},
            {" ": "time", "  ": f"{result['seconds']:.0f} seconds, without this page"},
        ],
        "Dataset, trained model and all figures are beside this page: `corpus/`, `run/`, `results.json`. To use the "
        "model: `revup evaluate run`, `revup predict run FILE`.",
    )
    page.add_details("All settings", json.dumps(result["config"], indent=1))
    return page


def _watched_caption(predicate: str, strength: float) -> str:
    return (
        f"The predicate “{predicate}” in training events with an observed label. Pale bars: the proposal r(t|z), from "
        f"the text and the pooled counts. Dark bars: the revised distribution, {1 / (1 + strength):.0%} proposal and "
        "the rest observed label, wrong labels included. Lines: the truth by the newsroom's own probabilities, given "
        "the predicate in the top row and the whole document in the others. In the top row the proposal is near the "
        "truth from the start, because it starts from the counts. The rows below show what training adds: at first "
        "the proposal does not know which frame is meant, then it learns to tell from the context, because it is "
        "trained towards the revised distribution."
    )


def _frequencies(documents: Sequence[Document], predicates: Sequence[str]) -> Floats:
    number = {predicate: index for index, predicate in enumerate(predicates)}
    found = [number[event.pred] for document in documents for event in document.events]
    return np.bincount(found, minlength=len(predicates)).astype(np.float64)
