"""The state of a server, and how requests for predictions and vectors are answered."""

from __future__ import annotations

import asyncio
import hmac
import logging
import sys
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import revup
from revup.errors import RevupError
from revup.serving.limits import BODIES, Limits
from revup.serving.metrics import Metrics
from revup.serving.protocol import CROWDED, TRUNCATED
from revup.serving.requests import Refused, parse_request

if TYPE_CHECKING:  # they import torch, and the server listens before it has
    from revup.data.events import Document
    from revup.serving.answers import Answers, Texts
    from revup.serving.batching import Batcher

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
LARGE = 64 * 1024  # bytes of a body above which it is parsed outside the event loop
TEXTS = 16  # texts that may wait for the parser

log = logging.getLogger("revup.serving")


class Service:
    """Answers requests, once models are loaded and until it drains.

    Args:
        limits: What is accepted.
        token: The bearer token that clients must send; None: none is needed.
        log_bodies: Write the bodies of requests to the log.
    """

    def __init__(self, limits: Limits, token: str | None = None, log_bodies: bool = False) -> None:
        self.limits, self.log_bodies, self.metrics = limits, log_bodies, Metrics()
        self.answers: Answers | None = None
        self.texts: Texts | None = None
        self.batcher: Batcher | None = None
        self.draining = False
        self._token = None if token is None else f"Bearer {token}".encode()
        self._held = 0  # bytes of bodies that are read or answered
        self._parser = ThreadPoolExecutor(1, "revup-parse")
        self._texts_waiting = 0

    @property
    def ready(self) -> bool:
        """Whether requests are answered."""
        return self.batcher is not None and not self.draining

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.metrics.in_progress == 0

    def start(self, answers: Answers, texts: Texts | None, threads: int, start_thread: Callable[[], object]) -> None:
        """Begin to answer; to be called in the event loop."""
        from revup.serving.batching import Batcher

        self.answers, self.texts = answers, texts
        self.batcher = Batcher(answers.compute, threads, self.limits, self.metrics, start_thread)

    def close(self) -> None:
        """End all threads."""
        self._parser.shutdown(cancel_futures=True)
        if self.batcher is not None:
            self.batcher.close()

    def check_token(self, scope: Scope) -> None:
        """Refuse a request without the token."""
        if self._token is None:
            return
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if not hmac.compare_digest(sent, self._token):
            raise Refused(401, "expected the header 'Authorization: Bearer TOKEN' with this server's token")

    def check_ready(self) -> None:
        """Refuse a request that comes too early or too late."""
        if self.draining:
            raise Refused(503, "shutting down", retry_after=1)
        if self.batcher is None:
            raise Refused(503, "starting: the models are being loaded", retry_after=1)

    def gauges(self) -> dict[str, float]:
        """What `/metrics` measures when it is asked for."""
        batcher = self.batcher
        return {
            "queued_documents": batcher.queued if batcher else 0,
            "queued_events": batcher.queued_events if batcher else 0,
            "running_documents": batcher.running if batcher else 0,
            "ready": int(self.ready),
        }

    def info(self) -> dict[str, Any]:
        """What `/info` tells."""
        from revup.serving.answers import explains

        models = self.answers.models if self.answers else {}
        return {
            "revup": revup.__version__,
            "models": {
                name: {
                    "model": model.config.model,
                    "preset": model.config.preset,
                    "predicts_frames": model.module.predicts_frames,
                    "explains": explains(model),
                    "events": model.events,
                    "words": len(model.vocabulary),
                    "device": str(model.device),
                    "frames": model.frames,
                }
                for name, model in models.items()
            },
            "default": next(iter(models), None),
            "text": self.texts is not None,
            "limits": {name: getattr(self.limits, name) for name in self.limits.__dataclass_fields__},
        }

    # ---- requests ------------------------------------------------------------------------------------------------

    async def answer(self, kind: str, scope: Scope, receive: Receive) -> bytes:
        """Answer a request to `/predict` or `/embed`.

        Args:
            kind: PREDICT or EMBED.
            scope, receive: The request, as ASGI has it.

        Returns:
            The body of the answer.

        Raises:
            Refused: It is not answered as asked.
        """
        self.check_token(scope)
        size = self._announced(scope)
        if self._held and self._held + size > BODIES * self.limits.body_bytes:
            raise Refused(429, "overloaded: other large requests are being answered, try again later", retry_after=1)
        self._held += size
        try:
            body = await self._body(scope, receive)
            self._held += len(body) - size
            size = len(body)
            self.check_ready()
            if scope.get(CROWDED):
                raise Refused(429, "overloaded: too many open connections, try again later", retry_after=1)
            if self.log_bodies:
                log.info("body %s", body.decode("utf-8", "backslashreplace"))
            return await self._answer(kind, body)
        finally:
            self._held -= size

    async def _answer(self, kind: str, body: bytes) -> bytes:
        assert self.batcher is not None
        assert self.answers is not None
        if self.batcher.full:
            raise self.batcher.overloaded()
        if len(body) > LARGE:
            request = await self._elsewhere(parse_request, body, self.limits, self.texts is not None)
        else:
            request = parse_request(body, self.limits, self.texts is not None)
        question = self.answers.question(kind, request)
        if request.text is not None:
            request.documents = [await self._events_of(request.text)]
        self.answers.check_size(question, request, self.limits)
        parts = await self.batcher.submit(question, request)
        self.metrics.answered(f"/{kind}", len(request.documents), request.events)
        return self.answers.assemble(kind, request.documents, parts)

    async def _events_of(self, text: str) -> Document:
        assert self.texts is not None
        if self._texts_waiting >= TEXTS:
            raise Refused(429, "overloaded: too many texts wait, try again later", retry_after=1)
        self._texts_waiting += 1
        try:
            found: Document = await self._elsewhere(self.texts.document, text)
            return found
        finally:
            self._texts_waiting -= 1

    async def _elsewhere(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do what takes long in another thread, so that other requests are answered meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._parser, work, *arguments)

    def _announced(self, scope: Scope) -> int:
        """The announced size of the body; 0 where none is."""
        size = 0
        for name, value in scope["headers"]:
            if name == b"content-length":
                size = int(value) if value.isdigit() and len(value) < 19 else 2**62
            elif name == b"content-encoding" and value.lower() not in (b"", b"identity"):
                raise Refused(415, "expected an uncompressed body, found a Content-Encoding")
        if size > self.limits.body_bytes:
            raise self._too_large(size)
        return size

    def _too_large(self, size: int) -> Refused:
        found = f"{size} bytes" if size < 2**62 else "more"
        return Refused(413, f"expected at most {self.limits.body_bytes} bytes, found {found}", "body")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the client closed the connection before its request was complete")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self.limits.body_bytes:
                        raise self._too_large(2**62)
                    parts.append(part)
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise Refused(408, f"did not arrive within {self.limits.timeout:g} seconds", "body") from None
        if scope.get(TRUNCATED):
            raise Refused(400, f"the connection ended after {size} bytes, before the body was complete", "body")
        return parts[0] if len(parts) == 1 else b"".join(parts)


def refusal(error: BaseException) -> Refused:
    """What to answer after an error: itself if it is a refusal, else that something failed here.

    What failed is logged by its kind and place alone, since a message may quote what a user sent.
    """
    if isinstance(error, Refused):
        return error
    if isinstance(error, RevupError):
        return Refused(422, str(error))
    place = traceback.extract_tb(sys.exc_info()[2] if error.__traceback__ is None else error.__traceback__)[-1]
    log.error("internal error: %s in %s, line %s", type(error).__name__, place.filename, place.lineno)
    return Refused(500, "an internal error; the server's log names its place")
