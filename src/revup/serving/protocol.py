"""Connections as uvicorn handles them, with what it lacks: time limits, a limit of headers, half-closed connections.

A client that shuts down its sending side after a whole request still gets its answer; one whose body ends too early is
told so (the scope's key TRUNCATED). Refusals before a request is complete are JSON as all others are.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from revup.serving.limits import LARGEST_HEAD, LAST_WORDS, MOST_DISCARDED, Limits

TRUNCATED = "revup.truncated"
CROWDED = "revup.crowded"
LONG_HEAD = f"expected at most {LARGEST_HEAD} bytes of headers, found more"


def connection_class(limits: Limits) -> type[asyncio.Protocol]:
    """The class of connections with these limits, as uvicorn's setting `http`."""
    return type("LimitedConnection", (Connection,), {"limits": limits})


class Connection(HttpToolsProtocol):  # type: ignore[misc]
    """A connection."""

    limits: Limits
    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _begun = False  # whether a request's first bytes are here, and its headers are not complete
    _discarded = 0
    _refused = False  # whether an answer was sent without the application
    _long = False  # whether the headers are longer than allowed
    _answering: Any = None  # the request that is being answered; later ones of a pipeline are already parsed

    def connection_made(self, transport: Any) -> None:
        """Start waiting for a request; a connection beyond the limit will be told to try again later."""
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > 2 * self.limits.max_connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting, and drop what would have been answered: uvicorn tells the request that was parsed last."""
        self._head_is_there()
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, unless the headers get too long; after a refusal it is dropped."""
        if self._refused:
            self._discard(data)
            return
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > LARGEST_HEAD:
                self._refuse(431, LONG_HEAD)

    def eof_received(self) -> bool:
        """Keep the connection of a client that sends no more, until it is answered."""
        if self._begun:
            self._refuse(400, "the request ended within its headers")
            return False
        if self.cycle is None or self.cycle.response_complete:
            return False
        if self.cycle.more_body:
            self.cycle.scope[TRUNCATED] = True
            self.cycle.more_body = False
            self.cycle.message_event.set()
        self.cycle.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        """Give the headers of a request their time."""
        super().on_message_begin()
        self._begun = True
        self._await_head()

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._head_is_there()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > LARGEST_HEAD:
            self._long = True  # they came at once, so nothing has counted them
            raise ValueError(LONG_HEAD)  # the parser calls `send_400_response`
        if len(self.connections) > self.limits.max_connections:
            self.scope[CROWDED] = True
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body; after a refusal it is dropped, so that the client gets to read the refusal."""
        if self.cycle.response_complete:
            self._discard(body)
            return
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Give the client its time to read the answer."""
        super().on_response_complete()
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self.loop.call_later(self.limits.timeout, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, also one whose client does not read its answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request, or has too many headers."""
        self._refuse(*((431, LONG_HEAD) if self._long else (400, "not a valid HTTP request")))

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.timeout, self._too_slow)

    def _head_is_there(self) -> None:
        self._begun, self._head_bytes = False, 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if self._begun:
            self._refuse(408, f"the headers did not arrive within {self.limits.timeout:g} seconds")
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer without the application, and close."""
        self._head_is_there()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # else the answer of another request would be cut
            body = json.dumps({"detail": message}).encode()
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
            # closing at once would reset a connection on which the client still sends, and take the answer from it
            self.transport.write_eof()
            self._refused = True
            self.loop.call_later(LAST_WORDS, self.transport.abort)
            return
        self.transport.close()

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > MOST_DISCARDED:
            self.transport.abort()
