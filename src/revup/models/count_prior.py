"""Fitted counts as the knowledge that models stand on: the prior of events, and their side knowledge as evidence.

`revup.models.count_model` has the equations. The networks add to the prior: γ = residual + log prior. In training the
labels of an event's own document are left out of its prior, since a network would otherwise learn to copy them. Labels
and candidates become evidence for the networks, under the estimated reliability of their sources; distributions stay as
they are.

If no label is observed at all and there is no dictionary, the counts are taken from induced frames (`induced`): with an
initially uniform proposal the decoder ignores the frames, and the proposal then gets no gradient from the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revup.data.batches import Prior
from revup.data.corpus import Corpus, Split
from revup.data.knowledge import Observation, Seen
from revup.data.lexicon import Lexicon
from revup.data.sources import REVIEWED
from revup.data.sparse_table import shared_predicates
from revup.data.vocabulary import Vocabulary
from revup.fields import check, setting
from revup.models.count_corpus import count_inputs, event_arrays, induced, present, whole_documents, without_labels
from revup.models.count_features import EventArrays
from revup.models.count_model import CountModel, LeaveOut

Array = NDArray[Any]
REVIEWED_RATES = (0.01, 0.5)  # error rate of reviewed labels, and the share of confusable ones among these errors
PRIOR_FRAMES = 48  # frames of an event whose prior is stored; the others share a remainder
EVIDENCE_FRAMES = 64  # likewise of its side knowledge


@dataclass(frozen=True, kw_only=True)
class CountSettings:
    """How a model uses counts and treats observed labels."""

    prior: str = setting(
        "pooled", "whether the frame logits start from the counts (pooled) or from nothing", choices=("pooled", "none")
    )
    induce: bool = setting(
        True, "where no label is observed at all, start the counts from clusters of frequent predicates, one a frame"
    )
    noise: str = setting(
        "estimated",
        "how observed labels are treated: wrong at an estimated rate, or never wrong (none)",
        choices=("estimated", "none"),
    )
    noise_rate: float | None = setting(
        None, "the share of wrong labels, given instead of estimated", minimum=0, below=1
    )

    def __post_init__(self) -> None:
        check(self, "objective")

    @property
    def needs_counts(self) -> bool:
        """Whether counts have to be fitted at all."""
        return self.prior != "none" or self.noise == "estimated"


ANCHOR = 2000.0  # labels
GATE = 5.0  # labels


@dataclass(frozen=True, kw_only=True)
class ResidualSettings(CountSettings):
    """How far a network may go from the counts."""

    anchor: float = setting(
        ANCHOR, "weight of staying near the prior, in labels: a penalty of anchor/n with n trusted labels", minimum=0
    )
    gate: float = setting(
        GATE,
        "labels of a predicate at which the network adds half of what it adds to frequent ones; 0: no gate",
        minimum=0,
    )


PLAIN: dict[str, Any] = {"prior": "none", "induce": False, "noise": "none"}  # labels as they are, and no counts


class CountPrior:
    """A fitted count model in the numbering of a corpus: the side knowledge and the prior of events.

    Attributes:
        model: The count model.
        predicates: Which lemmas are predicates of training events [L]; any other is as unknown as one outside.
        keys: Hashes of the training events that were counted, ascending.
        induced: The number of induced frames; 0 where labels or a dictionary were given.
    """

    def __init__(self, model: CountModel, predicates: Array, keys: Array, induced: int = 0) -> None:
        self.model, self.predicates, self.keys, self.induced = model, predicates, keys, induced
        self._left_out: Prior | None = None

    @classmethod
    def fit(
        cls, corpus: Corpus, observation: Observation, settings: CountSettings, without: Array | None = None
    ) -> CountPrior:
        """Fit the counts to the training split.

        Args:
            corpus: The dataset.
            observation: Which labels are observed, and which of them are wrong.
            settings: How labels are treated.
            without: Hashes of events whose labels are left out.
        """
        split = corpus.split("train")
        vectors = corpus.vectors()
        inputs = count_inputs(corpus.vocabulary, corpus.frames, corpus.lexicon, vectors)
        events, told, made_up = event_arrays(split, inputs.lemmas), split.told(observation), 0
        keys = np.asarray(split.arrays["keys"])[present(split, slice(None))]
        if without is not None and len(without):
            told = without_labels(told, np.isin(keys, without))
        noise = settings.noise == "estimated" or settings.noise_rate is not None
        if not told and settings.induce and inputs.dictionary is None:
            told = {"induced": induced(split, corpus.vocabulary, vectors)}
            made_up, noise = len(np.unique(told["induced"].frame)), False
        rates = {REVIEWED: REVIEWED_RATES}
        if settings.noise_rate is not None:
            rates |= {name: (settings.noise_rate, 0.0) for name in told if name != REVIEWED}
        found = CountModel.fit(
            events,
            told,
            inputs,
            noise=noise,
            known_rates={name: rate for name, rate in rates.items() if name in told and told[name].kind == "label"},
            seed=observation.seed,
        )
        return cls(found, np.bincount(events.lemma, minlength=inputs.lemmas) > 0, np.sort(keys), made_up)

    # ---- what batches hold -----------------------------------------------------------------------------------

    def seen(self, split: Split, observation: Observation, rows: slice, corrected: bool = True) -> Seen:
        """Return the side knowledge of these rows under the estimated reliabilities.

        Args:
            split: The split.
            observation: Which labels are observed, and which of them are wrong.
            rows: The rows.
            corrected: Whether labels are evidence; otherwise they are beliefs, as they stand.
        """
        events = self._events(split, rows)
        there = present(split, rows)
        told = split.told(observation, rows)
        n = len(events)
        frames, weights = np.zeros((n, 1), np.int32), np.zeros((n, 1), np.float32)
        other, belief, observed = np.zeros(n, np.float32), np.ones(n, bool), np.zeros(n, bool)
        if told:
            found = self.model.evidence(told, events, corrected)
            observed, belief = found.spoken, found.belief
            other = np.where(observed, found.other, 0.0).astype(np.float32)
            gain = found.value - found.other[found.event]
            frames, weights = _padded(found.event, found.frame, gain, np.abs(gain), n, EVIDENCE_FRAMES)
        confidence = np.asarray(split.arrays["confidence"][rows])[there] * observed
        return Seen(
            _spread(frames, there),
            _spread(weights, there),
            _spread(observed, there),
            _spread(confidence.astype(np.float32), there),
            _spread(other, there),
            _spread(belief, there, True),
        )

    def prior(self, split: Split, rows: slice, training: bool) -> Prior:
        """Return the prior of these rows; in training without the labels of each event's own document."""
        if not training or self.induced:
            documents, inside = whole_documents(split, rows)
            found = self._rows(self.model.predict(self._events(split, documents)), present(split, documents))
            return Prior(found.frames[inside], found.gain[inside], found.rest[inside], found.labels[inside])
        if self._left_out is None:
            self._left_out = self.left_out(split, "document")
        whole = self._left_out
        return Prior(whole.frames[rows], whole.gain[rows], whole.rest[rows], whole.labels[rows])

    def left_out(self, split: Split, what: LeaveOut) -> Prior:
        """Return the prior of the training split that the counts were fitted to, without some of its labels.

        Args:
            split: The training split.
            what: Which labels: those of the "event" itself, or of its whole "document".
        """
        events = event_arrays(split, self.model.inputs.lemmas)
        return self._rows(self.model.predict(events, what), present(split, slice(None)))

    def _events(self, split: Split, rows: slice) -> EventArrays:
        events = event_arrays(split, self.model.inputs.lemmas, rows)
        return replace(events, lemma=np.where(self.predicates[events.lemma], events.lemma, -1))

    def _rows(self, found: Any, there: Array) -> Prior:
        n, base = len(found.rest), self.model.base
        event = np.repeat(np.arange(n), np.diff(found.start))
        outside = np.maximum(1.0 - np.bincount(event, base[found.frame], minlength=n), 1e-9)
        order = np.lexsort((-found.probability, event))
        rank = np.arange(len(order)) - found.start[event[order]]
        cut = order[rank >= PRIOR_FRAMES]  # beyond the most probable frames: into the remainder
        rest = found.rest + np.bincount(event[cut], found.probability[cut], minlength=n)
        outside = outside + np.bincount(event[cut], base[found.frame[cut]], minlength=n)
        kept = np.sort(order[rank < PRIOR_FRAMES])
        event, frame, probability = event[kept], found.frame[kept], found.probability[kept]
        log_rest = np.log(np.maximum(rest, 1e-12)) - np.log(outside)
        gain = np.log(np.maximum(probability, 1e-12)) - log_rest[event] - np.log(base[frame])
        frames, gains = _padded(event, frame, gain, probability, n, PRIOR_FRAMES)
        return Prior(
            _spread(frames, there),
            _spread(gains, there),
            _spread(log_rest.astype(np.float32), there),
            _spread(found.seen.astype(np.float32), there),
        )

    def with_dictionary(self, lexicon: Lexicon, frames: list[str]) -> CountPrior:
        """The same counts with another dictionary, consulted by `prior`.

        Args:
            lexicon: The dictionary.
            frames: The frame list; other frames of the dictionary are left out.
        """
        m = self.model
        inputs = replace(m.inputs, dictionary=lexicon.table(frames))
        model = CountModel(inputs, m.counts, m.space, m.classes, m.slots, m.scalars, m.reliability, m.noise)
        model.channels, model.frequency, model.joint_error = m.channels, m.frequency, m.joint_error
        return CountPrior(model, self.predicates, self.keys, self.induced)

    @property
    def log_base(self) -> Tensor:
        """log base [K]: how frames share the remainder of a prior."""
        return torch.from_numpy(np.log(self.model.base)).float()

    @property
    def labels(self) -> float:
        """The number of labels that were counted."""
        return float(self.model.counts.of_lemma.sum())

    @property
    def several(self) -> bool:
        """Whether several sources name the same events."""
        return self.model.joint_error is not None

    @property
    def error_rate(self) -> float:
        """The estimated share of wrong labels: of several sources together, where they name the same events."""
        joint = self.model.joint_error
        return self.figures().get("noise_rate", 0.0) if joint is None else joint

    def figures(self) -> dict[str, float]:
        """Figures to report: the share of wrong labels, where it can be told, and the number of induced frames."""
        found = {"induced_frames": float(self.induced)} if self.induced else {}
        told = [
            each for name, each in self.model.reliability.items() if each.confusable is not None and name != REVIEWED
        ]
        rates = [(each.error_rate, each.items) for each in told if each.error_rate is not None]
        if rates:
            found["noise_rate"] = sum(rate * items for rate, items in rates) / sum(items for _, items in rates)
        return found

    # ---- files -----------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """The counts as tensors, with the word vectors that they need."""
        found = {f"counts.{name}": tensor for name, tensor in self.model.tensors().items()}
        inputs = self.model.inputs
        if inputs.vectors is not None and inputs.found is not None:
            found |= {"vectors": torch.from_numpy(inputs.vectors), "found": torch.from_numpy(inputs.found)}
        found |= {"predicates": torch.from_numpy(self.predicates), "induced": torch.tensor(self.induced)}
        return {**found, "keys": torch.from_numpy(self.keys.view(np.int64))}

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], vocabulary: Vocabulary, frames: list[str], lexicon: Lexicon | None
    ) -> CountPrior:
        """Open what `tensors` returned.

        Args:
            tensors: By name; untrusted.
            vocabulary, frames, lexicon: Those of the run.

        Raises:
            ValueError: The tensors don't fit together.
        """
        vectors = None
        if "vectors" in tensors:
            vectors = tensors["vectors"].numpy(), tensors["found"].numpy()
            rows = len(vocabulary) + len(vocabulary.beyond)
            if vectors[0].ndim != 2 or len(vectors[0]) != rows or vectors[1].shape != (rows,):
                raise ValueError(f"vectors: expected {rows} rows")
        inputs = count_inputs(vocabulary, frames, lexicon, vectors)
        prefix = "counts."
        own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        predicates = tensors["predicates"].numpy()
        if predicates.dtype != np.bool_ or predicates.shape != (inputs.lemmas,):
            raise ValueError(f"predicates: expected {inputs.lemmas} of them")
        keys = tensors["keys"].numpy()
        if keys.dtype != np.int64 or keys.ndim != 1:
            raise ValueError("keys: expected one whole number an event")
        induced = int(tensors["induced"])
        return cls(CountModel.from_tensors(own, inputs), predicates, keys.view(np.uint64), induced)

    def confusable(self) -> dict[int, NDArray[np.float64]]:
        """c(y|t) by label y: the probability of confusing each true frame t with it, [K]."""
        mass = self.model.counts.mass
        shared = shared_predicates(mass.row, mass.column, self.model.inputs.frames)
        found: dict[int, NDArray[np.float64]] = {}
        for t, y, value in zip(shared.row.tolist(), shared.column.tolist(), shared.value.tolist(), strict=True):
            if y not in found:
                found[y] = np.zeros(self.model.inputs.frames)
            found[y][t] = value
        return found


def _spread(values: Array, there: Array, fill: Any = 0) -> Array:
    """Values of events [n, ...] → [N, M, ...]."""
    out = np.full((*there.shape, *values.shape[1:]), fill, values.dtype)
    out[there] = values
    return out


def _padded(event: Array, frame: Array, value: Array, size: Array, n: int, most: int) -> tuple[Array, Array]:
    """Rows (event, frame, value), sorted by event → frames and values [n, W]; the largest where there are too many."""
    order = np.lexsort((-size, event))
    event, frame, value = event[order], frame[order], value[order]
    number = np.bincount(event, minlength=n)
    rank = np.arange(len(event)) - (np.cumsum(number) - number)[event]
    width = max(1, min(most, int(number.max(initial=1))))
    keep = rank < width
    frames, values = np.zeros((n, width), np.int32), np.zeros((n, width), np.float32)
    frames[event[keep], rank[keep]], values[event[keep], rank[keep]] = frame[keep], value[keep]
    return frames, values
