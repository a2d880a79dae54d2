"""The ceiling when some true frames are revealed: the best scores that any model can reach on the other events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from revup.data.events import Document
from revup.data.knowledge import document_key, event_keys, uniforms
from revup.errors import RevupError
from revup.world.world import World

_REVEALED = 11  # the stream of random numbers that decides which frames are revealed


def reveal(documents: Sequence[Document], share: float, seed: int = 0) -> list[dict[int, str]]:
    """Draw which true frames are revealed.

    The draw of an event depends only on its document's id, its index and the seed: a larger share reveals a superset.

    Args:
        documents: Documents with their true frames.
        share: The probability that a frame is revealed.
        seed: Seed of the draw.

    Returns:
        For each document, event index → frame, as `World.posteriors(given=…)` takes it.
    """
    if not 0 <= share <= 1:
        raise RevupError(f"share: expected a number from 0 to 1, found {share}")
    revealed = []
    for document in documents:
        places = np.arange(len(document.events))
        keys = event_keys(np.full(len(places), document_key(document.id), dtype=np.uint64), places)
        told = uniforms(keys, seed, _REVEALED) < share
        frames = {index: event.frame for index, event in enumerate(document.events) if event.frame and told[index]}
        revealed.append(frames)
    return revealed


def ceiling(
    world: World, documents: Sequence[Document], shares: Sequence[float], seed: int = 0
) -> list[dict[str, float | None]]:
    """Return the best scores on the remaining events when some true frames of each document are revealed.

    Args:
        world: The world.
        documents: Documents of it, with their true frames.
        shares: Shares of the frames to reveal; `reveal` draws them.
        seed: Seed of the draw.

    Returns:
        For each share, `share`, `revealed` and `events` (how many frames are revealed, and how many remain to be
        predicted), `accuracy` and `nll` of the exact posterior on the remaining events given the revealed frames, and
        `accuracy_without`, that of the posterior without them on the same events.
    """
    rows: list[dict[str, float | None]] = []
    for share in shares:
        given = reveal(documents, share, seed)
        remaining = [
            replace(
                document, events=[replace(e, frame=None) if m in told else e for m, e in enumerate(document.events)]
            )
            for document, told in zip(documents, given, strict=True)
        ]
        best, without = world.optimum(documents, given), world.optimum(remaining)
        rows.append(
            {
                "share": share,
                "revealed": sum(map(len, given)),
                "events": sum(event.frame is not None for document in remaining for event in document.events),
                "accuracy": best["accuracy"],
                "nll": best["nll"],
                "accuracy_without": without["accuracy"],
            }
        )
    return rows
