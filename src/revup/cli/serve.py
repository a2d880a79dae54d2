"""`revup serve`."""

import argparse
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from revup.cli.options import Parser, chosen, whole
from revup.errors import RevupError
from revup.serving.limits import Limits

TOKEN = "REVUP_TOKEN"  # the environment variable


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "serve",
        "revup serve run",
        "revup serve run --spacy-model en_core_web_sm --port 8080",
        "revup serve --model news=run1 --model legal=run2 --token-file token.txt --host 0.0.0.0",
    )
    parser.add("run", nargs="?", metavar="RUN", help="a run directory")
    parser.add(
        "--model", action="append", default=[], type=_named, metavar="NAME=RUN", help="a further model; may be repeated"
    )
    parser.add("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on; 0.0.0.0 is every one")
    parser.add("--port", type=whole(0, 65535), default=8000, metavar="N", help="port to listen on; 0 is a free one")
    parser.add("--spacy-model", metavar="NAME_OR_PATH", help="a spaCy pipeline, to read texts too")
    parser.add(
        "--token-file",
        metavar="FILE",
        help=f"a file with the bearer token that clients must send (default: the variable {TOKEN}, if it is set)",
    )
    parser.add(
        "--cors",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="an origin whose pages may use it; may be repeated",
    )
    parser.add(
        "--log",
        default="none",
        choices=("none", "requests", "bodies"),
        help="log nothing about requests, their path, status and time, or also what users sent",
    )
    parser.common("--device", "--precision", "--allow-unfinished")
    parser.fields(Limits)
    given = parser.parse_args(arguments)
    models = _models(given)
    from revup.serving.server import serve

    with _logging():
        stopped = serve(
            models,
            given.host,
            given.port,
            spacy_model=given.spacy_model,
            token=_token(given.token_file),
            cors=given.cors,
            log_requests=given.log != "none",
            log_bodies=given.log == "bodies",
            device=given.device,
            precision=given.precision,
            allow_unfinished=given.allow_unfinished,
            **chosen(given, Limits),
        )
    if stopped == signal.SIGINT:
        raise KeyboardInterrupt


@contextmanager
def _logging() -> Iterator[None]:
    """Write what the server logs to standard error."""
    log, handler = logging.getLogger("revup.serving"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("revup: %(message)s"))
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _named(text: str) -> tuple[str, str]:
    name, equals, run = text.partition("=")
    if not (name and equals and run):
        raise argparse.ArgumentTypeError(f"expected NAME=RUN, found '{text}'")
    return name, run


def _models(given: argparse.Namespace) -> dict[str, str]:
    """The run directories by name; RUN comes first and is named after its directory."""
    own = [(os.path.basename(os.path.abspath(given.run)), given.run)] if given.run is not None else []
    models: dict[str, str] = {}
    for name, run in [*own, *given.model]:
        if name in models:
            raise RevupError(f"model: the name {name} is given twice")
        models[name] = run
    if not models:
        raise RevupError("expected RUN or --model NAME=RUN")
    return models


def _token(path: str | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN) or None
    with open(path, encoding="utf-8") as file:
        token = file.read().strip()
    if not token or not token.isascii() or any(letter.isspace() for letter in token):
        raise RevupError(f"{path}: expected a token of ASCII letters without blanks")
    return token
