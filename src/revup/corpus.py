"""A corpus: vocabulary, frame list and splits, opened from a dataset directory (revup.dataset), and cut into batches
on the device."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revup.dataset import (
    FORMAT,
    SPLITS,
    Settings,
    Vocabulary,
    assembling,
    merge,
    read_ids,
    read_list,
    read_vocabulary,
    refuse_existing,
    renumber,
    replace_directory,
    split_of,
    write_list,
    write_vocabulary,
)
from revup.encoding import BOS, NONE, NULL, PAD, SPECIAL, TOKENS, TUP, UNK, UNSEEN, encode
from revup.errors import InputError, RevupError
from revup.events import SLOTS, Document
from revup.knowledge import Observation, Seen, observe

CHUNK_DOCUMENTS = 4096
STREAM_ROWS = 262_144  # documents in a shard, where a split does not fit the device

Array = NDArray[Any]


@dataclass
class Batch:
    """Some documents on the device, and what is seen of their frames; sizes are those of the whole batch.

    tokens [B, M·5]; read [B, M·5]: by which numbers they are read (`Vocabulary`); mask [B, M]: which events exist;
    frames, weights [B, M, W]: p_D(t|x), sparse; observed [B, M]: l; confidence [B, M]. With several processes a batch
    holds this process's rows (`rows` of `documents`), and the counts are over all of it, so that every process divides
    by the same numbers (tensors where a step is captured).
    """

    tokens: Tensor
    read: Tensor
    mask: Tensor
    frames: Tensor
    weights: Tensor
    observed: Tensor
    confidence: Tensor
    reference: Tensor
    documents: int
    events: int | Tensor
    observed_events: int | Tensor
    rows: slice = field(default_factory=lambda: slice(None))

    def parts(self) -> dict[str, Any]:
        """Every field by its name."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def empirical(self, classes: int) -> Tensor:
        """p_D(t|x) as a dense distribution [B, M, K]; all 0 where nothing is seen."""
        dense = self.weights.new_zeros(*self.mask.shape, classes)
        return dense.scatter_add_(-1, self.frames, self.weights)

    def words(self, beyond: bool) -> Tensor:
        """[B, M·5]: the numbers a model reads, those beyond its vocabulary among them or as <unk>."""
        return self.read if beyond else self.tokens

    @cached_property
    def token_mask(self) -> Tensor:
        """[B, M·5]: which tokens exist."""
        return self.mask.repeat_interleave(TOKENS, dim=1)

    @property
    def observed_share(self) -> float | Tensor:
        """The share of events of the mini-batch whose frame is seen: what the paper calls ε̂."""
        return self.observed_events / self.events


class Split:
    """One split of a corpus, memory-mapped: arrays of N windows of at most M events."""

    NAMES = (
        "tokens",
        "read",
        "lengths",
        "reference",
        "knowledge_frames",
        "knowledge_weights",
        "confidence",
        "keys",
        "document",
    )

    def __init__(self, name: str, arrays: dict[str, Array], ids: Callable[[], list[str]], classes: int) -> None:
        self.name, self.arrays, self._ids, self.classes = name, arrays, ids, classes

    def __len__(self) -> int:
        return len(self.arrays["lengths"])

    @property
    def ids(self) -> list[str]:
        """The ids of the documents that the windows come from (`arrays["document"]` numbers them)."""
        return self._ids()

    @property
    def events(self) -> int:
        return int(np.sum(self.arrays["lengths"], dtype=np.int64))

    def seen(self, observation: Observation, rows: slice = slice(None)) -> Seen:
        """What is seen of these rows' frames."""
        a = self.arrays
        return observe(
            a["keys"][rows],
            a["knowledge_frames"][rows],
            a["knowledge_weights"][rows],
            a["confidence"][rows],
            self.classes,
            observation,
        )

    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


@dataclass
class _Shard:
    """Rows of a split on the device, and on the host the two counts a batch needs without asking the device."""

    tokens: Tensor
    read: Tensor
    mask: Tensor
    frames: Tensor
    weights: Tensor
    observed: Tensor
    confidence: Tensor
    reference: Tensor
    lengths: Array
    observed_events: Array


GATHERED = 8  # fields of a batch that are rows of the split: the first ones
Gather = Callable[[Tensor, list[Tensor], list[Tensor], Tensor, list[Tensor]], None]  # `gather_fused`, of our kernels


class Batches:
    """Cuts a split into batches on a device: held there whole where it fits, streamed in shards where not."""

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
    ) -> None:
        """gather: takes batches of full size together on a device; all of them are then one `Batch`, in one place: each
        is there until the next one is asked for."""
        if not len(split):
            raise RevupError(f"the {split.name} split is empty")
        self.split, self.observation, self.batch_size = split, observation, batch_size
        self.device = torch.device(device)
        self.shard_rows = shard_rows or (
            len(split) if fits(_device_bytes(split, self.device), self.device) else STREAM_ROWS
        )
        self.rank, self.processes = rank, processes
        self.gather = gather if processes == 1 else None
        self._held: tuple[int, _Shard] | None = None
        self._place: Batch | None = None

    def __len__(self) -> int:
        return sum(len(self._cuts(self._rows(shard))) for shard in range(self._shards()))

    def epoch(self, number: int, seed: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, shuffled by seed and epoch alone, from batch `start` on."""
        generator = np.random.default_rng([seed, number])
        position = 0
        for shard in generator.permutation(self._shards()):
            rows = self._rows(int(shard))
            order, cuts = generator.permutation(rows), self._cuts(rows)
            if position + len(cuts) > start:
                yield from self._batches(int(shard), order, cuts[max(0, start - position) :])
            position += len(cuts)

    def ordered(self) -> Iterator[Batch]:
        """Every row once, in order."""
        for shard in range(self._shards()):
            rows = self._rows(shard)
            yield from self._batches(shard, np.arange(rows), self._cuts(rows))

    def _shards(self) -> int:
        return -(-len(self.split) // self.shard_rows)

    def _rows(self, shard: int) -> int:
        return min(self.shard_rows, len(self.split) - shard * self.shard_rows)

    def _cuts(self, rows: int) -> list[tuple[int, int]]:
        """Where batches start and end; a last one too small to share among processes joins the one before it."""
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
        on_device_counts = torch.from_numpy(counts).to(self.device, torch.float32)
        for number, (start, end) in enumerate(cuts):
            if self.gather is not None and end - start == self.batch_size:
                yield self._gathered(held, on_device[start:end], on_device_counts[number])
                continue
            chosen = order[start:end]
            first, last = (len(chosen) * rank // self.processes for rank in (self.rank, self.rank + 1))
            rows = slice(first, last)
            index = on_device[start + rows.start : start + rows.stop]
            events, observed_events = counts[number].tolist()
            yield Batch(
                tokens=held.tokens[index].long(),
                read=held.read[index].long(),
                mask=held.mask[index],
                frames=held.frames[index].long(),
                weights=held.weights[index],
                observed=held.observed[index],
                confidence=held.confidence[index],
                reference=held.reference[index].long(),
                documents=len(chosen),
                events=events,
                observed_events=observed_events,
                rows=rows,
            )

    def _gathered(self, held: _Shard, which: Tensor, counts: Tensor) -> Batch:
        names = [part.name for part in fields(Batch)][:GATHERED]
        sources = [getattr(held, name) for name in names]
        if self._place is None:
            made: dict[str, Any] = {
                n: s.new_empty(len(which), *s.shape[1:]) for n, s in zip(names, sources, strict=True)
            }
            made |= {name: counts.new_empty(()) for name in ("events", "observed_events")}
            self._place = Batch(**made, documents=len(which), rows=slice(0, len(which)))
        parts = self._place.parts()
        assert self.gather is not None
        self.gather(
            which, sources, [parts[name] for name in names], counts, [parts["events"], parts["observed_events"]]
        )
        return self._place

    def _load(self, shard: int) -> _Shard:
        if self._held is None or self._held[0] != shard:
            rows = slice(shard * self.shard_rows, shard * self.shard_rows + self._rows(shard))
            self._held = (shard, load_rows(self.split, rows, self.observation, self.device))
        return self._held[1]


def load_rows(split: Split, rows: slice, observation: Observation, device: torch.device) -> _Shard:
    """Rows of a split as tensors on a device, with what is seen of their frames."""
    a, seen = split.arrays, split.seen(observation, rows)
    lengths = np.ascontiguousarray(a["lengths"][rows])

    wide = torch.int64 if device.type == "cuda" else None  # as batches have them: nothing is left to do for each

    def place(array: Array, kind: torch.dtype | None = None) -> Tensor:
        return torch.from_numpy(np.array(array)).to(device, kind)

    return _Shard(
        tokens=place(a["tokens"][rows].reshape(len(lengths), -1), wide),
        read=place(a["read"][rows].reshape(len(lengths), -1), wide),
        mask=place(np.arange(seen.observed.shape[1]) < lengths[:, None]),
        frames=place(seen.frames, wide),
        weights=place(seen.weights),
        observed=place(seen.observed.astype(np.float32)),
        confidence=place(seen.confidence),
        reference=place(a["reference"][rows], wide),
        lengths=lengths,
        observed_events=seen.observed.sum(1),
    )


def _device_bytes(split: Split, device: torch.device) -> int:
    """How much a split takes there; on a GPU its numbers are twice as wide."""
    return split.nbytes() * (2 if device.type == "cuda" else 1)


def fits(size: int, device: torch.device) -> bool:
    """Whether so many bytes may be held on the device beside the model: half of what is free there now."""
    if device.type == "cuda":
        return size < torch.cuda.mem_get_info(device)[0] // 2
    try:
        return size < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):  # not told on this system
        return size < 2**31


class Corpus:
    """A vocabulary, a frame list and three splits."""

    def __init__(self, path: Path, meta: dict[str, Any], vocabulary: Vocabulary, frames: list[str]) -> None:
        self.path, self.meta, self.vocabulary, self.frames = path, meta, vocabulary, frames

    @classmethod
    def load(cls, path: str | Path) -> Corpus:
        """Open a dataset directory."""
        path = Path(path)
        try:
            meta = json.loads((path / "corpus.json").read_text("utf-8"))
            if not isinstance(meta, dict) or meta.get("format") != FORMAT:
                found = meta.get("format") if isinstance(meta, dict) else None
                raise InputError(f"expected a dataset of format {FORMAT}, found {found!r}", str(path))
            corpus = cls(path, meta, read_vocabulary(path), read_list(path / "frames.txt"))
            corpus._check()
            return corpus
        except FileNotFoundError as error:
            missing = os.path.basename(str(error.filename))
            raise InputError(f"not a dataset directory: {missing} is missing", str(path)) from None
        except (ValueError, KeyError, TypeError, EOFError, OSError) as error:
            raise InputError(f"not a dataset directory, or a damaged one: {error}", str(path)) from None

    def _check(self) -> None:
        """Open everything, so that a damaged dataset says so when it is loaded and not in the middle of training."""
        words, frames = len(self.vocabulary), len(self.frames)
        if (words, len(self.vocabulary.lemmas), frames) != (self.meta["words"], words, self.meta["frames"]):
            raise ValueError("a list of words or frames is cut short")
        if tuple(self.vocabulary.words[: len(SPECIAL)]) != SPECIAL or len(self.vocabulary.index) != words:
            raise ValueError("vocabulary.txt is not a vocabulary")
        self.fingerprint, self.has_frames  # noqa: B018
        for name, split in self.splits.items():
            rows, a = int(self.meta["rows"][name]), split.arrays
            if any(len(array) != rows for array in a.values()):
                raise ValueError(f"the arrays of {name}/ differ in length")
            shapes = [a[each].shape[1:] for each in ("tokens", "read", "reference", "confidence", "keys")]
            if shapes != [*[(self.events, TOKENS)] * 2, *[(self.events,)] * 3]:
                raise ValueError(f"the arrays of {name}/ have other shapes than {self.events} events a document")
            if a["knowledge_frames"].shape != a["knowledge_weights"].shape or a["knowledge_frames"].ndim != 3:
                raise ValueError(f"the arrays of {name}/ differ in shape")
            if any(array.dtype.kind not in "iuf" for array in a.values()):
                raise ValueError(f"an array of {name}/ holds no numbers")
        if (self.path / "vectors.npy").exists():
            names = ("vectors.npy", "vectors_found.npy", "vectors_beyond.npy")
            vectors, found, beyond = (np.load(self.path / name, mmap_mode="r") for name in names)
            if vectors.ndim != 2 or (len(vectors), *found.shape) != (words, words):
                raise ValueError("the word vectors are of another vocabulary")
            if beyond.shape != (len(self.vocabulary.beyond), vectors.shape[1]):
                raise ValueError("the word vectors beyond the vocabulary are not those of beyond.txt")

    @classmethod
    def build(
        cls,
        documents: Iterable[Document] | None = None,
        out: str | Path | None = None,
        *,
        train: Iterable[Document] | None = None,
        valid: Iterable[Document] | None = None,
        test: Iterable[Document] | None = None,
        vectors: str | Path | None = None,
        world: Any = None,
        force: bool = False,
        **settings: Any,
    ) -> Corpus:
        """Make a corpus of documents, split by their ids, or of three sets of documents given apart.

        Without `out` it lives in a temporary directory for as long as the object does. `world` is the World the
        documents were sampled from, so that evaluation can show the exact optimum.
        """
        chosen = Settings(**settings)
        given = {"train": train, "valid": valid, "test": test}
        if (documents is None) == (train is None):
            raise RevupError("give either documents, or train (and valid, test)")
        temporary = out is None
        target = Path(tempfile.mkdtemp(prefix="revup-")) / "corpus" if out is None else Path(out)
        if world is not None:  # its exact optimum needs the documents themselves
            documents = None if documents is None else list(documents)
            given = {name: None if part is None else list(part) for name, part in given.items()}
        with assembling(target, force) as work:
            paths = _encode_all(documents, given, chosen, work)
            about = None if world is None else _about_world(world, documents, given, chosen)
            merge(paths, work / "dataset", chosen, vectors=vectors, world=about)
        corpus = cls.load(target)
        if temporary:
            weakref.finalize(corpus, shutil.rmtree, target.parent, ignore_errors=True)
        return corpus

    @property
    def splits(self) -> dict[str, Split]:
        return {name: self.split(name) for name in SPLITS}

    def split(self, name: str) -> Split:
        if name not in SPLITS:
            raise RevupError(f"unknown split '{name}': one of {', '.join(SPLITS)}")
        folder = self.path / name
        arrays = {array: np.load(folder / f"{array}.npy", mmap_mode="r") for array in Split.NAMES}
        return Split(name, arrays, lambda: read_ids(folder / "ids.jsonl"), len(self.frames))

    @property
    def settings(self) -> Settings:
        return Settings(**{**self.meta["settings"], "split": tuple(self.meta["settings"]["split"])})

    @property
    def events(self) -> int:
        """M: how many events a window has at most."""
        return self.settings.events

    @property
    def has_frames(self) -> bool:
        """Whether the frames have names; a corpus without any has unnamed classes instead."""
        return bool(self.meta["named_frames"])

    @property
    def fingerprint(self) -> str:
        """A digest of everything a model could learn from here."""
        return str(self.meta["fingerprint"])

    @property
    def statistics(self) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads((self.path / "statistics.json").read_text("utf-8")))

    def vectors(self) -> tuple[Array, Array] | None:
        """Pretrained vectors [V + X, d] of the words and of X beyond them, and which have one, where there are any."""
        if not (self.path / "vectors.npy").exists():
            return None
        vectors, found, beyond = (np.load(self.path / f"vectors{part}.npy") for part in ("", "_found", "_beyond"))
        return np.concatenate([vectors, beyond]), np.concatenate([found, np.ones(len(beyond), bool)])


def encode_documents(
    documents: Iterable[Document], vocabulary: Vocabulary, frames: Sequence[str], events: int, window: str = "all"
) -> Split:
    """Documents as an unsaved split in an existing vocabulary and frame list (for predicting on new ones)."""
    chunk = encode(documents, "new", events, window)
    arrays = renumber(chunk, vocabulary, {frame: number for number, frame in enumerate(frames)})
    return Split("new", arrays, lambda: chunk.ids, len(frames))


# ---- building -------------------------------------------------------------------------------------------


def _about_world(
    world: Any, documents: Iterable[Document] | None, given: dict[str, Iterable[Document] | None], settings: Settings
) -> dict[str, Any]:
    """The world a corpus was sampled from, and the best any model can reach on its valid and test documents."""
    parts: dict[str, list[Document]] = {name: list(part or ()) for name, part in given.items()}
    for document in documents or ():
        parts[split_of(document.id, settings.split)].append(document)
    whole = all(len(document.events) <= settings.events for document in parts["test"])
    optimum = {name: world.optimum(parts[name]) for name in ("valid", "test") if parts[name] and whole}
    return {"world": world.config(), "optimum": optimum}


def _encode_all(
    documents: Iterable[Document] | None, given: dict[str, Iterable[Document] | None], settings: Settings, work: Path
) -> list[Path]:
    """Encode documents in chunks written to `work`; memory holds one chunk at a time."""
    paths: list[Path] = []

    def add(part: list[Document], split: str) -> None:
        if part:
            paths.append(work / f"chunk-{len(paths):06d}.npz")
            encode(part, split, settings.events, settings.window).save(paths[-1])

    for split, source in given.items():
        stream = iter(source or ())
        while part := list(islice(stream, CHUNK_DOCUMENTS)):
            add(part, split)
    stream = iter(documents or ())
    while part := list(islice(stream, CHUNK_DOCUMENTS)):
        for split in SPLITS:
            add([d for d in part if split_of(d.id, settings.split) == split], split)
    return paths


__all__ = [
    "BOS",
    "NONE",
    "NULL",
    "PAD",
    "SLOTS",
    "SPLITS",
    "TOKENS",
    "TUP",
    "UNK",
    "UNSEEN",
    "Batch",
    "Batches",
    "Corpus",
    "Settings",
    "Split",
    "Vocabulary",
    "assembling",
    "encode_documents",
    "merge",
    "read_list",
    "read_vocabulary",
    "refuse_existing",
    "replace_directory",
    "write_list",
    "write_vocabulary",
]
