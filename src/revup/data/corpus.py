"""A corpus: vocabulary, frame list and splits, opened from a dataset directory or built from documents."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from revup.data.dataset import ARRAYS, FILES, FORMAT, SPLITS, Settings, read_ids, split_of
from revup.data.encode import Array, encode
from revup.data.events import Document
from revup.data.knowledge import Observation, Seen, observe
from revup.data.merge import merge
from revup.data.renumber import renumber_chunk
from revup.data.vocabulary import Vocabulary, read_vocabulary
from revup.errors import InputError, RevupError
from revup.io.digests import check_digest
from revup.io.files import read_json, read_list
from revup.io.folders import atomic_folder

CHUNK_DOCUMENTS = 4096


class Split:
    """One split of a corpus: memory-mapped arrays of N windows of at most M events.

    tokens, read [N, M, 5]; lengths [N]; reference, confidence, keys [N, M]; knowledge_frames, knowledge_weights
    [N, M, W]; document [N], an index into `ids`.
    """

    NAMES = tuple(ARRAYS)

    def __init__(self, name: str, arrays: dict[str, Array], ids: Callable[[], list[str]], classes: int) -> None:
        self.name, self.arrays, self._ids, self.classes = name, arrays, ids, classes

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
        """Return the side knowledge of these rows as a model gets it."""
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

    def __init__(self, path: Path, meta: dict[str, Any], vocabulary: Vocabulary, frames: list[str]) -> None:
        self.path, self.meta, self.vocabulary, self.frames = path, meta, vocabulary, frames

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
        meta = read_json(path, "corpus.json", "dataset")
        found = meta.get("format")
        if found != FORMAT:
            message = f"expected a dataset of format {FORMAT}, found {found!r}: prepare it again with revup prepare"
            raise InputError(message, str(path))
        check_digest(path, verify, reads=FILES)
        return cls(path, meta, read_vocabulary(path), read_list(path / "frames.txt"))

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
        """Build a corpus from documents in memory; `revup.prepare` does so from files.

        Args:
            documents: Documents to split by their ids in the shares `split`.
            out: The dataset directory to write; a temporary one, removed with the object, where absent.
            train, valid, test: In place of `documents`: the documents of each split.
            vectors: A text file of pretrained word vectors.
            world: The `World` the documents were sampled from; its exact optimum is kept for evaluation.
            force: Replace `out` if it exists.
            **settings: Fields of `revup.data.dataset.Settings`, such as events=5 or window="all".

        Returns:
            The corpus, opened from the dataset directory.
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
        with atomic_folder(target, force) as folder:
            paths = _encode_all(documents, given, chosen, folder.parent)
            about = None if world is None else _about_world(world, documents, given, chosen)
            merge(paths, folder, chosen, vectors=vectors, world=about)
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
        arrays = {array: np.load(folder / f"{array}.npy", mmap_mode="r") for array in Split.NAMES}
        return Split(name, arrays, lambda: read_ids(folder / "ids.jsonl"), len(self.frames))

    @property
    def settings(self) -> Settings:
        """The settings it was made with."""
        return Settings(**{**self.meta["settings"], "split": tuple(self.meta["settings"]["split"])})

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
        return cast(dict[str, Any], json.loads((self.path / "statistics.json").read_text("utf-8")))

    def vectors(self) -> tuple[Array, Array] | None:
        """Return vectors [V + X, d] of the vocabulary and X further words, and which rows have one; or None."""
        if not (self.path / "vectors.npy").exists():
            return None
        vectors, found, beyond = (np.load(self.path / f"vectors{part}.npy") for part in ("", "_found", "_beyond"))
        return np.concatenate([vectors, beyond]), np.concatenate([found, np.ones(len(beyond), bool)])


def encode_documents(
    documents: Iterable[Document], vocabulary: Vocabulary, frames: Sequence[str], events: int, window: str = "all"
) -> Split:
    """Encode documents as a split in memory, in an existing vocabulary and frame list.

    Args:
        documents: The documents.
        vocabulary: The vocabulary.
        frames: The names of the frames.
        events: The maximum number of events in a window.
        window: How windows are cut (`revup.data.encode.windows`).
    """
    chunk = encode(documents, "new", events, window)
    arrays = renumber_chunk(chunk, vocabulary, frames)
    return Split("new", arrays, lambda: chunk.ids, len(frames))


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
    documents: Iterable[Document] | None, given: dict[str, Iterable[Document] | None], settings: Settings, work: Path
) -> list[Path]:
    """Encode documents in chunks written to `work`, one in memory at a time."""
    paths: list[Path] = []
    for own, source in (*given.items(), (None, documents)):
        stream = iter(source or ())
        while part := list(islice(stream, CHUNK_DOCUMENTS)):
            for split in SPLITS:
                chosen = [document for document in part if (own or split_of(document.id, settings.split)) == split]
                if chosen:
                    paths.append(work / f"chunk-{len(paths):06d}.npz")
                    encode(chosen, split, settings.events, settings.window).save(paths[-1])
    return paths
