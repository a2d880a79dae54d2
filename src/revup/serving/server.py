"""Starting and stopping the server: sockets, loading, signals."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ParamSpec

from revup.errors import RevupError, missing_extra
from revup.serving.limits import GRACE, KEEP_ALIVE, LAST, OTHER_FILES, Limits

if TYPE_CHECKING:
    from revup.inference.trained import Trained

try:
    import orjson as _faster  # noqa: F401
    import uvicorn
    from uvicorn.protocols.http import httptools_impl as _needed  # noqa: F401

    from revup.serving.app import make_app
    from revup.serving.protocol import connection_class
    from revup.serving.service import Service
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("uvicorn", "fastapi", "starlette", "httptools", "orjson"):
        raise
    raise missing_extra("serve", "the server") from None

log = logging.getLogger("revup.serving")
P = ParamSpec("P")


def _server(
    models: Trained | str | Path | Mapping[str, Trained | str | Path],
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    spacy_model: str | None = None,
    token: str | None = None,
    cors: Sequence[str] = (),
    log_requests: bool = False,
    log_bodies: bool = False,
    device: str | None = None,
    precision: str = "float32",
    allow_unfinished: bool = False,
    **limits: Any,
) -> _Server:
    """Serve models over HTTP until a signal comes. Requests that were accepted before it are answered.

    Args:
        models: A model or run directory, or several by name; the first is the default.
        host: The address to listen on; "0.0.0.0" is every one of this machine's.
        port: The port; 0 is a free one, which the log names.
        spacy_model: The name or path of a spaCy pipeline, to read texts too.
        token: A bearer token that clients must send.
        cors: Origins whose pages may use the server from a browser.
        log_requests: Log path, status and time of each request.
        log_bodies: Log also what users sent.
        device: cpu or cuda; None: cuda where there is one.
        precision: float32 or bf16.
        allow_unfinished: Accept runs whose training has not finished.
        **limits: Fields of `revup.serving.limits.Limits`, such as max_queue=1000.

    Returns:
        The signal that stopped it.

    Raises:
        RevupError: A model can't be loaded, or the port can't be used.
    """
    for origin in cors:
        if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
            raise RevupError(f"cors: expected an origin such as https://example.org, found '{origin}'")
    checked = Limits(**limits)
    if checked.max_queue < checked.max_events:
        raise RevupError(f"max-queue: expected at least max-events ({checked.max_events}), found {checked.max_queue}")
    service = Service(checked, token, log_bodies)
    config = uvicorn.Config(
        make_app(service, cors, log_requests or log_bodies),
        http=connection_class(checked),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(checked.timeout) + 1,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # its messages may quote requests
    _allow_files(2 * checked.max_connections)
    named = dict(models) if isinstance(models, Mapping) else {_name_of(models): models}
    how = {"device": device, "precision": precision, "allow_unfinished": allow_unfinished}
    return _Server(config, service, _bound(host, port), _Loading(named, how, spacy_model))


def _until_signal(build: Callable[P, _Server]) -> Callable[P, int]:
    """The function that builds a server with the same arguments and runs it until a signal comes."""

    def serve(*arguments: P.args, **options: P.kwargs) -> int:
        server = build(*arguments, **options)
        server.run([server.socket])
        if server.failed is not None:
            raise server.failed
        return server.signal

    serve.__doc__, serve.__module__ = build.__doc__, __name__
    serve.__signature__ = inspect.signature(build).replace(return_annotation=int)  # type: ignore[attr-defined]
    return serve


serve = _until_signal(_server)


@contextmanager
def running(models: Any, host: str = "127.0.0.1", port: int = 0, **options: Any) -> Iterator[str]:
    """Serve in a thread of this process, until the block ends.

    Args:
        models, host, port, **options: As for `serve`; the port is a free one by default.

    Yields:
        The server's address, such as http://127.0.0.1:40000.
    """
    server = _server(models, host, port, **options)
    thread = threading.Thread(target=server.run, args=([server.socket],), name="revup-serve", daemon=True)
    thread.start()
    try:
        while not server.service.ready and thread.is_alive():
            time.sleep(0.005)
        if server.failed is not None:
            raise server.failed
        yield server.address
    finally:
        server.stop()
        thread.join()


def _name_of(model: Trained | str | Path) -> str:
    """The name of a run directory; of a model that has none, its kind."""
    path = model if isinstance(model, str | Path) else model.path
    if path is not None:
        return Path(path).resolve().name
    return model.config.model if not isinstance(model, str | Path) else ""


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise RevupError(f"host: '{host}' is no address of this machine: {error.strerror}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        bound.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise RevupError(f"can't listen on {host}, port {port}: {reason}") from None
    bound.setblocking(False)
    return bound


def _allow_files(connections: int) -> None:
    """Raise the number of files that this process may open, where the system allows it: a connection is one."""
    try:
        import resource
    except ImportError:  # not a Unix system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _Loading:
    """Loads models and a text pipeline, in a thread beside the event loop, which already answers `/health`."""

    def __init__(self, models: dict[str, Any], options: dict[str, Any], spacy_model: str | None) -> None:
        self._models, self._options, self._spacy_model = models, options, spacy_model

    def __call__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        """Load, warm up, and let the service start."""
        import torch

        from revup.inference.loading import load
        from revup.inference.trained import Trained
        from revup.serving.answers import Answers, Texts

        loaded: dict[str, Trained] = {}
        for name, model in self._models.items():
            trained = model if isinstance(model, Trained) else load(model, **self._options)
            loaded[name] = trained
        texts = Texts(self._spacy_model) if self._spacy_model else None
        answers = Answers(loaded)
        on_cpu = any(trained.device.type == "cpu" for trained in loaded.values())
        threads = torch.get_num_threads() if on_cpu else 1
        gc.collect()
        gc.freeze()  # models and libraries stay: garbage collection skips them from now on

        def start() -> None:
            service.start(answers, texts, threads, lambda: torch.set_num_threads(1 if on_cpu else threads))

        loop.call_soon_threadsafe(start)


class _Server(uvicorn.Server):  # type: ignore[misc]
    """uvicorn's server, which loads models after it has begun to listen, and drains before it closes its port.

    Attributes:
        address: Its address, as a browser takes it.
        signal: The signal that stopped it.
        failed: Why it could not start.
    """

    def __init__(self, config: uvicorn.Config, service: Service, bound: socket.socket, loading: _Loading) -> None:
        super().__init__(config)
        self.service, self.socket, self._loading = service, bound, loading
        host, port = bound.getsockname()[:2]
        self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self.signal = 0
        self.failed: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Load the models, then wait for a signal, then drain."""
        self._loop = asyncio.get_running_loop()
        loading = asyncio.create_task(asyncio.to_thread(self._load))
        log.info("listening on %s", self.address)
        was_ready = False
        for counter in _forever():
            if await self.on_tick(counter % 10) or self.service.draining:
                break
            if self.service.ready and not was_ready:
                was_ready = True
                log.info("ready")
            await asyncio.sleep(0.1)
        self.service.draining = True
        end = time.monotonic() + GRACE
        patience = end + self.service.limits.timeout
        while not self.force_exit and time.monotonic() < (end if self.service.idle else patience):
            await asyncio.sleep(0.02)
        with suppress(asyncio.CancelledError):
            await loading

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, answer what was sent before, close every connection, and end all threads."""
        if not self.force_exit:
            self.socket.listen(0)  # who connects now waits, and is then refused; who has connected is answered
            await asyncio.sleep(LAST)
            for server in self.servers:
                server.close()
            await asyncio.sleep(LAST)
        await super().shutdown(sockets)
        self.service.close()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain after the first signal; leave at once after the second."""
        if self.service.draining:
            self.force_exit = self.should_exit = True
        self.signal = self.signal or sig
        self.stop()

    def stop(self) -> None:
        """Drain, and end."""
        self.service.draining = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGTERM, SIGINT and SIGHUP, in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _load(self) -> None:
        assert self._loop is not None
        try:
            self._loading(self.service, self._loop)
        except BaseException as error:
            self.failed = error
            self.service.draining = self.force_exit = True


def _forever() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1
