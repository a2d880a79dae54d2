"""What clients send: JSON bodies become requests, and whatever is wrong with them becomes one sentence and a status."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from revup.data.events import Document, document_from_json, json_from_line, json_kind
from revup.errors import InputError, RevupError
from revup.serving.limits import Limits

LONGEST_FIELD = 200  # letters of a field's name that a refusal shows
PREDICT, EMBED = "predict", "embed"  # kinds of requests


class Refused(RevupError):
    """A request that is not answered as asked.

    Args:
        status: The HTTP status.
        message: Why, and what would be right.
        field: The field of the request that is wrong.
        retry_after: Seconds after which the same request may be answered.
    """

    def __init__(self, status: int, message: str, field: str = "", retry_after: int | None = None) -> None:
        self.status, self.field, self.retry_after = status, field[:LONGEST_FIELD], retry_after
        super().__init__(str(InputError(message, field=self.field)))  # on one line, whatever the field is called


@dataclass(slots=True)
class Request:
    """A request for predictions or vectors.

    Attributes:
        documents: The documents; empty where a text was sent.
        text: The text to find events in.
        model: The name of the model; None: the first.
        top: Frames for each event.
        revise: Use the labels of the documents as side knowledge.
        at_least: Leave out predictions below this probability.
        explain: Say what the parts of the model contributed, where it can.
    """

    documents: list[Document] = field(default_factory=list)
    text: str | None = None
    model: str | None = None
    top: int = 5
    revise: bool = False
    at_least: float = 0.0
    explain: bool = False

    @property
    def events(self) -> int:
        """The number of events of all documents."""
        return sum(len(document.events) for document in self.documents)


def parse_request(body: bytes, limits: Limits, reads_text: bool) -> Request:
    """Make a request of a body.

    Args:
        body: The JSON text in UTF-8.
        limits: What is too large.
        reads_text: Whether texts can be parsed here.

    Raises:
        Refused: 422 where something is wrong, 413 where something is too large; the field is named.
    """
    data = _json(body)
    if not isinstance(data, dict):
        raise Refused(422, f"expected an object with 'documents', found {json_kind(data)}", "body")
    request = Request()
    if data.get("text") is not None:
        if data.get("documents") is not None:
            raise Refused(422, "expected either 'text' or 'documents', found both", "text")
        request.text = _text(data["text"], limits, reads_text)
    else:
        request.documents = _documents(data, limits)
    for name, kind, expected in _OPTIONS:
        value = data.get(name)
        if value is None:
            continue
        if not kind(value):
            raise Refused(422, f"expected {expected}, found {json_kind(value)}", name)
        setattr(request, name, value)
    return request


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_OPTIONS: tuple[tuple[str, Any, str], ...] = (
    ("model", lambda value: isinstance(value, str), "the name of a model"),
    ("top", lambda value: _is_number(value) and isinstance(value, int) and value >= 1, "a whole number of 1 or more"),
    ("revise", lambda value: isinstance(value, bool), "true or false"),
    ("at_least", lambda value: _is_number(value) and 0 <= value <= 1, "a probability from 0 to 1"),
    ("explain", lambda value: isinstance(value, bool), "true or false"),
)


def _json(body: bytes) -> object:
    try:
        return json_from_line(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise Refused(422, f"not UTF-8 text: invalid byte at position {error.start}", "body") from None
    except InputError as error:
        raise Refused(422, error.message, "body") from None


def _text(value: object, limits: Limits, reads_text: bool) -> str:
    if not isinstance(value, str):
        raise Refused(422, f"expected text, found {json_kind(value)}", "text")
    if not reads_text:
        raise Refused(422, "this server was started without a spaCy model and reads 'documents' only", "text")
    if not value.strip():
        raise Refused(422, "expected text, found none", "text")
    if len(value) > limits.max_text:
        raise Refused(413, f"expected at most {limits.max_text} characters, found {len(value)}", "text")
    return value


def _documents(data: dict[str, Any], limits: Limits) -> list[Document]:
    items = data.get("documents")
    if not isinstance(items, list):
        found = "nothing" if "documents" not in data else json_kind(items)
        raise Refused(422, f"expected a list of documents, found {found}", "documents")
    if not items:
        raise Refused(422, "expected at least one document, found none", "documents")
    if len(items) > limits.max_documents:
        raise Refused(413, f"expected at most {limits.max_documents} documents, found {len(items)}", "documents")
    documents, events = [], 0
    for number, item in enumerate(items):
        where = f"documents[{number}]"
        try:
            document = document_from_json(item, f"documents:{number + 1}")
        except InputError as error:
            raise Refused(422, error.message, f"{where}.{error.field}" if error.field else where) from None
        if not document.events:
            raise Refused(422, "a document needs at least one event", f"{where}.events")
        events += len(document.events)
        if events > limits.max_events:
            raise Refused(413, f"expected at most {limits.max_events} events in a request, found more", where)
        documents.append(document)
    return documents
