"""Exact answers about a small world, by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np

from revup.data.events import Document, Event
from revup.world.world import World


def event_prob(world: World, event: Event, frame: int, scenario: int) -> float:
    """p(pred, subj, obj, mod|t, s) from the public tables."""
    arguments = 1.0
    for slot in ("subj", "obj"):
        word = getattr(event, slot)
        number = 0 if word is None else 1 + world.nouns.index(word)
        arguments *= world.argument_probs(slot, frame, scenario)[number]
    modifier = 0 if event.mod is None else 1 + world.modifiers.index(event.mod)
    predicate = world.predicate_probs[frame, world.predicates.index(event.pred)]
    return float(arguments * world.modifier_probs[frame, modifier] * predicate)


def enumerate_chains(
    world: World, document: Document, evidence: Callable[[int, int], float] = lambda place, frame: 1.0
) -> tuple[float, np.ndarray]:
    """log p(x, evidence) and p(t_m|x, evidence), adding up every scenario and every chain of frames, one by one.

    `evidence` gives p(evidence of event m|frame).
    """
    total, posterior = 0.0, np.zeros((len(document.events), len(world.frames)))
    scenarios, size = world.scenario_frames.shape
    for scenario in range(scenarios):
        for chain in itertools.product(range(size), repeat=len(document.events)):
            prob = world.scenario_probs[scenario] * world.initial[scenario, chain[0]]
            for before, after in itertools.pairwise(chain):
                prob *= world.transitions[scenario, before, after]
            frames = world.scenario_frames[scenario, list(chain)]
            for place, (event, frame) in enumerate(zip(document.events, frames, strict=True)):
                prob *= event_prob(world, event, frame, scenario) * evidence(place, int(frame))
            total += prob
            posterior[np.arange(len(frames)), frames] += prob
    return math.log(total), posterior / total
