"""Archives that users hand over in place of a directory: unpacked safely, read, and gone again."""

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

_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, NotImplementedError, RuntimeError)


def is_archive(path: str | Path) -> bool:
    return Path(path).is_file() and (zipfile.is_zipfile(path) or tarfile.is_tarfile(path))


@contextmanager
def unpacked(path: str | Path, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Path]:
    """A directory with the archive's wanted files (.zip, .tar, .tar.gz, .tar.xz …), there while the block runs.

    Nothing is written outside that directory, and links, devices and foreign permissions are left behind.
    """
    with tempfile.TemporaryDirectory(prefix="revup-") as folder:
        try:
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as packed:
                    packed.extractall(folder, [name for name in packed.namelist() if wanted(name)])
            else:
                with tarfile.open(path) as rolled:
                    members = (member for member in rolled if member.isfile() and wanted(member.name))
                    rolled.extractall(folder, members, filter="data")
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"can't be unpacked: {reason}", str(path)) from None
        except _DAMAGED as error:
            raise InputError(f"the archive is damaged: {error}", str(path)) from None
        _make_private(folder)
        yield Path(folder)


def _make_private(folder: str) -> None:
    """Take write permission from others, whatever the umask: NLTK reads no file that another account may write."""
    for place, _, names in os.walk(folder):
        os.chmod(place, 0o700)
        for name in names:
            os.chmod(os.path.join(place, name), 0o600)
