"""Frames given at prediction, against the world's exact posterior given them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import revup
from revup.data.corpus import Corpus
from revup.data.events import Document
from revup.inference.trained import Trained
from revup.world.world import World

TRAINING = {"epochs": 8, "batch_size": 50, "learning_rate": 0.01}
NETWORK = {"embedding": 16, "hidden": 32, "latent": 16, "frame": 16}


def distance(model: Trained, world: World, documents: list[Document], revise: bool) -> float:
    """Mean cross-entropy from the exact posterior, every second frame given, to the prediction for the others."""
    given = [
        replace(d, events=[replace(e, frame=e.frame if m % 2 else None) for m, e in enumerate(d.events)])
        for d in documents
    ]
    column = [model.frames.index(frame) for frame in world.frames]
    losses: list[float] = []
    for document, found in zip(given, model.probabilities(given, revise=revise), strict=True):
        known = {m: event.frame for m, event in enumerate(document.events) if event.frame}
        exact = world.posterior(document, given=known)
        losses += (-(exact * np.log(np.maximum(found[:, column], 1e-12))).sum(1))[::2].tolist()
    return float(np.mean(losses))


def distances(name: str) -> tuple[float, float]:
    """`distance` without the given frames, and with them."""
    world = World(frames=6, seed=3, words=90, events=5)
    corpus = Corpus.build(world.sample(900), events=5, split=(0.8, 0.1, 0.1))
    model = revup.train(corpus, name, seed=1, network=NETWORK, training=TRAINING, device="cpu")
    fresh = world.sample(300, start=10_000)
    return distance(model, world, fresh, False), distance(model, world, fresh, True)


@pytest.mark.parametrize("name", ["revup", "tagger"])
def test_given_frames_bring_the_others_nearer_to_the_exact_posterior(name: str) -> None:
    without, revised = distances(name)
    assert revised < without - 0.005


if __name__ == "__main__":
    torch.set_num_threads(1)
    for model in ("counts", "tagger", "ssdvae", "revup"):  # the figures of docs/knowledge.md
        print(model, *(f"{figure:.3f}" for figure in distances(model)), flush=True)
