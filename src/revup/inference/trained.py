"""The trained model that users hold: predict, embed, save."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import revup
from revup.data.batches import Batch
from revup.data.corpus import Split, encode_documents
from revup.data.documents import Given, as_documents
from revup.data.encode import UNK, normal
from revup.data.event_vectors import FOUND, RAW, REDUCED, EventVectors, Reduction, VectorSource, vectors_of
from revup.data.events import Document, Event
from revup.data.knowledge import Observation
from revup.data.lexicon import Lexicon
from revup.data.told import check_knowledge
from revup.data.vocabulary import Vocabulary, write_vocabulary
from revup.errors import InputError, RevupError, RevupWarning
from revup.inference.event_values import event_values, ranked, together
from revup.inference.run_directory import (
    COUNTS,
    LEXICON,
    TEXT,
    WEIGHTS,
    RunState,
    path_from,
    read_metrics,
    seal,
    write_config,
    write_metrics,
)
from revup.inference.streaming import answered
from revup.io.files import write_list
from revup.io.folders import atomic_folder
from revup.io.tensors import save_tensors
from revup.models.base import Model
from revup.settings import Config

if TYPE_CHECKING:
    from revup.inference.abstain import Abstention

DOCUMENTS_AT_ONCE = 2000  # that predict and embed hold
DOCUMENTS_TOGETHER = 128  # that one thread predicts: larger parts are not faster, and small inputs share the cores


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
        lexicon: The dictionary that predicates are looked up in, in training as at prediction.
        reduction: How the event vectors that it was trained with were reduced; None without any.
        vectors: What gives the events of new documents their vectors; None: they have none.
        precision: float32 or bf16: how it predicts and embeds.
        state: How far training went.
        figures: What the model reported about its data before training.
        writer: The same network at the lowest validation perplexity, where that is another epoch (`text_epoch`).
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
        lexicon: Lexicon | None = None,
        reduction: Reduction | None = None,
    ) -> None:
        self.module, self.config, self.vocabulary, self.frames = module, config, vocabulary, frames
        self.events, self.data, self.path, self.lexicon = events, dict(data), path, lexicon
        self.reduction = reduction
        self.vectors: VectorSource | None = None
        self._said = False  # that event vectors are missing
        self.precision = "float32"
        self.state = RunState()
        self.figures: dict[str, float] = {}
        self.writer: Model | None = None

    def __repr__(self) -> str:
        where = f" of {self.path}" if self.path is not None else ""
        unfinished = "" if self.state.finished else ", training not finished"
        return (
            f"<{self.config.model} model (preset {self.config.preset}){where}: {len(self.frames)} frames, "
            f"{len(self.vocabulary)} words, windows of {self.events} events, on {self.device}{unfinished}>"
        )

    @property
    def reliability(self) -> dict[str, dict[str, Any]]:
        """How far each source of labels is right, as estimated in training (`revup.reliability.Reliability`)."""
        counts = self.module.counts
        return {} if counts is None else {name: asdict(found) for name, found in counts.model.reliability.items()}

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.module.device

    def use_lexicon(self, lexicon: str | Path | Lexicon | None) -> Trained:
        """Consult another dictionary at prediction, or none.

        Args:
            lexicon: The dictionary or its path; None leaves out the one that the run was trained with.

        Raises:
            RevupError: The model has one already, or does not use any.
        """
        if lexicon is None:
            self.lexicon = None
            return self
        counts = self.module.counts
        if self.lexicon is not None:
            raise RevupError("the run has a lexicon already, which it was trained with")
        if counts is None:
            raise RevupError(f"the model {self.config.model} (preset {self.config.preset}) does not use a lexicon")
        found = Lexicon.load(lexicon) if isinstance(lexicon, (str, Path)) else lexicon
        self.lexicon = found.as_named_by(self.frames)
        self.module.use_counts(counts.with_dictionary(self.lexicon, self.frames))
        return self

    def use_event_vectors(self, vectors: str | Path | VectorSource) -> Trained:
        """Give the events of new documents their vectors from a file.

        Args:
            vectors: A .npz file in the form that `revup embed` writes, or what gives events their vectors.

        Raises:
            RevupError: The model was trained without event vectors, or with other ones.
        """
        if self.reduction is None:
            raise RevupError(f"the model {self.config.model} was trained without event vectors")
        source = EventVectors.load(vectors) if isinstance(vectors, (str, Path)) else vectors
        self.reduction.refuse_other(source)
        self.vectors = source
        return self

    def use_encoder(self, name: str) -> Trained:
        """Give the events of new documents the vectors of a pretrained transformer that reads their sentences.

        Args:
            name: Its directory, or its name on the Hugging Face Hub.

        Raises:
            RevupError: The model was trained without event vectors, or with those of another encoder.
        """
        source = None if self.reduction is None else vectors_of(name)
        if source is None:
            raise RevupError(f"the model {self.config.model} was trained without event vectors")
        return self.use_event_vectors(source)

    def say_without_vectors(self) -> None:
        """Warn, once, that events have no vectors though the model was trained with them."""
        if self.reduction is None or self._said:
            return
        self._said = True
        name = self.reduction.encoder
        how = f"--encoder {name}" if name else "--event-vectors FILE"
        message = f"the model was trained with event vectors, and predicts without them; give them by {how}"
        warnings.warn(message, RevupWarning, stacklevel=3)

    def checked(self, document: Document) -> Document:
        """The document, if the model knows the frames that it carries.

        Raises:
            InputError: It does not; the document's id and the field are named.
        """
        try:
            check_knowledge(document, self._frame_set)
        except InputError as error:
            raise InputError(error.message, f"document {document.id}", field=error.field) from None
        return document

    @cached_property
    def _frame_set(self) -> frozenset[str]:
        return frozenset(self.frames)

    def knows(self, event: Event) -> bool:
        """Whether training, the lexicon or the word vectors know an event's predicate."""
        pred, lemma = normal(event.pred), normal(event.lemma or event.pred)
        if self.vocabulary.read(pred, lemma) != UNK:
            return True
        return self.lexicon is not None and self.lexicon.entry(event.lemma or event.pred, event.pos) >= 0

    def to(self, device: str | torch.device) -> Trained:
        """Move the weights to a device."""
        self.module.to(device)
        if self.writer is not None:
            self.writer.to(device)
        return self

    def use_writer(self, weights: Mapping[str, Tensor]) -> None:
        """Compute perplexities with other weights of the network.

        Args:
            weights: Those of the lowest validation perplexity.
        """
        self.writer = copy.deepcopy(self.module)
        self.writer.load_state_dict(dict(weights))
        self.writer.eval()

    def encode(self, documents: Iterable[Document]) -> Split:
        """Documents in this model's own vocabulary and frames, cut into consecutive windows of M events."""
        return self._encoded(documents, "all")

    def first_window(self, documents: Sequence[Document]) -> Batch:
        """The first M events of some documents as one batch, without any label."""
        split = self._encoded(documents, "first")
        return next(self.module.batches(split, Observation(0.0), len(documents)).ordered())

    def _encoded(self, documents: Iterable[Document], window: str) -> Split:
        known = self.vocabulary, self.frames, self.events, window, self.lexicon
        split = encode_documents(documents, *known, self.vectors)
        if self.reduction is not None and self.vectors is not None:
            split.arrays[REDUCED] = self.reduction.apply(split.arrays.pop(RAW), split.arrays.pop(FOUND))
        elif self.reduction is not None:
            self.say_without_vectors()
        return split

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

    def predict(self, documents: Given, top: int = 5, revise: bool = False) -> list[list[list[tuple[str, float]]]]:
        """The most probable frames of every event.

        Args:
            documents: What to label: documents or dicts of their JSON form, or one of them.
            top: How many frames to give for each event.
            revise: Use the labels that the documents carry as side knowledge; otherwise they are ignored.

        Returns:
            Per document, per event: frames with their probabilities, the most probable first. One document is a list of
            one.

        Raises:
            RevupError: The model does not predict frames, or what was given are no documents.
        """
        return [events for _, events in self.predict_documents(documents, top, revise)]

    def predict_documents(
        self, documents: Given, top: int = 5, revise: bool = False, live: bool = False
    ) -> Iterator[tuple[Document, list[list[tuple[str, float]]]]]:
        """`predict` as a stream of documents with their predictions, in constant memory.

        Args:
            documents: As in `predict`.
            top: As in `predict`.
            revise: As in `predict`.
            live: Answer a document as soon as it is there, rather than waiting until a batch is full.
        """
        if not self.module.predicts_frames:  # even where there is no document
            raise RevupError(f"the model {self.config.model} does not predict frames")
        if top < 1:
            raise RevupError(f"top: expected 1 or more, found {top}")
        ask = partial(self.best_frames, top=top, revise=revise)
        stream = map(self.checked, as_documents(documents)) if revise else as_documents(documents)
        return answered(stream, ask, self.device, DOCUMENTS_AT_ONCE, DOCUMENTS_TOGETHER, live)

    def predict_table(
        self, documents: Given, top: int = 5, revise: bool = False, at_least: float | Abstention = 0.0
    ) -> Any:
        """The most probable frames of every event as a flat table, the rows of `revup predict --table`.

        Args:
            documents: What to label: documents or dicts of their JSON form, or one of them.
            top: How many rows, one a frame, an event has at most.
            revise: Use the labels that the documents carry as side knowledge; otherwise they are ignored.
            at_least: As in `revup.predict`: a row without a frame where the model is less sure.

        Returns:
            A `pyarrow.Table` (needs the extra `tables`) with the columns `document`, `event`, `pred`, `rank`,
            `frame`, `probability` and `known`.
        """
        from revup.data.table_output import PREDICTION_COLUMNS, arrow_table, prediction_rows
        from revup.inference.predict import predict

        return arrow_table(prediction_rows(predict(self, documents, top, revise, at_least)), PREDICTION_COLUMNS)

    def best_frames(
        self, documents: Sequence[Document], top: int = 5, revise: bool = False
    ) -> list[list[list[tuple[str, float]]]]:
        """`predict` of a few documents at once, in this thread; equally probable frames in the order of `frames`."""
        by_document = self.probabilities(documents, revise)
        events = iter(ranked(np.concatenate(by_document), self.frames, top))
        return [list(islice(events, len(part))) for part in by_document]

    def explain(self, documents: Sequence[Document], top: int = 5, revise: bool = False) -> list[list[dict[str, Any]]]:
        """What dictionary, counts and context contribute to every event: `revup.inference.explain.explain`."""
        from revup.inference.explain import explain

        return explain(self, documents, top, revise)

    def by_document(
        self, documents: Sequence[Document], revise: bool, ask: Callable[[Batch], Tensor]
    ) -> list[NDArray[np.float32]]:
        """What `ask` says of every event of a batch [B, M, d], as one array [events, d] a document.

        Args:
            documents: The documents.
            revise: Give the batches the labels that the documents carry.
            ask: What is asked.
        """
        return self._by_document(documents, Observation(1.0 if revise else 0.0), ask, 0)

    def embed(self, documents: Given) -> NDArray[np.float32]:
        """A vector per document, [N, d]: the mean of those of its events."""
        return self.embeddings(documents)[0]

    def embeddings(self, documents: Given) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Vectors of documents and of their events.

        Args:
            documents: What to embed: documents or dicts of their JSON form, or one of them.

        Returns:
            Vectors of the documents [N, d] and of all their events [E, d]; a document's is the mean of its events',
            and 0 where it has none.

        Raises:
            RevupError: There is no document, or none with an event.
        """
        return together(self.document_vectors(documents))

    def document_vectors(self, documents: Given) -> list[NDArray[np.float32]]:
        """`embeddings` of the events of each document: one array [events, d] a document."""
        found = answered(
            as_documents(documents), self.event_vectors, self.device, DOCUMENTS_AT_ONCE, DOCUMENTS_TOGETHER
        )
        return [rows for _, rows in found]

    def event_vectors(self, documents: Sequence[Document]) -> list[NDArray[np.float32]]:
        """`embeddings` of the events of a few documents at once, in this thread: one array [events, d] a document."""
        return self._by_document(documents, Observation(0.0), lambda batch: self.module.embed(batch)[1], 0)

    def _by_document(
        self, documents: Sequence[Document], observation: Observation, ask: Callable[[Batch], Tensor], columns: int
    ) -> list[NDArray[np.float32]]:
        """What `ask` says of every event [B, M, d], as one array [events, d] a document ([0, columns] without any)."""
        if not any(document.events for document in documents):
            return [np.zeros((0, columns), np.float32) for _ in documents]
        split = self.encode(documents)
        values = event_values(self.module, split, observation, ask, self.precision)
        owner = np.repeat(split.arrays["document"], split.arrays["lengths"])
        return np.split(values, np.searchsorted(owner, np.arange(1, len(documents))))

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
        for name in ("path", "labels"):  # of the dataset and of reviewed labels, relative to the run directory
            if self.path is not None and data.get(name):
                data[name] = path_from(self.path / data[name], Path(path))
        with atomic_folder(path, force) as folder:
            self.write_to(folder, data)
            if self.path is not None and (records := read_metrics(self.path)):
                write_metrics(folder, records)

    def save_pretrained(self, path: str | Path, **options: Any) -> None:
        """Write the model with a model card: `revup.save_pretrained` explains the options."""
        revup.save_pretrained(self, path, **options)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the model to the Hugging Face Hub: `revup.push_to_hub` explains the options."""
        return revup.push_to_hub(self, repo_id, **options)

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
        write_config(folder, self.config, self.events, data)
        seal(folder, self.state)

    def write_lists(self, folder: Path) -> None:
        """Write the vocabulary, the frame list, the lexicon and the reduction of event vectors."""
        write_vocabulary(folder, self.vocabulary)
        write_list(folder / "frames.txt", self.frames)
        if self.lexicon is not None:
            self.lexicon.write(folder / LEXICON)
        if self.reduction is not None:
            self.reduction.save(folder)

    def save_weights(self, folder: Path, weights: Mapping[str, torch.Tensor] | None = None) -> None:
        """Write model.safetensors: the module's own weights, or others of it; the counts, if absent; the writer's."""
        if self.module.counts is not None and not (folder / COUNTS).exists():
            save_tensors(folder / COUNTS, self.module.counts.tensors(), {"model": self.config.model})
        chosen = self.module.state_dict() if weights is None else dict(weights)
        save_tensors(folder / WEIGHTS, chosen, {"model": self.config.model})
        if self.writer is not None:
            save_tensors(folder / TEXT, self.writer.state_dict(), {"model": self.config.model})
