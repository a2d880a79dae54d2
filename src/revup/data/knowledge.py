"""Side knowledge in training: observation probability ε, noise rate η, and what is drawn with them.

The reference frame of an event is for scoring. A model learns from *side knowledge*: whether a label is observed (l_m),
and the label p_D(t|x). Both are drawn here, once per corpus, from a seed, the event's identity and the source's name:

    observed_m ~ Bernoulli(ε)          wrong_m ~ Bernoulli(η)          replacement_m ~ Uniform(training frames)

So a draw does not depend on order, batch size, windows or number of workers; ε and η act independently; and under one
seed, a larger ε (or η) observes (or corrupts) a superset of the labels of a smaller one. ε acts on every kind of
knowledge, η on labels only. With `noise` = confusable the replacement is another frame of the same lemma.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from revup.data.sparse_table import Table
from revup.data.told import LABEL
from revup.errors import RevupError
from revup.fields import check, setting

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Keys = NDArray[np.uint64]

_SEEN, _WRONG, _REPLACEMENT = 1, 2, 3  # streams of random numbers, one for each draw of an event


def document_key(identity: str) -> int:
    """Return a 64-bit hash of a document's id, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def event_keys(document_keys: Keys, indices: NDArray[Any]) -> Keys:
    """Return a 64-bit hash of each event: its document's key mixed with its index in the original document."""
    with np.errstate(over="ignore"):
        return _mix(document_keys.astype(np.uint64) + _mix(indices.astype(np.uint64) + np.uint64(1)))


def event_indices(document_keys: Keys, keys: Keys) -> NDArray[np.int64]:
    """Return the indices of events in their documents, which their keys tell: the inverse of `event_keys`.

    Args:
        document_keys: The key of each event's document [n].
        keys: The keys of the events [n].
    """
    with np.errstate(over="ignore"):
        return (_unmix(_unmix(keys) - document_keys) - np.uint64(1)).astype(np.int64)


def uniforms(keys: Keys, seed: int, stream: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each key, a pure function of key, seed and stream.

    Args:
        keys: Hashes [...].
        seed: The seed of the draw.
        stream: Which of several independent draws of one seed.
    """
    salt = document_key(f"{seed}/{stream}")
    with np.errstate(over="ignore"):
        return (_mix(keys ^ np.uint64(salt)) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: Keys) -> Keys:
    """splitmix64's finaliser: every output bit depends on every input bit."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _unmix(x: Keys) -> Keys:
    """The inverse of `_mix`: shifts are undone by further ones, products by the factors' inverses modulo 2⁶⁴."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(31)) ^ (x >> np.uint64(62))) * np.uint64(0x319642B2D24D8EC3)
        x = (x ^ (x >> np.uint64(27)) ^ (x >> np.uint64(54))) * np.uint64(0x96DE1B173F119089)
        x = (x ^ (x >> np.uint64(30)) ^ (x >> np.uint64(60))) - np.uint64(0x9E3779B97F4A7C15)
    return x


@dataclass(frozen=True)
class Observation:
    """Which of the labels are observed in training, and how many of those are corrupted."""

    epsilon: float = setting(
        1.0, "observation probability ε: share of the labels that training sees", minimum=0, maximum=1
    )
    eta: float = setting(
        0.0, "noise rate η: share of the observed labels that is replaced by random frames", minimum=0, maximum=1
    )
    seed: int = setting(0, "seed of all randomness", minimum=0, maximum=2**63 - 1)
    noise: str = setting(
        "uniform",
        "what replaces a label at the rate η: any training frame, or another frame of the same lemma (confusable)",
        choices=("uniform", "confusable"),
    )
    sources: str = setting(
        "",
        "simulate annotators of every label instead of observing it: their number, or their error rates (0.1,0.3)",
    )

    def __post_init__(self) -> None:
        check(self)
        self.annotators()

    def annotators(self) -> list[float]:
        """Return the error rates of the simulated annotators; an empty list without any."""
        try:
            if not self.sources:
                return []
            if re.fullmatch(r"[0-9]{1,3}", self.sources.strip()):
                return [self.eta] * int(self.sources)
            rates = [float(part) for part in self.sources.split(",")]
        except ValueError:
            rates = [-1.0]
        if not all(0 <= rate <= 1 for rate in rates):
            wanted = "a number of annotators of at most 999, or their error rates from 0 to 1"
            raise RevupError(f"sources: expected {wanted}, found '{self.sources[:40]}'")
        return rates


@dataclass(frozen=True)
class Seen:
    """Side knowledge as a model gets it, for events of shape [...]: a sparse distribution over frames each.

    frames, weights [..., W]: p_D(t|x), with weights that sum to 1 where a label is observed and to 0 elsewhere;
    observed [...]: l_m; confidence [...]: scales λ; other [...]: what every frame without a weight has; belief [...]:
    whether weights are p_D itself, or else the likelihood p(what is observed | t), to be multiplied with the proposal.
    """

    frames: Ints
    weights: Floats
    observed: NDArray[np.bool_]
    confidence: Floats
    other: Floats
    belief: NDArray[np.bool_]


@dataclass(frozen=True)
class FrameSet:
    """What replaces wrong labels: the frames of the training documents, and which of them each lemma has.

    Attributes:
        frames: The numbers of the frames that the training documents name.
        lemmas: Lemma → frames that it has among the training references [L, K].
        confusable: Frame → frames that share a lemma with it [K, K].
    """

    frames: Ints
    lemmas: Table | None = None
    confusable: Table | None = None


def observe(
    keys: Keys,
    frames: Ints,
    weights: Floats,
    confidence: Floats,
    observation: Observation,
    known: FrameSet,
    kind: NDArray[Any] | None = None,
    lemma: NDArray[Any] | None = None,
) -> Seen:
    """Draw which labels are observed, and replace some of them by random frames.

    Args:
        keys: Hashes of the events (`event_keys`) [...].
        frames, weights: All side knowledge [..., W], with weight 0 where there is none.
        confidence: Confidence of the side knowledge [...].
        observation: ε, η and the seed.
        known: What replaces wrong labels.
        kind: The kinds of knowledge [...] (`revup.data.told`); labels where absent.
        lemma: The lemmas of the events [...], for confusable noise.
    """
    there = weights.sum(-1) > 0
    observed = there & (uniforms(keys, observation.seed, _SEEN) < observation.epsilon)
    shown = np.where(observed[..., None], frames, 0).astype(np.int32)
    share = np.where(observed[..., None], weights, 0).astype(np.float32)
    wrong = observed if kind is None else observed & (kind == LABEL)
    wrong = wrong & (uniforms(keys, observation.seed, _WRONG) < observation.eta)
    if wrong.any():
        label = np.take_along_axis(shown, share.argmax(-1)[..., None], -1)[..., 0][wrong]
        draw = uniforms(keys[wrong], observation.seed, _REPLACEMENT)
        new = replacements(label, draw, observation.noise, known, None if lemma is None else lemma[wrong])
        shown[wrong] = 0
        share[wrong] = 0
        shown[..., 0][wrong] = new
        share[..., 0][wrong] = 1
    total = share.sum(-1, keepdims=True)
    share = np.divide(share, total, out=share, where=total > 0)
    other = np.zeros(observed.shape, np.float32)
    return Seen(shown, share, observed, np.where(observed, confidence, 0).astype(np.float32), other, observed)


def replacements(
    label: NDArray[Any], draw: NDArray[np.float64], noise: str, known: FrameSet, lemma: NDArray[Any] | None
) -> Ints:
    """Return the frames that replace labels.

    Confusable noise draws from the other frames that the lemma has among the training references, else from frames that
    share a lemma with the label, else leaves the label as it is.

    Args:
        label: The labels to replace [n].
        draw: A number in [0, 1) for each [n].
        noise: uniform or confusable.
        known: What replaces them.
        lemma: The lemmas of their events [n], -1 for unknown ones.
    """
    if noise == "uniform" or known.lemmas is None or known.confusable is None or lemma is None:
        return known.frames[(draw * len(known.frames)).astype(np.int64)]
    new = label.astype(np.int64)
    left = np.ones(len(label), bool)
    for table, rows in ((known.lemmas, lemma), (known.confusable, label)):
        asked = np.flatnonzero(left & (rows >= 0))
        begin = np.searchsorted(table.key, rows[asked].astype(np.int64) * table.width)
        size = np.searchsorted(table.key, (rows[asked].astype(np.int64) + 1) * table.width) - begin
        own = np.searchsorted(table.key, rows[asked].astype(np.int64) * table.width + label[asked]) - begin
        listed = table(rows[asked], label[asked]) > 0
        others = size - listed
        chosen = (draw[asked] * others).astype(np.int64)
        chosen += listed & (chosen >= own)  # the label itself is passed over
        some = others > 0
        new[asked[some]] = table.column[(begin + chosen)[some]]
        left[asked[some]] = False
    return new.astype(np.int32)


def annotator_keys(keys: Keys, source: str) -> Keys:
    """Return the hashes from which the draws of a named source are made."""
    return _mix(keys ^ np.uint64(document_key(f"source/{source}")))
