"""Format "framenet": annotated sentences known by hand, damaged files."""

from __future__ import annotations

import random
import shutil
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from paths import DATA as SHARED
from revup.data.events import Document, Event
from revup.data.readers import read
from revup.errors import InputError
from samples import (
    GIVEN,
    HANDED,
    UNITS,
    complaint,
    framenet_at,
    fulltext,
    put,
)

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the real corpora (shared/data) are not here")


def verb(pred: str, *slots: str | None, frame: str, lemma: str | None = None, pos: str = "v") -> Event:
    return Event(pred, *slots, frame=frame, lemma=lemma, pos=pos)


def test_framenet_documents(tmp_path: Path) -> None:
    root = framenet_at(tmp_path / "fn", fulltext(GIVEN, HANDED), fulltext())
    first, second = read(root, format="framenet")
    assert first.id == "Corpus__doc0"
    assert [replace(event, text=None, span=None) for event in first.events] == [
        verb("given", "man", "gun", "to", frame="Giving", lemma="give"),
        verb("ask", "people", None, None, frame="Request"),
        verb("gifts", "her", "money", "to", frame="Giving", lemma="gift", pos="n"),
        verb("handed-over", "gifts", "power", None, frame="Giving", lemma="hand-over"),
    ]
    shown = [(event.text or "")[slice(*(event.span or (0, 0)))] for event in first.events]
    assert shown == ["given", "ask", "gifts", "handed"]
    assert second == Document("Corpus__doc1", [])
    (lemmas, _) = read(root, format="framenet", words="lemma")
    assert lemmas.events[3].subj == "gift"


def test_framenet_archive_equals_directory(tmp_path: Path) -> None:
    root = framenet_at(tmp_path / "up" / "fn", fulltext(GIVEN), fulltext(HANDED))
    expected = list(read(root, format="framenet"))
    assert len(expected) == 2
    assert list(read(root.parent, format="framenet")) == expected
    for kind in ("xztar", "zip"):
        archive = shutil.make_archive(str(tmp_path / "packed"), kind, root.parent)
        assert list(read(archive, format="framenet")) == expected


def test_framenet_reads_group_writable_files(tmp_path: Path) -> None:
    root = framenet_at(tmp_path / "fn", fulltext(GIVEN))
    for path in (*root.rglob("*"), root):
        path.chmod(0o777 if path.is_dir() else 0o666)
    assert len(list(read(root, format="framenet"))) == 1


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (fulltext(GIVEN)[:-40], "line 3: broken XML: unclosed token at column "),
        ("", "line 1: broken XML: no element found"),
        ("<lexUnit/>", "expected <fullTextAnnotation>, found <lexUnit>"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a/>', "not FrameNet's XML: it declares entities"),
        (fulltext("<sentence/>"), "not FrameNet's full-text annotation: an element or attribute is missing"),
        (fulltext(GIVEN.replace('start="0"', 'start="-3"')), "annotationSet 8: label: start: expected the position of"),
        (
            fulltext(GIVEN.replace('name="FE"', 'name="EF"')),
            "not FrameNet's full-text annotation: an element or attribute is missing",
        ),
        ('<?xml version="1.0" encoding="klingon"?><a/>', "broken XML: unknown encoding: klingon"),
    ],
)
def test_broken_framenet_document_is_counted(tmp_path: Path, document: str, expected: str) -> None:
    root = framenet_at(tmp_path / "fn", fulltext(GIVEN), document, fulltext(HANDED))
    errors: list[InputError] = []
    assert [found.id for found in read(root, "framenet", errors.append)] == ["Corpus__doc0", "Corpus__doc2"]
    (error,) = errors
    assert str(error).startswith(f"{root}/fulltext/Corpus__doc1.xml: {expected}")


def test_other_directories_and_files_are_no_framenet(tmp_path: Path) -> None:
    layout = "expected FrameNet's directory (or an archive of it) with luIndex.xml and fulltext/*.xml"
    assert complaint(tmp_path / "no", "framenet") == "no: no such file or directory"
    assert complaint(put(tmp_path / "file.xml", UNITS), "framenet") == (
        f"file.xml: {layout}, found a file that is no archive"
    )
    (tmp_path / "empty").mkdir()
    assert complaint(tmp_path / "empty", "framenet") == f"empty: {layout}"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("luIndex.xml", UNITS)
    assert complaint(tmp_path / "a.zip", "framenet") == f"a.zip: {layout}"
    root = framenet_at(tmp_path / "fn", fulltext(GIVEN))
    put(root / "luIndex.xml", "<luIndex>")
    assert complaint(root, "framenet").startswith("fn/luIndex.xml: line 2: broken XML")
    (root / "noise").write_bytes(random.Random(1).randbytes(200_000))
    packed = Path(shutil.make_archive(str(tmp_path / "cut"), "gztar", root))
    packed.write_bytes(packed.read_bytes()[:-100_000])
    assert "the archive is damaged" in complaint(packed, "framenet")


def test_unreadable_framenet_file(tmp_path: Path) -> None:
    root = framenet_at(tmp_path / "fn", fulltext(GIVEN))
    (root / "fulltext" / "b.xml").mkdir()
    errors: list[InputError] = []
    assert len(list(read(root, "framenet", errors.append))) == 1
    assert str(errors[0]).endswith("b.xml: can't be read: Is a directory")


def test_unreadable_framenet_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tarfile, "is_tarfile", refuse)
    assert complaint(put(tmp_path / "a.zip"), "framenet") == "a.zip: can't be opened: Permission denied"


@needs_shared
@pytest.mark.slow
def test_real_framenet_full_text() -> None:
    documents = list(read(SHARED / "framenet15" / "framenet_v15.tar.xz", format="framenet"))
    assert len(documents) == 62
    theirs = {
        document.id: document
        for split in ("train", "valid", "test")
        for document in read(SHARED / "framenet15" / f"{split}.jsonl.gz")
    }
    assert {document.id for document in documents} == set(theirs)
    # the corpus made from the same release has ten events more: nouns of Social_event, for which luIndex has no verb
    for document in documents:
        mine, others = (
            sorted(event.frame or "" for event in each.events if event.frame != "Social_event")
            for each in (document, theirs[document.id])
        )
        assert mine == others
    assert sum(len(document.events) for document in documents) == 8_195
