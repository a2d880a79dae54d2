"""The trained model that users hold: predict, embed, save, load."""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import revup
from revup.data.batches import Batch, Batches
from revup.data.corpus import Split, encode_documents
from revup.data.events import Document
from revup.data.knowledge import Observation
from revup.data.vocabulary import Vocabulary, read_vocabulary, write_vocabulary
from revup.errors import InputError, RevupError
from revup.inference.measures import BATCH
from revup.inference.run_directory import FORMAT, WEIGHTS, RunState, check_files, path_from, read_config, seal
from revup.inference.weights import check_shapes, load_weights
from revup.io.files import commit, read_list, write_list, write_text
from revup.io.folders import atomic_folder
from revup.io.tensors import load_tensors, save_tensors
from revup.models.base import Model, Sizes
from revup.ops.device import choose_device
from revup.ops.precision import check_precision, precision
from revup.settings import Config, build_module

DOCUMENTS_AT_ONCE = 2000  # that predict and embed hold


class Trained:
    """A model with its vocabulary and frames, made by `revup.train` or `revup.load`.

    Attributes:
        module: The network or table of counts.
        config: All settings that it was trained with.
        vocabulary: The words that it knows.
        frames: The frames that it predicts, in the order of the columns of `probabilities`.
        events: M, the events of a window.
        data: About the dataset: fingerprint, path as seen from the run directory, whether its frames have names.
        path: The run directory, if there is one.
        precision: float32 or bf16: how it predicts and embeds.
        state: How far training went.
        figures: What the model reported about its data before training.
    """

    def __init__(
        self,
        module: Model,
        config: Config,
        vocabulary: Vocabulary,
        frames: list[str],
        events: int,
        data: Mapping[str, Any],
        path: Path | None = None,
    ) -> None:
        self.module, self.config, self.vocabulary, self.frames = module, config, vocabulary, frames
        self.events, self.data, self.path = events, dict(data), path
        self.precision = "float32"
        self.state = RunState()
        self.figures: dict[str, float] = {}

    def __repr__(self) -> str:
        where = f" of {self.path}" if self.path is not None else ""
        unfinished = "" if self.state.finished else ", training not finished"
        return (
            f"<{self.config.model} model (preset {self.config.preset}){where}: {len(self.frames)} frames, "
            f"{len(self.vocabulary)} words, windows of {self.events} events, on {self.device}{unfinished}>"
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.module.device

    def to(self, device: str | torch.device) -> Trained:
        """Move the weights to a device."""
        self.module.to(device)
        return self

    def encode(self, documents: Iterable[Document]) -> Split:
        """Documents in this model's own vocabulary and frames, cut into consecutive windows of M events."""
        return encode_documents(documents, self.vocabulary, self.frames, self.events)

    def first_window(self, documents: Sequence[Document]) -> Batch:
        """The first M events of some documents as one batch, without any label."""
        split = encode_documents(documents, self.vocabulary, self.frames, self.events, "first")
        return next(Batches(split, Observation(0.0), len(documents), self.device).ordered())

    def probabilities(self, documents: Sequence[Document], revise: bool = False) -> list[NDArray[np.float32]]:
        """The distribution over frames of every event.

        Args:
            documents: What to label.
            revise: Use the labels that the documents carry as side knowledge; otherwise they are ignored.

        Returns:
            One array [events, K] a document, its columns in the order of `frames`.
        """

        def ask(batch: Batch) -> Tensor:
            return self.module.frame_probabilities(batch, revise=revise)

        return self._by_document(documents, Observation(1.0 if revise else 0.0), ask, len(self.frames))

    def predict(
        self, documents: Iterable[Document], top: int = 5, revise: bool = False
    ) -> list[list[list[tuple[str, float]]]]:
        """The most probable frames of every event.

        Args:
            documents: What to label.
            top: How many frames to give for each event.
            revise: Use the labels that the documents carry as side knowledge; otherwise they are ignored.

        Returns:
            Per document, per event: frames with their probabilities, the most probable first.
        """
        return [events for _, events in self.predict_documents(documents, top, revise)]

    def predict_documents(
        self, documents: Iterable[Document], top: int = 5, revise: bool = False
    ) -> Iterator[tuple[Document, list[list[tuple[str, float]]]]]:
        """`predict` as a stream of documents with their predictions, in constant memory.

        On a CPU as many parts as torch has threads are computed at a time, each on one of them, while others are read
        and written: with networks this small that keeps all cores busier than threads inside each operation.
        """
        if not self.module.predicts_frames:  # even where there is no document
            raise RevupError(f"the model {self.config.model} does not predict frames")
        if top < 1:
            raise RevupError(f"top: expected 1 or more, found {top}")
        on_cpu = self.device.type == "cpu"
        workers = torch.get_num_threads() if on_cpu else 1
        size = max(1, min(BATCH, DOCUMENTS_AT_ONCE // (workers + 1)))
        stream = iter(documents)
        waiting: deque[tuple[list[Document], Future[list[list[list[tuple[str, float]]]]]]] = deque()
        with computing_threads(workers, on_cpu) as pool:
            while part := list(islice(stream, size)):
                waiting.append((part, pool.submit(self._best, part, top, revise)))
                if len(waiting) > workers:
                    done, best = waiting.popleft()
                    yield from zip(done, best.result(), strict=True)
            for done, best in waiting:
                yield from zip(done, best.result(), strict=True)

    def _best(self, documents: Sequence[Document], top: int, revise: bool) -> list[list[list[tuple[str, float]]]]:
        """The most probable frames of each event of each document, equally probable ones in the order of `frames`."""
        by_document = self.probabilities(documents, revise)
        rows = torch.from_numpy(np.concatenate(by_document))
        found = rows.topk(min(top, rows.shape[1]), dim=1)
        shares, chosen = found.values.numpy(), found.indices.numpy()
        # topk breaks ties in no defined order: sort the rows that have one
        tied = (rows >= found.values[:, -1:]).sum(1).numpy() > shares.shape[1]
        tied |= (shares[:, 1:] == shares[:, :-1]).any(1)
        if tied.any():
            order = np.argsort(-rows.numpy()[tied], axis=1, kind="stable")[:, : shares.shape[1]]
            shares[tied], chosen[tied] = np.take_along_axis(rows.numpy()[tied], order, axis=1), order
        names, shares, frames = chosen.tolist(), shares.tolist(), self.frames
        events = iter(
            [(frames[k], p) for k, p in zip(each, row, strict=True)] for each, row in zip(names, shares, strict=True)
        )
        return [list(islice(events, len(part))) for part in by_document]

    def embed(self, documents: Iterable[Document]) -> NDArray[np.float32]:
        """A vector per document, [N, d]: the mean of those of its events."""
        return self.embeddings(documents)[0]

    def embeddings(self, documents: Iterable[Document]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Vectors of documents and of their events.

        Args:
            documents: What to embed.

        Returns:
            Vectors of the documents [N, d] and of all their events [E, d]; a document's is the mean of its events',
            and 0 where it has none.

        Raises:
            RevupError: There is no document, or none with an event.
        """
        stream, events = iter(documents), list[NDArray[np.float32]]()
        while part := list(islice(stream, DOCUMENTS_AT_ONCE)):
            events += self._by_document(part, Observation(0.0), lambda batch: self.module.embed(batch)[1], 0)
        size = max((rows.shape[1] for rows in events), default=0)
        if not size:
            raise RevupError("no document with events to embed")
        whole = [rows.mean(0) if len(rows) else np.zeros(size, np.float32) for rows in events]
        return np.stack(whole), np.concatenate([rows for rows in events if len(rows)])

    @torch.no_grad()
    def _by_document(
        self, documents: Sequence[Document], observation: Observation, ask: Callable[[Batch], Tensor], columns: int
    ) -> list[NDArray[np.float32]]:
        """What `ask` says of every event [B, M, d], as one array [events, d] a document ([0, columns] without any)."""
        if not any(document.events for document in documents):
            return [np.zeros((0, columns), np.float32) for _ in documents]
        split = self.encode(documents)
        self.module.eval()
        with precision(self.precision, self.device):
            parts = [
                ask(batch)[batch.mask].float().cpu().numpy()
                for batch in Batches(split, observation, BATCH, self.device).ordered()
            ]
        owner = np.repeat(split.arrays["document"], split.arrays["lengths"])
        return np.split(np.concatenate(parts), np.searchsorted(owner, np.arange(1, len(documents))))

    def generate(self, n: int = 5, **options: Any) -> list[Document]:
        """Write n documents: `revup.generate` explains the options."""
        from revup.inference.generate import generate

        return generate(self, n, **options)

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the model as a run directory, atomically.

        Args:
            path: The directory.
            force: Replace a directory that exists.
        """
        data = dict(self.data)
        if self.path is not None and data.get("path"):  # of the dataset, relative to the run directory
            data["path"] = path_from(self.path / data["path"], Path(path))
        with atomic_folder(path, force) as folder:
            self.write_to(folder, data)
            if self.path is not None and (self.path / "metrics.jsonl").exists():
                shutil.copy(self.path / "metrics.jsonl", folder)

    def write_to(self, folder: Path, data: Mapping[str, Any], weights: bool = True) -> None:
        """Write the files of a run directory.

        Args:
            folder: An empty directory.
            data: What config.json says about the dataset.
            weights: Write the weights too.
        """
        self.write_lists(folder)
        if weights:
            self.save_weights(folder)
        about = {
            "format": FORMAT,
            "version": revup.__version__,
            "commit": commit(),
            **self.config.to_json(),
            "events": self.events,
            "data": data,
        }
        write_text(folder / "config.json", json.dumps(about, indent=1) + "\n")
        seal(folder, self.state)

    def write_lists(self, folder: Path) -> None:
        """Write the vocabulary and the frame list."""
        write_vocabulary(folder, self.vocabulary)
        write_list(folder / "frames.txt", self.frames)

    def save_weights(self, folder: Path, weights: Mapping[str, torch.Tensor] | None = None) -> None:
        """Write model.safetensors: the module's own weights, or others of it."""
        chosen = self.module.state_dict() if weights is None else dict(weights)
        save_tensors(folder / WEIGHTS, chosen, {"model": self.config.model})


@contextmanager
def computing_threads(workers: int, alone: bool) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads to compute in; with `alone`, torch runs each operation on one thread."""
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1 if alone else threads,)) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)


def load(
    path: str | Path, device: str | None = "cpu", precision: str = "float32", *, allow_unfinished: bool = False
) -> Trained:
    """Open a run directory. Nothing in it can run code, and nothing is allocated before its sizes are checked.

    Args:
        path: The run directory.
        device: cpu or cuda; None: cuda where there is one.
        precision: float32, or bf16, which is faster where the processor supports it and differs after two digits.
        allow_unfinished: Open a run whose training has not finished, with the best weights that it has so far.

    Returns:
        The model.

    Raises:
        InputError: Not a run directory, a damaged one, one of another format, or one that has not finished.
    """
    folder = Path(path)
    check_precision(precision)
    config, about = read_config(folder)
    state = check_files(folder, allow_unfinished)
    try:
        vocabulary = read_vocabulary(folder)
        frames = read_list(folder / "frames.txt")
    except FileNotFoundError as error:
        raise InputError(f"not a run directory: {Path(error.filename).name} is missing", str(folder)) from None
    sizes = Sizes(len(vocabulary), len(frames), about["events"])
    tensors, meta = load_tensors(folder / WEIGHTS)
    if meta.get("model") != config.model:
        raise InputError(f"expected a {config.model} model, found {meta.get('model')}", str(folder / WEIGHTS))
    check_shapes(tensors, folder / WEIGHTS, config, sizes)
    module = build_module(config, sizes)
    load_weights(module, tensors, folder / WEIGHTS)
    module.eval()
    module.to(choose_device(device))
    trained = Trained(module, config, vocabulary, frames, sizes.events, about["data"], folder)
    trained.precision, trained.state, trained.figures = precision, state, state.figures
    return trained


def opened(model: Trained | str | Path) -> Trained:
    """The model itself, or that of a run directory."""
    return model if isinstance(model, Trained) else load(model)
