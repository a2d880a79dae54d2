"""Tables: what cells mean, errors that name the place, grouping, tables of other libraries, exact round trips."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import revup
from revup.data.events import Document, Event, document_from_json, document_to_json
from revup.data.readers import read
from revup.data.table_output import write_table
from revup.data.tables import COLUMNS, MISSING, SeenIds, from_table, grouped, parse_columns
from revup.errors import InputError, RevupError

ROWS: list[dict[str, Any]] = [
    {"document": "a", "pred": "convicted", "subj": "jury", "obj": "man", "mod": "of", "frame": "Verdict"},
    {"document": "a", "pred": "sentenced", "subj": None, "frames": '{"Sentencing": 0.9, "Becoming": 0.1}'},
    {"document": "b", "pred": "left", "subj": "he", "confidence": 0.5, "lemma": "leave", "note": "x"},
]
EXPECTED = [
    {
        "id": "a",
        "events": [
            {"pred": "convicted", "subj": "jury", "obj": "man", "mod": "of", "frame": "Verdict"},
            {"pred": "sentenced", "frames": {"Sentencing": 0.9, "Becoming": 0.1}},
        ],
    },
    {"id": "b", "events": [{"pred": "left", "subj": "he", "confidence": 0.5, "lemma": "leave", "note": "x"}]},
]


def as_json(documents: Any) -> list[dict[str, Any]]:
    return [document_to_json(document) for document in documents]


def put(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def fails(path: Path, format: str = "csv", **options: Any) -> str:
    with pytest.raises(InputError) as error:
        list(read(path, format, **options))
    return str(error.value).replace(str(path.parent) + "/", "")


# ---- CSV -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.tsv", "\t"), ("a.txt", ";"), ("a.csv.gz", ",")])
def test_csv_gives_documents(tmp_path: Path, name: str, separator: str) -> None:
    names = list(dict.fromkeys(key for row in ROWS for key in row))
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wt", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, names, delimiter=separator)
        table.writeheader()
        table.writerows(ROWS)
    assert as_json(read(tmp_path / name, "csv")) == EXPECTED


def test_columns_are_mapped_and_others_kept(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "story,verb,agent,subj,page", "s,met,she,IGNORED,7", "s,left,,x,")
    expected = [{"id": "s", "events": [{"pred": "met", "subj": "she", "page": "7"}, {"pred": "left"}]}]
    for columns in ("document=story,pred=verb, subj=agent", {"document": "story", "pred": "verb", "subj": "agent"}):
        assert as_json(read(path, "csv", columns=columns)) == expected


def test_missing_values_of_every_kind() -> None:
    pandas = pytest.importorskip("pandas")
    for missing in (None, math.nan, pandas.NA, pandas.NaT, *MISSING):
        rows = [{"document": "a", "pred": "left", "subj": missing, "frame": missing, "confidence": missing}]
        assert as_json(from_table(rows)) == [{"id": "a", "events": [{"pred": "left"}]}]


def test_quoted_line_breaks_separators_and_lines_of_errors(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "document,pred,text", 'a,left,"He, she', 'and ""they"" left."', "a,,x", "b,ran,")
    assert fails(path) == "a.csv: line 4: column 'pred': expected the predicate as text, found nothing"
    errors: list[InputError] = []
    assert as_json(read(path, "csv", errors.append)) == [{"id": "b", "events": [{"pred": "ran"}]}]
    assert len(errors) == 1
    path = put(tmp_path / "a.csv", "document,pred,text", 'a,left,"He, she', 'and ""they"" left."')
    (document,) = read(path, "csv")
    assert document.events[0].text == 'He, she\nand "they" left.'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["document,verb", "a,left"],
            "a.csv: no column 'pred' for the predicate: name it in `columns`, as in pred=verb",
        ),
        (["document,pred,pred", "a,b,c"], "a.csv: the column 'pred' stands there twice"),
        (["document,pred", "a,b", "a"], "a.csv: line 3: expected 2 cells as in the header, found 1"),
        (["document,pred", ",b"], "a.csv: line 2: column 'document': expected the document's id, found nothing"),
        (["document,pred,frames", "a,b,{"], "a.csv: line 2: column 'frames': not valid JSON: Expecting property name"),
        (
            ["document,pred,frames", "a,b,", 'a,c,"{""A"": -1}"'],
            "a.csv: line 3: column 'frames.A': expected a weight of 0 or more, found the number -1",
        ),
        (
            ["document,pred,confidence", "a,b,high"],
            "a.csv: line 2: column 'confidence': expected a number, found the text 'high'",
        ),
        (["document,pred", 'a,"b', "c"], "a.csv: line 2: not valid CSV: unexpected end of data"),
        (["document,pred,extra", "a,b,[1]"], "a.csv: line 2: column 'extra': expected an object, found a list"),
        (
            ["document,pred,span_start,span_end", "a,b,3,"],
            "a.csv: line 2: column 'span_end': expected the other end of span_start too",
        ),
        (["document,pred,span_start,span_end", "a,b,3,x"], "a.csv: line 2: column 'span_end': expected a whole number"),
    ],
)
def test_errors_name_file_line_and_column(tmp_path: Path, lines: list[str], message: str) -> None:
    assert fails(put(tmp_path / "a.csv", *lines)).startswith(message)


def test_rows_of_a_document_must_be_together(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "document,pred", "a,x", "b,y", "a,z")
    message = "line 4: column 'document': rows of the document 'a' are not together: sort the table by this column"
    assert fails(path) == f"a.csv: {message}"
    with pytest.raises(InputError, match=r"^row 3: column 'document': rows of the document 'a' are not together"):
        from_table([{"document": name, "pred": "x"} for name in "aba"])


def test_ids_are_remembered_in_constant_memory() -> None:
    seen = SeenIds(most=2)
    assert [seen.add(name) for name in ("a", "b", "b", "c", "a")] == [True, True, False, True, True]


def test_table_without_documents_has_one_a_row(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "pred,subj", "left,he", "", "came,she")
    assert [(document.id, len(document.events)) for document in read(path, "csv")] == [("a.csv:2", 1), ("a.csv:4", 1)]


def test_bad_utf8_in_csv_is_one_bad_document(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"document,pred\na,x\nb,\xff\nc,z\n")
    errors: list[InputError] = []
    assert [document.id for document in read(path, "csv", errors.append)] == ["c"]
    assert [error.line for error in errors] == [3]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("verb", "columns: expected KEY=COLUMN,… such as pred=verb,subj=agent, found 'verb'"),
        ("agent=subj", "columns: unknown key 'agent': one of document, pred"),
        ("{", "columns: expected KEY=COLUMN,… or a JSON object"),
        ('{"pred": 1}', "columns: expected names of columns"),
    ],
)
def test_wrong_columns_are_refused(columns: str, message: str) -> None:
    with pytest.raises(RevupError, match=message):
        parse_columns(columns)


def test_column_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv", "document,verb", "a,left")
    assert fails(path, columns="pred=Verb") == "a.csv: no column 'Verb' for pred: there are 'document', 'verb'"


def test_csv_memory_does_not_grow(tmp_path: Path) -> None:
    """Only one document is held: a generator of endless rows gives documents at once."""

    def endless() -> Any:
        number = 0
        while True:
            number += 1
            yield number, (f"d{number // 3}", "left")

    from revup.data.tables import layout_of

    stream = grouped(endless(), layout_of(["document", "pred"], None, ""), "")
    assert [next(stream)[0] for _ in range(3)] == [1, 3, 6]


# ---- other libraries -------------------------------------------------------------------------------------


def pandas_frame(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows)


def polars_frame(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("polars").DataFrame(rows)


def arrow_frame(rows: list[dict[str, Any]]) -> Any:
    names = dict.fromkeys(key for row in rows for key in row)
    return pytest.importorskip("pyarrow").table({name: [row.get(name) for row in rows] for name in names})


FRAMES = [pandas_frame, polars_frame, arrow_frame]


@pytest.mark.parametrize("frame", FRAMES)
def test_tables_of_other_libraries(frame: Callable[[list[dict[str, Any]]], Any]) -> None:
    assert as_json(revup.from_table(frame(ROWS))) == EXPECTED
    assert as_json(revup.from_table(ROWS)) == EXPECTED


@pytest.mark.parametrize("frame", FRAMES)
def test_structures_numbers_and_categories(frame: Callable[[list[dict[str, Any]]], Any]) -> None:
    rows = [
        {"document": 1, "pred": "left", "frames": {"A": 1.0, "B": None}, "candidates": ["A", "B"], "span_start": 2},
        {"document": 1, "pred": "ran", "frames": {"A": 0.5, "B": 0.5}, "candidates": None, "span_start": None},
    ]
    rows[0]["span_end"], rows[1]["span_end"] = 6, None
    (document,) = as_json(from_table(frame(rows)))
    assert document["id"] == "1"
    first, second = document["events"]
    assert first == {"pred": "left", "frames": {"A": 1.0}, "candidates": ["A", "B"], "span": [2, 6]}
    assert second == {"pred": "ran", "frames": {"A": 0.5, "B": 0.5}}


def test_pandas_index_and_float_ids() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"document": [1.0, 2.0], "pred": ["a", "b"]}, index=["x", "y"])
    frame["pred"] = frame["pred"].astype("category")
    assert as_json(from_table(frame)) == [{"id": str(n), "events": [{"pred": p}]} for n, p in ((1, "a"), (2, "b"))]
    frame.loc["y", "document"] = math.nan
    with pytest.raises(InputError, match=r"^row 2: column 'document': expected the document's id, found nothing"):
        from_table(frame)


@pytest.mark.parametrize("wrong", ["docs.csv", {"pred": ["a"]}, 7, [{"pred": "a"}, "b"], [("a", "b")]])
def test_what_is_no_table_is_refused(wrong: Any) -> None:
    with pytest.raises(RevupError, match="expected a table \\(pandas, polars, Arrow\\) or rows as dicts, found a"):
        from_table(wrong)


def test_empty_tables_have_no_documents(tmp_path: Path) -> None:
    assert from_table([]) == []
    assert list(read(put(tmp_path / "a.csv", "document,pred"), "csv")) == []
    (tmp_path / "b.csv").write_bytes(b"")
    assert list(read(tmp_path / "b.csv", "csv")) == []


def test_wrong_type_in_a_frame_names_row_and_column() -> None:
    frame = pandas_frame([{"document": "a", "verb": "x", "subj": 5}])
    with pytest.raises(InputError, match=r"^row 1: column 'subj': expected text or null, found the number 5"):
        from_table(frame, columns={"pred": "verb"})


def test_parquet_that_is_none_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert fails(put(tmp_path / "a.parquet", "no"), "parquet").startswith("a.parquet: not a valid Parquet file: ")


# ---- round trips -----------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=6) | st.sampled_from(
    (*sorted(MISSING), "a,b", '"', "\r\n", "\n", "\t;", "nan", "None", " ")
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
PREDICATE = TEXT.filter(lambda text: text.strip() != "")
EVENTS = st.fixed_dictionaries(
    {"pred": PREDICATE},
    optional={
        **dict.fromkeys(("subj", "obj", "mod", "lemma", "text"), TEXT),
        "frame": PREDICATE,
        "frames": st.dictionaries(PREDICATE, st.floats(0.01, 1e9), min_size=1, max_size=3),
        "confidence": st.floats(0, 1e300),
        "candidates": st.lists(PREDICATE, min_size=1, max_size=3, unique=True),
        "sources": st.dictionaries(PREDICATE, PREDICATE, min_size=1, max_size=2),
        "pos": st.sampled_from("vn"),
        "span": st.tuples(st.integers(0, 9), st.integers(10, 20)).map(list),
        "note": JSON,
        "document": JSON,
    },
)
DOCUMENTS = st.lists(
    st.fixed_dictionaries(
        {"id": TEXT.filter(bool), "events": st.lists(EVENTS, max_size=3)},
        optional={"source": JSON, "pred": JSON},
    ),
    max_size=4,
    unique_by=lambda document: document["id"],
)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz", "a.parquet", "table"])
def test_round_trip_is_exact(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")

    @settings(max_examples=120, deadline=None)
    @given(DOCUMENTS)
    def check(data: list[dict[str, Any]]) -> None:
        documents = [document_from_json(each) for each in json.loads(json.dumps(data))]
        if name == "table":
            assert revup.from_table(revup.to_table(documents)) == documents
            return
        write_table(documents, tmp_path / name, force=True)
        assert list(read(tmp_path / name, "parquet" if name.endswith("parquet") else "csv")) == documents

    check()


def test_many_rows_are_written_and_read_in_parts(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    documents = [Document(f"d{n}", [Event(f"p{n}"), Event("x", subj="y")]) for n in range(10_500)]
    write_table(documents, tmp_path / "a.parquet")
    assert list(read(tmp_path / "a.parquet", "parquet")) == documents
    with gzip.open(tmp_path / "b.parquet.gz", "wb") as out:
        out.write((tmp_path / "a.parquet").read_bytes())
    assert sum(1 for _ in read(tmp_path / "b.parquet.gz", "parquet")) == 10_500


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([Document("a", []), Document("b", []), Document("a", [])], "two documents have the id 'a'"),
        ([Document("", [Event("x")])], "a document without an id can't be in a table"),
    ],
)
def test_ids_that_do_not_group_are_refused(documents: list[Document], message: str, tmp_path: Path) -> None:
    with pytest.raises(RevupError, match=message):
        write_table(documents, tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())


def test_every_column_is_documented() -> None:
    from paths import ROOT

    text = (ROOT / "docs" / "tables.md").read_text("utf-8")
    assert not [name for name in COLUMNS if f"`{name}`" not in text]
