"""What a model says of every event: computed in batches of windows, ranked by frame, averaged by document."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revup.data.batches import Batch
from revup.data.corpus import Split
from revup.data.knowledge import Observation
from revup.errors import RevupError
from revup.models.base import Model
from revup.ops.precision import precision

# On a CPU, products of few rows and the last numbers of a vector are rounded differently. In batches of a multiple of
# 16 windows, the answer for a document does not depend on the documents beside it, to the bit (exception: layers with
# fewer than 12 outputs whose inputs are not a multiple of 4).
EVEN = 16
WINDOWS_AT_ONCE = 32 * EVEN
PLACES_AT_ONCE = 16_000  # events of windows, padding included: the memory does not grow with M


@torch.no_grad()
def event_values(
    module: Model, split: Split, observation: Observation, ask: Callable[[Batch], Tensor], arithmetic: str
) -> NDArray[np.float32]:
    """What `ask` says of every event of a batch [B, M, d], as one array [events, d] in the order of the split.

    Args:
        module: The model.
        split: Windows of M events, at least one.
        observation: Which labels are observed.
        ask: What is asked.
        arithmetic: float32 or bf16.
    """
    if module.training:
        module.eval()
    windows = min(WINDOWS_AT_ONCE, max(PLACES_AT_ONCE // module.sizes.events // EVEN, 1) * EVEN)
    with precision(arithmetic, module.device):
        parts = [
            ask(batch)[batch.mask].float().cpu().numpy()
            for batch in module.batches(split, observation, windows).ordered(EVEN)
        ]
    return np.concatenate(parts)[: split.events]


def ranked(probabilities: NDArray[np.float32], frames: Sequence[str], top: int) -> list[list[tuple[str, float]]]:
    """The most probable frames of every event, the most probable first; equally probable ones in the order of `frames`.

    Args:
        probabilities: The distribution over frames of every event, [events, K].
        frames: The names of the frames.
        top: How many frames to give for each event.
    """
    rows = torch.from_numpy(probabilities)
    found = rows.topk(min(top, rows.shape[1]), dim=1)
    shares, chosen = found.values.numpy(), found.indices.numpy()
    # topk breaks ties in no defined order: sort the rows that have one
    tied = (rows >= found.values[:, -1:]).sum(1).numpy() > shares.shape[1]
    tied |= (shares[:, 1:] == shares[:, :-1]).any(1)
    values = rows.numpy()
    for number in np.flatnonzero(tied).tolist():
        order = _first_of_equal(values[number], shares[number, -1], shares.shape[1])
        shares[number], chosen[number] = values[number][order], order
    names, shares = chosen.tolist(), shares.tolist()
    return [[(frames[k], p) for k, p in zip(each, row, strict=True)] for each, row in zip(names, shares, strict=True)]


def _first_of_equal(row: NDArray[np.float32], least: np.float32, top: int) -> NDArray[np.int64]:
    """The places of the `top` largest numbers, in descending order; equal ones in theirs.

    Args:
        row: The numbers.
        least: The smallest of the largest ones.
        top: How many.
    """
    above = np.flatnonzero(row > least)
    equal = np.flatnonzero(row == least)[: top - len(above)]
    return np.concatenate([above[np.argsort(-row[above], kind="stable")], equal])


def together(vectors: Sequence[NDArray[np.float32]]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Put the vectors of documents together: [N, d] of the documents, the means of their events, and [E, d] of these.

    Args:
        vectors: The vectors of each document's events, [events, d].

    Raises:
        RevupError: There is no document, or none with an event.
    """
    size = max((rows.shape[1] for rows in vectors), default=0)
    if not size:
        raise RevupError("no document with events to embed")
    whole = [rows.mean(0) if len(rows) else np.zeros(size, np.float32) for rows in vectors]
    return np.stack(whole), np.concatenate([rows for rows in vectors if len(rows)])
