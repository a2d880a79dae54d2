"""A corpus: vocabulary, frame list and splits, opened from a dataset directory or built from documents."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from revup.data import stored
from revup.data.dataset import ARRAYS, FILES, SPLITS, Settings, as_given, split_of
from revup.data.documents import as_documents
from revup.data.encode import NO_ENTRY, Array, encode
from revup.data.event_vectors import REDUCED, Reduction, VectorSource, vectors_of
from revup.data.events import Document
from revup.data.knowledge import FrameSet, Observation, Seen, document_key, event_keys, observe
from revup.data.lexicon import Lexicon
from revup.data.merge import given_vectors, merge
from revup.data.renumber import renumber, renumber_chunk
from revup.data.source_evidence import Source
from revup.data.sources import TrustedLabels, sources_of
from revup.data.sparse_table import Table, shared_predicates
from revup.data.vocabulary import Vocabulary, read_vocabulary
from revup.data.window_choice import Choice, Read, both_ways, choose
from revup.errors import InputError, RevupError
from revup.fields import made
from revup.io.digests import Stamp, as_one, check_digest, digest_stamp
from revup.io.files import read_list
from revup.io.folders import atomic_folder

CHUNK_DOCUMENTS = 4096


class Split:
    """One split of a corpus: memory-mapped arrays of N windows of at most M events.

    `revup.data.dataset.ARRAYS` has the shapes of its arrays; `document` [N] is an index into `ids`.

    Attributes:
        name: train, valid or test; "new" for documents in memory.
        arrays: The arrays by name.
        classes: The number of frames K.
        sources: The names of the sources that the array `source_name` numbers.
        trusted: Reviewed labels, if there are any.
    """

    NAMES = tuple(ARRAYS)

    def __init__(
        self,
        name: str,
        arrays: dict[str, Array],
        ids: Callable[[], list[str]],
        classes: int,
        sources: Sequence[str] = (),
        frame_set: Callable[[bool], FrameSet] | None = None,
        trusted: TrustedLabels | None = None,
    ) -> None:
        self.name, self.arrays, self._ids, self.classes = name, arrays, ids, classes
        self.sources, self._frame_set, self.trusted = tuple(sources), frame_set, trusted

    def __len__(self) -> int:
        return len(self.arrays["lengths"])

    @property
    def ids(self) -> list[str]:
        """The ids of the documents that the windows come from; `arrays["document"]` indexes them."""
        return self._ids()

    @property
    def events(self) -> int:
        """The number of events in all windows."""
        return int(np.sum(self.arrays["lengths"], dtype=np.int64))

    def seen(self, observation: Observation, rows: slice = slice(None)) -> Seen:
        """Return what the keys frame, frames and candidates say of these rows, as it stands: assumed to be correct."""
        a = self.arrays
        rate = observation.annotators()
        observation = replace(observation, eta=rate[0], sources="") if rate else observation
        return observe(
            a["keys"][rows],
            a["knowledge_frames"][rows],
            a["knowledge_weights"][rows],
            a["confidence"][rows],
            observation,
            self._known(observation),
            a["knowledge_kind"][rows],
            a["lemma"][rows],
        )

    def told(self, observation: Observation, rows: slice = slice(None)) -> dict[str, Source]:
        """Return what every source says of the events of these rows; items are numbered from 0 in their order."""
        arrays = {name: array[rows] for name, array in self.arrays.items()}
        return sources_of(arrays, self.sources, observation, self._known(observation), self.trusted)

    def _known(self, observation: Observation) -> FrameSet:
        if self._frame_set is None:
            return FrameSet(np.arange(self.classes, dtype=np.int32))
        return self._frame_set(observation.noise == "confusable")

    def nbytes(self) -> int:
        """Return the size of all arrays in bytes."""
        return sum(array.nbytes for array in self.arrays.values())


class Corpus:
    """A vocabulary, a frame list and three splits (train, valid, test).

    Attributes:
        path: The dataset directory.
        meta: The contents of its corpus.json.
        vocabulary: The vocabulary.
        frames: The names of the frames.
    """

    def __init__(
        self,
        path: Path,
        meta: dict[str, Any],
        vocabulary: Vocabulary,
        frames: list[str],
        stamp: Stamp | None = None,
    ) -> None:
        self.path, self.meta, self.vocabulary, self.frames = path, meta, vocabulary, frames
        self._stamp = stamp or digest_stamp(path)  # of the directory that was opened: arrays are read later
        self.trusted: TrustedLabels | None = None
        self.labels_path: Path | None = None
        self._confusable: FrameSet | None = None
        self._checked: set[str] = set()  # splits whose numbers were found to be in their ranges

    @classmethod
    def opened(cls, corpus: Corpus | str | Path) -> Corpus:
        """Return a corpus as it is, or the one in a dataset directory."""
        if isinstance(corpus, (str, Path)):
            return cls.load(corpus)
        if not isinstance(corpus, Corpus):
            found = type(corpus).__name__
            raise RevupError(f"expected a corpus or its directory, found a {found}: revup.Corpus.build makes one")
        return corpus

    @classmethod
    def load(cls, path: str | Path, verify: bool = False) -> Corpus:
        """Open a dataset directory.

        Args:
            path: The directory.
            verify: Compare large arrays with their digest in full, not only by size and sampled blocks.

        Raises:
            InputError: It is not a dataset directory, is one of an older format, or a file of it was changed.
        """
        path = Path(path)
        stamp = digest_stamp(path)
        with as_one(path, stamp):
            meta = stored.read_meta(path)
            check_digest(path, verify, reads=FILES)
            stored.check_meta(path, meta)
            try:
                return cls(path, meta, read_vocabulary(path), read_list(path / "frames.txt"), stamp)
            except FileNotFoundError as error:
                raise InputError(f"damaged: {Path(error.filename).name} is missing", str(path)) from None

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
        lexicon: str | Path | Lexicon | None = None,
        event_vectors: str | Path | None = None,
        encoder: str | None = None,
        world: Any = None,
        force: bool = False,
        **settings: Any,
    ) -> Corpus:
        """Build a corpus from documents in memory; `revup.prepare` does so from files.

        Args:
            documents: Documents, or dicts of their JSON form, to split by their ids in the shares `split`.
            out: The dataset directory to write; a temporary one, removed with the object, where absent.
            train, valid, test: In place of `documents`: the documents of each split.
            vectors: A text file of pretrained word vectors.
            lexicon: A lexicon, or its path: the frames that predicates may have.
            event_vectors, encoder: Vectors of events, as in `revup.prepare`.
            world: The `World` the documents were sampled from; its exact optimum is kept for evaluation.
            force: Replace `out` if it exists.
            **settings: Fields of `revup.data.dataset.Settings`, such as events=5 or window="all".

        Returns:
            The corpus, opened from the dataset directory.
        """
        chosen = made(Settings, as_given(settings))
        given = {"train": train, "valid": valid, "test": test}
        if (documents is None) == (train is None):
            raise RevupError("give either documents, or train (and valid, test)")
        temporary = out is None
        target = Path(tempfile.mkdtemp(prefix="revup-")) / "corpus" if out is None else Path(out)
        if world is not None:  # its exact optimum needs the documents themselves
            documents = None if documents is None else list(documents)
            given = {name: None if part is None else list(part) for name, part in given.items()}
        with atomic_folder(target, force) as folder:
            known = Lexicon.load(lexicon) if isinstance(lexicon, (str, Path)) else lexicon
            more = given_vectors(event_vectors, encoder)
            windows = _encode_all(documents, given, chosen, folder.parent, known, encoder)
            about = None if world is None else _about_world(world, documents, given, chosen)
            merge(windows, folder, vectors=vectors, lexicon=known, event_vectors=more, world=about)
        corpus = cls.load(target)
        if temporary:
            weakref.finalize(corpus, shutil.rmtree, target.parent, ignore_errors=True)
        return corpus

    @property
    def splits(self) -> dict[str, Split]:
        """All three splits by name."""
        return {name: self.split(name) for name in SPLITS}

    def split(self, name: str) -> Split:
        """Return the split "train", "valid" or "test"."""
        if name not in SPLITS:
            raise RevupError(f"unknown split '{name}': one of {', '.join(SPLITS)}")
        folder = self.path / name
        with as_one(self.path, self._stamp):
            arrays = stored.open_split(folder, self.events)
            if name not in self._checked:
                entries = 0 if self.lexicon is None else len(self.lexicon.keys)
                stored.check_numbers(folder, arrays, self.vocabulary, len(self.frames), len(self.sources), entries)
                self._checked.add(name)
            if (folder / f"{REDUCED}.npy").exists():
                shape = len(arrays["lengths"]), self.events, None
                arrays[REDUCED] = stored.open_array(folder / f"{REDUCED}.npy", "<f4", shape)
        ids = partial(stored.read_ids, folder / "ids.jsonl")
        return Split(name, arrays, ids, len(self.frames), self.sources, self.frame_set, self.trusted)

    @property
    def sources(self) -> list[str]:
        """The names of the sources that events carry beside their own frame."""
        return list(self.meta.get("sources", ()))

    def frame_set(self, confusable: bool) -> FrameSet:
        """Return what replaces wrong labels: the training documents' frames and, if asked, the frames of each lemma."""
        listed = self.meta.get("training_frames")
        frames = np.arange(len(self.frames), dtype=np.int32) if listed is None else np.array(listed, np.int32)
        if not confusable:
            return FrameSet(frames)
        if self._confusable is None:
            arrays = self.split("train").arrays
            a = {name: np.asarray(arrays[name]) for name in ("lemma", "reference")}
            use = (a["reference"] >= 0) & (a["lemma"] >= 0)
            lemma, frame, width = (
                a["lemma"][use].astype(np.int64),
                a["reference"][use].astype(np.int64),
                len(self.frames),
            )
            pairs = np.unique(lemma * width + frame)
            lemmas = Table(pairs // width, pairs % width, np.ones(len(pairs)), width)
            self._confusable = FrameSet(frames, lemmas, shared_predicates(lemma, frame, width))
        return self._confusable

    @cached_property
    def lexicon(self) -> Lexicon | None:
        """The lexicon that it was prepared with, if any."""
        path = self.path / "lexicon.csv"
        with as_one(self.path, self._stamp):
            return Lexicon.load(path) if path.exists() else None

    @cached_property
    def reduction(self) -> Reduction | None:
        """How its event vectors were reduced; None without any."""
        with as_one(self.path, self._stamp):
            return Reduction.load(self.path)

    def with_labels(self, labels: Mapping[tuple[str, int], str], path: str | Path | None = None) -> Corpus:
        """Return the corpus with reviewed labels, a source that is trusted.

        Args:
            labels: (document id, index of the event in the document) → frame.
            path: The file that they come from.

        Raises:
            InputError: A frame is not in the frame list, or there is no label of any event of the dataset.
        """
        name = "" if path is None else str(path)
        number = {frame: place for place, frame in enumerate(self.frames)}
        for (identity, index), frame in labels.items():
            if frame not in number:
                where = f"document {identity}, event {index}"
                problem = f"the frame '{frame[:60]}' of {where} is not in the frame list of {self.path}"
                raise InputError(problem, name, field="frame")
        documents = np.array([document_key(identity) for identity, _ in labels], np.uint64)
        keys = event_keys(documents, np.array([index for _, index in labels], np.int64))
        if not any(np.isin(keys, split.arrays["keys"]).any() for split in self.splits.values()):
            raise InputError(f"none of its {len(labels)} reviewed labels is of an event of {self.path}", name)
        order = np.argsort(keys)
        frames = np.array([number[frame] for frame in labels.values()], np.int32)
        corpus = Corpus(self.path, self.meta, self.vocabulary, self.frames, self._stamp)
        corpus.trusted = TrustedLabels(keys[order], frames[order])
        corpus.labels_path = None if path is None else Path(path)
        return corpus

    @property
    def settings(self) -> Settings:
        """The settings it was made with."""
        return stored.settings_of(self.meta)

    @property
    def events(self) -> int:
        """The maximum number of events in a window (M)."""
        return self.settings.events

    @property
    def has_frames(self) -> bool:
        """Whether frames have names; a corpus in which no event has a frame has unnamed classes."""
        return bool(self.meta["named_frames"])

    @property
    def fingerprint(self) -> str:
        """A digest of lists and arrays, which identifies the data that a model was trained on."""
        return str(self.meta["fingerprint"])

    @property
    def statistics(self) -> dict[str, Any]:
        """The contents of its statistics.json."""
        return stored.read_statistics(self.path)

    def as_published(self) -> Corpus:
        """Return the corpus as the published presets see it: the training frames and the key `frame` alone."""
        more = self.meta.get("training_frames"), self.lexicon, self.reduction
        if not self.sources and all(part is None for part in more):
            return self
        return _Published(self)

    def vectors(self) -> tuple[Array, Array] | None:
        """Return vectors [V + X, d] of the vocabulary and X further words, and which rows have one; or None."""
        if not (self.path / "vectors.npy").exists():
            return None
        words, further = len(self.vocabulary), len(self.vocabulary.beyond)
        with as_one(self.path, self._stamp):
            vectors = stored.open_array(self.path / "vectors.npy", "<f4", (words, None), mapped=False)
            found = stored.open_array(self.path / "vectors_found.npy", "?", (words,), mapped=False)
            shape = further, vectors.shape[1]
            beyond = stored.open_array(self.path / "vectors_beyond.npy", "<f4", shape, mapped=False)
        return np.concatenate([vectors, beyond]), np.concatenate([found, np.ones(len(beyond), bool)])


class _Published(Corpus):
    """A corpus without its lexicon, the frames that only the lexicon names, further sources, and event vectors."""

    def __init__(self, whole: Corpus) -> None:
        names = [whole.frames[number] for number in whole.frame_set(False).frames]
        meta = {**whole.meta, "training_frames": None, "sources": []}
        super().__init__(whole.path, meta, whole.vocabulary, names, whole._stamp)
        self._whole = whole
        self._splits: dict[str, Split] = {}

    @property
    def lexicon(self) -> Lexicon | None:
        return None

    @property
    def reduction(self) -> Reduction | None:
        return None

    def split(self, name: str) -> Split:
        if name not in self._splits:
            found, words = self._whole.split(name), self.vocabulary
            arrays = renumber(found.arrays, words, self._whole.frames, words, self.frames)
            arrays |= {key: array[..., :0] for key, array in arrays.items() if key.startswith("source_")}
            arrays["entry"] = np.full_like(arrays["entry"], NO_ENTRY)
            arrays.pop(REDUCED, None)
            self._splits[name] = Split(name, arrays, lambda: found.ids, len(self.frames), (), self.frame_set)
        return self._splits[name]


def encode_documents(
    documents: Iterable[Document],
    vocabulary: Vocabulary,
    frames: Sequence[str],
    events: int,
    window: str = "all",
    lexicon: Lexicon | None = None,
    vectors: VectorSource | None = None,
) -> Split:
    """Encode documents as a split in memory, in an existing vocabulary and frame list.

    Args:
        documents: The documents.
        vocabulary: The vocabulary.
        frames: The names of the frames.
        events: The maximum number of events in a window.
        window: How windows are cut (`revup.data.encode.windows`).
        lexicon: The lexicon whose entries events are looked up in.
        vectors: What gives events their vectors, as the arrays RAW and FOUND.
    """
    chunk = encode(documents, "new", events, window, lexicon, vectors)
    arrays = renumber_chunk(chunk, vocabulary, frames)
    return Split("new", arrays, lambda: chunk.ids, len(frames), chunk.sources)


# ---- building -------------------------------------------------------------------------------------------


def _about_world(
    world: Any, documents: Iterable[Document] | None, given: dict[str, Iterable[Document] | None], settings: Settings
) -> dict[str, Any]:
    """Return the arguments of the world, and its exact optimum on the valid and test documents."""
    parts: dict[str, list[Document]] = {name: list(part or ()) for name, part in given.items()}
    for document in documents or ():
        parts[split_of(document.id, settings.split)].append(document)
    whole = all(len(document.events) <= settings.events for document in parts["test"])
    optimum = {name: world.optimum(parts[name]) for name in ("valid", "test") if parts[name] and whole}
    return {"world": world.config(), "optimum": optimum}


def _encode_all(
    documents: Iterable[Document] | None,
    given: dict[str, Iterable[Document] | None],
    settings: Settings,
    work: Path,
    lexicon: Lexicon | None,
    encoder: str | None,
) -> Choice:
    """Encode documents in chunks written to `work`, one in memory at a time."""
    how: dict[str, Any] = {"read": Read(), "lexicon": lexicon, "vectors": vectors_of(encoder)}
    paths: list[Path] = []
    every: list[Path] = []
    for own, part_of in (*given.items(), (None, documents)):
        stream = as_documents(() if part_of is None else part_of)
        while part := list(islice(stream, CHUNK_DOCUMENTS)):
            for split in SPLITS:
                chosen = [document for document in part if (own or split_of(document.id, settings.split)) == split]
                if chosen:
                    framed, whole = both_ways(chosen, split, settings, len(paths), **how)
                    paths.append(work / f"chunk-{len(paths):06d}.npz")
                    framed.save(paths[-1])
                    if whole is not None:
                        every.append(paths[-1].with_suffix(".all.npz"))
                        whole.save(every[-1])
    return choose(paths, every if len(every) == len(paths) else None, settings)
