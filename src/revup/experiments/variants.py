"""Variants of a dataset, made in memory: other dictionaries, simulated sources, labels aggregated beforehand.

    dictionary=none                        without its dictionary; the frame list stays, so that scores can be compared
    dictionary=candidates                  its dictionary without weights
    sources=people+parser+dictionary       some of: people, who label a tenth of the events and are right; a parser that
                                           labels all and is wrong for 30%; the dictionary
    sources=people+parser+dictionary|vote  the same labels aggregated into one (`revup.experiments.aggregate`)
    annotators=0.1,0.3|vote                the labels that `revup train --sources 0.1,0.3` has, aggregated into one

Test splits are the same in all variants.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.corpus import Corpus, Split
from revup.data.encode import NO_ENTRY
from revup.data.knowledge import FrameSet, Observation, annotator_keys, observe, uniforms
from revup.data.lexicon import Lexicon
from revup.data.told import DISTRIBUTION, LABEL
from revup.errors import RevupError
from revup.experiments.aggregate import METHODS, aggregated
from revup.experiments.runs import DICTIONARY, label_sources

PEOPLE, PARSER = "people", "parser"
COVERAGE, WRONG = 0.1, 0.3  # the share of events that people label; the parser's error rate
_ORDER = 1100  # streams of random numbers, one for each annotator: which comes first where votes are equal

Array = NDArray[Any]
Arrays = dict[str, Array]


class Variant(Corpus):
    """A corpus with some of its arrays, its dictionary or its sources replaced."""

    def __init__(
        self, whole: Corpus, lexicon: Lexicon | None, parts: dict[str, Arrays], sources: list[str], name: str
    ) -> None:
        meta = {**whole.meta, "sources": sources, "fingerprint": f"{whole.fingerprint}/{name}"}
        super().__init__(whole.path, meta, whole.vocabulary, whole.frames)
        self._whole, self._lexicon, self._parts = whole, lexicon, parts

    @property
    def lexicon(self) -> Lexicon | None:
        """The dictionary of this variant."""
        return self._lexicon

    def split(self, name: str) -> Split:
        """Return the split "train", "valid" or "test"."""
        found = self._whole.split(name)
        arrays = {**found.arrays, **self._parts.get(name, {})}
        if self._lexicon is None:
            arrays["entry"] = np.full_like(arrays["entry"], NO_ENTRY)
        return Split(name, arrays, lambda: found.ids, len(self.frames), self.sources, self.frame_set, self.trusted)


def variant(corpus: Corpus, name: str, seed: int, labels: Path) -> Corpus:
    """Make a variant of a corpus.

    Args:
        corpus: The whole dataset.
        name: Which variant.
        seed: Determines what simulated sources say.
        labels: Directory in which aggregated labels are kept.

    Raises:
        RevupError: There is no such variant, the dataset has no dictionary, or a library is missing.
    """
    kind, _, which = name.partition("=")
    if kind == "dictionary" and which == "none":
        return Variant(corpus, None, {}, corpus.sources, name)
    if kind == "dictionary" and which == "candidates":
        return Variant(corpus, _unweighted(_dictionary(corpus)), {}, corpus.sources, name)
    if kind == "sources":
        return _several(corpus, name, which, seed, labels)
    if kind == "annotators":
        return _annotated(corpus, name, which, seed, labels)
    raise RevupError(f"there is no variant '{name}' of a dataset")


def _dictionary(corpus: Corpus) -> Lexicon:
    if corpus.lexicon is None:
        raise RevupError(f"{corpus.path}: was prepared without a dictionary (revup prepare --lexicon FILE)")
    return corpus.lexicon


def _unweighted(lexicon: Lexicon) -> Lexicon:
    return Lexicon(
        {predicate: {sense: float(weight > 0) for sense, weight in senses.items()}
         for predicate, senses in lexicon.entries.items()}
    )  # fmt: skip


def _several(corpus: Corpus, name: str, which: str, seed: int, labels: Path) -> Corpus:
    """Labels of simulated sources in place of the events' own."""
    listed, _, method = which.partition("|")
    chosen = listed.split("+")
    if unknown := set(chosen) - {PEOPLE, PARSER, DICTIONARY} or ({method} - set(METHODS) if method else set()):
        raise RevupError(f"there is no variant '{name}' of a dataset: unknown '{min(unknown)}'")
    lexicon = _dictionary(corpus) if DICTIONARY in chosen else None
    known = corpus.frame_set(True)
    says = {
        split: {source: _says(corpus.split(split), source, seed, known) for source in chosen if source != DICTIONARY}
        for split in ("train", "valid")
    }
    if not method:
        sources = label_sources(name)
        parts = {split: _as_sources([*told.values()]) for split, told in says.items()}
        return Variant(corpus, lexicon, parts, sources, f"{name}/{seed}")
    if lexicon is not None:
        heaviest = _heaviest(lexicon, corpus.frames)
        for split, told in says.items():
            told[DICTIONARY] = heaviest[np.asarray(corpus.split(split).arrays["entry"])]
    return _aggregated(corpus, lexicon, says, name, seed, labels)


def _annotated(corpus: Corpus, name: str, which: str, seed: int, labels: Path) -> Corpus:
    """Labels of simulated annotators, aggregated, in place of the events' own."""
    rates, _, method = which.partition("|")
    if method not in METHODS:
        raise RevupError(f"there is no variant '{name}' of a dataset: unknown '{method}'")
    says: dict[str, Arrays] = {}
    for part in ("train", "valid"):
        split = corpus.split(part)
        keys = np.asarray(split.arrays["keys"])
        there = np.arange(keys.shape[1]) < np.asarray(split.arrays["lengths"])[:, None]
        told = split.told(Observation(seed=seed, sources=rates))
        votes = np.full((int(there.sum()), len(told)), -1)
        for number, source in enumerate(told.values()):
            votes[source.item, number] = source.frame
        if method == "vote":  # of equals the first decides, which must not be the most reliable one everywhere
            order = np.stack([uniforms(keys[there], seed, _ORDER + number) for number in range(len(told))], -1)
            votes = np.take_along_axis(votes, order.argsort(-1), -1)
        says[part] = {}
        for number, source_name in enumerate(told):
            says[part][source_name] = np.full(keys.shape, -1)
            says[part][source_name][there] = votes[:, number]
    return _aggregated(corpus, corpus.lexicon, says, name, seed, labels)


def _aggregated(
    corpus: Corpus, lexicon: Lexicon | None, says: dict[str, Arrays], name: str, seed: int, labels: Path
) -> Corpus:
    method = name.partition("|")[2]
    frames, weights = aggregated(method, says, len(corpus.frames), labels, f"{corpus.fingerprint}/{name}/{seed}")
    parts = {split: _as_own(frames[split], weights[split]) for split in says}
    return Variant(corpus, lexicon, parts, [], f"{name}/{seed}")


def _says(split: Split, source: str, seed: int, known: FrameSet) -> Array:
    """The frame that a simulated source gives each event, -1 where it is silent, [N, M]."""
    reference, lemma = np.asarray(split.arrays["reference"]), np.asarray(split.arrays["lemma"])
    keys = annotator_keys(np.asarray(split.arrays["keys"]), source)
    there = reference >= 0
    weights = there[..., None].astype(np.float32)
    how = Observation(COVERAGE, 0.0, seed) if source == PEOPLE else Observation(1.0, WRONG, seed, "confusable")
    ones = np.ones(reference.shape, np.float32)
    frames = np.maximum(reference, 0)[..., None].astype(np.int32)
    seen = observe(keys, frames, weights, ones, how, known, None, lemma)
    label = np.where(seen.observed, seen.frames[..., 0], -1)
    if source == PARSER:  # an error that no other frame could be confused with is any frame
        drawn = observe(keys, frames, weights, ones, replace(how, noise="uniform"), known, None, lemma).frames[..., 0]
        wrong = there & (label == reference) & (drawn != reference)
        label = np.where(wrong, drawn, label)
    return label


def _as_sources(told: list[Array]) -> dict[str, Array]:
    """Arrays in which sources say these labels, and the events' own frames are not observed."""
    label = np.stack(told, -1) if told else np.zeros((0, 0, 0), np.int32)
    there = label >= 0
    return {
        "source_name": np.broadcast_to(np.arange(len(told)), label.shape).astype(np.int16),
        "source_kind": np.full(label.shape, LABEL, np.int8),
        "source_frame": np.maximum(label, 0).astype(np.int32),
        "source_weight": there.astype(np.float32),
        "source_confidence": np.ones(label.shape, np.float32),
        "knowledge_weights": np.zeros((*label.shape[:2], 1), np.float32),
        "knowledge_frames": np.zeros((*label.shape[:2], 1), np.int32),
        "knowledge_kind": np.full(label.shape[:2], LABEL, np.int8),
    }


def _as_own(frames: Array, weights: Array) -> dict[str, Array]:
    """Arrays in which the events' own knowledge is this: a label where one frame has all the weight."""
    empty = np.zeros((*frames.shape[:2], 0), np.float32)
    return {
        "knowledge_frames": frames.astype(np.int32),
        "knowledge_weights": weights.astype(np.float32),
        "knowledge_kind": np.where(weights.max(-1) < 1, DISTRIBUTION, LABEL).astype(np.int8),
        **{
            f"source_{name}": empty.astype(kind)
            for name, kind in (("name", "i2"), ("kind", "i1"), ("frame", "i4"), ("weight", "f4"), ("confidence", "f4"))
        },
    }


def _heaviest(lexicon: Lexicon, frames: list[str]) -> Array:
    """The heaviest candidate of each entry, and -1 as the last one: what an event without an entry gets."""
    number = {frame: place for place, frame in enumerate(frames)}
    found = np.full(len(lexicon.keys) + 1, -1, np.int64)
    for row, (predicate, part) in enumerate(lexicon.keys):
        senses = lexicon.entries[predicate].items()
        listed = [(w, f) for (f, pos), w in senses if w and f in number and part in ("", pos)]
        if listed:
            found[row] = number[min(listed, key=lambda sense: (-sense[0], sense[1]))[1]]
    return found
