"""A component for spaCy pipelines: frames of the events in a text.

    nlp.add_pipe("revup", config={"model": "run/"})

It stands behind a parser and a tagger and sets, for every `Doc`,

    doc._.events                events as `revup predict` writes them, in the order of their predicates
    doc.spans["frames"]         a span for every predicted frame: the predicate, labelled with the frame
    span._.frame, span._.frame_probability

spaCy imports this module whenever a pipeline is made, also in programs that have no use for it. So it imports nothing
of revup's own but the errors; models, torch and readers are imported when the first text is labelled.
"""

from __future__ import annotations

import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import minibatch, raise_error

from revup.errors import RevupError

if TYPE_CHECKING:
    from revup.inference.trained import Trained

NAME = "revup"
SPANS = "frames"
EVENTS = "revup_events"  # the key in `doc.user_data` behind `doc._.events`
MODEL = "model"  # the run directory inside a pipeline on disk
BATCH = 128  # documents labelled together, at most: each call of the network waits for the parser to let it go on

Located = list[list[tuple[int, Any]]]  # per document: predicates' tokens with their events

DEFAULTS: dict[str, Any] = {
    "top": 5,
    "at_least": 0.0,
    "words": "form",
    "device": "cpu",
    "spans_key": SPANS,
}


def make_component(
    nlp: Any, name: str, model: str, top: int, at_least: float, words: str, device: str | None, spans_key: str
) -> FrameLabeller:
    """Make the component: the factory "revup" of spaCy.

    Args:
        nlp: The pipeline.
        name: The component's name in it.
        model: A run directory, or `owner/name` of a model on the Hugging Face Hub.
        top: How many frames `doc._.events` gives for each event.
        at_least: Leave out predictions below this probability.
        words: Whether arguments are the "form" or the "lemma" of their head word; as the model was trained.
        device: cpu or cuda; None: cuda where there is one.
        spans_key: The key in `doc.spans`.
    """
    return FrameLabeller(name, model, top, at_least, words, device, spans_key)


Language.factory(
    NAME,
    default_config=DEFAULTS,
    assigns=["doc._.events", "doc.spans", "span._.frame", "span._.frame_probability"],
    requires=["token.dep", "token.head", "doc.sents"],
    func=make_component,
)


def register_extensions() -> None:
    """Register `doc._.events`, `span._.frame` and `span._.frame_probability`, where nobody else has.

    Making the component does this. A program that only reads labelled documents, from a `DocBin` for example, calls it.
    """
    if not Doc.has_extension("events"):
        Doc.set_extension("events", getter=_get_events, setter=_set_events)
    for name in ("frame", "frame_probability"):
        if not Span.has_extension(name):
            Span.set_extension(name, default=None)


def _get_events(doc: Any) -> Any:
    return json.loads(doc.user_data.get(EVENTS, "null"))


def _set_events(doc: Any, events: Any) -> None:
    # as JSON text: a DocBin makes tuples of lists
    doc.user_data[EVENTS] = json.dumps(events, ensure_ascii=False)


class FrameLabeller:
    """The component; `make_component` documents its settings.

    Attributes:
        name: Its name in the pipeline.
        source: Where the model is loaded from.
    """

    def __init__(
        self,
        name: str,
        source: str,
        top: int = 5,
        at_least: float = 0.0,
        words: str = "form",
        device: str | None = "cpu",
        spans_key: str = SPANS,
    ) -> None:
        if words not in ("form", "lemma"):
            raise RevupError(f"words: expected form or lemma, found '{words}'")
        if top < 1:
            raise RevupError(f"top: expected 1 or more, found {top}")
        if not 0 <= at_least <= 1:
            raise RevupError(f"at_least: expected a probability from 0 to 1, found {at_least}")
        self.name, self.source, self.top, self.at_least = name, source, top, at_least
        self.words, self.device, self.spans_key = words, device, spans_key
        self._model: Trained | None = None
        self._on_error: Callable[..., None] = raise_error
        register_extensions()

    @property
    def trained(self) -> Trained:
        """The model; it is loaded when it is first needed (spaCy looks at an attribute `model` of every component)."""
        if self._model is None:
            from revup.integrations.hub import from_pretrained

            self._model = from_pretrained(self.source, device=self.device)
        return self._model

    def __call__(self, doc: Any) -> Any:
        """Label one document."""
        try:
            self._label([doc])
        except Exception as error:
            self._on_error(self.name, self, [doc], error)
        return doc

    def pipe(self, stream: Iterable[Any], *, batch_size: int = BATCH) -> Iterator[Any]:
        """Label a stream of documents, in batches; frames are computed in a thread while the next ones are parsed.

        spaCy parses `batch_size` documents before it passes on the first of them. So as many are held here, to be
        labelled while the next ones are parsed.

        Args:
            stream: The documents.
            batch_size: How many are labelled together, at most (never more than `BATCH`), and how many are held.
        """
        waiting: deque[tuple[list[Any], Located, Future[Any]]] = deque()
        held = 0
        with ThreadPoolExecutor(1, "revup-spacy") as thread:
            for batch in minibatch(stream, min(batch_size, BATCH)):
                docs = list(batch)
                try:
                    located = self._located(docs)
                except Exception as error:
                    self._on_error(self.name, self, docs, error)
                    continue
                waiting.append((docs, located, thread.submit(self._predicted, located)))
                held += len(docs)
                while waiting and (held > batch_size or waiting[0][2].done()):
                    held -= len(waiting[0][0])
                    yield from self._finished(*waiting.popleft())
            while waiting:
                yield from self._finished(*waiting.popleft())

    def _finished(self, docs: list[Any], located: Located, found: Future[Any]) -> list[Any]:
        """The documents of a batch with their labels; none where it failed."""
        try:
            self._set(docs, located, found.result())
        except Exception as error:
            self._on_error(self.name, self, docs, error)
            return []
        return docs

    def _label(self, docs: Sequence[Any]) -> None:
        located = self._located(docs)
        self._set(docs, located, self._predicted(located))

    def _located(self, docs: Sequence[Any]) -> Located:
        """The events of each document with the indices of their predicates."""
        from revup.data.readers.text import events_of

        for doc in docs:
            self._check(doc)
        return [list(events_of(doc, self.words)) for doc in docs]

    def _predicted(self, located: Located) -> list[list[dict[str, Any]]]:
        """The events of each document as `revup predict` writes them."""
        from revup.data.events import Document
        from revup.inference.predict import labelled_json

        def keep(frames: Sequence[tuple[str, float]]) -> bool:
            return frames[0][1] >= self.at_least

        documents = [Document("", [event for _, event in events]) for events in located]
        labelled = self.trained.predict_documents(documents, self.top)
        return [labelled_json(document, found, self.trained.knows, keep)["events"] for document, found in labelled]

    def _set(self, docs: Sequence[Any], located: Located, found: Sequence[list[dict[str, Any]]]) -> None:
        for doc, events, shown in zip(docs, located, found, strict=True):
            doc._.events = shown
            doc.spans[self.spans_key] = list(_spans(doc, [index for index, _ in events], shown))

    def _check(self, doc: Any) -> None:
        if not len(doc):
            return
        if not doc.has_annotation("DEP"):
            raise RevupError(f"the component '{self.name}' needs a parser before it in the pipeline")
        if not doc.has_annotation("TAG") and not doc.has_annotation("POS"):
            raise RevupError(f"the component '{self.name}' needs a tagger before it in the pipeline")

    # ---- what spaCy asks of a component ----

    def get_error_handler(self) -> Callable[..., None]:
        """Return what is called with documents that could not be labelled."""
        return self._on_error

    def set_error_handler(self, error_handler: Callable[..., None]) -> None:
        """Set what is called with documents that could not be labelled: name, component, documents, error."""
        self._on_error = error_handler

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write the model into a directory of the pipeline.

        Args:
            path: The directory.
            exclude: "model" to leave it out.
        """
        Path(path).mkdir(parents=True, exist_ok=True)
        if MODEL not in exclude:
            self.trained.save(Path(path) / MODEL, force=True)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> FrameLabeller:
        """Take the model from a directory that `to_disk` wrote.

        Args:
            path: The directory.
            exclude: "model" to keep to the configured one.
        """
        if MODEL not in exclude:
            self.source, self._model = str(Path(path) / MODEL), None
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the files of the model as bytes.

        Args:
            exclude: "model" to leave them out.
        """
        import srsly

        with tempfile.TemporaryDirectory(prefix="revup-") as folder:
            self.to_disk(folder, exclude=exclude)
            files = [file for file in sorted((Path(folder) / MODEL).glob("*")) if file.is_file()]
            packed: bytes = srsly.msgpack_dumps({file.name: file.read_bytes() for file in files})
        return packed

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> FrameLabeller:
        """Take the model from what `to_bytes` returned.

        Args:
            data: The bytes.
            exclude: "model" to keep to the configured one.
        """
        import srsly

        from revup.inference.loading import load

        files = srsly.msgpack_loads(data)
        if MODEL in exclude or not files:
            return self
        with tempfile.TemporaryDirectory(prefix="revup-") as folder:
            for name, content in files.items():
                (Path(folder) / Path(name).name).write_bytes(content)
            self._model = load(folder, self.device)
            self._model.path = None
        return self


def _spans(doc: Any, tokens: Sequence[int], events: Sequence[dict[str, Any]]) -> Iterator[Any]:
    for index, event in zip(tokens, events, strict=True):
        if event["predicted"]:
            best = event["predicted"][0]
            span = Span(doc, index, index + 1, label=best["frame"])
            span._.frame, span._.frame_probability = best["frame"], best["probability"]
            yield span
