"""One digest over the files of a directory, so that a changed, missing or added file is noticed when it is loaded.

`digest.json` holds the size and the SHA-256 of every file, and one digest over all names and digests. Text and small
files are always compared in full. Reading hundreds of megabytes of arrays at every start would be too slow: an array
file (.npy) above 1 MiB is compared by its size and by 64 blocks of 4 KiB, the first (its header) and the last among
them, unless the caller asks for all of it.

A single file is identified by the digest of its contents (`content_digest`), compressed or not.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from revup.errors import InputError
from revup.io.files import display_name, open_binary, read_json, require_file, write_json

DIGEST = "digest.json"
SAMPLED_ABOVE = 2**20  # bytes
BLOCK, BLOCKS = 4096, 64


def content_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's contents, 64 hexadecimal digits; of a .gz, of what it unpacks to.

    Args:
        path: The file.

    Raises:
        InputError: It can't be read.
    """
    digest = hashlib.sha256()
    try:
        with open_binary(path) as stream:
            while block := stream.read(SAMPLED_ABOVE):
                digest.update(block)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"the compressed file is damaged: {error}", display_name(path)) from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", display_name(path)) from None
    return digest.hexdigest()


def write_digest(folder: str | Path, names: Iterable[str] | None = None) -> str:
    """Write the digest of a directory's files to its `digest.json`.

    Args:
        folder: The directory.
        names: The files, as paths relative to it; all that are there (but for hidden ones) where absent.

    Returns:
        The digest over all of them, 64 hexadecimal digits.
    """
    root = Path(folder)
    if names is None:
        found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
        names = [path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts)]
    files = {name: _measure(root / name) for name in sorted(names) if name != DIGEST}
    whole = _digest_of(files)
    write_json(root / DIGEST, {"digest": whole, "files": files})
    return whole


def check_digest(folder: str | Path, verify: bool = False, reads: Iterable[str] = ()) -> str:
    """Compare a directory's files with its `digest.json`.

    Args:
        folder: The directory.
        verify: Read large arrays in full as well.
        reads: Files that the caller reads where they exist: one that is there but not in the digest is refused.

    Returns:
        The digest over all files, 64 hexadecimal digits.

    Raises:
        InputError: A file was changed, is missing or was added; the message names it.
    """
    root = Path(folder)
    if not (root / DIGEST).exists():
        raise InputError(f"damaged: {DIGEST} is missing", str(folder))
    whole, files = _read(root)
    if whole != _digest_of(files):
        raise InputError("damaged: it was changed after it was written", str(root / DIGEST))
    for name in reads:
        if name not in files and (root / name).exists():
            raise InputError(f"damaged: {name} was added after it was written", str(folder))
    for name, expected in files.items():
        try:
            require_file(root / name)
            same = _matches(root / name, expected, verify)
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(f"damaged: {name} is missing", str(folder)) from None
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror or error}", str(root / name)) from None
        if not same:
            raise InputError(f"damaged: {name} was changed after it was written", str(folder))
    return whole


Stamp = tuple[int, ...]


def digest_stamp(folder: str | Path) -> Stamp | None:
    """Return what tells a directory from a later one of the same name: the identity of its `digest.json`, if any."""
    try:
        found = (Path(folder) / DIGEST).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def as_one(folder: str | Path, stamp: Stamp | None) -> Iterator[None]:
    """Read files of a directory that belong together, while another process may put a new one in its place.

    Args:
        folder: The directory.
        stamp: Its `digest_stamp` before the first of its files was read.

    Raises:
        InputError: It was replaced in the meantime, whatever else seems wrong for that reason.
    """
    try:
        yield
    except (InputError, OSError):
        _refuse_replaced(folder, stamp)
        raise
    _refuse_replaced(folder, stamp)


def _refuse_replaced(folder: str | Path, stamp: Stamp | None) -> None:
    if digest_stamp(folder) != stamp:
        raise InputError("was replaced while it was read: run this again", str(folder)) from None


def _read(root: Path) -> tuple[str, dict[str, Any]]:
    """The digest over all files, and what is recorded of each."""
    record = read_json(root, DIGEST, "revup")
    whole, files = record.get("digest"), record.get("files")
    if not isinstance(whole, str) or not isinstance(files, dict) or not all(map(_is_record, files.values())):
        raise InputError("damaged: not a digest of files", str(root / DIGEST))
    for name in files:
        if PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor or ".." in PurePosixPath(name).parts:
            raise InputError(f"damaged: '{name}' is outside the directory", str(root / DIGEST))
    return whole, files


def _is_record(file: Any) -> bool:
    return isinstance(file, dict) and isinstance(file.get("size"), int) and isinstance(file.get("sha256"), str)


def _measure(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    sample = {"sample": _sample(path, size)} if _is_sampled(path, size) else {}
    return {"size": size, "sha256": _whole(path), **sample}


def _matches(path: Path, expected: dict[str, Any], verify: bool) -> bool:
    size = path.stat().st_size
    if size != expected["size"]:
        return False
    if _is_sampled(path, size) and not verify:
        return bool(_sample(path, size) == expected.get("sample"))
    return bool(_whole(path) == expected["sha256"])


def _is_sampled(path: Path, size: int) -> bool:
    return path.suffix == ".npy" and size > SAMPLED_ABOVE


def _whole(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sample(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for number in range(BLOCKS):
            stream.seek(number * (size - BLOCK) // (BLOCKS - 1), os.SEEK_SET)
            digest.update(stream.read(BLOCK))
    return digest.hexdigest()


def _digest_of(files: dict[str, Any]) -> str:
    """The digest over names and digests of all files."""
    parts = sorted((name, file["size"], file["sha256"], file.get("sample")) for name, file in files.items())
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def sealed_by(path: Path) -> Path | None:
    """Return the directory that has a file in its digest, or None.

    Args:
        path: The file; its directory or the one above may be a run or a dataset.
    """
    for folder in list(path.parents)[:2]:
        try:
            files = json.loads((folder / DIGEST).read_bytes())["files"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
        name = path.relative_to(folder).as_posix()
        if name == DIGEST or (isinstance(files, dict) and name in files):
            return folder
    return None
