"""A synthetic newsroom whose exact posteriors and likelihoods are known.

The generative model of a document of M events (M is given, not drawn):

    s        ~ p(s)                                                a scenario, Zipf-like
    t_1      ~ π_s                                                 over the scenario's own F frames
    t_m      ~ A_s[t_{m-1}, ·]                                     m = 2..M
    pred_m   ~ p(pred|t_m)                                         Zipf-like; most predicates serve several frames
    subj_m   ~ null with probability n_subj(t_m), else a noun from a·P_subj,t_m + b·C_s + (1−a−b)·B
    obj_m    ~ null with probability n_obj(t_m),  else a noun from a·P_obj,t_m  + b·C_s + (1−a−b)·B
    mod_m    ~ null with probability n_mod(t_m),  else a preposition from p(mod|t_m)

P_role,t is the frame's pool of nouns for a role, C_s the scenario's cast, B a background over all nouns; all three are
Zipf-like. Scenarios share frames, frames share predicates and pools share nouns, so no single word identifies the
frame. The long tail of the vocabulary is in the background only: words that discriminate frames are frequent.

Given s, a document is a hidden Markov chain over F frames. With e_m(t) = p(x_m|t,s) the forward and backward recursions

    α_1(t) = π_s(t) e_1(t)      α_m(t) = e_m(t) Σ_u α_{m-1}(u) A_s[u, t]      p(x|s) = Σ_t α_M(t)
    β_M(t) = 1                  β_m(t) = Σ_u A_s[t, u] e_{m+1}(u) β_{m+1}(u)

give exactly

    p(x) = Σ_s p(s) p(x|s)      p(t_m=k|x) = Σ_s p(s|x) [k in s] α_m(k) β_m(k) / p(x|s)

and with them the best expected accuracy and perplexity of any model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from revup.data.events import SLOTS, Document, Event
from revup.errors import RevupError
from revup.world import probabilities
from revup.world.annotators import Annotator, annotate, annotators, confusion, sharing
from revup.world.arguments import Arguments
from revup.world.evidence import Evidence, Given
from revup.world.exact import Chains, Floats, Ints, log_sum_exp
from revup.world.newsroom import MOST_FRAMES, MOST_WORDS, PREPOSITIONS, name_words, news_frame
from revup.world.probabilities import choose, choose_given, choose_rows
from revup.world.scores import Score

TOKENS_PER_EVENT = 5  # pred subj obj mod <tup>; <tup> has probability 1

SCENARIO_SIZE, DESK_SIZE = 10, 5  # frames; those of a desk occur together
SHARED_RANKS = 9  # predicates of a frame beside its own, at most
BLOCK = 4096  # documents drawn from one random stream
CHUNK = 256  # documents whose exact answers are computed at once


Sources = Mapping[str, float | Annotator]  # name → error rate, or error rate and where errors go


class World:
    """A synthetic newsroom of a given size, drawn from a seed; the same arguments give the same world on any machine.

    Args:
        frames: How many frames it has (K).
        seed: Seed of its probability tables, and of samples that name no seed of their own.
        words: Size of the vocabulary; 50 for each frame where absent.
        events: Events of every document (M).
        scenarios: How many scenarios there are (S); enough for each frame to be in about two where absent.
        twins: Make frames depend on the document: each shares all its predicates but one with a twin of another
            scenario, and its other words say little. One frame that is given then tells much about the others.

    Attributes:
        frames, predicates, nouns, modifiers: The names, as lists.

    The probability tables are public (S scenarios of F frames, K frames, P predicates):

        scenario_probs      [S]         p(s)
        scenario_frames     [S, F]      the frames of a scenario, as indices into `frames`
        initial             [S, F]      π_s
        transitions         [S, F, F]   A_s
        predicate_probs     [K, P]      p(pred|t), columns as in `predicates`
        modifier_probs      [K, 1 + …]  p(mod|t), column 0 for a missing modifier, then as in `modifiers`

    and `argument_probs(slot, frame, scenario)` gives p(subj|t,s) and p(obj|t,s).
    """

    def __init__(
        self,
        frames: int = 20,
        seed: int = 0,
        words: int | None = None,
        events: int = 5,
        scenarios: int | None = None,
        twins: bool = False,
    ) -> None:
        words = 50 * frames if words is None else words
        size = DESK_SIZE if twins else int(np.clip(frames // 2, 2, SCENARIO_SIZE))
        scenarios = max(4, math.ceil(2 * frames / size)) if scenarios is None else scenarios
        _check_sizes(frames, seed, words, events, scenarios, math.ceil(frames / size))
        if twins and frames % (2 * DESK_SIZE):
            raise RevupError(f"frames: expected a multiple of {2 * DESK_SIZE} with twins, found {frames}")
        shares = probabilities.VAGUE if twins else probabilities.CLEAR
        self.seed, self.words, self.events, self.twins = int(seed), int(words), int(events), bool(twins)
        streams = np.random.SeedSequence([seed, 0]).spawn(5)
        chains, lexical, arguments, modifiers, naming = (np.random.default_rng(stream) for stream in streams)

        told = [news_frame(index) for index in range(frames)]  # in the order of the newsroom's desks
        order = sorted(range(frames), key=lambda index: told[index].name)
        columns = np.argsort(order)  # the index in `frames` of each
        desks = [columns[begin : begin + DESK_SIZE] for begin in range(0, frames, DESK_SIZE)]
        told = [told[index] for index in order]
        self.frames: list[str] = [frame.name for frame in told]

        self.scenario_probs = chains.permutation(probabilities.zipf(scenarios, 0.6, shift=2.0))
        self.scenario_frames = probabilities.cut_scenarios(chains, desks, scenarios, size)
        self.initial = np.tile(probabilities.zipf(size, 1.0), (scenarios, 1))
        self.transitions = np.stack([probabilities.draw_transitions(chains, size) for _ in range(scenarios)])

        ranks = int(np.clip((words // 3 - frames) * 3 // frames, 1, SHARED_RANKS))
        if twins:
            groups = probabilities.share_with_twins(desks, ranks)
        else:
            groups = probabilities.share_predicates(lexical, desks, ranks)
        self.predicate_probs = probabilities.draw_predicate_probs(lexical, groups, frames, ranks, shares.own_predicate)

        count = int(np.clip(words // 20, 2, len(PREPOSITIONS.split())))
        self.modifiers: list[str] = PREPOSITIONS.split()[:count]
        self.modifier_probs = probabilities.draw_modifier_probs(
            modifiers, told, self.modifiers, shares.modifier_background
        )

        self.predicates, self.nouns = name_words(naming, told, len(groups), words - count)
        self._arguments = Arguments(arguments, told, self.nouns, scenarios, shares)
        self._index()

    def _index(self) -> None:
        self._numbers: dict[str, dict[str | None, int]] = {
            "pred": {word: index for index, word in enumerate(self.predicates)},
            "mod": {None: 0, **{word: index + 1 for index, word in enumerate(self.modifiers)}},
        }
        self._numbers["subj"] = {None: 0, **{word: index + 1 for index, word in enumerate(self.nouns)}}
        self._numbers["obj"] = self._numbers["subj"]
        self._column = {name: index for index, name in enumerate(self.frames)}
        self._chains = Chains(
            self.scenario_probs, self.initial, self.transitions, self.scenario_frames, len(self.frames)
        )

    def config(self) -> dict[str, Any]:
        """Return the arguments that make this world again: `World(**world.config())`."""
        return {
            "frames": len(self.frames),
            "seed": self.seed,
            "words": self.words,
            "events": self.events,
            "scenarios": len(self.scenario_probs),
            **({"twins": True} if self.twins else {}),
        }

    def argument_probs(self, slot: str, frame: int, scenario: int) -> Floats:
        """Return p(subj|t,s) or p(obj|t,s), [1 + nouns].

        Args:
            slot: "subj" or "obj".
            frame: Index into `frames`.
            scenario: Index of the scenario.

        Returns:
            Probabilities, entry 0 for a missing argument, then as in `nouns`.
        """
        return self._arguments.probs(slot, frame, scenario)

    # ---- sampling ----------------------------------------------------------------------------------------

    def sample(self, n: int, seed: int | None = None, start: int = 0) -> list[Document]:
        """Draw documents with their true frames.

        Document i depends only on the world, the seed and i, so a longer sample begins with the shorter one.
        Documents of different seeds are independent and have different ids.

        Args:
            n: How many documents.
            seed: Seed of the stream of documents; the world's own where absent.
            start: Index of the first document in that stream.
        """
        seed = self.seed if seed is None else seed
        if n < 0 or seed < 0 or start < 0:
            raise RevupError(f"sample: n, seed and start: expected 0 or more, found {n}, {seed} and {start}")
        documents: list[Document] = []
        for block in range(start // BLOCK, -(-(start + n) // BLOCK)):
            first = block * BLOCK
            chosen = slice(max(start - first, 0), min(start + n - first, BLOCK))
            rng = np.random.default_rng(np.random.SeedSequence([self.seed, 1, seed, block]))
            documents += self._documents(self._draw(rng), chosen, f"world-{seed}-", first)
        return documents

    def _draw(self, rng: np.random.Generator) -> dict[str, Ints]:
        """Draw one block of documents as numbers, [BLOCK, M] for each slot."""
        shape = (BLOCK, self.events)
        scenario = choose(rng, self.scenario_probs, BLOCK)
        state = np.empty(shape, dtype=np.int64)  # the frame's index in its scenario
        for m in range(self.events):
            probs = self.initial[scenario] if m == 0 else self.transitions[scenario, state[:, m - 1]]
            state[:, m] = choose_rows(rng, probs)
        frame = self.scenario_frames[scenario[:, None], state]
        drawn = {"frame": frame}
        drawn["pred"] = choose_given(rng, self.predicate_probs, frame)
        for slot in ("subj", "obj"):
            drawn[slot] = self._arguments.draw(rng, slot, frame, scenario)
        drawn["mod"] = choose_given(rng, self.modifier_probs, frame)
        return drawn

    def _documents(self, drawn: dict[str, Ints], chosen: slice, prefix: str, first: int) -> list[Document]:
        nouns = [None, *self.nouns]
        names: dict[str, Sequence[str | None]] = {
            "pred": self.predicates,
            "subj": nouns,
            "obj": nouns,
            "mod": [None, *self.modifiers],
        }
        names["frame"] = self.frames
        columns = ([words[n] for n in drawn[slot][chosen].ravel().tolist()] for slot, words in names.items())
        events = [Event(*row) for row in zip(*columns, strict=True)]
        size, begin = self.events, first + chosen.start
        return [
            Document(f"{prefix}{begin + index}", events[index * size : (index + 1) * size])
            for index in range(chosen.stop - chosen.start)
        ]

    def annotate(
        self, documents: Sequence[Document], sources: Sources, seed: int = 0, truth: bool = False
    ) -> list[Document]:
        """Have simulated annotators label documents.

        A label depends only on the document's id, the event's index, the annotator's name and the seed.

        Args:
            documents: Documents with their true frames.
            sources: Name → error rate or `Annotator`.
            seed: Seed of the labels.
            truth: Keep the true frame of each event. It is then one more source, called `frame`, to everything that
                learns from the documents; by default it is left out.

        Returns:
            Copies of the documents whose events carry the labels under `sources`.

        Raises:
            RevupError: An event has no true frame of this world, or a source is not valid.
        """
        shared = sharing(self.predicate_probs)
        return annotate(documents, annotators(sources), self.frames, shared, seed, truth)

    def confusion(self, source: float | Annotator) -> Floats:
        """Return p(y|t) of an annotator, or of an error rate with uniform errors, [K, K] (rows t)."""
        return confusion(annotators({"source": source})["source"], sharing(self.predicate_probs))

    # ---- exact answers -----------------------------------------------------------------------------------

    def posterior(self, document: Document, given: Given | None = None, sources: Sources | None = None) -> Floats:
        """Return the exact posterior p(t_m|x) of a document, [M, frames]; `frames` names the columns.

        Args:
            document: The document; its `frame` keys are not used.
            given: True frames to condition on: event index → frame.
            sources: Noisy sources to condition on: name → error rate or `Annotator`. What the events' `sources` say
                under these names multiplies in as p(y|t); other statements are not used.

        Raises:
            RevupError: This world can't generate the document (with the given frames), an index or a frame does not
                exist, or a statement is not a label.
        """
        return np.asarray(self.posteriors([document], None if given is None else [given], sources)[0])

    def log_prob(self, document: Document) -> float:
        """Return the exact log p(x) (natural), given the number of events; −inf for what this world can't generate."""
        return float(self.log_probs([document])[0])

    def posteriors(
        self,
        documents: Sequence[Document],
        given: Sequence[Given | None] | None = None,
        sources: Sources | None = None,
    ) -> Floats:
        """Return exact posteriors of many documents, [N, longest, frames]; rows past a document's end are 0.

        Args:
            documents: The documents.
            given: For each document, the true frames to condition on, or None.
            sources: Noisy sources to condition on, as in `posterior`.
        """
        longest = max((len(document.events) for document in documents), default=0)
        result = np.zeros((len(documents), longest, len(self.frames)))
        for chosen, posterior in self._solved(documents, given, sources):
            result[chosen, : posterior.shape[1]] = posterior
        return result

    def log_probs(self, documents: Sequence[Document]) -> Floats:
        """Return exact log p(x) (natural) of many documents, [N]."""
        result = np.zeros(len(documents))
        for chosen, emissions in self._chunks(documents):
            result[chosen] = log_sum_exp(self._chains.forward(emissions)[0])
        return result

    def optimum(
        self,
        documents: Sequence[Document],
        given: Sequence[Given | None] | None = None,
        sources: Sources | None = None,
    ) -> dict[str, float | None]:
        """Return the scores of the exact posterior, which no model exceeds in expectation.

        Args:
            documents: Documents of this world with their true frames.
            given: For each document, true frames that are given; their events are not scored.
            sources: Noisy sources to condition on, as in `posterior`.

        Returns:
            `accuracy` of the posterior's argmax over events with a frame, `nll`, the mean −log p(t_m|x) of their
            true frames (both None where no event has a frame), and `perplexity`, exp(−Σ log p(x) / Σ tokens), of the
            words alone. A frame that this world lacks counts as wrong and makes `nll` infinite.
        """
        score = Score(self._column)
        for chosen, posterior in self._solved(documents, given, sources):
            told = [None if given is None else given[index] for index in chosen]
            score.add(posterior, [documents[index] for index in chosen], told)
        tokens = TOKENS_PER_EVENT * sum(len(document.events) for document in documents)
        perplexity = math.exp(-float(self.log_probs(documents).sum()) / tokens) if tokens else None
        return {**score.means(), "perplexity": perplexity}

    def frame_probs(self) -> Floats:
        """Return p(t) of an event at a uniformly drawn position, [K]."""
        return self._chains.frame_probs(self.events)

    def frame_given_predicate(self) -> tuple[list[str], Floats]:
        """Return the predicates and the exact p(frame|pred) of an event at a uniformly drawn position, [P, K]."""
        joint = (self.frame_probs()[:, None] * self.predicate_probs).T
        return list(self.predicates), joint / joint.sum(axis=1, keepdims=True)

    def best_table_accuracy(self) -> float:
        """Return the expected accuracy of the best table predicate → frame, Σ_pred max_t p(t, pred)."""
        return float((self.frame_probs()[:, None] * self.predicate_probs).max(axis=0).sum())

    def _chunks(self, documents: Sequence[Document]) -> Iterator[tuple[Ints, list[Floats]]]:
        """Yield some documents of one length at a time: their indices, and p(x_m|t,s) [n, S, F] of every event."""
        lengths = np.array([len(document.events) for document in documents], dtype=np.int64)
        for length in np.unique(lengths[lengths > 0]):
            same = np.flatnonzero(lengths == length)
            for begin in range(0, len(same), CHUNK):
                chosen = same[begin : begin + CHUNK]
                columns = zip(*(documents[index].events for index in chosen), strict=True)
                yield chosen, [self._emission(events) for events in columns]

    def _solved(
        self, documents: Sequence[Document], given: Sequence[Given | None] | None, sources: Sources | None
    ) -> Iterator[tuple[Ints, Floats]]:
        """Yield some documents of one length at a time: their indices, and p(t_m|x, evidence) [n, M, K].

        A document that this world can't generate is an error.
        """
        shared = sharing(self.predicate_probs) if sources else np.zeros((0, 0))
        confusions = {name: confusion(each, shared) for name, each in annotators(sources or {}).items()}
        evidence = Evidence(self._column, documents, given, confusions)
        for chosen, emissions in self._chunks(documents):
            if not evidence.empty:
                factors = evidence.factors(chosen.tolist(), len(emissions))
                emissions = [each * factors[:, m][:, self.scenario_frames] for m, each in enumerate(emissions)]
            log_probs, posterior = self._chains.posterior(emissions)
            for index in chosen[np.isneginf(log_probs)]:
                raise self._impossible(documents[index], with_evidence=not evidence.empty)
            yield chosen, posterior

    def _emission(self, events: Sequence[Event]) -> Floats:
        """p(pred, subj, obj, mod|t, s) of the m-th event of each document, [n, S, F]."""
        numbers = {slot: self._encode(slot, events) for slot in SLOTS}
        by_frame = (self.predicate_probs[:, numbers["pred"]] * self.modifier_probs[:, numbers["mod"]]).T
        result = by_frame[:, self.scenario_frames]
        for slot in ("subj", "obj"):
            result *= self._arguments.emission(slot, numbers[slot], self.scenario_frames)
        result[np.min(list(numbers.values()), axis=0) < 0] = 0.0
        return result

    def _encode(self, slot: str, events: Sequence[Event]) -> Ints:
        """A slot's words as numbers, [n]; −1 for a word that this world lacks."""
        numbers = self._numbers[slot]
        return np.array([numbers.get(getattr(event, slot) or None, -1) for event in events], dtype=np.int64)

    def _impossible(self, document: Document, with_evidence: bool) -> RevupError:
        for index, event in enumerate(document.events):
            for slot, numbers in self._numbers.items():
                word = getattr(event, slot) or None
                if word not in numbers:
                    what = f"{word!r} is not among its words for {slot}"
                    return RevupError(f"{document.id}: events[{index}].{slot}: this world can't generate it: {what}")
        what = "no scenario has frames for all its predicates"
        if with_evidence and np.isfinite(self.log_prob(document)):
            what = "no scenario has its predicates together with the frames that are given or labelled"
        return RevupError(f"{document.id}: this world can't generate it: {what}")


def _check_sizes(frames: int, seed: int, words: int, events: int, scenarios: int, fewest: int) -> None:
    if not 2 <= frames <= MOST_FRAMES:
        raise RevupError(f"frames: expected 2 to {MOST_FRAMES}, found {frames}")
    if seed < 0:
        raise RevupError(f"seed: expected 0 or more, found {seed}")
    if not 4 * frames <= words <= MOST_WORDS:
        raise RevupError(f"words: expected {4 * frames} to {MOST_WORDS} for {frames} frames, found {words}")
    if events < 1:
        raise RevupError(f"events: expected 1 or more, found {events}")
    if scenarios < fewest:
        raise RevupError(f"scenarios: expected {fewest} or more for {frames} frames, found {scenarios}")
