"""The paper's small example: 400 documents, 10 frames, z of 100 dimensions.

What does RevUp learn about p(frame|predicate), and how do proposal and revised distribution converge for one ambiguous
predicate?

The documents are the data's, with events of ten frames only (the five most frequent, and five that share predicates
with them); without data, or without frames in it, they come from a world of ten frames. As in the paper, the truth is
the share of each frame among the events of a predicate in these same documents (in a world: its own probabilities),
every label is observed in training, and the proposal is then computed without labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from revup.data.corpus import Corpus
from revup.data.encode import NONE, UNK
from revup.experiments.grid import Results, Scope, Section, System
from revup.experiments.predicates import Floats, entropy, frame_means, known_frames, most_ambiguous
from revup.experiments.results import Result, Run, content_name, read_result, write_result
from revup.experiments.views import frequent_frames
from revup.reporting.figures import bars_grid, heatmaps
from revup.reporting.tables import Row, Table
from revup.settings import Config
from revup.training.run import train_config
from revup.world.world import World

DOCUMENTS, FRAMES, LATENT = 400, 10, 100
ITERATIONS = (0, 50, 100)
STEPS = 10  # in a pass over the documents
SYSTEMS = (System("revup", "paper"), System("revup"))
KINDS = ("proposed", "revised", "predicted")
SHOWN = 15  # predicates in the heat maps
SETTINGS: dict[str, dict[str, Any]] = {
    "network": {"latent": LATENT, "hidden": 64, "frame": 64},
    "training": {"learning_rate": 3e-3, "schedule": "constant", "patience": 1000, "validate_steps": 0},
}


@dataclass
class Example:
    """The documents, their predicates (most frequent first), and the true distribution over frames of each."""

    corpus: Corpus
    predicates: list[int]  # numbers of the vocabulary
    weights: Floats  # [P], the share of events of each
    truth: Floats  # [P, K]
    source: str

    @property
    def names(self) -> list[str]:
        return [self.corpus.vocabulary.words[number] for number in self.predicates]


def plan(scope: Scope) -> list[Run]:
    """No runs of the sweep: these are trained by `show`, and take seconds."""
    return []


def example(scope: Scope) -> Example:
    """The small corpus, cut from the data or sampled from a world."""
    if scope.corpus is None or not scope.corpus.has_frames:
        return _from_world(scope.out / "data" / "small-world")
    corpus = frequent_frames(scope.corpus, scope.out / "data" / "small", DOCUMENTS, FRAMES)
    return _example(corpus, "the data's own documents")


def _from_world(target: Path) -> Example:
    world = World(frames=FRAMES, seed=0)
    corpus = (
        Corpus.load(target)
        if target.exists()
        else Corpus.build(train=world.sample(DOCUMENTS, seed=1), out=target, duplicates="keep")
    )
    found = _example(corpus, "a world of ten frames")
    names, table = known_frames(world, corpus)
    found.truth = table[[names.index(name) for name in found.names]]
    return found


def _example(corpus: Corpus, source: str) -> Example:
    arrays = corpus.split("train").arrays
    reference, preds = np.asarray(arrays["reference"]), np.asarray(arrays["tokens"])[..., 0]
    there = (np.arange(corpus.events) < np.asarray(arrays["lengths"])[:, None]) & (reference != NONE) & (preds != UNK)
    counts = np.zeros((len(corpus.vocabulary), len(corpus.frames)))
    np.add.at(counts, (preds[there], reference[there]), 1)
    used = counts.sum(1)
    order = np.argsort(-used, kind="stable")
    predicates = order[used[order] > 0]
    return Example(
        corpus,
        predicates.tolist(),
        used[predicates] / used.sum(),
        counts[predicates] / used[predicates, None],
        source,
    )


def train(scope: Scope, small: Example, system: System, iterations: int, seed: int) -> Result:
    """Mean proposed and revised distribution and shares of predicted frames for each predicate [P, K], after so many
    iterations; computed once."""
    given = {section: {**scope.overrides.get(section, {}), **own} for section, own in SETTINGS.items()}
    split = small.corpus.split("train")
    given["training"] |= {"batch_size": -(-len(split) // STEPS), "epochs": iterations // STEPS}
    given["objective"] = dict(scope.overrides.get("objective", {}))
    config = Config.make(system.model, system.preset, seed=seed, overrides=given)
    name = content_name({"small": config.to_json(), "data": small.corpus.fingerprint})
    known = read_result(scope.out, name)
    if known is not None:
        return known
    scope.deadline.check()
    trained = train_config(small.corpus, config, device=scope.device)  # the last weights: there is no validation split
    found = {
        kind: frame_means(trained, split, small.predicates, kind == "revised", kind == "predicted").round(6).tolist()
        for kind in KINDS
    }
    about = {"config": trained.config.to_json(), "data": small.corpus.fingerprint, "seconds": 0.0}
    return write_result(scope.out, name, {**about, **found})


def distance(learned: Floats, small: Example) -> float:
    """½ Σ_k |learned − true|, averaged over predicates with their frequencies as weights."""
    return float((0.5 * np.abs(learned - small.truth).sum(1) * small.weights).sum())


def show(scope: Scope, results: Results) -> Section:
    """How far the learned distributions are from the true ones, over training."""
    small = example(scope)
    found = {
        (system, n, seed): train(scope, small, system, n, seed)
        for seed in scope.seeds
        for system in SYSTEMS
        for n in ITERATIONS
    }

    def cells(system: System, kind: str) -> tuple[tuple[float, ...], ...]:
        return tuple(
            tuple(distance(np.array(found[system, n, seed][kind]), small) for seed in scope.seeds) for n in ITERATIONS
        )

    made = [Row(f"{system.label}, {kind}", cells(system, kind)) for system in SYSTEMS for kind in KINDS]
    table = Table(
        "small",
        "Distance between learned and true p(frame|predicate) by iteration",
        "iterations",
        tuple(str(n) for n in ITERATIONS),
        tuple(made),
        "Total variation, 0 to 1, averaged over predicates by frequency; lower is better. Proposed and revised: means "
        "of the distributions; predicted: shares of the most probable frames, as in the paper's figure.",
        higher=False,
        compete=False,
    )
    last = {s: np.array(found[s, ITERATIONS[-1], scope.seeds[0]]["predicted"]) for s in SYSTEMS}
    watched = int(np.argmax(small.weights * entropy(small.truth)))  # both frequent and ambiguous
    return Section(
        "small",
        "The small example",
        f"{len(small.corpus.split('train'))} documents from {small.source}, {len(small.corpus.frames)} frames, z of "
        f"{LATENT} dimensions. The proposal is computed without any label; the revised distribution uses the observed "
        "label. An iteration is a step on a tenth of the documents. `default` starts from pooled counts, so it starts "
        "near the truth.",
        [table],
        [
            (
                "small-heatmaps",
                lambda: _heatmaps(small, last),
                "p(frame|predicate) for frequent, ambiguous predicates: how often RevUp predicts each frame for events "
                "of the predicate, and the truth.",
            ),
            (
                "small-convergence",
                lambda: _convergence(small, watched, found, scope.seeds[0]),
                f"Proposed and revised distribution for the predicate “{small.names[watched]}”, and the truth.",
            ),
        ],
    )


def _heatmaps(small: Example, learned: dict[System, Floats]) -> Any:
    chosen = most_ambiguous(small.truth, small.weights, SHOWN)
    panels = {**{system.label: table[chosen] for system, table in learned.items()}, "true": small.truth[chosen]}
    return heatmaps([small.names[number] for number in chosen], small.corpus.frames, panels)


def _convergence(small: Example, watched: int, found: dict[tuple[System, int, int], Result], seed: int) -> Any:
    panels = [
        [
            {kind: found[system, n, seed][kind][watched] for kind in KINDS[:2]} | {"true": small.truth[watched]}
            for n in ITERATIONS
        ]
        for system in SYSTEMS
    ]
    titles = [f"iteration {n}" for n in ITERATIONS]
    return bars_grid(small.corpus.frames, panels, [system.label for system in SYSTEMS], titles)
