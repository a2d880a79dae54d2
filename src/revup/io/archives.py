"""Archives given in place of a directory: unpacked safely to a temporary one."""

from __future__ import annotations

import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path

from revup.errors import InputError

LARGEST_UNPACKED = 2**30  # bytes that any archive may hold; beyond that
LARGEST_RATIO = 200  # times the size of the archive: text is compressed to a tenth, a bomb to a thousandth
DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, NotImplementedError, RuntimeError)
"""What opening a damaged archive raises."""


def is_archive(path: str | Path) -> bool:
    """Return whether a path is a .zip or .tar file, compressed or not."""
    try:
        return Path(path).is_file() and (zipfile.is_zipfile(path) or tarfile.is_tarfile(path))
    except OSError as error:
        raise InputError(f"can't be opened: {error.strerror or error}", str(path)) from None


@contextmanager
def unpacked(path: str | Path, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Path]:
    """Unpack an archive (.zip, .tar, .tar.gz, .tar.xz …) to a temporary directory while the block runs.

    Nothing is written outside that directory; links, devices and permissions of the archive are ignored.

    Args:
        path: The archive.
        wanted: Which of its files to unpack, by name.

    Raises:
        InputError: The archive is damaged or can't be unpacked.
    """
    with tempfile.TemporaryDirectory(prefix="revup-") as folder:
        try:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as packed:
                    chosen = [item for item in packed.infolist() if wanted(item.filename)]
                    refuse_bomb(path, sum(item.file_size for item in chosen))
                    packed.extractall(folder, chosen)
            else:
                with tarfile.open(path) as rolled:
                    rolled.extractall(folder, _members(rolled, path, wanted), filter="data")
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"can't be unpacked: {reason}", str(path)) from None
        except DAMAGED as error:
            raise InputError(f"the archive is damaged: {error}", str(path)) from None
        _make_private(folder)
        yield Path(folder)


def _members(rolled: tarfile.TarFile, path: str | Path, wanted: Callable[[str], bool]) -> Iterator[tarfile.TarInfo]:
    total = 0
    for member in rolled:
        total += member.size  # what is not wanted is decompressed all the same
        refuse_bomb(path, total)
        if member.isfile() and wanted(member.name):
            yield member


def refuse_bomb(path: str | Path, size: int) -> None:
    """Refuse an archive that unpacks to more than `LARGEST_UNPACKED` and to far more than its own size.

    Args:
        path: The archive.
        size: Bytes that it unpacks to.

    Raises:
        InputError: It does.
    """
    if size > max(LARGEST_UNPACKED, LARGEST_RATIO * os.path.getsize(path)):
        raise InputError(f"unpacked it would be more than {LARGEST_RATIO} times as large", str(path))


def _make_private(folder: str) -> None:
    """Remove the permissions of other accounts: NLTK refuses files that others may write."""
    for place, _, names in os.walk(folder):
        os.chmod(place, 0o700)
        for name in names:
            os.chmod(os.path.join(place, name), 0o600)
