"""A made-up newsroom whose true answers are known exactly.

The generative story of a document of M events (M is given, not drawn):

    s        ~ p(s)                                                a scenario, Zipf-like
    t_1      ~ π_s                                                 over the scenario's own F frames
    t_m      ~ A_s[t_{m-1}, ·]                                     m = 2..M
    pred_m   ~ p(pred|t_m)                                         Zipf-like; most predicates serve several frames
    subj_m   ~ null with probability n_subj(t_m), else a noun from a·P_subj,t_m + b·C_s + (1−a−b)·B
    obj_m    ~ null with probability n_obj(t_m),  else a noun from a·P_obj,t_m  + b·C_s + (1−a−b)·B
    mod_m    ~ null with probability n_mod(t_m),  else a preposition from p(mod|t_m)

P_role,t is the frame's own pool of nouns for a role, C_s the scenario's cast, B a background over all nouns; all
three are Zipf-like. Scenarios share frames, frames share predicates, pools share nouns, so no single word gives
the frame away. The vocabulary's long tail lies in the background alone: what tells frames apart is seen often.

Given s, a document is a hidden Markov chain over F frames. So with e_m(t) = p(x_m|t,s) the forward and backward
recursions

    α_1(t) = π_s(t) e_1(t)      α_m(t) = e_m(t) Σ_u α_{m-1}(u) A_s[u, t]      p(x|s) = Σ_t α_M(t)
    β_M(t) = 1                  β_m(t) = Σ_u A_s[t, u] e_{m+1}(u) β_{m+1}(u)

give, exactly,

    p(x) = Σ_s p(s) p(x|s)      p(t_m=k|x) = Σ_s p(s|x) [k in s] α_m(k) β_m(k) / p(x|s)

and with them the best accuracy and perplexity that any model can reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from revup.data.events import SLOTS, Document, Event
from revup.errors import RevupError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOKENS_PER_EVENT = 5  # pred subj obj mod <tup>; <tup> has probability 1

FRAME_SHARE, CAST_SHARE = 0.52, 0.16  # a and b of the story
OWN_VERB_SHARE = (0.05, 0.15)  # of a frame's events: the predicate that only this frame has
MISSING = {"subj": (0.10, 0.40), "obj": (0.15, 0.50), "mod": (0.15, 0.50)}  # the range of n_slot(t)
SCENARIO_SIZE, DESK_SIZE = 10, 5  # frames; those of a desk go together
SHARED_RANKS = 9  # predicates of a frame beside its own, at most
FRAME_POOL, CAST_POOL, MODIFIER_POOL = 8, 24, 5  # words each
POOL_EXPONENT = 0.8  # frequent words are in more pools
MODIFIER_BACKGROUND = 0.15
BLOCK = 4096  # documents drawn from one random stream
CHUNK = 256  # documents whose exact answers are computed at once


class World:
    """A newsroom of a given size, drawn from a seed; the same arguments give the same world anywhere.

    Its probability tables are public (S scenarios of F frames, K frames, P predicates):

        scenario_probs      [S]         p(s)
        scenario_frames     [S, F]      which frames (columns of `frames`) a scenario has
        initial             [S, F]      π_s
        transitions         [S, F, F]   A_s
        predicate_probs     [K, P]      p(pred|t), columns as in `predicates`
        modifier_probs      [K, 1 + …]  p(mod|t), column 0 for a missing one, then as in `modifiers`

    and `argument_probs(slot, frame, scenario)` gives p(subj|t,s) and p(obj|t,s).
    """

    def __init__(
        self,
        frames: int = 20,
        seed: int = 0,
        words: int | None = None,
        events: int = 5,
        scenarios: int | None = None,
    ) -> None:
        words = 50 * frames if words is None else words
        size = int(np.clip(frames // 2, 2, SCENARIO_SIZE))
        scenarios = max(4, math.ceil(2 * frames / size)) if scenarios is None else scenarios
        _check_sizes(frames, seed, words, events, scenarios, math.ceil(frames / size))
        self.seed, self.words, self.events = int(seed), int(words), int(events)
        streams = np.random.SeedSequence([seed, 0]).spawn(5)
        chains, lexical, arguments, modifiers, naming = (np.random.default_rng(stream) for stream in streams)

        told = [_frame_told(index) for index in range(frames)]  # in the order of the newsroom's desks
        order = sorted(range(frames), key=lambda index: told[index].name)
        columns = np.argsort(order)  # of the frames as they are told
        desks = [columns[begin : begin + DESK_SIZE] for begin in range(0, frames, DESK_SIZE)]
        told = [told[index] for index in order]
        self.frames: list[str] = [frame.name for frame in told]

        self.scenario_probs = chains.permutation(_zipf(scenarios, 0.6, shift=2.0))
        self.scenario_frames = _cut_scenarios(chains, desks, scenarios, size)
        self.initial = np.tile(_zipf(size, 1.0), (scenarios, 1))
        self.transitions = np.stack([_transitions(chains, size) for _ in range(scenarios)])

        ranks = int(np.clip((words // 3 - frames) * 3 // frames, 1, SHARED_RANKS))
        groups = _share_predicates(lexical, desks, ranks)
        self.predicate_probs = _predicate_probs(lexical, groups, frames, ranks)

        count = int(np.clip(words // 20, 2, len(PREPOSITIONS.split())))
        self.modifiers: list[str] = PREPOSITIONS.split()[:count]
        self.modifier_probs = _modifier_probs(modifiers, told, self.modifiers)

        self.predicates, self.nouns = _name_words(naming, told, len(groups), words - count)
        self._draw_arguments(arguments, told)
        self._index()

    def _draw_arguments(self, rng: np.random.Generator, told: list[_Told]) -> None:
        """Pools, casts and the background; nouns are counted from 1, and 0 is a missing argument."""
        frames, nouns = len(self.frames), len(self.nouns)
        # Pools draw on the common nouns only, which come first: there are few enough for dense tables.
        common = min(nouns, max(10 * frames, 600))
        number = {noun: index + 1 for index, noun in enumerate(self.nouns)}
        pool = min(FRAME_POOL, common)
        self._pools: dict[str, Ints] = {}
        self._missing: dict[str, Floats] = {}
        for slot in ("subj", "obj"):
            favourites = [[number[noun] for noun in getattr(frame, slot) if noun in number] for frame in told]
            self._pools[slot] = np.stack([_pool(rng, first, common, pool) for first in favourites])
            self._missing[slot] = rng.uniform(*MISSING[slot], size=frames)
        scenarios = len(self.scenario_probs)
        self._casts = np.stack([_pool(rng, [], common, min(CAST_POOL, common)) for _ in range(scenarios)])
        self._pool_weights, self._cast_weights = _zipf(pool, 0.8), _zipf(self._casts.shape[1], 0.8)
        self._background = np.concatenate([[0.0], _zipf(nouns, 1.0, shift=2.0)])

        # a·P and b·C as tables [1 + common, …], row 0 for the nouns in no pool
        self._from_pool: dict[str, Floats] = {}
        for slot, members in self._pools.items():
            table = np.zeros((1 + common, frames))
            table[members, np.arange(frames)[:, None]] = FRAME_SHARE * self._pool_weights
            self._from_pool[slot] = table
        self._from_cast = np.zeros((1 + common, scenarios))
        self._from_cast[self._casts, np.arange(scenarios)[:, None]] = CAST_SHARE * self._cast_weights

    def _index(self) -> None:
        self._numbers: dict[str, dict[str | None, int]] = {
            "pred": {word: index for index, word in enumerate(self.predicates)},
            "mod": {None: 0, **{word: index + 1 for index, word in enumerate(self.modifiers)}},
        }
        self._numbers["subj"] = {None: 0, **{word: index + 1 for index, word in enumerate(self.nouns)}}
        self._numbers["obj"] = self._numbers["subj"]
        self._column = {name: index for index, name in enumerate(self.frames)}
        # the (scenario, frame) pairs in the order of their frames, and where each frame's begin
        flat = self.scenario_frames.ravel()
        self._by_frame = np.argsort(flat, kind="stable")
        self._frame_starts = np.searchsorted(flat[self._by_frame], np.arange(len(self.frames)))

    def config(self) -> dict[str, int]:
        """The arguments that make this very world again: World(**world.config())."""
        return {
            "frames": len(self.frames),
            "seed": self.seed,
            "words": self.words,
            "events": self.events,
            "scenarios": len(self.scenario_probs),
        }

    def argument_probs(self, slot: str, frame: int, scenario: int) -> Floats:
        """p(subj|t,s) or p(obj|t,s): entry 0 for a missing argument, then as in `nouns`."""
        probs = (1 - FRAME_SHARE - CAST_SHARE) * self._background
        pooled = len(self._from_cast)
        probs[:pooled] += self._from_pool[slot][:, frame] + self._from_cast[:, scenario]
        missing = self._missing[slot][frame]
        probs *= 1 - missing
        probs[0] = missing
        return probs

    # ---- sampling ----------------------------------------------------------------------------------------

    def sample(self, n: int, seed: int | None = None, start: int = 0) -> list[Document]:
        """Documents `start` to `start + n` of the endless stream that a seed names (None: the world's own seed).

        Document i depends on the world, the seed and i alone, so a longer sample begins with the shorter one,
        and documents of different seeds are independent and have different ids.
        """
        seed = self.seed if seed is None else seed
        if n < 0 or seed < 0 or start < 0:
            raise RevupError(f"a sample's n, seed and start are 0 or more, found {n}, {seed} and {start}")
        documents: list[Document] = []
        for block in range(start // BLOCK, -(-(start + n) // BLOCK)):
            first = block * BLOCK
            chosen = slice(max(start - first, 0), min(start + n - first, BLOCK))
            rng = np.random.default_rng(np.random.SeedSequence([self.seed, 1, seed, block]))
            documents += self._documents(self._draw(rng), chosen, f"world-{seed}-", first)
        return documents

    def _draw(self, rng: np.random.Generator) -> dict[str, Ints]:
        """One block of documents as numbers, [BLOCK, M] for each slot, drawn as the story goes."""
        shape = (BLOCK, self.events)
        scenario = _choose(rng, self.scenario_probs, BLOCK)
        state = np.empty(shape, dtype=np.int64)  # a frame's place in its scenario
        for m in range(self.events):
            probs = self.initial[scenario] if m == 0 else self.transitions[scenario, state[:, m - 1]]
            state[:, m] = _choose_rows(rng, probs)
        frame = self.scenario_frames[scenario[:, None], state]
        drawn = {"frame": frame}
        drawn["pred"] = self._choose_given_frame(rng, self.predicate_probs, frame)
        for slot in ("subj", "obj"):
            source = rng.random(shape)
            pool = self._pools[slot][frame, _choose(rng, self._pool_weights, shape)]
            cast = self._casts[scenario[:, None], _choose(rng, self._cast_weights, shape)]
            background = _choose(rng, self._background, shape)
            noun = np.where(source < FRAME_SHARE, pool, np.where(source < FRAME_SHARE + CAST_SHARE, cast, background))
            drawn[slot] = np.where(rng.random(shape) < self._missing[slot][frame], 0, noun)
        drawn["mod"] = self._choose_given_frame(rng, self.modifier_probs, frame)
        return drawn

    def _choose_given_frame(self, rng: np.random.Generator, probs: Floats, frame: Ints) -> Ints:
        """A column of probs [K, …] for each frame, by inverting all rows' cumulative sums at once."""
        cumulative = np.cumsum(probs, axis=1)
        cumulative /= cumulative[:, -1:]
        # row t's steps are moved to the interval [t, t + 1), which makes one sorted list of all rows
        steps = (cumulative + np.arange(len(probs))[:, None]).ravel()
        wanted = np.minimum(frame + rng.random(frame.shape), np.nextafter(frame + 1.0, 0.0))  # stay in the row
        return np.asarray(np.searchsorted(steps, wanted, side="right") - frame * probs.shape[1])

    def _documents(self, drawn: dict[str, Ints], chosen: slice, prefix: str, first: int) -> list[Document]:
        nouns = [None, *self.nouns]
        names: dict[str, Sequence[str | None]] = {
            "pred": self.predicates,
            "subj": nouns,
            "obj": nouns,
            "mod": [None, *self.modifiers],
        }
        columns: list[list[Any]] = []
        for slot, words in (*names.items(), ("frame", self.frames)):
            columns.append([words[number] for number in drawn[slot][chosen].ravel().tolist()])
        events = [Event(*row) for row in zip(*columns, strict=True)]
        size, begin = self.events, first + chosen.start
        return [
            Document(f"{prefix}{begin + index}", events[index * size : (index + 1) * size])
            for index in range(chosen.stop - chosen.start)
        ]

    # ---- exact answers -----------------------------------------------------------------------------------

    def posterior(self, document: Document) -> Floats:
        """Exact p(t_m|x), [M, frames]; `frames` names the columns."""
        return np.asarray(self.posteriors([document])[0])

    def log_prob(self, document: Document) -> float:
        """Exact natural log p(x), the number of events being given; −inf for what this world cannot write."""
        return float(self.log_probs([document])[0])

    def posteriors(self, documents: Sequence[Document]) -> Floats:
        """Exact p(t_m|x) of many documents, [N, longest, frames]; rows past a document's end are 0."""
        longest = max((len(document.events) for document in documents), default=0)
        result = np.zeros((len(documents), longest, len(self.frames)))
        for chosen, emissions in self._chunks(documents):
            posterior = self._solve(emissions, [documents[index] for index in chosen])[1]
            result[chosen, : posterior.shape[1]] = posterior
        return result

    def log_probs(self, documents: Sequence[Document]) -> Floats:
        """Exact natural log p(x) of many documents, [N]."""
        result = np.zeros(len(documents))
        for chosen, emissions in self._chunks(documents):
            result[chosen] = _log_sum_exp(self._forward(emissions)[0])
        return result

    def optimum(self, documents: Sequence[Document]) -> dict[str, float | None]:
        """What no model can beat, but by luck, on these documents.

        `accuracy` is that of the exact posterior's argmax over events with a frame, `nll` the mean −log p(t_m|x)
        of their true frames (both None where there is no frame), `perplexity` is exp(−Σ log p(x) / Σ tokens). A
        frame that this world lacks counts as wrong, and makes `nll` infinite.
        """
        log_prob, right, nll, framed = 0.0, 0, 0.0, 0
        for chosen, emissions in self._chunks(documents):
            part = [documents[index] for index in chosen]
            log_probs, posterior = self._solve(emissions, part)
            log_prob += float(log_probs.sum())
            names = [event.frame for document in part for event in document.events]
            truth = np.array([-2 if name is None else self._column.get(name, -1) for name in names])
            probs = posterior.reshape(len(names), -1)
            framed += int((truth > -2).sum())
            right += int((probs.argmax(axis=1) == truth).sum())
            of_truth = np.where(truth >= 0, probs[np.arange(len(names)), truth], 0.0)[truth > -2]
            with np.errstate(divide="ignore"):
                nll -= float(np.log(of_truth).sum())
        tokens = TOKENS_PER_EVENT * sum(len(document.events) for document in documents)
        return {
            "accuracy": right / framed if framed else None,
            "nll": nll / framed if framed else None,
            "perplexity": math.exp(-log_prob / tokens) if tokens else None,
        }

    def frame_probs(self) -> Floats:
        """p(t) of an event anywhere in a document of M events, [K]."""
        now = self.scenario_probs[:, None] * self.initial
        total = np.zeros_like(now)
        for _ in range(self.events):
            total += now / self.events
            now = np.einsum("sf,sfg->sg", now, self.transitions)
        by_frame = total.ravel()[self._by_frame]
        return np.asarray(np.add.reduceat(by_frame, self._frame_starts))

    def frame_given_predicate(self) -> tuple[list[str], Floats]:
        """The predicates, and exact p(frame|pred) of an event anywhere in a document, [P, K]."""
        joint = (self.frame_probs()[:, None] * self.predicate_probs).T
        return list(self.predicates), joint / joint.sum(axis=1, keepdims=True)

    def best_table_accuracy(self) -> float:
        """The expected accuracy of the best predicate → frame table, Σ_pred max_t p(t, pred)."""
        return float((self.frame_probs()[:, None] * self.predicate_probs).max(axis=0).sum())

    def _chunks(self, documents: Sequence[Document]) -> Iterator[tuple[Ints, list[Floats]]]:
        """Documents of one length, some at a time: which they are, and p(x_m|t,s) [n, S, F] of every event."""
        lengths = np.array([len(document.events) for document in documents], dtype=np.int64)
        for length in np.unique(lengths[lengths > 0]):
            same = np.flatnonzero(lengths == length)
            for begin in range(0, len(same), CHUNK):
                chosen = same[begin : begin + CHUNK]
                columns = zip(*(documents[index].events for index in chosen), strict=True)
                yield chosen, [self._emission(events) for events in columns]

    def _forward(self, emissions: list[Floats]) -> tuple[Floats, list[Floats]]:
        """log p(s, x) [n, S], and α_m(t) for every event, [n, S, F].

        α is normalised within each scenario and log p(x|s) kept apart, so that nothing underflows however long
        a document is.
        """
        joint = np.tile(np.log(self.scenario_probs), (len(emissions[0]), 1))
        alphas: list[Floats] = []
        for emission in emissions:
            alpha = emission * (_step(alphas[-1], self.transitions) if alphas else self.initial)
            scale = alpha.sum(axis=-1)
            with np.errstate(divide="ignore"):
                joint += np.log(scale)
            alphas.append(alpha / np.where(scale > 0, scale, 1.0)[..., None])
        return joint, alphas

    def _solve(self, emissions: list[Floats], documents: list[Document]) -> tuple[Floats, Floats]:
        """log p(x) [n] and p(t_m|x) [n, M, K], by the recursions of the module's docstring."""
        joint, alphas = self._forward(emissions)
        log_probs = _log_sum_exp(joint)
        for index in np.flatnonzero(np.isneginf(log_probs)):
            raise self._impossible(documents[index])
        scenario_posterior = np.exp(joint - log_probs[:, None])
        posterior = np.zeros((len(joint), len(emissions), len(self.frames)))
        beta = np.ones_like(alphas[0])
        for m in reversed(range(len(emissions))):
            gamma = alphas[m] * beta
            total = gamma.sum(axis=-1)
            gamma *= (scenario_posterior / np.where(total > 0, total, 1.0))[..., None]
            by_frame = gamma.reshape(len(gamma), -1)[:, self._by_frame]
            posterior[:, m] = np.add.reduceat(by_frame, self._frame_starts, axis=1)
            beta = _step(beta * emissions[m], self.transitions.transpose(0, 2, 1))
            beta /= np.maximum(beta.max(axis=-1, keepdims=True), np.finfo(np.float64).tiny)
        return log_probs, posterior

    def _emission(self, events: Sequence[Event]) -> Floats:
        """p(pred, subj, obj, mod|t, s) of the m-th event of each document, [n, S, F]."""
        numbers = {slot: self._encode(slot, events) for slot in SLOTS}
        by_frame = (self.predicate_probs[:, numbers["pred"]] * self.modifier_probs[:, numbers["mod"]]).T
        result = by_frame[:, self.scenario_frames]
        for slot in ("subj", "obj"):
            result *= self._argument_emission(slot, numbers[slot])
        result[np.min(list(numbers.values()), axis=0) < 0] = 0.0
        return result

    def _encode(self, slot: str, events: Sequence[Event]) -> Ints:
        """A slot's words as numbers, [n]; −1 where this world does not have the word."""
        numbers = self._numbers[slot]
        return np.array([numbers.get(getattr(event, slot) or None, -1) for event in events], dtype=np.int64)

    def _argument_emission(self, slot: str, numbers: Ints) -> Floats:
        """p(subj|t,s) or p(obj|t,s) of the given nouns, [n, S, F]."""
        rows = np.where(numbers < len(self._from_cast), numbers, 0)
        mixture = self._from_pool[slot][rows][:, self.scenario_frames]
        rest = self._from_cast[rows] + (1 - FRAME_SHARE - CAST_SHARE) * self._background[numbers][:, None]
        mixture += rest[..., None]
        missing = self._missing[slot][self.scenario_frames]
        mixture *= 1 - missing
        mixture[numbers == 0] = missing
        return mixture

    def _impossible(self, document: Document) -> RevupError:
        for index, event in enumerate(document.events):
            for slot, numbers in self._numbers.items():
                word = getattr(event, slot) or None
                if word not in numbers:
                    what = f"{word!r} is not among its words for {slot}"
                    return RevupError(f"{document.id}: events[{index}].{slot}: this world did not write it: {what}")
        return RevupError(f"{document.id}: this world did not write it: no scenario has frames for all its predicates")


# ---- drawing a world ---------------------------------------------------------------------------------------


def _check_sizes(frames: int, seed: int, words: int, events: int, scenarios: int, fewest: int) -> None:
    if not 2 <= frames <= MOST_FRAMES:
        raise RevupError(f"a world has 2 to {MOST_FRAMES} frames, found {frames}")
    if seed < 0:
        raise RevupError(f"a world's seed is 0 or more, found {seed}")
    if not 4 * frames <= words <= MOST_WORDS:
        raise RevupError(f"a world of {frames} frames has {4 * frames} to {MOST_WORDS} words, found {words}")
    if events < 1:
        raise RevupError(f"a world's documents have 1 event or more, found {events}")
    if scenarios < fewest:
        raise RevupError(f"a world of {frames} frames has {fewest} scenarios or more, found {scenarios}")


def _zipf(size: int, exponent: float, shift: float = 0.0) -> Floats:
    """Zipf–Mandelbrot: p(rank) ∝ 1 / (rank + shift)^exponent."""
    weights = (np.arange(1, size + 1) + shift) ** -exponent
    return np.asarray(weights / weights.sum())


def _choose(rng: np.random.Generator, probs: Floats, shape: int | tuple[int, ...]) -> Ints:
    cumulative = np.cumsum(probs)
    found = np.searchsorted(cumulative, rng.random(shape) * cumulative[-1], side="right")
    return np.asarray(np.minimum(found, len(probs) - 1))


def _choose_rows(rng: np.random.Generator, probs: Floats) -> Ints:
    """One column for each row of probs [n, few]."""
    cumulative = np.cumsum(probs, axis=1)
    found = (rng.random((len(probs), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1)
    return np.asarray(np.minimum(found, probs.shape[1] - 1))


def _step(message: Floats, transitions: Floats) -> Floats:
    """Σ_u message[n, s, u] · transitions[s, u, t] → [n, S, F]."""
    return np.asarray(np.matmul(message.transpose(1, 0, 2), transitions).transpose(1, 0, 2))


def _log_sum_exp(terms: Floats) -> Floats:
    """log Σ_j exp(terms[i, j]), also where all of a row are −inf."""
    top = terms.max(axis=1)
    top = np.where(np.isneginf(top), 0.0, top)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(terms - top[:, None]).sum(axis=1)) + top)


def _cut_scenarios(rng: np.random.Generator, desks: list[Ints], scenarios: int, size: int) -> Ints:
    """Cut all frames into scenarios, again and again, until there are enough; each frame gets into about two.

    The first cut follows the order in which frames are told; the later ones bring other desks together and
    tell the frames in another order.
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


def _transitions(rng: np.random.Generator, size: int) -> Floats:
    """A_s: a frame is mostly followed by the next ones of its scenario, in a blurred order."""
    place = np.arange(size)
    distance = (place[None, :] - place[:, None] - 1) % size + rng.normal(0, 1.5, (size, size))
    ranks = distance.argsort(axis=1).argsort(axis=1)
    return _zipf(size, 1.0)[ranks]


def _share_predicates(rng: np.random.Generator, desks: list[Ints], ranks: int) -> list[list[int]]:
    """Which frames each predicate serves: first the frames' own, then, for every rank, groups of 2 or 3 frames.

    At most ranks a group lies within a desk, whose frames go together: arguments, modifier and order tell them
    apart. At every fifth it is random, and then the scenario does, too.
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


def _predicate_probs(rng: np.random.Generator, groups: list[list[int]], frames: int, ranks: int) -> Floats:
    """p(pred|t): the frame's own predicate has a share, Zipf's law over the shared ones the rest."""
    probs = np.zeros((frames, len(groups)))
    seen = np.zeros(frames, dtype=np.int64)
    zipf = _zipf(ranks, 0.8)
    for predicate, group in enumerate(groups[frames:], frames):
        probs[group, predicate] = zipf[seen[group]] * np.exp(rng.normal(0, 0.2, len(group)))
        seen[group] += 1
    own = rng.uniform(*OWN_VERB_SHARE, size=frames)
    probs *= ((1 - own) / probs.sum(axis=1))[:, None]
    probs[np.arange(frames), np.arange(frames)] = own
    return probs


def _modifier_probs(rng: np.random.Generator, told: list[_Told], modifiers: list[str]) -> Floats:
    count = len(modifiers)
    zipf, background = _zipf(min(MODIFIER_POOL, count), 1.0), _zipf(count, 1.0)
    probs = np.zeros((len(told), 1 + count))
    for frame, row in zip(told, probs, strict=True):
        first = [modifiers.index(word) + 1 for word in frame.mod if word in modifiers]
        row[_pool(rng, first, count, len(zipf))] = (1 - MODIFIER_BACKGROUND) * zipf
        row[1:] += MODIFIER_BACKGROUND * background
        row[0] = rng.uniform(*MISSING["mod"])
        row[1:] *= 1 - row[0]
    return probs


def _pool(rng: np.random.Generator, first: list[int], count: int, size: int) -> Ints:
    """`size` distinct numbers out of 1..count, beginning with the given ones, the low (frequent) ones likelier.

    Adding Gumbel noise to log-weights and sorting draws without replacement in proportion to the weights.
    """
    keys = -POOL_EXPONENT * np.log(np.arange(1, count + 1)) + rng.gumbel(size=count)
    most = min(size + len(first), count)
    drawn = np.argpartition(-keys, most - 1)[:most]  # sorting all of them would take most of a world's making
    drawn = drawn[keys[drawn].argsort()[::-1]] + 1
    others = drawn[~np.isin(drawn, first)]
    return np.concatenate([np.array(first, dtype=np.int64), others])[:size]


# ---- words -------------------------------------------------------------------------------------------------


class _Told(NamedTuple):
    """A frame as the newsroom tells it: its name, its own predicate, and the words it favours."""

    name: str
    verb: str
    subj: tuple[str, ...] = ()
    obj: tuple[str, ...] = ()
    mod: tuple[str, ...] = ()


def _frame_told(index: int) -> _Told:
    """The index-th frame: hand-written ones first, then those of special desks (Border_Arrest)."""
    lines = NEWSROOM.strip().splitlines()
    special, place = divmod(index, len(lines))
    name, verb, subj, obj, mod = (part.strip() for part in lines[place].split("|"))
    if special == 0:
        return _Told(name, verb, tuple(subj.split()), tuple(obj.split()), tuple(mod.split()))
    qualifier = QUALIFIERS.split()[special - 1]
    return _Told(f"{qualifier}_{name}", f"{qualifier.lower()}-{verb}")


def _name_words(
    rng: np.random.Generator, told: list[_Told], predicates: int, words: int
) -> tuple[list[str], list[str]]:
    """The predicates (each frame's own first) and the nouns (the common ones first): `words` distinct words."""
    own = [frame.verb for frame in told]
    verbs = [*own, *rng.permutation(GENERAL_VERBS.split()).tolist()][:predicates]
    favourites = dict.fromkeys(noun for frame in told for noun in (*frame.subj, *frame.obj))
    common = list(dict.fromkeys([*GENERAL_NOUNS.split(), *favourites]))
    nouns = [common[index] for index in rng.permutation(len(common))][: words - predicates]
    taken = {*verbs, *nouns, *PREPOSITIONS.split()}
    verbs += _invent(rng, predicates - len(verbs), "ed", taken)
    nouns += _invent(rng, words - predicates - len(nouns), "", taken)
    return verbs, nouns


def _invent(rng: np.random.Generator, count: int, ending: str, taken: set[str]) -> list[str]:
    """Pronounceable words, two or three syllables each, that nobody has used yet."""
    syllables = [onset + vowel for onset in ONSETS.split() for vowel in VOWELS.split()]
    base, invented = len(syllables), list[str]()
    space = base * base * len(CODAS)
    space *= 1 if 2 * count < space else base
    for number in rng.choice(space, min(space, count + len(taken)), replace=False).tolist():
        rest, coda = divmod(number, len(CODAS))
        rest, last = divmod(rest, base)
        third, middle = divmod(rest, base)
        word = (syllables[third - 1] if third else "") + syllables[middle] + syllables[last] + CODAS[coda] + ending
        if word not in taken:
            taken.add(word)
            invented.append(word)
    return invented[:count]


ONSETS = "b c d f g h j k l m n p r s t v w z br dr gl kr pl st tr"
VOWELS = "a e i o u ai ea"
CODAS = "lmnrsk"

PREPOSITIONS = """
    in to of on at for by with from after over against before under near during into about through between among
    across amid around behind beyond despite toward within without
"""

GENERAL_VERBS = """
    held took made won lost faced called opened closed raised cut hit struck moved pressed dropped ended led met backed
    fought pushed pulled joined left entered crossed reached passed named cleared delayed blocked broke carried caught
    challenged changed checked claimed covered declared defended denied drew drove expected extended failed filed fired
    followed forced found freed gained gave granted handled heard helped hosted issued kept launched lifted managed
    marked missed offered ordered paid planned played posted praised prepared pressured promised proposed protected
    pursued questioned quit received recorded refused rejected released removed replaced reported requested returned
    reviewed ruled sealed searched seized sent served settled shared shook showed shut signed slowed sought spread
    started stopped supported suspended targeted tested threatened tied told tracked traded turned urged used visited
    voted waited walked warned watched welcomed withdrew worked wrote accepted added admitted allowed answered applied
    approved asked assumed attended avoided began bound brought built charged chose cited cost counted created
"""

GENERAL_NOUNS = """
    man woman city government official group people country state leader member family company president minister
    spokesman mother father child student teacher crowd police army court union bank party team council mayor governor
    senator agency board committee director manager owner doctor lawyer expert neighbour visitor resident farmer driver
    soldier pilot sailor worker plan report deal law rule letter message decision meeting question answer case house
    street town village river bridge road border port station office school church hospital market factory farm shop
    money price tax budget debt loan share stock fund gift oil gas water food land ship train plane car truck weapon
    fire film book song paper photo record speech promise order offer claim charge demand threat risk attack result
"""

QUALIFIERS = """
    Border Tax Bank Farm Port School Rail Mining Prison Church Harbour Palace Forest Coastal Island Desert Mountain
    Royal Federal Village Airline Fishing Housing Insurance Media Museum Navy Oil Police Power River Senate Space
    Steel Student Tourist Treasury Trade Union Winter
"""

# name | its own predicate | subjects | objects | modifiers; five to a desk, in the order in which such stories go
NEWSROOM = """
    Arrest | arrested | police officers detectives patrol | suspect gunman fugitive thief | in near after
    Indictment | indicted | prosecutor jurors attorney state | banker smuggler clerk suspect | for on over
    Trial | testified | witness lawyer defendant victim | court evidence alibi jury | before against at
    Verdict | convicted | jury court judge panel | defendant man killer thief | of on after
    Sentencing | sentenced | judge court magistrate tribunal | killer man smuggler prison | to for under
    Campaign | campaigned | candidate senator activist party | voters towns donors rally | in for across
    Debate | debated | candidate rival moderator challenger | taxes rival question policy | with about on
    Election | elected | voters citizens party district | mayor president candidate council | by in with
    Recount | recounted | clerks officials board observers | ballots votes margin precinct | after under amid
    Inauguration | inaugurated | president mayor governor bishop | oath term crowd office | at before with
    Storm | battered | storm hurricane winds gale | coast roofs island trees | on across over
    Flood | flooded | river water dam rain | valley fields streets cellars | through into after
    Evacuation | evacuated | residents families guard villagers | homes coast hospital shelter | from before to
    Rescue | rescued | firefighters crew helicopter divers | survivors child climbers sailors | from in near
    Rebuilding | rebuilt | volunteers builders council owners | homes bridge school levee | after with within
    Invasion | invaded | troops army tanks rebels | province capital border neighbour | across into from
    Bombing | bombed | jets rebels militia drone | depot bridge convoy village | near over during
    Ceasefire | agreed | rebels government generals sides | truce ceasefire terms pause | for between after
    Negotiation | negotiated | envoy diplomats minister mediator | peace terms hostages treaty | with over at
    Withdrawal | retreated | troops battalion forces army | positions capital base front | from behind toward
    Merger | merged | airline bank rival conglomerate | subsidiary stake rival brand | with into for
    Earnings | earned | retailer bank company carmaker | profit revenue dividend quarter | in on during
    Layoff | dismissed | factory company carmaker mill | workers staff engineers managers | at amid without
    Bankruptcy | defaulted | retailer airline lender developer | creditors debts assets loans | on under to
    Lawsuit | sued | shareholders regulators plaintiff tenant | company damages patent rival | for against over
    Outbreak | infected | virus flu bacteria disease | patients travellers poultry village | in among across
    Diagnosis | diagnosed | doctor clinic specialist nurse | patient tumour infection child | with at after
    Vaccination | vaccinated | nurses clinic ministry volunteers | children pupils elders doses | against at for
    Surgery | operated | surgeon hospital team doctor | heart knee patient tumour | on during without
    Recovery | recovered | patient survivor athlete actor | strength speech health balance | from after within
    Match | defeated | team striker champion visitors | rivals hosts opponent goal | in at with
    Injury | injured | defender striker sprinter player | knee ankle shoulder season | during before in
    Transfer | transferred | club agent striker league | contract fee goalkeeper player | to from for
    Championship | triumphed | champion team sprinter nation | title trophy medal final | at over through
    Retirement | retired | captain champion coach veteran | career jersey team crown | after from at
    Strike | picketed | drivers miners teachers union | mine depot plant work | at over for
    Protest | protested | students marchers crowds farmers | reform cuts corruption square | against in through
    Bargaining | bargained | union employers stewards mediator | wages pensions contract hours | with about over
    Settlement | compromised | union company ministry lawyers | dispute claim backpay contract | on between with
    Wage_Rise | awarded | council employer board ministry | nurses raise bonus teachers | to by from
    Launch | orbited | rocket agency satellite crew | orbit capsule telescope probe | from into beyond
    Discovery | discovered | astronomers researchers divers team | planet fossil wreck gene | near under in
    Experiment | measured | physicists laboratory researchers chemist | particles reaction mice samples | at in with
    Publication | published | journal authors institute scientist | findings study data theory | in about on
    Award | honoured | academy jury foundation king | laureate chemist prize poet | for with at
    Collision | crashed | train truck bus ferry | barrier pier passengers car | into near on
    Inspection | inspected | inspectors engineers agency regulators | brakes engine bridge kitchen | for after within
    Recall | recalled | carmaker manufacturer agency supplier | airbags vehicles toys batteries | over from across
    Investigation | investigated | investigators panel auditors detectives | cause crash fraud ledger | into of after
    Resignation | resigned | minister director chairman chief | post office seat cabinet | from amid over
"""

MOST_FRAMES = len(NEWSROOM.strip().splitlines()) * (1 + len(QUALIFIERS.split()))
MOST_WORDS = 500_000
