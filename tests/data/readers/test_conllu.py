"""Format "conllu": documents, damaged files, a real treebank."""

from __future__ import annotations

import gzip
import pickle
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paths import DATA as SHARED
from revup.data.events import Document, Event
from revup.data.readers import Options, Record, conllu, read
from revup.errors import InputError

needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")


def shown(event: Event) -> str:
    slots = " ".join(slot or "_" for slot in (event.pred, event.subj, event.obj, event.mod))
    extra = event.extra or {}
    return slots + (" negated" if extra.get("negated") else "") + (" noun" if event.pos == "n" else "")


CONLLU = """\
# newdoc id = first
# sent_id = 1
# text = He won't go.
1	He	he	PRON	PRP	_	4	nsubj	_	_
2-3	won't	_	_	_	_	_	_	_	_
2	wo	will	AUX	MD	_	4	aux	_	_
3	n't	not	PART	RB	_	4	advmod	_	_
3.1	really	really	ADV	RB	_	_	_	4:advmod	_
4	go	go	VERB	VB	_	0	root	_	_

1	Stop	stop	VERB	VB	_	0	root	_	_

# newdoc
# text = Rain!
1	Rain	rain	NOUN	NN	_	0	root	_	_
"""


def write(folder: Path, content: str | bytes, name: str = "x.conllu") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_documents_are_cut_at_newdoc(tmp_path: Path) -> None:
    first, second = read(write(tmp_path, CONLLU), "conllu")
    assert (first.id, second.id) == ("first", "x.conllu:13")
    assert [shown(event) for event in first.events] == ["go he _ _ negated", "stop _ _ _"]
    assert second.events == []


def test_file_without_newdoc_is_one_document(tmp_path: Path) -> None:
    headless = CONLLU.replace("# newdoc id = first\n", "").replace("# newdoc\n", "# newpar\n").replace("\n", "\r\n")
    (document,) = read(write(tmp_path, headless), "conllu")
    assert document.id == "x.conllu:1"
    assert len(document.events) == 2
    assert list(read(write(tmp_path, "# only a comment\n\n"), "conllu")) == []


def test_records_can_be_pickled(tmp_path: Path) -> None:
    for record in conllu.records(write(tmp_path, CONLLU), Options()):
        assert pickle.loads(pickle.dumps(record)) == record


ROW = "1\tGo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n"


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("1\tGo\tgo\tVERB\n", "line 3: expected 10 tab-separated columns, found 4"),
        (ROW.replace("\t0\t", "\t_\t"), "line 3: HEAD: expected the number of a word, or 0 at the root, found '_'"),
        (ROW.replace("\t0\t", "\t-1\t"), "line 3: HEAD: expected the number of a word"),
        (ROW.replace("\t0\t", "\t٣\t"), "line 3: HEAD: expected the number of a word"),
        (
            ROW.replace("\t0\t", "\t7\t"),
            "line 3: HEAD: expected a word of the sentence, 1 to 1, or 0 at the root, found 7",
        ),
        (ROW.replace("\t0\t", "\t1\t"), "line 3: HEAD: the heads form a cycle: 'Go' leads to no root"),
        (
            ROW + "2\ta\ta\tX\t_\t_\t3\tx\t_\t_\n3\tb\tb\tX\t_\t_\t2\tx\t_\t_\n",
            "line 4: HEAD: the heads form a cycle",
        ),
        (ROW.replace("1\t", "2\t", 1), "line 3: ID: expected the number 1, found '2'"),
        (ROW.replace("Go", " "), "line 3: FORM: expected a word, found nothing"),
    ],
)
def test_sentence_that_is_no_tree_is_named_and_skips_its_document(tmp_path: Path, bad: str, says: str) -> None:
    path = write(tmp_path, f"# newdoc id = bad\n# text = bad\n{bad}\n# newdoc id = good\n{ROW}\n")
    with pytest.raises(InputError) as caught:
        list(read(path, "conllu"))
    assert str(caught.value).startswith(f"{path}: {says}")
    errors: list[InputError] = []
    assert [document.id for document in read(path, "conllu", errors.append)] == ["good"]
    assert len(errors) == 1


def test_unreadable_lines_skip_their_document_once(tmp_path: Path) -> None:
    content = f"# newdoc id = bad\n{ROW}\n".encode() + b"\xff\xfe\n\xff\n" + f"# newdoc id = good\n{ROW}\n".encode()
    errors: list[InputError] = []
    assert [document.id for document in read(write(tmp_path, content), "conllu", errors.append)] == ["good"]
    assert [(error.line, "UTF-8" in str(error)) for error in errors] == [(4, True)]


def test_truncated_file_gives_complete_documents_and_an_error(tmp_path: Path) -> None:
    many = "".join(f"# newdoc id = {number}\n{ROW}\n" for number in range(20000))
    path = write(tmp_path, gzip.compress(many.encode())[:-2000], "x.conllu.gz")
    errors: list[InputError] = []
    identities = [document.id for document in read(path, "conllu", errors.append)]
    assert identities == [str(number) for number in range(len(identities))]
    assert 0 < len(identities) < 20000
    assert len(errors) == 1
    assert "damaged" in str(errors[0])


def test_too_long_document_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conllu, "LONGEST_LINE", 300)
    path = write(tmp_path, f"# newdoc\n{ROW}\n" + f"# newdoc\n{ROW * 20}\n" + f"# newdoc\n{ROW}\n")
    errors: list[InputError] = []
    assert len(list(read(path, "conllu", errors.append))) == 2
    assert [error.line for error in errors] == [4]
    assert "mark documents by # newdoc" in str(errors[0])


def test_directory_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    for name, options in (("conllu", {}), ("text", {"spacy_model": "x"})):
        with pytest.raises(InputError, match="expected a file, found a directory"):
            list(read(tmp_path, name, **options))


@given(st.binary(max_size=200), st.integers(0, len(CONLLU)))
def test_mutated_file_gives_documents_or_an_input_error(noise: bytes, at: int) -> None:
    content = CONLLU.encode()[:at] + noise + CONLLU.encode()[at + len(noise) :]
    lines = content.decode("utf-8", "replace").splitlines(keepends=True)
    with suppress(InputError):
        assert all(isinstance(document, Document) for document in conllu.parse(Record("x", 1, ("", lines)), Options()))


@needs_shared
def test_ewt_treebank_has_documented_sizes() -> None:
    path = str(SHARED / "conllu" / "ewt-dev.conllu.gz")
    trees = [sentence for record in conllu.records(path, Options()) for sentence, _ in conllu.sentences(record)]
    documents = list(read(path, "conllu"))
    assert (len(documents), len(trees)) == (318, 2001)
    assert [shown(event) for event in documents[0].events[:3]] == [
        "comes story ap from",
        "nominated bush individuals on",
        "replace bush jurists _",
    ]


@pytest.mark.parametrize(
    ("comment", "text"),
    [
        ("# text = He won't leave", "He won't leave"),
        ("", "He wo n't leave"),
        ("# text = He won't  go", "He wo n't leave"),
        ("# text = Today he won't leave", "He wo n't leave"),
    ],
)
def test_events_know_their_sentence(tmp_path: Path, comment: str, text: str) -> None:
    rows = ["He PRON 4 nsubj", "wo AUX 4 aux", "n't PART 4 advmod", "leave VERB 0 root"]
    lines = [comment] if comment else []
    for index, row in enumerate(rows, 1):
        form, upos, head, deprel = row.split()
        lines.append("\t".join([str(index), form, form.lower(), upos, "_", "_", head, deprel, "_", "_"]))
    (event,) = next(read(write(tmp_path, "\n".join(lines) + "\n\n"), "conllu")).events
    start, end = event.span or (0, 0)
    assert (event.text, text[start:end], event.pred) == (text, "leave", "leave")
