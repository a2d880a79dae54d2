"""Lexicons: senses of every format, labels that never overwrite others, wrong tables that name their line."""

from __future__ import annotations

import gzip
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paths import DATA as SHARED
from revup.data.lexicon import Lexicon
from revup.data.readers import read
from revup.errors import InputError, RevupError

needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")

TABLE = """\
frame,predicate,weight,pos
Verdict,convict,3,v
People,convict,1,n
Leaving,leave,2,verb
Giving,leave,6,VERB
Doing,carry out,,v
Strike,hunger strike,1,n
Living,live,1,v
"""


@pytest.fixture
def lexicon(tmp_path: Path) -> Lexicon:
    return Lexicon.load(write(tmp_path, TABLE))


def write(folder: Path, content: str | bytes, name: str = "lexicon.csv") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


# ---- senses ----------------------------------------------------------------------------------------------


def test_senses_are_normalised_weights_most_likely_first(lexicon: Lexicon) -> None:
    assert list(lexicon.senses("leave").items()) == [("Giving", 0.75), ("Leaving", 0.25)]
    assert lexicon.senses("convict") == {"Verdict": 0.75, "People": 0.25}
    assert lexicon.senses("convict", pos="n") == {"People": 1.0}
    assert lexicon.senses("convict", pos="a") == {}
    assert lexicon.senses("unheard-of") == {}
    assert lexicon.frames == ["Doing", "Giving", "Leaving", "Living", "People", "Strike", "Verdict"]


@pytest.mark.parametrize(
    ("predicate", "frame"),
    [
        ("Convicted", "Verdict"),
        ("convicting", "Verdict"),
        ("carried out", "Doing"),
        ("carried_out", "Doing"),
        ("carrying-out", "Doing"),
        ("hunger-strikes", "Strike"),
        ("living", "Living"),
        ("lives", "Living"),
        ("left", "Giving"),  # and this one for an adjective
    ],
)
def test_inflected_and_joined_predicates_are_found_by_lemma(lexicon: Lexicon, predicate: str, frame: str) -> None:
    assert next(iter(lexicon.senses(predicate))) == frame


def test_odd_predicates_are_unknown(lexicon: Lexicon) -> None:
    for predicate in ("", "-", "--", " ", "s", "ing", "\x00"):
        assert lexicon.senses(predicate) == {}


@given(st.dictionaries(st.sampled_from("ABCDE"), st.floats(0, 1e6), min_size=1))
def test_senses_sum_to_one(weights: dict[str, float]) -> None:
    senses = Lexicon({"go": {(frame, ""): weight for frame, weight in weights.items()}}).senses("go")
    if any(weights.values()):
        assert sum(senses.values()) == pytest.approx(1)
        assert list(senses.values()) == sorted(senses.values(), reverse=True)
    else:
        assert senses == {}


# ---- entries ---------------------------------------------------------------------------------------------


def test_entries_are_found_by_form_lemma_and_part_of_speech(lexicon: Lexicon) -> None:
    frames = lexicon.frames
    table = lexicon.table(frames)

    def weights(entry: int) -> dict[str, float]:
        return {frames[k]: v for row, k, v in zip(table.row, table.column, table.value, strict=True) if row == entry}

    assert weights(lexicon.entry("left")) == weights(lexicon.entry("leave")) == {"Giving": 0.75, "Leaving": 0.25}
    for pos in ("n", "NOUN"):
        assert weights(lexicon.entry("convicts", pos)) == {"People": 1.0}
    assert lexicon.entry("unheard-of") == -1
    assert sum(weights(lexicon.entry("convicts")).values()) == pytest.approx(1)


def test_entries_keep_their_numbers_when_frames_are_renamed_or_written(lexicon: Lexicon, tmp_path: Path) -> None:
    renamed = lexicon.renamed({"Giving": "Leaving", "Living": None})
    assert renamed.keys == lexicon.keys
    assert renamed.senses("leave") == {"Leaving": 1.0}
    assert renamed.senses("live") == {}
    renamed.write(tmp_path / "lexicon.csv")
    again = Lexicon.load(tmp_path / "lexicon.csv")
    assert again.keys == lexicon.keys
    assert again.entries == renamed.entries


def test_verbnet_subclasses_count_for_their_class_where_a_corpus_names_classes() -> None:
    lexicon = Lexicon({"run": {("run-51.3.2-1", "v"): 1.0, ("run-51.3.2-2-1", "v"): 1.0, ("flow-47.2", "v"): 2.0}})
    by_class = lexicon.as_named_by(["run-51.3.2", "Verdict"])
    assert by_class.senses("run") == {"flow-47.2": 0.5, "run-51.3.2": 0.5}
    assert lexicon.as_named_by(["run-51.3.2-1"]) is lexicon
    assert lexicon.as_named_by(["Verdict"]) is lexicon


# ---- tables ----------------------------------------------------------------------------------------------


def test_minimal_and_compressed_table(tmp_path: Path) -> None:
    short = "\ufeffPredicate , FRAME,note\nrun,Motion,x\n\nrun,Motion,y\n"
    packed = write(tmp_path, gzip.compress(short.encode()), "x.csv.gz")
    for path in (write(tmp_path, short), packed):
        assert Lexicon.load(path).entries == {"run": {("Motion", ""): 2.0}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            "word,frame\nrun,Motion\n",
            "line 1: expected the columns predicate and frame in the header, found word, frame",
        ),
        ("run,Motion\n", "line 1: expected the columns predicate and frame in the header, found run, motion"),
        ("predicate,frame,frame\n", "line 1: the column frame stands there more than once"),
        ("predicate,frame\nrun\n", "line 2: expected 2 columns, found 1"),
        ("predicate,frame\nrun,\n", "line 2: frame: expected text, found nothing"),
        ("predicate,frame\n\n ,Motion\n", "line 3: predicate: expected text, found nothing"),
        (
            "predicate,frame,weight\nrun,Motion,1\nrun,Race,x\n",
            "line 3: weight: expected a number of 0 or more, found 'x'",
        ),
        ("predicate,frame,weight\nrun,Motion,-1\n", "line 2: weight: expected a number of 0 or more, found '-1'"),
        ("predicate,frame,weight\nrun,Motion,nan\n", "line 2: weight: expected a number"),
        ("predicate,frame,weight\nrun,Motion,1e999\n", "line 2: weight: expected a number"),
        (b"predicate,frame\nr\xffn,Motion\n", "line 2: not UTF-8 text"),
        (f"predicate,frame\n{'x' * 200_000},Motion\n", "line 2: not CSV: field larger than field limit"),
        ("", "the file is empty: expected a CSV table"),
    ],
)
def test_wrong_table_names_line_and_field(tmp_path: Path, content: str | bytes, says: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError) as caught:
        Lexicon.load(path)
    assert str(caught.value).startswith(f"{path}: {says}")


@given(st.binary(max_size=60), st.integers(0, len(TABLE)))
def test_mutated_table_is_a_lexicon_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    path = write(tmp_path_factory.getbasetemp(), TABLE.encode()[:at] + noise + TABLE.encode()[at + len(noise) :])
    try:
        assert isinstance(Lexicon.load(path), Lexicon)
    except InputError as error:
        message = str(error)
        assert message.startswith(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Lexicon.load(tmp_path / "none.csv")


# ---- FrameNet, VerbNet, PropBank -------------------------------------------------------------------------

FRAMENET = """<?xml version="1.0" encoding="UTF-8"?>
<frame xmlns="http://framenet.icsi.berkeley.edu" name="Verdict" ID="1"><definition>x</definition>
  <lexUnit status="Created" POS="V" name="convict.v" ID="2"><sentenceCount annotated="3" total="9"/></lexUnit>
  <lexUnit status="New" POS="V" name="find guilty.v" ID="3"/>
  <lexUnit status="Problem" POS="V" name="nail.v" ID="4"/>
</frame>"""
VERBNET = """<VNCLASS ID="leave-51.2"><MEMBERS><MEMBER name="leave" wn=""/></MEMBERS><SUBCLASSES>
  <VNSUBCLASS ID="leave-51.2-1"><MEMBERS><MEMBER name="back_out" wn=""/></MEMBERS><SUBCLASSES/></VNSUBCLASS>
</SUBCLASSES></VNCLASS>"""
PROPBANK = """<!DOCTYPE frameset SYSTEM "frameset.dtd"><frameset>
  <predicate lemma="carry"><roleset id="carry.01" name="bear"/></predicate>
  <predicate lemma="carry_out"><roleset id="carry.03" name="do"/></predicate>
  <predicate lemma="carry"><roleset id="carry.05" name="haul"><aliases>
    <alias pos="v">carry</alias><alias pos="n">carriage</alias></aliases></roleset></predicate>
</frameset>"""
ENTRIES = {
    "framenet": {"convict": {("Verdict", "v"): 4.0}, "find-guilty": {("Verdict", "v"): 1.0}},
    "verbnet": {"leave": {("leave-51.2", "v"): 1.0}, "back-out": {("leave-51.2-1", "v"): 1.0}},
    "propbank": {
        "carry": {("carry.01", "v"): 1.0, ("carry.05", "v"): 1.0},
        "carry-out": {("carry.03", "v"): 1.0},
        "carriage": {("carry.05", "n"): 1.0},
    },
}
FILES = {
    "framenet": {"frame/Verdict.xml": FRAMENET, "frameIndex.xml": "<frameIndex/>", "lu/lu2.xml": "<broken"},
    "verbnet": {"leave-51.2.xml": VERBNET},
    "propbank": {"frames/carry.xml": PROPBANK, "prop.txt": ""},
}


def make(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    for place in (folder, *folder.rglob("*")):
        os.chmod(place, 0o755 if place.is_dir() else 0o644)  # NLTK reads nothing that others may write
    return folder


@pytest.mark.parametrize("kind", ENTRIES)
def test_lexicon_may_be_a_directory_or_an_archive(kind: str, tmp_path: Path) -> None:
    folder = make(tmp_path / kind, FILES[kind])
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as packed:
        for name, content in FILES[kind].items():
            packed.writestr(f"{kind}/{name}", content)
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as rolled:
        rolled.add(folder, f"outer/{kind}")
    for path in (folder, folder.parent, tmp_path / "x.zip", tmp_path / "x.tar.gz"):
        assert Lexicon.load(path).entries == ENTRIES[kind]


def test_nltk_search_path_is_restored(tmp_path: Path) -> None:
    data = pytest.importorskip("nltk.data")
    before = list(data.path)
    Lexicon.load(make(tmp_path / "vn", FILES["verbnet"]))
    assert data.path == before


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "found no such files"),
        ({"notes.xml": "<notes/>"}, "found other XML"),
        ({"x.xml": "<VNCLASS ID='x'>\n<MEMBERS>"}, "x.xml: line 2: broken XML"),
        ({"x.xml": "<VNCLASS><MEMBERS><MEMBER name='go'/></MEMBERS></VNCLASS>"}, "attribute ID, found none"),
        ({"x.xml": "<VNCLASS ID='x'><MEMBERS><MEMBER/></MEMBERS></VNCLASS>"}, "attribute name, found none"),
    ],
)
def test_other_directories_are_no_lexicon(tmp_path: Path, files: dict[str, str], says: str) -> None:
    folder = make(tmp_path / "x", files) if files else tmp_path
    with pytest.raises(InputError) as caught:
        Lexicon.load(folder)
    assert str(caught.value).startswith(str(folder))
    assert says in str(caught.value)


def test_xml_with_expanding_entities_is_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><VNCLASS ID="&b;"/>'
    with pytest.raises(InputError, match=r"x\.xml"):
        Lexicon.load(make(tmp_path / "x", {"x.xml": bomb}))


def test_damaged_archive_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as rolled:
        rolled.add(make(tmp_path / "vn", {"x.xml": VERBNET * 50}), "vn")
    cut = write(tmp_path, (tmp_path / "x.tar").read_bytes()[:6000], "cut.tar")
    with pytest.raises(InputError, match="damaged"):
        Lexicon.load(cut)


def test_missing_library_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk.corpus.reader", None)
    with pytest.raises(RevupError, match=r"reading.*revup\[text\]"):
        Lexicon.load(make(tmp_path / "vn", FILES["verbnet"]))


@needs_shared
def test_real_verbnet_equals_nltk_reader(tmp_path: Path) -> None:
    reader = pytest.importorskip("nltk.corpus.reader")
    data = pytest.importorskip("nltk.data")
    path = SHARED / "lexicons" / "verbnet3.zip"
    lexicon = Lexicon.load(path)
    with zipfile.ZipFile(path) as packed:
        files = {name: packed.read(name).decode() for name in packed.namelist() if name.endswith(".xml")}
    folder = make(tmp_path / "vn", files)
    data.path.append(str(folder))
    try:
        theirs = reader.VerbnetCorpusReader(str(folder / "verbnet3"), r"(?!\.).*\.xml")
        plain = [lemma for lemma in theirs.lemmas() if lemma.isalpha()]
        assert len(plain) > 4000
        for lemma in plain:
            assert set(lexicon.senses(lemma, "v")) == set(theirs.classids(lemma)), lemma
    finally:
        data.path.remove(str(folder))


@needs_shared
def test_real_framenet_equals_its_table() -> None:
    table = Lexicon.load(SHARED / "lexicons" / "framenet15.csv")
    whole = Lexicon.load(SHARED / "framenet15" / "framenet_v15.tar.xz")
    verbs = {key for key, senses in table.entries.items() if any(pos == "v" for _, pos in senses)}
    shared = [key for key in verbs if set(table.senses(key, "v")) == set(whole.senses(key, "v"))]
    assert len(shared) / len(verbs) > 0.95


def likeliest(lexicon: Lexicon, path: Path) -> list[tuple[str, str | None, float]]:
    """The frame of every event of a file that has one, the heaviest candidate of the lexicon, and its share."""
    framed = (event for document in read(path) for event in document.events if event.frame)
    senses = ((event.frame or "", lexicon.senses(event.lemma or event.pred)) for event in framed)
    return [(frame, *next(iter(found.items()), (None, 0.0))) for frame, found in senses]


@needs_shared
def test_framenet_lexicon_agrees_with_wiki_frames_as_measured() -> None:
    """Wiki's frames come from the same lexicon and the context: all are covered, 62% are the heaviest candidate."""
    pairs = likeliest(Lexicon.load(SHARED / "lexicons" / "framenet15.csv"), SHARED / "wiki" / "valid.jsonl.gz")
    unambiguous = [frame == guess for frame, guess, share in pairs if share == 1]
    assert sum(guess is not None for _, guess, _ in pairs) / len(pairs) > 0.99
    assert sum(frame == guess for frame, guess, _ in pairs) / len(pairs) == pytest.approx(0.62, abs=0.03)
    assert sum(unambiguous) / len(unambiguous) > 0.99


@needs_shared
def test_heaviest_candidate_is_right_for_gold_framenet_events_as_measured() -> None:
    """The weights are the lexicographers' counts: the heaviest candidate is the gold frame of 69% of the events."""
    lexicon = Lexicon.load(SHARED / "lexicons" / "framenet15.csv")
    files = [SHARED / "framenet15" / f"{split}.jsonl.gz" for split in ("train", "valid", "test")]
    pairs = [pair for path in files for pair in likeliest(lexicon, path)]
    assert sum(frame == guess for frame, guess, _ in pairs) / len(pairs) == pytest.approx(0.69, abs=0.03)
