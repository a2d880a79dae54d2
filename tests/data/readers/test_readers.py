"""Each format against documents known by hand, the real corpora where they are there, and bad input of every kind."""

from __future__ import annotations

import gzip
import json
import pickle
import random
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import revup.data.readers
from paths import DATA as SHARED
from paths import ROOT
from revup.data.events import Document, Event, document_to_json
from revup.data.readers import Options, concrete, framenet, read, reader
from revup.data.readers.cloze import items
from revup.data.readers.spans import TaggedWords
from revup.errors import InputError, RevupError
from samples import (
    GIVEN,
    GOOD,
    HANDED,
    ITEM,
    JURY,
    SEMAFOR,
    UNITS,
    as_bytes,
    communication,
    fulltext,
    jury,
    released,
    situations,
)

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the real corpora (shared/data) are not here")


def put(path: Path, *texts: str) -> Path:
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def complaint(path: Path, format: str, **options: Any) -> str:
    """The one error that reading stops with, without the file's directory."""
    with pytest.raises(InputError) as caught:
        list(read(path, format=format, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_an_unknown_format_names_the_known() -> None:
    with pytest.raises(RevupError, match="unknown format 'xml': one of jsonl, released, tuples"):
        reader("xml")


# ---- jsonl -----------------------------------------------------------------------------------------------


def test_jsonl_skips_blank_lines_and_counts_bad_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([GOOD.encode(), b"", b"{", b'{"events": []}', b"\xff", GOOD.encode()]))
    errors: list[InputError] = []
    assert [document.id for document in read(path, on_error=errors.append)] == ["a", "a"]
    assert [error.line for error in errors] == [3, 4, 5]
    assert complaint(path, "jsonl").startswith("a.jsonl: line 3: not valid JSON")


def test_an_empty_file_has_no_documents(tmp_path: Path) -> None:
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
def test_the_real_corpora(corpus: str, documents: tuple[int, ...], events: int, framed: int, frames: int) -> None:
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


# ---- released --------------------------------------------------------------------------------------------


def release(path: Path, *documents: Any) -> Path:
    return put(path, *(json.dumps(document) for document in documents))


def test_released(tmp_path: Path) -> None:
    abstract = [released(), released("go", candid=False, frame=None, arg1="home", mod="to"), released(frame="Motion")]
    path = release(
        tmp_path / "r.jsonl", {"abstract": abstract, "headline": [released("win", frame=None)]}, {"abstract": []}
    )
    first, second = read(path, format="released")
    assert first.id == "r.jsonl:1"
    assert first.events == [
        Event("say", "he", None, None, "Statement"),
        Event("go", "he", "home", "to"),
        Event("say", "he", None, None, "Motion"),
    ]
    assert first.extra == {"headline": [{"pred": "win", "subj": "he"}]}
    assert (second.id, second.events, second.extra) == ("r.jsonl:2", [], None)


def test_released_by_another_tool(tmp_path: Path) -> None:
    item = released(semantic_parses={SEMAFOR: {"frame": "a/Statement"}, "SLING": {"frame": "b/Telling"}}, frame=None)
    only = released(semantic_parses={"SLING": {"frame": "b/Telling"}}, frame=None)
    two = released(semantic_parses={"SLING": {"frame": "b/A"}, "DAISY": {"frame": "b/B"}}, frame=None)
    path = release(tmp_path / "r.jsonl", {"id": "mine", "abstract": [item, only, two]})
    (document,) = read(path, format="released")
    assert document.id == "mine"
    assert [event.frame for event in document.events] == ["Statement", "Telling", None]
    (document,) = read(path, format="released", tool="SLING")
    assert [event.frame for event in document.events] == ["Telling", "Telling", "A"]
    found = complaint(path, "released", tool="sling")
    assert found == f"r.jsonl: line 1: no semantic parse by 'sling'; there is 'DAISY', 'SLING', '{SEMAFOR}'"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "expected an object with 'abstract', found a list"),
        ({}, "abstract: expected a list of events, found nothing"),
        ({"abstract": {}}, "abstract: expected a list of events, found an object"),
        ({"abstract": [], "headline": 3}, "headline: expected a list of events, found the number 3"),
        ({"abstract": [3]}, "abstract[0].event_tuple: expected an object with 'pred', found null"),
        ({"abstract": [released(), {"candid": {}}]}, "abstract[1].event_tuple: expected an object with 'pred'"),
        ({"abstract": [released("")]}, "abstract[0].pred: expected the predicate as text, found none"),
        ({"abstract": [released(arg0=["a"])]}, "abstract[0].arg0: expected text or null, found a list"),
        ({"abstract": [released(frame=3)]}, "abstract[0].semantic_parses: expected a frame's path by 'Semafor"),
        (
            {"abstract": [released(semantic_parses=[], frame=None)]},
            "abstract[0].semantic_parses: expected an object of tool: parse, found a list",
        ),
    ],
)
def test_a_wrong_release_is_named(tmp_path: Path, document: Any, expected: str) -> None:
    path = release(tmp_path / "r.jsonl", {"abstract": []}, document)
    assert complaint(path, "released").startswith(f"r.jsonl: line 2: {expected}")


# ---- tuples ----------------------------------------------------------------------------------------------


def test_tuples(tmp_path: Path) -> None:
    path = put(tmp_path / "t.txt", "sought titles day in <TUP> led _NULL_ mark _NULL_", "", "go he _NULL_ to <TUP>")
    documents = list(read(path, format="tuples"))
    assert documents == [
        Document("t.txt:1", [Event("sought", "titles", "day", "in"), Event("led", None, "mark", None)]),
        Document("t.txt:3", [Event("go", "he", None, "to")]),
    ]


def test_tuples_with_frames(tmp_path: Path) -> None:
    path = put(tmp_path / "t.txt", "a b c d <TUP> e f g h", "", "i j k l")
    frames = put(tmp_path / "f.txt", "Motion __NOFRAME__", "", "Statement")
    documents = list(read(path, format="tuples", frames=str(frames)))
    assert [[event.frame for event in document.events] for document in documents] == [["Motion", None], ["Statement"]]
    packed = tmp_path / "f.txt.gz"
    packed.write_bytes(gzip.compress(b"Motion <TUP> __NOFRAME__\n\nStatement"))
    assert list(read(path, format="tuples", frames=str(packed))) == documents


def test_tuples_and_frames_that_do_not_fit(tmp_path: Path) -> None:
    path = put(tmp_path / "t.txt", "a b c d", "e f g h <TUP> i j k l", "m n o p")
    frames = put(tmp_path / "f.txt", "A", "B", "C", "D", "E")
    errors: list[InputError] = []
    assert len(list(read(path, "tuples", errors.append, frames=str(frames)))) == 2
    assert [str(error).replace(f"{tmp_path}/", "") for error in errors] == [
        "t.txt: line 2: 2 events, but 1 frames in f.txt",
        "f.txt: line 4: t.txt ends before this line: the two files need the same number of lines",
    ]
    put(tmp_path / "f.txt", "A", "B C")
    found = complaint(path, "tuples", frames=str(frames))
    assert found == "t.txt: line 3: f.txt ends before this line: the two files need the same number of lines"
    frames.write_bytes(b"A\n\xff\nC\n")
    assert complaint(path, "tuples", frames=str(frames)).startswith("f.txt: line 2: not UTF-8")
    assert complaint(path, "tuples", frames=str(tmp_path / "no")) == "no: no such file"
    assert complaint(path, "tuples", frames=str(path)) == "t.txt: the events and their frames can't be one file"


def test_a_wrong_tuple_is_named(tmp_path: Path) -> None:
    assert complaint(put(tmp_path / "t.txt", "a b c d <TUP> e f g"), "tuples") == (
        "t.txt: line 1: events[1]: expected four words, 'pred subj obj mod', found 3: 'e f g'"
    )
    assert complaint(put(tmp_path / "t.txt", "a b c d <TUP> <TUP> e f g h"), "tuples") == (
        "t.txt: line 1: events[1]: expected four words, 'pred subj obj mod', found 0"
    )
    assert complaint(put(tmp_path / "t.txt", "_NULL_ b c d"), "tuples") == (
        "t.txt: line 1: events[0]: expected the predicate, found _NULL_"
    )
    (tmp_path / "t.txt").write_bytes(b"a b c d\n\xff\n")
    errors: list[InputError] = []
    assert len(list(read(tmp_path / "t.txt", "tuples", errors.append))) == 1
    assert errors[0].line == 2


# ---- cloze -----------------------------------------------------------------------------------------------


def test_cloze(tmp_path: Path) -> None:
    path = put(tmp_path / "c.txt", ITEM, "")
    true = [Event("a", "b", "c", "d"), Event("e", "f", "g")]
    assert list(read(path, format="cloze")) == [Document("c.txt:1", true)]
    (item,) = items(path)
    assert (item.id, item.true) == ("c.txt:1", true)
    assert item.candidates == [true, *([true[0], Event(f"x{n}", "y", "z")] for n in range(5))]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a b c d <DIST> a b c d", "expected 6 sequences separated by <DIST>, found 2"),
        (
            ITEM.replace("a b c d <TUP> ", ""),
            "sequences[0]: expected a first event and its continuation, found 1 events",
        ),
        (ITEM.replace("x2 y z _NULL_", ""), "sequences[3]: expected the events of a continuation, found none"),
        (ITEM.replace("x2 y z", "x2 y"), "sequences[3].events[0]: expected four words, 'pred subj obj mod', found 3"),
    ],
)
def test_a_wrong_cloze_item_is_named(tmp_path: Path, line: str, expected: str) -> None:
    path = put(tmp_path / "c.txt", ITEM, line, ITEM)
    assert complaint(path, "cloze").startswith(f"c.txt: line 2: {expected}")
    with pytest.raises(InputError, match="line 2"):
        list(items(path))
    errors: list[InputError] = []
    assert [item.id for item in items(path, errors.append)] == ["c.txt:1", "c.txt:3"]
    path.write_bytes(b"\xff\n" + ITEM.encode())
    assert len(list(items(path, errors.append))) == 1
    assert [error.line for error in errors] == [2, 1]


@needs_shared
def test_the_real_cloze_items() -> None:
    path = SHARED / "nyt_cloze" / "inverse_cloze.txt.gz"
    documents = list(read(path, format="cloze"))
    assert len(documents) == 2_000
    assert sum(len(document.events) for document in documents) == 12_000
    assert not any(event.frame for document in documents for event in document.events)
    for document, item in zip(documents, items(path), strict=True):
        assert (item.id, item.true) == (document.id, document.events)
        assert [len(chain) for chain in item.candidates] == [6] * 6
        assert all(chain[0] == item.true[0] for chain in item.candidates)


# ---- spans -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("the/DT old/JJ man/NN of/IN the/DT sea/NN", "man"),
        ("to/TO the/DT people/NNS who/WP want/VVP jobs/NNS", "people"),
        ("the/DT company/NN 's/POS chief/JJ officer/NN ,/, a/DT lawyer/NN", "officer"),
        ("he/PRP", "he"),
        ("five/CD or/CC six/CD", "six"),
        ("the/ old/ man/ of/ the/ sea/", "man"),
        ("by/IN", "by"),
        (",/,", None),
    ],
)
def test_the_head_of_a_span(text: str, head: str | None) -> None:
    pairs = [word.rsplit("/", 1) for word in text.split()]
    words = TaggedWords([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    index = words.head(range(len(pairs)))
    assert (None if index is None else words.words[index]) == head


@pytest.mark.parametrize(
    ("text", "passive"),
    [
        ("was/VBD never/RB convicted/VBN", True),
        ("got/VVD fired/VVN", True),
        ("has/VBZ convicted/VBN", False),
        ("was/VBD convicting/VBG", False),
        ("convicted/VBN", False),
        ("was/ not/ convicted/", True),
    ],
)
def test_passives(text: str, passive: bool) -> None:
    pairs = [word.rsplit("/", 1) for word in text.split()]
    words = TaggedWords([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    assert words.is_passive(len(pairs) - 1) is passive


# ---- concrete --------------------------------------------------------------------------------------------


CONVICTED = Event("convicted", "jury", "man", "of", "Verdict")
SENTENCED = Event("sentenced", "judge", "he", "in", "Sentencing")


@pytest.mark.parametrize("name", ["a.comm", "a.comm.gz", "a.concrete"])
def test_concrete(tmp_path: Path, name: str) -> None:
    data = as_bytes(jury())
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (document,) = read(tmp_path / name, format="concrete")
    assert document == Document("nyt-1", [CONVICTED, SENTENCED])


def test_concrete_written_by_its_own_writers(tmp_path: Path) -> None:
    from concrete.util import CommunicationWriterTGZ, CommunicationWriterZip

    for writer, name in ((CommunicationWriterTGZ, "a.tar.gz"), (CommunicationWriterZip, "a.zip")):
        with writer(str(tmp_path / name)) as out:
            for number in range(3):
                out.write(jury(f"doc-{number}"), f"doc-{number}.comm")
        documents = list(read(tmp_path / name, format="concrete"))
        assert documents == [Document(f"doc-{number}", [CONVICTED, SENTENCED]) for number in range(3)]
    (tmp_path / "on-end.comm").write_bytes(b"".join(as_bytes(jury(f"doc-{number}")) for number in range(3)))
    assert list(read(tmp_path / "on-end.comm", format="concrete")) == documents


def test_concrete_frames_from_another_tool(tmp_path: Path) -> None:
    comm = jury()
    situations(comm, "PredPatt (UD)", (0, 2, None, {"": [0, 1], "b": [3, 4]}), (1, 2, None, {"": [0]}))
    path = tmp_path / "a.comm"
    path.write_bytes(as_bytes(comm))
    unlabelled = [Event("convicted", "jury", "man"), Event("sentenced", None, "he")]
    assert [document.events for document in read(path, format="concrete", tool="PredPatt (UD)")] == [unlabelled]
    (document,) = read(path, format="concrete", tool="predpatt", frame_tool="semafor")
    assert [event.frame for event in document.events] == ["Verdict", "Sentencing"]
    assert [event.subj for event in document.events] == ["jury", None]
    (document,) = read(path, format="concrete")
    assert document.events == [CONVICTED, SENTENCED]


def test_concrete_without_the_named_tool(tmp_path: Path) -> None:
    path = tmp_path / "a.comm"
    path.write_bytes(as_bytes(jury()))
    assert complaint(path, "concrete", tool="PredPatt") == (
        f"a.comm: communication nyt-1: no situation mentions by the tool 'PredPatt'; there are: '{SEMAFOR}'"
    )
    assert "by the tool 'x'" in complaint(path, "concrete", frame_tool="x")
    two = jury(tool="A (one)")
    situations(two, "A (two)", (0, 2, None, {}))
    path.write_bytes(as_bytes(two))
    assert "expected the option tool: several have situations; there are: 'A (one)', 'A (two)'" in complaint(
        path, "concrete"
    )
    assert "more than one set of situation mentions by the tool 'a'" in complaint(path, "concrete", tool="a")
    assert len(list(read(path, format="concrete", tool="one"))) == 1
    path.write_bytes(as_bytes(communication("bare", JURY)))
    assert complaint(path, "concrete") == "a.comm: communication bare: no situation mentions"
    assert complaint(path, "concrete", tool="a").endswith("by the tool 'a'; there are none")


def test_concrete_slots_by_role_then_dependency_then_place(tmp_path: Path) -> None:
    path = tmp_path / "a.comm"
    by_role = communication("roles", JURY)
    situations(by_role, "SRL", (0, 2, "convict.01", {"ARG1": [0, 1], "ARG0": [3, 4], "ARGM": [5, 6]}))
    path.write_bytes(as_bytes(by_role))
    (document,) = read(path, format="concrete")
    assert document.events == [Event("convicted", "man", "jury", "of", "convict.01")]

    text = "Men/NNS+1:nsubjpass shot/VVD+-1:root police/NNS+1:agent Monday/NNP+1:nmod:on big/JJ+5:amod guns/NNS+1:dobj"
    by_tree = communication("tree", text, parsed=True)
    situations(by_tree, "T", (0, 1, None, {"a": [0], "b": [2], "c": [3], "d": [4, 5]}))
    path.write_bytes(as_bytes(by_tree))
    (document,) = read(path, format="concrete")
    assert document.events == [Event("shot", "police", "men", "on")]

    untagged = communication("plain", "A/ man/ bit/ the/ dog/ of/ Smith/", tagged=False)
    situations(untagged, "T", (0, 2, None, {"a": [0, 1], "b": [3, 4, 5, 6]}))
    path.write_bytes(as_bytes(untagged))
    (document,) = read(path, format="concrete")
    assert document.events == [Event("bit", "man", "dog")]


def test_concrete_arguments_that_point_at_mentions(tmp_path: Path) -> None:
    from concrete import (
        UUID,
        AnnotationMetadata,
        EntityMention,
        EntityMentionSet,
        TextSpan,
        TokenRefSequence,
    )
    from concrete.util import generate_UUID

    comm = communication("pointers", JURY, "They/PRP regretted/VBD the/DT verdict/NN")
    ids = [sentence.tokenization.uuid for section in comm.sectionList for sentence in section.sentenceList]
    entity = EntityMention(generate_UUID(), tokens=TokenRefSequence([0, 1], 1, ids[0]))
    metadata = AnnotationMetadata(tool="ner", timestamp=1)
    comm.entityMentionSetList = [EntityMentionSet(generate_UUID(), metadata, [entity])]
    first = situations(comm, "SRL", (0, 2, "A", {"ARG0": {"entityMentionId": entity.uuid}}))
    more = situations(
        comm,
        "rest",
        (
            1,
            1,
            "B",
            {"ARG0": {"entityMentionId": UUID("nowhere")}, "x": {"situationMentionId": first.mentionList[0].uuid}},
        ),
        (1, 99, "C", {}),
    )
    more.mentionList[1].tokens = None
    first.mentionList += more.mentionList
    for token in comm.sectionList[0].sentenceList[0].tokenization.tokenList.tokenList:
        token.text = None  # the text is where the spans point
    assert isinstance(comm.sectionList[0].sentenceList[0].tokenization.tokenList.tokenList[0].textSpan, TextSpan)
    comm.situationMentionSetList = [first]
    (tmp_path / "a.comm").write_bytes(as_bytes(comm))
    (document,) = read(tmp_path / "a.comm", format="concrete")
    assert document.events == [
        Event("convicted", "jury", None, None, "A"),
        Event("regretted", None, "convicted", None, "B"),
    ]


def test_bad_concrete_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, path = as_bytes(jury()), tmp_path / "a.comm"

    def of(content: bytes, name: str = "a.comm") -> str:
        (tmp_path / name).write_bytes(content)
        return complaint(tmp_path / name, "concrete")

    assert of(b"") == "a.comm: expected a Concrete communication, found an empty file"
    assert of(b"hello\n") == "a.comm: expected a Concrete communication, found 6 other bytes at byte 0"
    assert of(data[:-20]).startswith("a.comm: byte 0: not a Concrete communication: EOFError")
    assert of(b"\x18\x01a\x00") == "a.comm: byte 0: not a Concrete communication: ValueError no id or uuid"
    assert of(b"\x18\x01a" + b"\x1c" * 10**6) == "a.comm: not a Concrete communication: nested too deep"
    assert of(data + b"tail").startswith("a.comm: expected a Concrete communication, found 4 other bytes")
    assert "the compressed file is damaged" in of(gzip.compress(data)[:-30], "a.comm.gz")
    assert "the archive is damaged" in of(data, "a.tar")
    assert "the archive is damaged" in of(data, "a.zip")
    path.unlink()
    assert complaint(path, "concrete") == "a.comm: no such file"
    path.mkdir()
    assert complaint(path, "concrete") == "a.comm: expected a file, found a directory"
    monkeypatch.setattr(concrete, "LARGEST", 100)
    assert "larger than 0 MiB: put the communications into a .tar.gz" in of(data, "b.comm")


def test_one_bad_member_of_an_archive_is_counted(tmp_path: Path) -> None:
    members = {"good.comm": as_bytes(jury("good")), "bad.comm": b"?", "other.comm": as_bytes(jury("other"))}
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name, data in members.items():
            (tmp_path / name).write_bytes(data)
            archive.add(tmp_path / name, f"sub/{name}")
    errors: list[InputError] = []
    documents = list(read(tmp_path / "a.tar.gz", "concrete", errors.append))
    assert [document.id for document in documents] == ["good", "other"]
    assert "a.tar.gz: sub/bad.comm: expected a Concrete communication" in str(errors[0])
    whole = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    errors.clear()
    list(read(tmp_path / "cut.tar.gz", "concrete", errors.append))
    assert "the archive is damaged" in str(errors[-1])


# ---- framenet --------------------------------------------------------------------------------------------


def framenet_at(root: Path, *documents: str) -> Path:
    (root / "fulltext").mkdir(parents=True)
    put(root / "luIndex.xml", UNITS)
    for number, document in enumerate(documents):
        (root / "fulltext" / f"Corpus__doc{number}.xml").write_text(document, encoding="utf-8")
    return root


def verb(pred: str, *slots: str | None, frame: str, lemma: str | None = None, pos: str = "v") -> Event:
    return Event(pred, *slots, frame=frame, lemma=lemma, extra={"pos": pos})


def test_framenet(tmp_path: Path) -> None:
    root = framenet_at(tmp_path / "fn", fulltext(GIVEN, HANDED), fulltext())
    first, second = read(root, format="framenet")
    assert first.id == "Corpus__doc0"
    assert first.events == [
        verb("given", "man", "gun", "to", frame="Giving", lemma="give"),
        verb("ask", "people", None, None, frame="Request"),
        verb("gifts", "her", "money", "to", frame="Giving", lemma="gift", pos="n"),
        verb("handed-over", "gifts", "power", None, frame="Giving", lemma="hand-over"),
    ]
    assert second == Document("Corpus__doc1", [])
    (lemmas, _) = read(root, format="framenet", words="lemma")
    assert lemmas.events[3].subj == "gift"


def test_framenet_from_archives_is_the_same(tmp_path: Path) -> None:
    root = framenet_at(tmp_path / "up" / "fn", fulltext(GIVEN), fulltext(HANDED))
    expected = list(read(root, format="framenet"))
    assert len(expected) == 2
    assert list(read(root.parent, format="framenet")) == expected
    for kind in ("xztar", "zip"):
        archive = shutil.make_archive(str(tmp_path / "packed"), kind, root.parent)
        assert list(read(archive, format="framenet")) == expected


def test_framenet_group_writable_files_are_read(tmp_path: Path) -> None:
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
        (fulltext("<sentence/>"), "not FrameNet's full-text annotation: IndexError"),
        (fulltext(GIVEN.replace('start="0"', 'start="-3"')), "annotationSet 8: label: start: expected the position of"),
        (fulltext(GIVEN.replace('name="FE"', 'name="EF"')), "not FrameNet's full-text annotation: AssertionError"),
        ('<?xml version="1.0" encoding="klingon"?><a/>', "broken XML: unknown encoding: klingon"),
    ],
)
def test_a_broken_framenet_document_is_counted(tmp_path: Path, document: str, expected: str) -> None:
    root = framenet_at(tmp_path / "fn", fulltext(GIVEN), document, fulltext(HANDED))
    errors: list[InputError] = []
    assert [found.id for found in read(root, "framenet", errors.append)] == ["Corpus__doc0", "Corpus__doc2"]
    (error,) = errors
    assert str(error).startswith(f"{root}/fulltext/Corpus__doc1.xml: {expected}")


def test_what_is_not_framenet_at_all(tmp_path: Path) -> None:
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


def test_a_framenet_file_that_cannot_be_read(tmp_path: Path) -> None:
    root = framenet_at(tmp_path / "fn", fulltext(GIVEN))
    (root / "fulltext" / "b.xml").mkdir()
    errors: list[InputError] = []
    assert len(list(read(root, "framenet", errors.append))) == 1
    assert str(errors[0]).endswith("b.xml: can't be read: Is a directory")


def test_a_framenet_archive_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tarfile, "is_tarfile", refuse)
    assert complaint(put(tmp_path / "a.zip"), "framenet") == "a.zip: can't be opened: Permission denied"


@needs_shared
@pytest.mark.slow
def test_the_real_framenet() -> None:
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


# ---- all -------------------------------------------------------------------------------------------------


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


def test_records_cross_process_boundaries(samples: dict[str, Path]) -> None:
    for name, path in samples.items():
        chosen, options = reader(name), Options()
        (record,) = chosen.records(str(path), options)
        assert list(chosen.parse(pickle.loads(pickle.dumps(record)), options)) == list(read(path, format=name))


@pytest.mark.parametrize("format", ["jsonl", "released", "tuples", "cloze", "concrete"])
def test_a_directory_in_place_of_a_file(tmp_path: Path, format: str) -> None:
    (tmp_path / "folder").mkdir()
    assert complaint(tmp_path / "folder", format) == "folder: expected a file, found a directory"


@pytest.mark.parametrize("format", ["jsonl", "released", "tuples", "cloze"])
def test_a_truncated_gz_in_any_text_format(tmp_path: Path, samples: dict[str, Path], format: str) -> None:
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

    caches = (concrete._thrift, framenet._nltk, framenet._lemmatiser)
    for each in caches:
        each.cache_clear()
    yield hide
    for each in caches:
        each.cache_clear()


def test_a_missing_library_says_which_extra(samples: dict[str, Path], without: Callable[[str], None]) -> None:
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


def test_reading_is_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first document is there before the second is looked at."""
    path = put(tmp_path / "a.jsonl", GOOD, "{")
    documents = revup.data.readers.read(path)
    assert next(documents).id == "a"
    with pytest.raises(InputError):
        next(documents)


DOCUMENTATION = ROOT / "docs" / "formats.md"
BLOCK = r"((?:(?!```).*\n)*)```\n"
EXAMPLES = re.findall(rf"^```(\w+)\n{BLOCK}```json\n{BLOCK}", DOCUMENTATION.read_text("utf-8"), re.M)


@pytest.mark.parametrize(("format", "example", "expected"), EXAMPLES, ids=[example[0] for example in EXAMPLES])
def test_the_examples_of_the_documentation(tmp_path: Path, format: str, example: str, expected: str) -> None:
    (tmp_path / "example").write_text(example, encoding="utf-8")
    documents = [document_to_json(document) for document in read(tmp_path / "example", format=format)]
    assert documents == [json.loads(line) for line in expected.splitlines()]


def test_the_documentation_has_every_format() -> None:
    sections = re.findall(r"^## (\w+)$", DOCUMENTATION.read_text("utf-8"), re.M)
    assert sections[: len(revup.data.readers.FORMATS)] == list(revup.data.readers.FORMATS)
    assert [format for format, _, _ in EXAMPLES] == ["jsonl", "released", "tuples", "cloze", "conllu"]
