"""Answers: what models say about the documents of requests, as JSON text, equal to that of `predict` and `embed`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from revup.data.events import Document, Event
from revup.data.readers import Options, Record
from revup.errors import InputError
from revup.inference.predict import labelled_json
from revup.inference.trained import Trained
from revup.serving.limits import FRAMES_LISTED, NUMBERS_LISTED, Limits
from revup.serving.requests import EMBED, PREDICT, Refused, Request


@dataclass(frozen=True)
class Question:
    """What is asked about documents; documents of equal questions are computed together.

    Attributes:
        model: The name of the model.
        kind: PREDICT or EMBED.
        revise: Use the labels of the documents as side knowledge.
        frames: As many frames or fewer are asked for; a power of two, so that who asks for many slows few others.
    """

    model: str
    kind: str
    revise: bool = False
    frames: int = 1


class Answers:
    """Answers questions about documents by trained models.

    Args:
        models: The models by name; the first is the default. Each embeds one event, so that it is warm.
    """

    def __init__(self, models: dict[str, Trained]) -> None:
        self.models = models
        warm = Document("warm-up", [Event("warm")])
        self._numbers = {name: model.event_vectors([warm])[0].shape[1] for name, model in models.items()}

    def question(self, kind: str, request: Request) -> Question:
        """What a request asks.

        Args:
            kind: PREDICT or EMBED.
            request: The request.

        Raises:
            Refused: 422 where there is no such model, or it can't answer this.
        """
        name = next(iter(self.models)) if request.model is None else request.model
        if name not in self.models:
            raise Refused(422, f"expected one of {', '.join(self.models)}, found '{name[:40]}'", "model")
        module = self.models[name].module
        if kind == PREDICT and not module.predicts_frames:
            raise Refused(422, f"the model {name} does not predict frames", "model")
        if request.revise and kind == PREDICT:
            for number, document in enumerate(request.documents):
                try:
                    self.models[name].checked(document)
                except InputError as error:
                    raise Refused(422, error.message, f"documents[{number}].{error.field}") from None
        if kind == EMBED:
            return Question(name, kind)
        wanted = min(request.top, len(self.models[name].frames))
        return Question(name, kind, request.revise, 1 << (wanted - 1).bit_length())

    def check_size(self, question: Question, request: Request, limits: Limits) -> None:
        """Refuse a request whose answer would be too large: 413.

        Args:
            question, request: What is asked, about which documents.
            limits: How many events a request may have.
        """
        if question.kind == EMBED:
            each, listed, what = self._numbers[question.model], NUMBERS_LISTED, "numbers"
        else:
            each, listed, what = min(request.top, len(self.models[question.model].frames)), FRAMES_LISTED, "frames"
        if request.events * each > listed * limits.max_events:
            message = f"expected an answer with at most {listed * limits.max_events} {what}"
            raise Refused(413, f"{message}, found {each} for each of {request.events} events")

    def compute(self, question: Question, items: Sequence[tuple[Document, Request]]) -> list[Any]:
        """Answer a question about some documents, each with the request that it belongs to.

        Returns:
            The JSON text of each labelled document, or the JSON texts of each document's vector and event vectors.
        """
        model, documents = self.models[question.model], [document for document, _ in items]
        if question.kind == EMBED:
            return [_vectors(rows) for rows in model.event_vectors(documents)]
        best = model.best_frames(documents, max(request.top for _, request in items), question.revise)
        labelled = [
            labelled_json(document, [frames[: request.top] for frames in events], model.knows, _keep(request))
            for (document, request), events in zip(items, best, strict=True)
        ]
        asked = [row for row, (_, request) in enumerate(items) if request.explain]
        if asked and explains(model):
            given = [documents[row] for row in asked]
            for row, events in zip(asked, model.explain(given, revise=question.revise), strict=True):
                for event, why in zip(labelled[row]["events"], events, strict=True):
                    event["explain"] = why
        return [_json(document) for document in labelled]

    @staticmethod
    def assemble(kind: str, documents: Sequence[Document], parts: Sequence[Any]) -> bytes:
        """Make the body of an answer of what `compute` returned for its documents.

        Args:
            kind: PREDICT or EMBED.
            documents: The documents.
            parts: What was returned for each.
        """
        if kind == PREDICT:
            return b'{"documents": [' + b", ".join(parts) + b"]}"
        lengths = [len(document.events) for document in documents]
        lists = {
            "document_ids": [document.id for document in documents],
            "event_document": [row for row, length in enumerate(lengths) for _ in range(length)],
            "event_index": [index for length in lengths for index in range(length)],
        }
        whole, events = b", ".join(part[0] for part in parts), b", ".join(part[1] for part in parts)
        rest = json.dumps(lists, ensure_ascii=False)[1:].encode("utf-8")
        return b'{"vectors": {"documents": [' + whole + b'], "events": [' + events + b"], " + rest + b"}"


def explains(model: Trained) -> bool:
    """Whether a model can say what its parts contributed: per document, per event an object for the key `explain`."""
    from revup.inference.explain import can_explain

    return can_explain(model)


def _keep(request: Request) -> Callable[[Sequence[tuple[str, float]]], bool] | None:
    at_least = request.at_least
    return (lambda frames: frames[0][1] >= at_least) if at_least else None


def _json(data: Any) -> bytes:
    """JSON text in UTF-8, by a library that is several times as fast where it can write the value."""
    try:
        return orjson.dumps(data)
    except TypeError:  # a number of more than 64 bits, or deep nesting
        return json.dumps(data, ensure_ascii=False).encode("utf-8")


def _vectors(rows: Any) -> tuple[bytes, bytes]:
    whole = rows.mean(0) if len(rows) else np.zeros(rows.shape[1], np.float32)
    return _json(whole.tolist()), _json(rows.tolist())[1:-1]


class Texts:
    """Finds the events of texts by a spaCy pipeline.

    Args:
        model: The name or path of the pipeline.
    """

    def __init__(self, model: str) -> None:
        from revup.data.readers import text

        self._options, self._reader = Options(spacy_model=model), text
        text.load_model(model)

    def document(self, text: str) -> Document:
        """The events of a text as a document, its paragraphs separated by blank lines.

        Raises:
            Refused: 422 where there are none.
        """
        paragraphs = [" ".join(lines) for lines in _paragraphs(text)]
        record = Record("text", 1, [(1, paragraphs)])
        document = next(iter(self._reader.parse(record, self._options)))
        if not document.events:
            raise Refused(422, "no event was found in it", "text")
        return document


def _paragraphs(text: str) -> Iterator[list[str]]:
    """The lines of each paragraph, without surrounding blanks."""
    lines: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line.strip():
            lines.append(" ".join(line.split()))
        elif lines:
            yield lines
            lines = []
