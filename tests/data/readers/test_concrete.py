"""Format "concrete": communications made by its own library, damaged files."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from revup.data.events import Document, Event
from revup.data.readers import concrete, read
from revup.errors import InputError
from samples import (
    JURY,
    SEMAFOR,
    as_bytes,
    communication,
    complaint,
    jury,
    situations,
)

CONVICTED = Event("convicted", "jury", "man", "of", "Verdict")


SENTENCED = Event("sentenced", "judge", "he", "in", "Sentencing")


@pytest.mark.parametrize("name", ["a.comm", "a.comm.gz", "a.concrete"])
def test_concrete_documents(tmp_path: Path, name: str) -> None:
    data = as_bytes(jury())
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    (document,) = read(tmp_path / name, format="concrete")
    assert document == Document("nyt-1", [CONVICTED, SENTENCED])


def test_concrete_files_of_its_own_library(tmp_path: Path) -> None:
    from concrete.util import CommunicationWriterTGZ, CommunicationWriterZip

    for writer, name in ((CommunicationWriterTGZ, "a.tar.gz"), (CommunicationWriterZip, "a.zip")):
        with writer(str(tmp_path / name)) as out:
            for number in range(3):
                out.write(jury(f"doc-{number}"), f"doc-{number}.comm")
        documents = list(read(tmp_path / name, format="concrete"))
        assert documents == [Document(f"doc-{number}", [CONVICTED, SENTENCED]) for number in range(3)]
    (tmp_path / "on-end.comm").write_bytes(b"".join(as_bytes(jury(f"doc-{number}")) for number in range(3)))
    assert list(read(tmp_path / "on-end.comm", format="concrete")) == documents


def test_concrete_frames_of_another_tool(tmp_path: Path) -> None:
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


def test_concrete_without_named_tool_is_refused(tmp_path: Path) -> None:
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


def test_concrete_slots_follow_role_then_dependency_then_position(tmp_path: Path) -> None:
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


def test_concrete_arguments_may_point_to_mentions(tmp_path: Path) -> None:
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


def test_damaged_concrete_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, path = as_bytes(jury()), tmp_path / "a.comm"

    def of(content: bytes, name: str = "a.comm") -> str:
        (tmp_path / name).write_bytes(content)
        return complaint(tmp_path / name, "concrete")

    assert of(b"") == "a.comm: expected a Concrete communication, found an empty file"
    assert of(b"hello\n") == "a.comm: expected a Concrete communication, found 6 other bytes at byte 0"
    assert of(data[:-20]).startswith("a.comm: byte 0: not a Concrete communication: it ends too early")
    assert of(b"\x18\x01a\x00") == "a.comm: byte 0: not a Concrete communication: no id or uuid"
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


def test_bad_member_of_an_archive_is_counted(tmp_path: Path) -> None:
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
