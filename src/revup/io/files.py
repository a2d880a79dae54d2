"""Text files: opening (compressed or not, standard streams), reading line by line, writing atomically."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TextIO

from revup.errors import InputError

LONGEST_LINE = 32 * 2**20  # bytes; a longer line is a broken file, not a document


@contextmanager
def open_binary(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for reading: plain, .gz, or '-' for standard input."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        opened: IO[bytes] = gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb")  # type: ignore[assignment]  # noqa: SIM115
    except FileNotFoundError:
        raise InputError("no such file", str(path)) from None
    except IsADirectoryError:
        raise InputError("expected a file, found a directory", str(path)) from None
    except (OSError, ValueError) as error:
        raise InputError(f"can't be opened: {getattr(error, 'strerror', None) or error}", str(path)) from None
    with opened:
        yield opened


def lines(path: str | Path) -> Iterator[tuple[int, str | InputError]]:
    """Every line of a file with its number, an InputError standing where a line can't be read.

    Errors are values, not exceptions, so that a caller may count a bad line and go on; one that ends the file
    (a truncated .gz) comes last.
    """
    name, number = display_name(path), 0
    with open_binary(path) as stream:
        while True:
            number += 1
            try:
                raw = stream.readline(LONGEST_LINE + 1)
                if len(raw) > LONGEST_LINE:
                    while raw and not raw.endswith(b"\n"):
                        raw = stream.readline(LONGEST_LINE)
                    yield (
                        number,
                        InputError(f"the line is longer than {LONGEST_LINE // 2**20} MiB", name, number),
                    )
                    continue
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                yield number, InputError(f"the compressed file is damaged: {error}", name, number)
                return
            except OSError as error:
                yield number, InputError(f"can't be read: {error.strerror or error}", name, number)
                return
            if not raw:
                return
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                hint = " (compressed? then the name should end in .gz)" if raw.startswith(b"\x1f\x8b") else ""
                yield (
                    number,
                    InputError(f"not UTF-8 text: {error.reason} at byte {error.start}{hint}", name, number),
                )


def display_name(path: str | Path) -> str:
    """How errors and default ids call a source."""
    return "<stdin>" if str(path) == "-" else str(path)


@contextmanager
def open_output(path: str | Path, force: bool = True) -> Iterator[TextIO]:
    """Open a file for writing text: plain, .gz or '-'. The file appears whole, under its name, or not at all."""
    if str(path) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    target = Path(path)
    if target.is_dir() or (target.exists() and not force):
        raise InputError("exists already (--force replaces it)", str(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        file = open(partial, "wb")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", str(path)) from None
    try:
        with file as raw:
            if target.name.endswith(".gz"):
                # no name and no date inside: equal documents are equal bytes
                with (
                    gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed,
                    io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text,
                ):
                    yield text
            else:
                with io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as text:
                    yield text
        os.replace(partial, target)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """A text file that is there whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, "utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def commit() -> str | None:
    """The commit of the source tree this runs from, where it is one."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def write_list(path: Path, items: Iterable[str]) -> None:
    """A text file of one item a line; line breaks inside an item are written as blanks."""
    with open(path, "w", encoding="utf-8", errors="surrogatepass", newline="\n") as out:
        out.writelines(" ".join(item.split("\n")) + "\n" for item in items)


def read_list(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "surrogatepass").split("\n")[:-1]
