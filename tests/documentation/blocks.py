"""Runs the code blocks of a page of the documentation.

The blocks of a page run in order in a temporary directory: Python blocks in one namespace, shell blocks line by line.
Comments in the page say what readers need not see:

    <!-- files: docs.jsonl, run -->     a new directory for what follows, with these files (see files.py)
    <!-- file: frames.csv -->           the next block is the content of this file
    <!-- not run: it needs a GPU -->    the next block is not run, for this reason

`revup …` runs in this process, and training, sweeps and searches are made small (SMALL below); other programs run in
bash. `revup serve` and `revup review` go on in the background until the page ends.
"""

from __future__ import annotations

import contextlib
import glob
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
from markdown_it import MarkdownIt

import revup
from documentation.files import FILES, put
from paths import ROOT
from revup import cli

TINY = {"embedding": 16, "hidden": 16, "latent": 8, "frame": 16, "layers": 1}
EPOCH = {"epochs": 1}
SWEEP = {"jobs": 1, "seeds": 1, "overrides": {"network": TINY, "training": EPOCH}, "device": "cpu"}
SMALL: dict[str, dict[str, Any]] = {  # what is overridden in calls of these functions
    "train": {"network": TINY, "training": EPOCH, "device": "cpu"},
    "tune": {**SWEEP, "trials": 2},
    "experiment": {**SWEEP, "quick": True, "systems": "lookup,revup"},
    "compare": {"seeds": 1, "bound": 2, "overrides": SWEEP["overrides"], "device": "cpu"},
}
DATA = {"text", "json", "jsonl", "csv", "released", "tuples", "cloze", "conllu", "html"}  # languages that nothing runs
DATA |= {"frame-semantic-transformer", "open-sesame", "hanlp", "allennlp", "omnievent"}
COMMENT = re.compile(r"<!-- (files|file|not run): (.*?) -->", re.S)
PORT = "127.0.0.1:8000"  # of `revup serve`, replaced by a free one
PATIENCE = 60.0  # seconds until a server must be ready


class Block(NamedTuple):
    """A code block: its language ("" where it has none), text and first line, and why it is not run, if so."""

    language: str
    text: str
    line: int
    reason: str | None
    files: list[str] | None  # a new directory with these files is made before it
    file: str | None = None  # the file that it is the content of


def blocks(page: Path) -> Iterator[Block]:
    """The code blocks of a page, with what comments before them say."""
    reason: str | None = None
    files: list[str] | None = None
    file: str | None = None
    for token in MarkdownIt("commonmark").parse(page.read_text("utf-8")):
        if token.type == "html_block":
            for kind, value in COMMENT.findall(token.content):
                if kind == "files":
                    files = [name.strip() for name in value.split(",") if name.strip()]
                elif kind == "file":
                    file = value.strip()
                else:
                    reason = value.strip()
        elif token.type in ("fence", "code_block"):
            assert token.map is not None
            language = token.info.strip() if token.type == "fence" else ""
            yield Block(language, token.content, token.map[0] + 1, reason, files, file)
            reason = files = file = None


@dataclass
class Runner:
    """Runs blocks one after another.

    Attributes:
        page: The page, for messages.
        root: An empty directory.
        cache: A directory of files that were made before, shared between pages.
        monkeypatch: Undoes what is changed for the page.
    """

    page: Path
    root: Path
    cache: Path
    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "page"}
        self.directories = 0
        self.background: list[subprocess.Popen[str]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        for name, smaller in SMALL.items():
            self.monkeypatch.setattr(revup, name, _smaller(getattr(revup, name), smaller))
        self.enter([])

    def enter(self, files: list[str]) -> None:
        """Go to a new directory that holds these files."""
        self.directories += 1
        folder = self.root / str(self.directories)
        folder.mkdir()
        for name in files:
            assert name in FILES, f"{self.page}: {name} is none of {', '.join(FILES)}"
            put(name, folder, self.cache)
        self.monkeypatch.chdir(folder)

    def run_all(self) -> None:
        """Run the blocks of the page."""
        try:
            for block in blocks(self.page):
                self.run(block)
        finally:
            self.close()

    def run(self, block: Block) -> None:
        """Run a block that can be run."""
        if block.files is not None:
            self.enter(block.files)
        if block.file is not None:
            Path(block.file).write_text(block.text, encoding="utf-8")
        if block.reason is not None or block.language not in ("python", "bash"):
            return
        text = block.text.replace(PORT, f"127.0.0.1:{self.port}")
        if block.language == "python":
            exec(compile("\n" * block.line + text, str(self.page), "exec"), self.names)
            return
        for line in text.replace("\\\n", " ").splitlines():
            if line.split("#")[0].strip():
                self.shell(line, f"{self.page}:{block.line}: {line}")

    def shell(self, line: str, place: str) -> None:
        """Run a line of a shell block."""
        words = shlex.split(line, comments=True)
        if words[0] != "revup" or {"|", "&&", "<"} & set(words):
            environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", line], env=environment, text=True, capture_output=True
            )
            assert done.returncode == 0, f"{place}\n{done.stdout}{done.stderr}"
            return
        out = None
        if ">" in words:
            words, out = words[: words.index(">")], words[-1]
        arguments = [path for word in words[1:] for path in (sorted(glob.glob(word)) if "*" in word else [word])]
        if arguments[0] == "serve":
            self.start([*arguments, "--port", str(self.port)], place)
        elif arguments[0] == "review" and not {"--page", "--export", "--import"} & set(arguments):
            self.start([*arguments, "--port", "0"], place)
        else:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                try:
                    cli.run(arguments)
                except revup.RevupError as error:
                    raise AssertionError(f"{place}\n{error}") from error
            if out is not None:
                Path(out).write_text(printed.getvalue(), encoding="utf-8")

    def start(self, arguments: list[str], place: str) -> None:
        """Start a server, and wait until it answers."""
        log = self.root / f"server-{len(self.background)}.log"
        with log.open("w") as written:
            server = subprocess.Popen(
                [sys.executable, "-m", "revup", *arguments], stderr=written, stdout=written, text=True
            )
        self.background.append(server)
        end = time.monotonic() + PATIENCE
        while not self.ready(arguments[0], log):
            if server.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{place}\n{log.read_text()}")
            time.sleep(0.05)

    def ready(self, verb: str, log: Path) -> bool:
        """Whether a server can be asked."""
        if verb != "serve":
            return "http://" in log.read_text()
        with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{self.port}/health") as answer:
            return answer.status == 200
        return False

    def close(self) -> None:
        """End what runs in the background."""
        for server in self.background:
            server.send_signal(signal.SIGTERM)
        for server in self.background:
            server.wait(PATIENCE)


def _smaller(function: Callable[..., Any], smaller: dict[str, Any]) -> Callable[..., Any]:
    """A function whose calls do less: dictionaries are merged, other parameters replaced."""

    def call(*given: Any, **named: Any) -> Any:
        if named.get("resume"):
            return function(*given, **named)
        for name, value in smaller.items():
            named[name] = _merged(named.get(name), value) if isinstance(value, dict) else value
        return function(*given, **named)

    return call


def _merged(given: Any, value: dict[str, Any]) -> dict[str, Any]:
    found = dict(given or {})
    for name, each in value.items():
        found[name] = _merged(found.get(name), each) if isinstance(each, dict) else each
    return found


def problem(block: Block, page: Path) -> str | None:
    """What is wrong with a block as it is written, if anything."""
    place = f"{page.relative_to(ROOT)}:{block.line}"
    if not block.language:
        return f"{place}: a block without a language; write ```bash, ```python or ```text"
    if block.language not in {"python", "bash", *DATA} and not block.language.startswith("{"):
        return f"{place}: nothing is known of the language {block.language}"
    if block.reason is not None and len(block.reason) < 10:
        return f"{place}: 'not run' needs a reason"
    if block.language in ("json", "jsonl") and block.reason is None:
        try:
            json.loads(block.text)
        except ValueError:
            for line in block.text.splitlines():
                json.loads(line)
    return None
