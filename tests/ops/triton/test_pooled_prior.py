"""The fused log prior of pooled counts equals the equation, and so does the gradient of its weights."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from revup import ops
from revup.benchmark import RandomCorpus, Size
from revup.data.knowledge import Observation
from revup.models.counts import PooledPrior

SIZE = Size(words=40, frames=9, hidden=8, batch=4)
BEYOND = 5  # words known by their vectors alone


@pytest.mark.parametrize(
    ("kind", "neighbours", "leave_out"), list(itertools.product(("pooled", "predicate"), (0, 3), (True, False)))
)
def test_pooled_log_prior(agree: Callable[..., None], kind: str, neighbours: int, leave_out: bool) -> None:
    prior = PooledPrior(SIZE.words, SIZE.frames, kind, neighbours)
    prior.fit(RandomCorpus(SIZE, 30), Observation(0.6, 0.2, 1), None)
    if neighbours:
        prior.near = torch.randint(len(prior.lemmas), (SIZE.words + BEYOND, neighbours), dtype=torch.int32)
        prior.near_weights = torch.rand(SIZE.words + BEYOND, neighbours)
    # words as they are, known by another form alone, and beyond the vocabulary
    tokens = torch.randint(2 * SIZE.words + BEYOND if neighbours else 3 * SIZE.words, (4, 5 * SIZE.events))
    own = torch.zeros(4, SIZE.events, SIZE.frames)
    own = own.scatter_(-1, torch.randint(SIZE.frames, (4, SIZE.events, 1)), 1.0) if leave_out else None
    if prior.slot_weights is not None:
        agree(lambda: [prior(tokens, own)], [prior.slot_weights], atol=1e-4)
    with torch.no_grad():
        with ops.using("plain"):
            plain = prior(tokens, own)
        with ops.using("fused"):
            torch.testing.assert_close(prior(tokens, own), plain, rtol=1e-4, atol=1e-5)
