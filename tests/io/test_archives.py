"""Archives: nothing is written outside, and none unpacks to many times its size."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from revup.errors import InputError
from revup.io.archives import unpacked


def packed(path: Path, data: bytes) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.xml", data)
    else:
        with tarfile.open(path, "w:gz") as rolled:
            member = tarfile.TarInfo("a.xml")
            member.size = len(data)
            rolled.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.tar.gz"])
def test_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("revup.io.archives.LARGEST_UNPACKED", 2**20)
    bomb = packed(tmp_path / name, bytes(2**22))
    with pytest.raises(InputError, match="more than 200 times as large"), unpacked(bomb):
        pass
    with unpacked(packed(tmp_path / f"small-{name}", bytes(2**19))) as folder:
        assert (folder / "a.xml").stat().st_size == 2**19
