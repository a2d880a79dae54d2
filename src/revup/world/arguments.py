"""Subjects and objects of a world: p(subj|t,s) and p(obj|t,s), mixtures of the frame's pool, the cast and a background.

Nouns are numbered from 1; 0 is a missing argument.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from revup.world.exact import Floats, Ints
from revup.world.newsroom import NewsFrame
from revup.world.probabilities import Shares, choose, draw_pool, zipf

MISSING = {"subj": (0.10, 0.40), "obj": (0.15, 0.50)}  # the range of n_slot(t)
FRAME_POOL, CAST_POOL = 8, 24  # words each


class Arguments:
    """The probability tables of subjects and objects.

    Args:
        rng: What the tables are drawn from.
        frames: The newsroom's frames, with the nouns that they prefer.
        nouns: All nouns, the common ones first.
        scenarios: How many scenarios there are.
        shares: The shares of the mixture.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        frames: Sequence[NewsFrame],
        nouns: Sequence[str],
        scenarios: int,
        shares: Shares,
    ) -> None:
        self._frame_share, self._cast_share = shares.frame, shares.cast
        # pools hold only common nouns, which come first: few enough for dense tables
        common = min(len(nouns), max(10 * len(frames), 600))
        number = {noun: index + 1 for index, noun in enumerate(nouns)}
        pool = min(FRAME_POOL, common)
        self._pools: dict[str, Ints] = {}
        self._missing: dict[str, Floats] = {}
        for slot in ("subj", "obj"):
            favourites = [[number[noun] for noun in getattr(frame, slot) if noun in number] for frame in frames]
            self._pools[slot] = np.stack([draw_pool(rng, first, common, pool) for first in favourites])
            self._missing[slot] = rng.uniform(*MISSING[slot], size=len(frames))
        self._casts = np.stack([draw_pool(rng, [], common, min(CAST_POOL, common)) for _ in range(scenarios)])
        self._pool_weights, self._cast_weights = zipf(pool, 0.8), zipf(self._casts.shape[1], 0.8)
        self._background = np.concatenate([[0.0], zipf(len(nouns), 1.0, shift=2.0)])

        # a·P and b·C as tables [1 + common, …], row 0 for the nouns in no pool
        self._from_pool: dict[str, Floats] = {}
        for slot, members in self._pools.items():
            table = np.zeros((1 + common, len(frames)))
            table[members, np.arange(len(frames))[:, None]] = shares.frame * self._pool_weights
            self._from_pool[slot] = table
        self._from_cast = np.zeros((1 + common, scenarios))
        self._from_cast[self._casts, np.arange(scenarios)[:, None]] = shares.cast * self._cast_weights

    def probs(self, slot: str, frame: int, scenario: int) -> Floats:
        """Return p(subj|t,s) or p(obj|t,s), [1 + nouns]."""
        probs = (1 - self._frame_share - self._cast_share) * self._background
        pooled = len(self._from_cast)
        probs[:pooled] += self._from_pool[slot][:, frame] + self._from_cast[:, scenario]
        missing = self._missing[slot][frame]
        probs *= 1 - missing
        probs[0] = missing
        return probs

    def emission(self, slot: str, numbers: Ints, scenario_frames: Ints) -> Floats:
        """Return p(subj|t,s) or p(obj|t,s) of given nouns [n] for the frames of all scenarios [S, F], [n, S, F]."""
        rows = np.where(numbers < len(self._from_cast), numbers, 0)
        mixture = self._from_pool[slot][rows][:, scenario_frames]
        rest = self._from_cast[rows] + (1 - self._frame_share - self._cast_share) * self._background[numbers][:, None]
        mixture += rest[..., None]
        missing = self._missing[slot][scenario_frames]
        mixture *= 1 - missing
        mixture[numbers == 0] = missing
        return mixture

    def draw(self, rng: np.random.Generator, slot: str, frame: Ints, scenario: Ints) -> Ints:
        """Draw a noun for each event of documents [n, M], whose frames [n, M] and scenarios [n] are known."""
        source = rng.random(frame.shape)
        pool = self._pools[slot][frame, choose(rng, self._pool_weights, frame.shape)]
        cast = self._casts[scenario[:, None], choose(rng, self._cast_weights, frame.shape)]
        background = choose(rng, self._background, frame.shape)
        a, b = self._frame_share, self._cast_share
        noun = np.where(source < a, pool, np.where(source < a + b, cast, background))
        return np.where(rng.random(frame.shape) < self._missing[slot][frame], 0, noun)
