"""Mini-batches of a split on a device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from revup.data.corpus import Split
from revup.data.encode import TOKENS, Array
from revup.data.knowledge import Observation, Seen
from revup.errors import RevupError

STREAM_ROWS = 262_144  # windows in a shard, where a split does not fit on the device


@dataclass
class _Rows:
    """Windows on a device."""

    tokens: Tensor
    read: Tensor
    mask: Tensor
    frames: Tensor
    weights: Tensor
    observed: Tensor
    confidence: Tensor
    reference: Tensor
    other: Tensor
    belief: Tensor
    prior_frames: Tensor
    prior_gain: Tensor
    prior_rest: Tensor
    labels: Tensor
    vectors: Tensor
    lemma: Tensor


@dataclass
class Batch(_Rows):
    """Some windows on the device with the side knowledge about their frames.

    tokens [B, M·5]; read [B, M·5]: the numbers by which an encoder reads them (`Vocabulary`); mask [B, M]: which events
    exist; reference [B, M]; observed [B, M]: l; confidence [B, M]. Side knowledge, sparse: frames, weights [B, M, W],
    other [B, M] (what all frames have beside their weights) and belief [B, M]: 1 where it is p_D(t|x), 0 where it is
    the likelihood of what is observed given each frame. The prior of the counts, sparse, in logarithms: prior_frames,
    prior_gain [B, M, P] over prior_rest [B, M] + log base; labels [B, M]: how many were counted for the predicate.
    vectors [B, M, d]: event vectors of the user's own encoder (d = 0 without any). lemma [B, M]: the number of each
    predicate's lemma among those of the training documents, -1 for an unknown one. With several processes a batch holds
    this process's rows (`rows` of `documents`); the counts are over all of them, so that every process divides by the
    same numbers. Where a step is captured, counts are tensors.
    """

    documents: int
    events: int | Tensor
    observed_events: int | Tensor
    rows: slice = field(default_factory=lambda: slice(None))

    def parts(self) -> dict[str, Any]:
        """Every field by its name."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def empirical(self, classes: int) -> Tensor:
        """Return side knowledge densely [B, M, K]: p_D(t|x) or a likelihood; all 0 where no label is observed."""
        dense = self.other.unsqueeze(-1).repeat(1, 1, classes)
        return dense.scatter_add_(-1, self.frames, self.weights)

    def log_prior(self, log_base: Tensor) -> Tensor:
        """Return the log prior of the counts [B, M, K], from the logarithm of their base distribution [K]."""
        dense = self.prior_rest.unsqueeze(-1) + log_base
        return dense.scatter_add_(-1, self.prior_frames, self.prior_gain)

    def words(self, beyond: bool) -> Tensor:
        """Return the numbers to read [B, M·5]: with words beyond the vocabulary, or with `<unk>` in their place."""
        return self.read if beyond else self.tokens

    @cached_property
    def token_mask(self) -> Tensor:
        """[B, M·5]: which tokens exist."""
        return self.mask.repeat_interleave(TOKENS, dim=1)

    @property
    def observed_share(self) -> float | Tensor:
        """The share of events of the mini-batch with an observed label: ε̂ in the paper."""
        return self.observed_events / self.events


@dataclass
class _Shard(_Rows):
    """Rows of a split on the device; the counts that batches need are kept on the host to avoid a synchronisation."""

    lengths: Array
    observed_events: Array


@dataclass(frozen=True)
class Prior:
    """The prior of the counts for windows: what `Batch` says of prior_frames, prior_gain, prior_rest and labels."""

    frames: Array
    gain: Array
    rest: Array
    labels: Array


class Knows(Protocol):
    """What turns the sources of a split into the side knowledge and the prior of its events."""

    def seen(self, split: Split, observation: Observation, rows: slice) -> Seen:
        """Return the side knowledge of these rows."""
        ...

    def prior(self, split: Split, rows: slice, training: bool) -> Prior | None:
        """Return the prior of these rows, or None; in training without the labels of each event's own document."""
        ...


ROWS = tuple(part.name for part in fields(_Rows))
COUNTS = ("events", "observed_events")
Gather = Callable[[Tensor, list[Tensor], list[Tensor], Tensor, list[Tensor]], None]


class Batches:
    """Cuts a split into mini-batches on a device, where it is held whole if it fits and streamed in shards otherwise.

    Args:
        split: The split.
        observation: Which labels are observed, and how many of them are wrong.
        batch_size: Windows in a batch.
        device: Where batches are.
        shard_rows: Windows held on the device at once; all of them where they fit.
        rank, processes: This process and the number of processes that share each batch.
        knowledge: Fitted counts; without them labels are assumed to be correct, and there is no prior.
        training: Whether to train on the batches: the prior then leaves out the labels of each event's own document.
        gather: Copies rows of tensors into places (`ops.gather_rows`). Where given, batches of full size share one
            place, as a captured step needs it: each is valid until the next one is asked for.
    """

    def __init__(
        self,
        split: Split,
        observation: Observation,
        batch_size: int,
        device: torch.device | str = "cpu",
        shard_rows: int | None = None,
        rank: int = 0,
        processes: int = 1,
        gather: Gather | None = None,
        knowledge: Knows | None = None,
        training: bool = False,
    ) -> None:
        if not len(split):
            raise RevupError(f"the {split.name} split is empty")
        self.split, self.observation, self.batch_size = split, observation, batch_size
        self.device = torch.device(device)
        size = split.nbytes() * (2 if self.device.type == "cuda" else 1)  # on a GPU its numbers are twice as wide
        self.shard_rows = shard_rows or (len(split) if fits(size, self.device) else STREAM_ROWS)
        self.rank, self.processes, self.knowledge, self.training = rank, processes, knowledge, training
        self.gather = gather if processes == 1 else None
        self._held: tuple[int, _Shard] | None = None
        self._place: Batch | None = None

    def __len__(self) -> int:
        return sum(len(self._cuts(self._rows(shard))) for shard in range(self._shards()))

    def epoch(self, number: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, in an order that follows from seed and epoch alone.

        Args:
            number: The epoch.
            seed: The seed of the order.
            start: The first batch to yield, so that an interrupted epoch resumes.
        """
        generator = np.random.default_rng([seed, number])
        position = 0
        for shard in generator.permutation(self._shards()):
            rows = self._rows(int(shard))
            order, cuts = generator.permutation(rows), self._cuts(rows)
            if position + len(cuts) > start:
                yield from self._batches(int(shard), order, cuts[max(0, start - position) :])
            position += len(cuts)

    def ordered(self, multiple: int = 1) -> Iterator[Batch]:
        """Yield every row once, in order.

        Args:
            multiple: Behind the last row, repeat another one until the number of rows is a multiple of this.
        """
        for shard in range(self._shards()):
            rows = self._rows(shard)
            more = -rows % multiple if shard == self._shards() - 1 else 0
            order = np.concatenate([np.arange(rows), np.zeros(more, np.int64)])
            yield from self._batches(shard, order, self._cuts(len(order)))

    def _shards(self) -> int:
        return -(-len(self.split) // self.shard_rows)

    def _rows(self, shard: int) -> int:
        return min(self.shard_rows, len(self.split) - shard * self.shard_rows)

    def _cuts(self, rows: int) -> list[tuple[int, int]]:
        """Return where batches start and end; a last one too small to share among processes joins the one before."""
        starts = list(range(0, rows, self.batch_size))
        if len(starts) > 1 and rows - starts[-1] < 16:
            starts.pop()
        return list(zip(starts, [*starts[1:], rows], strict=True))

    def _batches(self, shard: int, order: Array, cuts: list[tuple[int, int]]) -> Iterator[Batch]:
        held = self._load(shard)
        on_device = torch.from_numpy(order).to(self.device)
        counts = np.array(
            [[c[order[start:end]].sum() for c in (held.lengths, held.observed_events)] for start, end in cuts]
        )
        device_counts = torch.from_numpy(counts).to(self.device, torch.float32)
        for number, (start, end) in enumerate(cuts):
            if self.gather is not None and end - start == self.batch_size:
                yield self._gathered(self.gather, held, on_device[start:end], device_counts[number])
                continue
            chosen = order[start:end]
            first, last = (len(chosen) * rank // self.processes for rank in (self.rank, self.rank + 1))
            rows = slice(first, last)
            index = on_device[start + rows.start : start + rows.stop]
            parts: dict[str, Any] = {name: getattr(held, name)[index] for name in ROWS}
            parts = {name: part.long() if part.dtype == torch.int32 else part for name, part in parts.items()}
            parts |= zip(COUNTS, counts[number].tolist(), strict=True)
            yield Batch(**parts, documents=len(chosen), rows=rows)

    def _gathered(self, gather: Gather, held: _Shard, which: Tensor, counts: Tensor) -> Batch:
        sources = [getattr(held, name) for name in ROWS]
        if self._place is None:
            made: dict[str, Any] = {
                name: source.new_empty(len(which), *source.shape[1:])
                for name, source in zip(ROWS, sources, strict=True)
            }
            made |= {name: counts.new_empty(()) for name in COUNTS}
            self._place = Batch(**made, documents=len(which), rows=slice(0, len(which)))
        parts = self._place.parts()
        gather(which, sources, [parts[name] for name in ROWS], counts, [parts[name] for name in COUNTS])
        return self._place

    def _load(self, shard: int) -> _Shard:
        """Return a shard on the device, with the side knowledge about its frames; the last one is kept."""
        if self._held is not None and self._held[0] == shard:
            return self._held[1]
        rows = slice(shard * self.shard_rows, shard * self.shard_rows + self._rows(shard))
        a, knowledge = self.split.arrays, self.knowledge
        lengths = np.ascontiguousarray(a["lengths"][rows])
        if knowledge is None:
            seen, prior = self.split.seen(self.observation, rows), None
        else:
            seen, prior = (
                knowledge.seen(self.split, self.observation, rows),
                knowledge.prior(self.split, rows, self.training),
            )
        prior = prior or _no_prior(seen.observed.shape)
        vectors = a["vectors"][rows] if "vectors" in a else np.zeros((*seen.observed.shape, 0), np.float32)
        wide = torch.int64 if self.device.type == "cuda" else None  # as in batches, so that none has to convert them

        def place(array: Array, kind: torch.dtype | None = None) -> Tensor:
            return torch.from_numpy(np.array(array)).to(self.device, kind)

        loaded = _Shard(
            tokens=place(a["tokens"][rows].reshape(len(lengths), -1), wide),
            read=place(a["read"][rows].reshape(len(lengths), -1), wide),
            mask=place(np.arange(seen.observed.shape[1]) < lengths[:, None]),
            frames=place(seen.frames, wide),
            weights=place(seen.weights),
            observed=place(seen.observed.astype(np.float32)),
            confidence=place(seen.confidence),
            reference=place(a["reference"][rows], wide),
            other=place(seen.other),
            belief=place(seen.belief.astype(np.float32)),
            prior_frames=place(prior.frames, wide),
            prior_gain=place(prior.gain),
            prior_rest=place(prior.rest),
            labels=place(prior.labels),
            vectors=place(vectors),
            lemma=place(a["lemma"][rows], wide),
            lengths=lengths,
            observed_events=seen.observed.sum(1),
        )
        self._held = shard, loaded
        return loaded


def _no_prior(shape: tuple[int, ...]) -> Prior:
    nothing = np.zeros((*shape, 0), np.float32)
    return Prior(nothing.astype(np.int32), nothing, np.zeros(shape, np.float32), np.zeros(shape, np.float32))


def fits(size: int, device: torch.device) -> bool:
    """Return whether so many bytes fit on the device beside the model: into half of what is free now."""
    if device.type == "cuda":
        return size < torch.cuda.mem_get_info(device)[0] // 2
    try:
        return size < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):  # unknown on this system
        return size < 2**31
