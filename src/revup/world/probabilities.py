"""Drawing the probability tables of a world (scenarios, transitions, predicates, modifiers, nouns), and from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from revup.world.exact import Floats, Ints
from revup.world.newsroom import NewsFrame

MODIFIER_MISSING = (0.15, 0.50)  # the range of n_mod(t)
MODIFIER_POOL = 5  # words
POOL_EXPONENT = 0.8  # frequent words are in more pools


@dataclass(frozen=True)
class Shares:
    """How far an event's words tell its frame.

    own_predicate: the range of the share of a frame's events that have the predicate of only this frame;
    modifier_background: share of modifiers that are independent of the frame; frame, cast: a and b of the model.
    """

    own_predicate: tuple[float, float]
    modifier_background: float
    frame: float
    cast: float


CLEAR = Shares(own_predicate=(0.05, 0.15), modifier_background=0.15, frame=0.52, cast=0.16)
VAGUE = Shares(own_predicate=(0.005, 0.015), modifier_background=0.915, frame=0.052, cast=0.016)  # a tenth


def zipf(size: int, exponent: float, shift: float = 0.0) -> Floats:
    """Zipf–Mandelbrot: p(rank) ∝ 1 / (rank + shift)^exponent."""
    weights = (np.arange(1, size + 1) + shift) ** -exponent
    return np.asarray(weights / weights.sum())


def cut_scenarios(rng: np.random.Generator, desks: list[Ints], scenarios: int, size: int) -> Ints:
    """Draw which frames each scenario has, [scenarios, size]; a frame is in about two of them.

    All frames are cut into scenarios repeatedly until there are enough: first in the order of the desks, then with
    desks and the frames within a scenario permuted.
    """
    frames = np.concatenate(desks)
    cut: list[Ints] = []
    order = frames
    while len(cut) < scenarios:
        for begin in range(0, len(order), size):
            members = order[begin : begin + size]
            if len(members) < size:
                others = rng.permutation(np.setdiff1d(frames, members))
                members = np.concatenate([members, others[: size - len(members)]])
            cut.append(members if order is frames else rng.permutation(members))
        order = np.concatenate([desks[index] for index in rng.permutation(len(desks))])
    return np.stack(cut[:scenarios])


def draw_transitions(rng: np.random.Generator, size: int) -> Floats:
    """Draw A_s [size, size]: a frame is mostly followed by the next ones of its scenario, with noise on the order."""
    place = np.arange(size)
    distance = (place[None, :] - place[:, None] - 1) % size + rng.normal(0, 1.5, (size, size))
    ranks = distance.argsort(axis=1).argsort(axis=1)
    return zipf(size, 1.0)[ranks]


def share_predicates(rng: np.random.Generator, desks: list[Ints], ranks: int) -> list[list[int]]:
    """Draw the frames that each predicate can evoke: each frame's own predicate, then groups of 2 or 3 frames a rank.

    At most ranks a group lies within one desk, so that only arguments, modifier and order disambiguate; at every fifth
    rank it is random, so that the scenario does as well.
    """
    frames = sum(map(len, desks))
    groups = [[frame] for frame in range(frames)]
    for rank in range(ranks):
        order = np.concatenate([rng.permutation(desks[index]) for index in rng.permutation(len(desks))])
        order = rng.permutation(frames) if rank % 5 == 4 else order
        begin = 0
        while begin < frames:
            size = int(rng.integers(2, 4))
            size = frames - begin if frames - begin - size < 2 else size
            groups.append(order[begin : begin + size].tolist())
            begin += size
    return groups


def share_with_twins(desks: list[Ints], ranks: int) -> list[list[int]]:
    """Return the frames that each predicate can evoke: each frame's own predicate, then pairs of twins.

    Twins are the frames at the same place of two neighbouring desks, so that no scenario has both.
    """
    groups = [[frame] for frame in range(sum(map(len, desks)))]
    for first, second in zip(desks[::2], desks[1::2], strict=True):
        groups += [[one, other] for one, other in zip(first.tolist(), second.tolist(), strict=True)] * ranks
    return groups


def draw_predicate_probs(
    rng: np.random.Generator, groups: list[list[int]], frames: int, ranks: int, own_share: tuple[float, float]
) -> Floats:
    """Draw p(pred|t) [frames, predicates]: a share for the frame's own predicate, Zipf's law over the shared ones."""
    probs = np.zeros((frames, len(groups)))
    seen = np.zeros(frames, dtype=np.int64)
    weights = zipf(ranks, 0.8)
    for predicate, group in enumerate(groups[frames:], frames):
        probs[group, predicate] = weights[seen[group]] * np.exp(rng.normal(0, 0.2, len(group)))
        seen[group] += 1
    own = rng.uniform(*own_share, size=frames)
    probs *= ((1 - own) / probs.sum(axis=1))[:, None]
    probs[np.arange(frames), np.arange(frames)] = own
    return probs


def draw_modifier_probs(
    rng: np.random.Generator, frames: list[NewsFrame], modifiers: list[str], background: float
) -> Floats:
    """Draw p(mod|t) [frames, 1 + modifiers], a share `background` of it alike; column 0 is a missing modifier."""
    count = len(modifiers)
    own, common = zipf(min(MODIFIER_POOL, count), 1.0), zipf(count, 1.0)
    probs = np.zeros((len(frames), 1 + count))
    for frame, row in zip(frames, probs, strict=True):
        first = [modifiers.index(word) + 1 for word in frame.mod if word in modifiers]
        row[draw_pool(rng, first, count, len(own))] = (1 - background) * own
        row[1:] += background * common
        row[0] = rng.uniform(*MODIFIER_MISSING)
        row[1:] *= 1 - row[0]
    return probs


def draw_pool(rng: np.random.Generator, first: list[int], count: int, size: int) -> Ints:
    """Draw `size` distinct numbers of 1..count without replacement, frequent (low) ones likelier, after `first`.

    Sorting log-weights plus Gumbel noise draws without replacement in proportion to the weights.
    """
    keys = -POOL_EXPONENT * np.log(np.arange(1, count + 1)) + rng.gumbel(size=count)
    most = min(size + len(first), count)
    drawn = np.argpartition(-keys, most - 1)[:most]  # sorting all would dominate the construction
    drawn = drawn[keys[drawn].argsort()[::-1]] + 1
    others = drawn[~np.isin(drawn, first)]
    return np.concatenate([np.array(first, dtype=np.int64), others])[:size]


# ---- draws -----------------------------------------------------------------------------------------------


def choose(rng: np.random.Generator, probs: Floats, shape: int | tuple[int, ...]) -> Ints:
    """Draw indices of one distribution, of the given shape."""
    cumulative = np.cumsum(probs)
    found = np.searchsorted(cumulative, rng.random(shape) * cumulative[-1], side="right")
    return np.asarray(np.minimum(found, len(probs) - 1))


def choose_rows(rng: np.random.Generator, probs: Floats) -> Ints:
    """Draw one column for each row of probs [n, few]."""
    cumulative = np.cumsum(probs, axis=1)
    found = (rng.random((len(probs), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1)
    return np.asarray(np.minimum(found, probs.shape[1] - 1))


def choose_given(rng: np.random.Generator, probs: Floats, frame: Ints) -> Ints:
    """Draw a column of probs [K, …] for each frame."""
    return invert(probs, frame, rng.random(frame.shape))


def invert(probs: Floats, rows: Ints, uniform: Floats) -> Ints:
    """Return the column at which the cumulative sum of a row of probs [K, …] exceeds a number in [0, 1), for each."""
    cumulative = np.cumsum(probs, axis=1)
    cumulative /= cumulative[:, -1:]
    # shifting row t to the interval [t, t + 1) makes one sorted list of all rows
    steps = (cumulative + np.arange(len(probs))[:, None]).ravel()
    wanted = np.minimum(rows + uniform, np.nextafter(rows + 1.0, 0.0))  # rounding must not leave the row
    return np.asarray(np.searchsorted(steps, wanted, side="right") - rows * probs.shape[1])
