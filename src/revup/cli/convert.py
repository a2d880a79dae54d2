"""`revup convert`."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import revup
from revup.cli.options import Parser, documents
from revup.errors import InputError

if TYPE_CHECKING:
    from revup.data.events import Document

JSONL = (".jsonl", ".jsonl.gz")


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "convert",
        "revup convert stories.csv --columns pred=verb,subj=agent --out stories.jsonl",
        "revup convert docs.jsonl.gz --out docs.parquet",
    )
    parser.common("file")
    parser.output(
        "--out", required=True, metavar="FILE2", help="the file to write: .jsonl, .csv, .tsv (also .gz) or .parquet"
    )
    parser.reading()
    parser.common("--force")
    given = parser.parse_args(arguments)
    from revup.data.table_output import SUFFIXES, is_table, write_table

    with documents(given) as stream:
        if is_table(given.out):
            write_table(stream, given.out, given.force)
        elif given.out == "-" or given.out.lower().endswith(JSONL):
            revup.write(_with_events(stream), given.out, given.force, flush=given.file == "-")
        else:
            raise InputError(f"expected a name that ends in {', '.join((*JSONL, *SUFFIXES))}, or -", given.out)


def _with_events(stream: Iterator["Document"]) -> Iterator["Document"]:
    """Leave out documents without events, which are an error in JSON Lines."""
    empty = 0
    for document in stream:
        if document.events:
            yield document
        else:
            empty += 1
    if empty:
        print(f"revup: note: left out {empty} documents without events", file=sys.stderr)
