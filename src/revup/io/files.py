"""Files: opening (compressed or not, standard streams), reading line by line, writing atomically, lists."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TextIO, cast

from revup.errors import DEVICE_ERRORS, InputError, OutputExistsError, UnfinishedError
from revup.io.standard_input import is_idle, open_standard_input
from revup.io.temporary import claim, remove_abandoned, temporary_path

LONGEST_LINE = 32 * 2**20  # bytes; a longer line is a broken file, not a document
MOST_BLANK_LINES = 1_000_000  # in a row; more are a broken file: a few compressed kilobytes may hold a hundred million
LARGEST_JSON = 64 * 2**20  # bytes of a file that describes a directory of revup's


@contextmanager
def open_binary(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes: plain, .gz, or "-" for standard input."""
    if str(path) == "-":
        yield open_standard_input()
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
    """Yield every line of a file with its number, and an InputError in place of a line that can't be read.

    Errors are values, not exceptions, so that a caller may count a bad line and continue; an error that ends the
    file (a truncated .gz) comes last.

    Args:
        path: The file; ".gz" is decompressed, "-" is standard input.
    """
    return cast(Iterator[tuple[int, str | InputError]], _lines(path, pauses=False))


def lines_and_pauses(path: str | Path) -> Iterator[tuple[int, str | InputError | None]]:
    """Yield what `lines` does, and None before a line of standard input that is not there yet.

    Args:
        path: The file; ".gz" is decompressed, "-" is standard input.
    """
    return _lines(path, pauses=True)


def _lines(path: str | Path, pauses: bool) -> Iterator[tuple[int, str | InputError | None]]:
    name, number, blank = display_name(path), 0, 0
    with open_binary(path) as stream:
        while True:
            number += 1
            if pauses and is_idle(stream):
                yield number, None
            try:
                raw = stream.readline(LONGEST_LINE + 1)
                if len(raw) > LONGEST_LINE:
                    while raw and not raw.endswith(b"\n"):
                        raw = stream.readline(LONGEST_LINE)
                    yield number, InputError(f"the line is longer than {LONGEST_LINE // 2**20} MiB", name, number)
                    continue
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                yield number, InputError(f"the compressed file is damaged: {error}", name, number)
                return
            except OSError as error:
                yield number, InputError(f"can't be read: {error.strerror or error}", name, number)
                return
            if not raw:
                return
            blank = blank + 1 if raw.isspace() else 0
            if blank > MOST_BLANK_LINES:
                yield number, InputError(f"more than {MOST_BLANK_LINES:,} blank lines in a row", name, number)
                return
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                hint = " (compressed? then the name should end in .gz)" if raw.startswith(b"\x1f\x8b") else ""
                yield number, InputError(f"not UTF-8 text: {error.reason} at byte {error.start}{hint}", name, number)


def display_name(path: str | Path) -> str:
    """Return the name of a file in error messages and default ids."""
    return "<stdin>" if str(path) == "-" else str(path)


# ---- writing -----------------------------------------------------------------------------------------------


def is_special(path: Path) -> bool:
    """Whether a path is a device, a named pipe or a socket, which a file must not replace."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Write a file under a temporary name beside it; it gets its own name, complete and on disk, when the block ends.

    After an error, a file that was there before is unchanged and the temporary one is gone. After a kill, the next
    writer of the file removes the temporary one.

    Args:
        path: The file to write; its directory is created where it is missing.

    Yields:
        The temporary path to write to.

    Raises:
        InputError: The place can't be written to.
        UnfinishedError: The disk is full or failed; the message names the file.
    """
    target = Path(path)
    temporary = temporary_path(target)
    if target.exists() and not target.is_file():
        found = "a directory" if target.is_dir() else "a pipe or a device"
        raise InputError(f"can't be written: it is {found}", str(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(target)
        claimed = claim(temporary)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror or error}", str(path)) from None
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.errno in DEVICE_ERRORS or error.filename == str(temporary):
            raise UnfinishedError(f"{path}: can't be written: {error.strerror or error}") from None
        raise
    finally:
        with suppress(OSError), claimed:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_file(path: str | Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file for writing that appears complete when the block ends, or not at all (see `atomic_path`).

    Args:
        path: The file to write.
        mode: "wb" for bytes, "w" for UTF-8 text with "\\n" line breaks.
    """
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    with atomic_path(path) as temporary, open(temporary, mode, **text) as out:
        yield out


@contextmanager
def open_output(path: str | Path, force: bool = True) -> Iterator[TextIO]:
    """Open a text file for writing that appears complete when the block ends, or not at all.

    Args:
        path: The file; ".gz" is compressed, "-" is standard output. A device or a named pipe is written into.
        force: Replace a file that exists.

    Raises:
        OutputExistsError: The file exists and `force` is false.
    """
    if str(path) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    target = Path(path)
    if target.is_dir():
        raise InputError("can't be written: it is a directory", str(path))
    if is_special(target):
        try:
            with open(target, "w", encoding="utf-8", newline="\n") as out:
                yield out
        except OSError as error:
            if error.filename is None and error.errno in DEVICE_ERRORS:
                raise UnfinishedError(f"{path}: can't be written: {error.strerror}") from None
            raise
        return
    if target.exists() and not force:
        raise OutputExistsError("exists already", str(path))
    with ExitStack() as stack:
        if target.name.endswith(".gz"):
            raw = stack.enter_context(atomic_file(target))
            # no name and no date inside: equal documents are equal bytes
            packed = gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0)
            yield stack.enter_context(io.TextIOWrapper(stack.enter_context(packed), encoding="utf-8", newline="\n"))
        else:
            yield cast(TextIO, stack.enter_context(atomic_file(target, "w")))


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_file(path, "w") as out:
        out.write(text)


def write_json(path: str | Path, data: Any) -> None:
    """Write a value as an indented JSON file, atomically."""
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read_json(folder: Path, name: str, kind: str) -> dict[str, Any]:
    """Read a JSON object from a directory of revup's.

    Args:
        folder: The directory.
        name: The file in it.
        kind: What the directory should be, "dataset" or "run".

    Raises:
        InputError: The file is missing, or is not a JSON object.
    """
    path = folder / name
    try:
        require_file(path, LARGEST_JSON)
        found = json.loads(path.read_bytes().decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"not a {kind} directory: {name} is missing", str(folder)) from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", str(path)) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"damaged: not valid JSON: {json_problem(error)}", str(path)) from None
    if not isinstance(found, dict):
        raise InputError("damaged: expected a JSON object", str(folder / name))
    return found


def json_problem(error: Exception) -> str:
    """Return what is wrong with a JSON text that Python's parser refused, in a user's words.

    Args:
        error: What the parser raised.
    """
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg[:1].lower()}{error.msg[1:]} at line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text at byte {error.start}"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def require_file(path: Path, largest: int | None = None) -> None:
    """Refuse what is no regular file: a pipe or a device in a directory would be read for ever.

    Args:
        path: The file. A link to a regular file is one.
        largest: The largest size in bytes.

    Raises:
        InputError: It is a directory, a pipe or a device, too large, or can't be looked at.
        FileNotFoundError, NotADirectoryError: There is nothing.
    """
    try:
        about = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:  # such as a link to itself
        raise InputError(f"can't be read: {error.strerror or error}", str(path)) from None
    if not stat.S_ISREG(about.st_mode):
        found = "a directory" if stat.S_ISDIR(about.st_mode) else "a pipe or a device"
        raise InputError(f"damaged: expected a file, found {found}", str(path))
    if largest is not None and about.st_size > largest:
        raise InputError(f"damaged: larger than {largest // 2**20} MiB", str(path))


# ---- lists -------------------------------------------------------------------------------------------------


def write_list(path: Path, items: Iterable[str]) -> None:
    """Write a text file of one item a line; line breaks inside an item become blanks."""
    with atomic_file(path) as out:
        out.writelines((" ".join(item.split("\n")) + "\n").encode("utf-8", "surrogatepass") for item in items)


def read_list(path: Path, unique: bool = True, minimum: int = 1) -> list[str]:
    """Read a text file of one item a line.

    Args:
        path: The file.
        unique: Refuse an item that stands there twice.
        minimum: The least number of items.

    Raises:
        InputError: The file can't be read, is cut short, has too few items or has one twice.
        FileNotFoundError: There is no such file.
    """
    require_file(path)
    try:
        text = path.read_bytes().decode("utf-8", "surrogatepass")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", str(path)) from None
    except UnicodeDecodeError as error:
        raise InputError(f"not UTF-8 text: {error.reason} at byte {error.start}", str(path)) from None
    *items, rest = text.split("\n")
    if rest:
        raise InputError("cut short: the last line has no line break", str(path), len(items) + 1)
    if len(items) < minimum:
        found = len(items) or "an empty file"
        raise InputError(f"expected a list of {minimum} or more lines, found {found}", str(path))
    if unique and len(set(items)) < len(items):
        first: dict[str, int] = {}
        for number, item in enumerate(items, 1):
            if first.setdefault(item, number) != number:
                raise InputError(f"{item[:40]!r} stands there twice, first on line {first[item]}", str(path), number)
    return items


def commit() -> str | None:
    """Return the commit of the source tree this runs from, or None where it is not one."""
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
