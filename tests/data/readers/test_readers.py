"""All readers: the real corpora, unknown formats, truncated files, missing libraries, the documentation."""

from __future__ import annotations

import gzip
import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import revup.data.readers
from paths import DATA as SHARED
from paths import ROOT
from revup.data.events import document_to_json
from revup.data.readers import Options, concrete, framenet, read, reader
from revup.errors import InputError, RevupError
from samples import (
    GIVEN,
    GOOD,
    ITEM,
    as_bytes,
    complaint,
    framenet_at,
    fulltext,
    jury,
    put,
    release,
    released,
)

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the real corpora (shared/data) are not here")


def test_unknown_format_lists_known_ones() -> None:
    with pytest.raises(RevupError, match="unknown format 'xml': one of jsonl, released, tuples"):
        reader("xml")


def test_jsonl_skips_blank_lines_and_counts_bad_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([GOOD.encode(), b"", b"{", b'{"events": []}', b"\xff", GOOD.encode()]))
    errors: list[InputError] = []
    assert [document.id for document in read(path, on_error=errors.append)] == ["a", "a"]
    assert [error.line for error in errors] == [3, 4, 5]
    assert complaint(path, "jsonl").startswith("a.jsonl: line 3: not valid JSON")


def test_empty_file_has_no_documents(tmp_path: Path) -> None:
    for format in ("jsonl", "released", "tuples", "cloze"):
        assert list(read(put(tmp_path / "a"), format=format)) == []


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize(
    ("corpus", "documents", "events", "framed", "frames"),
    [
        ("wiki", (35_586, 2_395, 2_503), 575_419, 507_940, 561),
        ("reuters", (9_503, 678, 703), 139_850, 125_413, 486),
        ("maven", (409, 59, 66), 10_108, 4_864, 158),
        ("framenet15", (49, 5, 8), 5_454, 5_454, 410),
    ],
)
def test_real_corpora_have_documented_sizes(
    corpus: str, documents: tuple[int, ...], events: int, framed: int, frames: int
) -> None:
    counted = [sum(1 for _ in read(SHARED / corpus / f"{split}.jsonl.gz")) for split in ("valid", "test")]
    train_documents = train_events = train_framed = 0
    names = set()
    for document in read(SHARED / corpus / "train.jsonl.gz"):
        train_documents += 1
        train_events += len(document.events)
        named = [event.frame for event in document.events if event.frame]
        train_framed += len(named)
        names.update(named)
    assert (train_documents, *counted) == documents
    assert (train_events, train_framed, len(names)) == (events, framed, frames)


@pytest.fixture
def samples(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "a.comm").write_bytes(as_bytes(jury()))
    return {
        "jsonl": put(tmp_path / "a.jsonl", GOOD),
        "released": release(tmp_path / "r.jsonl", {"abstract": [released()]}),
        "tuples": put(tmp_path / "t.txt", "a b c d"),
        "cloze": put(tmp_path / "c.txt", ITEM),
        "concrete": tmp_path / "a.comm",
        "framenet": framenet_at(tmp_path / "fn", fulltext(GIVEN)),
    }


def test_records_can_be_pickled(samples: dict[str, Path]) -> None:
    for name, path in samples.items():
        chosen, options = reader(name), Options()
        (record,) = chosen.records(str(path), options)
        assert list(chosen.parse(pickle.loads(pickle.dumps(record)), options)) == list(read(path, format=name))


@pytest.mark.parametrize("format", ["jsonl", "released", "tuples", "cloze", "concrete"])
def test_directory_in_place_of_a_file_is_refused(tmp_path: Path, format: str) -> None:
    (tmp_path / "folder").mkdir()
    assert complaint(tmp_path / "folder", format) == "folder: expected a file, found a directory"


@pytest.mark.parametrize("format", ["jsonl", "released", "tuples", "cloze"])
def test_truncated_gz_gives_complete_lines_and_an_error(tmp_path: Path, samples: dict[str, Path], format: str) -> None:
    line = samples[format].read_bytes()
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(line * 1000)[:-12])
    errors: list[InputError] = []
    documents = list(read(path, format, errors.append))
    assert len(documents) <= 1000
    assert [str(error).split(": ", 2)[2] for error in errors] == [
        "the compressed file is damaged: Compressed file ended before the end-of-stream marker was reached"
    ]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Make a library seem absent."""

    def hide(module: str) -> None:
        for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, module, None)

    caches = (concrete._thrift, framenet._nltk)
    for each in caches:
        each.cache_clear()
    yield hide
    for each in caches:
        each.cache_clear()


def test_missing_library_names_its_extra(samples: dict[str, Path], without: Callable[[str], None]) -> None:
    without("simplemma")
    with pytest.raises(RevupError, match=r"lemmas of words needs the extra 'text': pip install 'revup\[text\]'"):
        list(read(samples["framenet"], format="framenet", words="lemma"))
    framenet._nltk.cache_clear()
    without("nltk")
    with pytest.raises(RevupError, match="the format 'framenet' needs the extra 'text'"):
        list(read(samples["framenet"], format="framenet"))
    without("concrete")
    with pytest.raises(RevupError, match="the format 'concrete' needs the extra 'concrete'"):
        list(read(samples["concrete"], format="concrete"))


def test_reading_is_lazy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first document is there before the second is looked at."""
    path = put(tmp_path / "a.jsonl", GOOD, "{")
    documents = revup.data.readers.read(path)
    assert next(documents).id == "a"
    with pytest.raises(InputError):
        next(documents)


DOCUMENTATION = ROOT / "docs" / "formats.md"


BLOCK = r"((?:(?!```).*\n)*)```\n"


EXAMPLES = re.findall(rf"^```([\w-]+)\n{BLOCK}```json\n{BLOCK}", DOCUMENTATION.read_text("utf-8"), re.M)


@pytest.mark.parametrize(("format", "example", "expected"), EXAMPLES, ids=[example[0] for example in EXAMPLES])
def test_examples_of_the_documentation(tmp_path: Path, format: str, example: str, expected: str) -> None:
    (tmp_path / "example").write_text(example, encoding="utf-8")
    documents = [document_to_json(document) for document in read(tmp_path / "example", format=format)]
    assert documents == [json.loads(line) for line in expected.splitlines()]


def test_documentation_has_every_format() -> None:
    sections = re.findall(r"^## ([\w-]+)$", DOCUMENTATION.read_text("utf-8"), re.M)
    assert sections[: len(revup.data.readers.FORMATS)] == list(revup.data.readers.FORMATS)
    others = ["frame-semantic-transformer", "open-sesame", "hanlp", "allennlp", "omnievent"]
    shown = ["jsonl", "released", "tuples", "cloze", "conllu", "csv", *others]
    assert [format for format, _, _ in EXAMPLES] == shown
