"""The application: FastAPI's routes, and before them the two that must be fast.

`/predict` and `/embed` are answered without FastAPI's routing and validation, which would take longer than all the rest
of a request; they are described to it all the same (`openapi`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import revup
from revup.serving.openapi import describe
from revup.serving.requests import EMBED, PREDICT, Refused
from revup.serving.service import Service, log, refusal

PAGES = Path(__file__).parent / "page"
KINDS = {f"/{kind}": kind for kind in (PREDICT, EMBED)}
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGI = Callable[[Scope, Receive, Send], Awaitable[None]]


def make_app(service: Service, cors: Sequence[str] = (), log_requests: bool = False) -> ASGI:
    """The ASGI application of a service.

    Args:
        service: What answers.
        cors: Origins whose pages may use the server; none by default.
        log_requests: Write a line about each request to the log: path, status, time.
    """
    app = _routes(service)
    front: ASGI = Front(service, app, log_requests)
    if cors:
        allowed = {"allow_methods": ["GET", "POST"], "allow_headers": ["authorization", "content-type"]}
        front = CORSMiddleware(front, allow_origins=list(cors), **allowed)
    return front


class Front:
    """Answers `/predict` and `/embed`, passes everything else on, and counts.

    Args:
        service: What answers.
        app: The other routes.
        log_requests: Write a line about each request to the log.
    """

    def __init__(self, service: Service, app: FastAPI, log_requests: bool) -> None:
        self.service, self.app, self.log_requests = service, app, log_requests
        self._paths = {*KINDS, *(getattr(route, "path", "") for route in app.routes)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        metrics, path, begun, status = self.service.metrics, scope["path"], time.perf_counter(), 500
        metrics.in_progress += 1

        async def noting(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if path in KINDS:
                status = await self._answer(KINDS[path], scope, receive, send)
            else:
                await self.app(scope, receive, noting)
        except Exception as error:
            status = await _send_refusal(send, refusal(error))
        finally:
            metrics.in_progress -= 1
            took = time.perf_counter() - begun
            metrics.request(path if path in self._paths else "other", status, took)
            if self.log_requests:
                log.info("%s %s %d %.1f ms", scope["method"], path if path in self._paths else "…", status, 1000 * took)

    async def _answer(self, kind: str, scope: Scope, receive: Receive, send: Send) -> int:
        if scope["method"] != "POST":
            message = f"expected a POST request with JSON, found {scope['method'][:16]}; see /docs"
            return await _send_refusal(send, Refused(405, message), [(b"allow", b"POST")])
        try:
            body = await self.service.answer(kind, scope, receive)
        except Exception as error:
            return await _send_refusal(send, refusal(error))
        await _send(send, 200, body, [(b"connection", b"close")] if self.service.draining else [])
        return 200


CLOSING = (400, 408, 503)  # the rest of the request is not read, or the client should go elsewhere


async def _send_refusal(send: Send, refused: Refused, headers: Sequence[tuple[bytes, bytes]] = ()) -> int:
    more = [*headers]
    if refused.retry_after is not None:
        more.append((b"retry-after", str(refused.retry_after).encode()))
    if refused.status == 401:
        more.append((b"www-authenticate", b"Bearer"))
    if refused.status in CLOSING:
        more.append((b"connection", b"close"))
    await _send(send, refused.status, json.dumps(_detail(refused), ensure_ascii=False).encode("utf-8", "replace"), more)
    return refused.status


def _detail(refused: Refused) -> dict[str, str]:
    return {"detail": str(refused), **({"field": refused.field} if refused.field else {})}


async def _send(send: Send, status: int, body: bytes, more: Sequence[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# ---- the other routes ------------------------------------------------------------------------------------------------


def _routes(service: Service) -> FastAPI:
    app = FastAPI(title="revup", version=revup.__version__, docs_url=None, redoc_url=None)

    async def health() -> Response:
        """200 once the models are loaded; 503 before, and after the server was told to stop."""
        service.check_ready()
        return JSONResponse({"status": "ready"})

    async def info(request: Request) -> Response:
        """The models that are served, with their frames; the limits of requests; whether texts are read."""
        service.check_token(request.scope)
        service.check_ready()
        return JSONResponse(service.info())

    async def metrics(request: Request) -> Response:
        """Requests, their times, batches, the queue and memory in Prometheus' text format."""
        service.check_token(request.scope)
        text = service.metrics.text(**service.gauges())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def refused(request: Request, error: Refused) -> Response:
        headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
        headers |= {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
        return JSONResponse(_detail(error), error.status, headers)

    async def not_found(request: Request, error: HTTPException) -> Response:
        messages = {404: "no such path; see /docs", 405: "no such method here; see /docs"}
        detail = messages.get(error.status_code, str(error.detail))
        return JSONResponse({"detail": detail}, error.status_code, error.headers)

    app.add_api_route("/health", health, summary="Whether the server is ready")
    app.add_api_route("/health", health, methods=["HEAD"], include_in_schema=False)
    app.add_api_route("/info", info, summary="Models, their frames, and limits")
    app.add_api_route("/metrics", metrics, summary="Counters for Prometheus", response_class=PlainTextResponse)
    for path in sorted(PAGES.iterdir()):
        if path.suffix in TYPES:
            address = {"index.html": "/", "docs.html": "/docs"}.get(path.name, f"/page/{path.name}")
            app.add_api_route(address, _file(path), methods=["GET", "HEAD"], include_in_schema=False)
    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(HTTPException, not_found)
    described = describe(app)
    app.openapi = lambda: described
    return app


def _file(path: Path) -> Callable[[], Awaitable[Response]]:
    content = path.read_bytes()
    headers = {
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }

    async def file() -> Response:
        return Response(content, media_type=TYPES[path.suffix], headers=headers)

    return file
