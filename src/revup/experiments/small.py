"""The paper's small example: 400 documents, 10 frames, z of 100 dimensions.

What does RevUp learn about p(frame|predicate), and how do proposal and revised distribution converge for one ambiguous
predicate?

The documents are the data's, with events of ten frames only (the five most frequent, and five that share predicates
with them); without data, or without frames in it, they come from a world of ten frames. As in the paper, the truth is
the share of each frame among the events of a predicate in these same documents (in a world: its own probabilities),
every label is observed in training, and the proposal is then computed without labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from revup.data.corpus import Corpus
from revup.data.encode import NONE, UNK
from revup.experiments.predicates import Floats, entropy, frame_means, known_frames, most_ambiguous
from revup.experiments.runs import COUNTS_MATHS, Line, RunFile, System, content_name
from revup.experiments.sections import Section
from revup.experiments.views import frequent_frames
from revup.reporting.figures import bars_grid, heatmaps
from revup.reporting.tables import Row, Table
from revup.settings import Config, Overrides
from revup.training.deadline import Deadline
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


@dataclass(frozen=True)
class Scope:
    """Where and how it is trained."""

    out: Path
    seeds: tuple[int, ...] = (0, 1, 2)
    overrides: Overrides = field(default_factory=dict)
    device: str | None = None
    deadline: Deadline = field(default_factory=Deadline)


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


def example(scope: Scope, data: Corpus | None) -> Example:
    """The small corpus, cut from the data or sampled from a world."""
    if data is None or not data.has_frames:
        return _from_world(scope.out / "data" / "small-world")
    return _example(frequent_frames(data, scope.out / "data" / "small", DOCUMENTS, FRAMES), "the data's own documents")


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


def complete(scope: Scope, data: Corpus | None, file: RunFile) -> None:
    """Train what is missing, and append a line for each model and number of iterations.

    Args:
        scope: Where and how to train.
        data: The dataset to cut the example from; None: a world of ten frames.
        file: The file of runs.

    Raises:
        TimeUp: The deadline came first.
    """
    small = example(scope, data)
    watched = int(np.argmax(small.weights * entropy(small.truth)))  # both frequent and ambiguous
    chosen = [*most_ambiguous(small.truth, small.weights, SHOWN).tolist(), watched]
    for seed in scope.seeds:
        for system in SYSTEMS:
            for iterations in ITERATIONS:
                config = _config(scope, small, system, iterations, seed)
                name = content_name({"small": config.to_json(), "data": small.corpus.fingerprint}, COUNTS_MATHS)
                if name in file.examples:
                    continue
                scope.deadline.check()
                # the last weights: there is no validation split
                trained = train_config(small.corpus, config, device=scope.device)
                split = small.corpus.split("train")
                means = {
                    kind: frame_means(trained, split, small.predicates, kind == "revised", kind == "predicted")
                    for kind in KINDS
                }
                file.add(
                    {
                        "maths": COUNTS_MATHS,
                        "name": name,
                        "small": {"system": system.name, "iterations": iterations, "seed": seed},
                        "fingerprint": small.corpus.fingerprint,
                        "source": small.source,
                        "documents": len(split),
                        "frames": small.corpus.frames,
                        "distances": {kind: round(distance(table, small), 6) for kind, table in means.items()},
                        "predicates": [small.names[number] for number in chosen],  # the last one is watched
                        "true": small.truth[chosen].round(6).tolist(),
                        **{kind: table[chosen].round(6).tolist() for kind, table in means.items()},
                    }
                )


def _config(scope: Scope, small: Example, system: System, iterations: int, seed: int) -> Config:
    given = {section: {**scope.overrides.get(section, {}), **own} for section, own in SETTINGS.items()}
    batch = -(-len(small.corpus.split("train")) // STEPS)
    given["training"] |= {"batch_size": batch, "epochs": iterations // STEPS}
    given["objective"] = dict(scope.overrides.get("objective", {}))
    return Config.make(system.model, system.preset, seed=seed, overrides=given)


def distance(learned: Floats, small: Example) -> float:
    """½ Σ_k |learned − true|, averaged over predicates with their frequencies as weights."""
    return float((0.5 * np.abs(learned - small.truth).sum(1) * small.weights).sum())


def section(lines: Iterable[Line]) -> Section | None:
    """How far the learned distributions are from the true ones, over training, from the lines of a file of runs."""
    found = {(x["small"]["system"], x["small"]["iterations"], x["small"]["seed"]): x for x in lines if "small" in x}
    if not found:
        return None
    seeds, first = sorted({seed for _, _, seed in found}), next(iter(found.values()))

    def cells(system: System, kind: str) -> tuple[tuple[float | None, ...], ...]:
        each = [[found.get((system.name, n, seed)) for seed in seeds] for n in ITERATIONS]
        return tuple(tuple(None if x is None else x["distances"][kind] for x in row) for row in each)

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
    whole = all((s.name, n, seeds[0]) in found for s in SYSTEMS for n in ITERATIONS)
    return Section(
        "small",
        "The small example",
        f"{first['documents']} documents from {first['source']}, {len(first['frames'])} frames, z of "
        f"{LATENT} dimensions. The proposal is computed without any label; the revised distribution uses the observed "
        "label. An iteration is a step on a tenth of the documents. `default` starts from pooled counts, so it starts "
        "near the truth.",
        [table],
        [
            (
                "small-heatmaps",
                lambda: _heatmaps({s: found[s.name, ITERATIONS[-1], seeds[0]] for s in SYSTEMS}),
                "p(frame|predicate) for frequent, ambiguous predicates: how often RevUp predicts each frame for events "
                "of the predicate, and the truth.",
            ),
            (
                "small-convergence",
                lambda: _convergence({(s, n): found[s.name, n, seeds[0]] for s in SYSTEMS for n in ITERATIONS}),
                f"Proposed and revised distribution for the predicate “{first['predicates'][-1]}”, and the truth.",
            ),
        ]
        if whole
        else [],
        about={"fingerprint": first["fingerprint"], "seeds": seeds},
    )


def _heatmaps(learned: dict[System, Line]) -> Any:
    line = next(iter(learned.values()))
    panels = {system.label: np.array(each["predicted"][:-1]) for system, each in learned.items()}
    return heatmaps(line["predicates"][:-1], line["frames"], {**panels, "true": np.array(line["true"][:-1])})


def _convergence(found: dict[tuple[System, int], Line]) -> Any:
    frames = next(iter(found.values()))["frames"]
    panels = [
        [{kind: np.array(found[system, n][kind][-1]) for kind in (*KINDS[:2], "true")} for n in ITERATIONS]
        for system in SYSTEMS
    ]
    titles = [f"iteration {n}" for n in ITERATIONS]
    return bars_grid(frames, panels, [system.label for system in SYSTEMS], titles)
