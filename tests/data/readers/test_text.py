"""Format "text": plain text through spaCy pipelines."""

from __future__ import annotations

import io
import pickle
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from paths import DATA as SHARED
from revup.data.events import Event
from revup.data.readers import Options, read, text
from revup.errors import InputError, RevupError

needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")


def shown(event: Event) -> str:
    slots = " ".join(slot or "_" for slot in (event.pred, event.subj, event.obj, event.mod))
    extra = event.extra or {}
    return slots + (" negated" if extra.get("negated") else "") + (" noun" if event.pos == "n" else "")


def write(folder: Path, content: str | bytes, name: str = "x.conllu") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline without weights whose rules parse `X verbs Y`, saved as any model is."""
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("attribute_ruler")
    ruler.add([[{"IS_ALPHA": True}]], {"TAG": "NN", "POS": "NOUN", "DEP": "dep"})
    for verb in ("chased", "saw"):
        ruler.add([[{"LOWER": verb}]], {"TAG": "VBD", "POS": "VERB", "DEP": "ROOT", "LEMMA": verb})
    pipeline.add_pipe("sentencizer")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    pipeline.to_disk(folder)
    return folder


def archived(folder: Path, target: Path) -> Path:
    if target.suffix == ".zip":
        with zipfile.ZipFile(target, "w") as packed:
            for file in sorted(folder.rglob("*")):
                packed.write(file, f"outer/{folder.name}/{file.relative_to(folder)}")
    else:
        with tarfile.open(target, "w:xz") as rolled:
            rolled.add(folder, f"outer/{folder.name}")
    return target


@pytest.fixture(autouse=True)
def fresh_models() -> None:
    text.load_model.cache_clear()


def events_by_line(path: str, model: Path, **options: str) -> list[tuple[str, list[str]]]:
    documents = read(path, "text", spacy_model=str(model), **options)
    return [(document.id, [event.pred for event in document.events]) for document in documents]


def test_model_may_be_a_directory_or_an_archive(tiny_model: Path, tmp_path: Path) -> None:
    path = write(tmp_path, "Cats chased mice.\n\nDogs saw cats. Cats saw dogs.\n", "x.txt")
    expected = [("x.txt:1", ["chased"]), ("x.txt:3", ["saw", "saw"])]
    for model in (tiny_model, archived(tiny_model, tmp_path / "m.zip"), archived(tiny_model, tmp_path / "m.tar.xz")):
        assert events_by_line(path, model) == expected


def test_file_as_document_of_paragraphs(tiny_model: Path, tmp_path: Path) -> None:
    path = write(tmp_path, "\nCats\nchased mice\n \nDogs saw cats", "x.txt")
    assert events_by_line(path, tiny_model, document="file") == [("x.txt:1", ["chased", "saw"])]
    assert events_by_line(write(tmp_path, "\n \n", "y.txt"), tiny_model, document="file") == []


def test_events_know_their_sentence(tiny_model: Path, tmp_path: Path) -> None:
    path = write(tmp_path, "Cats  chased mice.  Dogs saw  cats.\n", "x.txt")
    (document,) = read(path, "text", spacy_model=str(tiny_model))
    assert [event.text for event in document.events] == ["Cats chased mice.", "Dogs saw cats."]
    assert [(event.text or "")[slice(*(event.span or (0, 0)))] for event in document.events] == ["chased", "saw"]


def test_batches_keep_order_and_line_numbers(tiny_model: Path, tmp_path: Path) -> None:
    rows = [b"Cats chased mice %d" % number for number in range(100)]
    rows[40], rows[70] = b"\xff\xfe", b"Cats saw " + b"x" * text.LONGEST_TEXT
    path = write(tmp_path, b"\n".join(rows), "x.txt")
    errors: list[InputError] = []
    documents = list(read(path, "text", errors.append, spacy_model=str(tiny_model)))
    assert [document.id for document in documents] == [f"x.txt:{n + 1}" for n in range(100) if n not in (40, 70)]
    assert [error.line for error in errors] == [41, 71]
    options = Options(spacy_model="x")
    records = list(text.records(path, options))
    assert [len(record.data) for record in records if isinstance(record.data, list)] == [32, 8, 29, 29]
    assert pickle.loads(pickle.dumps(records[0])) == records[0]


@pytest.mark.parametrize("content", [b"Cats\n\xff\n", b"x" * 2000, b"word " * 300 + b"\n\nword"])
def test_file_that_is_no_document_is_one_error(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(text, "LONGEST_LINE", 1800)
    monkeypatch.setattr(text, "LONGEST_TEXT", 1000)
    errors: list[InputError] = []
    path = write(tmp_path, content, "x.txt")
    assert list(read(path, "text", errors.append, spacy_model=str(tiny_model), document="file")) == []
    assert len(errors) == 1
    assert errors[0].line


def test_unusable_models_are_refused_in_one_line(tiny_model: Path, tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy")
    path = write(tmp_path, "Cats chased mice.\n", "x.txt")

    def message(**options: str) -> str:
        with pytest.raises(RevupError) as caught:
            list(read(path, "text", **options))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "needs a spaCy model" in message()
    assert "document: expected line or file, found 'page'" in message(spacy_model="x", document="page")
    absent = message(spacy_model="no_such_model")
    assert "no spaCy model 'no_such_model': `python -m spacy download no_such_model` installs" in absent
    assert "found another file" in message(spacy_model=path)
    assert "no config.cfg" in message(spacy_model=str(tmp_path))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.cfg").write_text("[nlp")
    assert "not a spaCy model that can be loaded" in message(spacy_model=str(tmp_path / "broken"))
    assert "not a spaCy model that can be loaded" in message(spacy_model="numpy")
    spacy.blank("en").to_disk(tmp_path / "blank")
    assert "no parser" in message(spacy_model=str(tmp_path / "blank"))
    pipeline = spacy.blank("en")
    pipeline.add_pipe("attribute_ruler").add([[{"IS_ALPHA": True}]], {"DEP": "dep"})
    pipeline.to_disk(tmp_path / "untagged")
    assert "no tagger" in message(spacy_model=str(tmp_path / "untagged"))
    whole = archived(tiny_model, tmp_path / "m.tar.xz").read_bytes()
    (tmp_path / "cut.tar.xz").write_bytes(whole[: len(whole) - 200])
    assert "damaged" in message(spacy_model=str(tmp_path / "cut.tar.xz"))


def test_archive_writes_nothing_outside_its_directory(tmp_path: Path) -> None:
    path = write(tmp_path, "Cats chased mice.\n", "x.txt")
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as rolled:
        member = tarfile.TarInfo("../../escaped.txt")
        member.size = 2
        rolled.addfile(member, io.BytesIO(b"hi"))
    with pytest.raises(RevupError, match="damaged"):
        list(read(path, "text", spacy_model=str(evil)))
    assert not list(tmp_path.rglob("escaped.txt"))


def test_missing_spacy_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(RevupError, match=r"pip install 'revup\[text\]'"):
        list(read(write(tmp_path, "Cats chased mice.\n", "x.txt"), "text", spacy_model="x"))


@needs_shared
@pytest.mark.slow
def test_real_text_through_a_real_pipeline(tmp_path: Path) -> None:
    model = str(SHARED / "text" / "en_ud_small.tar.xz")
    path = str(SHARED / "text" / "wiki.txt.gz")
    assert sum(len(record.data) for record in text.records(path, Options(spacy_model=model))) == 500
    sentences = "The man was convicted of murder by the jury. He stopped working and moved to Paris.\n"
    (document,) = read(write(tmp_path, sentences, "x.txt"), "text", spacy_model=model)
    first, *_, stopped, working, moved = map(shown, document.events)
    assert first == "convicted jury man of"
    assert [stopped, working, moved] == ["stopped he _ _", "working he _ _", "moved he paris to"]
