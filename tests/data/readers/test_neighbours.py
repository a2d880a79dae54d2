"""Formats of other tools: slots, predicates, documents by line or by file, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from revup.data.events import Document, document_to_json
from revup.data.readers import read
from samples import complaint, put

Slots = tuple[str, str | None, str | None, str | None]


def slots(document: Document) -> list[Slots]:
    return [(event.pred, event.subj, event.obj, event.mod) for event in document.events]


def read_one(path: Path, format: str, *lines: Any, **options: Any) -> Document:
    (document,) = read(put(path, *(json.dumps(line) for line in lines)), format, **options)
    return document


# ---- AllenNLP --------------------------------------------------------------------------------------------


def srl(text: str, *verbs: str, **keys: Any) -> dict[str, Any]:
    """A sentence of AllenNLP: its words, and for each verb its tags without `B-` and `I-`."""
    words = text.split()
    found = []
    for tags in verbs:
        roles = tags.split()
        bio = [
            role if role == "O" else f"{'I' if index and roles[index - 1] == role else 'B'}-{role}"
            for index, role in enumerate(roles)
        ]
        verb = words[roles.index("V")] if "V" in roles else ""
        found.append({"verb": verb, "tags": bio, **keys})
    return {"words": words, "verbs": found}


@pytest.mark.parametrize(
    ("text", "tags", "expected"),
    [
        ("The jury convicted the man", "ARG0 ARG0 V ARG1 ARG1", ("convicted", "jury", "man", None)),
        ("The man was convicted by a jury", "ARG1 ARG1 O V ARG0 ARG0 ARG0", ("convicted", "jury", "man", None)),
        ("He went to Rome in May", "ARG0 V ARG4 ARG4 ARGM-TMP ARGM-TMP", ("went", "he", "rome", "to")),
        ("In May he went to Rome", "ARGM-TMP ARGM-TMP ARG0 V ARG4 ARG4", ("went", "he", "rome", "to")),
        ("In May he left", "ARGM-TMP ARGM-TMP ARG0 V", ("left", "he", "may", "in")),
        ("He soon left", "ARG0 ARGM-TMP V", ("left", "he", None, None)),
        ("The man who sang left", "ARG0 ARG0 R-ARG0 V O", ("sang", "man", None, None)),
        ("He may have sung songs", "ARG0 ARGM-MOD O V ARG1", ("sung", "he", "songs", None)),
        ("He became king", "ARG1 V ARG2", ("became", None, "he", None)),
        ("She has money", "ARG0 V ARG1", ("has", "she", "money", None)),
    ],
)
def test_slots_of_semantic_roles(tmp_path: Path, text: str, tags: str, expected: Slots) -> None:
    assert slots(read_one(tmp_path / "a.jsonl", "allennlp", srl(text, tags))) == [expected]


def test_auxiliaries_and_forms_of_be_are_no_events(tmp_path: Path) -> None:
    sentence = srl("He has been here", "O V O O", "ARG1 O V ARG2")
    assert read_one(tmp_path / "a.jsonl", "allennlp", sentence).events == []
    assert read_one(tmp_path / "b.jsonl", "allennlp", srl("Nobody came", "O O")).events == []


def test_rolesets_are_frames(tmp_path: Path) -> None:
    sentence = srl("He did not leave", "ARG0 O ARGM-NEG V", frame="leave.01", frame_score=0.9)
    (event,) = read_one(tmp_path / "a.jsonl", "allennlp", sentence).events
    assert (event.frame, event.confidence, event.text) == ("leave.01", 0.9, "He did not leave")
    shown = document_to_json(Document("", [event]))["events"][0]
    assert (shown["negated"], shown["pos"]) == (True, "v")
    start, end = shown["span"]
    assert "He did not leave"[start:end] == "leave"


def test_events_are_in_the_order_of_the_text(tmp_path: Path) -> None:
    sentence = srl("He came and saw", "ARG0 O O V", "ARG0 V O O")
    assert [event.pred for event in read_one(tmp_path / "a.jsonl", "allennlp", sentence).events] == ["came", "saw"]


def test_a_document_is_a_line_or_a_file(tmp_path: Path) -> None:
    first, second = srl("He came", "ARG0 V"), srl("She left", "ARG0 V")
    path = put(tmp_path / "a.jsonl", json.dumps(first), "", json.dumps([second, {**first, "id": "ignored"}]))
    by_line = list(read(path, "allennlp"))
    assert [(document.id, len(document.events)) for document in by_line] == [("a.jsonl:1", 1), ("a.jsonl:3", 2)]
    (whole,) = read(path, "allennlp", document="file")
    assert (whole.id, [event.pred for event in whole.events]) == ("a.jsonl:1", ["came", "left", "came"])
    assert read_one(tmp_path / "b.jsonl", "allennlp", {**first, "id": "story"}).id == "story"


# ---- HanLP -----------------------------------------------------------------------------------------------


def test_one_sentence_or_several(tmp_path: Path) -> None:
    roles = [["She", "ARG0", 0, 1], ["saw", "PRED", 1, 2], ["him", "ARG1", 2, 3]]
    flat = {"tok/coarse": ["x"], "tok/fine": ["She", "saw", "him"], "srl": [roles]}
    nested = {"tok": [["She", "saw", "him"]] * 2, "srl": [[roles], []]}
    for data in (flat, nested):
        assert slots(read_one(tmp_path / "a.jsonl", "hanlp", data)) == [("saw", "she", "him", None)]
    assert read_one(tmp_path / "a.jsonl", "hanlp", {"tok": [], "srl": []}).events == []


# ---- OmniEvent, frame-semantic-transformer ---------------------------------------------------------------


def test_types_of_events_are_frames(tmp_path: Path) -> None:
    text = "The plane crashed and burned out."
    events = [
        {"type": "NA", "trigger": "burned out", "offset": [22, 32]},
        {"type": "catastrophe", "trigger": "crashed", "offset": [10, 17], "arguments": []},
    ]
    document = read_one(tmp_path / "a.jsonl", "omnievent", [{"text": text, "events": events}])
    assert [(event.pred, event.frame) for event in document.events] == [
        ("crashed", "catastrophe"),
        ("burned-out", None),
    ]
    argument = {"mention": "The plane", "offset": [0, 9], "role": "Vehicle"}
    document = read_one(
        tmp_path / "b.jsonl", "omnievent", {"text": text, "events": [{**events[1], "arguments": [argument]}]}
    )
    assert slots(document) == [("crashed", "plane", None, None)]


def test_frame_elements_are_found_near_their_trigger(tmp_path: Path) -> None:
    text = "He met her, and he told her the news."
    elements = [
        {"name": "Speaker", "text": "he"},
        {"name": "Addressee", "text": "her"},
        {"name": "Message", "text": "gone"},
    ]
    frames = [{"name": "Telling", "trigger_location": text.index("told"), "frame_elements": elements}]
    result = {"sentence": text, "trigger_locations": [], "frames": frames}
    (event,) = read_one(tmp_path / "a.jsonl", "frame-semantic-transformer", result).events
    assert (event.pred, event.subj, event.obj, event.frame) == ("told", "he", "her", "Telling")


# ---- Open-SESAME -----------------------------------------------------------------------------------------


def block(number: int, *rows: str) -> str:
    """Rows of `word tag unit frame role`."""
    lines = []
    for index, row in enumerate(rows, 1):
        word, tag, unit, frame, role = row.split()
        lines.append("\t".join([str(index), word, "_", word, "x", tag, str(number), *"_____", unit, frame, role]))
    return "\n".join(lines) + "\n"


WENT = block(0, "He PRP _ _ S-Self_mover", "went VBD go.v Self_motion O", "out RP _ _ O")
HOME = block(0, "He PRP _ _ S-Agent", "went VBD _ _ O", "out RP out.prep Out O")
TRIP = block(1, "His PRP$ _ _ S-Traveler", "trip NN trip.n Travel O", "ended VBD _ _ O")
ENDED = block(1, "His PRP$ _ _ B-Process", "trip NN _ _ I-Process", "ended VBD end.v _ O")
BARE = block(2, "A DT _ _ O", "trip NN trip.n Travel O", "ended VBD _ _ O")


def test_targets_of_a_sentence_are_events(tmp_path: Path) -> None:
    path = put(tmp_path / "a.conll", WENT, HOME, ENDED, TRIP, BARE)
    documents = list(read(path, "open-sesame"))
    assert [document.id for document in documents] == ["a.conll:1", "a.conll:9", "a.conll:17"]
    found = [(event.pred, event.lemma, event.frame) for document in documents for event in document.events]
    assert found == [("went", "go", "Self_motion"), ("trip", None, "Travel"), ("ended", "end", None)]
    assert slots(documents[1]) == [("trip", "his", None, None), ("ended", "trip", None, None)]
    (whole,) = read(path, "open-sesame", document="file")
    assert [event.pred for event in whole.events] == ["went", "trip", "ended"]


# ---- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "data", "message"),
    [
        ("allennlp", 3, "expected an object, found the number 3"),
        ("allennlp", [{}], "[0].words: expected a list of words, found nothing"),
        ("allennlp", {"words": ["a", 1], "verbs": []}, "words[1]: expected a word, found the number 1"),
        (
            "allennlp",
            {"words": ["a"], "verbs": [{"tags": ["O", "O"]}]},
            "verbs[0].tags: expected 1 tags, one a word, found",
        ),
        ("allennlp", {"words": ["a"], "verbs": ["V"]}, "verbs[0]: expected an object with 'tags', found the text 'V'"),
        ("hanlp", {"tok": ["a"]}, "srl: expected a list, found nothing"),
        ("hanlp", {"tok": [["a"]], "srl": []}, "srl: expected 1 sentences, found the number 0"),
        (
            "hanlp",
            {"tok": ["a"], "srl": [[["a", "PRED", 0, 2]]]},
            "srl[0][0]: expected words from 0 to 1, found 0 to 2",
        ),
        (
            "hanlp",
            {"tok": [["a"]], "srl": [[["a"]]]},
            "[0].srl[0][0]: expected [form, role, begin, end], found the text 'a'",
        ),
        ("hanlp", {"tok": ["a"], "pos": [], "srl": []}, None),
        ("omnievent", {"text": "a"}, "events: expected a list of events, found nothing"),
        (
            "omnievent",
            {"text": "a", "events": [{"trigger": "a"}]},
            "events[0].offset: expected [start, end), found nothing",
        ),
        (
            "omnievent",
            {"text": "a", "events": [{"trigger": "a", "offset": [1]}]},
            "events[0].offset: expected [start, end)",
        ),
        ("frame-semantic-transformer", {"sentence": 1}, "sentence: expected text, found the number 1"),
        (
            "frame-semantic-transformer",
            {"sentence": "a b", "frames": [{"name": "A", "trigger_location": True}]},
            "frames[0].trigger_location: expected the number of a character, found true",
        ),
        (
            "frame-semantic-transformer",
            {"sentence": "a" * 20_001, "frames": []},
            "sentence: expected at most 20000 characters",
        ),
    ],
)
def test_wrong_member_is_named(tmp_path: Path, format: str, data: Any, message: str | None) -> None:
    path = put(tmp_path / "a.jsonl", json.dumps(data))
    if message is None:
        assert [document.events for document in read(path, format)] == [[]]
    else:
        assert complaint(path, format).startswith(f"a.jsonl: line 1: {message}")


def test_wrong_rows_are_named(tmp_path: Path) -> None:
    assert complaint(put(tmp_path / "a.conll", WENT, "1\tHe"), "open-sesame") == (
        "a.conll: line 5: expected 15 tab-separated columns, found 2"
    )
    blank = WENT.replace("\tout\t", "\t \t", 1)
    assert (
        complaint(put(tmp_path / "b.conll", blank), "open-sesame")
        == "b.conll: line 3: FORM: expected a word, found nothing"
    )


def test_a_bad_sentence_is_skipped_alone(tmp_path: Path) -> None:
    path = put(tmp_path / "a.conll", WENT, "1\tHe\n", TRIP)
    errors: list[Any] = []
    assert [document.id for document in read(path, "open-sesame", errors.append)] == ["a.conll:1", "a.conll:7"]
    assert [error.line for error in errors] == [5]
