"""`revup predict`."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import revup
from revup.cli.options import (
    Parser,
    chosen,
    documents,
    load,
    pick,
    probability,
    refuse_on_cluster,
    report_cluster,
    whole,
)
from revup.data.events import Document
from revup.data.told import check_knowledge
from revup.errors import RevupError
from revup.reporting.progress import counter

if TYPE_CHECKING:
    from revup.inference.trained import Trained


def run(arguments: list[str]) -> None:
    """Run the verb with these arguments."""
    parser = Parser(
        "predict",
        "revup predict run docs.jsonl --top 3 > labelled.jsonl",
        "revup predict run docs.jsonl --at-least 0.8 --out labelled.jsonl",
        "revup predict run news.txt --format text --spacy-model en_core_web_sm --table frames.csv",
        "revup predict run stories.csv --columns pred=verb,subj=agent --out labelled.jsonl.gz",
        "revup predict run docs.jsonl.gz --engine ray --workers 8 --out labelled.jsonl.gz",
        "tail -f events.jsonl | revup predict run -",
    )
    parser.model(precision=True)
    parser.common("file")
    parser.output("--out", metavar="FILE", help="where to write documents (default: standard output, unless --table)")
    parser.output(
        "--table",
        metavar="FILE",
        help="write a flat table too, a predicted frame a row: .csv, .tsv (also .gz), .parquet, or - for CSV",
    )
    parser.add("--top", type=whole(1), default=5, metavar="N", help="frames for each event")
    parser.add(
        "--at-least",
        type=probability,
        metavar="P",
        help="leave out predictions below this probability, and report the accuracy to expect of the others",
    )
    parser.add("--revise", action="store_true", help="use the frames in the input as side knowledge")
    parser.common("--lexicon", "--no-lexicon", "--event-vectors", "--encoder")
    parser.reading()
    parser.common("--engine", "--workers", "--force")
    given = parser.parse_args(arguments)
    if given.out is None and given.table is None:
        given.out = "-"
    if given.out == given.table == "-":
        raise RevupError("--out and --table can't both be standard output")
    refuse_on_cluster(given)
    model = load(given)
    rule = None if given.at_least is None else revup.Abstention(model, given.at_least, given.revise)
    if given.engine == "ray":
        _on_cluster(model, rule, given)
    else:
        _here(model, rule, given)
    if rule is not None:
        print(rule.report(), file=sys.stderr)


def _on_cluster(model: Trained, rule: revup.Abstention | None, given: argparse.Namespace) -> None:
    from revup.data.readers import Options

    report = revup.predict_on_cluster(
        model,
        at_least=rule,
        progress=counter("documents"),
        **pick(given, "file", "out", "table", "top", "revise", "format", "skip_bad", "workers", "force"),
        **chosen(given, Options),
    )
    report_cluster(report, given.out or given.table)


def _here(model: Trained, rule: revup.Abstention | None, given: argparse.Namespace) -> None:
    live = given.file == "-"
    known = frozenset(model.frames)
    with documents(given, partial(check_knowledge, frames=known) if given.revise else None) as stream:
        labelled = revup.predict(model, stream, given.top, given.revise, rule or 0.0, live)
        if given.table is None:
            revup.write(labelled, given.out, given.force, flush=live)
        else:
            _write_both(labelled, given, live)


def _write_both(labelled: Iterator[Document], given: argparse.Namespace, live: bool) -> None:
    """Write a table of the predictions and, if asked for, the documents."""
    from revup.data.table_output import PREDICTION_COLUMNS, prediction_rows, table_file

    with table_file(given.table, PREDICTION_COLUMNS, given.force) as write_row:

        def tabled() -> Iterator[Document]:
            for document in labelled:
                for row in prediction_rows([document]):
                    write_row(row)
                yield document

        if given.out is None:
            deque(tabled(), maxlen=0)
        else:
            revup.write(tabled(), given.out, given.force, flush=live)
